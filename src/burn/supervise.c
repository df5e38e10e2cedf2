// SPDX-License-Identifier: Apache-2.0
// Children never touch the loop: they get shared memory with a flag that says stop and a struct
// burn_progress each, and an exit status says how it went. The start lies a little ahead, so that
// contexts are there by then; who is late joins the schedule where it is.
#include "burn/supervise.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "burn/line_output.h"
#include "burn/probe.h"
#include "burn/record.h"
#include "burn/serve.h"
#include "io/loop.h"

#define LEAD_LEAST_NS (500 * NS_PER_MS)
#define LEAD_MOST_NS (5 * NS_PER_S)
#define STOP_NS (700 * NS_PER_MS)   // then they are killed
#define OVERTIME_NS (10 * NS_PER_S) // after a planned end
#define REPORT_BYTES (1u << 20)
#define GPU_TEXT_BYTES 12

struct shared {
    volatile int stop;
    struct burn_progress progress[];
};

struct worker {
    struct supervisor *owner;
    struct burn_progress *progress;
    char gpu[GPU_TEXT_BYTES]; // index as text
    uint32_t index, process;
    const char *uuid; // as the list had it
    pid_t pid;
    bool alive;
    enum burn_result result;
    uint64_t last_operations, last_ns, operations_per_s;
};

struct supervisor {
    const struct burn_options *o;
    struct burn_gpus gpus;
    struct worker *workers;
    uint32_t count, alive;
    struct shared *shared;
    size_t shared_bytes;
    uint64_t start_ns, end_ns; // UINT64_MAX: open
    struct loop *loop;
    struct loop_timer *tick, *limit;
    struct loop_signal *term, *interrupt, *child;
    struct burn_server *server;
    bool stopping, killed;
    bool mute; // stdout failed the last time
};

// --- Records ---

static uint64_t scheduled_ns(const struct supervisor *s, uint64_t now_ns)
{
    uint64_t end_ns = now_ns < s->end_ns ? now_ns : s->end_ns;
    if (end_ns <= s->start_ns)
        return 0;
    return burn_due_ns(s->o, end_ns - s->start_ns);
}

// What is wanted comes from the schedule, not from a process that may hang.
static struct burn_record record_of(const struct worker *w, uint64_t now_ns)
{
    const struct supervisor *s = w->owner;
    const struct burn_options *o = s->o;
    struct burn_progress *p = w->progress;
    bool ended = !w->alive;
    bool wanted = !ended && p->state == BURN_RUNNING && now_ns >= s->start_ns && now_ns < s->end_ns;
    uint64_t t = wanted ? now_ns - s->start_ns : 0;
    return (struct burn_record){
        .gpu = w->index,
        .uuid = p->uuid[0] ? p->uuid : w->uuid,
        .model = p->name,
        .process = w->process,
        .pid = w->pid,
        .kind = o->kind,
        .state = ended ? BURN_ENDED : (enum burn_state)p->state,
        .on = wanted && burn_shape_is_on(&o->shape, t),
        .duty_ppm = wanted ? burn_duty_ppm(o, t) : 0,
        .scheduled_ns = scheduled_ns(s, now_ns),
        .busy_ns = p->busy_ns,
        .operations = p->operations,
        .operations_per_s = ended ? 0 : w->operations_per_s,
        .rounds = p->rounds,
        .mismatches = p->mismatches,
        .memory_bytes = ended ? 0 : p->memory_bytes,
        .result = w->result,
        .error = p->error,
    };
}

static struct burn_record *records_new(const struct supervisor *s)
{
    struct burn_record *records = calloc(s->count, sizeof(*records));
    uint64_t now_ns = clock_mono_ns();
    for (uint32_t i = 0; records && i < s->count; i++)
        records[i] = record_of(&s->workers[i], now_ns);
    return records;
}

static void render(void *user, struct buf *out)
{
    const struct supervisor *s = user;
    cleanup(mem_freep) struct burn_record *records = records_new(s);
    if (records)
        burn_page(out, records, s->count);
    else
        out->error = -ENOMEM;
}

static void say(struct supervisor *s, struct sv text)
{
    int r = line_output_write(text);
    if (r < 0 && !s->mute)
        log_warn("cannot write to stdout: lines are lost", LOG_ERRNO(-r));
    s->mute = r < 0;
}

