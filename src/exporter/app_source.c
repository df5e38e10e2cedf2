// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/app_internal.h"

#define REASONS_PERIOD_NS (10 * NS_PER_S)

static int compare_ids(const void *a, const void *b)
{
    uint16_t x = *(const uint16_t *)a, y = *(const uint16_t *)b;
    return (x > y) - (x < y);
}

// Rows of type label become constant text of the page. scratch has room for every row of the
// configuration.
static void mark_labels(struct app *a, const struct exporter_config *config, uint16_t *scratch)
{
    size_t count = 0;
    for (size_t i = 0; i < config->counters.count; i++)
        if (config->counters.rows[i].type == COUNTER_LABEL)
            scratch[count++] = config->counters.rows[i].field->id;
    inventory_set_labels(&a->inventory, scratch, count);
}

// Tells the source and the inventory which fields to keep: the configuration's, each once,
// ascending.
int app_watch(struct app *a, const struct exporter_config *config)
{
    uint16_t *fields = calloc(config->counters.count + 1, sizeof(*fields));
    if (!fields)
        return -ENOMEM;
    size_t count = 0;
    for (size_t i = 0; i < config->counters.count; i++)
        if (config->counters.rows[i].field->id < FIELD_EXP_FIRST)
            fields[count++] = config->counters.rows[i].field->id;
    qsort(fields, count, sizeof(*fields), compare_ids);
    size_t unique = 0;
    for (size_t i = 0; i < count; i++)
        if (unique == 0 || fields[unique - 1] != fields[i])
            fields[unique++] = fields[i];
    struct frame_watch watch = {
        .watch_id = ++a->watch_id, .count = (uint32_t)unique, .gpus = UINT64_MAX};
    a->watched_fields = unique;
    for (size_t c = 0; c < FIELD_CLASS_COUNT; c++)
        watch.period_ns[c] = config->period_ns[c];
    int r = inventory_set_fields(&a->inventory, fields, unique, watch.watch_id);
    if (r == 0)
        r = source_process_watch(a->source, &watch, fields);
    mark_labels(a, config, fields); // reuses the memory of fields
    free(fields);
    return r;
}

static void log_state(struct app *a, const struct frame_state *state)
{
    if (state->code == FRAME_STATE_READY)
        log_info("gpu driver is ready", LOG_STR("driver", state->driver_version),
                 LOG_STR("nvml", state->library_version), LOG_STR("library", state->library_path));
    else if (state->code != a->logged_state.code || a->logged_state.driver_version[0] == '\0')
        log_warn("no gpu metrics for now", LOG_STR("source", "nvml"),
                 LOG_STR("reason", frame_state_text(state->code)), LOG_STR("detail", state->text),
                 LOG_LIMIT(frame_state_text(state->code)));
    a->logged_state = *state;
}

// Of each GPU that is down, and each instance that is down alone.
static void log_devices(const struct inventory *inv)
{
    uint64_t gpus = 0, gpus_up = 0, instances = 0;
    for (size_t i = 0; i < inv->entity_count; i++) {
        const struct inventory_entity *e = &inv->entities[i];
        bool is_gpu = e->info.kind == FRAME_ENTITY_GPU;
        gpus += is_gpu;
        gpus_up += is_gpu && e->up;
        instances += !is_gpu;
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
             LOG_U64("mig_instances", instances));
}

static void log_events(const struct inventory *inv, const struct frame *frame)
{
    for (uint32_t i = 0; i < frame->as.events.head->count; i++) {
        const struct frame_event *event = &frame->as.events.list[i];
        const struct inventory_entity *e = inventory_event_entity(inv, frame, i);
        if (!e)
            continue;
        struct buf key = BUF_INIT(256);
        buf_add_fmt(&key, "%u %u %s", event->xid, e->info.index, e->info.uuid);
        log_warn("xid error", LOG_U64("gpu", e->info.index), LOG_STR("uuid", e->info.uuid),
                 LOG_U64("xid", event->xid), LOG_U64("count", (uint64_t)event->repeats + 1),
                 LOG_STR("from", event->origin == FRAME_EVENT_KMSG ? "kernel log" : "driver event"),
                 LOG_STR("detail", event->text), LOG_LIMIT(buf_cstr(&key)));
        buf_deinit(&key);
    }
}

static void on_sample(struct app *a, const struct frame_sample *sample)
{
    if (sample->watch_id != a->watch_id)
        return;
    a->sampled_watch_id = sample->watch_id;
    if (app_reload_progress(a))
        return;
    app_log_missing(a);
    app_publish_soon(a);
}

