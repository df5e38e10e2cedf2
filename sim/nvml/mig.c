// SPDX-License-Identifier: Apache-2.0
// MIG: modes, the walk over MIG devices, GPU instances.
#include "double.h"

#include <stdio.h>
#include <string.h>

struct nvmlGpuInstance_st {
    uint32_t magic;
    uint32_t instance; // its first compute instance in the node
};
#define GI_MAGIC 0x47495354u
static struct nvmlGpuInstance_st gi_handles[SIM_MAX_INSTANCES];

API(nvmlDeviceGetMigMode, nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    CALL_GPU(device);
    NEED(current);
    NEED(pending);
    if (!call_gpu(&c)->mig_capable)
        return NOT_SUPPORTED;
    *current = (unsigned int)sim_truth_or_zero(c.node, c.gpu, SIM_MIG_MODE, c.t);
    *pending = (unsigned int)sim_truth_or_zero(c.node, c.gpu, SIM_MIG_PENDING, c.t);
    return OK;
}

// 0 slots on a GPU without MIG.
API(nvmlDeviceGetMaxMigDeviceCount, nvmlDevice_t device, unsigned int *count)
{
    CALL_GPU(device);
    NEED(count);
    *count = call_gpu(&c)->mig_capable ? call_gpu(&c)->mig_slots : 0;
    return OK;
}

API(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
    CALL_GPU(device);
    NEED(mig);
    if (!call_gpu(&c)->mig_capable)
        return NOT_SUPPORTED;
    if (index >= call_gpu(&c)->mig_slots)
        return INVALID_ARGUMENT;
    for (uint32_t i = 0; i < c.node->instance_count; i++) {
        const struct sim_instance *x = &c.node->instances[i];
        if (x->gpu != c.gpu || x->slot != index || !sim_instance_alive(c.node, i, c.t))
            continue;
        *mig = double_mig_handle(i);
        return OK;
    }
    return NOT_FOUND;
}

API(nvmlDeviceIsMigDeviceHandle, nvmlDevice_t device, unsigned int *is)
{
    CALL_DEVICE(device);
    NEED(is);
    *is = call_is_mig(&c);
    return OK;
}

API(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice_t mig, nvmlDevice_t *device)
{
    CALL_DEVICE(mig);
    NEED(device);
    if (!call_is_mig(&c))
        return INVALID_ARGUMENT;
    *device = double_gpu_handle(c.gpu);
    return OK;
}

API(nvmlDeviceGetGpuInstanceId, nvmlDevice_t device, unsigned int *id)
{
    CALL_DEVICE(device);
    NEED(id);
    if (!call_is_mig(&c))
        return NOT_SUPPORTED;
    *id = c.node->instances[c.instance].gi;
    return OK;
}

API(nvmlDeviceGetComputeInstanceId, nvmlDevice_t device, unsigned int *id)
{
    CALL_DEVICE(device);
    NEED(id);
    if (!call_is_mig(&c))
        return NOT_SUPPORTED;
    *id = c.node->instances[c.instance].ci;
    return OK;
}

static nvmlReturn_t attributes(const struct call *c, nvmlDeviceAttributes_t *out)
{
    if (!call_is_mig(c))
        return NOT_SUPPORTED;
    const struct sim_instance *x = &c->node->instances[c->instance];
    *out = (nvmlDeviceAttributes_t){.multiprocessorCount =
                                        x->multiprocessors * x->ci_slices / x->gi_slices,
                                    .sharedCopyEngineCount = x->engines,
                                    .sharedDecoderCount = x->gi_slices >= 2 ? x->gi_slices - 1 : 0,
                                    .gpuInstanceSliceCount = x->gi_slices,
                                    .computeInstanceSliceCount = x->ci_slices,
                                    .memorySizeMB = (unsigned long long)x->memory_bytes >> 20};
    return OK;
}

API(nvmlDeviceGetAttributes_v2, nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
    CALL_DEVICE(device);
    NEED(out);
    return attributes(&c, out);
}

API(nvmlDeviceGetAttributes, nvmlDevice_t device, nvmlDeviceAttributes_v1_t *out)
{
    CALL_DEVICE(device);
    NEED(out);
    nvmlDeviceAttributes_t full;
    nvmlReturn_t code = attributes(&c, &full);
    if (code == OK)
        memcpy(out, &full, sizeof(*out));
    return code;
}

// --- GPU instances ---

API(nvmlDeviceGetGpuInstanceById, nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *gi)
{
    CALL_GPU(device);
    NEED(gi);
    if (!call_mig_enabled(&c))
        return NOT_SUPPORTED;
    for (uint32_t i = 0; i < c.node->instance_count; i++) {
        const struct sim_instance *x = &c.node->instances[i];
        if (x->gpu != c.gpu || x->gi != id || !sim_instance_alive(c.node, i, c.t))
            continue;
        gi_handles[i] = (struct nvmlGpuInstance_st){GI_MAGIC, i};
        *gi = &gi_handles[i];
        return OK;
    }
    return NOT_FOUND;
}

