// SPDX-License-Identifier: Apache-2.0
// Work on one GPU: context, memory, launches that wait in a short queue, their times, and the
// comparison of their results. One thread. What goes wrong is in *err (given to burn_work_open),
// once; the functions then return the enum burn_result that it means.
#pragma once

#include "burn/kernels.h"
#include "burn/load.h"

#define BURN_JOBS 2 // in the queue: one runs, one waits

struct burn_job {
    CUevent start[2], stop[2];        // of both streams
    uint64_t queued_from_ns, host_ns; // when its queueing began; what that took this process
    uint32_t quanta;
    bool check;
};

struct burn_work {
    const struct burn_options *o;
    struct burn_progress *progress;
    struct error *err;
    struct cuda c;
    struct cuda_gpu gpu, peer;
    CUcontext context, peer_context; // NULL: not retained
    struct kernels kernels;
    CUstream stream[2]; // the second: copies the other way
    unsigned streams;   // in use
    struct burn_job jobs[BURN_JOBS];
    unsigned first_job, job_count;
    uint64_t free_at_ns; // when the GPU has done what is queued, as far as is known

    uint64_t memory_bytes; // wanted, exactly
    CUdeviceptr memory;    // 0: not held
    CUdeviceptr peer_memory;
    CUdeviceptr control;     // the number of mismatches, then a word that is 0
    uint64_t *host_count;    // pinned; what the last comparison read
    uint32_t *host_words[2]; // pinned, a block each: to and from the GPU
    uint64_t mismatches;     // counted by the GPU and told already

    uint32_t threads, turns, seed;
    uint64_t block_bytes;
    uint32_t blocks, next_block; // where the next quantum's results go
    uint32_t written;            // blocks, since the last comparison
    uint64_t quantum_ns;         // measured, follows clocks and neighbours
    uint64_t check_ns;           // what a comparison took last
    uint64_t busy_ns, checked_busy_ns;
};

// Opens the library and the GPU, takes the memory, checks the arithmetic and measures how long work
// takes. burn_work_close is due whatever the outcome.
enum burn_result burn_work_open(struct burn_work *w, const struct burn_options *o, const char *gpu,
                                struct burn_progress *progress, struct error *err);
// Waits for what runs, frees all and releases the GPU.
void burn_work_close(struct burn_work *w);

// The memory, with what copies need in it; nothing when it is held, or not, already.
enum burn_result burn_work_hold(struct burn_work *w);
enum burn_result burn_work_free(struct burn_work *w);

// Queues work of about ns, at least a quantum. There must be room in the queue.
enum burn_result burn_work_submit(struct burn_work *w, uint64_t ns);
// Whether work of ns would not write over results that were not compared. Always so where they
// repeat: copies, and dram.
bool burn_work_has_room(const struct burn_work *w, uint64_t ns);
// Queues the comparison of what was written since the last one.
enum burn_result burn_work_check(struct burn_work *w);
// Waits for the oldest job and books it; for all of them.
enum burn_result burn_work_collect(struct burn_work *w);
enum burn_result burn_work_drain(struct burn_work *w);
// Waits for what no job encloses, too: nothing runs on the GPU after.
enum burn_result burn_work_settle(struct burn_work *w);
// --provoke-xid; ends in BURN_DRIVER_ERROR.
enum burn_result burn_work_fault(struct burn_work *w);
