// SPDX-License-Identifier: Apache-2.0
// The one way to call libdcgm: fills the shared call page before and clears it after, so that the
// exporter can tell which call hangs, and counts. A function the library lacks costs nothing and is
// DCGM_ST_FUNCTION_NOT_FOUND; one that crashed or hung the helpers before is DCGM_ST_NOT_SUPPORTED.
#pragma once

#include "source/dcgm_library.h"

#define DCGM_NO_GPU DRIVER_NO_GPU

static inline bool dcgm_is_avoided(const struct dcgm *d, uint32_t gpu, const char *name)
{
    return driver_call_is_avoided(d->avoided, d->avoided_count, gpu, name);
}

static inline void dcgm_call_enter(struct dcgm *d, uint32_t gpu, const char *name,
                                   size_t name_bytes)
{
    driver_call_enter(d->page, gpu, name, name_bytes, ++d->calls);
}

static inline dcgmReturn_t dcgm_call_leave(struct dcgm *d, dcgmReturn_t result)
{
    driver_call_leave(d->page);
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
