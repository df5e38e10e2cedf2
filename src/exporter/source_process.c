// SPDX-License-Identifier: Apache-2.0
// The policy. (source_helper.c holds one process; here is what is done with it.)
//
// Restart. A helper that ends, breaks the protocol or hangs is replaced: at once after the first
// failure, then after a wait that doubles from 1 s to 60 s, half of it random. A helper that lived
// for 60 s starts this anew.
//
// Hang. Once a second the call page is read (more often with a short deadline); a call older than
// the deadline costs the helper its life (SIGKILL), and the next one gets `--skip INDEX=BUS-ID` for
// the GPU that was asked. A helper also hangs when it says no HELLO within 10 s, or takes no WATCH
// within the deadline, or when its loop does not turn for 30 s outside a call (a library that does
// not come back from being loaded), or when, with GPUs to sample, neither a frame nor a vendor call
// happens for long (four of its shortest periods and three deadlines). If the successor of a hung
// helper hangs before its first sample, the driver itself is held to be stuck (one lock for all
// GPUs): `driver_hung` is told and restarts go on with backoff. Time in which we did not run
// ourselves (a suspended machine, a frozen container) counts for nobody, and no GPU is blamed for a
// helper that somebody has stopped.
//
// Crash in a call. What the call page names at the death of a helper by its own fault goes to
// source_blame, as does a hang in a call that asks no GPU: what fails again is left alone.
//
// Unkillable helpers. A process in an uninterruptible call dies when the driver lets it. At most
// LIMIT_HELPERS processes exist at any time, the dying included; without room the next start waits
// for one to go, and after `patience_ns` of that driver_hung is told.
//
// Skipped GPUs are asked again by a probe: a second helper beside the one in use that skips all of
// them but one. It starts no earlier than 5 minutes after the hang, and only while no killed helper
// is left (one that is still stuck in its call tells already that the GPU does not answer). Those
// blamed while the driver as a whole was stuck are asked as soon as a helper works again. When the
// probe delivers a sample it takes over: its state and list are passed on, the other one is ended,
// and no sample was lost. When it hangs or fails, only the probe dies, and the wait for that GPU
// doubles, up to an hour.
//
// Invariants: `active` and `probe` are slots in use and not killed; a slot is in use until its
// process is reaped. After each call out (`frame`, `down`) this object may have been freed: `depth`
// keeps its memory until the way back.
#include "exporter/source_process.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/source_argv.h"
#include "exporter/source_process_internal.h"

#define RELEASE_WAIT_MS 100

static void start_or_wait(struct source_process *s);

// --- Calls out ---

static void destroy(struct source_process *s)
{
    for (size_t i = 0; i < LIMIT_HELPERS; i++) {
        source_helper_free(s->slots[i].helper);
        free(s->slots[i].list);
    }
    loop_timer_free(s->watchdog);
    loop_timer_free(s->restart);
    buf_deinit(&s->watch);
    source_free_config(s);
    free(s);
}

// False when the object is gone.
bool source_leave(struct source_process *s)
{
    s->depth--;
    if (!s->freed)
        return true;
    if (s->depth == 0)
        destroy(s);
    return false;
}

bool source_tell_down(struct source_process *s, const char *reason, const struct source_call *call,
                      bool driver_hung)
{
    static const struct source_call none = {.index = UINT32_MAX};
    if (!call)
        call = &none;
    s->depth++;
    s->config.down(s->config.user, reason, call->index, call->name, driver_hung);
    return source_leave(s);
}

bool source_tell_frame(struct source_process *s, const struct frame *frame)
{
    s->stats.frames++;
    s->depth++;
    s->config.frame(s->config.user, frame);
    return source_leave(s);
}

// --- Slots ---

size_t source_slots_used(const struct source_process *s)
{
    size_t n = 0;
    for (size_t i = 0; i < LIMIT_HELPERS; i++)
        n += s->slots[i].helper != NULL;
    return n;
}

static void note_kmsg(struct source_process *s, const struct slot *slot)
{
    uint64_t seq = source_helper_kmsg_seq(slot->helper);
    if (seq > s->kmsg_seq)
        s->kmsg_seq = seq;
}

static void slot_clear(struct slot *slot)
{
    note_kmsg(slot->owner, slot);
    source_helper_free(slot->helper);
    free(slot->list);
    *slot = (struct slot){.owner = slot->owner};
}

