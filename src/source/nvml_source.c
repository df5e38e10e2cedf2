// SPDX-License-Identifier: Apache-2.0
// How it works: everything that has a time (retry, event poll, walk, samples) stands in a field
// *_ns; the loop waits for the socket or the earliest of them and then does what is due, events
// before samples, so that a sample knows the XIDs that came before it. The driver is opened and
// closed only in open_driver and close_driver.
#include "source/nvml_source.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "source/exporter_socket.h"
#include "source/kmsg_reader.h"
#include "source/nvml_call.h"
#include "source/nvml_events.h"
#include "source/nvml_peers.h"
#include "source/nvml_usage.h"
#include "source/sampler.h"

#define EVENTS_PERIOD_NS NS_PER_S
#define WALK_PERIOD_NS (5 * NS_PER_S)
#define RETRY_LEAST_NS NS_PER_S
#define RETRY_MOST_NS (60 * NS_PER_S)
#define LOST_LEAST_NS (15 * NS_PER_S) // reopening disturbs the GPUs that are well
#define LOST_MOST_NS (300 * NS_PER_S)
#define CHANNELS_NS (60 * NS_PER_S) // events and kernel log that could not be had: tried again
#define NEVER UINT64_MAX

struct source {
    const struct source_options *common;
    const struct nvml_source_options *options;
    struct nvml n;
    struct nvml_system system;
    struct nvml_devices devices;
    struct nvml_field_values field_values;
    struct nvml_events events;
    struct xid_board board;
    struct kmsg_reader kmsg;
    struct exporter_socket exporter;
    struct sampler sampler;
    struct nvml_peers peers;
    struct nvml_usage usage;
    bool ready;        // the driver is open
    unsigned attempts; // to open since it was last open with all GPUs well
    uint64_t open_ns;  // next attempt; NEVER while there is no reason
    uint64_t events_ns, walk_ns, channels_ns;
    unsigned device_files;
    uint32_t most_gpus; // that were ever listed
};

// --- telling ---

static void send_entities(struct source *s)
{
    s->devices.generation++;
    struct frame_entities head = {.generation = s->devices.generation, .count = s->devices.count};
    buf_reset(&s->exporter.frame);
    size_t start = frame_begin(&s->exporter.frame, FRAME_ENTITIES);
    buf_add(&s->exporter.frame, &head, sizeof(head));
    for (uint32_t i = 0; i < s->devices.count; i++)
        buf_add(&s->exporter.frame, &s->devices.list[i].record, sizeof(s->devices.list[i].record));
    frame_end(&s->exporter.frame, start);
    exporter_socket_check(&s->exporter,
                          xid_board_send_entities(&s->board, &s->devices, &s->exporter.frame));
}

static void update_state(struct source *s, enum frame_state_code code, nvmlReturn_t vendor_code,
                         const char *text)
{
    struct frame_state state = {
        .code = code,
        .vendor_code = vendor_code,
        .xid_events_armed = s->events.armed,
        .kmsg_armed = kmsg_reader_is_armed(&s->kmsg),
    };
    sv_copy(state.text, sizeof(state.text), sv_from(text));
    memcpy(state.driver_version, s->system.driver_version, sizeof(state.driver_version));
    memcpy(state.library_version, s->system.library_version, sizeof(state.library_version));
    memcpy(state.library_path, s->n.path, sizeof(state.library_path));
    exporter_socket_send_state(&s->exporter, &state);
}

// The channels may have changed, the rest is as it was.
static void refresh_state(struct source *s)
{
    xid_board_set_armed(&s->board, s->events.armed);
    s->sampler.kmsg_armed = kmsg_reader_is_armed(&s->kmsg);
    const struct frame_state *last = &s->exporter.state;
    if (s->exporter.told)
        update_state(s, (enum frame_state_code)last->code, last->vendor_code, last->text);
}

static void reset_sampler(struct source *s)
{
    uint64_t now_ns = clock_mono_ns();
    nvml_peers_reset(&s->peers, now_ns);
    if (sampler_reset(&s->sampler, now_ns) < 0)
        exporter_socket_end_without_memory(&s->exporter);
}

// --- the driver ---

static enum frame_state_code code_of_init(nvmlReturn_t result, const char **text)
{
    switch (result) {
    case NVML_ERROR_LIBRARY_NOT_FOUND:
        *text = "the NVML library found is a stub without a driver behind it";
        return FRAME_STATE_NO_LIBRARY;
    case NVML_ERROR_FUNCTION_NOT_FOUND:
        *text = "the library found has no nvmlInit: it is not NVML";
        return FRAME_STATE_NO_LIBRARY;
    case NVML_ERROR_DRIVER_NOT_LOADED:
        *text = "the NVIDIA kernel driver is not loaded";
        return FRAME_STATE_NO_DRIVER;
    case NVML_ERROR_NO_PERMISSION:
        *text = "no permission to open the NVIDIA device files";
        return FRAME_STATE_NO_PERMISSION;
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        *text = "NVML library and kernel driver differ in version: the driver was upgraded and is "
                "not loaded yet, or this container has an older library";
        return FRAME_STATE_MISMATCH;
    default:
        *text = "NVML does not start, or does not count the GPUs; often there are no device files, "
                "/dev/nvidiactl and /dev/nvidia0";
        return FRAME_STATE_FAILED;
    }
}

