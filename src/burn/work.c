// SPDX-License-Identifier: Apache-2.0
// How it works: memory is one allocation, its first block the reference, the others filled with
// results one after another and around. A comparison counts, on the GPU, the words that differ from
// the reference in the blocks written since the last one; each round has another seed, so that a
// block that was not written is found too. dram copies one half onto the other and compares with
// the pattern that the first half was filled with; the copying kinds have the pattern in the
// reference block.
//
// A job is what two events of each stream enclose. Their difference is the time in which it was on
// the GPU, unless this process was held up between them (a CPU limit, SIGSTOP): the GPU was idle
// then, and of it only what such work took before is booked.
#include "burn/work.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

#include "base/clock.h"
#include "burn/work_internal.h"

#define QUANTA_MAX 4096u           // of a job: copies are a call each
#define HELD_UP_NS (2 * NS_PER_MS) // queueing a job takes some microseconds

bool work_is_copy(const struct burn_work *w)
{
    return kernel_kind(w->o->kind)->entry == NULL;
}

CUdeviceptr work_results(const struct burn_work *w)
{
    return w->o->kind == BURN_DRAM ? w->memory + w->memory_bytes / 2 / 256 * 256
                                   : w->memory + w->block_bytes;
}

uint64_t work_least_bytes(const struct burn_work *w)
{
    if (work_is_copy(w))
        return 2 * UINT64_C(4096);
    uint64_t thread_bytes = w->o->kind == BURN_DRAM ? KERNEL_DRAM_TURN_BYTES : sizeof(uint32_t);
    return 2 * w->threads * thread_bytes + 512;
}

bool work_layout(struct burn_work *w)
{
    uint64_t bytes = w->memory_bytes, blocks;
    if (bytes < work_least_bytes(w))
        return false;
    if (w->o->kind == BURN_DRAM) {
        w->block_bytes = (uint64_t)w->threads * w->turns * KERNEL_DRAM_TURN_BYTES;
        blocks = bytes / 2 / 256 * 256 / w->block_bytes;
    } else {
        w->block_bytes = (uint64_t)w->threads * sizeof(uint32_t);
        if (work_is_copy(w))
            w->block_bytes = bytes / 2 < WORK_COPY_BYTES ? bytes / 2 / 256 * 256 : WORK_COPY_BYTES;
        blocks = bytes / w->block_bytes - 1;
    }
    w->blocks = blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
    w->next_block = w->written = 0;
    return w->blocks > 0;
}

static enum burn_result launch(struct burn_work *w, CUfunction function, void **parameters)
{
    return work_call(w, cuLaunchKernel, function, w->threads / KERNEL_BLOCK, 1, 1, KERNEL_BLOCK, 1,
                     1, 0, w->stream[0], parameters, NULL);
}

enum burn_result work_launch(struct burn_work *w, CUdeviceptr out, uint32_t blocks, uint32_t quanta)
{
    CUdeviceptr source = w->o->kind == BURN_DRAM ? w->memory : w->control + sizeof(uint64_t);
    uint32_t first = w->next_block % blocks;
    return launch(w, w->kernels.work,
                  (void *[]){&out, &source, &first, &blocks, &quanta, &w->turns, &w->seed});
}

