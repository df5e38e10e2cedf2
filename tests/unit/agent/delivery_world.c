// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "delivery_world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"

struct world world;

struct loop_timer {
    struct loop_timer *next;
    void (*fired)(void *user);
    void *user;
    uint64_t due_ns, repeat_ns; // due 0: not set
};

struct job {
    struct job *next;
    void (*work)(void *user);
    void (*done)(void *user);
    void *user;
    uint64_t due_ns;
    bool is_worked;
};

struct logs_call {
    struct logs_call *next;
    void (*done)(void *user, const struct logs_result *r);
    void *user;
    struct request request;
    uint64_t due_ns;
};

struct loop {
    uint64_t now_ns;
    struct loop_timer *timers;
    struct job *jobs;
    struct logs_call *calls;
};

struct aws_logs {
    int unused;
};

static struct aws_logs the_logs;
static struct loop the_loop;

// --- Time ---

uint64_t __wrap_clock_wall_ns(void);
uint64_t __wrap_clock_jitter_ns(uint64_t most_ns);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len, off_t offset);
ssize_t __real_pwrite64(int fd, const void *bytes, size_t len, off_t offset);

uint64_t __wrap_clock_wall_ns(void)
{
    return WORLD_START_WALL_NS + the_loop.now_ns + world.wall_offset_ns;
}

uint64_t __wrap_clock_jitter_ns(uint64_t most_ns)
{
    return world_random(most_ns + 1);
}

// A disk that fails takes half of a record first.
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len, off_t offset)
{
    if (world.disk_error && len > 8) {
        (void)!__real_pwrite64(fd, bytes, len / 2, offset);
        errno = world.disk_error;
        return -1;
    }
    return __real_pwrite64(fd, bytes, len, offset);
}

// Nothing here needs to survive a loss of power.
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);

int __wrap_fdatasync(int fd)
{
    errno = world.sync_error;
    return world.sync_error ? -1 : 0;
}

int __wrap_fsync(int fd)
{
    return 0;
}

uint64_t loop_now_ns(const struct loop *l)
{
    return l->now_ns;
}

int loop_timer_new(struct loop *l, void (*fired)(void *user), void *user, struct loop_timer **out)
{
    struct loop_timer *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    *t = (struct loop_timer){.next = l->timers, .fired = fired, .user = user};
    l->timers = t;
    *out = t;
    return 0;
}

void loop_timer_set(struct loop_timer *t, uint64_t delay_ns, uint64_t repeat_ns)
{
    t->due_ns = the_loop.now_ns + delay_ns;
    t->repeat_ns = repeat_ns;
}

void loop_timer_stop(struct loop_timer *t)
{
    t->due_ns = 0;
}

void loop_timer_free(struct loop_timer *t)
{
    if (!t)
        return;
    struct loop_timer **at = &the_loop.timers;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    free(t);
}

int loop_job_start(struct loop *l, void (*work)(void *user), void (*done)(void *user), void *user)
{
    assert_null(l->jobs); // one at a time
    if (world.job_refusals) {
        world.job_refusals--;
        return -EAGAIN;
    }
    struct job *j = calloc(1, sizeof(*j));
    if (!j)
        return -ENOMEM;
    uint64_t takes_ns = world.job_ns ? 1 + world_random(world.job_ns) : 0;
    *j = (struct job){.work = work, .done = done, .user = user, .due_ns = l->now_ns + takes_ns};
    l->jobs = j;
    world.jobs++;
    return 0;
}

// --- The service ---

static bool live_waits(const struct delivery *d)
{
    for (const struct stream *s = d->streams; s; s = s->next)
        if (s->live.first && !s->flight && !s->acknowledging && s->not_before_ns <= the_loop.now_ns)
            return true;
    return false;
}

