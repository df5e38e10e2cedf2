// SPDX-License-Identifier: Apache-2.0
// How a GPU is taken: library, device, context, kernels, memory; then the proof that its arithmetic
// is the CPU's, and the measuring of how long work takes.
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/sv.h"
#include "burn/work_internal.h"

#define TURNS_MAX (UINT32_C(1) << 20)
#define MEASURES 3u
#define PROOF_WORDS 256u // results compared with the CPU's
#define PROOF_TURNS 3u
#define PROOF_SEED 7u
#define MEMORY_GRAIN (UINT64_C(2) << 20) // what the driver allocates by

static enum burn_result outcome(int rc)
{
    return rc == 0 ? BURN_CLEAN : rc == CUDA_NO_GPU ? BURN_NO_GPU : BURN_DRIVER_ERROR;
}

static enum burn_result retain(struct burn_work *w, const struct cuda_gpu *gpu, CUcontext *out)
{
    CUcontext context;
    if (work_call(w, cuDevicePrimaryCtxRetain, &context, gpu->device) != BURN_CLEAN)
        return BURN_DRIVER_ERROR;
    *out = context;
    return work_call(w, cuCtxSetCurrent, context);
}

// The GPU that copies go to: the one named after ours, else the next that the driver shows.
static enum burn_result find_peer(struct burn_work *w)
{
    const struct burn_options *o = w->o;
    int rc = 0, count;
    for (uint32_t i = 0; rc == 0 && i < o->gpu_count && o->gpu_count > 1; i++) {
        struct cuda_gpu named;
        rc = cuda_gpu_find(&w->c, o->gpus[i], &named, w->err);
        if (rc == 0 && named.index == w->gpu.index)
            return outcome(cuda_gpu_find(&w->c, o->gpus[(i + 1) % o->gpu_count], &w->peer, w->err));
    }
    if (rc == 0)
        rc = cuda_gpu_count(&w->c, &count, w->err);
    if (rc != 0)
        return outcome(rc);
    if (count < 2) {
        (void)error_set(w->err, -ENODEV, "peer copies need two GPUs, the driver shows one");
        return BURN_NO_GPU;
    }
    return outcome(cuda_gpu_read(&w->c, (w->gpu.index + 1) % count, &w->peer, w->err));
}

