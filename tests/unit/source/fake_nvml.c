// SPDX-License-Identifier: Apache-2.0
#include "fake_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fake_nvml fake;
static struct nvmlDevice_st devices[FAKE_GPUS], slots[FAKE_GPUS][FAKE_SLOTS];

nvmlDevice_t fake_device(unsigned gpu)
{
    devices[gpu] = (struct nvmlDevice_st){gpu, -1};
    return &devices[gpu];
}

nvmlDevice_t fake_slot(unsigned gpu, unsigned slot)
{
    slots[gpu][slot] = (struct nvmlDevice_st){gpu, (int)slot};
    return &slots[gpu][slot];
}

static nvmlReturn_t check(nvmlDevice_t device)
{
    const struct fake_gpu *g = &fake.gpu[device->gpu];
    if (fake.on_call)
        fake.on_call(device->gpu);
    const struct timespec delay = {0, (long)g->delay_ms * 1000000};
    if (g->delay_ms)
        (void)nanosleep(&delay, NULL);
    if (g->result != NVML_SUCCESS)
        return g->result;
    return device->slot >= 0 && !g->slots[device->slot].exists ? NVML_ERROR_NOT_FOUND
                                                               : NVML_SUCCESS;
}

#define CHECK(device)                                                                              \
    do {                                                                                           \
        nvmlReturn_t result_ = check(device);                                                      \
        if (result_ != NVML_SUCCESS)                                                               \
            return result_;                                                                        \
    } while (0)