static void read_request(struct request *r, const struct logs_batch *b)
{
    const struct delivery *d = world.delivery;
    r->at_ns = the_loop.now_ns;
    r->count = b->count;
    sv_copy(r->group, sizeof(r->group), b->group);
    sv_copy(r->stream, sizeof(r->stream), b->stream);
    size_t bytes = 0;
    for (size_t i = 0; i < b->count; i++) {
        uint64_t id;
        const struct logs_event *e = &b->events[i];
        assert_true(i == 0 || e->timestamp_ms >= b->events[i - 1].timestamp_ms);
        assert_int_equal(num_parse_u64(sv_sub(e->message, 0, 8), 0, WORLD_EVENTS_MAX, &id), 0);
        r->ids[i] = (uint32_t)id;
        bytes += e->message.len + LOGS_EVENT_OVERHEAD;
    }
    r->first_ms = b->events[0].timestamp_ms;
    r->last_ms = b->events[b->count - 1].timestamp_ms;
    assert_true(b->count > 0 && b->count <= LOGS_BATCH_EVENTS_MAX);
    assert_true(bytes <= LOGS_BATCH_BYTES_MAX && r->last_ms - r->first_ms <= LOGS_BATCH_SPAN_MS);
    r->was_backlog = d->last_was_backlog;
    r->live_waited = live_waits(d);
}

static void take(const struct request *r)
{
    size_t old = r->result.rejected_old, new = r->result.rejected_new;
    for (size_t i = old; i + new < r->count; i++)
        world.seen[r->ids[i]]++;
}

static void keep(const struct request *r)
{
    if (!world.keeps_requests)
        return;
    world.requests = reallocarray(world.requests, world.request_count + 1, sizeof(*world.requests));
    assert_non_null(world.requests);
    struct request *k = &world.requests[world.request_count++];
    *k = *r;
    k->ids = calloc(r->count, sizeof(*k->ids));
    assert_non_null(k->ids);
    memcpy(k->ids, r->ids, r->count * sizeof(*k->ids));
}

int aws_logs_put(struct aws_logs *l, const struct logs_batch *batch,
                 void (*done)(void *user, const struct logs_result *result), void *user,
                 struct logs_call **out)
{
    assert_ptr_equal(l, world.logs);
    struct logs_call *c = calloc(1, sizeof(*c));
    uint32_t *ids = calloc(batch->count, sizeof(*ids));
    if (!c || !ids) {
        free(c);
        free(ids);
        return -ENOMEM;
    }
    *c = (struct logs_call){.next = the_loop.calls, .done = done, .user = user, .request.ids = ids};
    read_request(&c->request, batch);
    for (const struct logs_call *other = the_loop.calls; other; other = other->next)
        assert_true(strcmp(other->request.group, c->request.group) != 0 ||
                    strcmp(other->request.stream, c->request.stream) != 0);
    c->request.result = (struct logs_result){.outcome = LOGS_DELIVERED, .error = ""};
    c->request.is_taken = true;
    c->request.answer_after_ns = 20 * NS_PER_MS;
    if (world.answer)
        world.answer(&c->request);
    if (c->request.is_taken)
        take(&c->request);
    keep(&c->request);
    c->due_ns = the_loop.now_ns + c->request.answer_after_ns;
    the_loop.calls = c;
    world.puts++;
    world.in_flight++;
    if (world.in_flight > world.most_in_flight)
        world.most_in_flight = world.in_flight;
    *out = c;
    return 0;
}

void logs_call_free(struct logs_call *c)
{
    if (!c)
        return;
    struct logs_call **at = &the_loop.calls;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    world.in_flight--;
    free(c->request.ids);
    free(c);
}

// --- Running ---

static void fire(struct loop_timer *t)
{
    t->due_ns = t->repeat_ns ? t->due_ns + t->repeat_ns : 0;
    t->fired(t->user);
}

static void run_job(struct loop *l)
{
    struct job *j = l->jobs;
    if (!j->is_worked) {
        j->work(j->user);
        j->is_worked = true;
        j->due_ns += world.job_ns ? world_random(world.job_ns) : 0;
        return;
    }
    l->jobs = NULL;
    j->done(j->user);
    free(j);
}

static struct loop_timer *next_timer(void)
{
    struct loop_timer *best = NULL;
    for (struct loop_timer *t = the_loop.timers; t; t = t->next)
        if (t->due_ns && (!best || t->due_ns < best->due_ns))
            best = t;
    return best;
}

