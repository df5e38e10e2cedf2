// SPDX-License-Identifier: Apache-2.0
// The GPUs that helpers leave alone because a call to them hung, when each may be asked again, and
// the command line that says so. Part of source_process; times come in as arguments.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/num.h"
#include "exporter/source_blame.h"

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

struct source_argv {
    char *words[2 + 2 + 2 * LIMIT_GPUS + 2 * SOURCE_BLAME_MAX + 4 + 4 + 1]; // NULL-ended
    size_t count;
    char skipped[LIMIT_GPUS][NUM_U64_BYTES + 1 + SOURCE_BUS_ID_BYTES]; // "1" or "1=BUS-ID"
    char calls[SOURCE_BLAME_MAX][SOURCE_BLAME_TEXT];
    char kmsg_after[NUM_U64_BYTES + 1];
};
struct source_program {
    const char *path;
    const char *source;                 // "nvml"
    const char *library;                // "": not given
    const char *kmsg;                   // "": not given
    const char *log_format, *log_level; // "": not given
    uint64_t kmsg_after;                // last record of the kernel log that was told, 0: not given
    const struct source_blame *blame;
};
// The helper's command line. but: an index that is not skipped, UINT32_MAX none. Borrows the
// strings.
void source_skips_argv(const struct source_skips *s, const struct source_program *program,
                       uint32_t but, struct source_argv *out);
