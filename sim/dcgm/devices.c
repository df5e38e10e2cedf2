// SPDX-License-Identifier: Apache-2.0
// What an engine tells of the node: GPUs, instances, switches, links, CPUs.
#include "double.h"

#include <stdio.h>
#include <string.h>

static dcgmReturn_t list_gpus(const struct call *c, unsigned int *ids, int *count)
{
    NEED(ids && count);
    *count = (int)entity_list(c->node, SIM_ENTITY_GPU, c->t, ids, 32);
    return ST_OK;
}

API(dcgmGetAllDevices, dcgmHandle_t handle, unsigned int *ids, int *count)
{
    CALL_AT(handle);
    return list_gpus(&c, ids, count);
}

API(dcgmGetAllSupportedDevices, dcgmHandle_t handle, unsigned int *ids, int *count)
{
    CALL_AT(handle);
    return list_gpus(&c, ids, count);
}

API(dcgmGetEntityGroupEntities, dcgmHandle_t handle, int entity, unsigned int *ids, int *count,
    unsigned int flags)
{
    CALL_AT(handle);
    NEED(ids && count && *count >= 0 && entity > 0 && entity <= (DCGM_MAJOR == 4 ? 9 : 8));
    uint32_t room = (uint32_t)*count;
    uint32_t all = entity_list(c.node, entity, c.t, ids, room);
    *count = (int)all;
    return all > room ? ST_INSUFFICIENT_SIZE : ST_OK;
}

static void text(const struct sim_node *n, char out[256], uint32_t at)
{
    const char *s = sim_string(n, at);
    (void)snprintf(out, 256, "%s", s[0] ? s : "<<<NULL>>>");
}

static unsigned int number(const struct call *c, uint32_t gpu, enum sim_field field, int64_t divide)
{
    int64_t value;
    return sim_truth(c->node, gpu, field, c->t, &value) == 0 ? (unsigned int)(value / divide)
                                                             : BLANK_I32;
}

static void fill_identifiers(const struct call *c, uint32_t gpu, dcgmDeviceIdentifiers_v1 *out)
{
    static const char *const brands[] = {"Unknown", "Quadro", "Tesla"};
    const struct sim_gpu *g = &c->node->gpus[gpu];
    out->version = WORD(dcgmDeviceIdentifiers_v1, 1);
    (void)snprintf(out->brandName, sizeof(out->brandName), "%s",
                   g->brand < 3 ? brands[g->brand] : "NVIDIA");
    text(c->node, out->deviceName, g->name);
    text(c->node, out->pciBusId, g->bus_id);
    text(c->node, out->serial, g->serial);
    text(c->node, out->uuid, g->uuid);
    text(c->node, out->vbios, g->vbios);
    text(c->node, out->inforomImageVersion, g->inforom_image);
    out->pciDeviceId = g->pci_device_id;
    out->pciSubSystemId = g->pci_subsystem_id;
    (void)snprintf(out->driverVersion, sizeof(out->driverVersion), "%s", c->node->driver_version);
    out->virtualizationMode = number(c, gpu, SIM_VIRTUALIZATION, 1);
}

static void fill_memory(const struct call *c, uint32_t gpu, dcgmDeviceMemoryUsage_v1 *out)
{
    struct sim_memory m;
    out->version = WORD(dcgmDeviceMemoryUsage_v1, 1);
    out->bar1Total = number(c, gpu, SIM_BAR1_TOTAL, 1 << 20);
    out->fbTotal = out->fbUsed = out->fbFree = BLANK_I32;
    if (sim_gpu_memory(c->node, gpu, c->t, &m) != 0)
        return;
    out->fbTotal = (unsigned int)(m.total >> 20);
    out->fbUsed = (unsigned int)(m.used >> 20);
    out->fbFree = (unsigned int)(m.free >> 20);
}