static void schedule_open(struct source *s, uint64_t least_ns, uint64_t most_ns)
{
    s->open_ns = clock_mono_ns() + clock_backoff_ns(s->attempts++, least_ns, most_ns);
}

// A GPU that was lost, or that the driver does not list any more, comes back only when the driver
// is opened again.
static void schedule_reopen(struct source *s)
{
    if (s->devices.gpus > s->most_gpus)
        s->most_gpus = s->devices.gpus;
    if (nvml_devices_all_lost(&s->devices)) {
        schedule_open(s, RETRY_LEAST_NS, RETRY_MOST_NS);
    } else if (nvml_devices_any_lost(&s->devices) || s->devices.gpus < s->most_gpus) {
        schedule_open(s, LOST_LEAST_NS, LOST_MOST_NS);
    } else {
        s->open_ns = NEVER;
        s->attempts = 0;
    }
}

// The library is unmapped too: a retry then finds what an upgrade has put there.
static void give_up(struct source *s, enum frame_state_code code, nvmlReturn_t result,
                    const char *text)
{
    nvml_close(&s->n);
    s->system = (struct nvml_system){0};
    s->ready = false;
    log_debug("no driver yet", LOG_STR("reason", frame_state_text(code)), LOG_I64("code", result),
              LOG_LIMIT("driver"));
    update_state(s, code, result, text);
    schedule_open(s, RETRY_LEAST_NS, RETRY_MOST_NS);
}

static void arm_events(struct source *s)
{
    if (nvml_events_is_spoilt(&s->devices)) {
        nvml_events_disarm(&s->n, &s->events, &s->devices);
        xid_board_set_armed(&s->board, false);
    }
    nvml_events_arm(&s->n, &s->events, &s->devices);
    xid_board_set_armed(&s->board, s->events.armed);
    s->sampler.kmsg_armed = kmsg_reader_is_armed(&s->kmsg);
}

static void announce(struct source *s)
{
    arm_events(s);
    update_state(s, FRAME_STATE_READY, NVML_SUCCESS, "");
    send_entities(s);
    reset_sampler(s);
    schedule_reopen(s);
}

static void open_driver(struct source *s)
{
    struct error err = ERROR_INIT;
    const char *text = "";
    if (!s->n.handle) {
        int rc = nvml_open(&s->n, s->common->library, &err);
        if (rc < 0) {
            give_up(s, rc == -ENOENT ? FRAME_STATE_NO_LIBRARY : FRAME_STATE_FAILED, NVML_SUCCESS,
                    err.text);
            return;
        }
    }
    bool changed;
    nvmlReturn_t result = nvml_init(&s->n);
    if (result == NVML_SUCCESS) {
        nvml_system_read(&s->n, &s->system);
        nvml_field_values_init(&s->field_values, s->system.driver_version);
        result = nvml_devices_enumerate(&s->n, &s->devices, &changed);
    }
    if (result != NVML_SUCCESS) {
        enum frame_state_code code = code_of_init(result, &text);
        give_up(s, code, result, text);
        return;
    }
    s->ready = true;
    log_debug("driver open", LOG_STR("driver", s->system.driver_version),
              LOG_U64("gpus", s->devices.gpus));
    announce(s);
}

static void close_driver(struct source *s)
{
    nvml_events_disarm(&s->n, &s->events, &s->devices);
    nvml_usage_release(&s->n, &s->usage);
    nvml_devices_release(&s->n, &s->devices);
    nvml_shutdown(&s->n);
    s->ready = false;
}

static void reopen_driver(struct source *s, const char *why)
{
    log_info("driver is opened again", LOG_STR("reason", why));
    close_driver(s);
    open_driver(s);
    if (s->ready)
        return;
    send_entities(s); // they are all lost now
    reset_sampler(s);
}

// A call failed as if the library had been shut down or the driver unloaded or replaced. Whether it
// is so, one that asks no GPU must say, too; the driver is then opened anew, with backoff.
static void confirm_loss(struct source *s)
{
    unsigned int count;
    nvmlReturn_t result = nvml_call(&s->n, NVML_NO_GPU, nvmlDeviceGetCount, &count);
    if (nvml_result_is_of_library(result))
        reopen_driver(s, "the library or the driver is gone");
}

