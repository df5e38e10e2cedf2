// SPDX-License-Identifier: Apache-2.0
#include "source/dcgm_watch_internal.h"

#define KEEP_PERIODS 3 // the engine keeps what it sampled that long, and so few of them:
#define KEEP_SAMPLES 4
#define EARLY_NS (5 * NS_PER_S)
#define PROFILING_LEAST_NS (100 * NS_PER_MS) // the shortest period that the profiling module takes

// --- down ---

static void unwatch(struct dcgm_watch *w, const struct watch_plan *plan, struct watch_pair *pair)
{
    dcgmGpuGrp_t group = pair->partial ? pair->own_group : plan->groups[pair->group].id;
    dcgmFieldGrp_t fields = pair->partial ? pair->own_fields : plan->field_groups[pair->fields].id;
    if (!w->d->lost)
        (void)dcgm_call(w->d, dcgmUnwatchFields, w->d->engine, group, fields);
    if (pair->partial) {
        dcgm_field_group_destroy(w->d, fields);
        dcgm_group_destroy(w->d, group);
    }
    pair->made = pair->partial = false;
    w->unwatched = true;
}

void dcgm_watch_take_down(struct dcgm_watch *w, struct watch_plan *plan)
{
    for (uint32_t i = 0; i < plan->watch_count; i++)
        if (plan->watches[i].made)
            unwatch(w, plan, &plan->watches[i]);
    for (uint32_t i = 0; i < plan->field_group_count; i++)
        if (plan->field_groups[i].made)
            dcgm_field_group_destroy(w->d, plan->field_groups[i].id);
    for (uint32_t i = 0; i < plan->group_count; i++)
        if (plan->groups[i].made)
            dcgm_group_destroy(w->d, plan->groups[i].id);
}

// --- up ---

// An entity that the engine does not take, because it is gone by now perhaps, costs itself alone.
static dcgmReturn_t fill_group(struct dcgm_watch *w, struct watch_group *g)
{
    struct watch_member *members = watch_members(&w->plan, g);
    uint32_t taken = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        dcgmReturn_t result = dcgm_call(w->d, dcgmGroupAddEntity, w->d->engine, g->id,
                                        members[i].pair.entityGroupId, members[i].pair.entityId);
        if (dcgm_watch_is_of_engine(w, result))
            return result;
        members[i].refused = result != DCGM_ST_OK;
        taken += result == DCGM_ST_OK;
        if (result == DCGM_ST_OK)
            continue;
        g->result = result;
        g->lacking = true;
        for (uint32_t f = 0; f < w->field_count; f++)
            dcgm_watch_settle_cell(w, members[i].entity, w->fields[f].id, result);
    }
    if (taken)
        return DCGM_ST_OK;
    dcgm_group_destroy(w->d, g->id);
    g->made = false;
    return DCGM_ST_OK;
}

static dcgmReturn_t make_groups(struct dcgm_watch *w)
{
    for (uint32_t i = 0; i < w->plan.group_count; i++) {
        struct watch_group *g = &w->plan.groups[i];
        if (g->made)
            continue;
        g->result = dcgm_group_create(w->d, &g->id);
        g->made = g->result == DCGM_ST_OK;
        if (dcgm_watch_is_of_engine(w, g->result))
            return g->result;
        dcgmReturn_t result = g->made ? fill_group(w, g) : DCGM_ST_OK;
        if (result != DCGM_ST_OK)
            return result;
    }
    for (uint32_t i = 0; i < w->plan.field_group_count; i++) {
        struct watch_field_group *f = &w->plan.field_groups[i];
        if (f->made)
            continue;
        f->result = dcgm_field_group_create(w->d, watch_ids(&w->plan, f), f->count, &f->id);
        f->made = f->result == DCGM_ST_OK;
        if (dcgm_watch_is_of_engine(w, f->result))
            return f->result;
        dcgmReturn_t result = f->made ? DCGM_ST_OK : dcgm_watch_find_unknown(w, f);
        if (result != DCGM_ST_OK)
            return result;
    }
    return DCGM_ST_OK;
}

dcgmReturn_t dcgm_watch_ask(struct dcgm_watch *w, const struct watch_pair *pair, dcgmGpuGrp_t group,
                            dcgmFieldGrp_t fields)
{
    uint64_t period_ns = w->watch.period_ns[pair->cost];
    if (pair->profiling && period_ns < PROFILING_LEAST_NS)
        period_ns = PROFILING_LEAST_NS;
    double keep_s = KEEP_PERIODS * (double)period_ns / (double)NS_PER_S;
    return dcgm_call(w->d, dcgmWatchFields, w->d->engine, group, fields,
                     (long long)(period_ns / NS_PER_US), keep_s, KEEP_SAMPLES);
}

