// SPDX-License-Identifier: Apache-2.0
// What is to be made in the engine for a watch: groups of entities, groups of fields, which pairs
// of them are watched and which are read. Pure: the same input gives the same plan.
//
// Reads are by entity kind, cost class and 128 fields, whatever is in them. Watches are finer:
// profiling fields apart from the others, since DCGM refuses a watch as a whole, and by what each
// GPU has of them.
#pragma once

#include "base/buf.h"
#include "gpu/catalogue.h"
#include "source/dcgm_devices.h"
#include "source/dcgm_profiling.h"

#define WATCH_KINDS (DCGM_FE_CPU_CORE + 1)
#define WATCH_NONE UINT32_MAX
// A group of DCGM 3 takes 64 entities, one of DCGM 4 1024, of which an answer with 128 fields each
// would not fit the 4 MiB that the engine has for one.
#define WATCH_ENTITIES_MAX_3 64
#define WATCH_ENTITIES_MAX_4 512
// Of ours: an engine has 64 of each for all its clients, and says so.
#define WATCH_GROUPS_MAX 192
#define WATCH_PAIRS_MAX 512
// A record of each fits a SAMPLE frame.
#define WATCH_CELLS_MAX ((LIMIT_FRAME_BYTES - (64u << 10)) / sizeof(struct frame_record))

struct watch_field { // a field of the set that the engine is to give
    uint16_t id;
    uint8_t type;  // enum field_type
    uint8_t level; // DCGM_FE_*
    uint8_t cost;  // enum field_class
    bool known;    // to the library
};

struct watch_member {
    dcgmGroupEntityPair_t pair;
    uint32_t entity; // in the list of devices
    bool refused;    // the engine does not take it into its group
};

struct watch_group {
    uint32_t first, count; // of the plan's members
    dcgmGpuGrp_t id;
    bool made;
    bool lacking;        // an entity was refused
    dcgmReturn_t result; // why it could not be made
};

struct watch_field_group {
    uint32_t first, count; // of the plan's ids
    dcgmFieldGrp_t id;
    bool made;
    dcgmReturn_t result;
};

struct watch_pair {
    uint16_t group, fields; // places in the plan
    uint8_t kind, cost;     // DCGM_FE_*, enum field_class
    bool profiling;
    bool made;           // watched; of a read: can be read
    dcgmReturn_t result; // why it is not watched
    bool partial;        // watched but for what the engine refused, by groups of its own
    dcgmGpuGrp_t own_group;
    dcgmFieldGrp_t own_fields;
    uint32_t row;     // of a read: place of its first field among its kind's
    bool alive;       // of a read: gave something else than NOT_WATCHED
    uint64_t read_ns; // of a read: when it was last read, 0: never
};

struct watch_kind {
    uint32_t first, count; // of the plan's rows: by class, those that can be read first
};

struct watch_plan {
    struct buf members;  // struct watch_member
    struct buf ids;      // uint16_t
    struct buf rows;     // uint16_t: places among the fields
    uint32_t *cells;     // by entity: its first cell, WATCH_NONE: it is not watched; owned
    uint32_t cell_count; // an entity has one for each row of its kind
    uint32_t entity_count;
    struct watch_kind kinds[WATCH_KINDS];
    struct watch_group groups[WATCH_GROUPS_MAX];
    struct watch_field_group field_groups[WATCH_GROUPS_MAX];
    struct watch_pair watches[WATCH_PAIRS_MAX], reads[WATCH_PAIRS_MAX];
    uint32_t group_count, field_group_count, watch_count, read_count;
    bool full; // something is left out
};

struct watch_input {
    const struct dcgm_devices *devices;
    const struct watch_field *fields; // ascending by id
    uint32_t field_count;
    const struct dcgm_profiling *profiling;
    uint64_t gpus;          // frame_watch.gpus
    uint32_t entities_most; // of a group
};

// Whether entities of a kind have fields of a level (both DCGM_FE_*), as dcgm-exporter has it.
bool watch_kind_takes(int kind, int level);
// 0 with a plan in which nothing is made yet, or -ENOMEM; *out is then empty.
int must_use watch_plan_build(const struct watch_input *in, struct watch_plan *out);
void watch_plan_deinit(struct watch_plan *p);
// What the old plan made and the new one wants just so changes hands; what the old one has left is
// to be taken down: watches that are still `made` first, by the ids of its groups, then the groups
// that are. same_period: by enum field_class.
void watch_plan_adopt(struct watch_plan *p, struct watch_plan *old, const bool *same_period);
// Why the field is not asked of the entity; DCGM_ST_OK: it is. In *out_status what it says in a
// frame.
dcgmReturn_t watch_refusal(const struct watch_input *in, uint32_t entity,
                           const struct watch_field *field, enum frame_status *out_status);
// Whether frame_watch.gpus has the entity in it.
bool watch_wants_entity(const struct watch_input *in, uint32_t entity);

static inline struct watch_member *watch_members(const struct watch_plan *p,
                                                 const struct watch_group *g)
{
    return (struct watch_member *)(void *)p->members.data + g->first;
}

static inline const uint16_t *watch_ids(const struct watch_plan *p,
                                        const struct watch_field_group *f)
{
    return (const uint16_t *)(const void *)p->ids.data + f->first;
}

// Places among the fields, of a kind.
static inline const uint16_t *watch_rows(const struct watch_plan *p, unsigned kind)
{
    return (const uint16_t *)(const void *)p->rows.data + p->kinds[kind].first;
}
