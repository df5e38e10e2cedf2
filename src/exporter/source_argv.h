// SPDX-License-Identifier: Apache-2.0
// The command line of a podgpu-source. Part of source_process.
#pragma once

#include "base/limits.h"
#include "base/num.h"
#include "exporter/source_blame.h"
#include "exporter/source_skips.h"

struct source_program {
    const char *path;
    const char *source;                 // "nvml" or "dcgm"
    const char *library;                // "": not given
    const char *kmsg;                   // "": not given
    const char *log_format, *log_level; // "": not given
    uint64_t kmsg_after;                // last record of the kernel log that was told, 0: not given
    const char *const *extra;           // further words, ended by NULL; NULL: none
    const struct source_skips *skips;
    const struct source_blame *blame;
};

#define SOURCE_EXTRA_MAX 16

struct source_argv {
    char *words[2 + 2 + 2 * LIMIT_GPUS + 2 * SOURCE_BLAME_MAX + 4 + 4 + SOURCE_EXTRA_MAX +
                1]; // NULL-ended
    size_t count;
    char skipped[LIMIT_GPUS][NUM_U64_BYTES + 1 + SOURCE_BUS_ID_BYTES]; // "1" or "1=BUS-ID"
    char calls[SOURCE_BLAME_MAX][SOURCE_BLAME_TEXT];
    char kmsg_after[NUM_U64_BYTES + 1];
};

// but: an index that is not skipped, UINT32_MAX none. Borrows the strings of program.
void source_argv_set(struct source_argv *a, const struct source_program *program, uint32_t but);
