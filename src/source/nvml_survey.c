// SPDX-License-Identifier: Apache-2.0
// MIG is walked as any user may: slot by slot through the compute instances, since the list of GPU
// instances itself needs root. A GPU instance without a compute instance is thus not seen; it can
// run nothing either.
#include "source/nvml_survey.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "source/nvml_call.h"

void nvml_format_bus_id(char out[32], unsigned int domain, unsigned int bus, unsigned int device)
{
    (void)snprintf(out, 32, "%08X:%02X:%02X.0", domain, bus & 0xff, device & 0xff);
}

void nvml_mig_profile(char out[32], const char *device_name, unsigned int slices,
                      unsigned long long memory_mib)
{
    struct sv name = sv_from(device_name);
    size_t at = sv_find(name, SV(" MIG "));
    out[0] = '\0';
    if (at != (size_t)-1) {
        struct sv profile = sv_sub(name, at + 5, name.len);
        // "1c.3g.20gb" is a compute instance of 1 slice in the GPU instance "3g.20gb".
        size_t dot = sv_find_char(profile, '.');
        if (dot != (size_t)-1 && dot > 1 && profile.ptr[dot - 1] == 'c')
            profile = sv_sub(profile, dot + 1, profile.len);
        sv_copy(out, 32, profile);
    } else if (slices && memory_mib) {
        (void)snprintf(out, 32, "%ug.%llugb", slices, (memory_mib + 1023) / 1024);
    }
}

static enum frame_entity_state state_without_handle(nvmlReturn_t result)
{
    enum frame_entity_state state = nvml_state_of(result);
    if (state != FRAME_ENTITY_UP)
        return state;
    return result == NVML_ERROR_NO_PERMISSION ? FRAME_ENTITY_NO_PERMISSION : FRAME_ENTITY_FAILED;
}

static struct nvml_entity *add_entity(struct nvml_survey *b)
{
    if (b->count >= LIMIT_ENTITIES)
        return NULL;
    if (b->count == b->capacity) {
        uint32_t capacity = b->capacity ? b->capacity * 2 : 8;
        struct nvml_entity *list = realloc(b->list, capacity * sizeof(*list));
        if (!list) {
            b->no_memory = true;
            return NULL;
        }
        b->list = list;
        b->capacity = capacity;
    }
    struct nvml_entity *e = &b->list[b->count++];
    memset(e, 0, sizeof(*e));
    return e;
}

// Evidence outlives the GPU: who it was stays known.
static void copy_identity(struct nvml_entity *e, const struct nvml_entity *known)
{
    if (!known)
        return;
    e->record.minor = known->record.minor;
    e->record.gpm = known->record.gpm;
    e->record.mig_enabled = known->record.mig_enabled;
    e->record.total_slices = known->record.total_slices;
    memcpy(e->record.uuid, known->record.uuid, sizeof(e->record.uuid));
    memcpy(e->record.name, known->record.name, sizeof(e->record.name));
    memcpy(e->record.bus_id, known->record.bus_id, sizeof(e->record.bus_id));
}

static void read_bus_id(struct nvml *n, struct nvml_entity *e)
{
    nvmlPciInfo_t pci = {0};
    if (nvml_call(n, e->record.index, nvmlDeviceGetPciInfo, e->device, &pci) != NVML_SUCCESS)
        return;
    if (n->fn.generation.nvmlDeviceGetPciInfo == 1)
        sv_copy(e->record.bus_id, sizeof(e->record.bus_id),
                (struct sv){pci.busId, strnlen(pci.busId, sizeof(pci.busId))});
    else
        nvml_format_bus_id(e->record.bus_id, pci.domain, pci.bus, pci.device);
}

// The library writes text of at most `bytes`; the copy in a record is zeroed behind its end.
static nvmlReturn_t read_uuid(struct nvml *n, uint32_t index, nvmlDevice_t device, char out[96])
{
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    nvmlReturn_t result =
        nvml_call(n, index, nvmlDeviceGetUUID, device, text, (unsigned int)sizeof(text));
    text[sizeof(text) - 1] = '\0';
    if (result == NVML_SUCCESS)
        sv_copy(out, 96, sv_from(text));
    return result;
}