API(nvmlGpuInstanceGetInfo, nvmlGpuInstance_t gi, nvmlGpuInstanceInfo_t *info)
{
    CALL();
    NEED(info);
    if (!gi || gi->magic != GI_MAGIC)
        return INVALID_ARGUMENT;
    if (!sim_instance_alive(c.node, gi->instance, c.t))
        return NOT_FOUND;
    const struct sim_instance *x = &c.node->instances[gi->instance];
    *info = (nvmlGpuInstanceInfo_t){.device = double_gpu_handle(x->gpu),
                                    .id = x->gi,
                                    .profileId = x->profile_id,
                                    .placement = {x->placement, x->placement_size}};
    return OK;
}

// Profiles by their index: slices 1, 2, 3, 4 and 7, with the memory that the GPU's slices have.
static nvmlReturn_t profile_slices(const struct call *c, unsigned int profile, unsigned int *slices,
                                   unsigned int *id)
{
    static const unsigned int known[] = {1, 2, 3, 4, 7}, ids[] = {19, 14, 9, 5, 0};
    if (!call_gpu(c)->mig_capable)
        return NOT_SUPPORTED;
    if (profile >= 13)
        return INVALID_ARGUMENT;
    if (profile >= sizeof(known) / sizeof(known[0]))
        return NOT_SUPPORTED;
    *slices = known[profile];
    *id = ids[profile];
    return OK;
}

// A name and a size of memory that an instance of the scenario has, or eighths of the board.
static unsigned long long profile_memory(const struct call *c, unsigned int slices, char name[96])
{
    for (uint32_t i = 0; i < c->node->instance_count; i++) {
        const struct sim_instance *x = &c->node->instances[i];
        if (x->gpu != c->gpu || x->gi_slices != slices)
            continue;
        (void)snprintf(name, 96, "MIG %s", sim_string(c->node, x->profile));
        return (unsigned long long)x->memory_bytes >> 20;
    }
    unsigned int parts = slices >= 7 ? 8 : slices >= 3 ? 4 : slices;
    unsigned long long mib =
        (unsigned long long)sim_truth_or_zero(c->node, c->gpu, SIM_FB_TOTAL, c->t) >> 20;
    mib = mib * parts / 8;
    (void)snprintf(name, 96, "MIG %ug.%llugb", slices, (mib + 1023) / 1024);
    return mib;
}

static nvmlReturn_t profile_v3(const struct call *c, unsigned int profile,
                               nvmlGpuInstanceProfileInfo_v3_t *out)
{
    unsigned int slices, id;
    nvmlReturn_t code = profile_slices(c, profile, &slices, &id);
    if (code != OK)
        return code;
    unsigned int total = call_gpu(c)->total_slices ? call_gpu(c)->total_slices : 7;
    *out = (nvmlGpuInstanceProfileInfo_v3_t){.version = out->version,
                                             .id = id,
                                             .sliceCount = slices,
                                             .instanceCount = total / slices,
                                             .multiprocessorCount =
                                                 call_gpu(c)->multiprocessors / total * slices,
                                             .copyEngineCount = slices,
                                             .decoderCount = slices >= 2 ? slices - 1 : 0};
    out->memorySizeMB = profile_memory(c, slices, out->name);
    return OK;
}

API(nvmlDeviceGetGpuInstanceProfileInfo, nvmlDevice_t device, unsigned int profile,
    nvmlGpuInstanceProfileInfo_t *out)
{
    CALL_GPU(device);
    NEED(out);
    nvmlGpuInstanceProfileInfo_v3_t full = {0};
    nvmlReturn_t code = profile_v3(&c, profile, &full);
    if (code == OK)
        *out = (nvmlGpuInstanceProfileInfo_t){.id = full.id,
                                              .sliceCount = full.sliceCount,
                                              .instanceCount = full.instanceCount,
                                              .multiprocessorCount = full.multiprocessorCount,
                                              .copyEngineCount = full.copyEngineCount,
                                              .decoderCount = full.decoderCount,
                                              .memorySizeMB = full.memorySizeMB};
    return code;
}

static void copy_v2(const nvmlGpuInstanceProfileInfo_v3_t *full,
                    nvmlGpuInstanceProfileInfo_v2_t *out)
{
    *out = (nvmlGpuInstanceProfileInfo_v2_t){.version = out->version,
                                             .id = full->id,
                                             .sliceCount = full->sliceCount,
                                             .instanceCount = full->instanceCount,
                                             .multiprocessorCount = full->multiprocessorCount,
                                             .copyEngineCount = full->copyEngineCount,
                                             .decoderCount = full->decoderCount,
                                             .memorySizeMB = full->memorySizeMB};
    memcpy(out->name, full->name, sizeof(out->name));
}

API(nvmlDeviceGetGpuInstanceProfileInfoV, nvmlDevice_t device, unsigned int profile,
    nvmlGpuInstanceProfileInfo_v2_t *out)
{
    CALL_GPU(device);
    NEED(out);
    bool newest = out->version == VERSION_OF(nvmlGpuInstanceProfileInfo_v3_t, 3) &&
                  c.node->driver_branch >= 525;
    if (!newest && out->version != VERSION_OF(nvmlGpuInstanceProfileInfo_v2_t, 2))
        return ARGUMENT_VERSION_MISMATCH;
    nvmlGpuInstanceProfileInfo_v3_t full = {.version = out->version};
    nvmlReturn_t code = profile_v3(&c, profile, &full);
    if (code == OK && newest)
        memcpy(out, &full, sizeof(full));
    else if (code == OK)
        copy_v2(&full, out);
    return code;
}
