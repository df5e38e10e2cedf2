// SPDX-License-Identifier: Apache-2.0
// nvmlDeviceGetFieldValues: one bulk call for all wanted ids of a GPU, each with its own return;
// what is known of drivers' mistakes is undone here.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "source/nvml_fields.h"

#define NVML_FIELD_VALUE_IDS 512  // ids run to 303 in CUDA 13.3
#define NVML_FIELD_VALUES_MAX 384 // records in one call: the recipes have 130 (id, scope) pairs

struct nvml_value {
    uint32_t id, scope; // in
    uint8_t expect;     // enum nvml_expect, in
    nvmlReturn_t result;
    uint64_t number;   // integers; signed ones in two's complement
    double real;       // EXPECT_TYPED
    int64_t driver_us; // the driver's time of it, since 1970; 0 unknown
};

// Ids that this driver refuses, learnt when it failed a whole call; forgotten at the next nvmlInit.
struct nvml_field_values {
    uint64_t refused[NVML_FIELD_VALUE_IDS / 64];
};

// After nvmlInit: forgets what was learnt, and refuses what the driver's branch is known to number
// otherwise.
void nvml_field_values_init(struct nvml_field_values *f, const char *driver_version);
// Fills values[0..count). NVML_SUCCESS, or why nothing could be had of the GPU.
nvmlReturn_t nvml_field_values_get(struct nvml *n, struct nvml_field_values *f, nvmlDevice_t device,
                                   uint32_t gpu_index, struct nvml_value *values, uint32_t count);
// The scope id DCGM asks id with: all links for the NVLink 5 counters, else 0.
uint32_t nvml_field_value_scope(uint32_t id);
// What a record says, given what the id holds. Engine.
void nvml_field_value_read(const nvmlFieldValue_t *record, struct nvml_value *value);
