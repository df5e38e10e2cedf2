// SPDX-License-Identifier: Apache-2.0
// The devices as a page shows them: two inventories, NVML's and DCGM's, joined. An engine.
//
// The primary inventory is the list of GPUs and instances, their states and their XID history:
// NVML's once it has listed a GPU, until then DCGM's where that has some. The other one adds
// values: a GPU of it is the primary's by UUID (else bus id), an instance by its GPU and GPU
// instance id, a compute instance by its instance and id; never by index. Switches, links, CPUs and
// cores are always DCGM's: here they are parts, named by their place in
// sources[DEVICE_SOURCE_DCGM], while entities are named by their place in primary. For each value
// NVML's is taken while it is there, else DCGM's: one page, one value per series.
#pragma once

#include "exporter/inventory.h"

enum device_source {
    DEVICE_SOURCE_NVML,
    DEVICE_SOURCE_DCGM,
    DEVICE_SOURCE_COUNT,
};

struct device_view {
    const struct inventory *primary;                      // never NULL
    const struct inventory *sources[DEVICE_SOURCE_COUNT]; // NULL: not in use
    uint64_t layout; // grows whenever anything a page's constant text is made from changes

    // Private
    uint32_t *twins; // per entity of primary: index in the other inventory, UINT32_MAX: none; owned
    size_t twin_count;
    const struct inventory *seen_primary; // NULL: not joined
    const struct inventory *seen_sources[DEVICE_SOURCE_COUNT];
    uint64_t seen_layouts[DEVICE_SOURCE_COUNT];
};

void device_view_init(struct device_view *v);
void device_view_deinit(struct device_view *v);
// Says which inventories there are (borrowed; NULL: none of that source) and joins them anew where
// a list changed: before each page, and before looking anything up. 0, -ENOMEM (then as before; but
// with other inventories than before none is joined).
int must_use device_view_refresh(struct device_view *v, const struct inventory *nvml,
                                 const struct inventory *dcgm);
// The same device in an inventory of the view; NULL: it has none such.
const struct inventory_entity *device_view_entity(const struct device_view *v, size_t entity,
                                                  enum device_source source);
// The other way: the place in primary of an entity of that source; SIZE_MAX: none such (of parts,
// unless DCGM is the primary).
size_t device_view_place(const struct device_view *v, enum device_source source, size_t entity);

// A field's place in each inventory, looked up once per layout.
struct device_slots {
    uint32_t at[DEVICE_SOURCE_COUNT]; // UINT32_MAX: not watched there
};
struct device_slots device_view_slots(const struct device_view *v, uint16_t field);

// Behind device_view_value.
const struct inventory_value *device_view_value_joined(const struct device_view *v, size_t entity,
                                                       struct device_slots slots,
                                                       uint64_t horizon_ns, uint64_t now_ns,
                                                       enum device_source *source);
// The value of entity (of primary; the one that has the field's value, see inventory_value_place)
// to show: NVML's while OK and current, else DCGM's, else the one that says best why there is none:
// DCGM's where NVML never has it (needs_dcgm, needs_gpm) or has nothing yet, NVML's for all others.
// Its status and age are still to be judged, as is whether entity is up. A device that is not up at
// DCGM has no value there; without a host engine that answers the status is FRAME_NOT_CONNECTED.
// NULL: watched nowhere. *source: whose it is. Lives until an inventory takes a frame.
static inline const struct inventory_value *
device_view_value(const struct device_view *v, size_t entity, struct device_slots slots,
                  uint64_t horizon_ns, uint64_t now_ns, enum device_source *source)
{
    uint32_t slot = slots.at[DEVICE_SOURCE_NVML];
    if (slot != UINT32_MAX && v->primary == v->sources[DEVICE_SOURCE_NVML]) {
        const struct inventory_value *value = &v->primary->entities[entity].values[slot];
        if (slots.at[DEVICE_SOURCE_DCGM] == UINT32_MAX ||
            (value->status == FRAME_OK &&
             inventory_is_current(value->taken_ns, now_ns, horizon_ns))) {
            *source = DEVICE_SOURCE_NVML;
            return value;
        }
    }
    return device_view_value_joined(v, entity, slots, horizon_ns, now_ns, source);
}
// The value of a part; as above, and always DCGM's. NULL: not watched.
static inline const struct inventory_value *
device_view_part_value(const struct device_view *v, size_t part, struct device_slots slots)
{
    uint32_t slot = slots.at[DEVICE_SOURCE_DCGM];
    return slot == UINT32_MAX ? NULL : &v->sources[DEVICE_SOURCE_DCGM]->entities[part].values[slot];
}

// inventory_find, inventory_find_label and inventory_field_status over both inventories: entity is
// of primary and is looked up at inventory_value_place. An XID code that either source has seen is
// evidence; the newest is shown (of one code that both have seen, NVML's), and a 0 of NVML only
// where there is none. Labels: NVML's, else DCGM's. *source (may be NULL): whose it is, written
// with a value only.
const struct inventory_value *device_view_find(const struct device_view *v, size_t entity,
                                               const struct field_info *field,
                                               const uint64_t *period_ns, uint64_t now_ns,
                                               enum device_source *source);
const struct inventory_value *device_view_label(const struct device_view *v, size_t entity,
                                                const struct field_info *field);
enum frame_status device_view_status(const struct device_view *v, size_t entity, uint16_t field);
// The label of a part: its own, else of a global field (driver version) what any device has.
const struct inventory_value *device_view_part_label(const struct device_view *v, size_t part,
                                                     const struct field_info *field);
