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
#include "exporter/source_helper.h"
#include "gpu/catalogue.h"

#define RELEASE_WAIT_MS 100
#define PROBE_WAIT_MOST 12 // times probe_ns

struct slot {
    struct source_process *owner;
    struct source_helper *helper; // NULL: not in use
    uint64_t started_ns;
    uint64_t progress_ns; // last frame, or last time the count of calls was seen to move
    uint32_t calls;
    uint64_t beat_ns; // last sign that its loop turns
    uint32_t turns;
    bool killed;
    bool after_hang; // successor of a hung helper
    bool ready;      // its driver answers
    bool sampled;
    uint32_t entities;
    // A probe keeps what it said until it takes over
    uint32_t probed; // NVML index
    struct frame_state state;
    struct frame_entities list_head;
    struct frame_entity *list;
};

struct source_process {
    struct loop *loop;
    struct source_process_config config; // strings owned
    struct loop_timer *watchdog;
    struct loop_timer *restart;
    struct slot slots[LIMIT_HELPERS];
    struct slot *active; // or NULL
    struct slot *probe;  // or NULL
    struct source_skips skips;
    char bus_ids[LIMIT_GPUS][SOURCE_BUS_ID_BYTES]; // by NVML index, as last told
    struct source_blame blame;
    uint64_t kmsg_seq;   // of the last record of the kernel log that a helper has told
    uint64_t looked_ns;  // when the watchdog ran last
    uint64_t watched_ns; // since when it has run without a gap
    struct buf watch;    // encoded
    uint64_t silence_ns; // of a helper with GPUs to sample; 0: it may be silent
    unsigned failures;   // in a row
    bool last_hung;      // the next helper follows one that hung
    uint64_t no_room_ns; // since when a start waits for a dying helper, 0 not
    bool no_room_told;
    struct source_process_stats stats;
    unsigned depth; // calls out on the stack
    bool freed;
};

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
    free((char *)s->config.path);
    free((char *)s->config.source);
    free((char *)s->config.library);
    free((char *)s->config.kmsg_path);
    free(s);
}

// False when the object is gone.
static bool leave(struct source_process *s)
{
    s->depth--;
    if (!s->freed)
        return true;
    if (s->depth == 0)
        destroy(s);
    return false;
}

static bool tell_down(struct source_process *s, const char *reason, const struct source_call *call,
                      bool driver_hung)
{
    static const struct source_call none = {.index = UINT32_MAX};
    if (!call)
        call = &none;
    s->depth++;
    s->config.down(s->config.user, reason, call->index, call->name, driver_hung);
    return leave(s);
}

static bool tell_frame(struct source_process *s, const struct frame *frame)
{
    s->stats.frames++;
    s->depth++;
    s->config.frame(s->config.user, frame);
    return leave(s);
}

// --- Slots ---

static size_t slots_used(const struct source_process *s)
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

static void slot_kill(struct source_process *s, struct slot *slot)
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
static int spawn(struct source_process *s, uint32_t probed, struct slot **out, struct error *err)
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
    int r = spawn(s, UINT32_MAX, &s->active, err);
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
    if (slots_used(s) == LIMIT_HELPERS) {
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
    if (!tell_down(s, reason, call, driver_hung))
        return;
    if (!s->stats.released && !s->active)
        restart_later(s);
}

static void fail_probe(struct source_process *s, uint32_t index, const char *reason)
{
    source_skips_put_off(&s->skips, index, clock_mono_ns());
    log_info("gpu still does not answer", LOG_U64("gpu", index), LOG_STR("reason", reason));
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

static void hang(struct source_process *s, struct slot *slot, const struct source_call *found)
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
        slot_kill(s, slot);
        fail_probe(s, index, "hung");
        return;
    }
    bool driver_hung = slot->after_hang && !slot->sampled;
    uint64_t started_ns = slot->started_ns;
    slot_kill(s, slot);
    if (s->probe) {
        source_skips_put_off(&s->skips, s->probe->probed, clock_mono_ns());
        slot_kill(s, s->probe); // leaves the room to the one that is needed
    }
    // With the driver stuck as a whole any GPU may be the one that was asked.
    skip(s, call->index, driver_hung);
    if (call->index == UINT32_MAX && call->name[0] != '\0')
        blame(s, call);
    s->last_hung = true;
    fail(s, started_ns, "hung", call, driver_hung);
}

static void broken(struct source_process *s, struct slot *slot, const char *what)
{
    log_error("source process broke the protocol", LOG_STR("what", what), LOG_LIMIT(what));
    s->stats.protocol_errors++;
    bool was_probe = slot == s->probe;
    uint32_t index = slot->probed;
    uint64_t started_ns = slot->started_ns;
    slot_kill(s, slot);
    if (was_probe)
        fail_probe(s, index, "protocol");
    else
        fail(s, started_ns, "protocol", NULL, false);
}

