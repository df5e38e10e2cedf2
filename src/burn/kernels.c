// SPDX-License-Identifier: Apache-2.0
#include "burn/kernels.h"

#include <assert.h>
#include <errno.h>

#define TENSOR_WORK 2048 // 8 products of 16x16x16 of a warp, multiply and add, over its 32 threads

static const struct kernel_kind kinds[BURN_KIND_COUNT] = {
    [BURN_FP32] = {"fp32", burn_ptx_plain, 6000, 5, 0, 64},
    [BURN_FP64] = {"fp64", burn_ptx_plain, 6000, 5, 0, 32},
    [BURN_INT32] = {"int32", burn_ptx_plain, 6000, 5, 0, 64},
    [BURN_FP16] = {"fp16", burn_ptx_fp16, 9000, 7, 0, TENSOR_WORK},
    [BURN_BF16] = {"bf16", burn_ptx_bf16, 11000, 8, 0, TENSOR_WORK},
    [BURN_TF32] = {"tf32", burn_ptx_tf32, 11000, 8, 0, TENSOR_WORK / 2},
    // Each byte is read once and written once.
    [BURN_DRAM] = {"dram", burn_ptx_plain, 6000, 5, 0, 2 * KERNEL_DRAM_TURN_BYTES},
    [BURN_PCIE_H2D] = {NULL, burn_ptx_plain, 6000, 5, 0, 0},
    [BURN_PCIE_D2H] = {NULL, burn_ptx_plain, 6000, 5, 0, 0},
    [BURN_PCIE_BOTH] = {NULL, burn_ptx_plain, 6000, 5, 0, 0},
    [BURN_PEER] = {NULL, burn_ptx_plain, 6000, 5, 0, 0},
};

const struct kernel_kind *kernel_kind(enum burn_kind kind)
{
    assert(kind < BURN_KIND_COUNT);
    return &kinds[kind];
}

static int fail_old_driver(const struct cuda *c, const char *what, const struct kernel_kind *k,
                           struct error *err)
{
    (void)error_set(err, -ENOTSUP, "the driver is too old: it supports CUDA %d.%d, %s needs %d.%d",
                    c->version / 1000, c->version % 1000 / 10, what, k->cuda / 1000,
                    k->cuda % 1000 / 10);
    return CUDA_FAILED;
}

static int load_module(const struct cuda *c, const struct kernel_kind *k, const char *what,
                       CUmodule *out, struct error *err)
{
    char log[256] = "";
    int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)(sizeof(log) - 1)};
    CUresult r = c->fn.cuModuleLoadDataEx(out, k->ptx, ARRAY_SIZE(options), options, values);
    if (r == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
        return fail_old_driver(c, what, k, err);
    // The compiler's own words: one line is enough, the first is the cause.
    for (char *p = log; *p; p++) {
        if (*p == '\n')
            *p = '\0';
    }
    if (r != CUDA_SUCCESS && log[0]) {
        (void)error_set(err, -EIO, "the driver cannot compile kernel %s: %s", what, log);
        return CUDA_FAILED;
    }
    return cuda_check(c, r, "cuModuleLoadDataEx", err);
}

int kernels_load(const struct cuda *c, const struct cuda_gpu *gpu, enum burn_kind kind,
                 struct kernels *out, struct error *err)
{
    const struct kernel_kind *k = kernel_kind(kind), *plain = kernel_kind(BURN_FP32);
    const char *what = burn_kind_name(kind);
    if (c->version < k->cuda)
        return fail_old_driver(c, what, k, err);
    if (gpu->major * 10 + gpu->minor < k->major * 10 + k->minor) {
        (void)error_set(err, -ENOTSUP, "%s has compute capability %d.%d, %s needs %d.%d", gpu->name,
                        gpu->major, gpu->minor, what, k->major, k->minor);
        return CUDA_FAILED;
    }
    CUmodule module, own;
    struct kernels f = {0};
    if (load_module(c, plain, what, &module, err) != 0 ||
        cuda_call(c, err, cuModuleGetFunction, &f.fill, module, "fill") != 0 ||
        cuda_call(c, err, cuModuleGetFunction, &f.compare, module, "compare") != 0 ||
        cuda_call(c, err, cuModuleGetFunction, &f.verify, module, "verify") != 0 ||
        cuda_call(c, err, cuModuleGetFunction, &f.fault, module, "fault") != 0)
        return CUDA_FAILED;
    own = module;
    if (k->ptx != plain->ptx && load_module(c, k, what, &own, err) != 0)
        return CUDA_FAILED;
    if (k->entry && cuda_call(c, err, cuModuleGetFunction, &f.work, own, k->entry) != 0)
        return CUDA_FAILED;
    *out = f;
    return 0;
}
