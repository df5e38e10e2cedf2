// SPDX-License-Identifier: Apache-2.0
// What the work kernels of podgpu-burn compute for a thread, from their description in the PTX
// texts (src/burn/ptx): written apart from the program's own reckoning, which it is compared with.
#include "double.h"

#include <math.h>
#include <string.h>

#define CHAINS 8u
#define ACCUMULATORS 32u

static uint32_t single(uint32_t start, uint32_t steps)
{
    float x = fmaf((float)(start & 65535), 0x1p-15f, -1.0f);
    for (uint32_t i = 0; i < steps; i++)
        x = fmaf(x, x, -1.9f);
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static uint32_t twofold(uint32_t start, uint32_t steps)
{
    double x = fma((double)(start & 65535), 0x1p-15, -1.0);
    for (uint32_t i = 0; i < steps; i++)
        x = fma(x, x, -1.9);
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint32_t)bits ^ (uint32_t)(bits >> 32);
}

static uint32_t integer(uint32_t start, uint32_t steps, uint32_t multiplier)
{
    for (uint32_t i = 0; i < steps; i++)
        start = start * multiplier + 1013904223u;
    return start;
}

// A turn adds the product and takes it off again, the last one stays.
static uint32_t tensor(uint32_t thread, uint32_t depth, uint32_t seed)
{
    uint32_t a = 1 + ((thread / 32 + seed) & 3), b = 1 + ((thread / 128 + seed) & 3);
    uint32_t result = 0;
    for (uint32_t e = 0; e < ACCUMULATORS; e++) {
        float x = (float)(((thread + seed + e) & 1023) + depth * a * b);
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        result = result * 1664525u + bits;
    }
    return result;
}

uint32_t cuda_result(const char *kernel, uint32_t thread, uint32_t turns, uint32_t seed)
{
    if (strcmp(kernel, "fp16") == 0 || strcmp(kernel, "bf16") == 0)
        return tensor(thread, 16, seed);
    if (strcmp(kernel, "tf32") == 0)
        return tensor(thread, 8, seed);
    uint32_t result = 0;
    for (uint32_t k = 0; k < CHAINS; k++) {
        uint32_t start = thread * CHAINS + seed + k;
        if (strcmp(kernel, "fp32") == 0)
            result ^= single(start, turns * 4);
        else if (strcmp(kernel, "fp64") == 0)
            result ^= twofold(start, turns * 2);
        else if (strcmp(kernel, "int32") == 0)
            result ^= integer(start, turns * 4, thread * 4 + 1664525);
    }
    return result;
}
