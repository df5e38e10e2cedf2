// SPDX-License-Identifier: Apache-2.0
// How it works: kind by kind, the fields that the kind takes are ordered by class, what can be read
// first, profiling last of that; so what is read at once lies side by side, and a value's cell is
// found by counting. Groups with the same content are one.
#include "source/dcgm_watch_plan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "source/dcgm_value.h"

static_assert((int)FIELD_LEVEL_NONE == DCGM_FE_NONE && (int)FIELD_LEVEL_GPU == DCGM_FE_GPU &&
                  (int)FIELD_LEVEL_VGPU == DCGM_FE_VGPU &&
                  (int)FIELD_LEVEL_SWITCH == DCGM_FE_SWITCH &&
                  (int)FIELD_LEVEL_GPU_I == DCGM_FE_GPU_I &&
                  (int)FIELD_LEVEL_GPU_CI == DCGM_FE_GPU_CI &&
                  (int)FIELD_LEVEL_LINK == DCGM_FE_LINK && (int)FIELD_LEVEL_CPU == DCGM_FE_CPU &&
                  (int)FIELD_LEVEL_CPU_CORE == DCGM_FE_CPU_CORE &&
                  (int)FIELD_LEVEL_CONNECTX == DCGM_FE_CONNECTX,
              "the catalogue's levels are DCGM's entity kinds");

bool watch_kind_takes(int kind, int level)
{
    if (level == DCGM_FE_NONE || level == kind)
        return true;
    switch (kind) {
    case DCGM_FE_GPU:
        return level == DCGM_FE_VGPU || level == DCGM_FE_GPU_I || level == DCGM_FE_GPU_CI;
    case DCGM_FE_GPU_I:
        return level == DCGM_FE_GPU_CI;
    case DCGM_FE_SWITCH:
        return level == DCGM_FE_LINK;
    case DCGM_FE_CPU:
        return level == DCGM_FE_CPU_CORE;
    default:
        return false;
    }
}

// --- what is asked of whom ---

static bool is_readable(const struct watch_field *f)
{
    return f->known && f->type != FIELD_BINARY;
}

static enum frame_status status_of_state(const struct dcgm_entity *e)
{
    switch ((enum frame_entity_state)e->record.state) {
    case FRAME_ENTITY_UP:
    case FRAME_ENTITY_RESET_REQUIRED:
    case FRAME_ENTITY_FAILED: // may answer again
        return FRAME_OK;
    case FRAME_ENTITY_NO_PERMISSION:
        return FRAME_NO_PERMISSION;
    case FRAME_ENTITY_LOST:
        return FRAME_LOST;
    case FRAME_ENTITY_SKIPPED:
    case FRAME_ENTITY_STATE_END:
        break;
    }
    return FRAME_NO_DATA;
}

// Of the entity and of what it is a part of.
static enum frame_status status_of_entity(const struct dcgm_devices *v, uint32_t entity)
{
    enum frame_status status = status_of_state(&v->list[entity]);
    for (unsigned up = 0; up < 3 && status == FRAME_OK; up++) {
        uint32_t parent = v->list[entity].record.parent;
        if (parent >= v->count || parent == entity)
            break;
        entity = parent;
        status = status_of_state(&v->list[entity]);
    }
    return status;
}

bool watch_wants_entity(const struct watch_input *in, uint32_t entity)
{
    const struct dcgm_entity *e = &in->devices->list[entity];
    if (e->group >= WATCH_KINDS)
        return false;
    if (e->gpu_mask_bit == UINT32_MAX)
        return true;
    return e->gpu_mask_bit < 64 && (in->gpus >> e->gpu_mask_bit & 1);
}

dcgmReturn_t watch_refusal(const struct watch_input *in, uint32_t entity,
                           const struct watch_field *field, enum frame_status *out_status)
{
    dcgmReturn_t result = DCGM_ST_OK;
    *out_status = FRAME_NOT_SUPPORTED;
    if (!field->known)
        return DCGM_ST_UNKNOWN_FIELD;
    if (field->type == FIELD_BINARY)
        return DCGM_ST_NOT_SUPPORTED;
    *out_status = status_of_entity(in->devices, entity);
    if (*out_status != FRAME_OK)
        return DCGM_ST_NO_DATA;
    if (dcgm_field_is_profiling(field->id)) {
        result =
            dcgm_profiling_find(in->profiling, in->devices->list[entity].gpu_mask_bit, field->id);
        *out_status = dcgm_status_of(result);
    }
    return result;
}

