// SPDX-License-Identifier: Apache-2.0
// How it works: everything that has a time (open, walk, reads) stands in a field *_ns or is asked
// of the part it belongs to; the loop waits for the socket or the earliest of them and then does
// what is due. An engine is opened and closed only in open_engine and close_engine. Any call may
// find the engine gone (dcgm_call.h sets lost); after each step that is looked at once, in
// check_engine.
#include "source/dcgm_source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "source/dcgm_call.h"
#include "source/dcgm_health.h"
#include "source/dcgm_log.h"
#include "source/dcgm_watch.h"
#include "source/exporter_socket.h"

#define TURN_NS NS_PER_S // the exporter looks at the count of turns
#define WALK_PERIOD_NS (10 * NS_PER_S)
#define RETRY_LEAST_NS (250 * NS_PER_MS)
#define RETRY_MOST_NS (5 * NS_PER_S)
#define LIBRARY_RETRY_NS (60 * NS_PER_S)
#define HOLD_NS NS_PER_S               // after a read that failed
#define APPLY_RETRY_NS (10 * NS_PER_S) // of watches that the engine refused
#define FAILURES_MOST 5                // reads in a row before the engine is opened anew
#define NEVER UINT64_MAX

struct source {
    const struct source_options *common;
    const struct dcgm_source_options *options;
    struct dcgm d;
    struct dcgm_devices devices;
    struct dcgm_watch *watch;
    struct dcgm_health *health;
    struct exporter_socket exporter;
    struct frame_watch wish; // as received last
    struct buf extra;        // frames of health
    bool ready;              // an engine is open
    bool paused;
    bool resumes;      // the next engine, which may be the one that was paused
    bool armed;        // XIDs are looked for
    unsigned attempts; // to open since a sample was read
    unsigned failures; // reads in a row that failed
    uint64_t open_ns, walk_ns, apply_ns, hold_ns;
};

// --- telling ---

static void send_entities(struct source *s)
{
    buf_reset(&s->exporter.frame);
    dcgm_devices_write(&s->devices, &s->exporter.frame);
    exporter_socket_send(&s->exporter, FRAME_ENTITIES, &s->exporter.frame);
}

static void update_state(struct source *s, enum frame_state_code code, int32_t vendor_code,
                         const char *text)
{
    struct frame_state state = {
        .code = code,
        .vendor_code = vendor_code,
        .xid_events_armed = s->ready && s->armed,
        .paused = s->paused,
        .profiling_code = s->ready ? dcgm_watch_profiling_code(s->watch) : 0,
    };
    sv_copy(state.text, sizeof(state.text), sv_from(text));
    sv_copy(state.library_version, sizeof(state.library_version), sv_from(s->d.version));
    sv_copy(state.library_path, sizeof(state.library_path), sv_from(s->d.path));
    sv_copy(state.engine, sizeof(state.engine), sv_from(s->d.address));
    memcpy(state.driver_version, s->devices.driver_version, sizeof(state.driver_version));
    exporter_socket_send_state(&s->exporter, &state);
}

static void refresh_state(struct source *s)
{
    if (s->ready)
        update_state(s, FRAME_STATE_READY, 0, "");
}

// --- the engine ---

static void close_engine(struct source *s)
{
    dcgm_watch_forget(s->watch);
    dcgm_health_forget(s->health);
    dcgm_devices_forget(&s->devices);
    dcgm_engine_close(&s->d);
    s->ready = s->armed = false;
    s->failures = 0;
}

static void schedule_open(struct source *s)
{
    s->open_ns = clock_mono_ns() + clock_backoff_ns(s->attempts++, RETRY_LEAST_NS, RETRY_MOST_NS);
}

static void lose_engine(struct source *s, dcgmReturn_t result, const char *why)
{
    char address[sizeof(s->d.address)];
    memcpy(address, s->d.address, sizeof(address));
    close_engine(s);
    log_warn("host engine lost", LOG_STR("engine", address), LOG_STR("reason", why),
             LOG_LIMIT("lost"));
    update_state(s, FRAME_STATE_FAILED, result, why);
    schedule_open(s);
}

// True while there is an engine to talk to.
static bool check_engine(struct source *s)
{
    if (s->ready && s->d.lost)
        lose_engine(s, DCGM_ST_CONNECTION_NOT_VALID, "the connection to the host engine is gone");
    return s->ready;
}

