// SPDX-License-Identifier: Apache-2.0
// Skipped GPUs are asked again by a second helper beside the one in use; see source_process.c.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/source_process_internal.h"

void source_probe_failed(struct source_process *s, uint32_t index, const char *reason)
{
    source_skips_put_off(&s->skips, index, clock_mono_ns());
    log_info("gpu still does not answer", LOG_U64("gpu", index), LOG_STR("reason", reason));
}

// --- Frames ---

// The probe's helper becomes the active one: its state and list go first, the sample follows by the
// caller. False when the object is gone or released.
static bool take_over(struct source_process *s, struct slot *slot)
{
    uint32_t index = slot->probed;
    if (s->active)
        source_slot_kill(s, s->active);
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
    bool alive =
        source_tell_frame(s, &state) && s->active == slot && source_tell_frame(s, &entities);
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
bool source_probe_frame(struct source_process *s, struct slot *slot, const struct frame *frame)
{
    if (frame->type == FRAME_STATE)
        slot->state = *frame->as.state;
    if (frame->type == FRAME_ENTITIES && !keep_list(slot, frame)) {
        uint32_t index = slot->probed;
        source_slot_kill(s, slot);
        source_probe_failed(s, index, "out of memory");
    }
    return frame->type == FRAME_SAMPLE && slot->ready && slot->list && take_over(s, slot);
}

// --- Once a tick ---

// A probe that neither hangs nor samples (no driver, say) has its time too.
void source_probe_check(struct source_process *s, uint64_t now_ns)
{
    struct slot *slot = s->probe;
    uint64_t most_ns = 3 * s->config.call_deadline_ns;
    if (slot && source_watched_since(s, slot->started_ns, now_ns) > most_ns) {
        uint32_t index = slot->probed;
        source_slot_kill(s, slot);
        source_probe_failed(s, index, "no sample");
        return;
    }
    if (slot)
        source_check(s, slot, now_ns);
}

void source_probe_start(struct source_process *s, uint64_t now_ns)
{
    if (!s->active || source_slots_used(s) != 1)
        return;
    // All GPUs may be skipped: then there is no sample to wait for.
    if (!s->active->sampled && now_ns < s->active->started_ns + 2 * s->config.call_deadline_ns)
        return;
    uint32_t index = source_skips_due(&s->skips, now_ns);
    if (index == UINT32_MAX)
        return;
    struct error err = ERROR_INIT;
    if (source_spawn(s, index, &s->probe, &err) < 0)
        source_probe_failed(s, index, err.text);
    else
        s->stats.probes++;
}
