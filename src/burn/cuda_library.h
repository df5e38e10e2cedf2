// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1, loaded at run time, and its GPUs. One thread; not across a fork: a process that
// called cuda_open must not fork workers that call it too.
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "burn/cuda_abi.h"

// X(member, arguments, names, newest first...)
#define CUDA_FUNCTIONS(X)                                                                          \
    X(cuInit, (unsigned), "cuInit")                                                                \
    X(cuDriverGetVersion, (int *), "cuDriverGetVersion")                                           \
    X(cuGetErrorName, (CUresult, const char **), "cuGetErrorName")                                 \
    X(cuGetErrorString, (CUresult, const char **), "cuGetErrorString")                             \
    X(cuDeviceGetCount, (int *), "cuDeviceGetCount")                                               \
    X(cuDeviceGet, (CUdevice *, int), "cuDeviceGet")                                               \
    X(cuDeviceGetName, (char *, int, CUdevice), "cuDeviceGetName")                                 \
    X(cuDeviceGetUuid, (CUuuid *, CUdevice), "cuDeviceGetUuid")                                    \
    X(cuDeviceGetUuid_v2, (CUuuid *, CUdevice), "cuDeviceGetUuid_v2", "cuDeviceGetUuid")           \
    X(cuDeviceGetAttribute, (int *, int, CUdevice), "cuDeviceGetAttribute")                        \
    X(cuDeviceTotalMem, (size_t *, CUdevice), "cuDeviceTotalMem_v2")                               \
    X(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice), "cuDeviceCanAccessPeer")                 \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), "cuDevicePrimaryCtxRetain")               \
    X(cuDevicePrimaryCtxRelease, (CUdevice), "cuDevicePrimaryCtxRelease_v2",                       \
      "cuDevicePrimaryCtxRelease")                                                                 \
    X(cuCtxSetCurrent, (CUcontext), "cuCtxSetCurrent")                                             \
    X(cuCtxEnablePeerAccess, (CUcontext, unsigned), "cuCtxEnablePeerAccess")                       \
    X(cuModuleLoadDataEx, (CUmodule *, const void *, unsigned, int *, void **),                    \
      "cuModuleLoadDataEx")                                                                        \
    X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *), "cuModuleGetFunction")          \
    X(cuMemGetInfo, (size_t *, size_t *), "cuMemGetInfo_v2")                                       \
    X(cuMemAlloc, (CUdeviceptr *, size_t), "cuMemAlloc_v2")                                        \
    X(cuMemFree, (CUdeviceptr), "cuMemFree_v2")                                                    \
    X(cuMemAllocHost, (void **, size_t), "cuMemAllocHost_v2")                                      \
    X(cuMemFreeHost, (void *), "cuMemFreeHost")                                                    \
    X(cuMemsetD32, (CUdeviceptr, unsigned, size_t), "cuMemsetD32_v2")                              \
    X(cuMemcpyHtoDAsync, (CUdeviceptr, const void *, size_t, CUstream), "cuMemcpyHtoDAsync_v2")    \
    X(cuMemcpyDtoHAsync, (void *, CUdeviceptr, size_t, CUstream), "cuMemcpyDtoHAsync_v2")          \
    X(cuMemcpyPeerAsync, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream),       \
      "cuMemcpyPeerAsync")                                                                         \
    X(cuStreamCreate, (CUstream *, unsigned), "cuStreamCreate")                                    \
    X(cuStreamSynchronize, (CUstream), "cuStreamSynchronize")                                      \
    X(cuEventCreate, (CUevent *, unsigned), "cuEventCreate")                                       \
    X(cuEventRecord, (CUevent, CUstream), "cuEventRecord")                                         \
    X(cuEventSynchronize, (CUevent), "cuEventSynchronize")                                         \
    X(cuEventElapsedTime, (float *, CUevent, CUevent), "cuEventElapsedTime")                       \
    X(cuLaunchKernel,                                                                              \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **, void **),                                                                          \
      "cuLaunchKernel")

struct cuda_functions {
#define CUDA_MEMBER(member, arguments, ...) CUresult(*member) arguments;
    CUDA_FUNCTIONS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

struct cuda {
    void *handle;
    struct cuda_functions fn;
    int version; // of CUDA that the driver supports: 12040
};

struct cuda_gpu {
    CUdevice device;
    int index;
    int major, minor; // compute capability
    int multiprocessors;
    size_t memory_bytes;
    char uuid[48]; // as NVML has it: GPU-... or MIG-...
    char name[96];
};

enum cuda_outcome { // positive: what there is to say is in *err
    CUDA_NO_GPU = 1,
    CUDA_FAILED = 2,
};

// Loads library, or searches for it when that is "" or NULL, and initialises it. 0, CUDA_NO_GPU
// (the driver shows none here) or CUDA_FAILED.
int must_use cuda_open(struct cuda *c, const char *library, struct error *err);
void cuda_close(struct cuda *c);

int must_use cuda_gpu_count(const struct cuda *c, int *out_count, struct error *err);
// 0 or CUDA_FAILED.
int must_use cuda_gpu_read(const struct cuda *c, int index, struct cuda_gpu *out,
                           struct error *err);
// By index ("0") or by UUID, which may be cut short after 8 digits as nvidia-smi's are. 0,
// CUDA_NO_GPU (not there) or CUDA_FAILED.
int must_use cuda_gpu_find(const struct cuda *c, const char *gpu, struct cuda_gpu *out,
                           struct error *err);

// 0 when result is success, else CUDA_FAILED with "CALL: reason (CUDA_ERROR_NAME)" in *err, which
// stays as it is when it has a text already: the first error is the one that counts.
int must_use cuda_check(const struct cuda *c, CUresult result, const char *call, struct error *err);
// cuda_call(c, err, cuStreamSynchronize, stream)
#define cuda_call(c, err, function, ...)                                                           \
    cuda_check((c), (c)->fn.function(__VA_ARGS__), #function, (err))