// The engine is made to do what is wanted of it.
static void apply(struct source *s)
{
    bool verdicts = dcgm_watch_wants(s->watch, FIELD_EXP_HEALTH);
    bool peers = dcgm_watch_wants(s->watch, FIELD_EXP_P2P);
    s->apply_ns = NEVER;
    if (s->wish.watch_id == 0)
        return; // nothing is wanted yet
    dcgmReturn_t result = dcgm_watch_apply(s->watch);
    if (result == DCGM_ST_OK && !s->d.lost) {
        result = dcgm_health_apply(s->health, verdicts, peers, s->wish.gpus, s->wish.period_ns);
        s->armed = dcgm_health_listens(s->health);
    }
    if (!check_engine(s))
        return;
    if (result != DCGM_ST_OK) {
        log_warn("host engine refuses watches", LOG_STR("reason", dcgm_result_text(result)),
                 LOG_I64("code", result), LOG_LIMIT("apply"));
        s->apply_ns = clock_mono_ns() + APPLY_RETRY_NS;
    }
    refresh_state(s);
}

// The list of entities made anew; what is watched follows it.
static void walk(struct source *s, bool is_new)
{
    bool changed = false;
    s->walk_ns = clock_mono_ns() + WALK_PERIOD_NS;
    dcgmReturn_t result = dcgm_devices_walk(&s->d, &s->devices, &changed);
    if (!check_engine(s))
        return;
    if (result != DCGM_ST_OK)
        log_warn("entities of the host engine are not known", LOG_I64("code", result),
                 LOG_STR("reason", dcgm_result_text(result)), LOG_LIMIT("walk"));
    refresh_state(s);
    if (changed || is_new) {
        log_debug("entities of the host engine", LOG_U64("entities", s->devices.count));
        send_entities(s);
        dcgm_watch_resend(s->watch);
        apply(s);
    }
}

static bool open_library(struct source *s)
{
    struct error err = ERROR_INIT;
    if (s->d.library)
        return true;
    int rc = dcgm_open(&s->d, s->common->library, &err);
    if (rc == 0)
        return true;
    log_debug("no DCGM", LOG_STR("reason", err.text), LOG_LIMIT("library"));
    update_state(s, rc == -ENOENT ? FRAME_STATE_NO_LIBRARY : FRAME_STATE_FAILED, 0, err.text);
    if (rc == -EIO)
        schedule_open(s); // it is there, and what it says may pass
    else
        s->open_ns = clock_mono_ns() + LIBRARY_RETRY_NS;
    return false;
}

// Nsight has the counters still, whichever engine it is now; or had them, and the engine is to go
// on.
static void pause_again(struct source *s)
{
    if (s->resumes)
        s->resumes = dcgm_call(&s->d, dcgmProfResume, s->d.engine) == DCGM_ST_CONNECTION_NOT_VALID;
    if (!s->paused)
        return;
    dcgmReturn_t result = dcgm_call(&s->d, dcgmProfPause, s->d.engine);
    if (result != DCGM_ST_OK && result != DCGM_ST_PAUSED)
        log_warn("profiling is not paused at the new host engine", LOG_I64("code", result),
                 LOG_STR("reason", dcgm_result_text(result)), LOG_LIMIT("pause"));
}

static void open_engine(struct source *s)
{
    char text[sizeof(s->exporter.state.text)];
    int32_t vendor_code;
    s->open_ns = NEVER;
    if (!open_library(s))
        return;
    enum frame_state_code code =
        dcgm_engine_open(&s->d, &s->options->engine, &vendor_code, text, sizeof(text));
    if (code != FRAME_STATE_READY) {
        log_debug("no host engine", LOG_STR("reason", text), LOG_LIMIT("engine"));
        update_state(s, code, vendor_code, text);
        schedule_open(s);
        return;
    }
    s->ready = true;
    log_debug("host engine open", LOG_STR("engine", s->d.address),
              LOG_STR("version", s->d.version));
    pause_again(s);
    walk(s, true);
}

// --- reading ---

// Results that tell of an engine which is another than the one that the watches were made at.
static bool is_of_another_engine(dcgmReturn_t result)
{
    return result == DCGM_ST_NOT_WATCHED || result == DCGM_ST_NOT_CONFIGURED ||
           result == DCGM_ST_UNINITIALIZED;
}

// The engine does not ask the driver any more, or has been told to let the GPUs go: to open it anew
// changes nothing.
static bool is_known_rest(dcgmReturn_t result)
{
    return result == DCGM_ST_NVML_DRIVER_TIMEOUT || result == DCGM_ST_GPUS_DETACHED;
}

