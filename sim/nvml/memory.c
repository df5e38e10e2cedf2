// SPDX-License-Identifier: Apache-2.0
// Memory and its errors: sizes, ECC, retired pages, remapped rows.
#include "double.h"

#include <string.h>

static int memory_of(const struct call *c, struct sim_memory *out)
{
    if (call_is_mig(c))
        return sim_instance_memory(c->node, c->instance, c->t, out);
    return sim_gpu_memory(c->node, c->gpu, c->t, out);
}

// The first form counts what is reserved as used.
API(nvmlDeviceGetMemoryInfo, nvmlDevice_t device, nvmlMemory_t *memory)
{
    CALL_DEVICE(device);
    struct sim_memory m;
    NEED(memory);
    int code = memory_of(&c, &m);
    if (code == OK)
        *memory = (nvmlMemory_t){.total = (unsigned long long)m.total,
                                 .free = (unsigned long long)m.free,
                                 .used = (unsigned long long)(m.used + m.reserved)};
    return code;
}

API(nvmlDeviceGetMemoryInfo_v2, nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    CALL_DEVICE(device);
    struct sim_memory m;
    NEED(memory);
    if (memory->version != VERSION_OF(nvmlMemory_v2_t, 2))
        return ARGUMENT_VERSION_MISMATCH;
    int code = memory_of(&c, &m);
    if (code == OK)
        *memory = (nvmlMemory_v2_t){.version = memory->version,
                                    .total = (unsigned long long)m.total,
                                    .reserved = (unsigned long long)m.reserved,
                                    .free = (unsigned long long)m.free,
                                    .used = (unsigned long long)m.used};
    return code;
}

API(nvmlDeviceGetBAR1MemoryInfo, nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    CALL_GPU(device);
    NEED(memory);
    unsigned long long total, used;
    nvmlReturn_t code = call_u64(&c, SIM_BAR1_TOTAL, &total);
    if (code == OK)
        code = call_u64(&c, SIM_BAR1_USED, &used);
    if (code == OK)
        *memory =
            (nvmlBAR1Memory_t){.bar1Total = total, .bar1Free = total - used, .bar1Used = used};
    return code;
}

API(nvmlDeviceGetMemoryBusWidth, nvmlDevice_t device, unsigned int *bits)
{
    CALL_GPU(device);
    NEED(bits);
    *bits = 384;
    return OK;
}

// --- ECC ---

API(nvmlDeviceGetEccMode, nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    CALL_GPU(device);
    NEED(current);
    NEED(pending);
    nvmlReturn_t code = call_u32(&c, SIM_ECC_MODE, current);
    return code == OK ? call_u32(&c, SIM_ECC_PENDING, pending) : code;
}

static bool ecc_on(const struct call *c)
{
    return sim_truth_or_zero(c->node, c->gpu, SIM_ECC_MODE, c->t) != 0;
}

static nvmlReturn_t ecc_total(const struct call *c, int error, int counter,
                              unsigned long long *count)
{
    static const enum sim_field fields[2][2] = {{SIM_ECC_SBE_VOL, SIM_ECC_SBE_AGG},
                                                {SIM_ECC_DBE_VOL, SIM_ECC_DBE_AGG}};
    if (!count || error < 0 || error > 1 || counter < 0 || counter > 1)
        return INVALID_ARGUMENT;
    return ecc_on(c) ? call_u64(c, fields[error][counter], count) : NOT_SUPPORTED;
}

API(nvmlDeviceGetTotalEccErrors, nvmlDevice_t device, int error, int counter,
    unsigned long long *count)
{
    CALL_GPU(device);
    return ecc_total(&c, error, counter, count);
}

// All of the simulated errors are in the device's memory.
API(nvmlDeviceGetMemoryErrorCounter, nvmlDevice_t device, int error, int counter, int location,
    unsigned long long *count)
{
    CALL_GPU(device);
    if (location < 0 || location > 7)
        return INVALID_ARGUMENT;
    nvmlReturn_t code = ecc_total(&c, error, counter, count);
    if (code == OK && location != 2)
        *count = 0;
    return code;
}

API(nvmlDeviceGetSramEccErrorStatus, nvmlDevice_t device, nvmlEccSramErrorStatus_v1_t *status)
{
    CALL_GPU(device);
    NEED(status);
    if (status->version != VERSION_OF(nvmlEccSramErrorStatus_v1_t, 1))
        return ARGUMENT_VERSION_MISMATCH;
    unsigned int exceeded;
    nvmlReturn_t code = call_u32(&c, SIM_SRAM_THRESHOLD, &exceeded);
    if (code == OK)
        *status = (nvmlEccSramErrorStatus_v1_t){.version = status->version,
                                                .bThresholdExceeded = exceeded};
    return code;
}

