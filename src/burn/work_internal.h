// SPDX-License-Identifier: Apache-2.0
// Between the files of work.h.
#pragma once

#include "burn/work.h"

#define WORK_QUANTUM_NS (UINT64_C(250) * 1000) // wanted of a quantum: a slice of 10 ms has 40
#define WORK_COPY_BYTES (UINT64_C(8) << 20)    // of one copy, where the memory has room
#define WORK_CHECK_BYTES (UINT64_C(1) << 30)   // compared at once, so that it takes some ms

// The call failed: the status it means.
#define work_call(w, function, ...)                                                                \
    (cuda_call(&(w)->c, (w)->err, function, __VA_ARGS__) == 0 ? BURN_CLEAN : BURN_DRIVER_ERROR)

bool work_is_copy(const struct burn_work *w);
// Where results begin: behind the reference block, or (dram) behind the half that is copied.
CUdeviceptr work_results(const struct burn_work *w);
// Cuts the memory into blocks for w->turns. false: it has not enough.
bool work_layout(struct burn_work *w);
uint64_t work_least_bytes(const struct burn_work *w);
// Queues, within a job.
enum burn_result work_launch(struct burn_work *w, CUdeviceptr out, uint32_t blocks,
                             uint32_t quanta);
// What work reads, anew: the pattern or the reference of a first round. Waits until it is there.
enum burn_result work_prepare(struct burn_work *w);
enum burn_result work_fail_memory(struct burn_work *w, uint64_t free_bytes);
// Setting up (work_setup.c).
enum burn_result work_open_gpu(struct burn_work *w, const char *gpu);
enum burn_result work_prove(struct burn_work *w);
enum burn_result work_calibrate(struct burn_work *w);
