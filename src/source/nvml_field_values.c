// SPDX-License-Identifier: Apache-2.0
#include "source/nvml_field_values.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "source/nvml_call.h"

// Used by the one thread that calls NVML.
static nvmlFieldValue_t records[NVML_FIELD_VALUES_MAX];

static void refuse(struct nvml_field_values *f, uint32_t id)
{
    f->refused[id / 64] |= UINT64_C(1) << id % 64;
}

// nvml.h of CUDA 12.9 (driver 575) gives ids 251 to 273 to other fields than the headers before
// (12.8) and after (13.0): what 269 means there is not sure, and a number under the wrong name is
// worse than none.
void nvml_field_values_init(struct nvml_field_values *f, const char *driver_version)
{
    uint64_t branch = 0;
    struct sv rest = sv_from(driver_version), major;
    *f = (struct nvml_field_values){0};
    if (!sv_next(&rest, '.', &major) || num_parse_u64(major, 0, 100000, &branch) < 0)
        return;
    for (uint32_t id = 251; branch >= 575 && branch < 580 && id <= 273; id++)
        refuse(f, id);
}

uint32_t nvml_field_value_scope(uint32_t id)
{
    bool per_link = (id >= 201 && id <= 222) || (id >= 235 && id <= 250);
    return per_link ? NVML_NVLINK_ALL_LINKS : 0;
}

static uint64_t integer_of(const nvmlValue_t *value, int type)
{
    switch (type) {
    case NVML_VALUE_TYPE_UNSIGNED_INT:
        return value->uiVal;
    case NVML_VALUE_TYPE_SIGNED_INT:
        return (uint64_t)(int64_t)value->siVal;
    case NVML_VALUE_TYPE_UNSIGNED_SHORT:
        return value->usVal;
    default:
        return value->ullVal;
    }
}

// The type a driver names may be wrong (r545 calls the memory temperature a double, some call ECC
// counts so): an integer type is believed, double only where the type is, else what is expected is
// read.
void nvml_field_value_read(const nvmlFieldValue_t *record, struct nvml_value *value)
{
    value->result = record->nvmlReturn;
    value->driver_us = record->timestamp;
    // Left as it was zeroed: the driver does not know the id. DCGM reads it so too.
    if (record->nvmlReturn == NVML_SUCCESS && !record->timestamp &&
        record->valueType == NVML_VALUE_TYPE_DOUBLE)
        value->result = NVML_ERROR_NOT_SUPPORTED;
    if (value->result != NVML_SUCCESS)
        return;
    if (record->valueType != NVML_VALUE_TYPE_DOUBLE)
        value->number = integer_of(&record->value, record->valueType);
    else if (value->expect == EXPECT_U32)
        value->number = record->value.uiVal;
    else
        value->number = record->value.ullVal;
    value->real =
        record->valueType == NVML_VALUE_TYPE_DOUBLE ? record->value.dVal : (double)value->number;
    if (value->expect == EXPECT_TYPED && !isfinite(value->real))
        value->result = NVML_ERROR_NO_DATA;
}

static bool is_refused(const struct nvml_field_values *f, uint32_t id)
{
    return id >= NVML_FIELD_VALUE_IDS || (f->refused[id / 64] >> id % 64 & 1);
}

static nvmlReturn_t ask(struct nvml *n, nvmlDevice_t device, uint32_t gpu_index,
                        nvmlFieldValue_t *list, uint32_t count)
{
    return nvml_call(n, gpu_index, nvmlDeviceGetFieldValues, device, (int)count, list);
}

static void prepare(nvmlFieldValue_t *record, const struct nvml_value *value)
{
    memset(record, 0, sizeof(*record));
    record->fieldId = value->id;
    record->scopeId = value->scope;
}

// After a whole call failed: each id alone, and those that fail are not asked again. When all fail
// it is not the ids.
static nvmlReturn_t ask_one_by_one(struct nvml *n, struct nvml_field_values *f, nvmlDevice_t device,
                                   uint32_t gpu_index, struct nvml_value *values, uint32_t count)
{
    struct nvml_field_values before = *f;
    uint32_t answered = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct nvml_value *value = &values[i];
        value->result = NVML_ERROR_NOT_SUPPORTED;
        if (is_refused(f, value->id))
            continue;
        prepare(&records[0], value);
        nvmlReturn_t result = ask(n, device, gpu_index, &records[0], 1);
        if (nvml_state_of(result) != FRAME_ENTITY_UP)
            return result;
        value->result = result;
        if (result == NVML_ERROR_INVALID_ARGUMENT)
            refuse(f, value->id);
        if (result != NVML_SUCCESS)
            continue;
        nvml_field_value_read(&records[0], value);
        answered++;
    }
    if (!answered)
        *f = before;
    return answered ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvml_field_values_get(struct nvml *n, struct nvml_field_values *f, nvmlDevice_t device,
                                   uint32_t gpu_index, struct nvml_value *values, uint32_t count)
{
    assert(count <= NVML_FIELD_VALUES_MAX);
    uint32_t asked = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!is_refused(f, values[i].id))
            prepare(&records[asked++], &values[i]);
    nvmlReturn_t result = asked ? ask(n, device, gpu_index, records, asked) : NVML_SUCCESS;
    if (result == NVML_ERROR_INVALID_ARGUMENT && asked > 1)
        return ask_one_by_one(n, f, device, gpu_index, values, count);
    if (result != NVML_SUCCESS)
        return result;
    for (uint32_t i = 0, at = 0; i < count; i++) {
        if (is_refused(f, values[i].id))
            values[i].result = NVML_ERROR_NOT_SUPPORTED;
        else
            nvml_field_value_read(&records[at++], &values[i]);
    }
    return NVML_SUCCESS;
}
