// SPDX-License-Identifier: Apache-2.0
// nvmlDeviceGetFieldValues: ids of NVIDIA's public header (NVML_FI_*), each with the type its
// driver gives it and the driver branch that brought it.
#include "double.h"

#include <string.h>

#define ALL_LINKS 0xffffffffu

enum scope {
    SCOPE_ANY,   // not looked at
    SCOPE_LINK,  // a link number, or ALL_LINKS
    SCOPE_POWER, // 0 the GPU; 1 the module: not on these boards
};

struct field {
    unsigned int id;
    unsigned int branch;
    int type;
    enum sim_field signal;
    enum scope scope;
};

static const struct field fields[] = {
    {1, 450, VALUE_UNSIGNED_INT, SIM_ECC_MODE, SCOPE_ANY},
    {2, 450, VALUE_UNSIGNED_INT, SIM_ECC_PENDING, SCOPE_ANY},
    {3, 450, VALUE_UNSIGNED_LONG_LONG, SIM_ECC_SBE_VOL, SCOPE_ANY},
    {4, 450, VALUE_UNSIGNED_LONG_LONG, SIM_ECC_DBE_VOL, SCOPE_ANY},
    {5, 450, VALUE_UNSIGNED_LONG_LONG, SIM_ECC_SBE_AGG, SCOPE_ANY},
    {6, 450, VALUE_UNSIGNED_LONG_LONG, SIM_ECC_DBE_AGG, SCOPE_ANY},
    {11, 450, VALUE_UNSIGNED_LONG_LONG, SIM_ECC_SBE_VOL,
     SCOPE_ANY}, // in device memory: all of them
    {12, 450, VALUE_UNSIGNED_LONG_LONG, SIM_ECC_DBE_VOL, SCOPE_ANY},
    {22, 450, VALUE_UNSIGNED_LONG_LONG, SIM_ECC_SBE_AGG, SCOPE_ANY},
    {23, 450, VALUE_UNSIGNED_LONG_LONG, SIM_ECC_DBE_AGG, SCOPE_ANY},
    {29, 450, VALUE_UNSIGNED_LONG_LONG, SIM_RETIRED_SBE, SCOPE_ANY},
    {30, 450, VALUE_UNSIGNED_LONG_LONG, SIM_RETIRED_DBE, SCOPE_ANY},
    {31, 450, VALUE_UNSIGNED_INT, SIM_RETIRED_PENDING, SCOPE_ANY},
    {38, 450, VALUE_UNSIGNED_LONG_LONG, SIM_NVLINK_CRC_FLIT, SCOPE_ANY},
    {45, 450, VALUE_UNSIGNED_LONG_LONG, SIM_NVLINK_CRC_DATA, SCOPE_ANY},
    {52, 450, VALUE_UNSIGNED_LONG_LONG, SIM_NVLINK_REPLAY, SCOPE_ANY},
    {59, 450, VALUE_UNSIGNED_LONG_LONG, SIM_NVLINK_RECOVERY, SCOPE_ANY},
    {74, 450, VALUE_UNSIGNED_LONG_LONG, SIM_VIOLATION_POWER, SCOPE_ANY},
    {75, 450, VALUE_UNSIGNED_LONG_LONG, SIM_VIOLATION_THERMAL, SCOPE_ANY},
    {76, 450, VALUE_UNSIGNED_LONG_LONG, SIM_VIOLATION_SYNC_BOOST, SCOPE_ANY},
    {77, 450, VALUE_UNSIGNED_LONG_LONG, SIM_VIOLATION_BOARD, SCOPE_ANY},
    {78, 450, VALUE_UNSIGNED_LONG_LONG, SIM_VIOLATION_LOW_UTIL, SCOPE_ANY},
    {79, 450, VALUE_UNSIGNED_LONG_LONG, SIM_VIOLATION_RELIABILITY, SCOPE_ANY},
    {80, 450, VALUE_UNSIGNED_LONG_LONG, SIM_VIOLATION_APP_CLOCKS, SCOPE_ANY},
    {81, 450, VALUE_UNSIGNED_LONG_LONG, SIM_VIOLATION_BASE_CLOCKS, SCOPE_ANY},
    {82, 450, VALUE_UNSIGNED_INT, SIM_MEM_TEMPERATURE, SCOPE_ANY},
    {83, 450, VALUE_UNSIGNED_LONG_LONG, SIM_ENERGY, SCOPE_ANY},
    {90, 450, VALUE_UNSIGNED_INT, SIM_NVLINK_SPEED, SCOPE_ANY},
    {94, 450, VALUE_UNSIGNED_INT, SIM_PCIE_REPLAY, SCOPE_ANY},
    {95, 450, VALUE_UNSIGNED_INT, SIM_PCIE_REPLAY_ROLLOVER, SCOPE_ANY},
    {138, 450, VALUE_UNSIGNED_LONG_LONG, SIM_NVLINK_TX, SCOPE_LINK},
    {139, 450, VALUE_UNSIGNED_LONG_LONG, SIM_NVLINK_RX, SCOPE_LINK},
    {142, 450, VALUE_UNSIGNED_INT, SIM_REMAPPED_COR, SCOPE_ANY},
    {143, 450, VALUE_UNSIGNED_INT, SIM_REMAPPED_UNC, SCOPE_ANY},
    {144, 450, VALUE_UNSIGNED_INT, SIM_REMAP_PENDING, SCOPE_ANY},
    {145, 450, VALUE_UNSIGNED_INT, SIM_REMAP_FAILURE, SCOPE_ANY},
    {161, 510, VALUE_UNSIGNED_LONG_LONG, SIM_NVLINK_REPLAY, SCOPE_LINK},
    {162, 510, VALUE_UNSIGNED_LONG_LONG, SIM_NVLINK_RECOVERY, SCOPE_LINK},
    {163, 510, VALUE_UNSIGNED_LONG_LONG, SIM_NVLINK_CRC_FLIT, SCOPE_LINK},
    {164, 510, VALUE_UNSIGNED_INT, SIM_NVLINK_SPEED, SCOPE_ANY},
    {166, 510, VALUE_UNSIGNED_INT, SIM_NVLINK_VERSION, SCOPE_ANY},
    {173, 515, VALUE_UNSIGNED_INT, SIM_PCIE_CORRECTABLE, SCOPE_ANY},
    {185, 535, VALUE_UNSIGNED_INT, SIM_POWER, SCOPE_POWER},
    {187, 535, VALUE_UNSIGNED_INT, SIM_POWER_LIMIT_MIN, SCOPE_POWER},
    {188, 535, VALUE_UNSIGNED_INT, SIM_POWER_LIMIT_MAX, SCOPE_POWER},
    {189, 535, VALUE_UNSIGNED_INT, SIM_POWER_LIMIT_DEFAULT, SCOPE_POWER},
    {190, 535, VALUE_UNSIGNED_INT, SIM_POWER_LIMIT_ENFORCED, SCOPE_POWER},
    {191, 535, VALUE_UNSIGNED_LONG_LONG, SIM_ENERGY, SCOPE_POWER},
    {192, 535, VALUE_UNSIGNED_INT, SIM_POWER_LIMIT, SCOPE_POWER},
    {193, 535, VALUE_SIGNED_INT, SIM_TLIMIT_SHUTDOWN, SCOPE_ANY},
    {194, 535, VALUE_SIGNED_INT, SIM_TLIMIT_SLOWDOWN, SCOPE_ANY},
    {195, 535, VALUE_SIGNED_INT, SIM_TLIMIT_MEM_MAX, SCOPE_ANY},
    {196, 535, VALUE_SIGNED_INT, SIM_TLIMIT_GPU_MAX, SCOPE_ANY},
    {197, 550, VALUE_UNSIGNED_LONG_LONG, SIM_PCIE_TX, SCOPE_ANY},
    {198, 550, VALUE_UNSIGNED_LONG_LONG, SIM_PCIE_RX, SCOPE_ANY},
    {230, 560, VALUE_UNSIGNED_INT, SIM_RECOVERY_ACTION, SCOPE_ANY},
    {269, 575, VALUE_UNSIGNED_LONG_LONG, SIM_SLOWDOWN_SW_THERMAL, SCOPE_ANY},
    {270, 575, VALUE_UNSIGNED_LONG_LONG, SIM_SLOWDOWN_HW_THERMAL, SCOPE_ANY},
    {271, 575, VALUE_UNSIGNED_LONG_LONG, SIM_SLOWDOWN_POWER_BRAKE, SCOPE_ANY},
};

