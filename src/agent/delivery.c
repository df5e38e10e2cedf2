// SPDX-License-Identifier: Apache-2.0
// How it works: see delivery_internal.h for the parts. Here: events come in, the flush timer closes
// what they became, and what a disk job has done is taken over.
// Invariant: added + recovered = delivered + lost + waiting, whenever the loop turns.
#include "agent/delivery.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/delivery_internal.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"

#define FIRST_ORDER (UINT64_C(1) << 62) // behind everything that an earlier process left
#define DISK_RETRY_LEAST_NS NS_PER_S
#define DISK_RETRY_MOST_NS (60 * NS_PER_S)

const char *delivery_loss_text(enum delivery_loss l)
{
    switch (l) {
    case DELIVERY_LOST_OLD:
        return "too_old";
    case DELIVERY_LOST_FULL:
        return "spool_full";
    case DELIVERY_LOST_REFUSED:
        return "refused";
    case DELIVERY_LOST_LARGE:
        return "too_large";
    case DELIVERY_LOST_CORRUPT:
        return "corrupt";
    case DELIVERY_LOST_MEMORY:
        return "no_memory";
    case DELIVERY_LOSS_COUNT:
        break;
    }
    return "";
}

// --- What a disk job has done ---

static void adopt(struct delivery *d, struct stream *s)
{
    struct sv key = {s->key, s->group_bytes + 1 + s->stream_bytes};
    struct stream *known = map_find(&d->stream_map, key);
    for (struct batch *b = s->backlog.first; b; b = b->next) {
        d->stats.spool_batches++;
        d->stats.spool_bytes += b->ref.bytes;
    }
    if (!known) {
        s->delivery = d;
        s->next = d->streams;
        d->streams = s;
        // Without memory for the name its batches are sent all the same.
        if (map_put(&d->stream_map, key, s, NULL) < 0)
            log_warn("no memory for the name of a log stream", LOG_LIMIT("stream"));
        return;
    }
    known->batches += s->batches;
    for (struct batch *b; (b = queue_pop(&s->backlog));) {
        b->stream = known;
        queue_insert(&known->backlog, b);
    }
    stream_free(s);
}

static void tell_recovery(const struct disk *k)
{
    const struct spool_recovery *r = &k->recovery;
    if (k->recovery_result < 0)
        log_warn("spool not read to its end, the rest stays for the next start",
                 LOG_ERRNO(k->recovery_result));
    if (r->corrupt_records || r->damaged || r->torn_bytes)
        log_warn("spool was damaged", LOG_U64("corrupt_records", r->corrupt_records),
                 LOG_U64("corrupt_events", r->corrupt_events), LOG_U64("damaged", r->damaged),
                 LOG_U64("torn_bytes", r->torn_bytes));
    if (r->foreign)
        log_warn("spool directory holds files of others, left alone", LOG_U64("files", r->foreign));
    if (r->records)
        log_info("batches of an earlier process in the spool", LOG_U64("batches", r->records),
                 LOG_U64("events", r->events), LOG_BOOL("unclean", spool_was_unclean(k->spool)));
}

static void take_recovered(struct delivery *d)
{
    struct disk *k = d->disk;
    struct delivery_stats *t = &d->stats;
    const struct spool_recovery *r = &k->recovery;
    k->is_recovering = false;
    t->recovered_events += r->events + r->corrupt_events;
    t->recovered_samples += r->samples + r->corrupt_samples;
    t->waiting_events += r->events;
    t->waiting_samples += r->samples;
    t->lost_events[DELIVERY_LOST_CORRUPT] += r->corrupt_events;
    t->lost_samples[DELIVERY_LOST_CORRUPT] += r->corrupt_samples;
    t->spool_foreign = r->foreign;
    while (k->recovered) {
        struct stream *s = k->recovered;
        k->recovered = s->next;
        adopt(d, s);
    }
    map_deinit(&k->recovered_map);
    tell_recovery(k);
}