static nvmlReturn_t get_count(unsigned int *count)
{
    *count = fake.gpus;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_handle(unsigned int index, nvmlDevice_t *device)
{
    *device = fake_device(index);
    return fake.gpu[index].result;
}

static nvmlReturn_t get_uuid(nvmlDevice_t device, char *out, unsigned int bytes)
{
    CHECK(device);
    const struct fake_gpu *g = &fake.gpu[device->gpu];
    (void)snprintf(out, bytes, "%s", device->slot < 0 ? g->uuid : g->slots[device->slot].uuid);
    return NVML_SUCCESS;
}

static nvmlReturn_t get_name(nvmlDevice_t device, char *out, unsigned int bytes)
{
    CHECK(device);
    const struct fake_gpu *g = &fake.gpu[device->gpu];
    (void)snprintf(out, bytes, "%s", device->slot < 0 ? g->name : g->slots[device->slot].name);
    return NVML_SUCCESS;
}

static nvmlReturn_t get_pci(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    CHECK(device);
    pci->domain = 0;
    pci->bus = fake.gpu[device->gpu].bus;
    pci->device = 0;
    pci->pciDeviceId = 0x223710de;
    if (fake.n.fn.generation.nvmlDeviceGetPciInfo == 1)
        (void)snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", 0, pci->bus, 0);
    return NVML_SUCCESS;
}

static nvmlReturn_t get_minor(nvmlDevice_t device, unsigned int *minor)
{
    CHECK(device);
    *minor = device->gpu + 10;
    return NVML_SUCCESS;
}

static nvmlReturn_t query_gpm(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
    CHECK(device);
    support->isSupportedDevice = fake.gpu[device->gpu].gpm;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_mig_mode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    CHECK(device);
    *current = *pending = fake.gpu[device->gpu].mig_on;
    return fake.gpu[device->gpu].mig_capable ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t get_max_mig(nvmlDevice_t device, unsigned int *count)
{
    CHECK(device);
    *count = 7;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_mig_handle(nvmlDevice_t device, unsigned int slot, nvmlDevice_t *mig)
{
    CHECK(device);
    if (!fake.gpu[device->gpu].slots[slot].exists)
        return NVML_ERROR_NOT_FOUND;
    *mig = fake_slot(device->gpu, slot);
    return NVML_SUCCESS;
}

static nvmlReturn_t get_gi(nvmlDevice_t device, unsigned int *id)
{
    CHECK(device);
    *id = fake.gpu[device->gpu].slots[device->slot].gi;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_ci(nvmlDevice_t device, unsigned int *id)
{
    CHECK(device);
    *id = fake.gpu[device->gpu].slots[device->slot].ci;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_attributes(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
    CHECK(device);
    out->gpuInstanceSliceCount = fake.gpu[device->gpu].slots[device->slot].slices;
    out->memorySizeMB = fake.gpu[device->gpu].slots[device->slot].memory_mb;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_p2p_status(nvmlDevice_t device, nvmlDevice_t peer, int index, int *status)
{
    CHECK(device);
    CHECK(peer);
    fake.p2p_calls++;
    *status = fake.p2p_status[device->gpu][peer->gpu];
    return index == 2 ? fake.p2p_result : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t get_temperature(nvmlDevice_t device, int sensor, unsigned int *out)
{
    CHECK(device);
    *out = fake.gpu[device->gpu].temperature;
    return sensor == 0 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t get_utilization(nvmlDevice_t device, nvmlUtilization_t *out)
{
    CHECK(device);
    out->gpu = fake.gpu[device->gpu].utilization;
    out->memory = fake.gpu[device->gpu].memory_utilization;
    return device->slot < 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t get_memory_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    CHECK(device);
    if (out->version != 0x2000028)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned version = out->version;
    const struct fake_gpu *g = &fake.gpu[device->gpu];
    *out = g->memory;
    if (device->slot >= 0 && g->slots[device->slot].memory.total)
        *out = g->slots[device->slot].memory;
    out->version = version;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_memory(nvmlDevice_t device, nvmlMemory_t *out)
{
    CHECK(device);
    const nvmlMemory_v2_t *m = &fake.gpu[device->gpu].memory;
    *out = (nvmlMemory_t){.total = m->total, .free = m->free, .used = m->used + m->reserved};
    return NVML_SUCCESS;
}

static nvmlReturn_t get_power(nvmlDevice_t device, unsigned int *out)
{
    CHECK(device);
    *out = 299437;
    return NVML_SUCCESS;
}

// --- usage ---

static nvmlReturn_t get_samples(nvmlDevice_t device, int type, unsigned long long last_us,
                                int *value_type, unsigned int *count, nvmlSample_t *out)
{
    CHECK(device);
    const struct fake_gpu *g = &fake.gpu[device->gpu];
    unsigned filled = 0;
    if (g->samples_result != NVML_SUCCESS || type != 1)
        return type == 1 ? g->samples_result : NVML_ERROR_INVALID_ARGUMENT;
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    for (unsigned i = 0; i < g->sample_count && filled < *count; i++)
        if (g->samples[i].timeStamp > last_us)
            out[filled++] = g->samples[i];
    *count = filled;
    return filled ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t get_process_utilization(nvmlDevice_t device,
                                            nvmlProcessUtilizationSample_t *out,
                                            unsigned int *count, unsigned long long last_us)
{
    CHECK(device);
    const struct fake_gpu *g = &fake.gpu[device->gpu];
    unsigned news = 0, room = *count;
    if (g->utils_result != NVML_SUCCESS)
        return g->utils_result;
    for (unsigned i = 0; i < g->util_count; i++)
        news += g->utils[i].timeStamp > last_us;
    *count = news;
    if (room < news)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0, k = 0; i < g->util_count; i++)
        if (g->utils[i].timeStamp > last_us)
            out[k++] = g->utils[i];
    return news ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t get_list(nvmlDevice_t device, enum fake_kind kind, unsigned generation,
                             unsigned int *count, void *rows)
{
    CHECK(device);
    struct fake_gpu *g = &fake.gpu[device->gpu];
    struct fake_list *list =
        device->slot < 0 ? &g->lists[kind] : &g->slots[device->slot].lists[kind];
    size_t bytes = generation == 3 ? 16 : sizeof(nvmlProcessInfo_t);
    unsigned room = *count;
    list->calls++;
    if (list->result != NVML_SUCCESS)
        return list->result;
    *count = list->count;
    if (room < list->count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < list->count; i++)
        memcpy((char *)rows + i * bytes, &list->rows[i], bytes);
    return NVML_SUCCESS;
}

static nvmlReturn_t get_compute(nvmlDevice_t device, unsigned int *count, void *rows)
{
    return get_list(device, FAKE_COMPUTE, fake.n.fn.generation.nvmlDeviceGetComputeRunningProcesses,
                    count, rows);
}

static nvmlReturn_t get_graphics(nvmlDevice_t device, unsigned int *count, void *rows)
{
    return get_list(device, FAKE_GRAPHICS,
                    fake.n.fn.generation.nvmlDeviceGetGraphicsRunningProcesses, count, rows);
}

static nvmlReturn_t get_mps(nvmlDevice_t device, unsigned int *count, void *rows)
{
    return get_list(device, FAKE_MPS, fake.n.fn.generation.nvmlDeviceGetMPSComputeRunningProcesses,
                    count, rows);
}

static nvmlReturn_t get_energy(nvmlDevice_t device, unsigned long long *mj)
{
    CHECK(device);
    *mj = fake.gpu[device->gpu].energy_mj;
    return fake.gpu[device->gpu].energy_result;
}

static nvmlReturn_t get_instance_by_id(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *out)
{
    static struct nvmlGpuInstance_st instances[FAKE_GPUS][FAKE_SLOTS];
    CHECK(device);
    fake.instance_calls++;
    if (fake.instance_result != NVML_SUCCESS)
        return fake.instance_result;
    for (unsigned slot = 0; slot < FAKE_SLOTS; slot++) {
        const struct fake_slot *s = &fake.gpu[device->gpu].slots[slot];
        if (!s->exists || s->gi != id)
            continue;
        *out = &instances[device->gpu][slot];
        **out = (struct nvmlGpuInstance_st){device->gpu, slot};
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t get_instance_info(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *out)
{
    const struct fake_slot *s = &fake.gpu[instance->gpu].slots[instance->slot];
    *out = (nvmlGpuInstanceInfo_t){.device = fake_device(instance->gpu),
                                   .id = s->gi,
                                   .profileId = s->profile_id,
                                   .placement = {s->placement, 1}};
    return NVML_SUCCESS;
}

static nvmlReturn_t get_field_values(nvmlDevice_t device, int count, nvmlFieldValue_t *list)
{
    CHECK(device);
    fake.value_calls++;
    fake.last_value_count = (unsigned)count;
    for (int i = 0; i < count; i++)
        if (fake.unknown_fails_all && list[i].fieldId >= fake.unknown_from)
            return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < count; i++) {
        if (list[i].fieldId >= fake.unknown_from)
            continue; // left as it is
        unsigned scope = list[i].scopeId;
        list[i] = fake.values[list[i].fieldId];
        list[i].scopeId = scope;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t alloc_sample(nvmlGpmSample_t *out)
{
    *out = calloc(1, sizeof(**out));
    fake.samples_alive += *out != NULL;
    return *out ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

static nvmlReturn_t free_sample(nvmlGpmSample_t sample)
{
    free(sample);
    fake.samples_alive--;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_sample(nvmlDevice_t device, nvmlGpmSample_t sample)
{
    CHECK(device);
    if (fake.gpm_result != NVML_SUCCESS)
        return fake.gpm_result;
    *sample = (struct nvmlGpmSample_st){*device, ~0u, ++fake.samples_taken};
    return NVML_SUCCESS;
}

static nvmlReturn_t get_mig_sample(nvmlDevice_t device, unsigned int gi, nvmlGpmSample_t sample)
{
    nvmlReturn_t result = get_sample(device, sample);
    sample->gi = gi;
    return result;
}

static nvmlReturn_t get_metrics(nvmlGpmMetricsGet_t *get)
{
    fake.last_request = *get;
    fake.pair[0] = get->sample1->number;
    fake.pair[1] = get->sample2->number;
    if (fake.metrics_result != NVML_SUCCESS)
        return fake.metrics_result;
    for (unsigned i = 0; i < get->numMetrics; i++)
        if (get->metrics[i].metricId >= fake.metrics_end)
            return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < get->numMetrics; i++) {
        get->metrics[i].value = fake.metric[get->metrics[i].metricId];
        get->metrics[i].nvmlReturn = fake.metric_result[get->metrics[i].metricId];
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t create_set(nvmlEventSet_t *set)
{
    *set = (nvmlEventSet_t)&fake;
    fake.set_alive = true;
    return NVML_SUCCESS;
}

static nvmlReturn_t free_set(nvmlEventSet_t set)
{
    fake.set_alive = false;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_supported_events(nvmlDevice_t device, unsigned long long *mask)
{
    CHECK(device);
    *mask = fake.supported_events;
    return NVML_SUCCESS;
}

static nvmlReturn_t register_events(nvmlDevice_t device, unsigned long long mask,
                                    nvmlEventSet_t set)
{
    CHECK(device);
    if (fake.register_result != NVML_SUCCESS)
        return fake.register_result;
    if (mask & ~fake.supported_events)
        return NVML_ERROR_NOT_SUPPORTED;
    fake.registered_events[device->gpu] |= mask;
    return NVML_SUCCESS;
}

static nvmlReturn_t wait_event(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    if (fake.wait_result != NVML_SUCCESS)
        return fake.wait_result;
    if (fake.endless_count > 0) {
        fake.endless_count--;
        *data = fake.endless_event;
        return NVML_SUCCESS;
    }
    if (!fake.event_count)
        return NVML_ERROR_TIMEOUT;
    *data = fake.events[0];
    fake.event_count--;
    memmove(&fake.events[0], &fake.events[1], fake.event_count * sizeof(fake.events[0]));
    return NVML_SUCCESS;
}

void fake_reset(void)
{
    fake = (struct fake_nvml){
        .gpus = 1, .unknown_from = ~0ull, .metrics_end = 400, .supported_events = 0x108};
    fake.n.page = &fake.page;
    fake.n.initialised = true;
    for (unsigned i = 0; i < FAKE_GPUS; i++) {
        static const char *const uuids[] = {"GPU-0", "GPU-1", "GPU-2", "GPU-3"};
        fake.gpu[i] = (struct fake_gpu){
            .uuid = uuids[i], .name = "NVIDIA Fake", .bus = 0x10 + i, .temperature = 40 + i};
    }
    fake.n.fn = (struct nvml_functions){
        .nvmlDeviceGetCount = get_count,
        .nvmlDeviceGetHandleByIndex = get_handle,
        .nvmlDeviceGetUUID = get_uuid,
        .nvmlDeviceGetName = get_name,
        .nvmlDeviceGetPciInfo = get_pci,
        .nvmlDeviceGetMinorNumber = get_minor,
        .nvmlGpmQueryDeviceSupport = query_gpm,
        .nvmlDeviceGetMigMode = get_mig_mode,
        .nvmlDeviceGetMaxMigDeviceCount = get_max_mig,
        .nvmlDeviceGetMigDeviceHandleByIndex = get_mig_handle,
        .nvmlDeviceGetGpuInstanceId = get_gi,
        .nvmlDeviceGetComputeInstanceId = get_ci,
        .nvmlDeviceGetAttributes = get_attributes,
        .nvmlDeviceGetP2PStatus = get_p2p_status,
        .nvmlDeviceGetTemperature = get_temperature,
        .nvmlDeviceGetUtilizationRates = get_utilization,
        .nvmlDeviceGetMemoryInfo_v2 = get_memory_v2,
        .nvmlDeviceGetMemoryInfo = get_memory,
        .nvmlDeviceGetPowerUsage = get_power,
        .nvmlDeviceGetSamples = get_samples,
        .nvmlDeviceGetProcessUtilization = get_process_utilization,
        .nvmlDeviceGetComputeRunningProcesses = get_compute,
        .nvmlDeviceGetGraphicsRunningProcesses = get_graphics,
        .nvmlDeviceGetMPSComputeRunningProcesses = get_mps,
        .nvmlDeviceGetTotalEnergyConsumption = get_energy,
        .nvmlDeviceGetGpuInstanceById = get_instance_by_id,
        .nvmlGpuInstanceGetInfo = get_instance_info,
        .nvmlDeviceGetFieldValues = get_field_values,
        .nvmlGpmSampleAlloc = alloc_sample,
        .nvmlGpmSampleFree = free_sample,
        .nvmlGpmSampleGet = get_sample,
        .nvmlGpmMigSampleGet = get_mig_sample,
        .nvmlGpmMetricsGet = get_metrics,
        .nvmlEventSetCreate = create_set,
        .nvmlEventSetFree = free_set,
        .nvmlDeviceGetSupportedEventTypes = get_supported_events,
        .nvmlDeviceRegisterEvents = register_events,
        .nvmlEventSetWait_v2 = wait_event,
        .generation = {.nvmlDeviceGetPciInfo = 1, .nvmlDeviceGetAttributes = 1},
    };
}

void fake_add_slot(unsigned gpu, unsigned slot, unsigned gi, unsigned slices,
                   unsigned long long memory_mb, const char *uuid, const char *name)
{
    fake.gpu[gpu].mig_capable = fake.gpu[gpu].mig_on = true;
    fake.gpu[gpu].slots[slot] = (struct fake_slot){.exists = true,
                                                   .gi = gi,
                                                   .slices = slices,
                                                   .memory_mb = memory_mb,
                                                   .uuid = uuid,
                                                   .name = name};
}

void fake_add_process(struct fake_list *list, unsigned pid, unsigned long long memory,
                      unsigned instance)
{
    list->rows[list->count++] =
        (nvmlProcessInfo_t){pid, memory, instance, instance == ~0u ? ~0u : 0};
}

void fake_set_value(unsigned id, int type, nvmlValue_t value)
{
    fake.values[id] = (nvmlFieldValue_t){
        .fieldId = id, .timestamp = 1700000000000000, .valueType = type, .value = value};
}
