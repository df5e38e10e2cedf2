// SPDX-License-Identifier: Apache-2.0
// Each helper's frames go to its own inventory; what of them people should know goes to the log.
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/app_internal.h"
#include "exporter/source_argv.h"
#include "gpu/xid.h"

// An engine that starts in the helper brings the driver up on each GPU first.
#define DCGM_DEADLINES 3

// --- States ---

static void log_state_nvml(struct app_source *s, const struct frame_state *state)
{
    if (state->code == FRAME_STATE_READY)
        log_info("gpu driver is ready", LOG_STR("driver", state->driver_version),
                 LOG_STR("nvml", state->library_version), LOG_STR("library", state->library_path));
    else if (state->code != s->logged_state.code || s->logged_state.driver_version[0] == '\0')
        log_warn("no gpu metrics for now", LOG_STR("source", "nvml"),
                 LOG_STR("reason", frame_state_text(state->code)), LOG_STR("detail", state->text),
                 LOG_LIMIT(frame_state_text(state->code)));
}

// A node without DCGM, of which nobody said that it has one, is no fault.
static enum log_level missing_level(const struct app_source *s, const struct frame_state *state)
{
    const struct exporter_options *o = s->app->options;
    bool is_expected = o->source == SOURCE_CHOICE_DCGM || o->flags.remote_hostengine_given ||
                       o->flags.dcgm_library[0] != '\0';
    return state->code == FRAME_STATE_NO_LIBRARY && !is_expected ? LOG_LEVEL_INFO : LOG_LEVEL_WARN;
}

static void log_state_dcgm(struct app_source *s, const struct frame_state *state)
{
    const struct frame_state *logged = &s->logged_state;
    bool first = logged->code == FRAME_STATE_READY && logged->engine[0] == '\0';
    if (state->code == FRAME_STATE_READY) {
        if (logged->code != state->code || strcmp(logged->engine, state->engine) != 0)
            log_info("dcgm host engine is in use", LOG_STR("engine", state->engine),
                     LOG_STR("version", state->library_version),
                     LOG_STR("library", state->library_path));
    } else if (first || state->code != logged->code) {
        log_at(missing_level(s, state), "no dcgm host engine for now", LOG_STR("source", "dcgm"),
               LOG_STR("reason", frame_state_text(state->code)), LOG_STR("detail", state->text),
               LOG_LIMIT(frame_state_text(state->code)));
    }
}

static void log_state(struct app_source *s, const struct frame_state *state)
{
    if (s->which == DEVICE_SOURCE_NVML)
        log_state_nvml(s, state);
    else
        log_state_dcgm(s, state);
    s->logged_state = *state;
}

// --- Devices, events ---

// Of each GPU that is down, and each instance that is down alone.
static void log_devices(const struct app_source *s)
{
    const struct inventory *inv = &s->inventory;
    uint64_t gpus = 0, gpus_up = 0, instances = 0, others = 0;
    for (size_t i = 0; i < inv->entity_count; i++) {
        const struct inventory_entity *e = &inv->entities[i];
        bool is_gpu = e->info.kind == FRAME_ENTITY_GPU;
        if (!inventory_is_of_gpu(e)) {
            others++;
            continue;
        }
        gpus += is_gpu;
        gpus_up += is_gpu && e->up;
        instances += e->info.kind == FRAME_ENTITY_GPU_I;
        if (e->up || (!is_gpu && !inv->entities[e->info.parent].up))
            continue;
        struct buf key = BUF_INIT(256);
        buf_add_fmt(&key, "%u %u %s", e->info.index, e->info.gpu_instance_id, e->down_reason);
        log_warn("gpu is not available", LOG_U64("gpu", e->info.index),
                 LOG_STR("uuid", e->info.uuid), LOG_STR("reason", e->down_reason),
                 LOG_LIMIT(buf_cstr(&key)));
        buf_deinit(&key);
    }
    log_info("devices listed", LOG_U64("gpus", gpus), LOG_U64("available", gpus_up),
             LOG_U64("mig_instances", instances), LOG_U64("others", others),
             LOG_STR("source", app_source_name(s)));
}

