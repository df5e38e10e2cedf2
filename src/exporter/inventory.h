// SPDX-License-Identifier: Apache-2.0
// What is known of the devices now: entities, the last value of each watched field, XID history, why a value is
// missing. An engine: frames and times come in as arguments.
#pragma once

#include "exporter/config.h"
#include "gpu/frame.h"

struct inventory_value {
    uint64_t taken_ns; // 0: never
    uint8_t status; // enum frame_status
    uint8_t type; // enum frame_value_type
    union {
        int64_t i64;
        double f64;
        char *string; // owned
    } value;
};

struct inventory_xid {
    uint32_t code;
    uint64_t count;
    uint64_t last_wall_ns;
    uint64_t last_ns;
};

struct inventory_entity {
    struct frame_entity info;
    bool present; // in the last ENTITIES; a lost GPU stays with present and state LOST
    bool up;
    const char *down_reason; // static; "" while up
    struct inventory_value *values; // one per watched field, same order as inventory.fields
    struct inventory_xid *xids; // ascending by code
    size_t xid_count;
    int64_t last_xid; // -1: none seen since start
};

struct inventory {
    struct inventory_entity *entities; // GPU order, each GPU followed by its instances
    size_t entity_count;
    uint16_t *fields; // ascending
    size_t field_count;
    uint32_t watch_id;
    uint32_t generation;
    struct frame_state state;
    uint64_t layout; // grows whenever entities, their identity, state or label strings change
    uint64_t last_sample_ns[FIELD_CLASS_COUNT];
    uint64_t last_duration_ns;
    uint64_t samples;
};

void inventory_init(struct inventory *inv);
void inventory_deinit(struct inventory *inv);
// Takes the fields to keep (ascending, each once); values of fields kept over a reload survive. 0, -ENOMEM.
int must_use inventory_set_fields(struct inventory *inv, const uint16_t *fields, size_t count, uint32_t watch_id);
// 0, -ENOMEM. Frames of another watch or generation are ignored.
int must_use inventory_apply(struct inventory *inv, const struct frame *frame);
// The helper is gone: nothing is up (or one GPU, index; UINT32_MAX all) with this reason.
void inventory_mark_down(struct inventory *inv, uint32_t index, const char *reason);
// Why a field has no value for an entity (FRAME_OK: it has one, however old; FRAME_NO_DATA: not asked yet). Fields above
// GPU-instance level are looked up at the parent.
enum frame_status inventory_field_status(const struct inventory *inv, const struct inventory_entity *entity,
                                         uint16_t field);

// The value of a field for an entity, as a page at now_ns may show it: NULL when unknown, not OK, or older than
// max(3 x period, 15 s). Fields above GPU-instance level are looked up at the parent.
const struct inventory_value *inventory_find(const struct inventory *inv, const struct inventory_entity *entity,
                                             const struct field_info *field, const uint64_t *period_ns,
                                             uint64_t now_ns);