static void tell_worker(struct supervisor *s, const struct worker *w, uint64_t now_ns)
{
    struct buf line = BUF_INIT(REPORT_BYTES);
    struct burn_record record = record_of(w, now_ns);
    struct burn_moment moment = {clock_wall_ns(), now_ns > s->start_ns ? now_ns - s->start_ns : 0};
    if (s->o->json)
        burn_report_json(&line, &moment, &record);
    else
        burn_report_text(&line, &moment, &record);
    say(s, buf_sv(&line));
    buf_deinit(&line);
}

static void tell_end(struct supervisor *s)
{
    struct buf text = BUF_INIT(REPORT_BYTES);
    cleanup(mem_freep) struct burn_record *records = records_new(s);
    if (records && !s->o->json)
        burn_report_end(&text, records, s->count);
    say(s, buf_sv(&text));
    buf_deinit(&text);
}

// --- Children ---

static int work(void *user)
{
    const struct worker *w = user;
    const struct supervisor *s = w->owner;
    return (int)burn_load_run(s->o, w->gpu, s->start_ns, &s->shared->stop, w->progress);
}

static void log_failure(const struct worker *w, const char *phrase, const char *error)
{
    log_error(phrase, LOG_U64("gpu", w->index), LOG_U64("process", w->process),
              LOG_STR("error", error));
}

static void worker_ended(struct supervisor *s, struct worker *w, int status)
{
    char text[64] = "";
    struct burn_progress *p = w->progress;
    p->error[sizeof(p->error) - 1] = '\0';
    if (WIFEXITED(status) && WEXITSTATUS(status) <= BURN_DRIVER_ERROR) {
        w->result = (enum burn_result)WEXITSTATUS(status);
    } else {
        struct buf b = BUF_INIT(sizeof(text) - 1);
        w->result = BURN_DRIVER_ERROR;
        buf_add_fmt(&b, "its process ended with %s %d", WIFEXITED(status) ? "status" : "signal",
                    WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        sv_copy(text, sizeof(text), buf_sv(&b));
        buf_deinit(&b);
    }
    if (p->mismatches && w->result == BURN_CLEAN)
        w->result = BURN_WRONG_RESULTS;
    if (s->killed && WIFSIGNALED(status))
        log_failure(w, "a process did not stop and was killed", text);
    else if (w->result == BURN_WRONG_RESULTS)
        log_error("wrong results", LOG_U64("gpu", w->index), LOG_STR("UUID", w->uuid),
                  LOG_U64("process", w->process), LOG_U64("mismatches", p->mismatches));
    else if (w->result != BURN_CLEAN)
        log_failure(w, "no load on a GPU", text[0] ? text : p->error);
    w->alive = false;
    s->alive--;
    tell_worker(s, w, clock_mono_ns());
}

static void reap(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct worker *w = &s->workers[i];
        int status = 0;
        if (w->alive && waitpid(w->pid, &status, WNOHANG) == w->pid)
            worker_ended(s, w, status);
    }
    if (s->alive == 0)
        loop_stop(s->loop, 0);
}

static void kill_all(struct supervisor *s)
{
    s->killed = true;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->workers[i].alive)
            (void)kill(s->workers[i].pid, SIGKILL);
}

// --- The loop's callbacks ---

static void stop(struct supervisor *s)
{
    if (s->stopping)
        return;
    s->stopping = true;
    s->shared->stop = 1;
    uint64_t now_ns = clock_mono_ns(); // nothing is wanted from here on
    s->end_ns = now_ns < s->end_ns ? now_ns : s->end_ns;
    loop_timer_set(s->limit, STOP_NS, 0);
}

static void limit_fired(void *user)
{
    struct supervisor *s = user;
    if (s->killed) {
        log_error("processes that hang in the driver are left behind", LOG_U64("count", s->alive));
        loop_stop(s->loop, 0);
    } else if (s->stopping) {
        kill_all(s);
        loop_timer_set(s->limit, BURN_REAP_NS, 0);
    } else {
        log_error("processes go on after their end: stopping them", LOG_U64("count", s->alive));
        stop(s);
    }
}

static void signal_caught(void *user, int signo)
{
    struct supervisor *s = user;
    if (signo == SIGCHLD)
        reap(s);
    else
        stop(s);
}

// At each whole second since the start, whatever the last one took.
static void set_tick(struct supervisor *s)
{
    uint64_t now_ns = clock_mono_ns(), next_ns = s->start_ns;
    if (now_ns >= s->start_ns)
        next_ns += ((now_ns - s->start_ns) / NS_PER_S + 1) * NS_PER_S;
    loop_timer_set(s->tick, next_ns - now_ns, 0);
}

