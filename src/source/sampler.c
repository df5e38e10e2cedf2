// SPDX-License-Identifier: Apache-2.0
// How it works: a class on a GPU is a row of calls, entity by entity. Each GPU remembers how far it
// is in each class, so that a pass can leave a slow one in the middle and come back. What is read
// and how stands in sampler_read.c.
#include "source/sampler_internal.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "source/nvml_call.h"

// --- why nothing is read ---

// Why nothing is read of an entity; FRAME_OK: it is read. One that answers nothing but has a handle
// is asked on: it may answer again.
static enum frame_status status_of_entity(const struct nvml_entity *e)
{
    switch ((enum frame_entity_state)e->record.state) {
    case FRAME_ENTITY_UP:
    case FRAME_ENTITY_RESET_REQUIRED:
        return FRAME_OK;
    case FRAME_ENTITY_NO_PERMISSION:
        return FRAME_NO_PERMISSION;
    case FRAME_ENTITY_LOST:
        return FRAME_LOST;
    case FRAME_ENTITY_FAILED:
        return e->device ? FRAME_OK : FRAME_NO_DATA;
    case FRAME_ENTITY_SKIPPED:
    case FRAME_ENTITY_STATE_END:
        break;
    }
    return FRAME_NO_DATA;
}

// Says of each field the entity could have why it has none now. XID codes stay: they are the
// evidence.
static void put_reason(struct sampler *s, uint32_t entity, enum frame_status status)
{
    for (uint32_t row = 0; row < s->row_count; row++) {
        const struct nvml_recipe *r = s->rows[row].recipe;
        if (r && r->getter != GETTER_XID &&
            (r->instance || nvml_entity_is_gpu(&s->devices->list[entity])))
            sampler_put_status(s, entity, row, status);
    }
}

// --- one GPU ---

enum stage { STAGE_XID, STAGE_CALLS, STAGE_VALUES, STAGE_GPM, STAGE_END };

static uint32_t end_of_gpu(const struct sampler *s, uint32_t gpu)
{
    uint32_t end = gpu + 1;
    while (end < s->state_entities && s->devices->list[end].record.parent == gpu)
        end++;
    return end;
}

// What is due begins; what is under way goes on.
static void begin_classes(struct sampler *s, uint32_t gpu, unsigned classes)
{
    struct sampler_progress *p = &s->progress[gpu];
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++) {
        if (!(classes >> c & 1) || (p->pending >> c & 1) || !s->classes[c].count)
            continue;
        p->at[c] = (struct sampler_place){.entity = gpu, .stage = STAGE_XID};
        p->pending |= (uint8_t)(1u << c);
        if (c == FIELD_CLASS_FAST)
            p->asked = p->answered = 0;
    }
}

// The fast class goes first, but on a slow GPU the others have a quarter of the calls.
static unsigned choose_class(struct sampler_progress *p)
{
    unsigned others = p->pending & ~(1u << FIELD_CLASS_FAST);
    bool fast = p->pending >> FIELD_CLASS_FAST & 1;
    if (fast && (!others || p->turn % 4 != 3))
        return FIELD_CLASS_FAST;
    return (unsigned)__builtin_ctz(others);
}

// One vendor call of a class, or the steps up to the next stage. False: the GPU is gone.
static bool step(struct sampler *s, struct sampler_progress *p, unsigned class)
{
    struct sampler_place *at = &p->at[class];
    const struct sampler_class *c = &s->classes[class];
    switch ((enum stage)at->stage) {
    case STAGE_XID:
        sampler_read_xid(s, at->entity, c);
        at->row = c->first;
        at->stage = STAGE_CALLS;
        return true;
    case STAGE_CALLS:
        if (!sampler_read_next_call(s, at->entity, c, &at->row))
            return false;
        if (at->row == c->first + c->count)
            at->stage = STAGE_VALUES;
        return true;
    case STAGE_VALUES:
        at->stage = STAGE_GPM;
        return sampler_read_values(s, at->entity, c);
    case STAGE_GPM:
        at->stage = STAGE_END;
        return sampler_read_gpm(s, at->entity, c);
    case STAGE_END:
        break;
    }
    return true;
}

