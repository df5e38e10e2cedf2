// SPDX-License-Identifier: Apache-2.0
#include "fake_libcuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "burn/kernels.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT extern struct fake_cuda fake_cuda;
EXPORT struct fake_cuda fake_cuda;

struct CUevent_st {
    uint64_t at_ns;
};

// What the tests of the kernels' text compare with.
EXPORT uint32_t fake_truth(int kind, uint32_t thread, uint32_t turns, uint32_t seed);
EXPORT uint32_t fake_truth(int kind, uint32_t thread, uint32_t turns, uint32_t seed)
{
    return kernel_truth((enum burn_kind)kind, thread, turns, seed);
}

static int failing(const char *name)
{
    if (strcmp(fake_cuda.fail_call, name) != 0)
        return 0;
    return fake_cuda.calls_of_fail++ >= (uint64_t)fake_cuda.fail_after ? fake_cuda.fail_code : 0;
}

#define ENTER()                                                                                    \
    do {                                                                                           \
        int code_ = failing(__func__);                                                             \
        if (code_)                                                                                 \
            return code_;                                                                          \
    } while (0)

static void occupy(uint64_t ns)
{
    struct fake_cuda *f = &fake_cuda;
    uint64_t from = f->free_at_ns > f->now_ns ? f->free_at_ns : f->now_ns;
    struct fake_span *last = f->span_count ? &f->spans[f->span_count - 1] : NULL;
    if (last && last->to_ns == from)
        last->to_ns += ns;
    else if (f->span_count < FAKE_SPANS)
        f->spans[f->span_count++] = (struct fake_span){from, from + ns};
    f->free_at_ns = from + ns;
}

static void wait_until(uint64_t t)
{
    struct fake_cuda *f = &fake_cuda;
    if (t > f->now_ns)
        f->now_ns = t;
    if (f->stop && f->stop_at_ns && f->now_ns >= f->stop_at_ns)
        *f->stop = 1;
}

#define API EXPORT CUresult

API cuInit(unsigned flags);
API cuInit(unsigned flags)
{
    ENTER();
    return 0;
}

API cuDriverGetVersion(int *out);
API cuDriverGetVersion(int *out)
{
    ENTER();
    *out = fake_cuda.version;
    return 0;
}

API cuGetErrorName(CUresult r, const char **out);
API cuGetErrorName(CUresult r, const char **out)
{
    *out = r == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
           : r == 700                    ? "CUDA_ERROR_ILLEGAL_ADDRESS"
           : r == 999                    ? "CUDA_ERROR_UNKNOWN"
                                         : NULL;
    return *out ? 0 : 1;
}

API cuGetErrorString(CUresult r, const char **out);
API cuGetErrorString(CUresult r, const char **out)
{
    *out = r == 700 ? "an illegal memory access was encountered" : "unknown error";
    return 0;
}

API cuDeviceGetCount(int *out);
API cuDeviceGetCount(int *out)
{
    ENTER();
    *out = fake_cuda.gpus;
    return 0;
}

API cuDeviceGet(CUdevice *out, int index);
API cuDeviceGet(CUdevice *out, int index)
{
    ENTER();
    *out = 100 + index;
    return index < fake_cuda.gpus ? 0 : 101;
}

API cuDeviceGetName(char *out, int bytes, CUdevice device);
API cuDeviceGetName(char *out, int bytes, CUdevice device)
{
    ENTER();
    (void)snprintf(out, (size_t)bytes, "Fake GPU");
    return 0;
}

static void uuid_of(CUdevice device, unsigned char salt, CUuuid *out)
{
    for (unsigned i = 0; i < 16; i++)
        out->bytes[i] = (unsigned char)(i * 17);
    out->bytes[15] = (unsigned char)(device - 100);
    out->bytes[0] = salt;
}

API cuDeviceGetUuid(CUuuid *out, CUdevice device);
API cuDeviceGetUuid(CUuuid *out, CUdevice device)
{
    ENTER();
    uuid_of(device, 0xab, out);
    return 0;
}

API cuDeviceGetUuid_v2(CUuuid *out, CUdevice device);
API cuDeviceGetUuid_v2(CUuuid *out, CUdevice device)
{
    ENTER();
    uuid_of(device, fake_cuda.mig ? 0xcd : 0xab, out);
    return 0;
}

API cuDeviceGetAttribute(int *out, int attribute, CUdevice device);
API cuDeviceGetAttribute(int *out, int attribute, CUdevice device)
{
    ENTER();
    *out = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT       ? 1
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? fake_cuda.major
                                                                       : fake_cuda.minor;
    return 0;
}

API cuDeviceTotalMem_v2(size_t *out, CUdevice device);
API cuDeviceTotalMem_v2(size_t *out, CUdevice device)
{
    ENTER();
    *out = fake_cuda.total_bytes;
    return 0;
}

API cuDeviceCanAccessPeer(int *out, CUdevice a, CUdevice b);
API cuDeviceCanAccessPeer(int *out, CUdevice a, CUdevice b)
{
    ENTER();
    *out = fake_cuda.peers && a != b;
    return 0;
}

API cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device);
API cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    ENTER();
    fake_cuda.contexts++;
    *out = (CUcontext)(uintptr_t)device;
    return 0;
}

API cuDevicePrimaryCtxRelease_v2(CUdevice device);
API cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    fake_cuda.contexts--;
    return 0;
}

API cuCtxSetCurrent(CUcontext context);
API cuCtxSetCurrent(CUcontext context)
{
    ENTER();
    return 0;
}

API cuCtxEnablePeerAccess(CUcontext to, unsigned flags);
API cuCtxEnablePeerAccess(CUcontext to, unsigned flags)
{
    ENTER();
    return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

API cuModuleLoadDataEx(CUmodule *out, const void *text, unsigned n, int *options, void **values);
API cuModuleLoadDataEx(CUmodule *out, const void *text, unsigned n, int *options, void **values)
{
    if (fake_cuda.jit_log && n == 2 && options[0] == CU_JIT_ERROR_LOG_BUFFER)
        (void)snprintf(values[0], (size_t)(uintptr_t)values[1], "%s", fake_cuda.jit_log);
    ENTER();
    *out = (CUmodule)(uintptr_t)text;
    return 0;
}

API cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name);
API cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    ENTER();
    char entry[64];
    (void)snprintf(entry, sizeof(entry), ".entry %s(", name);
    *out = (CUfunction)(uintptr_t)name;
    return strstr((const char *)(uintptr_t)module, entry) ? 0 : 500;
}

API cuMemGetInfo_v2(size_t *out_free, size_t *out_total);
API cuMemGetInfo_v2(size_t *out_free, size_t *out_total)
{
    ENTER();
    *out_free = fake_cuda.total_bytes - fake_cuda.used_bytes;
    *out_total = fake_cuda.total_bytes;
    return 0;
}

// The size stands before the memory.
static void *allocate(size_t bytes)
{
    size_t *p = calloc(1, bytes + 64);
    if (!p)
        abort();
    p[0] = bytes;
    return (char *)p + 64;
}

static size_t release(void *memory)
{
    size_t *p = (size_t *)(void *)((char *)memory - 64);
    size_t bytes = p[0];
    free(p);
    return bytes;
}

API cuMemAlloc_v2(CUdeviceptr *out, size_t bytes);
API cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    ENTER();
    if (bytes > fake_cuda.total_bytes - fake_cuda.used_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake_cuda.used_bytes += bytes;
    *out = (CUdeviceptr)(uintptr_t)allocate(bytes);
    return 0;
}

API cuMemFree_v2(CUdeviceptr p);
API cuMemFree_v2(CUdeviceptr p)
{
    fake_cuda.used_bytes -= release((void *)(uintptr_t)p);
    return 0;
}

API cuMemAllocHost_v2(void **out, size_t bytes);
API cuMemAllocHost_v2(void **out, size_t bytes)
{
    ENTER();
    fake_cuda.host_allocations++;
    *out = allocate(bytes);
    return 0;
}

API cuMemFreeHost(void *p);
API cuMemFreeHost(void *p)
{
    fake_cuda.host_allocations--;
    (void)release(p);
    return 0;
}

API cuMemsetD32_v2(CUdeviceptr p, unsigned value, size_t words);
API cuMemsetD32_v2(CUdeviceptr p, unsigned value, size_t words)
{
    ENTER();
    for (size_t i = 0; i < words; i++)
        ((uint32_t *)(uintptr_t)p)[i] = value;
    return 0;
}

API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    ENTER();
    memcpy((void *)(uintptr_t)to, from, bytes);
    occupy(fake_cuda.other_ns);
    return 0;
}

API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER();
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    occupy(fake_cuda.other_ns);
    return 0;
}

API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here,
                      size_t bytes, CUstream stream);
API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here,
                      size_t bytes, CUstream stream)
{
    ENTER();
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    occupy(fake_cuda.other_ns);
    return 0;
}

API cuStreamCreate(CUstream *out, unsigned flags);
API cuStreamCreate(CUstream *out, unsigned flags)
{
    ENTER();
    *out = (CUstream)(uintptr_t)1;
    return 0;
}

API cuStreamSynchronize(CUstream stream);
API cuStreamSynchronize(CUstream stream)
{
    wait_until(fake_cuda.free_at_ns);
    ENTER();
    return 0;
}

API cuEventCreate(CUevent *out, unsigned flags);
API cuEventCreate(CUevent *out, unsigned flags)
{
    static struct CUevent_st events[4096];
    static unsigned used;
    ENTER();
    *out = &events[used++ % 4096];
    return 0;
}

API cuEventRecord(CUevent event, CUstream stream);
API cuEventRecord(CUevent event, CUstream stream)
{
    ENTER();
    event->at_ns =
        fake_cuda.free_at_ns > fake_cuda.now_ns ? fake_cuda.free_at_ns : fake_cuda.now_ns;
    return 0;
}

API cuEventSynchronize(CUevent event);
API cuEventSynchronize(CUevent event)
{
    ENTER();
    wait_until(event->at_ns);
    return 0;
}

