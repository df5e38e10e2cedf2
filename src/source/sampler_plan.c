// SPDX-License-Identifier: Apache-2.0
// How it works: a watch is turned into rows ordered by (class, call, argument), so that a pass
// makes each call once and hands its numbers to the rows side by side. Field values get a place in
// the class's list, each (id, scope) once.
#include "source/sampler.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void sampler_init(struct sampler *s)
{
    *s = (struct sampler){
        .ripe_ns = UINT64_MAX,
        .slice_ns = SAMPLER_SLICE_NS,
        .records = BUF_INIT(LIMIT_FRAME_BYTES),
        .strings = BUF_INIT(LIMIT_FRAME_BYTES),
        .frame = BUF_INIT(LIMIT_FRAME_BYTES + sizeof(struct frame_header)),
    };
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++)
        s->classes[c].due_ns = UINT64_MAX;
}

static void free_watch(struct sampler *s)
{
    free(s->rows);
    s->rows = NULL;
    s->row_count = 0;
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++) {
        free(s->classes[c].values);
        s->classes[c] = (struct sampler_class){.due_ns = UINT64_MAX};
    }
}

void sampler_deinit(struct sampler *s)
{
    free_watch(s);
    free(s->states);
    free(s->progress);
    s->states = NULL;
    s->progress = NULL;
    buf_deinit(&s->records);
    buf_deinit(&s->strings);
    buf_deinit(&s->frame);
}

// --- the watch ---

static unsigned class_of(const struct sampler_row *row)
{
    return row->recipe ? row->recipe->cost : FIELD_CLASS_MEDIUM;
}

static int compare_rows(const void *a, const void *b)
{
    const struct sampler_row *x = a, *y = b;
    if (class_of(x) != class_of(y))
        return class_of(x) < class_of(y) ? -1 : 1;
    if (!x->recipe || !y->recipe)
        return (x->recipe != NULL) - (y->recipe != NULL);
    if (x->recipe->getter != y->recipe->getter)
        return x->recipe->getter < y->recipe->getter ? -1 : 1;
    if (x->recipe->arg != y->recipe->arg)
        return x->recipe->arg < y->recipe->arg ? -1 : 1;
    return x->field < y->field ? -1 : x->field > y->field;
}

static uint16_t place_value(struct sampler_class *c, uint16_t id, uint32_t scope, uint8_t expect)
{
    for (uint32_t i = 0; i < c->value_count; i++)
        if (c->values[i].id == id && c->values[i].scope == scope)
            return (uint16_t)i;
    assert(c->value_count < NVML_FIELD_VALUES_MAX);
    c->values[c->value_count] = (struct sampler_value){.id = id, .scope = scope, .expect = expect};
    return (uint16_t)c->value_count++;
}

static void place_row(struct sampler_class *c, struct sampler_row *row)
{
    const struct nvml_recipe *r = row->recipe;
    row->value[0] = row->value[1] = SAMPLER_NO_VALUE;
    if (!r)
        return;
    if (r->getter == GETTER_FIELD_VALUE)
        row->value[0] = place_value(c, r->arg, nvml_field_value_scope(r->arg), r->pick);
    if (r->getter != GETTER_NVLINK_RATE)
        return;
    uint32_t scope = r->arg == NVML_ARG_ALL_LINKS ? NVML_NVLINK_ALL_LINKS : r->arg;
    if (r->pick & NVML_NVLINK_RX)
        row->value[0] = place_value(c, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, scope, EXPECT_U64);
    if (r->pick & NVML_NVLINK_TX)
        row->value[1] = place_value(c, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, scope, EXPECT_U64);
}

static int plan_class(struct sampler *s, unsigned class, uint32_t first)
{
    struct sampler_class *c = &s->classes[class];
    uint32_t values = 0;
    c->first = first;
    while (first + c->count < s->row_count && class_of(&s->rows[first + c->count]) == class) {
        const struct nvml_recipe *r = s->rows[first + c->count++].recipe;
        values += r && r->getter == GETTER_FIELD_VALUE   ? 1
                  : r && r->getter == GETTER_NVLINK_RATE ? 2
                                                         : 0;
    }
    c->values = values ? calloc(values, sizeof(*c->values)) : NULL;
    if (values && !c->values)
        return -ENOMEM;
    for (uint32_t i = 0; i < c->count; i++)
        place_row(c, &s->rows[first + i]);
    return 0;
}