static enum burn_result copy_once(struct burn_work *w, CUdeviceptr block)
{
    const uint32_t *from = w->host_words[0];
    switch (w->o->kind) {
    case BURN_PCIE_H2D:
        return work_call(w, cuMemcpyHtoDAsync, block, from, w->block_bytes, w->stream[0]);
    case BURN_PCIE_D2H:
        return work_call(w, cuMemcpyDtoHAsync, w->host_words[1], w->memory, w->block_bytes,
                         w->stream[0]);
    case BURN_PCIE_BOTH:
        if (work_call(w, cuMemcpyDtoHAsync, w->host_words[1], w->memory, w->block_bytes,
                      w->stream[1]) != BURN_CLEAN)
            return BURN_DRIVER_ERROR;
        return work_call(w, cuMemcpyHtoDAsync, block, from, w->block_bytes, w->stream[0]);
    case BURN_PEER: // there and back, so that what arrives is what went
        if (work_call(w, cuMemcpyPeerAsync, w->peer_memory, w->peer_context, w->memory, w->context,
                      w->block_bytes, w->stream[0]) != BURN_CLEAN)
            return BURN_DRIVER_ERROR;
        return work_call(w, cuMemcpyPeerAsync, block, w->context, w->peer_memory, w->peer_context,
                         w->block_bytes, w->stream[0]);
    case BURN_FP32:
    case BURN_FP64:
    case BURN_FP16:
    case BURN_BF16:
    case BURN_TF32:
    case BURN_INT32:
    case BURN_DRAM:
    case BURN_KIND_COUNT:
        break;
    }
    assert(false);
    return BURN_DRIVER_ERROR;
}

static enum burn_result copy_blocks(struct burn_work *w, uint32_t quanta)
{
    for (uint32_t i = 0; i < quanta; i++) {
        uint64_t block = (w->next_block + (uint64_t)i) % w->blocks;
        enum burn_result r = copy_once(w, work_results(w) + block * w->block_bytes);
        if (r != BURN_CLEAN)
            return r;
    }
    return BURN_CLEAN;
}

static enum burn_result job_begin(struct burn_work *w, struct burn_job **out)
{
    assert(w->job_count < BURN_JOBS);
    struct burn_job *job = &w->jobs[(w->first_job + w->job_count) % BURN_JOBS];
    job->queued_from_ns = clock_mono_ns();
    for (unsigned s = 0; s < w->streams; s++) {
        if (work_call(w, cuEventRecord, job->start[s], w->stream[s]) != BURN_CLEAN)
            return BURN_DRIVER_ERROR;
    }
    job->quanta = 0;
    job->check = false;
    *out = job;
    return BURN_CLEAN;
}

static enum burn_result job_end(struct burn_work *w, struct burn_job *job, uint64_t expected_ns)
{
    for (unsigned s = 0; s < w->streams; s++) {
        if (work_call(w, cuEventRecord, job->stop[s], w->stream[s]) != BURN_CLEAN)
            return BURN_DRIVER_ERROR;
    }
    uint64_t now = clock_mono_ns();
    job->host_ns = now - job->queued_from_ns;
    w->free_at_ns = (w->free_at_ns > now ? w->free_at_ns : now) + expected_ns;
    w->job_count++;
    return BURN_CLEAN;
}

// The reference of a round, which nothing is compared with before.
static enum burn_result begin_round(struct burn_work *w)
{
    w->written = 0;
    if (work_is_copy(w) || w->o->kind == BURN_DRAM)
        return BURN_CLEAN;
    w->seed++;
    return work_launch(w, w->memory, 1, 1);
}

static enum burn_result fill(struct burn_work *w, uint64_t bytes)
{
    uint64_t words = bytes / sizeof(uint32_t);
    uint32_t seed = 0;
    return launch(w, w->kernels.fill, (void *[]){&w->memory, &words, &seed});
}

enum burn_result work_prepare(struct burn_work *w)
{
    w->next_block = 0;
    enum burn_result r = begin_round(w);
    if (r == BURN_CLEAN && w->o->kind == BURN_DRAM)
        r = fill(w, w->memory_bytes / 2);
    if (r == BURN_CLEAN && work_is_copy(w))
        r = fill(w, w->block_bytes);
    // What the other stream copies must be there.
    return r == BURN_CLEAN ? work_call(w, cuStreamSynchronize, w->stream[0]) : r;
}

enum burn_result work_fail_memory(struct burn_work *w, uint64_t free_bytes)
{
    (void)error_set(w->err, -ENOMEM,
                    "not enough GPU memory: asked for %" PRIu64 " MiB (%" PRIu64
                    " bytes), free is %" PRIu64 " MiB",
                    w->memory_bytes >> 20, w->memory_bytes, free_bytes >> 20);
    return BURN_DRIVER_ERROR;
}

