// SPDX-License-Identifier: Apache-2.0
// Between inventory.c (fields, values, XIDs), inventory_entities.c (lists of devices),
// inventory_tables.c (health and peers) and inventory_find.c (lookups).
#pragma once

#include "exporter/inventory.h"

#define INVENTORY_NONE UINT32_MAX

// Applies a checked ENTITIES frame. 0, -ENOMEM (nothing changed).
int must_use inventory_apply_entities(struct inventory *inv, const struct frame *frame);
// Works out up and down_reason of every entity again; layout grows if any differs.
void inventory_refresh(struct inventory *inv);

// Take a HEALTH or PEERS frame of this list. 0, -ENOMEM (nothing changed).
int must_use inventory_apply_health(struct inventory *inv, const struct frame *frame);
int must_use inventory_apply_peers(struct inventory *inv, const struct frame *frame);
// Health and peers are not known any more.
void inventory_tables_clear(struct inventory *inv);

// A value that nothing is known of yet.
#define INVENTORY_VALUE_UNKNOWN                                                                    \
    ((struct inventory_value){.status = FRAME_NO_DATA, .type = FRAME_VALUE_NONE})
// count of them on the heap, or NULL; never NULL for a count of 0.
struct inventory_value *inventory_values_new(size_t count);
// The newest XID code that concerns the entity: its own, its board's, for a board those of its
// instances; NULL: none is known.
const struct inventory_value *inventory_last_xid_find(const struct inventory *inv,
                                                      const struct inventory_entity *entity);
// Frees what the entity owns.
void inventory_entity_deinit(struct inventory *inv, struct inventory_entity *e);
// Clears all but labels: the device gives no readings any more.
void inventory_entity_clear_readings(struct inventory *inv, struct inventory_entity *e);
