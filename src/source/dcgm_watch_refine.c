// SPDX-License-Identifier: Apache-2.0
// How it works: DCGM refuses a watch as a whole, though one field or one entity is the reason.
// Halves are tried until what is refused is alone, by at most PROBES_MAX watches in all; then what
// is left is watched, by groups of its own.
#include "source/dcgm_watch_internal.h"

#include <string.h>

#define PROBES_MAX 64
#define PARTS_MAX                                                                                  \
    (WATCH_ENTITIES_MAX_4 > DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP                                     \
         ? WATCH_ENTITIES_MAX_4                                                                    \
         : DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP)

// --- cells ---

void dcgm_watch_settle_cell(struct dcgm_watch *w, uint32_t entity, uint16_t field,
                            dcgmReturn_t result)
{
    struct watch_input in = dcgm_watch_input(w);
    uint32_t row = dcgm_watch_row_of(w, w->v->list[entity].group, field);
    if (w->plan.cells[entity] == WATCH_NONE || row == WATCH_NONE)
        return;
    struct watch_cell *cell = &w->cells[w->plan.cells[entity] + row];
    enum frame_status status;
    uint16_t place = watch_rows(&w->plan, w->v->list[entity].group)[row];
    if (watch_refusal(&in, entity, &w->fields[place], &status) != DCGM_ST_OK)
        return; // it says so already
    if (result == DCGM_ST_OK) {
        cell->now = cell->settled ? 0 : cell->now;
        cell->settled = false;
        return;
    }
    cell->now = (uint8_t)(dcgm_status_of(result) + 1);
    cell->code = result;
    cell->settled = true;
    w->unsent = true;
}

void dcgm_watch_settle(struct dcgm_watch *w, const struct watch_pair *pair, dcgmReturn_t result)
{
    const struct watch_group *g = &w->plan.groups[pair->group];
    const struct watch_field_group *f = &w->plan.field_groups[pair->fields];
    const struct watch_member *members = watch_members(&w->plan, g);
    for (uint32_t i = 0; i < g->count; i++)
        for (uint32_t j = 0; j < f->count && !members[i].refused; j++)
            dcgm_watch_settle_cell(w, members[i].entity, watch_ids(&w->plan, f)[j], result);
}

// --- trying a part ---

struct refinery {
    struct dcgm_watch *w;
    struct watch_pair *pair;
    uint16_t fields[DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP]; // that are tried
    uint32_t field_count;
    uint32_t members[WATCH_ENTITIES_MAX_4]; // places in the pair's group
    uint32_t member_count;
    unsigned probes;
};

struct part { // of the fields or the members at hand
    bool of_members;
    uint32_t first, count;
};

static void undo(struct dcgm_watch *w, struct watch_pair *pair)
{
    dcgm_field_group_destroy(w->d, pair->own_fields);
    dcgm_group_destroy(w->d, pair->own_group);
}

static dcgmReturn_t fill_own_group(struct refinery *r, struct part part)
{
    const struct watch_member *members =
        watch_members(&r->w->plan, &r->w->plan.groups[r->pair->group]);
    uint32_t first = part.of_members ? part.first : 0;
    uint32_t end = part.of_members ? part.first + part.count : r->member_count;
    dcgmReturn_t result = DCGM_ST_OK;
    for (uint32_t i = first; i < end && result == DCGM_ST_OK; i++) {
        dcgmGroupEntityPair_t e = members[r->members[i]].pair;
        result = dcgm_call(r->w->d, dcgmGroupAddEntity, r->w->d->engine, r->pair->own_group,
                           e.entityGroupId, e.entityId);
    }
    return result;
}

// Watches a part by groups of the pair's own, which stay when it is taken.
static dcgmReturn_t watch_part(struct refinery *r, struct part part)
{
    struct dcgm_watch *w = r->w;
    struct watch_pair *pair = r->pair;
    uint32_t first = part.of_members ? 0 : part.first;
    uint32_t count = part.of_members ? r->field_count : part.count;
    dcgmReturn_t result = dcgm_group_create(w->d, &pair->own_group);
    if (result != DCGM_ST_OK)
        return result;
    result = dcgm_field_group_create(w->d, r->fields + first, count, &pair->own_fields);
    if (result != DCGM_ST_OK) {
        dcgm_group_destroy(w->d, pair->own_group);
        return result;
    }
    result = fill_own_group(r, part);
    if (result == DCGM_ST_OK)
        result = dcgm_watch_ask(w, pair, pair->own_group, pair->own_fields);
    if (result != DCGM_ST_OK)
        undo(w, pair);
    return result;
}

