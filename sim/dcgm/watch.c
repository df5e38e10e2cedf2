// SPDX-License-Identifier: Apache-2.0
// What the engine samples, and when: each (entity, field) that somebody watches, once a period. An
// automatic engine's samples are counted when somebody looks; none before the period has passed or
// dcgmUpdateAllFields was called.
#include "double.h"

#include <stdlib.h>
#include <string.h>

static uint32_t hash(int entity, unsigned int id, uint16_t field)
{
    uint64_t h = (uint64_t)(unsigned)entity << 48 | (uint64_t)id << 16 | field;
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(h >> 32);
}

static struct cell *slot_of(struct cell *cells, uint32_t room, int entity, unsigned int id,
                            uint16_t field)
{
    uint32_t at = hash(entity, id, field) & (room - 1);
    while (cells[at].used &&
           (cells[at].entity != entity || cells[at].id != id || cells[at].field != field))
        at = (at + 1) & (room - 1);
    return &cells[at];
}

struct cell *cell_find(struct connection *at, int entity, unsigned int id, uint16_t field)
{
    if (at->cell_room == 0)
        return NULL;
    struct cell *cell = slot_of(at->cells, at->cell_room, entity, id, field);
    return cell->used && cell->watches > 0 ? cell : NULL;
}

static int grow(struct connection *at)
{
    uint32_t room = at->cell_room ? at->cell_room * 2 : 256;
    struct cell *cells = calloc(room, sizeof(*cells));
    if (!cells)
        return ST_MEMORY;
    for (uint32_t i = 0; i < at->cell_room; i++) {
        const struct cell *old = &at->cells[i];
        if (old->used)
            *slot_of(cells, room, old->entity, old->id, old->field) = *old;
    }
    free(at->cells);
    at->cells = cells;
    at->cell_room = room;
    return ST_OK;
}

void cell_advance(const struct connection *at, struct cell *cell, uint64_t now_ns)
{
    if (at->manual)
        return;
    uint64_t from = cell->samples ? cell->last_ns : cell->start_ns;
    if (now_ns < from + cell->period_ns)
        return;
    uint64_t more = (now_ns - from) / cell->period_ns;
    uint64_t last = from + more * cell->period_ns;
    cell->before_ns = more > 1 ? last - cell->period_ns : cell->last_ns;
    cell->last_ns = last;
    cell->samples += more;
}

struct wish {
    uint64_t period_ns;
    bool again; // the same watch with other numbers
};

static int add_cell(struct call *c, dcgmGroupEntityPair_t e, uint16_t field, const struct wish *w)
{
    struct connection *at = c->at;
    if ((at->cell_count + 1) * 2 > at->cell_room && grow(at) != ST_OK)
        return ST_MEMORY;
    struct cell *cell = slot_of(at->cells, at->cell_room, e.entityGroupId, e.entityId, field);
    if (cell->used && cell->watches > 0) {
        cell_advance(at, cell, c->now_ns);
        if (w->again || w->period_ns < cell->period_ns)
            cell->period_ns = w->period_ns;
        cell->watches += w->again ? 0 : 1;
        return ST_OK;
    }
    at->cell_count += cell->used ? 0 : 1;
    *cell = (struct cell){.entity = e.entityGroupId,
                          .id = e.entityId,
                          .field = field,
                          .used = true,
                          .watches = 1,
                          .period_ns = w->period_ns,
                          .start_ns = c->now_ns};
    return ST_OK;
}

static struct watch *watch_find(struct connection *at, dcgmGpuGrp_t group, dcgmFieldGrp_t fields)
{
    for (uint32_t i = 0; i < at->watch_count; i++) {
        if (at->watches[i].group == group && at->watches[i].fields == fields)
            return &at->watches[i];
    }
    return NULL;
}

static void watch_end(struct connection *at, struct watch *w)
{
    struct field_group *f = field_group_find(at, w->fields);
    for (uint32_t i = 0; f && i < w->count; i++) {
        for (uint32_t k = 0; k < f->count; k++) {
            struct cell *cell =
                cell_find(at, w->list[i].entityGroupId, w->list[i].entityId, f->fields[k]);
            if (cell)
                cell->watches--;
        }
    }
    free(w->list);
    *w = at->watches[--at->watch_count];
}

