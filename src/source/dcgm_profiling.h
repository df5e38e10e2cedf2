// SPDX-License-Identifier: Apache-2.0
// Which profiling fields (ids 1001 to 1099) each GPU has: the metric groups that DCGM's profiling
// module, or GPM behind it, lists for the GPU. Asked GPU by GPU, since a node may hold several
// models. Instances and compute instances have what their GPU has.
//
// Fields whose groups share a major number but not the minor one cannot be measured at the same
// time; DCGM then takes turns by itself, and a value speaks of its turn. Nothing is to be done.
#pragma once

#include "source/dcgm_library.h"

#define DCGM_PROFILING_FIRST 1001
#define DCGM_PROFILING_END 1100

struct dcgm_profiling_gpu {
    uint32_t id; // DCGM's
    dcgmReturn_t result;
    uint64_t fields[2]; // bit per id from DCGM_PROFILING_FIRST
    uint16_t cut_after; // a group was full: what stands behind this id may be there; 0: none was
    uint32_t set;
};

struct dcgm_profiling {
    struct dcgm_profiling_gpu gpus[LIMIT_GPUS];
    uint32_t count;
};

static inline bool dcgm_field_is_profiling(uint16_t field)
{
    return field >= DCGM_PROFILING_FIRST && field < DCGM_PROFILING_END;
}

// Asks of one more GPU; past LIMIT_GPUS it is not remembered. The result is kept with the GPU and
// returned.
dcgmReturn_t dcgm_profiling_ask(struct dcgm *d, struct dcgm_profiling *p, uint32_t gpu);
// 0: the field can be watched on the GPU; else why not (DCGM_ST_PROFILING_NOT_SUPPORTED where no
// group has it, or the GPU was not asked of).
dcgmReturn_t dcgm_profiling_find(const struct dcgm_profiling *p, uint32_t gpu, uint16_t field);
// GPUs with the same fields are a set: the place, among those asked, of the first of the GPU's;
// UINT32_MAX: it was not asked of.
uint32_t dcgm_profiling_set_of(const struct dcgm_profiling *p, uint32_t gpu);
bool dcgm_profiling_is_equal(const struct dcgm_profiling *a, const struct dcgm_profiling *b);
