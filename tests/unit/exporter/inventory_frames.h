// SPDX-License-Identifier: Apache-2.0
// Frames for inventories, and looks at what they made of them. Include from one file of a test.
#pragma once

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "exporter/inventory.h"

#define DRIVER 1  // string, global
#define SERIAL 53 // string, GPU
#define TEMP 150  // i64, GPU
#define POWER 155 // double, GPU
#define XID 230
#define FB_USED 252 // i64, down to the compute instance
#define T0 (10000 * NS_PER_S)

static const uint16_t fields[] = {DRIVER, SERIAL, TEMP, POWER, XID, FB_USED};
static const uint64_t periods[FIELD_CLASS_COUNT] = {NS_PER_S, 10 * NS_PER_S, 30 * NS_PER_S,
                                                    600 * NS_PER_S};

// --- Frames ---

static inline struct frame_entity gpu(uint32_t index, const char *uuid, const char *bus_id)
{
    struct frame_entity e = {
        .kind = FRAME_ENTITY_GPU,
        .index = index,
        .minor = index,
        .gpu_instance_id = UINT32_MAX,
        .instance_entity_id = UINT32_MAX,
        .id = UINT32_MAX,
    };
    sv_copy(e.uuid, sizeof(e.uuid), sv_from(uuid));
    sv_copy(e.bus_id, sizeof(e.bus_id), sv_from(bus_id));
    sv_copy(e.name, sizeof(e.name), SV("NVIDIA A10G"));
    return e;
}

static inline struct frame_entity blank(uint32_t index, enum frame_entity_state state)
{
    struct frame_entity e = gpu(index, "", "");
    e.name[0] = '\0';
    e.minor = UINT32_MAX;
    e.state = (uint8_t)state;
    return e;
}

static inline struct frame_entity instance(uint32_t parent, uint32_t index, uint32_t gi,
                                           const char *uuid, const char *profile)
{
    struct frame_entity e = {
        .kind = FRAME_ENTITY_GPU_I,
        .parent = parent,
        .index = index,
        .minor = UINT32_MAX,
        .gpu_instance_id = gi,
        .instance_entity_id = index * 7 + gi,
        .id = UINT32_MAX,
        .slices = 1,
    };
    sv_copy(e.uuid, sizeof(e.uuid), sv_from(uuid));
    sv_copy(e.profile, sizeof(e.profile), sv_from(profile));
    return e;
}

static inline struct frame_entity compute_instance(uint32_t parent, uint32_t index, uint32_t gi,
                                                   uint32_t id)
{
    struct frame_entity e = instance(parent, index, gi, "", "");
    e.kind = FRAME_ENTITY_GPU_CI;
    e.instance_entity_id = UINT32_MAX;
    e.id = id;
    e.slices = 0;
    return e;
}

// Of a switch or CPU, parent is its own place; index is a GPU's for its links, else UINT32_MAX.
static inline struct frame_entity part(enum frame_entity_kind kind, uint32_t parent, uint32_t index,
                                       uint32_t id)
{
    return (struct frame_entity){
        .kind = (uint8_t)kind,
        .index = index,
        .parent = parent,
        .minor = UINT32_MAX,
        .gpu_instance_id = UINT32_MAX,
        .instance_entity_id = UINT32_MAX,
        .id = id,
    };
}

static inline struct frame_entity nvswitch(uint32_t self, uint32_t id)
{
    return part(FRAME_ENTITY_SWITCH, self, UINT32_MAX, id);
}

static inline struct frame_entity gpu_link(uint32_t gpu_place, uint32_t index, uint32_t id)
{
    return part(FRAME_ENTITY_LINK, gpu_place, index, id);
}

static inline struct frame_entity switch_link(uint32_t parent, uint32_t id)
{
    return part(FRAME_ENTITY_LINK, parent, UINT32_MAX, id);
}

static inline struct frame_entity cpu(uint32_t self, uint32_t id)
{
    return part(FRAME_ENTITY_CPU, self, UINT32_MAX, id);
}

static inline struct frame_entity core(uint32_t parent, uint32_t id)
{
    return part(FRAME_ENTITY_CPU_CORE, parent, UINT32_MAX, id);
}

static inline int try_list(struct inventory *inv, uint32_t generation,
                           const struct frame_entity *list, uint32_t count)
{
    const struct frame_entities head = {generation, count};
    const struct frame f = {.type = FRAME_ENTITIES, .as.entities = {&head, list}};
    return inventory_apply(inv, &f);
}

#define LIST(inv, generation, ...)                                                                 \
    do {                                                                                           \
        const struct frame_entity list_[] = {__VA_ARGS__};                                         \
        assert_int_equal(try_list((inv), (generation), list_, ARRAY_SIZE(list_)), 0);              \
    } while (0)

static inline struct frame_record record_i64(uint32_t entity, uint16_t field, int64_t v,
                                             uint64_t taken_ns)
{
    return (struct frame_record){entity, field, FRAME_OK, FRAME_VALUE_I64, taken_ns, {.i64 = v}};
}

static inline struct frame_record record_double(uint32_t entity, uint16_t field, double v,
                                                uint64_t taken_ns)
{
    return (struct frame_record){entity, field, FRAME_OK, FRAME_VALUE_DOUBLE, taken_ns, {.f64 = v}};
}

