// SPDX-License-Identifier: Apache-2.0
// What the NVML and the DCGM source are both started with.
#pragma once

#include <stdint.h>

#include "source/driver_call.h"

#define SOURCE_AVOIDED_MAX 64 // calls on a command line
// When memory is short, the kernel takes a helper rather than the exporter, which starts another.
#define SOURCE_OOM_SCORE 500

struct source_options {
    const char *library; // path of the vendor's, NULL or "": search
    struct avoided_call avoided[SOURCE_AVOIDED_MAX];
    uint32_t avoided_count;
    uint64_t skipped; // bit per GPU that is left alone
    int socket_fd;
    struct frame_call_page *page;
};