static void take_loads(struct delivery *d)
{
    struct disk *k = d->disk;
    for (size_t i = 0; i < k->load_count; i++) {
        struct disk_load *l = &k->loads[i];
        struct batch *b = l->batch;
        b->is_loading = false;
        b->record = l->record;
        if (l->result == 0 || l->result == -ENOENT) // dropped, see below
            continue;
        if (l->result != -EBADMSG && l->result != -EIO) { // memory, descriptors: it is still there
            b->stream->not_before_ns = loop_now_ns(d->loop) + NS_PER_S;
            continue;
        }
        log_warn("a batch in the spool cannot be read, it is lost", LOG_ERRNO(l->result),
                 LOG_LIMIT("read"));
        queue_remove(&b->stream->backlog, b);
        batch_lose(b, DELIVERY_LOST_CORRUPT);
    }
    k->load_count = 0;
}

static void judge_disk(struct delivery *d)
{
    struct disk *k = d->disk;
    if (k->error == 0) {
        if (d->is_disk_failing && k->append.first) {
            log_info("spool can be written again");
            d->is_disk_failing = false;
            d->disk_attempts = 0;
            disk_collect_memory(d); // batches that were closed meanwhile
        }
        return;
    }
    if (!d->is_disk_failing)
        log_warn("spool cannot be written, batches are kept in memory", LOG_ERRNO(k->error));
    d->is_disk_failing = true;
    d->stats.spool_failures++;
    d->disk_retry_ns = loop_now_ns(d->loop) +
                       clock_backoff_ns(d->disk_attempts, DISK_RETRY_LEAST_NS, DISK_RETRY_MOST_NS);
    d->disk_attempts += d->disk_attempts < 32;
}

static void enqueue_all(struct queue *q)
{
    struct queue all = *q;
    *q = (struct queue){0};
    for (struct batch *b; (b = queue_pop(&all));)
        batch_enqueue(b);
}

static void take_appends(struct delivery *d)
{
    struct disk *k = d->disk;
    judge_disk(d);
    for (struct batch *b = k->append.first; b; b = b->next)
        d->memory_bytes -= b->ref.bytes;
    enqueue_all(&k->append);
    enqueue_all(&k->failed);
    if (d->is_disk_failing)
        enqueue_all(&d->unspooled);
    delivery_keep_memory(d);
}

static void take_acknowledged(struct delivery *d)
{
    struct disk *k = d->disk;
    if (k->acknowledge_error < 0)
        log_warn("spool cannot be written, delivered batches may be sent again after a restart",
                 LOG_ERRNO(k->acknowledge_error), LOG_LIMIT("acknowledge"));
    for (struct batch *b; (b = queue_pop(&k->done));) {
        b->stream->acknowledging--;
        batch_free(b);
    }
}

// loaded_bytes: of a live queue.
static void lose_dropped(struct queue *q, uint32_t through, uint64_t *loaded_bytes)
{
    struct queue all = *q;
    *q = (struct queue){0};
    for (struct batch *b; (b = queue_pop(&all));) {
        if (b->ref.segment == 0 || b->ref.segment > through) {
            queue_push(q, b);
            continue;
        }
        if (loaded_bytes)
            *loaded_bytes -= b->ref.bytes;
        batch_unload(b);
        b->ref.segment = 0;
        batch_lose(b, DELIVERY_LOST_FULL);
    }
}

// Segments that went for want of room, and what was in them.
static void take_dropped(struct delivery *d)
{
    uint32_t through = spool_dropped(d->disk->spool);
    if (through == d->dropped)
        return;
    d->dropped = through;
    for (struct stream *s = d->streams; s; s = s->next) {
        lose_dropped(&s->live, through, &d->loaded_bytes);
        lose_dropped(&s->backlog, through, NULL);
    }
    for (size_t i = 0; i < DELIVERY_FLIGHTS; i++) {
        struct batch *b = d->flights[i].batch;
        if (!b || b->ref.segment == 0 || b->ref.segment > through)
            continue;
        b->ref.segment = 0;
        b->is_dropped = true;
        d->memory_bytes += b->ref.bytes;
    }
    log_warn("spool is full, the oldest batches are lost", LOG_LIMIT("full"));
}

void delivery_disk_worked(struct delivery *d)
{
    if (d->disk->is_recovering) {
        take_recovered(d);
    } else {
        take_acknowledged(d);
        take_loads(d);
        take_appends(d);
        take_dropped(d);
    }
    if (!d->is_closing)
        delivery_pump(d);
}

// --- Flushing ---

