// SPDX-License-Identifier: Apache-2.0
// Who runs on a device: the process lists in their three generations, and each process's share.
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

static void collect(const struct call *c, uint32_t types, struct rows *out)
{
    out->count = 0;
    for (uint32_t i = call_gpu(c)->processes; i != SIM_NONE && out->count < MAX_ROWS;
         i = c->node->processes[i].next_on_gpu) {
        const struct sim_process *p = &c->node->processes[i];
        if ((p->type & types) == 0 || !on_device(c, p) || !sim_process_alive(c->node, i, c->t))
            continue;
        const struct sim_instance *x =
            p->instance == SIM_NONE ? NULL : &c->node->instances[p->instance];
        out->row[out->count++] = (nvmlProcessInfo_v2_t){
            .pid = p->pid,
            .usedGpuMemory = (unsigned long long)p->memory_bytes, // -1: all ones, not available
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

// --- Utilisation per process: one sample a process and window, from the newest complete window ---

static unsigned int share(const struct call *c, uint32_t process, enum sim_field field,
                          int64_t from, int64_t to)
{
    return (unsigned int)sim_process_percent(c->node, process, field, from, to);
}

static nvmlReturn_t process_window(const struct call *c, unsigned long long last_seen,
                                   int64_t *from, int64_t *to, unsigned long long *stamp)
{
    if (call_is_mig(c) || call_mig_enabled(c))
        return NOT_SUPPORTED;
    int64_t window = call_gpu(c)->window_ns;
    *to = c->t / window * window;
    *from = *to - window;
    *stamp = (unsigned long long)sim_wall_us(c->node, *to);
    return *stamp > last_seen ? OK : NOT_FOUND;
}

static bool ran_in(const struct sim_node *n, uint32_t process, int64_t from, int64_t to)
{
    const struct sim_process *p = &n->processes[process];
    return p->start_ns < to && atomic_load(&p->end_ns) > from;
}

static unsigned int count_running(const struct call *c, int64_t from, int64_t to)
{
    unsigned int count = 0;
    for (uint32_t i = call_gpu(c)->processes; i != SIM_NONE; i = c->node->processes[i].next_on_gpu)
        count += ran_in(c->node, i, from, to);
    return count;
}

API(nvmlDeviceGetProcessUtilization, nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
    unsigned int *count, unsigned long long last_seen)
{
    CALL_DEVICE(device);
    int64_t from, to;
    unsigned long long stamp;
    NEED(count);
    nvmlReturn_t code = process_window(&c, last_seen, &from, &to, &stamp);
    if (code != OK)
        return code;
    unsigned int have = count_running(&c, from, to), room = *count, k = 0;
    *count = have;
    if (!samples || room < have)
        return have == 0 ? NOT_FOUND : INSUFFICIENT_SIZE;
    for (uint32_t i = call_gpu(&c)->processes; i != SIM_NONE && k < have;
         i = c.node->processes[i].next_on_gpu) {
        if (!ran_in(c.node, i, from, to))
            continue;
        samples[k++] =
            (nvmlProcessUtilizationSample_t){.pid = c.node->processes[i].pid,
                                             .timeStamp = stamp,
                                             .smUtil = share(&c, i, SIM_GPU_UTIL, from, to),
                                             .memUtil = share(&c, i, SIM_MEM_UTIL, from, to),
                                             .encUtil = share(&c, i, SIM_ENC_UTIL, from, to),
                                             .decUtil = share(&c, i, SIM_DEC_UTIL, from, to)};
    }
    return have == 0 ? NOT_FOUND : OK;
}

API(nvmlDeviceGetProcessesUtilizationInfo, nvmlDevice_t device,
    nvmlProcessesUtilizationInfo_v1_t *info)
{
    CALL_DEVICE(device);
    int64_t from, to;
    unsigned long long stamp;
    NEED(info);
    if (info->version != VERSION_OF(nvmlProcessesUtilizationInfo_v1_t, 1))
        return ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t code = process_window(&c, info->lastSeenTimeStamp, &from, &to, &stamp);
    if (code != OK)
        return code;
    unsigned int have = count_running(&c, from, to), room = info->processSamplesCount, k = 0;
    info->processSamplesCount = have;
    if (!info->procUtilArray || room < have)
        return have == 0 ? NOT_FOUND : INSUFFICIENT_SIZE;
    for (uint32_t i = call_gpu(&c)->processes; i != SIM_NONE && k < have;
         i = c.node->processes[i].next_on_gpu) {
        if (!ran_in(c.node, i, from, to))
            continue;
        info->procUtilArray[k++] =
            (nvmlProcessUtilizationInfo_v1_t){.timeStamp = stamp,
                                              .pid = c.node->processes[i].pid,
                                              .smUtil = share(&c, i, SIM_GPU_UTIL, from, to),
                                              .memUtil = share(&c, i, SIM_MEM_UTIL, from, to),
                                              .encUtil = share(&c, i, SIM_ENC_UTIL, from, to),
                                              .decUtil = share(&c, i, SIM_DEC_UTIL, from, to),
                                              .jpgUtil = share(&c, i, SIM_JPG_UTIL, from, to),
                                              .ofaUtil = share(&c, i, SIM_OFA_UTIL, from, to)};
    }
    return have == 0 ? NOT_FOUND : OK;
}