// Both sources hear of an XID. Where NVML listens its word is the one that counts, and the other
// one is not told again; the page's field_source_info goes by the same rule.
static bool is_told_by_nvml(const struct app_source *s, const struct inventory_entity *e,
                            uint32_t xid)
{
    const struct app *a = s->app;
    const struct inventory *nvml = &a->sources[DEVICE_SOURCE_NVML].inventory;
    bool listens =
        inventory_is_connected(nvml) && (nvml->state.xid_events_armed || nvml->state.kmsg_armed);
    if (s->which == DEVICE_SOURCE_NVML || a->view.primary != nvml || !listens)
        return false;
    size_t place =
        device_view_place(&a->view, DEVICE_SOURCE_DCGM, (size_t)(e - s->inventory.entities));
    if (place >= nvml->entity_count)
        return false;
    const struct inventory_entity *twin = &nvml->entities[place];
    for (size_t i = 0; i < twin->xid_count; i++)
        if (twin->xids[i].code == xid)
            return true;
    return twin->up; // it will be
}

static void log_events(const struct app_source *s, const struct frame *frame)
{
    const struct inventory *inv = &s->inventory;
    static const char *const origins[FRAME_EVENT_ORIGIN_END] = {
        [FRAME_EVENT_NVML] = "driver event",
        [FRAME_EVENT_KMSG] = "kernel log",
        [FRAME_EVENT_DCGM] = "host engine",
    };
    for (uint32_t i = 0; i < frame->as.events.head->count; i++) {
        const struct frame_event *event = &frame->as.events.list[i];
        const struct inventory_entity *e = inventory_event_entity(inv, frame, i);
        if (!e || is_told_by_nvml(s, e, event->xid))
            continue;
        const struct xid_advice advice = xid_advice_get(event->xid);
        struct buf key = BUF_INIT(256);
        buf_add_fmt(&key, "%u %u %s", event->xid, e->info.index, e->info.uuid);
        log_warn("xid error", LOG_U64("gpu", e->info.index), LOG_STR("uuid", e->info.uuid),
                 LOG_U64("xid", event->xid), LOG_U64("count", (uint64_t)event->repeats + 1),
                 LOG_STR("from", origins[event->origin]), LOG_STR("severity", advice.severity),
                 LOG_STR("advice", advice.text), LOG_STR("detail", event->text),
                 LOG_LIMIT(buf_cstr(&key)));
        buf_deinit(&key);
    }
}

// --- Frames ---

static void on_sample(struct app_source *s, const struct frame_sample *sample)
{
    struct app *a = s->app;
    if (sample->watch_id != s->watch_id)
        return;
    bool first = s->sampled_watch_id != sample->watch_id;
    s->sampled_watch_id = sample->watch_id;
    app_plan_progress(a, first);
    if (app_reload_progress(a))
        return;
    app_log_missing(a);
    app_publish_soon(a);
}

// A sample follows that makes a page, but where samples are further apart.
static bool usage_needs_page(const struct app *a)
{
    return a->config->period_ns[FIELD_CLASS_FAST] > app_usage_period_ns(a->config);
}

static void on_frame(void *user, const struct frame *frame)
{
    struct app_source *s = user;
    struct app *a = s->app;
    bool turned = frame->type == FRAME_STATE &&
                  (!s->inventory.state_known || frame->as.state->code != s->inventory.state.code);
    if (frame->type == FRAME_STATE)
        log_state(s, frame->as.state);
    if (inventory_apply(&s->inventory, frame) < 0) {
        log_error("out of memory while taking a sample", LOG_LIMIT("inventory"));
        return;
    }
    app_ledger_take(s, frame);
    if (exp_counts_take(a->exp, &s->inventory, frame) < 0)
        log_error("out of memory while counting events", LOG_LIMIT("counts"));
    if (frame->type == FRAME_ENTITIES)
        log_devices(s);
    if (frame->type == FRAME_EVENTS)
        log_events(s, frame);
    if (frame->type == FRAME_CONTROL_DONE)
        app_control_done(a, frame->as.control_done);
    if (frame->type == FRAME_ENTITIES && a->pods)
        pod_resources_kick(a->pods); // ids that named no device may do so now
    if (turned || frame->type == FRAME_ENTITIES)
        app_plan_progress(a, true);
    if (frame->type == FRAME_STATE || frame->type == FRAME_EVENTS || frame->type == FRAME_HEALTH)
        app_publish_soon(a);
    if (frame->type == FRAME_USAGE && usage_needs_page(a))
        app_publish_soon(a);
    if (frame->type == FRAME_SAMPLE)
        on_sample(s, frame->as.sample.head);
}