static enum burn_result enable_peer(struct burn_work *w, CUcontext from, CUcontext to)
{
    if (work_call(w, cuCtxSetCurrent, from) != BURN_CLEAN)
        return BURN_DRIVER_ERROR;
    CUresult r = w->c.fn.cuCtxEnablePeerAccess(to, 0);
    if (r == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        return BURN_CLEAN;
    return outcome(cuda_check(&w->c, r, "cuCtxEnablePeerAccess", w->err));
}

static enum burn_result open_peer(struct burn_work *w)
{
    enum burn_result r = find_peer(w);
    if (r != BURN_CLEAN)
        return r;
    int there = 0, back = 0;
    if (work_call(w, cuDeviceCanAccessPeer, &there, w->gpu.device, w->peer.device) != BURN_CLEAN ||
        work_call(w, cuDeviceCanAccessPeer, &back, w->peer.device, w->gpu.device) != BURN_CLEAN)
        return BURN_DRIVER_ERROR;
    if (!there || !back) {
        (void)error_set(w->err, -ENOTSUP, "GPUs %s and %s cannot reach each other's memory",
                        w->gpu.uuid, w->peer.uuid);
        return BURN_DRIVER_ERROR;
    }
    if (retain(w, &w->peer, &w->peer_context) != BURN_CLEAN ||
        work_call(w, cuMemAlloc, &w->peer_memory, WORK_COPY_BYTES) != BURN_CLEAN ||
        enable_peer(w, w->peer_context, w->context) != BURN_CLEAN)
        return BURN_DRIVER_ERROR;
    return enable_peer(w, w->context, w->peer_context);
}

static enum burn_result make_streams(struct burn_work *w)
{
    w->streams = w->o->kind == BURN_PCIE_BOTH ? 2 : 1;
    for (unsigned s = 0; s < w->streams; s++) {
        if (work_call(w, cuStreamCreate, &w->stream[s], CU_STREAM_NON_BLOCKING) != BURN_CLEAN)
            return BURN_DRIVER_ERROR;
        for (unsigned j = 0; j < BURN_JOBS; j++) {
            if (work_call(w, cuEventCreate, &w->jobs[j].start[s], CU_EVENT_BLOCKING_SYNC) !=
                    BURN_CLEAN ||
                work_call(w, cuEventCreate, &w->jobs[j].stop[s], CU_EVENT_BLOCKING_SYNC) !=
                    BURN_CLEAN)
                return BURN_DRIVER_ERROR;
        }
    }
    return BURN_CLEAN;
}

// How much of the GPU's memory is wanted, now that what the context takes is gone from the free.
static enum burn_result choose_memory(struct burn_work *w)
{
    size_t free = 0, total = 0;
    if (work_call(w, cuMemGetInfo, &free, &total) != BURN_CLEAN)
        return BURN_DRIVER_ERROR;
    w->memory_bytes = w->o->memory_bytes;
    if (w->memory_bytes == 0)
        w->memory_bytes = free / 100 * w->o->memory_percent / MEMORY_GRAIN * MEMORY_GRAIN;
    if (w->memory_bytes > free)
        return work_fail_memory(w, free);
    if (work_layout(w))
        return BURN_CLEAN;
    (void)error_set(w->err, -EINVAL,
                    "%" PRIu64 " bytes of memory are too few for %s on this GPU: it takes %" PRIu64,
                    w->memory_bytes, burn_kind_name(w->o->kind), work_least_bytes(w));
    return BURN_DRIVER_ERROR;
}

static enum burn_result make_host_buffers(struct burn_work *w)
{
    void *count = NULL, *words[2] = {NULL, NULL};
    bool to = w->o->kind == BURN_PCIE_H2D || w->o->kind == BURN_PCIE_BOTH;
    bool from = w->o->kind == BURN_PCIE_D2H || w->o->kind == BURN_PCIE_BOTH;
    // The count shares its page with the words of the proof.
    enum burn_result r = work_call(w, cuMemAllocHost, &count, 4096);
    w->host_count = count;
    if (r == BURN_CLEAN && to)
        r = work_call(w, cuMemAllocHost, &words[0], w->block_bytes);
    w->host_words[0] = words[0];
    if (r == BURN_CLEAN && from)
        r = work_call(w, cuMemAllocHost, &words[1], w->block_bytes);
    w->host_words[1] = words[1];
    for (unsigned i = 0; i < 2 && r == BURN_CLEAN; i++) {
        for (uint64_t j = 0; words[i] && j < w->block_bytes / sizeof(uint32_t); j++)
            w->host_words[i][j] = kernel_pattern(j, 0);
    }
    return r;
}

enum burn_result work_open_gpu(struct burn_work *w, const char *gpu)
{
    enum burn_result r = outcome(cuda_open(&w->c, w->o->cuda_library, w->err));
    if (r == BURN_CLEAN)
        r = outcome(cuda_gpu_find(&w->c, gpu, &w->gpu, w->err));
    if (r != BURN_CLEAN)
        return r;
    sv_copy(w->progress->uuid, sizeof(w->progress->uuid), sv_from(w->gpu.uuid));
    sv_copy(w->progress->name, sizeof(w->progress->name), sv_from(w->gpu.name));
    w->threads = (uint32_t)w->gpu.multiprocessors * KERNEL_BLOCKS_PER_SM * KERNEL_BLOCK;
    w->turns = 1;
    r = retain(w, &w->gpu, &w->context);
    if (r == BURN_CLEAN)
        r = outcome(kernels_load(&w->c, &w->gpu, w->o->kind, &w->kernels, w->err));
    if (r == BURN_CLEAN && w->o->kind == BURN_PEER)
        r = open_peer(w);
    if (r == BURN_CLEAN)
        r = make_streams(w);
    if (r == BURN_CLEAN)
        r = work_call(w, cuMemAlloc, &w->control, 4096);
    if (r == BURN_CLEAN)
        r = work_call(w, cuMemsetD32, w->control, 0, 4096 / sizeof(uint32_t));
    if (r == BURN_CLEAN) // our streams don't wait for the one that it is on
        r = work_call(w, cuStreamSynchronize, NULL);
    if (r == BURN_CLEAN)
        r = choose_memory(w);
    if (r == BURN_CLEAN)
        r = make_host_buffers(w);
    return r;
}

enum burn_result work_prove(struct burn_work *w)
{
    if (work_is_copy(w) || w->o->kind == BURN_DRAM)
        return BURN_CLEAN;
    w->turns = PROOF_TURNS;
    w->seed = PROOF_SEED;
    uint32_t *words = (uint32_t *)(void *)(w->host_count + 1);
    if (work_launch(w, w->memory, 1, 1) != BURN_CLEAN ||
        work_call(w, cuMemcpyDtoHAsync, words, w->memory, PROOF_WORDS * sizeof(uint32_t),
                  w->stream[0]) != BURN_CLEAN ||
        work_call(w, cuStreamSynchronize, w->stream[0]) != BURN_CLEAN)
        return BURN_DRIVER_ERROR;
    unsigned wrong = 0;
    for (uint32_t i = 0; i < PROOF_WORDS; i++)
        wrong += words[i] != kernel_truth(w->o->kind, i, PROOF_TURNS, PROOF_SEED);
    if (wrong == 0)
        return BURN_CLEAN;
    w->progress->mismatches += wrong;
    (void)error_set(w->err, -EIO, "the GPU's %s arithmetic is wrong: %u of the first %u results",
                    burn_kind_name(w->o->kind), wrong, PROOF_WORDS);
    return BURN_WRONG_RESULTS;
}

// One quantum's time, as it is now: the least of some, for what holds us up in between adds to it.
static enum burn_result measure(struct burn_work *w, uint64_t *out_ns)
{
    enum burn_result r = BURN_CLEAN;
    *out_ns = UINT64_MAX;
    for (unsigned i = 0; i < MEASURES && r == BURN_CLEAN; i++) {
        uint64_t before = w->busy_ns;
        r = burn_work_submit(w, 0);
        if (r == BURN_CLEAN)
            r = burn_work_collect(w);
        uint64_t ns = w->busy_ns - before + 1;
        *out_ns = ns < *out_ns ? ns : *out_ns;
    }
    return r;
}

static uint32_t most_turns(const struct burn_work *w)
{
    if (w->o->kind != BURN_DRAM)
        return TURNS_MAX;
    uint64_t turns = w->memory_bytes / 2 / 256 * 256 / KERNEL_DRAM_TURN_BYTES / w->threads;
    return turns < TURNS_MAX ? (uint32_t)turns : TURNS_MAX;
}

// Twice as many turns until the time can be told from that of a launch, then by proportion.
static enum burn_result find_turns(struct burn_work *w)
{
    uint32_t most = most_turns(w);
    uint64_t ns = 0;
    for (w->turns = 1;; w->turns = w->turns > most / 2 ? most : w->turns * 2) {
        (void)work_layout(w);
        enum burn_result r = measure(w, &ns);
        if (r != BURN_CLEAN)
            return r;
        if (ns >= WORK_QUANTUM_NS || w->turns == most)
            break;
    }
    uint64_t turns = ns > WORK_QUANTUM_NS ? w->turns * WORK_QUANTUM_NS / ns : w->turns;
    w->turns = turns < 1 ? 1 : (uint32_t)turns;
    (void)work_layout(w);
    return BURN_CLEAN;
}

enum burn_result work_calibrate(struct burn_work *w)
{
    w->quantum_ns = WORK_QUANTUM_NS;
    w->check_ns = WORK_QUANTUM_NS;
    uint64_t ns = 0;
    enum burn_result r = measure(w, &ns); // the first of a kernel takes longer
    if (r == BURN_CLEAN && !work_is_copy(w))
        r = find_turns(w);
    if (r == BURN_CLEAN)
        r = measure(w, &ns);
    w->quantum_ns = ns;
    if (r != BURN_CLEAN)
        return r;
    return work_prepare(w); // what was made while turns changed is no round
}

enum burn_result burn_work_open(struct burn_work *w, const struct burn_options *o, const char *gpu,
                                struct burn_progress *progress, struct error *err)
{
    *w = (struct burn_work){.o = o, .progress = progress, .err = err};
    enum burn_result r = work_open_gpu(w, gpu);
    if (r == BURN_CLEAN)
        r = burn_work_hold(w);
    if (r == BURN_CLEAN)
        r = work_prove(w);
    return r == BURN_CLEAN ? work_calibrate(w) : r;
}

void burn_work_close(struct burn_work *w)
{
    const struct cuda_functions *fn = &w->c.fn;
    // After an error the rest fails too; the driver takes all of it when the context goes.
    for (unsigned s = 0; s < w->streams && w->stream[s]; s++)
        (void)fn->cuStreamSynchronize(w->stream[s]);
    if (w->memory)
        (void)fn->cuMemFree(w->memory);
    if (w->control)
        (void)fn->cuMemFree(w->control);
    if (w->peer_memory)
        (void)fn->cuMemFree(w->peer_memory);
    for (unsigned i = 0; i < 2; i++) {
        if (w->host_words[i])
            (void)fn->cuMemFreeHost(w->host_words[i]);
    }
    if (w->host_count)
        (void)fn->cuMemFreeHost(w->host_count);
    if (w->peer_context)
        (void)fn->cuDevicePrimaryCtxRelease(w->peer.device);
    if (w->context)
        (void)fn->cuDevicePrimaryCtxRelease(w->gpu.device);
    w->progress->memory_bytes = 0;
    cuda_close(&w->c);
    *w = (struct burn_work){0};
}
