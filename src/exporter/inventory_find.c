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

// The entity that has a field's value for this one.
static const struct inventory_entity *value_entity(const struct inventory *inv,
                                                   const struct inventory_entity *entity,
                                                   const struct field_info *field)
{
    bool own = field->level == FIELD_LEVEL_GPU_I || field->level == FIELD_LEVEL_GPU_CI;
    return own ? entity : &inv->entities[entity->info.parent];
}

const struct inventory_value *inventory_last_xid_find(const struct inventory *inv,
                                                      const struct inventory_entity *entity)
{
    const struct inventory_entity *gpu = &inv->entities[entity->info.parent];
    const struct inventory_entity *newest = NULL;
    for (const struct inventory_entity *e = gpu; e < inv->entities + inv->entity_count; e++) {
        if (e->info.parent != gpu->info.parent)
            break;
        bool concerns = e == entity || e == gpu || entity == gpu;
        if (!concerns || e->last_xid < 0)
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
    const struct inventory_value *v = &value_entity(inv, entity, field)->values[index];
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
    const struct field_info *info = inv->infos[index];
    const struct inventory_entity *e = info ? value_entity(inv, entity, info) : entity;
    return (enum frame_status)e->values[index].status;
}

const struct inventory_value *inventory_find_label(const struct inventory *inv,
                                                   const struct inventory_entity *entity,
                                                   const struct field_info *field)
{
    size_t index = inventory_field_index(inv, field->id);
    if (index == SIZE_MAX)
        return NULL;
    const struct inventory_value *v = &value_entity(inv, entity, field)->values[index];
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