void watches_drop(struct connection *at, dcgmGpuGrp_t group, dcgmFieldGrp_t fields)
{
    for (uint32_t i = at->watch_count; i-- > 0;) {
        if ((group && at->watches[i].group == group) || (fields && at->watches[i].fields == fields))
            watch_end(at, &at->watches[i]);
    }
}

void watches_free(struct connection *at)
{
    for (uint32_t i = 0; i < at->watch_count; i++)
        free(at->watches[i].list);
    free(at->watches);
    free(at->cells);
}

static struct watch *watch_add(struct connection *at, const struct group *g,
                               const struct field_group *f)
{
    if (at->watch_count == at->watch_room) {
        uint32_t room = at->watch_room ? at->watch_room * 2 : 16;
        struct watch *list = realloc(at->watches, room * sizeof(*list));
        if (!list)
            return NULL;
        at->watches = list;
        at->watch_room = room;
    }
    dcgmGroupEntityPair_t *list = malloc(g->count * sizeof(*list));
    if (!list)
        return NULL;
    memcpy(list, g->list, g->count * sizeof(*list));
    struct watch *w = &at->watches[at->watch_count++];
    *w = (struct watch){g->id, f->id, list, g->count};
    return w;
}

// Each GPU of the group must be able to measure the field.
static dcgmReturn_t check_measured(const struct call *c, const struct group *g, uint16_t field)
{
    for (uint32_t i = 0; i < g->count; i++) {
        struct target at;
        if (target_find(c->node, g->list[i].entityGroupId, g->list[i].entityId, c->t, &at) == 0 &&
            at.gpu != SIM_NONE && !profiling_measures(&c->node->gpus[at.gpu], field))
            return ST_PROFILING_NOT_SUPPORTED;
    }
    return ST_OK;
}

// What keeps profiling away, for a field group that has some.
static dcgmReturn_t check_profiling(const struct call *c, const struct group *g,
                                    const struct field_group *f)
{
    dcgmReturn_t code = ST_OK;
    for (uint32_t i = 0; i < f->count && code == ST_OK; i++) {
        if (!field_is_profiling(f->fields[i]))
            continue;
        code = (dcgmReturn_t)sim_truth_or_zero(c->node, SIM_NODE, SIM_DCGM_PROFILING, c->t);
        if (code == ST_OK)
            code = check_measured(c, g, f->fields[i]);
    }
    return code;
}

API(dcgmWatchFields, dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields,
    long long update_us, double keep_s, int keep_samples)
{
    CALL_AT(handle);
    NEED(update_us > 0 && keep_s >= 0 && keep_samples >= 0);
    struct group *g = group_find(c.at, group);
    struct field_group *f = field_group_find(c.at, fields);
    if (!g || !f)
        return g ? ST_NO_DATA : ST_NOT_CONFIGURED;
    if (g->count == 0)
        return ST_GROUP_IS_EMPTY;
    dcgmReturn_t code = check_profiling(&c, g, f);
    if (code != ST_OK)
        return code;
    struct watch *w = watch_find(c.at, group, fields);
    struct wish wish = {(uint64_t)update_us * 1000u, w != NULL};
    if (!w)
        w = watch_add(c.at, g, f);
    if (!w)
        return ST_MEMORY;
    for (uint32_t i = 0; i < w->count; i++) {
        for (uint32_t k = 0; k < f->count && code == ST_OK; k++)
            code = add_cell(&c, w->list[i], f->fields[k], &wish);
    }
    return code;
}

API(dcgmUnwatchFields, dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields)
{
    CALL_AT(handle);
    if (!group_find(c.at, group) || !field_group_find(c.at, fields))
        return group_find(c.at, group) ? ST_NO_DATA : ST_NOT_CONFIGURED;
    struct watch *w = watch_find(c.at, group, fields);
    if (!w)
        return ST_NOT_WATCHED;
    watch_end(c.at, w);
    return ST_OK;
}

// Samples what is due: what was never sampled, and what waits for its next period.
API(dcgmUpdateAllFields, dcgmHandle_t handle, int wait)
{
    CALL_AT(handle);
    for (uint32_t i = 0; i < c.at->cell_room; i++) {
        struct cell *cell = &c.at->cells[i];
        if (!cell->used || cell->watches == 0)
            continue;
        cell_advance(c.at, cell, c.now_ns);
        if (cell->samples > 0 && c.now_ns < cell->last_ns + cell->period_ns)
            continue;
        cell->before_ns = cell->last_ns;
        cell->last_ns = c.now_ns;
        cell->samples++;
    }
    return ST_OK;
}