void source_slot_kill(struct source_process *s, struct slot *slot)
{
    source_helper_kill(slot->helper);
    note_kmsg(s, slot);
    slot->killed = true;
    s->stats.zombies++;
    if (s->active == slot)
        s->active = NULL;
    if (s->probe == slot)
        s->probe = NULL;
}

// --- Starting ---

static const struct source_helper_events helper_events;

// A free slot is known to be there. 0 and the slot; negative errno with *err.
int source_spawn(struct source_process *s, uint32_t probed, struct slot **out, struct error *err)
{
    struct slot *slot = s->slots;
    while (slot->helper)
        slot++;
    const struct source_program program = {
        .path = s->config.path,
        .source = s->config.source,
        .library = s->config.library,
        .kmsg = s->config.kmsg_path,
        .log_format = s->config.log_json ? "json" : "",
        .log_level = s->config.log_debug ? "debug" : "",
        .extra = s->config.extra,
        .kmsg_after = s->kmsg_seq,
        .skips = &s->skips,
        .blame = &s->blame,
    };
    struct source_argv argv;
    source_blame_expire(&s->blame, clock_mono_ns());
    source_argv_set(&argv, &program, probed);
    const struct source_helper_config config = {argv.words, &helper_events, slot};
    int r = source_helper_new(s->loop, &config, &slot->helper, err);
    if (r < 0)
        return r;
    slot->probed = probed;
    slot->started_ns = slot->progress_ns = slot->beat_ns = clock_mono_ns();
    s->stats.starts++;
    if (s->watch.len > 0 && source_helper_send_watch(slot->helper, buf_sv(&s->watch)) < 0)
        log_error("out of memory while starting a source process", LOG_LIMIT(""));
    *out = slot;
    return 0;
}

static int start(struct source_process *s, struct error *err)
{
    int r = source_spawn(s, UINT32_MAX, &s->active, err);
    if (r < 0)
        return r;
    s->active->after_hang = s->last_hung;
    s->last_hung = false;
    s->no_room_ns = 0;
    s->no_room_told = false;
    return 0;
}

static uint64_t backoff_ns(const struct source_process *s)
{
    if (s->failures <= 1)
        return 0;
    uint64_t wait_ns = clock_backoff_ns(s->failures - 2, s->config.timing.backoff_least_ns,
                                        s->config.timing.backoff_most_ns);
    return wait_ns / 2 + clock_jitter_ns(wait_ns / 2);
}

static void restart_later(struct source_process *s)
{
    uint64_t wait_ns = backoff_ns(s);
    if (wait_ns == 0)
        start_or_wait(s);
    else
        loop_timer_set(s->restart, wait_ns, 0);
}

static void start_or_wait(struct source_process *s)
{
    if (s->stats.released || s->active)
        return;
    if (source_slots_used(s) == LIMIT_HELPERS) {
        if (s->no_room_ns == 0)
            s->no_room_ns = clock_mono_ns();
        return; // on_ended comes back here
    }
    struct error err = ERROR_INIT;
    if (start(s, &err) == 0)
        return;
    log_error("source process cannot be started", LOG_STR("error", err.text), LOG_LIMIT(""));
    s->failures++;
    if (s->failures < 2)
        s->failures = 2; // never again at once
    restart_later(s);
}

static void on_restart(void *user)
{
    start_or_wait(user);
}

// --- Failures ---

// The active helper is gone or killed: tells it and plans the next one. started_ns: of that helper.
static void fail(struct source_process *s, uint64_t started_ns, const char *reason,
                 const struct source_call *call, bool driver_hung)
{
    if (clock_mono_ns() - started_ns >= s->config.timing.healthy_ns)
        s->failures = 0;
    s->failures++;
    if (!source_tell_down(s, reason, call, driver_hung))
        return;
    if (!s->stats.released && !s->active)
        restart_later(s);
}

// UINT32_MAX: a call of no GPU.
static void skip(struct source_process *s, uint32_t index, bool at_once)
{
    const char *bus_id = index < LIMIT_GPUS ? s->bus_ids[index] : "";
    source_skips_add(&s->skips, index, bus_id, at_once, clock_mono_ns());
}

// A call that killed its helper, or hung without asking a GPU.
static void blame(struct source_process *s, const struct source_call *call)
{
    enum source_verdict verdict =
        source_blame_note(&s->blame, call->name, call->index, clock_mono_ns());
    if (verdict == SOURCE_VERDICT_SKIP_GPU)
        skip(s, call->index, false);
    if (verdict != SOURCE_VERDICT_NONE)
        log_error("driver call fails its process again and again, left alone",
                  LOG_STR("call", call->name), LOG_I64("gpu", (int32_t)call->index),
                  LOG_BOOL("whole_gpu", verdict == SOURCE_VERDICT_SKIP_GPU));
}