// The driver that first knew an id, for ids that no board here answers.
static unsigned int branch_of(unsigned int id)
{
    static const struct {
        unsigned int last, branch;
    } eras[] = {{147, 450}, {160, 470}, {169, 510}, {184, 525}, {196, 535}, {200, 550},
                {229, 555}, {234, 560}, {268, 570}, {271, 575}, {302, 580}};
    for (size_t i = 0; i < sizeof(eras) / sizeof(eras[0]); i++) {
        if (id <= eras[i].last)
            return eras[i].branch;
    }
    return UINT32_MAX;
}

static const struct field *find_field(unsigned int id)
{
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].id == id)
            return &fields[i];
    }
    return NULL;
}

static void put(nvmlFieldValue_t *v, int type, int64_t value)
{
    v->valueType = type;
    memset(&v->value, 0, sizeof(v->value));
    if (type == VALUE_UNSIGNED_INT)
        v->value.uiVal = (unsigned int)value;
    else if (type == VALUE_SIGNED_INT)
        v->value.siVal = (int)value;
    else
        v->value.ullVal = (unsigned long long)value;
}

// A link's part of what all carried: equal shares, the rest on link 0.
static int64_t link_share(const struct call *c, unsigned int link, int64_t total)
{
    int64_t links = call_gpu(c)->links;
    int64_t each = total / links;
    return link == 0 ? total - each * (links - 1) : each;
}