int sampler_watch(struct sampler *s, const struct frame_watch *watch, const uint16_t *field_ids,
                  uint64_t now_ns)
{
    // A counters file has no more rows; each costs a cell an entity.
    uint32_t count = watch->count < LIMIT_COUNTERS ? watch->count : LIMIT_COUNTERS;
    free_watch(s);
    s->watch = *watch;
    s->rows = calloc(count ? count : 1, sizeof(*s->rows));
    if (!s->rows)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        if (field_ids[i] != FIELD_EXP_P2P) // no value of a GPU: nvml_peers.h
            s->rows[s->row_count++] = (struct sampler_row){.recipe = nvml_recipe_find(field_ids[i]),
                                                           .field = field_ids[i]};
    qsort(s->rows, s->row_count, sizeof(*s->rows), compare_rows);
    uint32_t first = 0;
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++) {
        if (plan_class(s, c, first) < 0)
            return -ENOMEM;
        first += s->classes[c].count;
    }
    return sampler_reset(s, now_ns);
}

// What needs no call to be known: numbers that NVML does not have.
static void preset_states(struct sampler *s, uint32_t entity)
{
    for (uint32_t r = 0; r < s->row_count; r++)
        if (!s->rows[r].recipe)
            sampler_state_at(s, entity, r)->now = FRAME_NEEDS_DCGM + 1;
}

int sampler_reset(struct sampler *s, uint64_t now_ns)
{
    uint32_t entities = s->devices->count;
    size_t cells = (size_t)entities * s->row_count;
    struct sampler_state *states = calloc(cells ? cells : 1, sizeof(*states));
    struct sampler_progress *progress = calloc(entities ? entities : 1, sizeof(*progress));
    if (!states || !progress) {
        free(states);
        free(progress);
        return -ENOMEM;
    }
    free(s->states);
    free(s->progress);
    s->states = states;
    s->progress = progress;
    s->state_entities = entities;
    s->unfinished = false;
    s->ripe_ns = UINT64_MAX;
    s->again_ns = now_ns + SAMPLER_AGAIN_NS;
    s->again_all_ns = now_ns + SAMPLER_AGAIN_ALL_NS;
    for (uint32_t i = 0; i < entities; i++)
        if (nvml_entity_is_gpu(&s->devices->list[i]))
            preset_states(s, i);
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++)
        s->classes[c].due_ns = s->classes[c].count ? now_ns : UINT64_MAX;
    return 0;
}

void sampler_resend(struct sampler *s)
{
    for (size_t i = 0; i < (size_t)s->state_entities * s->row_count; i++)
        s->states[i].sent = 0;
}

// --- the schedule ---

uint64_t sampler_due_ns(const struct sampler *s)
{
    return s->unfinished ? 0 : sampler_class_due_ns(s);
}

uint64_t sampler_class_due_ns(const struct sampler *s)
{
    uint64_t due = s->ripe_ns;
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++)
        if (s->classes[c].due_ns < due)
            due = s->classes[c].due_ns;
    return due;
}

// What is final becomes open: read with its class next time.
static void ask_again(struct sampler *s, bool all)
{
    for (size_t i = 0; i < (size_t)s->state_entities * s->row_count; i++) {
        struct sampler_state *state = &s->states[i];
        bool final = state->now && nvml_status_is_final((enum frame_status)(state->now - 1));
        if (final && s->rows[i % s->row_count].recipe && (all || state->was_ok))
            state->now = 0;
    }
    if (!all)
        return;
    nvml_field_values_init(s->field_values, s->system->driver_version);
    memset(s->n->gpm_refused, 0, sizeof(s->n->gpm_refused));
}

unsigned sampler_take_due(struct sampler *s, uint64_t now_ns)
{
    unsigned due = 0;
    if (now_ns >= s->again_ns) {
        bool all = now_ns >= s->again_all_ns;
        ask_again(s, all);
        s->again_ns = now_ns + SAMPLER_AGAIN_NS;
        if (all)
            s->again_all_ns = now_ns + SAMPLER_AGAIN_ALL_NS;
    }
    if (now_ns >= s->ripe_ns)
        due |= 1u << FIELD_CLASS_FAST;
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++) {
        struct sampler_class *class = &s->classes[c];
        if (now_ns < class->due_ns)
            continue;
        due |= 1u << c;
        class->due_ns = (now_ns / s->watch.period_ns[c] + 1) * s->watch.period_ns[c];
    }
    if (due & 1u << FIELD_CLASS_FAST)
        s->ripe_ns = UINT64_MAX;
    return due;
}