// --- Retired pages: before Ampere ---

// The made-up addresses of retired pages, counted up.
static nvmlReturn_t retired_pages(const struct call *c, int cause, unsigned int *count,
                                  unsigned long long *addresses, unsigned long long *stamps)
{
    unsigned int have, room;
    if (!count || cause < 0 || cause > 1)
        return INVALID_ARGUMENT;
    nvmlReturn_t code = call_u32(c, cause == 0 ? SIM_RETIRED_SBE : SIM_RETIRED_DBE, &have);
    if (code != OK)
        return code;
    room = *count;
    *count = have;
    if (room < have || (have > 0 && !addresses))
        return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < have; i++) {
        addresses[i] = 0x10000ull * (i + 1) + (unsigned)cause;
        if (stamps)
            stamps[i] = (unsigned long long)sim_wall_us(c->node, 0);
    }
    return OK;
}

API(nvmlDeviceGetRetiredPages, nvmlDevice_t device, int cause, unsigned int *count,
    unsigned long long *addresses)
{
    CALL_GPU(device);
    return retired_pages(&c, cause, count, addresses, NULL);
}

API(nvmlDeviceGetRetiredPages_v2, nvmlDevice_t device, int cause, unsigned int *count,
    unsigned long long *addresses, unsigned long long *stamps)
{
    CALL_GPU(device);
    return retired_pages(&c, cause, count, addresses, stamps);
}

API_GPU_U32(nvmlDeviceGetRetiredPagesPendingStatus, SIM_RETIRED_PENDING)

// --- Remapped rows: Ampere and later; the old call refuses while instances exist ---

struct remapped {
    unsigned int correctable, uncorrectable, pending, failure;
};

static nvmlReturn_t remapped_rows(const struct call *c, struct remapped *out)
{
    const struct {
        enum sim_field field;
        unsigned int *at;
    } parts[] = {{SIM_REMAPPED_COR, &out->correctable},
                 {SIM_REMAPPED_UNC, &out->uncorrectable},
                 {SIM_REMAP_PENDING, &out->pending},
                 {SIM_REMAP_FAILURE, &out->failure}};
    nvmlReturn_t code = OK;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && code == OK; i++)
        code = call_u32(c, parts[i].field, parts[i].at);
    return code;
}

API(nvmlDeviceGetRemappedRows, nvmlDevice_t device, unsigned int *correctable,
    unsigned int *uncorrectable, unsigned int *pending, unsigned int *failure)
{
    CALL_GPU(device);
    struct remapped r;
    if (!correctable || !uncorrectable || !pending || !failure)
        return INVALID_ARGUMENT;
    if (call_mig_enabled(&c))
        return NOT_SUPPORTED;
    nvmlReturn_t code = remapped_rows(&c, &r);
    if (code != OK)
        return code;
    *correctable = r.correctable;
    *uncorrectable = r.uncorrectable;
    *pending = r.pending;
    *failure = r.failure;
    return OK;
}

API(nvmlDeviceGetRemappedRows_v2, nvmlDevice_t device, nvmlRemappedRowsInfo_v2_t *info)
{
    CALL_GPU(device);
    struct remapped r;
    NEED(info);
    nvmlReturn_t code = remapped_rows(&c, &r);
    if (code == OK)
        *info = (nvmlRemappedRowsInfo_v2_t){.corrActiveRemaps = r.correctable,
                                            .uncActiveRemaps = r.uncorrectable,
                                            .bPending = r.pending,
                                            .bFailureOccurred = r.failure};
    return code;
}

API(nvmlDeviceGetRowRemapperHistogram, nvmlDevice_t device,
    nvmlRowRemapperHistogramValues_t *values)
{
    CALL_GPU(device);
    NEED(values);
    const struct {
        enum sim_field field;
        unsigned int *at;
    } parts[] = {{SIM_REMAP_MAX, &values->max},
                 {SIM_REMAP_HIGH, &values->high},
                 {SIM_REMAP_PARTIAL, &values->partial},
                 {SIM_REMAP_LOW, &values->low},
                 {SIM_REMAP_NONE, &values->none}};
    nvmlReturn_t code = OK;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && code == OK; i++)
        code = call_u32(&c, parts[i].field, parts[i].at);
    return code;
}