static nvmlReturn_t read_signal(const struct call *c, const struct field *f, nvmlFieldValue_t *v)
{
    int64_t value;
    if (f->scope == SCOPE_POWER && v->scopeId != 0)
        return v->scopeId == 1 ? NOT_SUPPORTED : INVALID_ARGUMENT;
    int code = sim_truth(c->node, c->gpu, f->signal, c->t, &value);
    if (code != OK)
        return code;
    if (f->scope == SCOPE_LINK && v->scopeId != ALL_LINKS) {
        if (v->scopeId >= call_gpu(c)->links)
            return INVALID_ARGUMENT;
        value = link_share(c, v->scopeId, value);
    }
    put(v, f->type, value);
    return OK;
}

// Ids that are no plain signal. -1: not one of these.
static int read_special(const struct call *c, nvmlFieldValue_t *v)
{
    int64_t value;
    const struct sim_gpu *g = call_gpu(c);
    switch (v->fieldId) {
    case 91: // links
        put(v, VALUE_UNSIGNED_INT, g->links);
        return OK;
    case 165: // state of a link
        if (v->scopeId >= g->links)
            return g->links == 0 ? NOT_SUPPORTED : INVALID_ARGUMENT;
        value =
            v->scopeId >= (unsigned)sim_truth_or_zero(c->node, c->gpu, SIM_NVLINK_LINKS_DOWN, c->t);
        put(v, VALUE_UNSIGNED_INT, value);
        return OK;
    case 186: { // power at this instant
        if (v->scopeId != 0)
            return v->scopeId == 1 ? NOT_SUPPORTED : INVALID_ARGUMENT;
        sim_wide sum;
        int code = sim_integral(c->node, c->gpu, SIM_POWER, c->t, c->t + 1, &sum);
        if (code == OK)
            put(v, VALUE_UNSIGNED_INT, (int64_t)(sum / 1000000));
        return code;
    }
    default:
        return -1;
    }
}

enum unknown_fields {
    UNKNOWN_RETURNS,    // the id gets NOT_SUPPORTED
    UNKNOWN_UNTOUCHED,  // the record stays as it was
    UNKNOWN_FAILS_CALL, // the whole call gets INVALID_ARGUMENT
};

static void answer(const struct call *c, nvmlFieldValue_t *v)
{
    const struct field *f = find_field(v->fieldId);
    v->timestamp = sim_wall_us(c->node, c->t);
    v->latencyUsec = 0;
    int code = read_special(c, v);
    if (code < 0)
        code = f ? read_signal(c, f, v) : NOT_SUPPORTED;
    v->nvmlReturn = code;
}

static bool knows(const struct call *c, unsigned int id)
{
    const struct field *f = find_field(id);
    return (f ? f->branch : branch_of(id)) <= c->node->driver_branch;
}

API(nvmlDeviceGetFieldValues, nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    CALL_GPU(device);
    if (count <= 0 || !values)
        return INVALID_ARGUMENT;
    int64_t mode = sim_truth_or_zero(c.node, SIM_NODE, SIM_DRIVER_UNKNOWN_FIELDS, c.t);
    for (int i = 0; mode == UNKNOWN_FAILS_CALL && i < count; i++) {
        if (!knows(&c, values[i].fieldId))
            return INVALID_ARGUMENT;
    }
    for (int i = 0; i < count; i++) {
        if (knows(&c, values[i].fieldId))
            answer(&c, &values[i]);
        else if (mode == UNKNOWN_RETURNS)
            values[i].nvmlReturn = values[i].fieldId == 0 ? INVALID_ARGUMENT : NOT_SUPPORTED;
    }
    return OK;
}