static struct logs_call *next_call(void)
{
    struct logs_call *best = NULL;
    for (struct logs_call *c = the_loop.calls; c; c = c->next)
        if (!best || c->due_ns < best->due_ns)
            best = c;
    return best;
}

static bool step_before(uint64_t until_ns)
{
    struct loop_timer *t = next_timer();
    struct logs_call *c = next_call();
    struct job *j = the_loop.jobs;
    uint64_t at_t = t ? t->due_ns : UINT64_MAX, at_c = c ? c->due_ns : UINT64_MAX;
    uint64_t at_j = j ? j->due_ns : UINT64_MAX;
    uint64_t at = at_t < at_c ? at_t : at_c;
    at = at_j < at ? at_j : at;
    if (at > until_ns || at == UINT64_MAX)
        return false;
    if (at > the_loop.now_ns)
        the_loop.now_ns = at;
    if (at == at_j)
        run_job(&the_loop);
    else if (at == at_c)
        c->done(c->user, &c->request.result);
    else
        fire(t);
    if (world.delivery)
        world_check();
    return true;
}

bool world_step(void)
{
    return step_before(UINT64_MAX - 1);
}

void world_run(uint64_t ns)
{
    uint64_t until_ns = the_loop.now_ns + ns;
    while (step_before(until_ns))
        continue;
    the_loop.now_ns = until_ns;
}

bool world_run_until(bool (*is_so)(void), uint64_t ns)
{
    uint64_t until_ns = the_loop.now_ns + ns;
    while (!is_so())
        if (!step_before(until_ns))
            return is_so();
    return true;
}

bool world_is_quiet(void)
{
    return world_stats().waiting_events == 0 && disk_is_idle(world.delivery);
}

uint64_t world_random(uint64_t below)
{
    world.random ^= world.random << 13;
    world.random ^= world.random >> 7;
    world.random ^= world.random << 17;
    return below ? world.random % below : 0;
}

// --- Accounts ---

struct count {
    uint64_t events, samples, batches, memory_bytes;
};

static void count_queue(struct count *n, const struct queue *q)
{
    for (const struct batch *b = q->first; b; b = b->next) {
        n->events += b->events - b->done_events;
        n->samples += b->samples;
        n->batches++;
        n->memory_bytes += b->record && !b->ref.segment ? b->ref.bytes : 0;
        assert_true(b->next || q->last == b);
    }
}

static struct count count_all(const struct delivery *d)
{
    struct count n = {0};
    for (const struct stream *s = d->streams; s; s = s->next) {
        n.events += s->gathered.events;
        n.samples += s->gathered.samples;
        count_queue(&n, &s->live);
        count_queue(&n, &s->backlog);
    }
    for (size_t i = 0; i < DELIVERY_FLIGHTS; i++)
        if (d->flights[i].batch)
            count_queue(&n, &(struct queue){d->flights[i].batch, d->flights[i].batch});
    count_queue(&n, &d->unspooled);
    if (d->disk) {
        count_queue(&n, &d->disk->append);
        count_queue(&n, &d->disk->failed);
    }
    return n;
}

void world_check(void)
{
    struct delivery_stats t = world_stats();
    uint64_t events = t.delivered_events + t.waiting_events;
    uint64_t samples = t.delivered_samples + t.waiting_samples;
    for (size_t i = 0; i < DELIVERY_LOSS_COUNT; i++) {
        events += t.lost_events[i];
        samples += t.lost_samples[i];
    }
    assert_int_equal(t.events + t.recovered_events, events);
    assert_int_equal(t.samples + t.recovered_samples, samples);
    assert_true(world.in_flight <= DELIVERY_FLIGHTS);
    if (the_loop.jobs && the_loop.jobs->is_worked)
        return; // refs of the job's batches are set already
    struct count n = count_all(world.delivery);
    assert_int_equal(n.events, t.waiting_events);
    assert_int_equal(n.samples, t.waiting_samples);
    assert_int_equal(n.batches, t.spool_batches);
    assert_int_equal(n.memory_bytes, world.delivery->memory_bytes);
}

struct delivery_stats world_stats(void)
{
    struct delivery_stats t;
    delivery_get_stats(world.delivery, &t);
    return t;
}

