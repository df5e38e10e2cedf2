// SPDX-License-Identifier: Apache-2.0
#include "source/dcgm_profiling.h"

#include <string.h>

#include "source/dcgm_call.h"

static void add_group(struct dcgm_profiling_gpu *g, const dcgmProfMetricGroupInfo_v2 *group)
{
    uint32_t count = group->numFieldIds;
    if (count > DCGM_PROF_MAX_FIELD_IDS_PER_GROUP_V2)
        count = DCGM_PROF_MAX_FIELD_IDS_PER_GROUP_V2;
    uint16_t last = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint16_t field = group->fieldIds[i];
        if (!dcgm_field_is_profiling(field))
            continue;
        unsigned bit = field - DCGM_PROFILING_FIRST;
        g->fields[bit / 64] |= UINT64_C(1) << bit % 64;
        last = field > last ? field : last;
    }
    // The struct has room for 64 ids of the hundred there are.
    if (count == DCGM_PROF_MAX_FIELD_IDS_PER_GROUP_V2 && last > g->cut_after)
        g->cut_after = last;
}

static bool is_same(const struct dcgm_profiling_gpu *a, const struct dcgm_profiling_gpu *b)
{
    return a->result == b->result && a->cut_after == b->cut_after &&
           memcmp(a->fields, b->fields, sizeof(a->fields)) == 0;
}

dcgmReturn_t dcgm_profiling_ask(struct dcgm *d, struct dcgm_profiling *p, uint32_t gpu)
{
    dcgmProfGetMetricGroups_v3 groups = {.version = dcgmProfGetMetricGroups_version3, .gpuId = gpu};
    struct dcgm_profiling_gpu g = {.id = gpu};
    g.result = dcgm_call_gpu(d, gpu, dcgmProfGetSupportedMetricGroups, d->engine, &groups);
    if (g.result == DCGM_ST_OK)
        for (uint32_t i = 0; i < groups.numMetricGroups && i < DCGM_PROF_MAX_NUM_GROUPS_V2; i++)
            add_group(&g, &groups.metricGroups[i]);
    while (g.set < p->count && !is_same(&p->gpus[g.set], &g))
        g.set++;
    if (p->count < LIMIT_GPUS)
        p->gpus[p->count++] = g;
    return g.result;
}

static const struct dcgm_profiling_gpu *find_gpu(const struct dcgm_profiling *p, uint32_t gpu)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (p->gpus[i].id == gpu)
            return &p->gpus[i];
    return NULL;
}

dcgmReturn_t dcgm_profiling_find(const struct dcgm_profiling *p, uint32_t gpu, uint16_t field)
{
    const struct dcgm_profiling_gpu *g = find_gpu(p, gpu);
    if (!g || !dcgm_field_is_profiling(field))
        return DCGM_ST_PROFILING_NOT_SUPPORTED;
    if (g->result != DCGM_ST_OK)
        return g->result;
    unsigned bit = field - DCGM_PROFILING_FIRST;
    bool listed = g->fields[bit / 64] >> bit % 64 & 1;
    bool cut = g->cut_after && field > g->cut_after;
    return listed || cut ? DCGM_ST_OK : DCGM_ST_PROFILING_NOT_SUPPORTED;
}

uint32_t dcgm_profiling_set_of(const struct dcgm_profiling *p, uint32_t gpu)
{
    const struct dcgm_profiling_gpu *g = find_gpu(p, gpu);
    return g ? g->set : UINT32_MAX;
}

bool dcgm_profiling_is_equal(const struct dcgm_profiling *a, const struct dcgm_profiling *b)
{
    for (uint32_t i = 0; i < a->count && a->count == b->count; i++)
        if (a->gpus[i].id != b->gpus[i].id || !is_same(&a->gpus[i], &b->gpus[i]))
            return false;
    return a->count == b->count;
}