API(dcgmGetDeviceAttributes, dcgmHandle_t handle, unsigned int id, dcgmDeviceAttributes_v3 *out)
{
    CALL_GPU(handle, id);
    struct target at;
    NEED(out);
    if (out->version != WORD(dcgmDeviceAttributes_v3, 3))
        return ST_VER_MISMATCH;
    NEED(target_find(c.node, SIM_ENTITY_GPU, id, c.t, &at) == 0);
    *out = (dcgmDeviceAttributes_v3){.version = WORD(dcgmDeviceAttributes_v3, 3)};
    out->clockSets.version = (int)WORD(dcgmDeviceSupportedClockSets_v1, 1);
    out->thermalSettings = (dcgmDeviceThermals_v1){WORD(dcgmDeviceThermals_v1, 1),
                                                   number(&c, at.gpu, SIM_TEMP_SLOWDOWN, 1),
                                                   number(&c, at.gpu, SIM_TEMP_SHUTDOWN, 1)};
    out->powerLimits =
        (dcgmDevicePowerLimits_v1){WORD(dcgmDevicePowerLimits_v1, 1),
                                   number(&c, at.gpu, SIM_POWER_LIMIT, 1000),
                                   number(&c, at.gpu, SIM_POWER_LIMIT_DEFAULT, 1000),
                                   number(&c, at.gpu, SIM_POWER_LIMIT_ENFORCED, 1000),
                                   number(&c, at.gpu, SIM_POWER_LIMIT_MIN, 1000),
                                   number(&c, at.gpu, SIM_POWER_LIMIT_MAX, 1000)};
    fill_identifiers(&c, at.gpu, &out->identifiers);
    fill_memory(&c, at.gpu, &out->memoryUsage);
    out->settings = (dcgmDeviceSettings_v2){WORD(dcgmDeviceSettings_v2, 2),
                                            number(&c, at.gpu, SIM_PERSISTENCE, 1),
                                            number(&c, at.gpu, SIM_MIG_MODE, 1), 0};
    return ST_OK;
}

#if DCGM_MAJOR == 4
API(dcgmGetGpuStatus, dcgmHandle_t handle, unsigned int id, int *out)
{
    CALL_GPU(handle, id);
    struct target at;
    NEED(out && target_find(c.node, SIM_ENTITY_GPU, id, c.t, &at) == 0);
    int code = sim_gpu_return(c.node, at.gpu, SIM_ALWAYS, c.t);
    *out = code == 15 ? 4 : code == 4 ? 3 : 1;
    return ST_OK;
}
#endif

// --- MIG ---

// Profiles of GPU instances and of compute instances, by slices.
static unsigned int slices_of(const struct sim_instance *x, int entity)
{
    return entity == SIM_ENTITY_GPU_I ? x->gi_slices : x->ci_slices;
}

static void add_instance(const struct call *c, int entity, unsigned int id,
                         dcgmMigHierarchy_v2 *out)
{
    struct target at;
    if (target_find(c->node, entity, id, c->t, &at) != 0 || out->count == 448)
        return;
    const struct sim_instance *x = &c->node->instances[at.instance];
    unsigned int gpu_id = gpu_id_of(c->node, at.gpu), parent = gpu_id;
    if (entity == SIM_ENTITY_GPU_CI) {
        struct target gi;
        parent = gpu_id * 8;
        while (target_find(c->node, SIM_ENTITY_GPU_I, parent, c->t, &gi) == 0 && gi.gi != at.gi)
            parent++;
    }
    dcgmMigHierarchyInfo_v2 *row = &out->entityList[out->count++];
    *row = (dcgmMigHierarchyInfo_v2){
        .entity = {entity, id},
        .parent = {entity == SIM_ENTITY_GPU_I ? SIM_ENTITY_GPU : SIM_ENTITY_GPU_I, parent},
        .info = {.nvmlGpuIndex = at.gpu,
                 .nvmlInstanceId = x->gi,
                 .nvmlComputeInstanceId = entity == SIM_ENTITY_GPU_CI ? x->ci : 0,
                 .nvmlMigProfileId = x->profile_id,
                 .nvmlProfileSlices = slices_of(x, entity)}};
    (void)snprintf(row->info.gpuUuid, sizeof(row->info.gpuUuid), "%s",
                   sim_string(c->node, c->node->gpus[at.gpu].uuid));
}

API(dcgmGetGpuInstanceHierarchy, dcgmHandle_t handle, dcgmMigHierarchy_v2 *out)
{
    CALL_AT(handle);
    NEED(out);
    if (out->version != WORD(dcgmMigHierarchy_v2, 2))
        return ST_VER_MISMATCH;
    out->count = 0;
    for (unsigned int id = 0; id < c.node->gpu_count * 8; id++) {
        add_instance(&c, SIM_ENTITY_GPU_I, id, out);
        struct target gi;
        if (target_find(c.node, SIM_ENTITY_GPU_I, id, c.t, &gi) != 0)
            continue;
        for (unsigned int ci = id / 8 * 8; ci < id / 8 * 8 + 8; ci++) {
            struct target at;
            if (target_find(c.node, SIM_ENTITY_GPU_CI, ci, c.t, &at) == 0 && at.gi == gi.gi)
                add_instance(&c, SIM_ENTITY_GPU_CI, ci, out);
        }
    }
    return ST_OK;
}