// A GPU that fails whatever it is asked does not answer; one more call makes sure.
static void judge_answers(struct sampler *s, uint32_t gpu)
{
    const struct sampler_progress *p = &s->progress[gpu];
    const struct nvml_entity *e = &s->devices->list[gpu];
    unsigned int celsius;
    if (p->asked < SAMPLER_ASKED_LEAST || p->answered || e->record.state != FRAME_ENTITY_UP)
        return;
    nvmlReturn_t result = nvml_call(s->n, e->record.index, nvmlDeviceGetTemperature, e->device,
                                    NVML_TEMPERATURE_GPU, &celsius);
    if (nvml_status_of(result) == FRAME_VENDOR_ERROR)
        s->state_changed |= nvml_devices_mark(s->devices, gpu, FRAME_ENTITY_FAILED);
}

// The class is through with an entity.
static void go_on(struct sampler *s, struct sampler_progress *p, unsigned class, uint32_t gpu)
{
    struct sampler_place *at = &p->at[class];
    if (at->stage != STAGE_END)
        return;
    *at = (struct sampler_place){.entity = at->entity + 1, .stage = STAGE_XID};
    if (at->entity < end_of_gpu(s, gpu))
        return;
    p->pending &= (uint8_t) ~(1u << class);
    if (class == FIELD_CLASS_FAST)
        judge_answers(s, gpu);
}

static void read_gpu(struct sampler *s, uint32_t gpu, unsigned classes, uint64_t until_ns)
{
    struct sampler_progress *p = &s->progress[gpu];
    bool gone = status_of_entity(&s->devices->list[gpu]) != FRAME_OK;
    begin_classes(s, gpu, classes);
    while (p->pending && !gone) {
        uint32_t calls = s->n->calls;
        unsigned class = choose_class(p);
        gone = !step(s, p, class);
        if (!gone)
            go_on(s, p, class, gpu);
        if (s->n->calls == calls)
            continue;
        p->turn++;
        if (clock_mono_ns() >= until_ns)
            break;
    }
    if (!gone)
        return;
    p->pending = 0;
    for (uint32_t entity = gpu; entity < end_of_gpu(s, gpu); entity++) {
        for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++)
            if (classes >> c & 1)
                sampler_read_xid(s, entity, &s->classes[c]);
        enum frame_status reason = status_of_entity(&s->devices->list[entity]);
        if (reason != FRAME_OK)
            put_reason(s, entity, reason);
    }
}

// --- the pass ---

// No GPU may hold up the others: one that needs longer than a slice goes on in the next pass, which
// comes at once, and what comes between two dues ends in time for the second.
void sampler_pass(struct sampler *s, unsigned classes)
{
    buf_reset(&s->records);
    buf_reset(&s->strings);
    s->record_count = 0;
    s->unfinished = false;
    uint64_t due_ns = sampler_class_due_ns(s);
    for (uint32_t gpu = 0; gpu < s->state_entities; gpu = end_of_gpu(s, gpu)) {
        uint64_t until_ns = clock_mono_ns() + s->slice_ns;
        if (!classes && due_ns < until_ns)
            until_ns = due_ns;
        if (classes || s->progress[gpu].pending)
            read_gpu(s, gpu, classes, until_ns);
        s->unfinished |= s->progress[gpu].pending != 0;
    }
}

static void add_statuses(struct sampler *s, uint64_t now_ns)
{
    for (uint32_t entity = 0; entity < s->state_entities; entity++) {
        for (uint32_t row = 0; row < s->row_count; row++) {
            struct sampler_state *state = sampler_state_at(s, entity, row);
            if (!state->now || state->now == FRAME_OK + 1 || state->now == state->sent)
                continue;
            struct nvml_output out = {.status = (enum frame_status)(state->now - 1),
                                      .i64 = state->code};
            sampler_add_record(s, entity, s->rows[row].field, &out, now_ns);
            state->sent = state->now;
        }
    }
}

const struct buf *sampler_frame(struct sampler *s, unsigned classes, uint64_t started_ns,
                                uint32_t calls_before)
{
    uint64_t now_ns = clock_mono_ns();
    add_statuses(s, now_ns);
    struct frame_sample head = {
        .generation = s->devices->generation,
        .watch_id = s->watch.watch_id,
        .classes = classes,
        .count = s->record_count,
        .string_bytes = (uint32_t)s->strings.len,
        .vendor_calls = s->n->calls - calls_before,
        .started_ns = started_ns,
        .ended_ns = now_ns,
    };
    buf_reset(&s->frame);
    size_t start = frame_begin(&s->frame, FRAME_SAMPLE);
    buf_add(&s->frame, &head, sizeof(head));
    buf_add_sv(&s->frame, buf_sv(&s->records));
    buf_add_sv(&s->frame, buf_sv(&s->strings));
    frame_end(&s->frame, start);
    if (s->records.error || s->strings.error)
        s->frame.error = -EFBIG;
    return &s->frame;
}
