// SPDX-License-Identifier: Apache-2.0
// Health watches: what the scenario's incidents say of the entities of a group, for the systems
// that are watched.
#include "double.h"

#include <stdio.h>

API(dcgmHealthSet_v2, dcgmHandle_t handle, dcgmHealthSetParams_v2 *params)
{
    CALL_AT(handle);
    NEED(params);
    if (params->version != WORD(dcgmHealthSetParams_v2, 2))
        return ST_VER_MISMATCH;
    struct group *g = group_find(c.at, params->groupId);
    if (!g)
        return ST_NOT_CONFIGURED;
    NEED(params->updateInterval > 0 && params->maxKeepAge > 0);
    g->health_systems = params->systems;
    return ST_OK;
}

static bool in_group(const struct call *c, const struct group *g, const struct sim_incident *x,
                     dcgmGroupEntityPair_t *out)
{
    for (uint32_t i = 0; i < g->count; i++) {
        struct target at;
        if (target_find(c->node, g->list[i].entityGroupId, g->list[i].entityId, c->t, &at) != 0 ||
            (uint32_t)at.entity != x->entity || at.key != x->key)
            continue;
        *out = g->list[i];
        return true;
    }
    return false;
}

API(dcgmHealthCheck, dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmHealthResponse *out)
{
    CALL_AT(handle);
    NEED(out);
    if (out->version != WORD(dcgmHealthResponse, HEALTH_VERSION))
        return ST_VER_MISMATCH;
    struct group *g = group_find(c.at, group);
    if (!g)
        return ST_NOT_CONFIGURED;
    out->overallHealth = 0;
    out->incidentCount = 0;
    uint32_t count = atomic_load_explicit(&c.node->dcgm.incident_count, memory_order_acquire);
    for (uint32_t i = 0; i < count && out->incidentCount < MAX_INCIDENTS; i++) {
        const struct sim_incident *x = &c.node->dcgm.incidents[i];
        dcgmGroupEntityPair_t entity;
        if (c.t < x->from_ns || c.t >= atomic_load(&x->until_ns) ||
            !(g->health_systems & (int)x->system) || !in_group(&c, g, x, &entity))
            continue;
        dcgmIncidentInfo_t *row = &out->incidents[out->incidentCount++];
        *row = (dcgmIncidentInfo_t){.system = (int)x->system,
                                    .health = (int)x->result,
                                    .error.code = x->code,
                                    .entityInfo = entity};
        (void)snprintf(row->error.msg, sizeof(row->error.msg), "%s", sim_string(c.node, x->text));
        if (out->overallHealth < row->health)
            out->overallHealth = row->health;
    }
    return ST_OK;
}
