// SPDX-License-Identifier: Apache-2.0
// How it works: one pool job at a time does all that has gathered for the disk: acknowledgements,
// reads of backlog, appends with one fdatasync behind them. Batches that it works on belong to it.
// A delivery that goes away takes over a job that has not begun, or waits for one that has; the
// loop's callback, which always comes, then finds the disk abandoned and frees it.
#include "agent/delivery_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"

// --- On a thread of the pool ---

// Batches of an earlier process become streams of their own; the loop merges them with its.
static int found_batch(void *user, const struct spool_ref *ref, const struct spool_info *info)
{
    struct disk *k = user;
    char bytes[2 * SPOOL_NAME_BYTES_MAX + 1];
    struct sv key;
    if (k->recovered_batches == LIMIT_DELIVERY_BATCHES)
        return -E2BIG;
    int r = stream_key(info->group, info->stream, bytes, &key);
    if (r < 0)
        return -ENOMEM;
    struct stream *s = map_find(&k->recovered_map, key);
    if (!s) {
        s = stream_new(info->group, info->stream);
        if (!s || map_put(&k->recovered_map, key, s, NULL) < 0) {
            stream_free(s);
            return -ENOMEM;
        }
        s->next = k->recovered;
        k->recovered = s;
    }
    struct batch *b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    *b = (struct batch){
        .stream = s,
        .ref = *ref,
        .events = info->events,
        .samples = info->samples,
        .order = info->sequence,
        .first_ms = info->first_ms,
        .last_ms = info->last_ms,
        .is_backlog = true,
    };
    queue_insert(&s->backlog, b);
    s->batches++;
    k->recovered_batches++;
    return 0;
}

// Nothing of what was appended since the last sync can be relied on.
static void give_back(struct disk *k)
{
    for (struct batch *b = k->append.first; b; b = b->next) {
        int r = spool_acknowledge(k->spool, &b->ref);
        if (r < 0)
            k->acknowledge_error = r;
        b->ref.segment = 0;
    }
    queue_append(&k->append, &k->failed);
    k->failed = k->append;
    k->append = (struct queue){0};
}

static void append_batches(struct disk *k)
{
    struct queue todo = k->append;
    struct batch *b;
    k->append = (struct queue){0};
    while (todo.first && k->error == 0) {
        struct spool_ref ref;
        k->error = spool_append(k->spool, todo.first->record, todo.first->ref.bytes, &ref);
        if (k->error < 0)
            break;
        b = queue_pop(&todo);
        b->ref = ref;
        queue_push(&k->append, b);
    }
    k->failed = todo;
    int r = k->append.first ? spool_sync(k->spool) : 0;
    if (r < 0) {
        k->error = r;
        give_back(k);
    }
}

// A write over RLIMIT_FSIZE is an error like any other, and no reason to end.
static void block_file_size_signal(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGXFSZ);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void do_work(struct disk *k)
{
    block_file_size_signal();
    if (k->is_recovering) {
        k->recovery_result = spool_recover(k->spool, found_batch, k, &k->recovery);
        return;
    }
    for (struct batch *b = k->done.first; b; b = b->next) {
        int r = spool_acknowledge(k->spool, &b->ref);
        if (r < 0)
            k->acknowledge_error = r;
    }
    for (size_t i = 0; i < k->load_count; i++) {
        struct disk_load *l = &k->loads[i];
        l->result = spool_read(k->spool, &l->batch->ref, &l->record);
    }
    append_batches(k);
}

static void set_state(struct disk *k, enum disk_state state)
{
    (void)pthread_mutex_lock(&k->mutex);
    k->state = state;
    (void)pthread_cond_signal(&k->worked);
    (void)pthread_mutex_unlock(&k->mutex);
}

static void work(void *user)
{
    struct disk *k = user;
    (void)pthread_mutex_lock(&k->mutex);
    bool is_ours = k->state == DISK_QUEUED;
    if (is_ours)
        k->state = DISK_RUNNING;
    (void)pthread_mutex_unlock(&k->mutex);
    if (!is_ours)
        return; // disk_close was first
    do_work(k);
    set_state(k, DISK_WORKED);
}

// --- On the loop ---

static void disk_free(struct disk *k)
{
    map_deinit(&k->recovered_map);
    (void)pthread_cond_destroy(&k->worked);
    (void)pthread_mutex_destroy(&k->mutex);
    free(k);
}

static void worked(void *user)
{
    struct disk *k = user;
    if (k->is_abandoned) {
        disk_free(k);
        return;
    }
    k->state = DISK_IDLE;
    k->delivery->is_job_running = false;
    delivery_disk_worked(k->delivery);
}