API cuEventElapsedTime(float *out, CUevent from, CUevent to);
API cuEventElapsedTime(float *out, CUevent from, CUevent to)
{
    ENTER();
    *out = (float)((double)(to->at_ns - from->at_ns) / 1e6);
    return 0;
}

static uint64_t u64_of(void **p, unsigned i)
{
    uint64_t v;
    memcpy(&v, p[i], sizeof(v));
    return v;
}

static uint32_t u32_of(void **p, unsigned i)
{
    uint32_t v;
    memcpy(&v, p[i], sizeof(v));
    return v;
}

static enum burn_kind kind_named(const char *name)
{
    static const char *const names[] = {"fp32", "fp64", "fp16", "bf16", "tf32", "int32"};
    for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcmp(name, names[i]) == 0)
            return (enum burn_kind)i;
    }
    return BURN_KIND_COUNT;
}

// The proof is made as on a GPU; later rounds of anything that differs by round and thread.
static void run_work(const char *name, uint32_t threads, void **p)
{
    uint32_t *out = (uint32_t *)(uintptr_t)u64_of(p, 0);
    uint32_t block = u32_of(p, 2), blocks = u32_of(p, 3), quanta = u32_of(p, 4);
    uint32_t turns = u32_of(p, 5), seed = u32_of(p, 6);
    for (uint32_t q = 0; q < quanta; q++, block = (block + 1) % blocks) {
        for (uint32_t i = 0; i < threads; i++)
            out[(uint64_t)block * threads + i] =
                turns == 3 && seed == 7 ? kernel_truth(kind_named(name), i, turns, seed)
                                        : (i + turns) * 2654435761u ^ seed;
    }
    if (++fake_cuda.launches == fake_cuda.wrong_launch)
        out[(uint64_t)((block + blocks - 1) % blocks) * threads + 5] ^= 1u << 9;
    occupy((uint64_t)quanta * turns * fake_cuda.turn_ns);
}

static void run_dram(uint32_t threads, void **p)
{
    char *out = (char *)(uintptr_t)u64_of(p, 0), *source = (char *)(uintptr_t)u64_of(p, 1);
    uint32_t block = u32_of(p, 2), blocks = u32_of(p, 3), quanta = u32_of(p, 4);
    size_t bytes = (size_t)threads * u32_of(p, 5) * KERNEL_DRAM_TURN_BYTES;
    for (uint32_t q = 0; q < quanta; q++, block = (block + 1) % blocks)
        memcpy(out + block * bytes, source + block * bytes, bytes);
    if (fake_cuda.wrong_launch && ++fake_cuda.launches >= fake_cuda.wrong_launch)
        out[((block + blocks - 1) % blocks) * bytes + 21] ^= 1;
    occupy((uint64_t)quanta * u32_of(p, 5) * fake_cuda.turn_ns);
}

static void run_check(bool pattern, void **p)
{
    const uint32_t *reference = (const uint32_t *)(uintptr_t)u64_of(p, 0);
    const uint32_t *results = (const uint32_t *)(uintptr_t)u64_of(p, 1);
    uint64_t *mismatches = (uint64_t *)(uintptr_t)u64_of(p, 2);
    uint32_t words = u32_of(p, 3), block = u32_of(p, 4), blocks = u32_of(p, 5);
    for (uint32_t n = u32_of(p, 6); n > 0; n--, block = (block + 1) % blocks) {
        for (uint32_t j = 0; j < words; j++) {
            uint64_t at = (uint64_t)block * words + j;
            *mismatches +=
                results[at] !=
                (pattern ? kernel_pattern(at, (uint32_t)(uintptr_t)reference) : reference[j]);
        }
    }
    occupy(fake_cuda.other_ns);
}

API cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, CUstream stream, void **p,
                   void **extra);
API cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, CUstream stream, void **p,
                   void **extra)
{
    ENTER();
    const char *name = (const char *)(uintptr_t)function;
    if (strcmp(name, "fill") == 0) {
        for (uint64_t j = 0; j < u64_of(p, 1); j++)
            ((uint32_t *)(uintptr_t)u64_of(p, 0))[j] = kernel_pattern(j, u32_of(p, 2));
        occupy(fake_cuda.other_ns);
    } else if (strcmp(name, "compare") == 0 || strcmp(name, "verify") == 0) {
        run_check(name[0] == 'v', p);
    } else if (strcmp(name, "dram") == 0) {
        run_dram(gx * bx, p);
    } else if (strcmp(name, "fault") == 0) {
        (void)snprintf(fake_cuda.fail_call, sizeof(fake_cuda.fail_call), "cuStreamSynchronize");
        fake_cuda.fail_code = 700;
        fake_cuda.fail_after = 0;
    } else {
        bool most = !fake_cuda.held_up_most || fake_cuda.launches <= fake_cuda.held_up_most;
        if (fake_cuda.held_up_each && most && fake_cuda.launches % fake_cuda.held_up_each == 0)
            fake_cuda.now_ns += fake_cuda.held_up_ns;
        run_work(name, gx * bx, p);
    }
    return 0;
}