static void read_name(struct nvml *n, uint32_t index, nvmlDevice_t device, char out[96])
{
    char text[NVML_DEVICE_NAME_V2_BUFFER_SIZE] = "";
    nvmlReturn_t result =
        nvml_call(n, index, nvmlDeviceGetName, device, text, (unsigned int)sizeof(text));
    text[sizeof(text) - 1] = '\0';
    sv_copy(out, 96, result == NVML_SUCCESS ? sv_from(text) : SV(""));
}

// What does not change while the GPU is there. The result of the UUID call stands for the GPU.
static nvmlReturn_t read_identity(struct nvml *n, struct nvml_entity *e)
{
    nvmlReturn_t result = read_uuid(n, e->record.index, e->device, e->record.uuid);
    if (result != NVML_SUCCESS)
        return result;
    read_name(n, e->record.index, e->device, e->record.name);
    read_bus_id(n, e);
    unsigned int minor = 0;
    if (nvml_call(n, e->record.index, nvmlDeviceGetMinorNumber, e->device, &minor) == NVML_SUCCESS)
        e->record.minor = minor;
    e->record.gpm = nvml_gpm_supported(n, e->device, e->record.index);
    return NVML_SUCCESS;
}

static bool has_instance(const struct nvml_survey *b, uint32_t gpu, uint32_t instance_id)
{
    for (uint32_t i = gpu + 1; i < b->count; i++)
        if (b->list[i].record.gpu_instance_id == instance_id)
            return true;
    return false;
}

// The first number of "3g.20gb".
static uint32_t slices_of_profile(const char *profile)
{
    uint64_t slices = 0;
    size_t g = sv_find_char(sv_from(profile), 'g');
    if (g == (size_t)-1 || num_parse_u64((struct sv){profile, g}, 1, 16, &slices) < 0)
        return 0;
    return (uint32_t)slices;
}

static void describe_instance(struct nvml *n, struct nvml_entity *e, const struct frame_entity *gpu)
{
    nvmlDeviceAttributes_t attributes = {0};
    char name[96];
    unsigned int compute_instance = 0;
    nvmlReturn_t result = nvml_call(n, gpu->index, nvmlDeviceGetAttributes, e->device, &attributes);
    if (result != NVML_SUCCESS || n->fn.generation.nvmlDeviceGetAttributes != 1)
        attributes =
            (nvmlDeviceAttributes_t){0}; // the first generation has no slices and no memory
    read_name(n, gpu->index, e->device, name);
    nvml_mig_profile(e->record.profile, name, attributes.gpuInstanceSliceCount,
                     attributes.memorySizeMB);
    uint32_t slices = attributes.gpuInstanceSliceCount;
    if (!slices)
        slices = slices_of_profile(e->record.profile);
    e->record.slices = slices < gpu->total_slices ? slices : gpu->total_slices;
    (void)nvml_call(n, gpu->index, nvmlDeviceGetComputeInstanceId, e->device, &compute_instance);
    const char *uuid = strncmp(gpu->uuid, "GPU-", 4) == 0 ? gpu->uuid + 4 : gpu->uuid;
    (void)snprintf(e->record.legacy_uuid, sizeof(e->record.legacy_uuid), "MIG-GPU-%.64s/%u/%u",
                   uuid, e->record.gpu_instance_id, compute_instance);
}

static const struct frame_entity *find_old_instance(const struct nvml_survey *b,
                                                    const struct frame_entity *e)
{
    for (uint32_t i = 0; i < b->old->count; i++) {
        const struct frame_entity *old = &b->old->list[i].record;
        if (old->kind == e->kind && old->index == e->index && e->uuid[0] &&
            old->gpu_instance_id == e->gpu_instance_id && old->slices == e->slices &&
            strcmp(old->uuid, e->uuid) == 0 && strcmp(old->profile, e->profile) == 0)
            return old;
    }
    return NULL;
}

// Asked once: an instance stays where it is, and who may not know it is not told later either.
static void read_placement(const struct nvml_survey *b, struct nvml_entity *e, nvmlDevice_t gpu)
{
    const struct frame_entity *old = find_old_instance(b, &e->record);
    nvmlGpuInstance_t instance = NULL;
    nvmlGpuInstanceInfo_t info = {0};
    if (old) {
        e->record.profile_id = old->profile_id;
        e->record.placement = old->placement;
        return;
    }
    uint32_t index = e->record.index;
    nvmlReturn_t result = nvml_call(b->n, index, nvmlDeviceGetGpuInstanceById, gpu,
                                    e->record.gpu_instance_id, &instance);
    if (result == NVML_SUCCESS)
        result = nvml_call(b->n, index, nvmlGpuInstanceGetInfo, instance, &info);
    if (result != NVML_SUCCESS)
        return;
    e->record.profile_id = info.profileId;
    e->record.placement = info.placement.start;
}