void source_hang(struct source_process *s, struct slot *slot, const struct source_call *found)
{
    struct source_call held = *found, *call = &held;
    if (source_helper_is_stopped(slot->helper)) {
        log_warn("source process was stopped", LOG_I64("pid", source_helper_pid(slot->helper)),
                 LOG_LIMIT(""));
        held = (struct source_call){.index = UINT32_MAX};
    }
    s->stats.hangs++;
    if (slot == s->probe) {
        uint32_t index = slot->probed;
        source_slot_kill(s, slot);
        source_probe_failed(s, index, "hung");
        return;
    }
    bool driver_hung = slot->after_hang && !slot->sampled;
    uint64_t started_ns = slot->started_ns;
    source_slot_kill(s, slot);
    if (s->probe) {
        source_skips_put_off(&s->skips, s->probe->probed, clock_mono_ns());
        source_slot_kill(s, s->probe); // leaves the room to the one that is needed
    }
    // With the driver stuck as a whole any GPU may be the one that was asked.
    skip(s, call->index, driver_hung);
    if (call->index == UINT32_MAX && call->name[0] != '\0')
        blame(s, call);
    s->last_hung = true;
    fail(s, started_ns, "hung", call, driver_hung);
}

void source_broken(struct source_process *s, struct slot *slot, const char *what)
{
    log_error("source process broke the protocol", LOG_STR("what", what), LOG_LIMIT(what));
    s->stats.protocol_errors++;
    bool was_probe = slot == s->probe;
    uint32_t index = slot->probed;
    uint64_t started_ns = slot->started_ns;
    source_slot_kill(s, slot);
    if (was_probe)
        source_probe_failed(s, index, "protocol");
    else
        fail(s, started_ns, "protocol", NULL, false);
}

static void on_broken(void *user, const char *what)
{
    struct slot *slot = user;
    source_broken(slot->owner, slot, what);
}

// Not SIGKILL: that is the kernel short of memory, or a person.
static bool is_own_fault(int term_signal)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        if (signals[i] == term_signal)
            return true;
    return false;
}

static void on_ended(void *user, int exit_status, int term_signal)
{
    struct slot *slot = user;
    struct source_process *s = slot->owner;
    bool was_killed = slot->killed, was_probe = slot == s->probe;
    uint32_t probed = slot->probed;
    uint64_t started_ns = slot->started_ns;
    struct source_call call = {.index = UINT32_MAX};
    bool in_call = is_own_fault(term_signal) && source_helper_call(slot->helper, &call);
    if (was_killed)
        s->stats.zombies--;
    else
        s->stats.crashes++;
    if (s->active == slot)
        s->active = NULL;
    if (was_probe)
        s->probe = NULL;
    slot_clear(slot);
    if (was_probe)
        source_probe_failed(s, probed, "crashed");
    else if (!was_killed) {
        if (in_call)
            blame(s, &call);
        fail(s, started_ns, exit_status == 0 && term_signal == 0 ? "exited" : "crashed", &call,
             false);
    } else if (s->no_room_ns)
        start_or_wait(s);
}

// --- Frames ---

static void note_bus_ids(struct source_process *s, const struct frame *frame)
{
    for (uint32_t i = 0; i < frame->as.entities.head->count; i++) {
        const struct frame_entity *e = &frame->as.entities.list[i];
        if (e->kind == FRAME_ENTITY_GPU && e->index < LIMIT_GPUS && e->bus_id[0] != '\0')
            memcpy(s->bus_ids[e->index], e->bus_id, SOURCE_BUS_ID_BYTES);
    }
}

static void note_progress(struct slot *slot, const struct frame *frame)
{
    slot->progress_ns = slot->beat_ns = clock_mono_ns();
    if (frame->type == FRAME_STATE)
        slot->ready = frame->as.state->code == FRAME_STATE_READY;
    if (frame->type == FRAME_ENTITIES) {
        slot->entities = frame->as.entities.head->count;
        note_bus_ids(slot->owner, frame);
    }
    if (frame->type == FRAME_SAMPLE)
        slot->sampled = true;
}

static void on_frame(void *user, const struct frame *frame)
{
    struct slot *slot = user;
    struct source_process *s = slot->owner;
    note_progress(slot, frame);
    if (slot == s->probe && !source_probe_frame(s, slot, frame))
        return;
    (void)source_tell_frame(s, frame);
}