// --- Links ---

// States of the links of a GPU (its index in the node) or of a switch.
static void fill_links(const struct sim_node *n, enum sim_entity owner, uint32_t id, int *out,
                       uint32_t count)
{
    memset(out, 0, count * sizeof(*out));
    for (uint32_t i = 0; i < n->dcgm.link_count; i++) {
        const struct sim_link *l = &n->dcgm.links[i];
        if (l->owner == owner && l->id == id && l->index < count)
            out[l->index] = (int)atomic_load(&l->state);
    }
}

API(dcgmGetNvLinkLinkStatus, dcgmHandle_t handle, dcgmNvLinkStatus *out)
{
    CALL_AT(handle);
    NEED(out);
    if (out->version != WORD(dcgmNvLinkStatus, LINK_STATUS_VERSION))
        return ST_VER_MISMATCH;
    out->numGpus = c.node->gpu_count;
    for (unsigned int i = 0; i < c.node->gpu_count; i++) {
        out->gpus[i].entityId = i;
        fill_links(c.node, SIM_ENTITY_GPU, c.node->dcgm.order[i], out->gpus[i].linkState,
                   LINKS_OF_GPU);
    }
    out->numNvSwitches = c.node->dcgm.switch_count;
    for (unsigned int i = 0; i < c.node->dcgm.switch_count; i++) {
        unsigned int id = c.node->dcgm.switches[i];
        out->nvSwitches[i].entityId = id;
        fill_links(c.node, SIM_ENTITY_SWITCH, id, out->nvSwitches[i].linkState, LINKS_OF_SWITCH);
    }
    return ST_OK;
}

#if DCGM_MAJOR == 4
API(dcgmGetNvLinkP2PStatus, dcgmHandle_t handle, dcgmNvLinkP2PStatus_v1 *out)
{
    CALL_AT(handle);
    NEED(out);
    if (out->version != WORD(dcgmNvLinkP2PStatus_v1, 1))
        return ST_VER_MISMATCH;
    const struct sim_dcgm *d = &c.node->dcgm;
    out->numGpus = c.node->gpu_count;
    for (unsigned int i = 0; i < c.node->gpu_count; i++) {
        out->gpus[i].entityId = i;
        for (unsigned int k = 0; k < c.node->gpu_count; k++)
            out->gpus[i].linkStatus[k] = (int)atomic_load(&d->peers[d->order[i]][d->order[k]]);
    }
    return ST_OK;
}
#endif

// --- CPUs ---

static void fill_cores(const struct sim_cpu *cpu, dcgmCpuHierarchyOwnedCores_v1 *out)
{
    out->version = WORD(dcgmCpuHierarchyOwnedCores_v1, 1);
    memcpy(out->bitmask, cpu->cores, sizeof(out->bitmask));
}

API(dcgmGetCpuHierarchy, dcgmHandle_t handle, dcgmCpuHierarchy_v1 *out)
{
    CALL_AT(handle);
    NEED(out);
    if (out->version != WORD(dcgmCpuHierarchy_v1, 1))
        return ST_VER_MISMATCH;
    out->numCpus = c.node->dcgm.cpu_count;
    for (unsigned int i = 0; i < out->numCpus; i++) {
        out->cpus[i].cpuId = c.node->dcgm.cpus[i].id;
        fill_cores(&c.node->dcgm.cpus[i], &out->cpus[i].ownedCores);
    }
    return ST_OK;
}

#if DCGM_MAJOR == 4
API(dcgmGetCpuHierarchy_v2, dcgmHandle_t handle, dcgmCpuHierarchy_v2 *out)
{
    CALL_AT(handle);
    NEED(out);
    if (out->version != WORD(dcgmCpuHierarchy_v2, 2))
        return ST_VER_MISMATCH;
    out->numCpus = c.node->dcgm.cpu_count;
    for (unsigned int i = 0; i < out->numCpus; i++) {
        out->cpus[i].cpuId = c.node->dcgm.cpus[i].id;
        fill_cores(&c.node->dcgm.cpus[i], &out->cpus[i].ownedCores);
        text(c.node, out->cpus[i].serial, c.node->dcgm.cpus[i].serial);
    }
    return ST_OK;
}
#endif
