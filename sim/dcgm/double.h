// SPDX-License-Identifier: Apache-2.0
// What the files of the libdcgm double share: a call in flight, a connection to an engine with all
// that was made there, entities, values.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "../double_fault.h"
#include "../node.h"
#include "abi.h"

#define EXPORT __attribute__((visibility("default")))
// One exported function: declared and defined.
#define API(name, ...)                                                                             \
    EXPORT dcgmReturn_t name(__VA_ARGS__);                                                         \
    EXPORT dcgmReturn_t name(__VA_ARGS__)

#define MAX_CONNECTIONS 16

struct group {
    bool used;
    char name[256];
    dcgmGpuGrp_t id;
    dcgmGroupEntityPair_t *list; // owned
    uint32_t count;
    int health_systems; // dcgmHealthSet_v2
};

struct field_group {
    bool used;
    char name[256];
    dcgmFieldGrp_t id;
    uint16_t fields[MAX_FIELDS_OF_GROUP];
    uint32_t count;
};

// One (entity, field) that the engine samples.
struct cell {
    int entity;
    unsigned int id;
    uint16_t field;
    bool used;
    uint32_t watches; // that want it
    uint64_t period_ns;
    uint64_t start_ns;           // of the watch; real time, like the next two
    uint64_t last_ns, before_ns; // of the last sample and the one before it
    uint64_t samples;
};

struct watch {
    dcgmGpuGrp_t group;
    dcgmFieldGrp_t fields;
    dcgmGroupEntityPair_t *list; // as it was when it was watched; owned
    uint32_t count;
};

// A connection, or the embedded engine. What is made there lives as long as it.
struct connection {
    bool used;
    bool embedded;
    bool manual; // updates only by dcgmUpdateAllFields
    bool gone;   // the peer went away
    int refusal; // what each call gets, ST_OK: nothing is wrong
    int fd;
    dcgmHandle_t handle;
    uintptr_t next_id;
    struct group groups[MAX_GROUPS];
    struct field_group field_groups[MAX_GROUPS];
    struct watch *watches; // owned
    uint32_t watch_count, watch_room;
    struct cell *cells; // open addressing; owned
    uint32_t cell_count, cell_room;
};

// One call in flight; holds the library's lock.
struct call {
    struct sim_node *node;
    struct connection *at; // NULL for calls without one
    uint32_t symbol;
    dcgmReturn_t code; // not OK: return it at once
    int64_t t;         // scenario time at which it looks
    uint64_t now_ns;   // the same, real time
    uint64_t entered_ns;
    bool dropped; // the connection dies in this call
    bool locked;
};

// handle: NULL for a call without one. gpu: DCGM's id, SIM_NONE for a call about none.
struct call call_begin(const char *name, _Atomic uint32_t *symbol, const dcgmHandle_t *handle,
                       uint32_t gpu);
void call_end(struct call *c);
uint64_t double_mono_ns(void);

#define CALL_(handle, gpu)                                                                         \
    static _Atomic uint32_t symbol_ = SIM_NONE;                                                    \
    struct call c __attribute__((cleanup(call_end))) =                                             \
        call_begin(__func__, &symbol_, handle, gpu);                                               \
    if (c.code != ST_OK)                                                                           \
    return c.code
#define CALL() CALL_(NULL, SIM_NONE)
#define CALL_AT(handle) CALL_(&(handle), SIM_NONE)
#define CALL_GPU(handle, gpu) CALL_(&(handle), gpu)

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return ST_BADPARAM;                                                                    \
    } while (0)

// --- Connections (connection.c) ---
struct connection *connection_new(void); // NULL: no room
void connection_free(struct connection *at);
struct connection *connection_find(dcgmHandle_t handle);
// Whether the engine is still there; notices its end.
bool connection_lives(struct connection *at);

// --- Groups (group.c) ---
struct group *group_find(struct connection *at, dcgmGpuGrp_t id);
struct field_group *field_group_find(struct connection *at, dcgmFieldGrp_t id);
void groups_free(struct connection *at);

// --- Watches (watch.c) ---
struct cell *cell_find(struct connection *at, int entity, unsigned int id, uint16_t field);
// Brings an automatic engine's cell up to now: as many samples as its period gives.
void cell_advance(const struct connection *at, struct cell *cell, uint64_t now_ns);
void watches_free(struct connection *at);
void watches_drop(struct connection *at, dcgmGpuGrp_t group, dcgmFieldGrp_t fields);

// --- Entities (entity.c) ---
struct target {
    int entity;        // enum sim_entity, FE_NONE
    uint32_t gpu;      // index in the node; SIM_NONE: none
    uint32_t instance; // of a GPU_I its first compute instance; SIM_NONE
    uint32_t gi, ci;
    uint32_t key; // of its own values
};
// The entity at a time; -1 when there is none.
int target_find(const struct sim_node *n, int entity, unsigned int id, int64_t t,
                struct target *out);
uint32_t gpu_id_of(const struct sim_node *n, uint32_t gpu); // DCGM's id of a GPU
// Ids of a kind at a time, at most max; the whole number of them.
uint32_t entity_list(const struct sim_node *n, int entity, int64_t t, unsigned int *out,
                     uint32_t max);
unsigned int link_id(const struct sim_node *n, const struct sim_link *l);

// --- Values ---
struct reading {
    int status; // ST_OK, or the record's status
    char type;  // of the field: i d s b t
    int64_t ts; // microseconds since 1970, 0 with a status
    int blank;  // -1: a value; else the offset of the blank (0..3)
    int64_t i64;
    double f64;
    char text[256];
};
// What DCGM makes of the truth at t; before: the time of the sample before it, t itself when there
// is none (automatic.c).
void automatic_read(const struct sim_node *n, const struct target *at, uint16_t field,
                    int64_t before, int64_t t, struct reading *out);
bool field_is_profiling(uint16_t field);
// Whether a GPU's counters can measure a profiling field (profiling.c).
bool profiling_measures(const struct sim_gpu *g, uint16_t field);
// A cell's latest, or why there is none (value.c).
void value_latest(struct call *c, int entity, unsigned int id, uint16_t field, struct reading *out);
void value_record(const struct reading *r, uint16_t field, dcgmFieldValue_v1 *out);

// --- Metadata ---
extern const dcgm_field_meta_t double_fields[]; // by id; generated
extern const size_t double_field_count;
const dcgm_field_meta_t *field_find(uint16_t id);
