// SPDX-License-Identifier: Apache-2.0
// A libcuda for unit tests: GPUs of one multiprocessor, device memory in this process, kernels that
// run when they are launched but take their time on a clock that the test holds. The test finds
// `fake_cuda` in the loaded library.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define FAKE_SPANS 65536

struct fake_span {
    uint64_t from_ns, to_ns; // of the test's clock
};

struct fake_cuda {
    uint64_t now_ns;
    uint64_t turn_ns;    // of a work kernel
    uint64_t other_ns;   // of every other kernel and copy
    uint64_t stop_at_ns; // when *stop becomes 1; 0: never
    volatile int *stop;
    int version, gpus, major, minor;
    bool mig, peers;
    uint64_t total_bytes;      // of a GPU
    char fail_call[40];        // this function
    int fail_code, fail_after; // fails after that many calls
    const char *jit_log;
    uint32_t wrong_launch; // this launch of work (from 1) has a wrong word; of dram, each since
    uint64_t held_up_ns;   // this process stands still so long before
    uint32_t held_up_each; // each so manieth launch of work; 0: never
    uint32_t held_up_most; // up to this launch; 0: always
    // What it saw.
    uint64_t used_bytes, contexts, calls_of_fail, launches, host_allocations;
    uint64_t free_at_ns;
    uint32_t span_count;
    struct fake_span spans[FAKE_SPANS]; // in which something ran
};