static dcgmReturn_t probe(struct refinery *r, struct part part)
{
    struct dcgm_watch *w = r->w;
    r->probes++;
    dcgmReturn_t result = watch_part(r, part);
    if (result == DCGM_ST_OK) {
        (void)dcgm_call(w->d, dcgmUnwatchFields, w->d->engine, r->pair->own_group,
                        r->pair->own_fields);
        undo(w, r->pair);
        w->unwatched = true;
    }
    return result;
}

// --- halves ---

static struct part half(struct part whole, bool second)
{
    uint32_t left = whole.count / 2;
    whole.first += second ? left : 0;
    whole.count = second ? whole.count - left : left;
    return whole;
}

static void note_part(dcgmReturn_t *verdicts, struct part part, dcgmReturn_t result)
{
    for (uint32_t i = part.first; i < part.first + part.count; i++)
        verdicts[i] = result;
}

// A verdict for each of the whole, which was refused with the result.
static dcgmReturn_t bisect(struct refinery *r, struct part whole, dcgmReturn_t result,
                           dcgmReturn_t *verdicts)
{
    struct part open[32]; // two a level: 512 have nine
    uint32_t count = 0;
    note_part(verdicts, whole, result);
    if (whole.count < 2)
        return DCGM_ST_OK;
    open[count++] = half(whole, true);
    open[count++] = half(whole, false);
    while (count && r->probes < PROBES_MAX) {
        struct part part = open[--count];
        result = probe(r, part);
        if (dcgm_watch_is_of_engine(r->w, result))
            return result;
        note_part(verdicts, part, result);
        if (result == DCGM_ST_OK || part.count < 2)
            continue;
        open[count++] = half(part, true);
        open[count++] = half(part, false);
    }
    return DCGM_ST_OK;
}

static bool any_good(const dcgmReturn_t *verdicts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (verdicts[i] == DCGM_ST_OK)
            return true;
    return false;
}

static void drop_fields(struct refinery *r, const dcgmReturn_t *verdicts)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->field_count; i++) {
        uint16_t field = r->fields[i];
        for (uint32_t m = 0; m < r->member_count && verdicts[i] != DCGM_ST_OK; m++) {
            const struct watch_member *members =
                watch_members(&r->w->plan, &r->w->plan.groups[r->pair->group]);
            dcgm_watch_settle_cell(r->w, members[r->members[m]].entity, field, verdicts[i]);
        }
        if (verdicts[i] == DCGM_ST_OK)
            r->fields[kept++] = field;
    }
    r->field_count = kept;
}

static void drop_members(struct refinery *r, const dcgmReturn_t *verdicts)
{
    const struct watch_member *members =
        watch_members(&r->w->plan, &r->w->plan.groups[r->pair->group]);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->member_count; i++) {
        uint32_t member = r->members[i];
        for (uint32_t f = 0; f < r->field_count && verdicts[i] != DCGM_ST_OK; f++)
            dcgm_watch_settle_cell(r->w, members[member].entity, r->fields[f], verdicts[i]);
        if (verdicts[i] == DCGM_ST_OK)
            r->members[kept++] = member;
    }
    r->member_count = kept;
}

// --- fields that the engine does not know ---

static dcgmReturn_t try_fields(struct dcgm_watch *w, const uint16_t *ids, uint32_t count)
{
    dcgmFieldGrp_t fields;
    dcgmReturn_t result = dcgm_field_group_create(w->d, ids, count, &fields);
    if (result == DCGM_ST_OK)
        dcgm_field_group_destroy(w->d, fields);
    return result;
}

static void note_unknown(struct dcgm_watch *w, const uint16_t *ids, struct part part)
{
    for (uint32_t i = part.first; i < part.first + part.count; i++)
        w->unknown[ids[i] / 64] |= UINT64_C(1) << ids[i] % 64;
    w->replan = true;
}