// --- groups ---

struct builder {
    const struct watch_input *in;
    struct watch_plan *p;
    struct watch_member *members; // of the kind at hand; then of a part of it
    uint32_t member_count;
};

static bool same_members(const struct watch_plan *p, const struct watch_group *g,
                         const struct watch_member *list, uint32_t count)
{
    const struct watch_member *have = watch_members(p, g);
    for (uint32_t i = 0; i < g->count && g->count == count; i++)
        if (have[i].pair.entityGroupId != list[i].pair.entityGroupId ||
            have[i].pair.entityId != list[i].pair.entityId)
            return false;
    return g->count == count;
}

// Place of the group of these members, WATCH_NONE when there is no room.
static uint32_t intern_group(struct watch_plan *p, const struct watch_member *list, uint32_t count)
{
    for (uint32_t i = 0; i < p->group_count; i++)
        if (same_members(p, &p->groups[i], list, count))
            return i;
    if (p->group_count == WATCH_GROUPS_MAX) {
        p->full = true;
        return WATCH_NONE;
    }
    uint32_t first = (uint32_t)(p->members.len / sizeof(*list));
    p->groups[p->group_count] = (struct watch_group){.first = first, .count = count};
    buf_add(&p->members, list, count * sizeof(*list));
    return p->members.error ? WATCH_NONE : p->group_count++;
}

static bool same_ids(const struct watch_plan *p, const struct watch_field_group *f,
                     const uint16_t *ids, uint32_t count)
{
    return f->count == count && memcmp(watch_ids(p, f), ids, count * sizeof(*ids)) == 0;
}

static uint32_t intern_fields(struct watch_plan *p, const uint16_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < p->field_group_count; i++)
        if (same_ids(p, &p->field_groups[i], ids, count))
            return i;
    if (p->field_group_count == WATCH_GROUPS_MAX) {
        p->full = true;
        return WATCH_NONE;
    }
    uint32_t first = (uint32_t)(p->ids.len / sizeof(*ids));
    p->field_groups[p->field_group_count] =
        (struct watch_field_group){.first = first, .count = count};
    buf_add(&p->ids, ids, count * sizeof(*ids));
    return p->ids.error ? WATCH_NONE : p->field_group_count++;
}

static void add_pair(struct watch_plan *p, struct watch_pair *list, uint32_t *count,
                     const struct watch_pair *pair)
{
    if (*count == WATCH_PAIRS_MAX)
        p->full = true;
    else
        list[(*count)++] = *pair;
}

// The members, a part of the kind at hand, with the fields: watched, or read from the row on.
static void add_pairs(struct builder *b, const struct watch_pair *like, const uint16_t *ids,
                      uint32_t id_count, bool read)
{
    struct watch_plan *p = b->p;
    uint32_t fields = id_count ? intern_fields(p, ids, id_count) : WATCH_NONE;
    for (uint32_t at = 0; at < b->member_count && fields != WATCH_NONE;) {
        uint32_t count = b->member_count - at;
        if (count > b->in->entities_most)
            count = b->in->entities_most;
        uint32_t group = intern_group(p, b->members + at, count);
        struct watch_pair pair = *like;
        pair.group = (uint16_t)group;
        pair.fields = (uint16_t)fields;
        if (group != WATCH_NONE && read)
            add_pair(p, p->reads, &p->read_count, &pair);
        else if (group != WATCH_NONE)
            add_pair(p, p->watches, &p->watch_count, &pair);
        at += count;
    }
}

// --- a kind ---

static int compare_rows(const void *a, const void *b, void *fields)
{
    const struct watch_field *x = (const struct watch_field *)fields + *(const uint16_t *)a;
    const struct watch_field *y = (const struct watch_field *)fields + *(const uint16_t *)b;
    int key[][2] = {
        {x->cost, y->cost},
        {!is_readable(x), !is_readable(y)},
        {dcgm_field_is_profiling(x->id), dcgm_field_is_profiling(y->id)},
        {x->id, y->id},
    };
    for (size_t i = 0; i < ARRAY_SIZE(key); i++)
        if (key[i][0] != key[i][1])
            return key[i][0] < key[i][1] ? -1 : 1;
    return 0;
}

