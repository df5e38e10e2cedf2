// SPDX-License-Identifier: Apache-2.0
// GPU performance monitoring (Hopper and later): values are averages over the window between two
// samples. Each entity keeps two sample objects; each reading takes a new sample, asks for all
// wanted metrics of the pair in one call and keeps the new sample as the next base.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "source/nvml_library.h"

#define NVML_GPM_LEAST_NS (100 * NS_PER_MS) // the driver wants this between two samples
#define NVML_GPM_WANTED_MAX 128             // metrics in one reading: the catalogue has 101

// Zeroed: nothing sampled yet.
struct nvml_gpm {
    nvmlGpmSample_t base; // the older sample, or NULL
    nvmlGpmSample_t spare;
    uint64_t base_ns; // when base was taken; 0: base holds nothing
};

// One metric: id in, the rest out.
struct nvml_gpm_value {
    unsigned int metric;
    nvmlReturn_t result; // NVML_ERROR_NO_DATA: not a number
    double value;        // as the library gives it: percent, MiB/s, counts
};

// The function of the instance to sample: mig_gi UINT32_MAX samples device itself, else GPU
// instance mig_gi of device.
struct nvml_gpm_target {
    nvmlDevice_t device;
    uint32_t mig_gi;
    uint32_t gpu_index; // for the call page
};

// True when the GPU can do it (asked of the parent under MIG).
bool nvml_gpm_supported(struct nvml *n, nvmlDevice_t device, uint32_t gpu_index);
// Takes a sample and, with a base at least NVML_GPM_LEAST_NS older, fills values[0..count).
// NVML_SUCCESS: each value has its own result. NVML_ERROR_NO_DATA: this was the first sample.
// NVML_ERROR_NOT_READY: too soon after the last, nothing was asked. Else why the sample or the
// metrics failed; both ends are then dropped.
nvmlReturn_t nvml_gpm_read(struct nvml *n, struct nvml_gpm *gpm,
                           const struct nvml_gpm_target *target, uint64_t now_ns,
                           struct nvml_gpm_value *values, uint32_t count);
// True when a sample taken now would have a base that is old enough.
bool nvml_gpm_is_ripe(const struct nvml_gpm *gpm, uint64_t now_ns);
// Frees the samples (only while the library is initialised).
void nvml_gpm_reset(struct nvml *n, struct nvml_gpm *gpm, uint32_t gpu_index);