static inline struct frame_record record_text(uint32_t entity, uint16_t field, uint64_t offset,
                                              uint64_t len, uint64_t taken_ns)
{
    return (struct frame_record){entity,   field,
                                 FRAME_OK, FRAME_VALUE_STRING,
                                 taken_ns, {.i64 = (int64_t)(offset << 32 | len)}};
}

static inline struct frame_record record_status(uint32_t entity, uint16_t field,
                                                enum frame_status status, uint64_t taken_ns)
{
    return (struct frame_record){entity,           field,    (uint8_t)status,
                                 FRAME_VALUE_NONE, taken_ns, {.i64 = 0}};
}

static inline int try_sample(struct inventory *inv, uint32_t generation, uint32_t watch_id,
                             const struct frame_record *list, uint32_t count, struct sv strings)
{
    const struct frame_sample head = {
        .generation = generation,
        .watch_id = watch_id,
        .classes = 1u << FIELD_CLASS_FAST,
        .count = count,
        .string_bytes = (uint32_t)strings.len,
        .started_ns = T0,
        .ended_ns = T0 + 5 * NS_PER_MS,
    };
    const struct frame f = {.type = FRAME_SAMPLE, .as.sample = {&head, list, strings}};
    return inventory_apply(inv, &f);
}

#define SAMPLE_TEXT(inv, generation, watch, strings, ...)                                          \
    do {                                                                                           \
        const struct frame_record list_[] = {__VA_ARGS__};                                         \
        assert_int_equal(                                                                          \
            try_sample((inv), (generation), (watch), list_, ARRAY_SIZE(list_), (strings)), 0);     \
    } while (0)
#define SAMPLE(inv, generation, watch, ...) SAMPLE_TEXT(inv, generation, watch, SV(""), __VA_ARGS__)

static inline int try_event(struct inventory *inv, uint32_t generation, uint32_t entity,
                            uint32_t gi, uint32_t xid, uint64_t taken_ns)
{
    const struct frame_event event = {
        .entity = entity,
        .origin = FRAME_EVENT_NVML,
        .xid = xid,
        .gpu_instance_id = gi,
        .taken_ns = taken_ns,
        .wall_ns = taken_ns + 7,
    };
    const struct frame_events head = {generation, 1};
    const struct frame f = {.type = FRAME_EVENTS, .as.events = {&head, &event}};
    return inventory_apply(inv, &f);
}

static inline void event(struct inventory *inv, uint32_t generation, uint32_t entity, uint32_t gi,
                         uint32_t xid, uint64_t taken_ns)
{
    assert_int_equal(try_event(inv, generation, entity, gi, xid, taken_ns), 0);
}

static inline void state(struct inventory *inv, enum frame_state_code code, const char *driver)
{
    struct frame_state s = {.code = code, .xid_events_armed = code == FRAME_STATE_READY};
    sv_copy(s.driver_version, sizeof(s.driver_version), sv_from(driver));
    const struct frame f = {.type = FRAME_STATE, .as.state = &s};
    assert_int_equal(inventory_apply(inv, &f), 0);
}

static inline int try_health(struct inventory *inv, uint32_t generation,
                             const struct frame_verdict *list, uint32_t count, uint64_t taken_ns)
{
    const struct frame_health head = {generation, count, taken_ns};
    const struct frame f = {.type = FRAME_HEALTH, .as.health = {&head, list}};
    return inventory_apply(inv, &f);
}

static inline int try_peers(struct inventory *inv, uint32_t generation,
                            const struct frame_peer *list, uint32_t count, uint64_t taken_ns)
{
    const struct frame_peers head = {generation, count, taken_ns};
    const struct frame f = {.type = FRAME_PEERS, .as.peers = {&head, list}};
    return inventory_apply(inv, &f);
}

// --- Looking ---

static inline const struct inventory_value *find_at(const struct inventory *inv, size_t entity,
                                                    uint16_t field, uint64_t now_ns)
{
    const struct field_info *info = field_find(field);
    assert_non_null(info);
    return inventory_find(inv, &inv->entities[entity], info, periods, now_ns);
}

static inline void assert_i64(const struct inventory *inv, size_t entity, uint16_t field,
                              int64_t expected)
{
    const struct inventory_value *v = find_at(inv, entity, field, T0);
    assert_non_null(v);
    assert_int_equal(v->type, FRAME_VALUE_I64);
    assert_int_equal(v->value.i64, expected);
}

static inline void assert_reason(const struct inventory *inv, size_t entity, uint16_t field,
                                 const char *reason)
{
    assert_null(find_at(inv, entity, field, T0));
    const struct inventory_entity *e = &inv->entities[entity];
    const char *status = frame_status_text(inventory_field_status(inv, e, field));
    assert_string_equal(e->up ? status : e->down_reason, reason);
}

static inline void assert_entity(const struct inventory *inv, size_t entity, const char *uuid,
                                 const char *down_reason)
{
    assert_true(entity < inv->entity_count);
    const struct inventory_entity *e = &inv->entities[entity];
    assert_string_equal(e->info.uuid, uuid);
    assert_string_equal(e->down_reason, down_reason);
    assert_int_equal(e->up, down_reason[0] == '\0');
}

static inline void assert_xid(const struct inventory_entity *e, size_t i, uint32_t code,
                              uint64_t count)
{
    assert_true(i < e->xid_count);
    assert_int_equal(e->xids[i].code, code);
    assert_int_equal(e->xids[i].count, count);
}
