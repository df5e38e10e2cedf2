// SPDX-License-Identifier: Apache-2.0
#include "source/nvml_nvlink.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"

#define SCOPES (NVML_NVLINK_LINKS + 1)
#define DIRECTIONS 3

void nvml_rates_deinit(struct nvml_rates *r)
{
    free(r->slots);
    r->slots = NULL;
}

struct nvml_rate *nvml_rates_get(struct nvml_rates *r, uint32_t scope,
                                 enum nvml_nvlink_direction direction)
{
    if (!r->slots)
        r->slots = calloc(SCOPES * DIRECTIONS, sizeof(*r->slots));
    if (!r->slots)
        return NULL;
    size_t row = scope < NVML_NVLINK_LINKS ? scope : NVML_NVLINK_LINKS;
    return &r->slots[row * DIRECTIONS + (size_t)direction - 1];
}

// The driver stamps its reading with wall time, which is more exact than when we got it but may be
// set; ours is not.
static double seconds_between(const struct nvml_rate *base, uint64_t taken_ns, int64_t driver_us)
{
    double ours = (double)(taken_ns - base->taken_ns) / (double)NS_PER_S;
    if (!base->driver_us || !driver_us)
        return ours;
    double theirs = (double)(driver_us - base->driver_us) / 1e6;
    return fabs(theirs - ours) <= 0.1 * ours ? theirs : ours;
}

bool nvml_rate_update(struct nvml_rate *rate, uint64_t kib, uint64_t taken_ns, int64_t driver_us,
                      int64_t *out_rate)
{
    struct nvml_rate base = *rate;
    *rate = (struct nvml_rate){.kib = kib, .taken_ns = taken_ns, .driver_us = driver_us};
    *out_rate = 0;
    if (!base.taken_ns || taken_ns <= base.taken_ns || kib < base.kib)
        return kib == 0;
    *out_rate =
        (int64_t)((double)(kib - base.kib) / seconds_between(&base, taken_ns, driver_us) / 1000.0);
    return true;
}
