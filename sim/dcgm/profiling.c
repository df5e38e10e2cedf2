// SPDX-License-Identifier: Apache-2.0
// Which profiling metrics a GPU can measure together, and their pause for other tools.
#include "double.h"

#include <string.h>

// Groups with one major and several minors share hardware counters. Before Hopper the pipes fall
// into passes; a GPU with GPM measures all at once.
static const struct sim_prof_group turing[] = {
    {1, 1, 4, {1002, 1003, 1004, 1007}},
    {1, 2, 1, {1006}},
    {1, 3, 1, {1008}},
    {2, 0, 1, {1005}},
    {3, 0, 2, {1009, 1010}},
    {4, 0, 1, {1001}},
};
static const struct sim_prof_group ampere[] = {
    {1, 1, 6, {1002, 1003, 1004, 1006, 1013, 1014}},
    {1, 2, 2, {1007, 1008}},
    {2, 0, 1, {1005}},
    {3, 0, 2, {1009, 1010}},
    {4, 0, 1, {1001}},
    {5, 0, 2, {1011, 1012}},
};
static const struct sim_prof_group gpm[] = {
    {1,
     0,
     16,
     {1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 1015,
      1016}},
};

#define COUNT(list) ((uint32_t)(sizeof(list) / sizeof((list)[0])))

static uint32_t groups_of(const struct sim_gpu *g, const struct sim_prof_group **out)
{
    *out = g->prof_groups;
    if (g->prof_group_count > 0)
        return g->prof_group_count;
    *out = g->gpm ? gpm : g->architecture >= 7 ? ampere : turing;
    if (g->gpm)
        return COUNT(gpm);
    if (g->architecture < 7)
        return COUNT(turing);
    return COUNT(ampere) - (g->links > 0 ? 0 : 1); // the last group is NVLink's
}

bool profiling_measures(const struct sim_gpu *g, uint16_t field)
{
    const struct sim_prof_group *list;
    uint32_t count = groups_of(g, &list);
    if (g->gpm && g->prof_group_count == 0)
        return true; // what GPM doesn't know is blank
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < list[i].count; k++) {
            if (list[i].fields[k] == field)
                return true;
        }
    }
    return false;
}

API(dcgmProfGetSupportedMetricGroups, dcgmHandle_t handle, dcgmProfGetMetricGroups_v3 *out)
{
    CALL_GPU(handle, out ? out->gpuId : SIM_NONE);
    struct target at;
    NEED(out);
    if (out->version != WORD(dcgmProfGetMetricGroups_v3, 3))
        return ST_VER_MISMATCH;
    NEED(target_find(c.node, SIM_ENTITY_GPU, out->gpuId, c.t, &at) == 0);
    int64_t code = sim_truth_or_zero(c.node, SIM_NODE, SIM_DCGM_PROFILING, c.t);
    if (code != ST_OK && code != -34) // in use: known, but not to be had
        return (dcgmReturn_t)code;
    const struct sim_prof_group *list;
    uint32_t count = groups_of(&c.node->gpus[at.gpu], &list);
    out->numMetricGroups = count;
    for (uint32_t i = 0; i < count; i++) {
        out->metricGroups[i] = (dcgmProfMetricGroupInfo_v2){
            .majorId = list[i].major, .minorId = list[i].minor, .numFieldIds = list[i].count};
        memcpy(out->metricGroups[i].fieldIds, list[i].fields, sizeof(list[i].fields));
    }
    return ST_OK;
}

API(dcgmProfPause, dcgmHandle_t handle)
{
    CALL_AT(handle);
    atomic_store(&c.node->dcgm.paused, 1);
    return ST_OK;
}

API(dcgmProfResume, dcgmHandle_t handle)
{
    CALL_AT(handle);
    atomic_store(&c.node->dcgm.paused, 0);
    return ST_OK;
}
