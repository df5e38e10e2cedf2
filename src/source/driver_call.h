// SPDX-License-Identifier: Apache-2.0
// What calls of NVML and of DCGM have in common: the shared call page, which tells the exporter
// which call hangs, and the calls that are left alone because they crashed or hung the helpers
// before. Used by nvml_call.h and dcgm_call.h alone.
#pragma once

#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "base/sv.h"
#include "gpu/frame.h"

#define DRIVER_NO_GPU UINT32_MAX

struct avoided_call {
    struct sv name;     // of the member in the table of functions
    uint32_t gpu_index; // NVML's, or DCGM's id; DRIVER_NO_GPU: all
};

static inline bool driver_call_is_avoided(const struct avoided_call *list, uint32_t count,
                                          uint32_t gpu, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if ((list[i].gpu_index == DRIVER_NO_GPU || list[i].gpu_index == gpu) &&
            sv_equals(list[i].name, sv_from(name)))
            return true;
    return false;
}

// number: how many there have been, with this one.
static inline void driver_call_enter(struct frame_call_page *page, uint32_t gpu, const char *name,
                                     size_t name_bytes, uint32_t number)
{
    memcpy(page->call, name, name_bytes);
    page->index = gpu;
    page->calls = number;
    // Last, in release order: a watchdog that sees the time sees the call it belongs to.
    __atomic_store_n(&page->entered_ns, clock_mono_ns(), __ATOMIC_RELEASE);
}

static inline void driver_call_leave(struct frame_call_page *page)
{
    __atomic_store_n(&page->entered_ns, 0, __ATOMIC_RELEASE);
}