static void log_down(const struct app_source *s, const char *reason, const char *call,
                     bool driver_hung)
{
    const char *name = app_source_name(s);
    if (strcmp(reason, "released") == 0)
        log_info("gpu driver is released", LOG_STR("source", name));
    else if (call && call[0])
        log_warn("gpu source process ended", LOG_STR("source", name), LOG_STR("reason", reason),
                 LOG_STR("call", call), LOG_BOOL("driver_hung", driver_hung), LOG_LIMIT(reason));
    else
        log_warn("gpu source process ended", LOG_STR("source", name), LOG_STR("reason", reason),
                 LOG_BOOL("driver_hung", driver_hung), LOG_LIMIT(reason));
}

// True when the page shows it at once.
static bool mark_nvml(struct inventory *inv, const char *reason, uint32_t index, bool driver_hung)
{
    if (driver_hung)
        inventory_mark_down(inv, UINT32_MAX, "driver_hung");
    else if (strcmp(reason, "hung") == 0 && index != UINT32_MAX)
        inventory_mark_down(inv, index, "hung");
    else if (strcmp(reason, "released") == 0)
        inventory_mark_down(inv, UINT32_MAX, "released");
    else
        return false; // it costs one sample at most: the last values stand until they are too old
    return true;
}

static void on_down(void *user, const char *reason, uint32_t index, const char *call,
                    bool driver_hung)
{
    struct app_source *s = user;
    log_down(s, reason, call, driver_hung);
    app_ledger_lost(s);
    if (s->which == DEVICE_SOURCE_DCGM) {
        // What came through an engine is not shown longer than that is there.
        inventory_disconnect(&s->inventory);
        app_control_lost(s->app);
    } else if (!mark_nvml(&s->inventory, reason, index, driver_hung)) {
        return;
    }
    app_publish(s->app);
}

// --- Life ---

void app_source_init(struct app *a)
{
    device_view_init(&a->view);
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++) {
        struct app_source *s = &a->sources[i];
        s->app = a;
        s->which = (enum device_source)i;
        inventory_init(&s->inventory);
        s->inventory.ends_at_once = s->which == DEVICE_SOURCE_DCGM;
    }
}

void app_source_deinit(struct app *a)
{
    device_view_deinit(&a->view);
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        inventory_deinit(&a->sources[i].inventory);
    source_plan_deinit(&a->plan);
}

int app_source_start(struct app_source *s, struct error *err)
{
    const struct app *a = s->app;
    const struct exporter_flags *f = &a->options->flags;
    bool nvml = s->which == DEVICE_SOURCE_NVML;
    const char *words[SOURCE_EXTRA_MAX + 1] = {NULL};
    if (!nvml)
        source_plan_engine_words(&a->plan, f, words);
    const struct source_process_config config = {
        .path = a->source_path,
        .source = app_source_name(s),
        .library = nvml ? f->nvml_library : f->dcgm_library,
        .kmsg_path = nvml ? f->kmsg_path : "",
        .extra = words,
        .log_json = a->options->log_format == LOG_FORMAT_JSON,
        .log_debug = a->options->log_level == LOG_LEVEL_DEBUG,
        .call_deadline_ns = nvml ? f->call_deadline_ns : DCGM_DEADLINES * f->call_deadline_ns,
        .frame = on_frame,
        .down = on_down,
        .user = s,
    };
    s->started_ns = clock_mono_ns();
    return source_process_new(a->loop, &config, &s->process, err);
}

void app_source_stop(struct app_source *s)
{
    source_process_free(TAKE_PTR(s->process));
    inventory_reset(&s->inventory);
    s->watched_fields = 0;
    s->published = false;
    s->logged_state = (struct frame_state){0};
    if (s->which == DEVICE_SOURCE_DCGM)
        app_control_lost(s->app);
}

bool app_has_samples(const struct app *a)
{
    bool any = false;
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        any = any || a->sources[i].inventory.samples > 0;
    return any;
}
