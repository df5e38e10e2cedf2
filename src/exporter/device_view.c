// SPDX-License-Identifier: Apache-2.0
// How it works: for each entity of the primary inventory, twins has the place of the same device in
// the other one. It is made anew when the layout of an inventory has grown, which every change of a
// list makes it do, so a place is never of an older list. Sizes are those of a node: a few dozen
// devices against a few dozen, compared one by one.
#include "exporter/device_view.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

#define NONE UINT32_MAX

static const struct inventory nothing; // of no source
// Says why a device has no value at DCGM where its own values cannot.
static const struct inventory_value not_connected = {.status = FRAME_NOT_CONNECTED};
static const struct inventory_value lost = {.status = FRAME_LOST};
static const struct inventory_value no_data = {.status = FRAME_NO_DATA};

void device_view_init(struct device_view *v)
{
    *v = (struct device_view){.primary = &nothing};
}

void device_view_deinit(struct device_view *v)
{
    free(v->twins);
    device_view_init(v);
}

// --- Joining ---

static bool has_gpu(const struct inventory *inv)
{
    return inv && inv->entity_count > 0 && inv->entities[0].info.kind == FRAME_ENTITY_GPU;
}

static const struct inventory *choose_primary(const struct inventory *nvml,
                                              const struct inventory *dcgm)
{
    if (has_gpu(nvml))
        return nvml;
    if (has_gpu(dcgm))
        return dcgm;
    return nvml ? nvml : dcgm ? dcgm : &nothing;
}

static const struct inventory *other_of(const struct device_view *v)
{
    bool nvml = v->primary == v->sources[DEVICE_SOURCE_NVML];
    return v->sources[nvml ? DEVICE_SOURCE_DCGM : DEVICE_SOURCE_NVML];
}

// Bus ids have a domain of four or eight digits.
static const char *significant(const char *bus_id)
{
    while (*bus_id == '0')
        bus_id++;
    return bus_id;
}

static bool same_uuid(const struct frame_entity *a, const struct frame_entity *b)
{
    return a->uuid[0] && strcmp(a->uuid, b->uuid) == 0;
}

static bool same_bus_id(const struct frame_entity *a, const struct frame_entity *b)
{
    bool uuids = a->uuid[0] && b->uuid[0]; // both known: they decide
    return !uuids && a->bus_id[0] && b->bus_id[0] &&
           strcasecmp(significant(a->bus_id), significant(b->bus_id)) == 0;
}

// A GPU that a source has lost may share its bus id with the one that took its place, so those that
// are there are looked at first.
static uint32_t find_gpu(const struct inventory *inv, const struct frame_entity *gpu,
                         bool (*same)(const struct frame_entity *, const struct frame_entity *))
{
    for (int present = 1; present >= 0; present--) {
        for (size_t i = 0; i < inv->entity_count; i++) {
            const struct inventory_entity *e = &inv->entities[i];
            if (e->info.kind == FRAME_ENTITY_GPU && e->present == (bool)present &&
                same(gpu, &e->info))
                return (uint32_t)i;
        }
    }
    return NONE;
}

static bool is_taken(const uint32_t *twins, size_t count, uint32_t place)
{
    for (size_t i = 0; i < count; i++)
        if (twins[i] == place)
            return true;
    return false;
}

// An instance or compute instance below a parent's twin.
static uint32_t find_below(const struct inventory *inv, const struct frame_entity *child,
                           uint32_t parent)
{
    if (parent == NONE)
        return NONE;
    for (size_t i = parent + 1; i < inv->entity_count; i++) {
        const struct frame_entity *e = &inv->entities[i].info;
        if (!inventory_is_of_gpu(&inv->entities[i]) || e->kind == FRAME_ENTITY_GPU)
            break;
        if (e->kind == child->kind && e->parent == parent &&
            e->gpu_instance_id == child->gpu_instance_id && e->id == child->id)
            return (uint32_t)i;
    }
    return NONE;
}

// UUIDs of all GPUs first, so that one without a UUID never takes the place of one that has it.
static void join(const struct inventory *primary, const struct inventory *other, uint32_t *twins)
{
    size_t count = primary->entity_count;
    for (size_t i = 0; i < count; i++) {
        const struct frame_entity *e = &primary->entities[i].info;
        twins[i] = e->kind == FRAME_ENTITY_GPU ? find_gpu(other, e, same_uuid) : NONE;
    }
    for (size_t i = 0; i < count; i++) {
        const struct frame_entity *e = &primary->entities[i].info;
        if (e->kind != FRAME_ENTITY_GPU || twins[i] != NONE)
            continue;
        uint32_t place = find_gpu(other, e, same_bus_id);
        if (place != NONE && !is_taken(twins, count, place))
            twins[i] = place;
    }
    for (size_t i = 0; i < count; i++) {
        const struct frame_entity *e = &primary->entities[i].info;
        if (e->kind == FRAME_ENTITY_GPU_I || e->kind == FRAME_ENTITY_GPU_CI)
            twins[i] = find_below(other, e, twins[e->parent]);
    }
}