static const struct source_helper_events helper_events = {
    .frame = on_frame,
    .broken = on_broken,
    .ended = on_ended,
};

// --- Outside ---

DEFINE_CLEANUP(struct source_process *, source_process_free);

int source_process_new(struct loop *l, const struct source_process_config *config,
                       struct source_process **out, struct error *err)
{
    cleanup(source_process_freep) struct source_process *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    s->loop = l;
    s->watch = BUF_INIT(LIMIT_FRAME_BYTES);
    for (size_t i = 0; i < LIMIT_HELPERS; i++)
        s->slots[i].owner = s;
    int r = source_copy_config(s, config);
    if (r == 0)
        r = loop_timer_new(l, source_on_watchdog, s, &s->watchdog);
    if (r == 0)
        r = loop_timer_new(l, on_restart, s, &s->restart);
    if (r < 0)
        return error_set(err, r, "out of memory");
    r = start(s, err);
    if (r < 0)
        return r;
    s->looked_ns = clock_mono_ns();
    loop_timer_every(s->watchdog, s->config.timing.watchdog_ns);
    *out = TAKE_PTR(s);
    return 0;
}

int source_process_watch(struct source_process *s, const struct frame_watch *watch,
                         const uint16_t *field_ids)
{
    struct buf b = BUF_INIT(LIMIT_FRAME_BYTES);
    size_t start_of = frame_begin(&b, FRAME_WATCH);
    buf_add(&b, watch, sizeof(*watch));
    buf_add(&b, field_ids, watch->count * sizeof(field_ids[0]));
    frame_end(&b, start_of);
    if (b.error) {
        int r = b.error;
        buf_deinit(&b);
        return r;
    }
    buf_deinit(&s->watch);
    s->watch = b;
    s->silence_ns = source_silence_of(s, watch, field_ids);
    int result = 0;
    struct slot *running[] = {s->active, s->probe};
    for (size_t i = 0; i < ARRAY_SIZE(running); i++) {
        if (!running[i])
            continue;
        int r = source_helper_send_watch(running[i]->helper, buf_sv(&s->watch));
        if (r < 0)
            result = r;
    }
    return result;
}

int source_process_control(struct source_process *s, enum frame_command command, uint32_t number)
{
    if (!s->active)
        return -ENOTCONN;
    const struct frame_control control = {.command = command, .number = number};
    struct buf b = BUF_INIT(sizeof(struct frame_header) + sizeof(control));
    size_t start_of = frame_begin(&b, FRAME_CONTROL);
    buf_add(&b, &control, sizeof(control));
    frame_end(&b, start_of);
    int r = b.error ? b.error : source_helper_send_control(s->active->helper, buf_sv(&b));
    buf_deinit(&b);
    return r;
}

int source_process_release(struct source_process *s)
{
    if (s->stats.released)
        return -EALREADY;
    s->stats.released = true;
    loop_timer_stop(s->restart);
    s->no_room_ns = 0;
    struct slot *running[] = {s->probe, s->active};
    for (size_t i = 0; i < ARRAY_SIZE(running); i++) {
        if (running[i])
            source_slot_kill(s, running[i]);
    }
    // It is the driver's being free that is waited for, and a script may go on to reset the GPU at
    // once.
    for (size_t i = 0; i < ARRAY_SIZE(running); i++) {
        if (running[i])
            source_helper_await(running[i]->helper, RELEASE_WAIT_MS);
    }
    (void)source_tell_down(s, "released", NULL, false);
    return 0;
}

int source_process_attach(struct source_process *s)
{
    if (!s->stats.released)
        return -EALREADY;
    s->stats.released = false;
    s->skips.count = 0;
    s->blame.count = 0;
    s->failures = 0;
    s->last_hung = false;
    start_or_wait(s);
    return 0;
}

void source_process_get_stats(const struct source_process *s, struct source_process_stats *out)
{
    *out = s->stats;
    out->running = s->active != NULL;
    out->pid = s->active ? (int)source_helper_pid(s->active->helper) : 0;
    out->skipped = (uint32_t)s->skips.count;
    out->avoided = source_blame_avoided(&s->blame);
}

void source_process_free(struct source_process *s)
{
    if (!s)
        return;
    s->freed = true;
    if (s->depth == 0) {
        destroy(s);
        return;
    }
    for (size_t i = 0; i < LIMIT_HELPERS; i++) {
        if (s->slots[i].helper)
            source_helper_kill(s->slots[i].helper);
    }
}
