// SPDX-License-Identifier: Apache-2.0
// The one way to call libdcgm: fills the shared call page before and clears it after, so that the
// exporter can tell which call hangs, and counts. A function the library lacks costs nothing and is
// DCGM_ST_FUNCTION_NOT_FOUND; one that crashed or hung the helpers before is DCGM_ST_NOT_SUPPORTED.
#pragma once

#include <string.h>

#include "base/clock.h"
#include "source/dcgm_library.h"

#define DCGM_NO_GPU UINT32_MAX

static inline bool dcgm_is_avoided(const struct dcgm *d, uint32_t gpu, const char *name)
{
    for (uint32_t i = 0; i < d->avoided_count; i++) {
        const struct dcgm_avoided *a = &d->avoided[i];
        if ((a->gpu_index == DCGM_NO_GPU || a->gpu_index == gpu) &&
            sv_equals(a->name, sv_from(name)))
            return true;
    }
    return false;
}

static inline void dcgm_call_enter(struct dcgm *d, uint32_t gpu, const char *name,
                                   size_t name_bytes)
{
    struct frame_call_page *page = d->page;
    memcpy(page->call, name, name_bytes);
    page->index = gpu;
    page->calls = ++d->calls;
    // Last, in release order: a watchdog that sees the time sees the call it belongs to.
    __atomic_store_n(&page->entered_ns, clock_mono_ns(), __ATOMIC_RELEASE);
}

static inline dcgmReturn_t dcgm_call_leave(struct dcgm *d, dcgmReturn_t result)
{
    __atomic_store_n(&d->page->entered_ns, 0, __ATOMIC_RELEASE);
    if (result == DCGM_ST_CONNECTION_NOT_VALID)
        d->lost = true;
    return result;
}

// dcgm_call_gpu(d, gpu, dcgmGetDeviceAttributes, d->engine, gpu, &attributes): what asks one GPU
// alone, by its DCGM id.
#define dcgm_call_gpu(d, gpu, function, ...)                                                       \
    ({                                                                                             \
        _Static_assert(sizeof(#function) <= sizeof((d)->page->call),                               \
                       "the call page holds the name");                                            \
        !(d)->fn.function ? DCGM_ST_FUNCTION_NOT_FOUND                                             \
        : dcgm_is_avoided((d), (gpu), #function)                                                   \
            ? DCGM_ST_NOT_SUPPORTED                                                                \
            : (dcgm_call_enter((d), (gpu), #function, sizeof(#function)),                          \
               dcgm_call_leave((d), (d)->fn.function(__VA_ARGS__)));                               \
    })

// dcgm_call(d, dcgmGetAllDevices, d->engine, ids, &count)
#define dcgm_call(d, function, ...) dcgm_call_gpu((d), DCGM_NO_GPU, function, __VA_ARGS__)