static void tick_fired(void *user)
{
    struct supervisor *s = user;
    uint64_t now_ns = clock_mono_ns();
    for (uint32_t i = 0; i < s->count; i++) {
        struct worker *w = &s->workers[i];
        uint64_t operations = w->progress->operations;
        if (!w->alive || w->progress->state == BURN_ENDED) // its last line comes when it is reaped
            continue;
        if (now_ns > w->last_ns && w->last_ns > 0)
            w->operations_per_s = (uint64_t)((unsigned __int128)(operations - w->last_operations) *
                                             NS_PER_S / (now_ns - w->last_ns));
        w->last_operations = operations;
        w->last_ns = now_ns;
        if (now_ns >= s->start_ns + NS_PER_S / 2) // the first tick only takes the measure
            tell_worker(s, w, now_ns);
    }
    set_tick(s);
}

// --- Setting up ---

// Signals that come while nobody looks are kept for the loop: as a container's first process we
// would lose them otherwise.
static void hold_signals(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    (void)sigprocmask(how, &set, NULL);
}

static void write_index(char out[static GPU_TEXT_BYTES], uint32_t index)
{
    struct buf b = BUF_INIT(GPU_TEXT_BYTES - 1);
    buf_add_u64(&b, index);
    sv_copy(out, GPU_TEXT_BYTES, buf_sv(&b));
    buf_deinit(&b);
}

// The driver's index of what a user calls a GPU; -1: not there.
static int find_gpu(const struct burn_gpus *gpus, const char *word)
{
    for (uint32_t i = 0; i < gpus->count; i++) {
        char index[GPU_TEXT_BYTES];
        write_index(index, i);
        if (sv_equals_nocase(sv_from(word), sv_from(gpus->uuids[i])) || strcmp(word, index) == 0)
            return (int)i;
    }
    return -1;
}

static void add_workers(struct supervisor *s, uint32_t gpu)
{
    for (uint32_t p = 0; p < s->o->processes; p++) {
        struct worker *w = &s->workers[s->count];
        write_index(w->gpu, gpu);
        w->owner = s;
        w->index = gpu;
        w->process = p;
        w->uuid = s->gpus.uuids[gpu];
        w->progress = &s->shared->progress[s->count++];
    }
}

static enum burn_result choose_gpus(struct supervisor *s, struct error *err)
{
    const struct burn_options *o = s->o;
    bool taken[BURN_GPUS_MAX] = {false};
    for (uint32_t i = 0; i < o->gpu_count && !o->all_gpus; i++) {
        int gpu = find_gpu(&s->gpus, o->gpus[i]);
        if (gpu < 0) {
            (void)error_set(err, -ENODEV, "there is no GPU '%s': the driver shows %u (see --list)",
                            o->gpus[i], s->gpus.count);
            return BURN_NO_GPU;
        }
        taken[gpu] = true;
    }
    for (uint32_t i = 0; i < s->gpus.count; i++)
        if (taken[i] || o->all_gpus)
            add_workers(s, i);
    return BURN_CLEAN;
}

static int allocate(struct supervisor *s)
{
    size_t most = (size_t)s->gpus.count * s->o->processes;
    s->shared_bytes = sizeof(struct shared) + most * sizeof(struct burn_progress);
    s->workers = calloc(most, sizeof(*s->workers));
    s->shared =
        mmap(NULL, s->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->shared == MAP_FAILED)
        s->shared = NULL;
    return s->workers && s->shared ? 0 : -ENOMEM;
}

static uint64_t align_start(const struct burn_options *o, uint64_t start_ns)
{
    uint64_t period = burn_shape_period_ns(&o->shape);
    if (!o->align || !period)
        return start_ns;
    uint64_t wall_ns = clock_wall_ns() + (start_ns - clock_mono_ns());
    return start_ns + (period - wall_ns % period) % period;
}

static void plan(struct supervisor *s, uint64_t probe_ns)
{
    const struct burn_options *o = s->o;
    uint64_t lead_ns = LEAD_LEAST_NS + 2 * probe_ns;
    lead_ns = lead_ns < LEAD_MOST_NS ? lead_ns : LEAD_MOST_NS;
    s->start_ns = align_start(o, clock_mono_ns() + lead_ns);
    uint64_t length_ns = burn_end_ns(o);
    s->end_ns = length_ns == UINT64_MAX ? length_ns : s->start_ns + length_ns;
}