int disk_new(struct delivery *d, const char *directory, uint64_t max_bytes, struct error *err)
{
    struct disk *k = calloc(1, sizeof(*k));
    if (!k)
        return error_set(err, -ENOMEM, "out of memory");
    int r = spool_open(directory, max_bytes, &k->spool, err);
    if (r < 0) {
        free(k);
        return r;
    }
    (void)pthread_mutex_init(&k->mutex, NULL);
    (void)pthread_cond_init(&k->worked, NULL);
    k->delivery = d;
    k->recovered_map = MAP_INIT(LIMIT_DELIVERY_BATCHES);
    k->is_recovering = true;
    d->disk = k;
    return 0;
}

// Backlog of streams whose turn may come, oldest first, a few of them.
static struct stream *next_to_load(struct delivery *d)
{
    struct stream *best = NULL;
    uint64_t now_ns = loop_now_ns(d->loop);
    for (struct stream *s = d->streams; s; s = s->next) {
        struct batch *b = s->backlog.first;
        if (b && b->ref.segment && !b->record && !b->is_loading && !s->flight &&
            s->not_before_ns <= now_ns && (!best || b->order < best->backlog.first->order))
            best = s;
    }
    return best;
}

static void collect_loads(struct delivery *d)
{
    size_t ready = 0;
    for (struct stream *s = d->streams; s; s = s->next)
        ready += s->backlog.first && s->backlog.first->ref.segment && s->backlog.first->record;
    d->disk->load_count = 0;
    while (d->logs && ready + d->disk->load_count < DELIVERY_LOADS) {
        struct stream *s = next_to_load(d);
        if (!s)
            return;
        s->backlog.first->is_loading = true;
        d->disk->loads[d->disk->load_count++] = (struct disk_load){.batch = s->backlog.first};
    }
}

static void collect_memory(struct delivery *d, struct queue *from)
{
    struct queue all = *from;
    *from = (struct queue){0};
    for (struct batch *b; (b = queue_pop(&all));) {
        if (b->ref.segment)
            queue_push(from, b);
        else
            queue_push(&d->unspooled, b);
    }
}

void disk_collect_memory(struct delivery *d)
{
    for (struct stream *s = d->streams; s; s = s->next) {
        collect_memory(d, &s->backlog);
        collect_memory(d, &s->live);
    }
}

static void collect_appends(struct delivery *d)
{
    if (d->is_disk_failing) {
        if (loop_now_ns(d->loop) < d->disk_retry_ns)
            return;
        disk_collect_memory(d);
    }
    queue_append(&d->disk->append, &d->unspooled);
}

void disk_start(struct delivery *d)
{
    struct disk *k = d->disk;
    if (!k || d->is_job_running)
        return;
    if (!k->is_recovering) {
        k->error = k->acknowledge_error = 0;
        queue_append(&k->done, &d->done);
        collect_loads(d);
        collect_appends(d);
        if (!k->done.first && !k->append.first && k->load_count == 0)
            return;
    }
    k->state = DISK_QUEUED;
    d->is_job_running = true;
    int r = loop_job_start(d->loop, work, worked, k);
    if (r == 0)
        return;
    // No thread for it now: all of it comes back as if the disk had failed.
    k->state = DISK_IDLE;
    d->is_job_running = false;
    queue_append(&d->done, &k->done);
    queue_append(&d->unspooled, &k->append);
    for (size_t i = 0; i < k->load_count; i++)
        k->loads[i].batch->is_loading = false;
    k->load_count = 0;
    log_warn("no thread to write the spool", LOG_ERRNO(r), LOG_LIMIT("job"));
}

bool disk_is_idle(const struct delivery *d)
{
    return !d->is_job_running && !d->done.first;
}

// The job's work is done, by whomever; its thread touches nothing any more.
static void finish_job(struct disk *k)
{
    (void)pthread_mutex_lock(&k->mutex);
    bool is_mine = k->state == DISK_QUEUED;
    if (is_mine)
        k->state = DISK_RUNNING;
    while (!is_mine && k->state == DISK_RUNNING)
        (void)pthread_cond_wait(&k->worked, &k->mutex);
    (void)pthread_mutex_unlock(&k->mutex);
    if (is_mine)
        do_work(k);
}

static void write_rest(struct delivery *d)
{
    struct disk *k = d->disk;
    d->disk_retry_ns = 0;
    k->load_count = 0;
    k->error = 0;
    queue_append(&k->done, &d->done);
    collect_appends(d);
    do_work(k);
    delivery_disk_worked(d);
}

void disk_close(struct delivery *d)
{
    struct disk *k = d->disk;
    bool was_queued = d->is_job_running;
    if (!k)
        return;
    if (was_queued) {
        finish_job(k);
        d->is_job_running = false;
        delivery_disk_worked(d);
    }
    if (k->is_recovering) { // no job could be started so far
        do_work(k);
        delivery_disk_worked(d);
    }
    write_rest(d);
    spool_close(k->spool, !d->is_disk_failing);
    d->disk = NULL;
    k->is_abandoned = true;
    if (!was_queued)
        disk_free(k);
}
