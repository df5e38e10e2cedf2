// SPDX-License-Identifier: Apache-2.0
// The GPUs that helpers leave alone because a call to them hung, and when each may be asked again.
// Part of source_process; times come in as arguments.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

#define SOURCE_BUS_ID_BYTES 32 // of frame_entity

struct source_skips {
    uint64_t wait_ns;      // before the first retry
    uint64_t most_wait_ns; // it doubles up to this
    struct source_skip {
        uint32_t index;                   // NVML's
        char bus_id[SOURCE_BUS_ID_BYTES]; // "": not known
        uint64_t due_ns;
        uint64_t wait_ns;
    } list[LIMIT_GPUS];
    size_t count;
};

// bus_id: the next helper can't ask for it, and needs it to know the GPU in the kernel's XID lines.
// at_once: due as soon as a helper works. UINT32_MAX, and one that is there already, are not added.
void source_skips_add(struct source_skips *s, uint32_t index, const char *bus_id, bool at_once,
                      uint64_t now_ns);
void source_skips_remove(struct source_skips *s, uint32_t index);
// It was asked in vain.
void source_skips_put_off(struct source_skips *s, uint32_t index, uint64_t now_ns);
// A GPU that is due, or UINT32_MAX.
uint32_t source_skips_due(const struct source_skips *s, uint64_t now_ns);