static uint64_t layout_of(const struct inventory *inv)
{
    return inv ? inv->layout : 0;
}

static bool is_as_seen(const struct device_view *v, const struct inventory *primary,
                       const struct inventory *const *sources)
{
    bool same = v->seen_primary == primary;
    for (size_t s = 0; s < DEVICE_SOURCE_COUNT && same; s++)
        same = v->seen_sources[s] == sources[s] && v->seen_layouts[s] == layout_of(sources[s]);
    return same;
}

int device_view_refresh(struct device_view *v, const struct inventory *nvml,
                        const struct inventory *dcgm)
{
    const struct inventory *sources[DEVICE_SOURCE_COUNT] = {nvml, dcgm};
    const struct inventory *primary = choose_primary(nvml, dcgm);
    if (is_as_seen(v, primary, sources))
        return 0;
    v->primary = primary;
    memcpy(v->sources, sources, sizeof(sources));
    const struct inventory *other = other_of(v);
    uint32_t *twins = NULL;
    if (other && primary->entity_count > 0) {
        twins = calloc(primary->entity_count, sizeof(*twins));
        if (twins)
            join(primary, other, twins);
    }
    bool failed = other && primary->entity_count > 0 && !twins;
    free(v->twins);
    v->twins = twins;
    v->twin_count = twins ? primary->entity_count : 0;
    v->seen_primary = failed ? NULL : primary;
    memcpy(v->seen_sources, sources, sizeof(sources));
    for (size_t s = 0; s < DEVICE_SOURCE_COUNT; s++)
        v->seen_layouts[s] = layout_of(sources[s]);
    v->layout++;
    return failed ? -ENOMEM : 0;
}

const struct inventory_entity *device_view_entity(const struct device_view *v, size_t entity,
                                                  enum device_source source)
{
    const struct inventory *inv = v->sources[source];
    if (!inv || entity >= v->primary->entity_count)
        return NULL;
    if (inv == v->primary)
        return &inv->entities[entity];
    uint32_t twin = entity < v->twin_count ? v->twins[entity] : NONE;
    return twin < inv->entity_count ? &inv->entities[twin] : NULL;
}

size_t device_view_place(const struct device_view *v, enum device_source source, size_t entity)
{
    if (!v->sources[source])
        return SIZE_MAX;
    if (v->sources[source] == v->primary)
        return entity < v->primary->entity_count ? entity : SIZE_MAX;
    for (size_t i = 0; i < v->twin_count; i++)
        if (v->twins[i] == entity && entity != NONE)
            return i;
    return SIZE_MAX;
}

// --- Values ---

struct device_slots device_view_slots(const struct device_view *v, uint16_t field)
{
    struct device_slots slots;
    for (size_t s = 0; s < DEVICE_SOURCE_COUNT; s++) {
        size_t at = v->sources[s] ? inventory_field_index(v->sources[s], field) : SIZE_MAX;
        slots.at[s] = at == SIZE_MAX ? NONE : (uint32_t)at;
    }
    return slots;
}

// DCGM's value of an entity of primary, or what says why it has none; NULL: it is none of DCGM's
// devices, or the field is not watched there.
static const struct inventory_value *dcgm_value(const struct device_view *v, size_t entity,
                                                uint32_t slot)
{
    const struct inventory *dcgm = v->sources[DEVICE_SOURCE_DCGM];
    if (!dcgm || slot == NONE)
        return NULL;
    if (dcgm == v->primary)
        return &dcgm->entities[entity].values[slot];
    if (!inventory_is_connected(dcgm))
        return &not_connected;
    const struct inventory_entity *e = device_view_entity(v, entity, DEVICE_SOURCE_DCGM);
    if (!e)
        return NULL;
    const struct inventory_value *value = &e->values[slot];
    if (e->up || value->status != FRAME_OK)
        return value;
    return e->info.state == FRAME_ENTITY_LOST ? &lost : &no_data;
}

static const struct inventory_value *nvml_value(const struct device_view *v, size_t entity,
                                                uint32_t slot)
{
    const struct inventory_entity *e = device_view_entity(v, entity, DEVICE_SOURCE_NVML);
    return e && slot != NONE ? &e->values[slot] : NULL;
}

static bool is_shown(const struct inventory_value *value, uint64_t horizon_ns, uint64_t now_ns)
{
    return value && value->status == FRAME_OK &&
           inventory_is_current(value->taken_ns, now_ns, horizon_ns);
}

// Whether DCGM is the one to say why there is no value.
static bool is_for_dcgm(enum frame_status nvml)
{
    return nvml == FRAME_NEEDS_DCGM || nvml == FRAME_NEEDS_GPM || nvml == FRAME_NO_DATA;
}