static void add_rows(struct builder *b, unsigned kind)
{
    struct watch_plan *p = b->p;
    struct watch_kind *k = &p->kinds[kind];
    k->first = (uint32_t)(p->rows.len / sizeof(uint16_t));
    for (uint32_t i = 0; i < b->in->field_count; i++) {
        uint16_t row = (uint16_t)i;
        if (!watch_kind_takes((int)kind, b->in->fields[i].level))
            continue;
        buf_add(&p->rows, &row, sizeof(row));
        k->count++;
    }
    if (p->rows.error || !k->count)
        return;
    qsort_r(p->rows.data + k->first * sizeof(uint16_t), k->count, sizeof(uint16_t), compare_rows,
            (void *)(uintptr_t)b->in->fields);
}

// Gives the entities of the kind their cells and finds those that are asked.
static void add_entities(struct builder *b, unsigned kind)
{
    struct watch_plan *p = b->p;
    b->member_count = 0;
    for (uint32_t i = 0; i < p->entity_count && p->kinds[kind].count; i++) {
        const struct dcgm_entity *e = &b->in->devices->list[i];
        if (e->group != kind || !watch_wants_entity(b->in, i))
            continue;
        if (p->cell_count + p->kinds[kind].count > WATCH_CELLS_MAX) {
            p->full = true;
            continue;
        }
        p->cells[i] = p->cell_count;
        p->cell_count += p->kinds[kind].count;
        if (status_of_entity(b->in->devices, i) == FRAME_OK)
            b->members[b->member_count++] =
                (struct watch_member){.pair = {e->group, e->id}, .entity = i};
    }
}

// Ids of rows [from, to) of the kind.
static void ids_of(const struct builder *b, unsigned kind, uint32_t from, uint32_t to,
                   uint16_t *ids)
{
    for (uint32_t i = from; i < to; i++)
        ids[i - from] = b->in->fields[watch_rows(b->p, kind)[i]].id;
}

// The profiling fields, for each set of GPUs that have the same of them.
static void add_profiling(struct builder *b, const struct watch_pair *like, const uint16_t *ids,
                          uint32_t count, struct watch_member *scratch)
{
    const struct dcgm_profiling *prof = b->in->profiling;
    for (uint32_t set = 0; set < prof->count; set++) {
        struct builder part = {.in = b->in, .p = b->p, .members = scratch};
        uint16_t have[DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP];
        uint32_t have_count = 0;
        if (prof->gpus[set].set != set)
            continue;
        for (uint32_t i = 0; i < b->member_count; i++) {
            uint32_t gpu = b->in->devices->list[b->members[i].entity].gpu_mask_bit;
            if (dcgm_profiling_set_of(prof, gpu) == set)
                scratch[part.member_count++] = b->members[i];
        }
        for (uint32_t i = 0; i < count; i++)
            if (dcgm_profiling_find(prof, prof->gpus[set].id, ids[i]) == DCGM_ST_OK)
                have[have_count++] = ids[i];
        add_pairs(&part, like, have, have_count, false);
    }
}

// XIDs are watched by dcgm_health, on all that can have them: a second watch of ours would change
// how long the engine keeps them, and end theirs with it.
static void add_plain(struct builder *b, const struct watch_pair *like, const uint16_t *ids,
                      uint32_t count)
{
    uint16_t plain[DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] != FIELD_XID_ERRORS)
            plain[kept++] = ids[i];
    add_pairs(b, like, plain, kept, false);
}

// Up to 128 fields of a class: one read, and the watches behind it.
static void add_chunk(struct builder *b, struct watch_pair *like, uint32_t to,
                      struct watch_member *scratch)
{
    uint16_t ids[DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP];
    uint32_t count = to - like->row, plain = 0;
    ids_of(b, like->kind, like->row, to, ids);
    while (plain < count && !dcgm_field_is_profiling(ids[plain]))
        plain++;
    add_pairs(b, like, ids, count, true);
    add_plain(b, like, ids, plain);
    like->profiling = true;
    if (plain < count)
        add_profiling(b, like, ids + plain, count - plain, scratch);
}