enum burn_result burn_work_hold(struct burn_work *w)
{
    if (w->memory)
        return BURN_CLEAN;
    size_t free = 0, total = 0;
    if (work_call(w, cuMemGetInfo, &free, &total) != BURN_CLEAN)
        return BURN_DRIVER_ERROR;
    CUresult r = w->c.fn.cuMemAlloc(&w->memory, w->memory_bytes);
    if (r != CUDA_SUCCESS)
        w->memory = 0;
    if (r == CUDA_ERROR_OUT_OF_MEMORY)
        return work_fail_memory(w, free);
    if (cuda_check(&w->c, r, "cuMemAlloc", w->err) != 0)
        return BURN_DRIVER_ERROR;
    w->progress->memory_bytes = w->memory_bytes;
    return work_prepare(w);
}

enum burn_result burn_work_free(struct burn_work *w)
{
    if (!w->memory)
        return BURN_CLEAN;
    enum burn_result r = burn_work_drain(w);
    if (r != BURN_CLEAN)
        return r;
    CUdeviceptr memory = w->memory;
    w->memory = 0;
    w->progress->memory_bytes = 0;
    return work_call(w, cuMemFree, memory);
}

enum burn_result burn_work_submit(struct burn_work *w, uint64_t ns)
{
    uint64_t quanta = (ns + w->quantum_ns / 2) / w->quantum_ns;
    quanta = quanta < 1 ? 1 : quanta > QUANTA_MAX ? QUANTA_MAX : quanta;
    struct burn_job *job;
    enum burn_result r = job_begin(w, &job);
    if (r != BURN_CLEAN)
        return r;
    job->quanta = (uint32_t)quanta;
    r = work_is_copy(w) ? copy_blocks(w, job->quanta)
                        : work_launch(w, work_results(w), w->blocks, job->quanta);
    if (r != BURN_CLEAN)
        return r;
    w->next_block = (uint32_t)((w->next_block + quanta) % w->blocks);
    w->written = w->blocks - w->written < quanta ? w->blocks : w->written + job->quanta;
    return job_end(w, job, quanta * w->quantum_ns);
}

bool burn_work_has_room(const struct burn_work *w, uint64_t ns)
{
    bool repeats = work_is_copy(w) || w->o->kind == BURN_DRAM;
    return repeats || w->blocks - w->written >= ns / w->quantum_ns + 1;
}

// The blocks written last, as many as are looked at in one go.
static enum burn_result launch_comparison(struct burn_work *w)
{
    uint64_t most = WORK_CHECK_BYTES / w->block_bytes + 1;
    uint32_t count = w->written < most ? w->written : (uint32_t)most;
    uint32_t first = (uint32_t)(((uint64_t)w->next_block + w->blocks - count) % w->blocks);
    uint32_t words = (uint32_t)(w->block_bytes / sizeof(uint32_t));
    CUdeviceptr results = work_results(w);
    uint64_t reference = w->memory, pattern_seed = 0;
    bool pattern = w->o->kind == BURN_DRAM;
    return launch(w, pattern ? w->kernels.verify : w->kernels.compare,
                  (void *[]){pattern ? &pattern_seed : &reference, &results, &w->control, &words,
                             &first, &w->blocks, &count});
}

enum burn_result burn_work_check(struct burn_work *w)
{
    assert(w->written > 0);
    struct burn_job *job;
    enum burn_result r = job_begin(w, &job);
    if (r != BURN_CLEAN)
        return r;
    job->check = true;
    if (w->o->kind != BURN_PCIE_D2H) // whose results are on this side
        r = launch_comparison(w);
    if (r == BURN_CLEAN)
        r = work_call(w, cuMemcpyDtoHAsync, w->host_count, w->control, sizeof(*w->host_count),
                      w->stream[0]);
    if (r == BURN_CLEAN)
        r = begin_round(w);
    w->checked_busy_ns = w->busy_ns;
    return r == BURN_CLEAN ? job_end(w, job, w->check_ns) : r;
}

