// SPDX-License-Identifier: Apache-2.0
// One process's load on one GPU: context, kernels, memory, and the making and checking of work in
// pieces of at most 50 ms, so that an end is quick and no kernel is left running.
#pragma once

#include "burn/options.h"

enum burn_result { // exit statuses, the worst of all workers wins
    BURN_CLEAN = 0,
    BURN_WRONG_RESULTS = 1,
    BURN_NO_GPU = 2,
    BURN_DRIVER_ERROR = 3,
};

enum burn_state {
    BURN_STARTING,
    BURN_RUNNING,
    BURN_ENDED,
};

// What a worker tells, in memory shared with the process that reports; numbers grow only.
struct burn_progress {
    _Atomic uint32_t state;      // enum burn_state
    _Atomic uint64_t busy_ns;    // time in which work was on the GPU
    _Atomic uint64_t operations; // arithmetic, or bytes moved
    _Atomic uint64_t rounds;     // of results compared
    _Atomic uint64_t mismatches;
    _Atomic uint64_t memory_bytes; // held now
    char uuid[48], name[96], error[160];
};

// Runs until *stop, the duration or the cycles are over. Fills progress as it goes.
enum burn_result burn_load_run(const struct burn_options *o, const char *gpu, uint64_t start_ns,
                               const volatile int *stop, struct burn_progress *progress);
// The GPUs that the driver shows, a line each ("0: NVIDIA A10G GPU-... 22731 MiB"); for -l and for
// --gpus=all.
enum burn_result burn_load_list(const struct burn_options *o, char uuids[BURN_GPUS_MAX][48],
                                uint32_t *count, struct error *err);