// --- change ---

static unsigned count_device_files(const char *path)
{
    DIR *dir = opendir(path);
    unsigned count = 0;
    if (!dir)
        return 0;
    for (const struct dirent *e; (e = readdir(dir));) {
        struct sv name = sv_from(e->d_name);
        if (!sv_starts_with(name, SV("nvidia")) || name.len == 6)
            continue;
        size_t digits = 6;
        while (digits < name.len && name.ptr[digits] >= '0' && name.ptr[digits] <= '9')
            digits++;
        count += digits == name.len;
    }
    (void)closedir(dir);
    return count;
}

static void walk(struct source *s)
{
    bool changed;
    s->sampler.walk_wanted = false;
    uint64_t started_ns = clock_mono_ns();
    nvmlReturn_t result = nvml_devices_walk(&s->n, &s->devices, &changed);
    // With a slow driver most of the time is for samples.
    uint64_t now_ns = clock_mono_ns(), pause_ns = 10 * (now_ns - started_ns);
    s->walk_ns = now_ns + (pause_ns > WALK_PERIOD_NS ? pause_ns : WALK_PERIOD_NS);
    if (result != NVML_SUCCESS)
        log_error("out of memory", LOG_LIMIT("walk"));
    if (result == NVML_SUCCESS && changed) {
        log_debug("GPUs changed", LOG_U64("entities", s->devices.count));
        announce(s);
    }
}

static void keep_house(struct source *s)
{
    unsigned files = count_device_files(s->options->device_dir);
    bool files_changed = files != s->device_files;
    s->device_files = files;
    s->walk_ns = clock_mono_ns() + WALK_PERIOD_NS;
    if (files_changed && s->ready)
        reopen_driver(s, "device files came or went");
    else if (files_changed)
        s->open_ns = 0;
    else if (s->ready)
        walk(s);
}

static void poll_events(struct source *s, uint64_t now_ns)
{
    if (exporter_socket_has_dropped(&s->exporter))
        sampler_resend(&s->sampler); // statuses are sent once
    s->events_ns = (now_ns / EVENTS_PERIOD_NS + 1) * EVENTS_PERIOD_NS;
    if (!s->ready)
        return;
    unsigned found = nvml_events_poll(&s->n, &s->events, &s->devices, &s->board);
    uint64_t took_ns = clock_mono_ns() - now_ns;
    if (found & NVML_EVENTS_MORE)
        s->events_ns = now_ns;
    else if (took_ns > EVENTS_PERIOD_NS / 10) // a slow driver has other things to say, too
        s->events_ns = now_ns + (took_ns < EVENTS_PERIOD_NS ? 10 * took_ns : 10 * EVENTS_PERIOD_NS);
    if (found & NVML_EVENTS_UNINITIALIZED)
        confirm_loss(s);
    else if (found & (NVML_EVENTS_MIG_CHANGED | NVML_EVENTS_GPU_LOST))
        walk(s);
    if (s->ready && nvml_events_is_spoilt(&s->devices))
        arm_events(s);
    refresh_state(s);
}

static void start_kmsg(struct source *s, uint64_t after)
{
    const struct kmsg_options options = {
        .path = s->options->kmsg_path,
        .after = after,
        .told_seq = &s->common->page->kmsg_seq,
    };
    int rc = kmsg_reader_start(&s->kmsg, &options, &s->board);
    if (rc < 0)
        log_warn("kernel log is not followed", LOG_STR("path", options.path), LOG_ERRNO(rc),
                 LOG_LIMIT("kmsg"));
}

// What could not be had when it was tried last may be there now.
static void try_channels(struct source *s, uint64_t now_ns)
{
    s->channels_ns = now_ns + CHANNELS_NS;
    if (!kmsg_reader_is_armed(&s->kmsg))
        start_kmsg(s, s->kmsg.seq);
    if (s->ready)
        arm_events(s);
    refresh_state(s);
}

// --- samples ---

static void sample(struct source *s, unsigned classes)
{
    uint64_t started_ns = clock_mono_ns();
    uint32_t calls = s->n.calls;
    s->sampler.state_changed = s->sampler.suspect = false;
    sampler_pass(&s->sampler, classes);
    if (s->sampler.state_changed) {
        send_entities(s);
        sampler_resend(&s->sampler);
        schedule_reopen(s);
    }
    const struct buf *frame = sampler_frame(&s->sampler, classes, started_ns, calls);
    if (classes || s->sampler.record_count)
        exporter_socket_send(&s->exporter, FRAME_SAMPLE, frame);
    if (s->sampler.suspect)
        confirm_loss(s);
    if (!s->ready)
        return;
    if (s->sampler.walk_wanted)
        walk(s);
}

