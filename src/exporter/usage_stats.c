// SPDX-License-Identifier: Apache-2.0
// What is told about all devices together, and per pod as dcgm-exporter has it.
#include <stdlib.h>

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

// The first of its kind, in order of device and pid: so each is counted once.
static bool is_first(const struct usage *u, size_t device, size_t runner,
                     bool (*same)(const struct usage_runner *, const struct usage_runner *))
{
    const struct usage_runner *r = &u->devices[device].runners[runner];
    for (size_t i = 0; i <= device; i++) {
        const struct usage_device *d = &u->devices[i];
        size_t end = i == device ? runner : d->runner_count;
        for (size_t k = 0; k < end; k++)
            if (same(&d->runners[k], r))
                return false;
    }
    return true;
}

static bool same_unnamed(const struct usage_runner *a, const struct usage_runner *b)
{
    return a->listed && a->unnamed && strcmp(a->pod_uid, b->pod_uid) == 0;
}

static bool is_undeclared(const struct usage_runner *r)
{
    return r->listed && r->foreign && r->container != LEDGER_NONE;
}

static bool same_undeclared(const struct usage_runner *a, const struct usage_runner *b)
{
    return is_undeclared(a) && a->container == b->container;
}

void usage_count(struct usage *u)
{
    u->stats = (struct usage_stats){.frames = u->stats.frames};
    for (size_t i = 0; i < u->device_count; i++)
        count_device(u, &u->devices[i]);
    for (size_t i = 0; i < u->device_count; i++) {
        const struct usage_device *d = &u->devices[i];
        for (size_t k = 0; k < d->runner_count; k++) {
            const struct usage_runner *r = &d->runners[k];
            if (r->listed && r->unnamed)
                u->stats.unnamed_pods += is_first(u, i, k, same_unnamed);
            else if (is_undeclared(r))
                u->stats.undeclared += is_first(u, i, k, same_undeclared);
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