dcgmReturn_t dcgm_watch_find_unknown(struct dcgm_watch *w, const struct watch_field_group *f)
{
    const uint16_t *ids = watch_ids(&w->plan, f);
    struct part open[32] = {{.count = f->count}};
    uint32_t count = f->result == DCGM_ST_UNKNOWN_FIELD || f->result == DCGM_ST_BADPARAM ? 1 : 0;
    for (unsigned probes = 0; count;) {
        struct part part = open[--count];
        if (part.count < 2 || probes >= PROBES_MAX) {
            note_unknown(w, ids, part);
            continue;
        }
        for (unsigned second = 0; second < 2; second++) {
            struct part next = half(part, second);
            dcgmReturn_t result = try_fields(w, ids + next.first, next.count);
            probes++;
            if (dcgm_watch_is_of_engine(w, result))
                return result;
            if (result != DCGM_ST_OK)
                open[count++] = next;
        }
    }
    return DCGM_ST_OK;
}

// --- the whole ---

enum blame { BLAME_ALL, BLAME_ENTITY, BLAME_ANY };

// Whom a refusal can be about.
static enum blame blame_of(dcgmReturn_t result)
{
    switch (result) {
    case DCGM_ST_MODULE_NOT_LOADED:
    case DCGM_ST_REQUIRES_ROOT:
    case DCGM_ST_NO_PERMISSION:
    case DCGM_ST_PAUSED:
    case DCGM_ST_MAX_LIMIT:
    case DCGM_ST_MEMORY:
    case DCGM_ST_TIMEOUT:
    case DCGM_ST_PENDING:
    case DCGM_ST_FUNCTION_NOT_FOUND:
    case DCGM_ST_PROFILING_LIBRARY_ERROR:
        return BLAME_ALL;
    case DCGM_ST_IN_USE:
    case DCGM_ST_GPU_IS_LOST:
    case DCGM_ST_GPU_NOT_SUPPORTED:
    case DCGM_ST_RESET_REQUIRED:
    case DCGM_ST_GPUS_DETACHED:
    case DCGM_ST_INSTANCE_NOT_FOUND:
    case DCGM_ST_COMPUTE_INSTANCE_NOT_FOUND:
        return BLAME_ENTITY;
    default:
        return BLAME_ANY;
    }
}

static void begin(struct refinery *r, struct dcgm_watch *w, struct watch_pair *pair)
{
    const struct watch_group *g = &w->plan.groups[pair->group];
    const struct watch_field_group *f = &w->plan.field_groups[pair->fields];
    r->w = w;
    r->pair = pair;
    r->field_count = f->count;
    memcpy(r->fields, watch_ids(&w->plan, f), f->count * sizeof(*r->fields));
    for (uint32_t i = 0; i < g->count; i++)
        if (!watch_members(&w->plan, g)[i].refused)
            r->members[r->member_count++] = i;
}

dcgmReturn_t dcgm_watch_refine(struct dcgm_watch *w, struct watch_pair *pair)
{
    struct refinery r = {0};
    dcgmReturn_t verdicts[PARTS_MAX], refused = pair->result, result = DCGM_ST_OK;
    bool good = false;
    begin(&r, w, pair);
    dcgm_watch_settle(w, pair, DCGM_ST_OK);
    if (blame_of(refused) == BLAME_ANY) {
        result = bisect(&r, (struct part){false, 0, r.field_count}, refused, verdicts);
        good = any_good(verdicts, r.field_count);
        if (result == DCGM_ST_OK && good)
            drop_fields(&r, verdicts);
    }
    if (result == DCGM_ST_OK && !good && blame_of(refused) != BLAME_ALL) {
        result = bisect(&r, (struct part){true, 0, r.member_count}, refused, verdicts);
        good = any_good(verdicts, r.member_count);
        if (result == DCGM_ST_OK && good)
            drop_members(&r, verdicts);
    }
    if (result != DCGM_ST_OK)
        return result;
    if (good)
        refused = watch_part(&r, (struct part){true, 0, r.member_count});
    if (dcgm_watch_is_of_engine(w, refused))
        return refused;
    pair->made = pair->partial = good && refused == DCGM_ST_OK;
    if (!pair->made) // all of it, even where each alone would be taken
        dcgm_watch_settle(w, pair, refused);
    return DCGM_ST_OK;
}