static void read_peers(struct source *s)
{
    if (nvml_peers_read(&s->peers, &s->n, &s->devices, &s->exporter.frame))
        exporter_socket_send(&s->exporter, FRAME_PEERS, &s->exporter.frame);
}

static void read_usage(struct source *s)
{
    struct buf *frame = &s->exporter.frame;
    if (output_take_usage_lost(&s->exporter.output))
        nvml_usage_break(&s->usage);
    const struct nvml_usage_clock clock = {.now_ns = clock_mono_ns(), .wall_ns = clock_wall_ns()};
    if (nvml_usage_read(&s->usage, &s->n, &s->devices, clock, frame))
        exporter_socket_send(&s->exporter, FRAME_USAGE, frame);
    else
        log_error("out of memory", LOG_LIMIT("usage"));
}

static void do_due(struct source *s)
{
    uint64_t now_ns = clock_mono_ns();
    if (now_ns >= s->open_ns) {
        s->open_ns = NEVER;
        if (s->ready)
            reopen_driver(s, "a GPU is lost or missing");
        else
            open_driver(s);
    }
    if (now_ns >= s->events_ns)
        poll_events(s, now_ns);
    if (now_ns >= s->walk_ns)
        keep_house(s);
    if (now_ns >= s->channels_ns)
        try_channels(s, now_ns);
    exporter_socket_check(&s->exporter, xid_board_expire(&s->board, now_ns));
    if (s->ready && now_ns >= sampler_due_ns(&s->sampler))
        sample(s, sampler_take_due(&s->sampler, now_ns));
    if (s->ready && now_ns >= nvml_peers_due_ns(&s->peers))
        read_peers(s);
    if (s->ready && now_ns >= nvml_usage_due_ns(&s->usage))
        read_usage(s);
}

// --- the whole ---

static void take_frames(struct source *s)
{
    struct frame frame;
    while (exporter_socket_next(&s->exporter, &frame)) {
        if (frame.type != FRAME_WATCH)
            continue;
        if (sampler_watch(&s->sampler, frame.as.watch.head, frame.as.watch.field_ids,
                          clock_mono_ns()) < 0) {
            exporter_socket_end_without_memory(&s->exporter);
            return;
        }
        nvml_peers_watch(&s->peers, frame.as.watch.head, frame.as.watch.field_ids, clock_mono_ns());
        nvml_usage_watch(&s->usage, frame.as.watch.head->usage_ns, clock_mono_ns());
    }
}

// Once a second at least, for the sake of the events.
static uint64_t due_ns(struct source *s)
{
    uint64_t due = s->open_ns < s->events_ns ? s->open_ns : s->events_ns;
    uint64_t sampling = s->ready ? sampler_due_ns(&s->sampler) : NEVER;
    uint64_t peers = s->ready ? nvml_peers_due_ns(&s->peers) : NEVER;
    uint64_t usage = s->ready ? nvml_usage_due_ns(&s->usage) : NEVER;
    uint64_t others[] = {s->walk_ns, sampling, peers, usage, xid_board_due_ns(&s->board)};
    for (unsigned i = 0; i < ARRAY_SIZE(others); i++)
        if (others[i] < due)
            due = others[i];
    return due;
}

static void init(struct source *s, const struct source_options *common,
                 const struct nvml_source_options *options)
{
    *s = (struct source){.common = common, .options = options};
    exporter_socket_init(&s->exporter, common->socket_fd, common->page);
    s->n.page = common->page;
    s->n.avoided = common->avoided;
    s->n.avoided_count = common->avoided_count;
    s->devices.skipped = common->skipped;
    s->devices.skipped_bus_ids = options->skipped_bus_ids;
    xid_board_init(&s->board, &s->exporter.output);
    sampler_init(&s->sampler);
    nvml_peers_init(&s->peers);
    nvml_usage_init(&s->usage);
    s->sampler.n = &s->n;
    s->sampler.system = &s->system;
    s->sampler.devices = &s->devices;
    s->sampler.field_values = &s->field_values;
    s->sampler.board = &s->board;
    s->device_files = count_device_files(options->device_dir);
    s->walk_ns = clock_mono_ns() + WALK_PERIOD_NS;
}

int nvml_source_run(const struct source_options *common, const struct nvml_source_options *options)
{
    static struct source source; // one a process; too large for the stack
    struct source *s = &source;
    init(s, common, options);
    exporter_socket_send_hello(&s->exporter, FRAME_SOURCE_NVML);
    start_kmsg(s, options->kmsg_after);
    s->channels_ns = clock_mono_ns() + CHANNELS_NS;
    while (exporter_socket_turn(&s->exporter)) {
        do_due(s);
        if (exporter_socket_wait(&s->exporter, due_ns(s)))
            take_frames(s);
    }
    return s->exporter.end - 1;
}
