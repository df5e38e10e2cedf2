// SPDX-License-Identifier: Apache-2.0
// NVLink throughput as DCGM publishes it: the change of the driver's cumulative KiB counters per
// second, divided by 1000, truncated (DCGM_FI_DEV_NVLINK_BANDWIDTH_*, _TX_, _RX_). Engine: counters
// and times come in as arguments.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

#define NVML_NVLINK_ALL_LINKS UINT32_MAX // the driver's scope id for the sum over links
#define NVML_NVLINK_LINKS 18

enum nvml_nvlink_direction {
    NVML_NVLINK_TX = 1,
    NVML_NVLINK_RX = 2,
    NVML_NVLINK_BOTH = 3,
};

struct nvml_rate {
    uint64_t kib;      // at the last reading
    uint64_t taken_ns; // CLOCK_MONOTONIC; 0: no base
    int64_t driver_us; // the driver's own time of it, 0 unknown
};

// One base a (link or all, direction): 19 scopes, 3 directions.
struct nvml_rates {
    struct nvml_rate *slots; // owned, allocated at the first use
};

void nvml_rates_deinit(struct nvml_rates *r);
// The base of a scope and direction, or NULL when memory is out.
struct nvml_rate *nvml_rates_get(struct nvml_rates *r, uint32_t scope,
                                 enum nvml_nvlink_direction direction);
// True and *out_rate; false when there is no base yet, the counter went back (driver reset) or no
// time has passed: the reading is then the new base. A counter at 0 has seen no traffic since the
// driver was loaded: rate 0 without a base. Time is the driver's own when both readings have one
// that agrees with ours within 10 %, else ours.
bool nvml_rate_update(struct nvml_rate *rate, uint64_t kib, uint64_t taken_ns, int64_t driver_us,
                      int64_t *out_rate);