static uint64_t count_host_mismatches(const struct burn_work *w)
{
    uint64_t wrong = 0;
    if (w->o->kind != BURN_PCIE_D2H && w->o->kind != BURN_PCIE_BOTH)
        return 0;
    for (uint64_t j = 0; j < w->block_bytes / sizeof(uint32_t); j++)
        wrong += w->host_words[1][j] != kernel_pattern(j, 0);
    return wrong;
}

static void book_check(struct burn_work *w, uint64_t ns)
{
    w->check_ns = ns;
    // It only grows, on a GPU whose memory is good.
    uint64_t count = *w->host_count, wrong = count >= w->mismatches ? count - w->mismatches : 1;
    w->mismatches = count;
    w->progress->mismatches += wrong + count_host_mismatches(w);
    w->progress->rounds++;
}

static void book_work(struct burn_work *w, const struct burn_job *job, uint64_t ns)
{
    uint64_t each = ns / job->quanta + 1;
    w->quantum_ns = (w->quantum_ns * 7 + each) / 8;
    uint64_t quantum_work = (uint64_t)w->threads * w->turns * kernel_kind(w->o->kind)->turn_work;
    if (work_is_copy(w)) {
        bool twice = w->o->kind == BURN_PCIE_BOTH || w->o->kind == BURN_PEER;
        quantum_work = w->block_bytes * (twice ? 2 : 1);
    }
    w->progress->operations += quantum_work * job->quanta;
}

// Of the time that a job's events enclose, what it was on the GPU.
static uint64_t time_on_gpu(const struct burn_work *w, const struct burn_job *job, uint64_t ns)
{
    if (job->host_ns < HELD_UP_NS)
        return ns;
    uint64_t least = ns > job->host_ns ? ns - job->host_ns : 0;
    uint64_t usual = job->check ? w->check_ns : job->quanta * w->quantum_ns;
    return usual < least ? least : usual < ns ? usual : ns;
}

enum burn_result burn_work_collect(struct burn_work *w)
{
    assert(w->job_count > 0);
    struct burn_job *job = &w->jobs[w->first_job];
    uint64_t ns = 0;
    for (unsigned s = 0; s < w->streams; s++) {
        float ms = 0;
        if (work_call(w, cuEventSynchronize, job->stop[s]) != BURN_CLEAN ||
            work_call(w, cuEventElapsedTime, &ms, job->start[s], job->stop[s]) != BURN_CLEAN)
            return BURN_DRIVER_ERROR;
        uint64_t stream_ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
        ns = stream_ns > ns ? stream_ns : ns;
    }
    ns = time_on_gpu(w, job, ns);
    w->first_job = (w->first_job + 1) % BURN_JOBS;
    w->job_count--;
    w->busy_ns += ns;
    w->progress->busy_ns = w->busy_ns;
    if (w->job_count == 0)
        w->free_at_ns = clock_mono_ns();
    if (job->check)
        book_check(w, ns);
    else
        book_work(w, job, ns);
    return BURN_CLEAN;
}

enum burn_result burn_work_drain(struct burn_work *w)
{
    enum burn_result r = BURN_CLEAN;
    while (w->job_count > 0 && r == BURN_CLEAN)
        r = burn_work_collect(w);
    return r;
}

enum burn_result burn_work_settle(struct burn_work *w)
{
    return work_call(w, cuStreamSynchronize, w->stream[0]);
}

enum burn_result burn_work_fault(struct burn_work *w)
{
    CUresult r =
        w->c.fn.cuLaunchKernel(w->kernels.fault, 1, 1, 1, 1, 1, 1, 0, w->stream[0], NULL, NULL);
    if (r == CUDA_SUCCESS)
        r = w->c.fn.cuStreamSynchronize(w->stream[0]);
    if (r == CUDA_SUCCESS)
        (void)error_set(w->err, -EIO, "an illegal access was provoked: the driver let it pass");
    return cuda_check(&w->c, r, "an illegal access was provoked", w->err) == 0 && !w->err->text[0]
               ? BURN_CLEAN
               : BURN_DRIVER_ERROR;
}
