// SPDX-License-Identifier: Apache-2.0
// The NVML source: one loop that keeps the driver open, watches for change, samples when due and
// talks to the exporter.
#pragma once

#include <stdint.h>

#include "base/limits.h"
#include "source/source.h"

struct nvml_source_options {
    const char *kmsg_path;  // NULL or "": none
    uint64_t kmsg_after;    // number of the last record that the helper before has told, 0: none
    const char *device_dir; // where nvidia0, nvidia1, ... are
    const char *skipped_bus_ids[LIMIT_GPUS]; // of GPUs that are left alone, NULL: not known
};

// Returns the process's exit status: 0 when the exporter closed the socket, 1 when it spoke another
// protocol or memory ran out at the start.
int nvml_source_run(const struct source_options *common, const struct nvml_source_options *options);