static void on_broken(void *user, const char *what)
{
    struct slot *slot = user;
    broken(slot->owner, slot, what);
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
        fail_probe(s, probed, "crashed");
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

// The probe's helper becomes the active one: its state and list go first, the sample follows by the
// caller. False when the object is gone or released.
static bool take_over(struct source_process *s, struct slot *slot)
{
    uint32_t index = slot->probed;
    if (s->active)
        slot_kill(s, s->active);
    loop_timer_stop(s->restart);
    s->probe = NULL;
    s->active = slot;
    slot->probed = UINT32_MAX;
    source_skips_remove(&s->skips, index);
    log_info("gpu that hung is asked again", LOG_U64("gpu", index));
    const struct frame state = {.type = FRAME_STATE, .as.state = &slot->state};
    struct frame_entity *list = TAKE_PTR(slot->list);
    const struct frame_entities head = slot->list_head;
    const struct frame entities = {.type = FRAME_ENTITIES, .as.entities = {&head, list}};
    bool alive = tell_frame(s, &state) && s->active == slot && tell_frame(s, &entities);
    free(list);
    return alive && s->active == slot;
}

static bool keep_list(struct slot *slot, const struct frame *frame)
{
    size_t count = frame->as.entities.head->count;
    struct frame_entity *list = malloc((count + 1) * sizeof(*list));
    if (!list)
        return false;
    if (count > 0)
        memcpy(list, frame->as.entities.list, count * sizeof(*list));
    free(slot->list);
    slot->list = list;
    slot->list_head = *frame->as.entities.head;
    return true;
}

// What a probe says is kept back until it has sampled. True: the frame is to be passed on.
static bool probe_frame(struct source_process *s, struct slot *slot, const struct frame *frame)
{
    if (frame->type == FRAME_STATE)
        slot->state = *frame->as.state;
    if (frame->type == FRAME_ENTITIES && !keep_list(slot, frame)) {
        uint32_t index = slot->probed;
        slot_kill(s, slot);
        fail_probe(s, index, "out of memory");
    }
    return frame->type == FRAME_SAMPLE && slot->ready && slot->list && take_over(s, slot);
}

static void on_frame(void *user, const struct frame *frame)
{
    struct slot *slot = user;
    struct source_process *s = slot->owner;
    note_progress(slot, frame);
    if (slot == s->probe && !probe_frame(s, slot, frame))
        return;
    (void)tell_frame(s, frame);
}

static const struct source_helper_events helper_events = {
    .frame = on_frame,
    .broken = on_broken,
    .ended = on_ended,
};

// --- Watchdog ---

static uint64_t watched_since(const struct source_process *s, uint64_t then_ns, uint64_t now_ns)
{
    uint64_t from_ns = then_ns > s->watched_ns ? then_ns : s->watched_ns;
    return now_ns > from_ns ? now_ns - from_ns : 0;
}

static bool is_silent(struct source_process *s, struct slot *slot, uint64_t now_ns)
{
    uint32_t calls = source_helper_calls(slot->helper), turns = source_helper_turns(slot->helper);
    struct source_call call;
    if (calls != slot->calls)
        slot->progress_ns = slot->beat_ns = now_ns;
    if (turns != slot->turns || source_helper_call(slot->helper, &call))
        slot->beat_ns = now_ns; // a call has its own deadline
    slot->calls = calls;
    slot->turns = turns;
    bool has_work = slot->ready && slot->entities > 0 && s->silence_ns > 0;
    return (has_work && watched_since(s, slot->progress_ns, now_ns) > s->silence_ns) ||
           watched_since(s, slot->beat_ns, now_ns) > s->config.timing.pulse_ns;
}

static void check(struct source_process *s, struct slot *slot, uint64_t now_ns)
{
    const struct source_deadlines deadlines = {
        .call_ns = s->config.call_deadline_ns,
        .hello_ns = s->config.timing.hello_ns,
        .closed_ns = s->config.timing.patience_ns,
        .watched_ns = s->watched_ns,
    };
    struct source_call call;
    switch (source_helper_check(slot->helper, now_ns, &deadlines, &call)) {
    case SOURCE_TROUBLE_NONE:
        if (is_silent(s, slot, now_ns))
            hang(s, slot, &call);
        return;
    case SOURCE_TROUBLE_CLOSED:
        broken(s, slot, "socket closed by a running source");
        return;
    case SOURCE_TROUBLE_CALL:
    case SOURCE_TROUBLE_NO_HELLO:
    case SOURCE_TROUBLE_NOT_READING:
        hang(s, slot, &call);
        return;
    }
}

// A probe that neither hangs nor samples (no driver, say) has its time too.
static void check_probe(struct source_process *s, uint64_t now_ns)
{
    struct slot *slot = s->probe;
    uint64_t most_ns = 3 * s->config.call_deadline_ns;
    if (slot && watched_since(s, slot->started_ns, now_ns) > most_ns) {
        uint32_t index = slot->probed;
        slot_kill(s, slot);
        fail_probe(s, index, "no sample");
        return;
    }
    if (slot)
        check(s, slot, now_ns);
}

static void start_probe(struct source_process *s, uint64_t now_ns)
{
    if (!s->active || slots_used(s) != 1)
        return;
    // All GPUs may be skipped: then there is no sample to wait for.
    if (!s->active->sampled && now_ns < s->active->started_ns + 2 * s->config.call_deadline_ns)
        return;
    uint32_t index = source_skips_due(&s->skips, now_ns);
    if (index == UINT32_MAX)
        return;
    struct error err = ERROR_INIT;
    if (spawn(s, index, &s->probe, &err) < 0)
        fail_probe(s, index, err.text);
    else
        s->stats.probes++;
}

// A tick that comes far too late: it is we who did not run, and the helpers may not have either.
static void note_gap(struct source_process *s, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - s->looked_ns;
    if (gap_ns > 4 * s->config.timing.watchdog_ns && gap_ns > s->config.call_deadline_ns / 4)
        s->watched_ns = now_ns;
    s->looked_ns = now_ns;
}

static void on_watchdog(void *user)
{
    struct source_process *s = user;
    uint64_t now_ns = clock_mono_ns();
    note_gap(s, now_ns);
    s->depth++;
    check_probe(s, now_ns);
    if (s->active && !s->freed)
        check(s, s->active, now_ns);
    if (!s->freed)
        start_probe(s, now_ns);
    bool no_room = s->no_room_ns && now_ns > s->no_room_ns + s->config.timing.patience_ns;
    if (no_room && !s->no_room_told && !s->freed) {
        s->no_room_told = true;
        (void)tell_down(s, "hung", NULL, true);
    }
    (void)leave(s);
}

// --- Outside ---

static void set_default(uint64_t *value, uint64_t otherwise)
{
    if (*value == 0)
        *value = otherwise;
}

static int copy_config(struct source_process *s, const struct source_process_config *config)
{
    s->config = *config;
    s->config.path = sv_dup(sv_from(config->path));
    s->config.source = sv_dup(sv_from(config->source));
    s->config.library = sv_dup(sv_from(config->library ? config->library : ""));
    s->config.kmsg_path = sv_dup(sv_from(config->kmsg_path ? config->kmsg_path : ""));
    struct source_process_timing *t = &s->config.timing;
    set_default(&t->hello_ns, 10 * NS_PER_S);
    set_default(&t->backoff_least_ns, NS_PER_S);
    set_default(&t->backoff_most_ns, 60 * NS_PER_S);
    set_default(&t->healthy_ns, 60 * NS_PER_S);
    set_default(&t->probe_ns, 300 * NS_PER_S);
    set_default(&t->patience_ns, NS_PER_S);
    set_default(&t->pulse_ns, 30 * NS_PER_S);
    set_default(&s->config.call_deadline_ns, 10 * NS_PER_S);
    uint64_t tenth_ns = s->config.call_deadline_ns / 10 + 1;
    set_default(&t->watchdog_ns, tenth_ns < NS_PER_S ? tenth_ns : NS_PER_S);
    s->skips.wait_ns = t->probe_ns;
    s->skips.most_wait_ns = PROBE_WAIT_MOST * t->probe_ns;
    bool whole = s->config.path && s->config.source && s->config.library && s->config.kmsg_path;
    return whole ? 0 : -ENOMEM;
}

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
    int r = copy_config(s, config);
    if (r == 0)
        r = loop_timer_new(l, on_watchdog, s, &s->watchdog);
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

// The shortest period among the classes that are watched decides how long silence is normal.
static uint64_t silence_of(const struct source_process *s, const struct frame_watch *watch,
                           const uint16_t *field_ids)
{
    uint64_t shortest_ns = UINT64_MAX;
    for (uint32_t i = 0; i < watch->count; i++) {
        const struct field_info *field = field_find(field_ids[i]);
        if (field && watch->period_ns[field->cost] < shortest_ns)
            shortest_ns = watch->period_ns[field->cost];
    }
    if (shortest_ns > UINT64_MAX / 8)
        return 0;
    return 4 * shortest_ns + 3 * s->config.call_deadline_ns;
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
    s->silence_ns = silence_of(s, watch, field_ids);
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
            slot_kill(s, running[i]);
    }
    // It is the driver's being free that is waited for, and a script may go on to reset the GPU at
    // once.
    for (size_t i = 0; i < ARRAY_SIZE(running); i++) {
        if (running[i])
            source_helper_await(running[i]->helper, RELEASE_WAIT_MS);
    }
    (void)tell_down(s, "released", NULL, false);
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