static void check_read(struct source *s, dcgmReturn_t result)
{
    if (!check_engine(s))
        return;
    if (result == DCGM_ST_OK) {
        s->failures = s->attempts = 0;
        return;
    }
    s->hold_ns = clock_mono_ns() + HOLD_NS;
    log_warn("host engine does not give values", LOG_STR("reason", dcgm_result_text(result)),
             LOG_I64("code", result), LOG_LIMIT("read"));
    if (is_known_rest(result))
        return;
    s->failures++;
    if (is_of_another_engine(result) && s->failures == 1) {
        dcgm_watch_forget(s->watch);
        dcgm_health_forget(s->health);
        dcgm_devices_forget(&s->devices);
        walk(s, true);
    } else if (s->failures >= FAILURES_MOST) {
        lose_engine(s, result, dcgm_result_text(result));
    }
}

static void read_samples(struct source *s, uint64_t now_ns)
{
    const struct buf *frame = NULL;
    dcgmReturn_t result = dcgm_watch_read(s->watch, now_ns, &frame);
    if (frame && !s->d.lost)
        exporter_socket_send(&s->exporter, FRAME_SAMPLE, frame);
    check_read(s, result);
    refresh_state(s);
}

// Each frame of the buffer on its own: the queue to the exporter drops by kind.
static void send_each(struct source *s, const struct buf *frames)
{
    struct frame_header header;
    size_t at = 0;
    if (frames->error)
        return;
    while (frames->len - at >= sizeof(header)) {
        memcpy(&header, frames->data + at, sizeof(header));
        struct buf one = {.data = frames->data + at, .len = sizeof(header) + header.bytes};
        exporter_socket_send(&s->exporter, (enum frame_type)header.type, &one);
        at += one.len;
    }
}

static void read_health(struct source *s, uint64_t now_ns)
{
    buf_reset(&s->extra);
    dcgmReturn_t result = dcgm_health_read(s->health, now_ns, &s->extra);
    if (!s->d.lost)
        send_each(s, &s->extra);
    if (!check_engine(s))
        return;
    s->armed = dcgm_health_listens(s->health);
    refresh_state(s);
    if (result == DCGM_ST_OK)
        return;
    s->hold_ns = clock_mono_ns() + HOLD_NS;
    log_warn("host engine does not tell of health", LOG_STR("reason", dcgm_result_text(result)),
             LOG_I64("code", result), LOG_LIMIT("health"));
}

static void do_due(struct source *s)
{
    uint64_t now_ns = clock_mono_ns();
    if (exporter_socket_has_dropped(&s->exporter))
        dcgm_watch_resend(s->watch); // statuses are sent once
    if (!s->ready && now_ns >= s->open_ns)
        open_engine(s);
    if (s->ready && now_ns >= s->walk_ns)
        walk(s, false);
    if (s->ready && now_ns >= s->apply_ns)
        apply(s);
    now_ns = clock_mono_ns();
    if (s->ready && now_ns >= s->hold_ns && now_ns >= dcgm_watch_due_ns(s->watch))
        read_samples(s, now_ns);
    if (s->ready && now_ns >= s->hold_ns && now_ns >= dcgm_health_due_ns(s->health))
        read_health(s, now_ns);
}

// --- the socket ---

static void take_watch(struct source *s, const struct frame_watch *head, const uint16_t *field_ids)
{
    if (dcgm_watch_set(s->watch, head, field_ids) < 0) {
        exporter_socket_end_without_memory(&s->exporter);
        return;
    }
    s->wish = *head;
    if (s->ready)
        apply(s);
}

static dcgmReturn_t pause_profiling(struct source *s, bool pause)
{
    dcgmReturn_t result = pause ? dcgm_call(&s->d, dcgmProfPause, s->d.engine)
                                : dcgm_call(&s->d, dcgmProfResume, s->d.engine);
    if (pause && result == DCGM_ST_PAUSED)
        result = DCGM_ST_OK; // by somebody before us
    if (result == DCGM_ST_OK) {
        s->paused = pause;
        dcgm_watch_set_paused(s->watch, pause);
        log_info(pause ? "profiling paused" : "profiling resumed", LOG_STR("engine", s->d.address));
    }
    return result;
}

// Without an engine nothing can be paused, but who is done with the counters must not have to wait.
static bool resume_later(struct source *s)
{
    if (s->ready || !s->paused)
        return false;
    s->paused = false;
    s->resumes = true;
    dcgm_watch_set_paused(s->watch, false);
    log_info("profiling is resumed with the next host engine");
    return true;
}

