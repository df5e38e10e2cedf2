// SPDX-License-Identifier: Apache-2.0
// What is told about all devices together, and per pod as dcgm-exporter has it.
#include <stdlib.h>

#include "base/limits.h"
#include "base/map.h"
#include "exporter/usage_internal.h"

static void count_device(struct usage *u, struct usage_device *d)
{
    d->disagrees = false;
    for (size_t i = 0; i < d->runner_count; i++) {
        const struct usage_runner *r = &d->runners[i];
        if (!r->listed || r->own)
            continue;
        u->stats.processes++;
        u->stats.host_processes += r->kind == PROCESS_HOST;
        if (r->foreign && r->kind == PROCESS_POD && d->told_count > 0)
            d->disagrees = true;
    }
    u->stats.disagreements += d->disagrees;
    u->stats.mps_hidden = u->stats.mps_hidden || d->hidden;
}

// --- What is told once, however many processes it has ---

// Open addressing, half full at the most: a count costs as much as there are processes. What does
// not go in is not counted, and a node runs 250 pods.
struct once {
    const struct usage_runner *slots[2 * LIMIT_USAGE_COUNTED];
    size_t count;
};

static bool is_undeclared(const struct usage_runner *r)
{
    return r->listed && !r->unnamed && r->foreign && r->container != LEDGER_NONE;
}

static bool same(const struct usage_runner *a, const struct usage_runner *b)
{
    if (a->unnamed != b->unnamed)
        return false;
    return a->unnamed ? strcmp(a->pod_uid, b->pod_uid) == 0 : a->container == b->container;
}

static uint64_t hash_of(const struct usage_runner *r)
{
    if (r->unnamed)
        return map_hash(sv_from(r->pod_uid));
    return map_hash((struct sv){(const char *)&r->container, sizeof(r->container)});
}

// It was not there before, and is now.
static bool add_once(struct once *o, const struct usage_runner *r)
{
    size_t at = hash_of(r) % ARRAY_SIZE(o->slots);
    while (o->slots[at] && !same(o->slots[at], r))
        at = (at + 1) % ARRAY_SIZE(o->slots);
    if (o->slots[at] || o->count == LIMIT_USAGE_COUNTED)
        return false;
    o->slots[at] = r;
    o->count++;
    return true;
}

void usage_count(struct usage *u)
{
    struct once once = {0};
    u->stats = (struct usage_stats){.frames = u->stats.frames};
    for (size_t i = 0; i < u->device_count; i++) {
        struct usage_device *d = &u->devices[i];
        count_device(u, d);
        for (size_t k = 0; k < d->runner_count; k++) {
            const struct usage_runner *r = &d->runners[k];
            if (r->listed && r->unnamed)
                u->stats.unnamed_pods += add_once(&once, r);
            else if (is_undeclared(r))
                u->stats.undeclared += add_once(&once, r);
        }
    }
}

void usage_get_stats(const struct usage *u, struct usage_stats *out)
{
    *out = u->stats;
}

bool usage_pod_value(const struct usage *u, size_t entity, const char *pod_uid,
                     struct usage_pod_value *out)
{
    const struct usage_device *d = NULL;
    for (size_t i = 0; i < u->device_count; i++)
        if (u->devices[i].entity == entity)
            d = &u->devices[i];
    if (!d || !d->seen)
        return false;
    bool known = u->config.find && pod_uid[0];
    struct usage_pod_value v = {
        .sm_known = known && (d->flags & FRAME_USAGE_SHARES),
        .memory_known = known && (d->flags & FRAME_USAGE_PROCESSES),
    };
    for (size_t i = 0; i < d->runner_count; i++) {
        const struct usage_runner *r = &d->runners[i];
        if (!known || strcmp(r->pod_uid, pod_uid) != 0)
            continue;
        if (r->sm_to_ns)
            v.sm_percent += r->sm_ppm / 10000;
        if (r->listed && r->memory_bytes != UINT64_MAX)
            v.memory_mib += r->memory_bytes >> 20;
    }
    *out = v;
    return true;
}