uint64_t world_lost(void)
{
    struct delivery_stats t = world_stats();
    uint64_t events = 0;
    for (size_t i = 0; i < DELIVERY_LOSS_COUNT; i++)
        events += t.lost_events[i];
    return events;
}

// --- Beginning and end ---

static void drained(void *user)
{
    world.drained++;
}

struct delivery_options world_options(const char *directory)
{
    return (struct delivery_options){
        .loop = &the_loop,
        .logs = world.logs,
        .flush_ns = NS_PER_S,
        .spool_directory = directory,
        .spool_max_bytes = 256u << 20,
        .spool_max_age_ns = 14 * 24 * 3600 * NS_PER_S,
        .drained = drained,
    };
}

void world_open(const char *directory)
{
    struct error err = ERROR_INIT;
    const struct delivery_options o = world_options(directory);
    int r = delivery_new(&o, &world.delivery, &err);
    if (r < 0)
        fail_msg("delivery_new: %s", err.text);
}

void world_start(void)
{
    world = (struct world){.loop = &the_loop, .logs = &the_logs, .random = 88172645463325252u};
    the_loop = (struct loop){.now_ns = NS_PER_S};
    world.job_ns = 3 * NS_PER_MS;
    world.keeps_requests = true;
    world.seen = calloc(WORLD_EVENTS_MAX, 1);
    assert_non_null(world.seen);
    // In memory where there is such a place: thousands of files come and go.
    (void)snprintf(world.directory, sizeof(world.directory), "%s/podgpu-delivery-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(world.directory));
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_ERROR);
}

static void each_file(const char *directory,
                      void (*visit)(const char *path, const char *name, const char *to),
                      const char *to)
{
    DIR *d = opendir(directory);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[400];
        (void)snprintf(path, sizeof(path), "%s/%s", directory, e->d_name);
        if (e->d_name[0] != '.')
            visit(path, e->d_name, to);
    }
    closedir(d);
}

static void remove_file(const char *path, const char *name, const char *to)
{
    assert_int_equal(unlink(path), 0);
}

static void copy_file(const char *path, const char *name, const char *to)
{
    char target[400], block[65536];
    (void)snprintf(target, sizeof(target), "%s/%s", to, name);
    cleanup(fd_closep) int from = open(path, O_RDONLY | O_CLOEXEC);
    cleanup(fd_closep) int out = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(from >= 0 && out >= 0);
    for (ssize_t n; (n = read(from, block, sizeof(block))) > 0;)
        assert_int_equal(write(out, block, (size_t)n), n);
}

// Answers and job ends that nobody waits for any more.
static void run_out(void)
{
    while (the_loop.jobs)
        run_job(&the_loop);
    assert_null(the_loop.calls);
    assert_null(the_loop.timers);
}

void world_close(void)
{
    struct delivery *d = world.delivery;
    world.delivery = NULL;
    delivery_free(d);
    run_out();
}

void world_kill(const char *snapshot)
{
    each_file(snapshot, remove_file, NULL);
    each_file(world.directory, copy_file, snapshot);
    world_close();
    each_file(world.directory, remove_file, NULL);
}

void world_stop(void)
{
    if (world.delivery)
        world_close();
    run_out();
    each_file(world.directory, remove_file, NULL);
    (void)rmdir(world.directory);
    for (size_t i = 0; i < world.request_count; i++)
        free(world.requests[i].ids);
    free(world.requests);
    free(world.seen);
}

uint32_t world_add(const char *stream, int64_t age_ms, unsigned samples, size_t bytes)
{
    static char text[LOGS_EVENT_BYTES_MAX + 1];
    assert_true(world.next_id < WORLD_EVENTS_MAX && bytes <= sizeof(text) && bytes >= 8);
    memset(text, ' ', bytes);
    (void)snprintf(text, sizeof(text), "%08u", world.next_id);
    text[8] = ' ';
    const struct delivery_event e = {
        .group = SV("/group"),
        .stream = sv_from(stream),
        .message = {text, bytes},
        .timestamp_ms = (int64_t)(__wrap_clock_wall_ns() / NS_PER_MS) - age_ms,
        .samples = samples,
    };
    delivery_add(world.delivery, &e);
    return world.next_id++;
}
