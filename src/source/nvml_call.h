// SPDX-License-Identifier: Apache-2.0
// The one way to call NVML: fills the shared call page before and clears it after, so that the
// exporter can tell which call on which GPU hangs, and counts. A function the library lacks costs
// nothing and is FUNCTION_NOT_FOUND; one that crashed or hung the helpers before is
// NVML_ERROR_AVOIDED.
#pragma once

#include "source/nvml_library.h"

#define NVML_NO_GPU DRIVER_NO_GPU
#define NVML_ERROR_AVOIDED ((nvmlReturn_t)-1) // not one of NVML's

static inline bool nvml_is_missing(nvmlReturn_t result)
{
    return result == NVML_ERROR_FUNCTION_NOT_FOUND || result == NVML_ERROR_AVOIDED;
}

static inline bool nvml_is_avoided(const struct nvml *n, uint32_t gpu_index, const char *name)
{
    return driver_call_is_avoided(n->avoided, n->avoided_count, gpu_index, name);
}

static inline void nvml_call_enter(struct nvml *n, uint32_t gpu_index, const char *name,
                                   size_t name_bytes)
{
    driver_call_enter(n->page, gpu_index, name, name_bytes, ++n->calls);
}

static inline nvmlReturn_t nvml_call_leave(struct nvml *n, nvmlReturn_t result)
{
    driver_call_leave(n->page);
    return result;
}

// nvml_call(n, gpu_index, nvmlDeviceGetName, device, text, sizeof(text))
#define nvml_call(n, gpu_index, function, ...)                                                     \
    ({                                                                                             \
        _Static_assert(sizeof(#function) <= sizeof((n)->page->call),                               \
                       "the call page holds the name");                                            \
        !(n)->fn.function ? NVML_ERROR_FUNCTION_NOT_FOUND                                          \
        : nvml_is_avoided((n), (gpu_index), #function)                                             \
            ? NVML_ERROR_AVOIDED                                                                   \
            : (nvml_call_enter((n), (gpu_index), #function, sizeof(#function)),                    \
               nvml_call_leave((n), (n)->fn.function(__VA_ARGS__)));                               \
    })