static void take_control(struct source *s, const struct frame_control *control)
{
    struct frame_control_done done = {.number = control->number, .code = INT32_MIN};
    bool pause = control->command == FRAME_COMMAND_PAUSE;
    const char *text = "no host engine is connected";
    if (!pause && resume_later(s)) {
        done.code = DCGM_ST_OK;
        text = "";
    } else if (s->ready) {
        done.code = pause_profiling(s, pause);
        text = done.code == DCGM_ST_OK ? "" : dcgm_result_text(done.code);
        if (!check_engine(s))
            done.code = DCGM_ST_CONNECTION_NOT_VALID;
    }
    sv_copy(done.text, sizeof(done.text), sv_from(text));
    exporter_socket_send_payload(&s->exporter, FRAME_CONTROL_DONE, &done, sizeof(done));
    refresh_state(s);
}

static void take_frames(struct source *s)
{
    struct frame frame;
    while (exporter_socket_next(&s->exporter, &frame)) {
        if (frame.type == FRAME_WATCH)
            take_watch(s, frame.as.watch.head, frame.as.watch.field_ids);
        else if (frame.type == FRAME_CONTROL)
            take_control(s, frame.as.control);
    }
}

// --- the whole ---

static uint64_t read_due_ns(const struct source *s)
{
    uint64_t watch = dcgm_watch_due_ns(s->watch), health = dcgm_health_due_ns(s->health);
    uint64_t due = watch < health ? watch : health;
    return due < s->hold_ns ? s->hold_ns : due;
}

static uint64_t due_ns(const struct source *s)
{
    uint64_t due = clock_mono_ns() + TURN_NS;
    uint64_t reads = s->ready ? read_due_ns(s) : NEVER;
    uint64_t others[] = {s->ready ? s->walk_ns : s->open_ns, s->ready ? s->apply_ns : NEVER, reads};
    for (unsigned i = 0; i < ARRAY_SIZE(others); i++)
        if (others[i] < due)
            due = others[i];
    return due;
}

static int init(struct source *s, const struct source_options *common,
                const struct dcgm_source_options *options)
{
    *s = (struct source){
        .common = common,
        .options = options,
        .extra = BUF_INIT(LIMIT_FRAME_BYTES + sizeof(struct frame_header)),
        .apply_ns = NEVER,
    };
    s->d.page = common->page;
    s->d.avoided = common->avoided;
    s->d.avoided_count = common->avoided_count;
    s->devices.skipped = common->skipped;
    exporter_socket_init(&s->exporter, common->socket_fd, common->page);
    // Names are looked up here and in libdcgm; the exporter ends a helper whose calls take 10 s.
    (void)setenv("RES_OPTIONS", "timeout:1 attempts:2", 0);
    if (dcgm_watch_new(&s->d, &s->devices, &s->watch) < 0 ||
        dcgm_health_new(&s->d, &s->devices, &s->health) < 0)
        return -ENOMEM;
    return 0;
}

// A running engine is left as it was found.
static void deinit(struct source *s)
{
    if (s->ready && s->paused)
        (void)dcgm_call(&s->d, dcgmProfResume, s->d.engine);
    dcgm_health_free(s->health);
    dcgm_watch_free(s->watch);
    if (s->ready)
        dcgm_engine_close(&s->d);
    dcgm_close(&s->d);
    dcgm_devices_deinit(&s->devices);
    exporter_socket_deinit(&s->exporter);
    buf_deinit(&s->extra);
}

static void run(struct source *s)
{
    exporter_socket_send_hello(&s->exporter, FRAME_SOURCE_DCGM);
    while (exporter_socket_turn(&s->exporter)) {
        do_due(s);
        if (exporter_socket_wait(&s->exporter, due_ns(s)))
            take_frames(s);
    }
}

int dcgm_source_run(const struct source_options *common, const struct dcgm_source_options *options)
{
    static struct source source; // one a process
    struct source *s = &source;
    int rc = options->log_level ? dcgm_log_start(options->log_level) : 0;
    if (rc < 0)
        log_warn("log of DCGM is not followed", LOG_ERRNO(rc));
    if (init(s, common, options) < 0)
        exporter_socket_end_without_memory(&s->exporter);
    else
        run(s);
    deinit(s);
    dcgm_log_stop();
    return s->exporter.end - 1;
}