static dcgmReturn_t watch_pair(struct dcgm_watch *w, struct watch_pair *pair)
{
    const struct watch_group *g = &w->plan.groups[pair->group];
    const struct watch_field_group *f = &w->plan.field_groups[pair->fields];
    bool again = pair->result != DCGM_ST_OK;
    pair->result = !g->made ? g->result : !f->made ? f->result : DCGM_ST_OK;
    if (pair->result != DCGM_ST_OK) {
        dcgm_watch_settle(w, pair, pair->result);
        return DCGM_ST_OK;
    }
    pair->result = dcgm_watch_ask(w, pair, g->id, f->id);
    pair->made = pair->result == DCGM_ST_OK;
    if (dcgm_watch_is_of_engine(w, pair->result))
        return pair->result;
    if (!pair->made)
        return dcgm_watch_refine(w, pair);
    if (again)
        dcgm_watch_settle(w, pair, DCGM_ST_OK);
    return DCGM_ST_OK;
}

// What can be read is what its groups were made for.
static void note_reads(struct dcgm_watch *w)
{
    for (uint32_t i = 0; i < w->plan.read_count; i++) {
        struct watch_pair *pair = &w->plan.reads[i];
        const struct watch_group *g = &w->plan.groups[pair->group];
        const struct watch_field_group *f = &w->plan.field_groups[pair->fields];
        pair->made = g->made && f->made;
        if (!pair->made)
            dcgm_watch_settle(w, pair, g->made ? f->result : g->result);
    }
}

// Once after new watches, so that the first read has something; the engine then samples by itself.
// Where it refuses, the first reads come early: the next of a slow field is minutes away.
static dcgmReturn_t wait_for_values(struct dcgm_watch *w)
{
    dcgmReturn_t result = dcgm_call(w->d, dcgmUpdateAllFields, w->d->engine, 1);
    if (result != DCGM_ST_OK)
        w->early_until_ns = clock_mono_ns() + EARLY_NS;
    return dcgm_watch_is_of_engine(w, result) ? result : DCGM_ST_OK;
}

// What is watched stays so when something was unwatched that may overlap with it.
static dcgmReturn_t watch_once_more(struct dcgm_watch *w)
{
    dcgmReturn_t result = DCGM_ST_OK;
    for (uint32_t i = 0; i < w->plan.watch_count; i++) {
        const struct watch_pair *pair = &w->plan.watches[i];
        if (pair->made)
            result = dcgm_watch_ask(
                w, pair, pair->partial ? pair->own_group : w->plan.groups[pair->group].id,
                pair->partial ? pair->own_fields : w->plan.field_groups[pair->fields].id);
        if (dcgm_watch_is_of_engine(w, result))
            return result;
    }
    return DCGM_ST_OK;
}

dcgmReturn_t dcgm_watch_make(struct dcgm_watch *w)
{
    bool any = false;
    dcgmReturn_t result = make_groups(w);
    for (uint32_t i = 0; i < w->plan.watch_count && result == DCGM_ST_OK; i++) {
        struct watch_pair *pair = &w->plan.watches[i];
        if (pair->made)
            continue;
        result = watch_pair(w, pair);
        any |= pair->made;
    }
    note_reads(w);
    if (result == DCGM_ST_OK && w->unwatched)
        result = watch_once_more(w);
    w->unwatched = false;
    return result == DCGM_ST_OK && any ? wait_for_values(w) : result;
}

// --- again ---

static bool may_pass(dcgmReturn_t result)
{
    return result == DCGM_ST_IN_USE || result == DCGM_ST_MAX_LIMIT || result == DCGM_ST_PAUSED ||
           result == DCGM_ST_TIMEOUT || result == DCGM_ST_PENDING;
}

static bool is_asked_again(const struct watch_pair *pair, enum watch_again which)
{
    if (pair->result == DCGM_ST_OK)
        return false;
    switch (which) {
    case WATCH_AGAIN_UNMADE:
        return !pair->made;
    case WATCH_AGAIN_HELD:
        return may_pass(pair->result);
    case WATCH_AGAIN_ALL:
        break;
    }
    return true;
}

dcgmReturn_t dcgm_watch_make_again(struct dcgm_watch *w, enum watch_again which)
{
    bool any = false;
    dcgmReturn_t result = make_groups(w);
    for (uint32_t i = 0; i < w->plan.watch_count && result == DCGM_ST_OK; i++) {
        struct watch_pair *pair = &w->plan.watches[i];
        if (!is_asked_again(pair, which))
            continue;
        if (pair->made)
            unwatch(w, &w->plan, pair);
        result = watch_pair(w, pair);
        any |= pair->made;
        if (pair->made)
            w->due_ns[pair->cost] = 0;
    }
    note_reads(w);
    if (result == DCGM_ST_OK && w->unwatched)
        result = watch_once_more(w);
    w->unwatched = false;
    return result == DCGM_ST_OK && any ? wait_for_values(w) : result;
}