static enum burn_result set_up_loop(struct supervisor *s, struct error *err)
{
    int r = loop_new(&s->loop);
    if (r == 0)
        r = loop_timer_new(s->loop, tick_fired, s, &s->tick);
    if (r == 0)
        r = loop_timer_new(s->loop, limit_fired, s, &s->limit);
    if (r == 0)
        r = loop_signal_new(s->loop, SIGTERM, signal_caught, s, &s->term);
    if (r == 0)
        r = loop_signal_new(s->loop, SIGINT, signal_caught, s, &s->interrupt);
    if (r == 0)
        r = loop_signal_new(s->loop, SIGCHLD, signal_caught, s, &s->child);
    if (r < 0) {
        (void)error_set(err, r, "cannot set up the event loop: %s", strerror(-r));
        return BURN_DRIVER_ERROR;
    }
    if (s->o->listen[0] && burn_server_new(s->loop, s->o->listen, render, s, &s->server, err) < 0)
        return BURN_STATUS_USAGE;
    return BURN_CLEAN;
}

static int start_workers(struct supervisor *s, struct error *err)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct worker *w = &s->workers[i];
        pid_t pid = burn_fork(work, w);
        if (pid < 0)
            return error_set(err, (int)pid, "cannot make a process: %s", strerror(-pid));
        w->pid = pid;
        w->alive = true;
        s->alive++;
    }
    return 0;
}

static void clean_up(struct supervisor *s)
{
    uint64_t deadline_ns = clock_mono_ns() + (s->killed ? 0 : BURN_REAP_NS);
    kill_all(s);
    for (uint32_t i = 0; i < s->count; i++)
        if (s->workers[i].alive)
            burn_kill(s->workers[i].pid, deadline_ns);
    burn_server_free(s->server);
    loop_signal_free(s->term);
    loop_signal_free(s->interrupt);
    loop_signal_free(s->child);
    loop_timer_free(s->tick);
    loop_timer_free(s->limit);
    if (s->loop)
        loop_free(s->loop);
    if (s->shared)
        (void)munmap(s->shared, s->shared_bytes);
    free(s->workers);
}

static enum burn_result worst(const struct supervisor *s)
{
    enum burn_result found = s->alive ? BURN_DRIVER_ERROR : BURN_CLEAN; // hangs in the driver
    for (uint32_t i = 0; i < s->count; i++)
        if (s->workers[i].result > found)
            found = s->workers[i].result;
    return found;
}

static uint64_t until_ns(uint64_t t)
{
    uint64_t now_ns = clock_mono_ns();
    return t > now_ns ? t - now_ns : 0;
}

static enum burn_result run(struct supervisor *s, struct error *err)
{
    if (start_workers(s, err) < 0)
        return BURN_DRIVER_ERROR;
    if (s->end_ns != UINT64_MAX)
        loop_timer_set(s->limit, until_ns(s->end_ns) + OVERTIME_NS, 0);
    log_info("load starts", LOG_U64("processes", s->count),
             LOG_STR("kind", burn_kind_name(s->o->kind)),
             LOG_U64("in_ms", until_ns(s->start_ns) / NS_PER_MS));
    set_tick(s);
    reap(s);                   // who ended before the signal was watched
    hold_signals(SIG_UNBLOCK); // the loop has them
    if (s->alive > 0)
        (void)loop_run(s->loop);
    hold_signals(SIG_BLOCK);
    tell_end(s);
    return worst(s);
}

static enum burn_result supervise(struct supervisor *s, struct error *err)
{
    bool stopped = false;
    uint64_t begun_ns = clock_mono_ns();
    enum burn_result r = burn_probe(s->o, &s->gpus, &stopped, err);
    if (r != BURN_CLEAN || stopped || s->o->list)
        return r;
    if (allocate(s) < 0) {
        (void)error_set(err, -ENOMEM, "out of memory");
        return BURN_DRIVER_ERROR;
    }
    plan(s, clock_mono_ns() - begun_ns);
    r = choose_gpus(s, err);
    if (r == BURN_CLEAN)
        r = set_up_loop(s, err);
    return r == BURN_CLEAN ? run(s, err) : r;
}

int burn_supervise(const struct burn_options *o)
{
    struct supervisor s = {.o = o};
    struct error err = ERROR_INIT;
    char text[1024];
    hold_signals(SIG_BLOCK);
    int status = (int)supervise(&s, &err);
    if (err.text[0])
        log_error(error_text(&err, text, sizeof(text)));
    clean_up(&s);
    return status;
}
