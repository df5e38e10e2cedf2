// SPDX-License-Identifier: Apache-2.0
// The helpers, started and asked as the app does it, until each has said how it stands and has
// sampled what is wanted. A GPU whose call hangs costs its helper; the next one leaves it alone and
// says so. DCGM's is started once NVML has said what it cannot give.
#include <errno.h>
#include <string.h>

#include "exporter/doctor_internal.h"
#include "exporter/source_argv.h"
#include "exporter/source_path.h"

#define CALL_DEADLINE_MOST_NS (4 * NS_PER_S)
// After the first sample: GPM and DCGM have no value in it.
#define VALUES_NS (3 * NS_PER_S)

static void on_frame(void *user, const struct frame *frame)
{
    struct doctor_source *s = user;
    if (inventory_apply(&s->inventory, frame) < 0)
        return; // without memory nothing is found: the time runs out
    if (frame->type != FRAME_SAMPLE || frame->as.sample.head->watch_id != s->inventory.watch_id)
        return;
    if (s->samples++ == 0)
        s->sampled_ns = clock_mono_ns();
}

static void on_down(void *user, const char *reason, uint32_t index, const char *call,
                    bool driver_hung)
{
    struct doctor_source *s = user;
    if (s->trouble[0] == '\0' || driver_hung) {
        sv_copy(s->trouble, sizeof(s->trouble), sv_from(reason));
        sv_copy(s->call, sizeof(s->call), sv_from(call));
        s->trouble_gpu = index;
    }
    s->driver_hung = s->driver_hung || driver_hung;
}

static int watch(struct doctor_source *s)
{
    const struct doctor *d = s->doctor;
    const uint16_t *fields = d->plan.fields[s->which];
    size_t count = d->plan.field_count[s->which];
    int r = inventory_set_fields(&s->inventory, fields, count, 1);
    if (r < 0)
        return r;
    struct frame_watch w = {
        .watch_id = 1,
        .count = (uint32_t)count,
        .gpus = s->which == DEVICE_SOURCE_DCGM ? d->plan.gpus : UINT64_MAX,
    };
    for (size_t c = 0; c < FIELD_CLASS_COUNT; c++)
        w.period_ns[c] = d->config->period_ns[c];
    return source_process_watch(s->process, &w, fields);
}

static int start(struct doctor_source *s, struct error *err)
{
    struct doctor *d = s->doctor;
    const struct exporter_flags *f = &d->options->flags;
    bool nvml = s->which == DEVICE_SOURCE_NVML;
    const char *words[SOURCE_EXTRA_MAX + 1] = {NULL};
    if (!nvml)
        source_plan_engine_words(&d->plan, f, words);
    uint64_t deadline_ns = f->call_deadline_ns;
    const struct source_process_config config = {
        .path = d->source_path,
        .source = nvml ? "nvml" : "dcgm",
        .library = nvml ? f->nvml_library : f->dcgm_library,
        .kmsg_path = nvml ? f->kmsg_path : "",
        .extra = words,
        .log_debug = d->options->log_level == LOG_LEVEL_DEBUG,
        .call_deadline_ns =
            deadline_ns < CALL_DEADLINE_MOST_NS ? deadline_ns : CALL_DEADLINE_MOST_NS,
        .frame = on_frame,
        .down = on_down,
        .user = s,
    };
    s->started_ns = clock_mono_ns();
    int r = source_process_new(d->loop, &config, &s->process, err);
    return r < 0 ? r : watch(s);
}

static int refresh(struct doctor *d)
{
    const struct inventory *dcgm = &d->sources[DEVICE_SOURCE_DCGM].inventory;
    const struct frame_state *state = doctor_state(d, DEVICE_SOURCE_DCGM);
    bool has_dcgm = state && state->code != FRAME_STATE_NO_LIBRARY;
    return device_view_refresh(&d->view,
                               d->plan.nvml ? &d->sources[DEVICE_SOURCE_NVML].inventory : NULL,
                               has_dcgm || !d->plan.nvml ? dcgm : NULL);
}