// One slot of the MIG walk: a compute instance. The first of its GPU instance makes the record.
static nvmlReturn_t add_slot(struct nvml_survey *b, uint32_t gpu, unsigned int slot,
                             uint32_t *ordinal)
{
    struct nvml *n = b->n;
    uint32_t index = b->list[gpu].record.index;
    nvmlDevice_t device = NULL;
    unsigned int instance_id = 0;
    nvmlReturn_t result = nvml_call(n, index, nvmlDeviceGetMigDeviceHandleByIndex,
                                    b->list[gpu].device, slot, &device);
    if (result == NVML_SUCCESS)
        result = nvml_call(n, index, nvmlDeviceGetGpuInstanceId, device, &instance_id);
    if (result != NVML_SUCCESS || has_instance(b, gpu, instance_id))
        return result;
    struct nvml_entity *e = add_entity(b);
    if (!e)
        return NVML_SUCCESS;
    const struct frame_entity *parent = &b->list[gpu].record;
    e->device = device;
    e->record = (struct frame_entity){
        .kind = FRAME_ENTITY_GPU_I,
        .gpm = parent->gpm,
        .index = parent->index,
        .parent = gpu,
        .minor = parent->minor,
        .gpu_instance_id = instance_id,
        .instance_entity_id = parent->index * parent->total_slices + (*ordinal)++,
        .id = UINT32_MAX,
        .profile_id = UINT32_MAX,
        .placement = UINT32_MAX,
        .total_slices = parent->total_slices,
    };
    memcpy(e->record.name, parent->name, sizeof(e->record.name));
    memcpy(e->record.bus_id, parent->bus_id, sizeof(e->record.bus_id));
    result = read_uuid(n, index, device, e->record.uuid);
    describe_instance(n, e, parent);
    read_placement(b, e, b->list[gpu].device);
    return result;
}

static nvmlReturn_t add_instances(struct nvml_survey *b, uint32_t gpu)
{
    struct nvml *n = b->n;
    struct nvml_entity *e = &b->list[gpu];
    unsigned int current = 0, pending = 0, slots = 0;
    nvmlReturn_t result =
        nvml_call(n, e->record.index, nvmlDeviceGetMigMode, e->device, &current, &pending);
    e->mig_capable = result == NVML_SUCCESS;
    e->record.mig_enabled = e->mig_capable && current == NVML_DEVICE_MIG_ENABLE;
    e->record.total_slices = 0;
    if (!e->record.mig_enabled)
        return result;
    result = nvml_call(n, e->record.index, nvmlDeviceGetMaxMigDeviceCount, e->device, &slots);
    if (result != NVML_SUCCESS)
        return result;
    e->record.total_slices = slots = slots < 64 ? slots : 64;
    uint32_t ordinal = 0;
    for (unsigned int slot = 0; slot < slots; slot++) {
        result = add_slot(b, gpu, slot, &ordinal);
        if (nvml_state_of(result) != FRAME_ENTITY_UP)
            return result;
    }
    return NVML_SUCCESS;
}

// Of a GPU that is not asked now, the instances it had.
static void keep_instances(struct nvml_survey *b, uint32_t gpu)
{
    const struct nvml_devices *d = b->old;
    for (uint32_t i = 0; i < d->count; i++) {
        const struct nvml_entity *old = &d->list[i];
        if (nvml_entity_is_gpu(old) || old->record.index != b->list[gpu].record.index)
            continue;
        struct nvml_entity *e = add_entity(b);
        if (!e)
            return;
        e->record = old->record;
        e->record.parent = gpu;
        e->record.state = b->list[gpu].record.state;
        e->device = old->device;
    }
}

static struct nvml_entity *add_gpu(struct nvml_survey *b, uint32_t index)
{
    uint32_t position = b->count;
    struct nvml_entity *e = add_entity(b);
    if (!e)
        return NULL;
    e->record = (struct frame_entity){
        .kind = FRAME_ENTITY_GPU,
        .index = index,
        .parent = position,
        .minor = UINT32_MAX,
        .gpu_instance_id = UINT32_MAX,
        .instance_entity_id = UINT32_MAX,
        .id = UINT32_MAX,
        .profile_id = UINT32_MAX,
        .placement = UINT32_MAX,
    };
    return e;
}