const struct inventory_value *device_view_value_joined(const struct device_view *v, size_t entity,
                                                       struct device_slots slots,
                                                       uint64_t horizon_ns, uint64_t now_ns,
                                                       enum device_source *source)
{
    const struct inventory_value *nvml = nvml_value(v, entity, slots.at[DEVICE_SOURCE_NVML]);
    const struct inventory_value *dcgm = dcgm_value(v, entity, slots.at[DEVICE_SOURCE_DCGM]);
    if (!nvml && !dcgm)
        return NULL;
    bool take_dcgm =
        !nvml ||
        (dcgm && !is_shown(nvml, horizon_ns, now_ns) &&
         (is_shown(dcgm, horizon_ns, now_ns) || is_for_dcgm((enum frame_status)nvml->status)));
    *source = take_dcgm ? DEVICE_SOURCE_DCGM : DEVICE_SOURCE_NVML;
    return take_dcgm ? dcgm : nvml;
}

// --- Lookups by field ---

// The newest XID code that a source has seen, or NULL.
static const struct inventory_value *xid_evidence(const struct device_view *v, size_t entity,
                                                  const uint64_t *period_ns, uint64_t now_ns,
                                                  enum device_source *source)
{
    const struct inventory_value *newest = NULL;
    for (unsigned s = 0; s < DEVICE_SOURCE_COUNT; s++) {
        const struct inventory_entity *e = device_view_entity(v, entity, (enum device_source)s);
        const struct inventory_value *value =
            e ? inventory_find(v->sources[s], e, field_find(FIELD_XID_ERRORS), period_ns, now_ns)
              : NULL;
        if (!value || value->type != FRAME_VALUE_I64 || value->value.i64 == 0)
            continue; // it listens and has heard of none
        if (newest &&
            (newest->taken_ns >= value->taken_ns || newest->value.i64 == value->value.i64))
            continue; // older, or NVML has told of it
        newest = value;
        *source = (enum device_source)s;
    }
    return newest;
}

const struct inventory_value *device_view_find(const struct device_view *v, size_t entity,
                                               const struct field_info *field,
                                               const uint64_t *period_ns, uint64_t now_ns,
                                               enum device_source *source)
{
    enum device_source whose = DEVICE_SOURCE_NVML;
    const struct inventory_value *value = NULL;
    if (field->id == FIELD_XID_ERRORS)
        value = xid_evidence(v, entity, period_ns, now_ns, &whose);
    if (!value && v->primary->entities[entity].up) {
        size_t place = inventory_value_place(v->primary, entity, field);
        uint64_t horizon_ns = inventory_horizon_ns(period_ns[field->cost]);
        value = device_view_value(v, place, device_view_slots(v, field->id), horizon_ns, now_ns,
                                  &whose);
        if (!is_shown(value, horizon_ns, now_ns))
            return NULL;
    }
    if (value && source)
        *source = whose;
    return value;
}

// What an inventory knows of a global field, from any of its devices.
static const struct inventory_value *global_label(const struct inventory *inv,
                                                  const struct field_info *field)
{
    if (!inv || field->level != FIELD_LEVEL_NONE || inv->entity_count == 0)
        return NULL;
    return inventory_find_label(inv, &inv->entities[0], field);
}

const struct inventory_value *device_view_label(const struct device_view *v, size_t entity,
                                                const struct field_info *field)
{
    const struct inventory_value *value = NULL;
    for (unsigned s = 0; s < DEVICE_SOURCE_COUNT && !value; s++) {
        const struct inventory_entity *e = device_view_entity(v, entity, (enum device_source)s);
        value =
            e ? inventory_find_label(v->sources[s], e, field) : global_label(v->sources[s], field);
    }
    return value;
}

const struct inventory_value *device_view_part_label(const struct device_view *v, size_t part,
                                                     const struct field_info *field)
{
    const struct inventory *dcgm = v->sources[DEVICE_SOURCE_DCGM];
    const struct inventory_value *value = inventory_find_label(dcgm, &dcgm->entities[part], field);
    return value ? value : global_label(v->sources[DEVICE_SOURCE_NVML], field);
}

enum frame_status device_view_status(const struct device_view *v, size_t entity, uint16_t field)
{
    const struct field_info *info = field_find(field);
    size_t place = info ? inventory_value_place(v->primary, entity, info) : entity;
    struct device_slots slots = device_view_slots(v, field);
    if (v->primary->entities[entity].info.state == FRAME_ENTITY_LOST)
        return slots.at[DEVICE_SOURCE_NVML] == NONE && slots.at[DEVICE_SOURCE_DCGM] == NONE
                   ? FRAME_NO_DATA
                   : FRAME_LOST;
    enum device_source source;
    // Of any age: a value that was read once can be had.
    const struct inventory_value *value =
        device_view_value(v, place, slots, UINT64_MAX, UINT64_MAX, &source);
    return value ? (enum frame_status)value->status : FRAME_NO_DATA;
}