static void lose_old(struct queue *q, uint64_t *loaded_bytes)
{
    for (struct batch *b; (b = q->first) && !b->is_loading && batch_is_old(b);) {
        (void)queue_pop(q);
        if (loaded_bytes && b->ref.segment)
            *loaded_bytes -= b->ref.bytes;
        batch_lose(b, DELIVERY_LOST_OLD);
    }
}

static void flush(void *user)
{
    struct delivery *d = user;
    for (struct stream *s = d->streams; s; s = s->next) {
        stream_close(s);
        lose_old(&s->live, &d->loaded_bytes);
        lose_old(&s->backlog, NULL);
    }
    streams_sweep(d);
    disk_start(d);
    delivery_pump(d);
}

static void wake(void *user)
{
    delivery_pump(user);
}

static void drain_ended(void *user)
{
    struct delivery *d = user;
    if (!d->is_draining)
        return;
    d->is_draining = false;
    if (d->drained)
        d->drained(d->user);
}

// --- The contract ---

static int open_disk(struct delivery *d, const struct delivery_options *o, struct error *err)
{
    struct error local = ERROR_INIT;
    if (!o->spool_directory || !*o->spool_directory)
        return 0;
    int r = disk_new(d, o->spool_directory, o->spool_max_bytes, &local);
    if (r == -ENOMEM || r == -EBUSY)
        return error_set(err, r, "%s", local.text);
    if (r < 0)
        log_warn("no spool on disk, batches are kept in memory and lost at a restart",
                 LOG_STR("reason", local.text));
    return 0;
}

static int make_timers(struct delivery *d)
{
    int r = loop_timer_new(d->loop, flush, d, &d->flush);
    if (r == 0)
        r = loop_timer_new(d->loop, wake, d, &d->wake);
    if (r == 0)
        r = loop_timer_new(d->loop, drain_ended, d, &d->drain);
    return r;
}

int delivery_new(const struct delivery_options *o, struct delivery **out, struct error *err)
{
    struct delivery *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    *d = (struct delivery){
        .loop = o->loop,
        .logs = o->logs,
        .max_age_ms = o->spool_max_age_ns / NS_PER_MS,
        .drained = o->drained,
        .user = o->user,
        .stream_map = MAP_INIT(LIMIT_DELIVERY_BATCHES),
        .next_order = FIRST_ORDER,
        .window = DELIVERY_FLIGHTS,
    };
    if (d->max_age_ms == 0 || d->max_age_ms > LOGS_OLDEST_MS)
        d->max_age_ms = LOGS_OLDEST_MS;
    int r = make_timers(d);
    if (r < 0)
        (void)error_set(err, r, "out of memory");
    else
        r = open_disk(d, o, err);
    if (r < 0) {
        delivery_free(d);
        return r;
    }
    d->stats.was_unclean = d->disk && spool_was_unclean(d->disk->spool);
    if (d->stats.was_unclean)
        log_warn("the process before did not end in order, events that it held in memory are lost");
    delivery_set_flush(d, o->flush_ns);
    disk_start(d);
    *out = d;
    return 0;
}

// Which loss an event that nobody would take is; DELIVERY_LOSS_COUNT: it is fine.
static enum delivery_loss judge(const struct delivery_event *e)
{
    int64_t now_ms = (int64_t)(clock_wall_ns() / NS_PER_MS);
    if (!e->message.len || !e->group.len || !e->stream.len || e->group.len > SPOOL_NAME_BYTES_MAX ||
        e->stream.len > SPOOL_NAME_BYTES_MAX)
        return DELIVERY_LOST_REFUSED;
    if (e->message.len > LOGS_EVENT_BYTES_MAX - LOGS_EVENT_OVERHEAD)
        return DELIVERY_LOST_LARGE;
    if (e->timestamp_ms < 0 || e->timestamp_ms < now_ms - LOGS_OLDEST_MS ||
        e->timestamp_ms > now_ms + LOGS_NEWEST_MS)
        return DELIVERY_LOST_OLD;
    return DELIVERY_LOSS_COUNT;
}

// Records in the making count as memory too: over the limit they are closed, so that the oldest
// batches can go.
static void make_room(struct delivery *d)
{
    if (d->gathered_bytes + d->memory_bytes <= LIMIT_DELIVERY_MEMORY_BYTES)
        return;
    for (struct stream *s = d->streams; s; s = s->next)
        stream_close(s);
    disk_start(d);
}

