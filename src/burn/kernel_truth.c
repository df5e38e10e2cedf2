// SPDX-License-Identifier: Apache-2.0
// The work kernels of ptx/ once more, for one thread. fma(3) rounds once, as fma.rn does.
#include <math.h>
#include <string.h>

#include "burn/kernels.h"

#define CHAINS 8
#define ELEMENTS 32 // of a thread's accumulators

static uint32_t truth_fp32(uint32_t thread, uint32_t turns, uint32_t seed)
{
    uint32_t result = 0;
    for (uint32_t k = 0; k < CHAINS; k++) {
        float x = fmaf((float)((thread * 8 + seed + k) & 65535), 0x1p-15f, -1.0f);
        for (uint64_t n = 0; n < (uint64_t)turns * 4; n++)
            x = fmaf(x, x, -1.9f);
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        result ^= bits;
    }
    return result;
}

static uint32_t truth_fp64(uint32_t thread, uint32_t turns, uint32_t seed)
{
    uint64_t result = 0;
    for (uint32_t k = 0; k < CHAINS; k++) {
        double x = fma((double)((thread * 8 + seed + k) & 65535), 0x1p-15, -1.0);
        for (uint64_t n = 0; n < (uint64_t)turns * 2; n++)
            x = fma(x, x, -1.9);
        uint64_t bits;
        memcpy(&bits, &x, sizeof(bits));
        result ^= bits;
    }
    return (uint32_t)result ^ (uint32_t)(result >> 32);
}

static uint32_t truth_int32(uint32_t thread, uint32_t turns, uint32_t seed)
{
    uint32_t result = 0, multiplier = thread * 4 + 1664525;
    for (uint32_t k = 0; k < CHAINS; k++) {
        uint32_t x = thread * 8 + seed + k;
        for (uint64_t n = 0; n < (uint64_t)turns * 4; n++)
            x = x * multiplier + 1013904223;
        result ^= x;
    }
    return result;
}

// All is small integers, exact in every format; `depth` products are added up in an element.
static uint32_t truth_tensor(uint32_t thread, uint32_t depth, uint32_t seed)
{
    uint32_t a = 1 + (((thread >> 5) + seed) & 3), b = 1 + (((thread >> 7) + seed) & 3);
    uint32_t result = 0;
    for (uint32_t e = 0; e < ELEMENTS; e++) {
        float x = (float)(((thread + seed + e) & 1023) + depth * a * b);
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        result = result * 1664525 + bits;
    }
    return result;
}

uint32_t kernel_truth(enum burn_kind kind, uint32_t thread, uint32_t turns, uint32_t seed)
{
    switch (kind) {
    case BURN_FP32:
        return truth_fp32(thread, turns, seed);
    case BURN_FP64:
        return truth_fp64(thread, turns, seed);
    case BURN_INT32:
        return truth_int32(thread, turns, seed);
    case BURN_FP16:
    case BURN_BF16:
        return truth_tensor(thread, 16, seed);
    case BURN_TF32:
        return truth_tensor(thread, 8, seed);
    case BURN_DRAM:
    case BURN_PCIE_H2D:
    case BURN_PCIE_D2H:
    case BURN_PCIE_BOTH:
    case BURN_PEER:
    case BURN_KIND_COUNT:
        break;
    }
    return 0;
}
