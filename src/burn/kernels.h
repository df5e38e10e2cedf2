// SPDX-License-Identifier: Apache-2.0
// The kinds of load as kernels: which PTX text and entry, what they need of driver and GPU, how
// much they do. The texts' own page is ptx/README.md.
#pragma once

#include "burn/cuda_library.h"
#include "burn/options.h"

extern const char burn_ptx_plain[], burn_ptx_fp16[], burn_ptx_bf16[], burn_ptx_tf32[];

#define KERNEL_BLOCK 256u          // threads
#define KERNEL_BLOCKS_PER_SM 4u    // what every generation can hold at once
#define KERNEL_DRAM_TURN_BYTES 64u // that a thread copies in a turn

struct kernel_kind {
    const char *entry; // NULL: copies, no kernel
    const char *ptx;
    int cuda;           // 9000: what the text's version needs of the driver
    int major, minor;   // of compute capability, at least
    uint32_t turn_work; // operations, or bytes, of a thread in a turn
};
const struct kernel_kind *kernel_kind(enum burn_kind kind);

struct kernels {
    CUfunction work; // NULL: copies
    CUfunction fill, compare, verify, fault;
};

// Compiles what a kind needs for a GPU whose context is current. 0, or CUDA_FAILED with the
// versions that there are and that it takes.
int must_use kernels_load(const struct cuda *c, const struct cuda_gpu *gpu, enum burn_kind kind,
                          struct kernels *out, struct error *err);

// What a work kernel writes for a thread (fp32, fp64, int32 and the tensor kinds): the same
// function on the CPU, to the last bit.
uint32_t kernel_truth(enum burn_kind kind, uint32_t thread, uint32_t turns, uint32_t seed);
// Word j of the pattern that copies are checked by.
static inline uint32_t kernel_pattern(uint64_t j, uint32_t seed)
{
    return ((uint32_t)j + (uint32_t)(j >> 32)) * UINT32_C(2654435761) + seed;
}