void delivery_add(struct delivery *d, const struct delivery_event *event)
{
    d->stats.events++;
    d->stats.samples += event->samples;
    enum delivery_loss why = judge(event);
    if (why != DELIVERY_LOSS_COUNT) {
        lose_event(d, event->samples, why);
        return;
    }
    make_room(d);
    struct stream *s = stream_get(d, event->group, event->stream);
    if (!s) {
        bool is_full = d->stream_map.count >= LIMIT_DELIVERY_STREAMS;
        lose_event(d, event->samples, is_full ? DELIVERY_LOST_FULL : DELIVERY_LOST_MEMORY);
        return;
    }
    uint64_t batches = d->stats.batches;
    if (stream_gather(s, event) && d->stats.batches != batches)
        disk_start(d); // a full one need not wait for the flush
}

void delivery_set_logs(struct delivery *d, struct aws_logs *logs)
{
    delivery_cancel_flights(d);
    d->logs = logs;
    d->is_held = false;
    d->holds = d->throttles = 0;
    d->gate_ns = 0;
    d->window = DELIVERY_FLIGHTS;
    for (struct stream *s = d->streams; s; s = s->next)
        s->not_before_ns = s->attempts = 0;
    loop_timer_set(d->wake, 0, 0);
}

void delivery_set_flush(struct delivery *d, uint64_t flush_ns)
{
    uint64_t next_ns = flush_ns > NS_PER_MS ? flush_ns : NS_PER_MS;
    if (next_ns == d->flush_ns) // hangups in a row must not put the flush off for ever
        return;
    d->flush_ns = next_ns;
    loop_timer_set(d->flush, next_ns, next_ns);
}

void delivery_drain(struct delivery *d, uint64_t deadline_ns)
{
    d->is_draining = true;
    loop_timer_set(d->drain, deadline_ns, 0);
    flush(d);
}

static void tell_what_is_lost(const struct delivery *d)
{
    uint64_t batches = 0, events = 0;
    for (const struct stream *s = d->streams; s; s = s->next) {
        const struct batch *heads[] = {s->live.first, s->backlog.first};
        for (size_t i = 0; i < ARRAY_SIZE(heads); i++)
            for (const struct batch *b = heads[i]; b; b = b->next) {
                batches += b->ref.segment == 0;
                events += b->ref.segment == 0 ? b->events - b->done_events : 0;
            }
    }
    if (batches > 0)
        log_warn("batches that were in memory alone are lost", LOG_U64("batches", batches),
                 LOG_U64("events", events));
}

void delivery_free(struct delivery *d)
{
    if (!d)
        return;
    d->is_closing = true;
    delivery_cancel_flights(d);
    for (struct stream *s = d->streams; s; s = s->next)
        stream_close(s);
    disk_close(d);
    tell_what_is_lost(d);
    loop_timer_free(d->flush);
    loop_timer_free(d->wake);
    loop_timer_free(d->drain);
    map_deinit(&d->stream_map);
    while (d->streams) {
        struct stream *s = d->streams;
        d->streams = s->next;
        stream_free(s);
    }
    free(d);
}

void delivery_get_stats(const struct delivery *d, struct delivery_stats *out)
{
    const struct batch *oldest = NULL;
    int64_t oldest_ms = INT64_MAX;
    for (const struct stream *s = d->streams; s; s = s->next) {
        const struct batch *heads[] = {s->live.first, s->backlog.first,
                                       s->flight ? s->flight->batch : NULL};
        for (size_t i = 0; i < ARRAY_SIZE(heads); i++)
            if (heads[i] && (!oldest || heads[i]->order < oldest->order)) {
                oldest = heads[i];
                oldest_ms = oldest->first_ms;
            }
        if (s->gather.len > 0 && s->gathered.first_ms < oldest_ms)
            oldest_ms = s->gathered.first_ms;
    }
    *out = d->stats;
    out->oldest_wall_ns = oldest_ms < INT64_MAX ? (uint64_t)oldest_ms * NS_PER_MS : 0;
    out->is_spooling_to_memory = !d->disk || d->is_disk_failing;
    out->last_error = d->last_error;
}
