// SPDX-License-Identifier: Apache-2.0
// The devices as a page shows them: two inventories, NVML's and DCGM's, joined. An engine.
//
// The primary inventory is the list of GPUs and instances, their states and their XID history:
// NVML's once it has listed a GPU, until then DCGM's where that has some. The other one adds
// values: a GPU of it is the primary's by UUID (else bus id), an instance by its GPU and GPU
// instance id; never by index. Switches, links, CPUs and cores are always DCGM's. For each value
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
    uint64_t seen[DEVICE_SOURCE_COUNT];
    const struct inventory *seen_primary;
};

void device_view_init(struct device_view *v);
void device_view_deinit(struct device_view *v);
// Says which inventories there are (borrowed; NULL: none of that source) and joins them anew where
// a list changed: before each page, and before looking anything up. 0, -ENOMEM (then as before).
int must_use device_view_refresh(struct device_view *v, const struct inventory *nvml,
                                 const struct inventory *dcgm);
// The same device in an inventory of the view; NULL: it has none such.
const struct inventory_entity *device_view_entity(const struct device_view *v, size_t entity,
                                                  enum device_source source);

// A field's place in each inventory, looked up once per layout.
struct device_slots {
    uint32_t at[DEVICE_SOURCE_COUNT]; // UINT32_MAX: not watched there
};
struct device_slots device_view_slots(const struct device_view *v, uint16_t field);
// The value of entity (of primary) to show: NVML's while OK and current, else DCGM's, else the one
// that says best why there is none (DCGM's where NVML never has it). NULL: watched nowhere.
// *source: whose it is.
const struct inventory_value *device_view_value(const struct device_view *v, size_t entity,
                                                struct device_slots slots, uint64_t horizon_ns,
                                                uint64_t now_ns, enum device_source *source);