// Who is asked what, by all that is known now. True: somebody is asked something else.
static bool plan(struct doctor *d)
{
    struct source_plan next;
    if (refresh(d) < 0 || source_plan_make(d->config, &d->view, &d->plan, &next) < 0)
        return false;
    bool same = source_plan_equals(&next, &d->plan);
    source_plan_deinit(&d->plan);
    d->plan = next;
    return !same;
}

static bool is_wanted(const struct doctor *d, enum device_source which)
{
    return which == DEVICE_SOURCE_NVML ? d->plan.nvml : d->plan.dcgm;
}

void doctor_sources_init(struct doctor *d)
{
    device_view_init(&d->view);
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++) {
        struct doctor_source *s = &d->sources[i];
        s->doctor = d;
        s->which = (enum device_source)i;
        inventory_init(&s->inventory);
        s->inventory.ends_at_once = s->which == DEVICE_SOURCE_DCGM;
    }
}

void doctor_sources_start(struct doctor *d)
{
    struct error reason = ERROR_INIT;
    int r = source_path_find(d->options, d->source_path, sizeof(d->source_path), &reason);
    if (r < 0)
        sv_copy(d->source_error, sizeof(d->source_error), sv_from(reason.text));
    if (!d->config || r < 0)
        return; // a line each says so
    (void)plan(d);
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++) {
        struct doctor_source *s = &d->sources[i];
        if (is_wanted(d, s->which) && start(s, &reason) < 0)
            sv_copy(s->start_error, sizeof(s->start_error), sv_from(reason.text));
    }
}

// A value that may come yet: a profiling field without one.
static bool lacks_values(const struct doctor_source *s)
{
    const struct inventory *inv = &s->inventory;
    for (size_t i = 0; i < inv->entity_count; i++)
        for (size_t f = 0; inv->entities[i].up && f < inv->field_count; f++)
            if (inv->fields[f] >= 1001 && inv->fields[f] < 1100 &&
                inventory_field_status(inv, &inv->entities[i], inv->fields[f]) == FRAME_NO_DATA)
                return true;
    return false;
}

static bool has_settled(const struct doctor_source *s, uint64_t now_ns)
{
    const struct frame_state *state = doctor_state(s->doctor, s->which);
    if (!s->process || s->driver_hung)
        return true;
    if (!state)
        return false;
    // An engine is looked for at several places, and may have to be started.
    if (state->code != FRAME_STATE_READY)
        return s->which == DEVICE_SOURCE_NVML || state->code == FRAME_STATE_NO_LIBRARY ||
               now_ns - s->started_ns >= VALUES_NS;
    if (s->samples == 0)
        return false;
    return !lacks_values(s) || now_ns - s->sampled_ns >= VALUES_NS;
}

bool doctor_sources_settle(struct doctor *d, uint64_t now_ns)
{
    struct doctor_source *nvml = &d->sources[DEVICE_SOURCE_NVML];
    struct doctor_source *dcgm = &d->sources[DEVICE_SOURCE_DCGM];
    if (!d->config || d->source_error[0] != '\0')
        return true;
    if (!has_settled(nvml, now_ns))
        return false;
    bool changed = plan(d);
    if (is_wanted(d, DEVICE_SOURCE_DCGM) && !dcgm->process && dcgm->start_error[0] == '\0') {
        struct error reason = ERROR_INIT;
        if (start(dcgm, &reason) < 0)
            sv_copy(dcgm->start_error, sizeof(dcgm->start_error), sv_from(reason.text));
    } else if (changed && dcgm->process) {
        dcgm->samples = 0;
        (void)watch(dcgm);
    }
    return has_settled(dcgm, now_ns);
}

void doctor_sources_end(struct doctor *d)
{
    device_view_deinit(&d->view);
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++) {
        source_process_free(TAKE_PTR(d->sources[i].process));
        inventory_deinit(&d->sources[i].inventory);
    }
    source_plan_deinit(&d->plan);
}
