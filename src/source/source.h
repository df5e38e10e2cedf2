// SPDX-License-Identifier: Apache-2.0
// The NVML source: one loop that keeps the driver open, watches for change, samples when due and
// talks to the exporter.
#pragma once

#include <stdint.h>

#include "base/limits.h"
#include "gpu/frame.h"
#include "source/nvml_library.h"

#define SOURCE_AVOIDED_MAX 64 // calls on a command line

struct source_options {
    const char *library;    // path of libnvidia-ml, NULL or "": search
    const char *kmsg_path;  // NULL or "": none
    uint64_t kmsg_after;    // number of the last record that the helper before has told, 0: none
    const char *device_dir; // where nvidia0, nvidia1, ... are
    struct nvml_avoided avoided[SOURCE_AVOIDED_MAX];
    uint32_t avoided_count;
    uint64_t skipped;                        // bit per NVML index that is left alone
    const char *skipped_bus_ids[LIMIT_GPUS]; // of those, NULL: not known
    int socket_fd;
    struct frame_call_page *page;
};

// Returns the process's exit status: 0 when the exporter closed the socket, 1 when it spoke another
// protocol or memory ran out at the start.
int source_run(const struct source_options *options);
