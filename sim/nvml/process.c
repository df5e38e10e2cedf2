// SPDX-License-Identifier: Apache-2.0
// Who runs on a device: the process lists in their three generations.
// Where MPS hides its clients, its server stands for them, with their memory.
#include "double.h"

#include <string.h>

#define MAX_ROWS 256u
#define NO_INSTANCE UINT32_MAX

// Rows of the newest form; older ones are cut from it.
struct rows {
    unsigned int count;
    nvmlProcessInfo_v2_t row[MAX_ROWS];
};

static bool on_device(const struct call *c, const struct sim_process *p)
{
    return !call_is_mig(c) || p->instance == c->instance;
}

// A row's memory: all ones where the driver doesn't know it.
static unsigned long long row_memory(const struct call *c, uint32_t process)
{
    const struct sim_process *p = &c->node->processes[process];
    if (p->memory_bytes < 0 || !double_is_mps_server(c, process))
        return (unsigned long long)p->memory_bytes;
    int64_t sum = p->memory_bytes;
    for (uint32_t i = call_gpu(c)->processes; i != SIM_NONE;
         i = c->node->processes[i].next_on_gpu) {
        const struct sim_process *client = &c->node->processes[i];
        if (double_is_hidden(c, client) && client->memory_bytes > 0 &&
            sim_process_alive(c->node, i, c->t))
            sum += client->memory_bytes;
    }
    return (unsigned long long)sum;
}

static void collect(const struct call *c, uint32_t types, struct rows *out)
{
    out->count = 0;
    for (uint32_t i = call_gpu(c)->processes; i != SIM_NONE && out->count < MAX_ROWS;
         i = c->node->processes[i].next_on_gpu) {
        const struct sim_process *p = &c->node->processes[i];
        if ((p->type & types) == 0 || !on_device(c, p) || double_is_hidden(c, p) ||
            !sim_process_alive(c->node, i, c->t))
            continue;
        const struct sim_instance *x =
            p->instance == SIM_NONE ? NULL : &c->node->instances[p->instance];
        out->row[out->count++] = (nvmlProcessInfo_v2_t){
            .pid = p->pid,
            .usedGpuMemory = row_memory(c, i),
            .gpuInstanceId = x ? x->gi : NO_INSTANCE,
            .computeInstanceId = x ? x->ci : NO_INSTANCE,
        };
    }
}

// Two steps, as with the driver: too small a count gives INSUFFICIENT_SIZE and the size.
static nvmlReturn_t hand_out(const struct rows *r, unsigned int *count, void *infos,
                             size_t row_bytes)
{
    if (!count || (*count > 0 && !infos))
        return INVALID_ARGUMENT;
    unsigned int room = *count;
    *count = r->count;
    if (room < r->count)
        return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < r->count; i++)
        memcpy((char *)infos + i * row_bytes, &r->row[i], row_bytes);
    return OK;
}

static nvmlReturn_t list(const struct call *c, uint32_t types, unsigned int *count, void *infos,
                         size_t row_bytes)
{
    struct rows r;
    collect(c, types, &r);
    return hand_out(&r, count, infos, row_bytes);
}

#define LIST(name, types, row)                                                                     \
    API(name, nvmlDevice_t device, unsigned int *count, row *infos)                                \
    {                                                                                              \
        CALL_DEVICE(device);                                                                       \
        return list(&c, types, count, infos, sizeof(row));                                         \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, SIM_COMPUTE, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, SIM_COMPUTE, nvmlProcessInfo_v2_t)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, SIM_COMPUTE, nvmlProcessInfo_v2_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses, SIM_GRAPHICS, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, SIM_GRAPHICS, nvmlProcessInfo_v2_t)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, SIM_GRAPHICS, nvmlProcessInfo_v2_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, SIM_MPS, nvmlProcessInfo_v1_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, SIM_MPS, nvmlProcessInfo_v2_t)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, SIM_MPS, nvmlProcessInfo_v2_t)

API(nvmlDeviceGetRunningProcessDetailList, nvmlDevice_t device, nvmlProcessDetailList_v1_t *details)
{
    CALL_DEVICE(device);
    static const uint32_t types[] = {SIM_COMPUTE, SIM_GRAPHICS, SIM_MPS};
    struct rows r;
    NEED(details);
    if (details->version != VERSION_OF(nvmlProcessDetailList_v1_t, 1))
        return ARGUMENT_VERSION_MISMATCH;
    if (details->mode > 2)
        return INVALID_ARGUMENT;
    collect(&c, types[details->mode], &r);
    unsigned int room = details->numProcArrayEntries;
    details->numProcArrayEntries = r.count;
    if (room < r.count || (r.count > 0 && !details->procArray))
        return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < r.count; i++) {
        details->procArray[i] =
            (nvmlProcessDetail_v1_t){.pid = r.row[i].pid,
                                     .usedGpuMemory = r.row[i].usedGpuMemory,
                                     .gpuInstanceId = r.row[i].gpuInstanceId,
                                     .computeInstanceId = r.row[i].computeInstanceId};
    }
    return OK;
}
