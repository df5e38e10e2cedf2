// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/app_internal.h"

#define REASONS_PERIOD_NS (10 * NS_PER_S)
// DCGM's helper loads a library, and perhaps brings an engine up in it, before it has a word to
// say.
#define ON_ITS_WAY_NS (30 * NS_PER_S)
#define LOOK_AGAIN_NS (1 * NS_PER_S)

// The worst status of a field over all devices that answer: what keeps it from being there at all,
// or FRAME_OK.
static enum frame_status field_reason(const struct device_view *view,
                                      const struct field_info *field)
{
    enum frame_status reason = FRAME_NO_DATA;
    for (size_t i = 0; i < view->primary->entity_count; i++) {
        enum frame_status s = device_view_status(view, i, field->id);
        if (s == FRAME_OK)
            return FRAME_OK;
        if (s != FRAME_NO_DATA && s != FRAME_LOST)
            reason = s;
    }
    return reason;
}

// Before DCGM's helper has said how it stands, or has sampled, its fields are on their way.
static bool is_on_its_way(const struct app *a, enum frame_status reason, uint64_t now_ns)
{
    const struct app_source *s = &a->sources[DEVICE_SOURCE_DCGM];
    const struct inventory *dcgm = &s->inventory;
    bool says_nothing = !dcgm->state_known || dcgm->state.code == FRAME_STATE_READY;
    if (reason == FRAME_NOT_CONNECTED)
        return says_nothing;
    bool is_need = reason == FRAME_NEEDS_DCGM || reason == FRAME_NEEDS_GPM;
    bool sampled = s->sampled_watch_id == s->watch_id && s->watch_id > 0;
    return is_need && s->process && says_nothing && !sampled &&
           now_ns - s->started_ns < ON_ITS_WAY_NS;
}

static const char *reason_text(const struct field_info *field, enum frame_status reason)
{
    return field->type == FIELD_BINARY ? "not_numeric" : frame_status_text(reason);
}

// A known name that these GPUs can't give is told once, with its reason.
void app_log_missing(struct app *a)
{
    uint64_t now_ns = clock_mono_ns();
    bool seen = a->reasons_layout == a->view.layout && now_ns < a->reasons_due_ns;
    if (a->view.primary->entity_count == 0 || seen)
        return;
    a->reasons_layout = a->view.layout;
    a->reasons_due_ns = now_ns + REASONS_PERIOD_NS;
    const struct counter_list *counters = &a->config->counters;
    if (!a->reasons_logged)
        a->reasons_logged = calloc(counters->count + 1, 1);
    if (!a->reasons_logged)
        return;
    for (size_t i = 0; i < counters->count; i++) {
        const struct counter *c = &counters->rows[i];
        if (c->field->id >= FIELD_EXP_FIRST) // dcgm-exporter's own, no reading
            continue;
        enum frame_status reason = field_reason(&a->view, c->field);
        if (reason == FRAME_OK || reason == FRAME_NO_DATA || a->reasons_logged[i] == reason + 1)
            continue;
        if (c->field->type != FIELD_BINARY && is_on_its_way(a, reason, now_ns)) {
            a->reasons_due_ns = now_ns + LOOK_AGAIN_NS;
            continue;
        }
        a->reasons_logged[i] = (uint8_t)(reason + 1);
        log_info("field is not available here", LOG_STR("field", c->name),
                 LOG_STR("reason", reason_text(c->field, reason)));
    }
}
