// SPDX-License-Identifier: Apache-2.0
// Lookups: what a page may show of the inventory at a time.
#include "exporter/inventory_internal.h"

#include "base/clock.h"

#define STALE_LEAST_NS (15 * NS_PER_S)

// --- Age ---

uint64_t inventory_horizon_ns(uint64_t period_ns)
{
    uint64_t three = period_ns > UINT64_MAX / 3 ? UINT64_MAX : 3 * period_ns;
    return three > STALE_LEAST_NS ? three : STALE_LEAST_NS;
}

void inventory_expire(struct inventory *inv, const uint64_t *period_ns, uint64_t now_ns)
{
    if (inv->news) {
        inv->news = false;
        inv->news_ns = now_ns;
    }
    uint64_t horizon_ns = inventory_horizon_ns(period_ns[FIELD_CLASS_FAST]);
    bool stale = !inventory_is_current(inv->news_ns, now_ns, horizon_ns);
    for (unsigned c = 0; c < FIELD_CLASS_COUNT && stale; c++)
        stale = !inventory_is_current(inv->last_sample_ns[c], now_ns, horizon_ns);
    if (stale == inv->stale)
        return;
    inv->stale = stale;
    inventory_refresh(inv);
}

// --- Lookups ---

bool inventory_is_connected(const struct inventory *inv)
{
    return !inv->disconnected && inv->state_known && inv->state.code == FRAME_STATE_READY;
}

size_t inventory_field_index(const struct inventory *inv, uint16_t field)
{
    size_t low = 0, high = inv->field_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (inv->fields[middle] < field)
            low = middle + 1;
        else
            high = middle;
    }
    return low < inv->field_count && inv->fields[low] == field ? low : SIZE_MAX;
}

size_t inventory_value_place(const struct inventory *inv, size_t entity,
                             const struct field_info *field)
{
    const struct frame_entity *e = &inv->entities[entity].info;
    bool instances = field->level == FIELD_LEVEL_GPU_I;
    bool all = field->level == FIELD_LEVEL_GPU_CI;
    if (e->kind == FRAME_ENTITY_GPU_CI)
        return all ? entity : instances ? e->parent : inv->entities[e->parent].info.parent;
    return e->kind == FRAME_ENTITY_GPU_I && !instances && !all ? e->parent : entity;
}

static const struct inventory_value *value_of(const struct inventory *inv,
                                              const struct inventory_entity *entity, size_t index)
{
    size_t place = (size_t)(entity - inv->entities);
    const struct field_info *info = inv->infos[index];
    return &inv->entities[info ? inventory_value_place(inv, place, info) : place].values[index];
}

// Whether one is the other, or a part of it.
static bool is_within(const struct inventory *inv, size_t part, size_t whole)
{
    while (part != whole && inv->entities[part].info.parent != part)
        part = inv->entities[part].info.parent;
    return part == whole;
}

const struct inventory_value *inventory_last_xid_find(const struct inventory *inv,
                                                      const struct inventory_entity *entity)
{
    if (!inventory_is_of_gpu(entity))
        return NULL;
    size_t place = (size_t)(entity - inv->entities), gpu = inventory_top(inv, place);
    const struct inventory_entity *newest = NULL;
    for (size_t i = gpu; i < inv->entity_count; i++) {
        const struct inventory_entity *e = &inv->entities[i];
        if (i > gpu && (!inventory_is_of_gpu(e) || e->info.kind == FRAME_ENTITY_GPU))
            break;
        if (e->last_xid < 0 || !(is_within(inv, i, place) || is_within(inv, place, i)))
            continue;
        if (!newest || e->last_xid_value.taken_ns > newest->last_xid_value.taken_ns)
            newest = e;
    }
    return newest ? &newest->last_xid_value : NULL;
}

const struct inventory_value *inventory_find(const struct inventory *inv,
                                             const struct inventory_entity *entity,
                                             const struct field_info *field,
                                             const uint64_t *period_ns, uint64_t now_ns)
{
    if (field->id == FIELD_XID_ERRORS) {
        const struct inventory_value *xid = inventory_last_xid_find(inv, entity);
        if (xid)
            return xid;
    }
    size_t index = inventory_field_index(inv, field->id);
    if (!entity->up || index == SIZE_MAX)
        return NULL;
    const struct inventory_value *v = value_of(inv, entity, index);
    uint64_t horizon_ns = inventory_horizon_ns(period_ns[field->cost]);
    bool shown = v->status == FRAME_OK && inventory_is_current(v->taken_ns, now_ns, horizon_ns);
    return shown ? v : NULL;
}

enum frame_status inventory_field_status(const struct inventory *inv,
                                         const struct inventory_entity *entity, uint16_t field)
{
    size_t index = inventory_field_index(inv, field);
    if (index == SIZE_MAX)
        return FRAME_NO_DATA;
    if (entity->info.state == FRAME_ENTITY_LOST)
        return FRAME_LOST;
    return (enum frame_status)value_of(inv, entity, index)->status;
}

const struct inventory_value *inventory_find_label(const struct inventory *inv,
                                                   const struct inventory_entity *entity,
                                                   const struct field_info *field)
{
    size_t index = inventory_field_index(inv, field->id);
    if (index == SIZE_MAX)
        return NULL;
    const struct inventory_value *v = value_of(inv, entity, index);
    if (v->type != FRAME_VALUE_NONE)
        return v;
    // A global field is the same everywhere: a GPU that was lost before it was asked has the
    // others' driver version.
    for (size_t i = 0; field->level == FIELD_LEVEL_NONE && i < inv->entity_count; i++) {
        v = &inv->entities[i].values[index];
        if (v->type != FRAME_VALUE_NONE)
            return v;
    }
    return NULL;
}