static void add_kind(struct builder *b, unsigned kind, struct watch_member *scratch)
{
    const struct watch_kind *k = &b->p->kinds[kind];
    add_rows(b, kind);
    if (b->p->rows.error)
        return;
    add_entities(b, kind);
    for (uint32_t from = 0; from < k->count && b->member_count;) {
        const struct watch_field *f = &b->in->fields[watch_rows(b->p, kind)[from]];
        struct watch_pair like = {.kind = (uint8_t)kind, .cost = f->cost, .row = from};
        uint32_t to = from;
        for (; to < k->count && to - from < DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP; to++) {
            const struct watch_field *next = &b->in->fields[watch_rows(b->p, kind)[to]];
            if (next->cost != f->cost || !is_readable(next))
                break;
        }
        if (to > from)
            add_chunk(b, &like, to, scratch);
        from = to > from ? to : from + 1;
    }
}

int watch_plan_build(const struct watch_input *in, struct watch_plan *out)
{
    uint32_t entities = in->devices->count;
    *out =
        (struct watch_plan){.members = BUF_INIT(64u * LIMIT_ENTITIES * sizeof(struct watch_member)),
                            .ids = BUF_INIT(1u << 20),
                            .rows = BUF_INIT(1u << 20),
                            .entity_count = entities};
    // Twice: those of a kind, and a part of them.
    cleanup(mem_freep) struct watch_member *members =
        calloc(2 * (size_t)entities + 1, sizeof(*members));
    out->cells = calloc(entities ? entities : 1, sizeof(*out->cells));
    struct builder b = {.in = in, .p = out, .members = members};
    for (uint32_t i = 0; i < entities && out->cells; i++)
        out->cells[i] = WATCH_NONE;
    for (unsigned kind = 0; kind < WATCH_KINDS && members && out->cells; kind++)
        add_kind(&b, kind, members + entities);
    if (members && out->cells && !out->members.error && !out->ids.error && !out->rows.error)
        return 0;
    watch_plan_deinit(out);
    return -ENOMEM;
}

void watch_plan_deinit(struct watch_plan *p)
{
    buf_deinit(&p->members);
    buf_deinit(&p->ids);
    buf_deinit(&p->rows);
    free(p->cells);
    *p = (struct watch_plan){0};
}

// --- what stays ---

static void adopt_groups(struct watch_plan *p, struct watch_plan *old, uint16_t *place)
{
    for (uint32_t o = 0; o < old->group_count; o++) {
        struct watch_group *from = &old->groups[o];
        place[o] = UINT16_MAX;
        for (uint32_t i = 0; i < p->group_count && from->made && !from->lacking; i++) {
            struct watch_group *to = &p->groups[i];
            if (!same_members(p, to, watch_members(old, from), from->count))
                continue;
            to->id = from->id;
            to->made = true;
            from->made = false;
            place[o] = (uint16_t)i;
        }
    }
}

static void adopt_fields(struct watch_plan *p, struct watch_plan *old, uint16_t *place)
{
    for (uint32_t o = 0; o < old->field_group_count; o++) {
        struct watch_field_group *from = &old->field_groups[o];
        place[o] = UINT16_MAX;
        for (uint32_t i = 0; i < p->field_group_count && from->made; i++) {
            struct watch_field_group *to = &p->field_groups[i];
            if (!same_ids(p, to, watch_ids(old, from), from->count))
                continue;
            to->id = from->id;
            to->made = true;
            from->made = false;
            place[o] = (uint16_t)i;
        }
    }
}

void watch_plan_adopt(struct watch_plan *p, struct watch_plan *old, const bool *same_period)
{
    uint16_t groups[WATCH_GROUPS_MAX], fields[WATCH_GROUPS_MAX];
    adopt_groups(p, old, groups);
    adopt_fields(p, old, fields);
    for (uint32_t o = 0; o < old->watch_count; o++) {
        struct watch_pair *from = &old->watches[o];
        if (!from->made || from->partial || !same_period[from->cost])
            continue;
        for (uint32_t i = 0; i < p->watch_count && from->made; i++) {
            struct watch_pair *to = &p->watches[i];
            if (to->group != groups[from->group] || to->fields != fields[from->fields] ||
                to->cost != from->cost)
                continue;
            to->made = true;
            from->made = false;
        }
    }
}