static void on_frame(void *user, const struct frame *frame)
{
    struct app *a = user;
    if (frame->type == FRAME_STATE)
        log_state(a, frame->as.state);
    if (inventory_apply(&a->inventory, frame) < 0) {
        log_error("out of memory while taking a sample", LOG_LIMIT("inventory"));
        return;
    }
    if (frame->type == FRAME_ENTITIES)
        log_devices(&a->inventory);
    if (frame->type == FRAME_EVENTS)
        log_events(&a->inventory, frame);
    if (frame->type == FRAME_ENTITIES && a->pods)
        pod_resources_kick(a->pods); // ids that named no device may do so now
    if (frame->type == FRAME_STATE || frame->type == FRAME_EVENTS)
        app_publish_soon(a);
    if (frame->type == FRAME_SAMPLE)
        on_sample(a, frame->as.sample.head);
}

static void log_down(const char *reason, const char *call, bool driver_hung)
{
    if (strcmp(reason, "released") == 0)
        log_info("gpu driver is released", LOG_STR("source", "nvml"));
    else if (call && call[0])
        log_warn("gpu source process ended", LOG_STR("source", "nvml"), LOG_STR("reason", reason),
                 LOG_STR("call", call), LOG_BOOL("driver_hung", driver_hung), LOG_LIMIT(reason));
    else
        log_warn("gpu source process ended", LOG_STR("source", "nvml"), LOG_STR("reason", reason),
                 LOG_BOOL("driver_hung", driver_hung), LOG_LIMIT(reason));
}

static void on_down(void *user, const char *reason, uint32_t index, const char *call,
                    bool driver_hung)
{
    struct app *a = user;
    log_down(reason, call, driver_hung);
    if (driver_hung)
        inventory_mark_down(&a->inventory, UINT32_MAX, "driver_hung");
    else if (strcmp(reason, "hung") == 0 && index != UINT32_MAX)
        inventory_mark_down(&a->inventory, index, "hung");
    else if (strcmp(reason, "released") == 0)
        inventory_mark_down(&a->inventory, UINT32_MAX, "released");
    else
        return; // it costs one sample at most: the last values stand until they are too old
    app_publish(a);
}

int app_source_start(struct app *a, struct error *err)
{
    const struct source_process_config config = {
        .path = a->source_path,
        .source = "nvml",
        .library = a->options->flags.nvml_library,
        .kmsg_path = a->options->flags.kmsg_path,
        .log_json = a->options->log_format == LOG_FORMAT_JSON,
        .log_debug = a->options->log_level == LOG_LEVEL_DEBUG,
        .call_deadline_ns = a->options->flags.call_deadline_ns,
        .frame = on_frame,
        .down = on_down,
        .user = a,
    };
    int r = source_process_new(a->loop, &config, &a->source, err);
    if (r < 0)
        return r;
    r = app_watch(a, a->config);
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

// The worst status of a field over all devices that answer: what keeps it from being there at all,
// or FRAME_OK.
static enum frame_status field_reason(const struct inventory *inv, const struct field_info *field)
{
    enum frame_status reason = FRAME_NO_DATA;
    for (size_t i = 0; i < inv->entity_count; i++) {
        enum frame_status s = inventory_field_status(inv, &inv->entities[i], field->id);
        if (s == FRAME_OK)
            return FRAME_OK;
        if (s != FRAME_NO_DATA && s != FRAME_LOST)
            reason = s;
    }
    return reason;
}

// A known name that these GPUs can't give is told once, with its reason.
void app_log_missing(struct app *a)
{
    uint64_t now_ns = clock_mono_ns();
    bool seen = a->reasons_layout == a->inventory.layout && now_ns < a->reasons_due_ns;
    if (a->inventory.entity_count == 0 || seen)
        return;
    a->reasons_layout = a->inventory.layout;
    a->reasons_due_ns = now_ns + REASONS_PERIOD_NS;
    const struct counter_list *counters = &a->config->counters;
    if (!a->reasons_logged)
        a->reasons_logged = calloc(counters->count + 1, 1);
    if (!a->reasons_logged)
        return;
    for (size_t i = 0; i < counters->count; i++) {
        const struct counter *c = &counters->rows[i];
        bool exporters = c->field->id >= FIELD_EXP_FIRST; // dcgm-exporter's own, no reading
        enum frame_status reason =
            exporters ? FRAME_NEEDS_DCGM : field_reason(&a->inventory, c->field);
        if (reason == FRAME_OK || reason == FRAME_NO_DATA || a->reasons_logged[i] == reason + 1)
            continue;
        a->reasons_logged[i] = (uint8_t)(reason + 1);
        log_info("field is not available here", LOG_STR("field", c->name),
                 LOG_STR("reason", exporters ? "not_implemented" : frame_status_text(reason)));
    }
}