static bool is_skipped(const struct nvml_devices *d, uint32_t index)
{
    return d->skipped >> index & 1;
}

void nvml_survey_gpu(struct nvml_survey *b, uint32_t index)
{
    struct nvml *n = b->n;
    uint32_t before = nvml_devices_find_index(b->old, index);
    const struct nvml_entity *known = before == UINT32_MAX ? NULL : &b->old->list[before];
    struct nvml_entity *e = add_gpu(b, index);
    if (!e)
        return;
    uint32_t gpu = b->count - 1;
    if (is_skipped(b->old, index)) {
        copy_identity(e, known);
        if (!known && b->old->skipped_bus_ids && b->old->skipped_bus_ids[index])
            sv_copy(e->record.bus_id, sizeof(e->record.bus_id),
                    sv_from(b->old->skipped_bus_ids[index]));
        e->record.state = FRAME_ENTITY_SKIPPED;
        return;
    }
    nvmlReturn_t result = nvml_call(n, index, nvmlDeviceGetHandleByIndex, index, &e->device);
    if (result != NVML_SUCCESS)
        e->device = NULL;
    else
        result = read_identity(n, e);
    if (result != NVML_SUCCESS) {
        copy_identity(e, known);
        e->record.state = (uint8_t)state_without_handle(result);
        keep_instances(b, gpu);
        return;
    }
    result = add_instances(b, gpu);
    b->list[gpu].record.state = (uint8_t)nvml_state_of(result);
}

// Is the GPU that was there still there? The UUID may come from the library's memory, so something
// of the hardware is asked too of one that had been lost.
static nvmlReturn_t probe(struct nvml *n, const struct nvml_entity *old)
{
    char uuid[96] = "";
    nvmlReturn_t result = read_uuid(n, old->record.index, old->device, uuid);
    if (result == NVML_SUCCESS && strcmp(uuid, old->record.uuid) != 0)
        return NVML_ERROR_NOT_FOUND;
    if (result == NVML_SUCCESS && old->record.state == FRAME_ENTITY_LOST) {
        unsigned int celsius;
        result = nvml_call(n, old->record.index, nvmlDeviceGetTemperature, old->device,
                           NVML_TEMPERATURE_GPU, &celsius);
        result = nvml_state_of(result) == FRAME_ENTITY_LOST ? result : NVML_SUCCESS;
    }
    return result;
}

void nvml_survey_again(struct nvml_survey *b, const struct nvml_entity *old)
{
    uint32_t index = old->record.index;
    bool closed = old->record.state == FRAME_ENTITY_SKIPPED ||
                  old->record.state == FRAME_ENTITY_NO_PERMISSION;
    nvmlReturn_t result = closed || !old->device ? NVML_ERROR_NOT_FOUND : probe(b->n, old);
    if (!closed && (result == NVML_ERROR_NOT_FOUND || !old->device)) {
        nvml_survey_gpu(b, index);
        return;
    }
    struct nvml_entity *e = add_gpu(b, index);
    if (!e)
        return;
    uint32_t gpu = b->count - 1;
    copy_identity(e, old);
    e->device = old->device;
    e->mig_capable = old->mig_capable;
    e->record.state = old->record.state;
    if (closed || result != NVML_SUCCESS) {
        if (nvml_state_of(result) != FRAME_ENTITY_UP)
            e->record.state = (uint8_t)nvml_state_of(result);
        keep_instances(b, gpu);
        return;
    }
    result = old->mig_capable ? add_instances(b, gpu) : NVML_SUCCESS;
    enum frame_entity_state state = nvml_state_of(result);
    if (state == FRAME_ENTITY_UP && old->record.state == FRAME_ENTITY_RESET_REQUIRED &&
        old->reset_seen)
        state = FRAME_ENTITY_RESET_REQUIRED;
    if (state == FRAME_ENTITY_UP && old->record.state == FRAME_ENTITY_FAILED)
        state = FRAME_ENTITY_FAILED; // until a sample has an answer
    b->list[gpu].record.state = (uint8_t)state;
}
