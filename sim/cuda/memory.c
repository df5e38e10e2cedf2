// SPDX-License-Identifier: Apache-2.0
// Memory: addresses that are the double's own, accounted to the process and the GPU, with bytes
// that the machine has to give only where something is written.
#include "double.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GRANULE (UINT64_C(2) << 20)            // of the driver's accounting
#define FIRST_ADDRESS UINT64_C(0x7f0000000000) // where unified addressing puts device memory
#define MAX_ALLOCATIONS 4096u

struct allocation {
    CUdeviceptr at;
    size_t bytes;
    const struct cuda_context *context;
    unsigned char *real; // the first CUDA_BACKED_BYTES at most
    size_t real_bytes;
};

static struct allocation *table; // sorted by address, which only grows
static uint32_t allocations;
static CUdeviceptr next_address = FIRST_ADDRESS;

static size_t rounded(size_t bytes)
{
    return (size_t)((bytes + GRANULE - 1) / GRANULE * GRANULE);
}

static struct allocation *find(CUdeviceptr at)
{
    uint32_t low = 0, high = allocations;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (table[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    struct allocation *a = low == 0 ? NULL : &table[low - 1];
    return a && at - a->at < a->bytes ? a : NULL;
}

CUresult cuda_check_range(CUdeviceptr at, size_t bytes)
{
    const struct allocation *a = find(at);
    return a && bytes <= a->bytes - (size_t)(at - a->at) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// How many of the bytes from `at` on are real, and where.
static size_t real_part(const struct allocation *a, CUdeviceptr at, size_t bytes,
                        unsigned char **out)
{
    size_t offset = (size_t)(at - a->at);
    *out = a->real + offset;
    if (offset >= a->real_bytes)
        return 0;
    return bytes < a->real_bytes - offset ? bytes : a->real_bytes - offset;
}

void cuda_write(CUdeviceptr at, const void *from, size_t bytes)
{
    const struct allocation *a = find(at);
    unsigned char *to;
    size_t part = a ? real_part(a, at, bytes, &to) : 0;
    if (part > 0)
        memcpy(to, from, part);
}

void cuda_read(CUdeviceptr at, void *to, size_t bytes)
{
    const struct allocation *a = find(at);
    unsigned char *from;
    size_t part = a ? real_part(a, at, bytes, &from) : 0;
    if (part > 0)
        memcpy(to, from, part);
    memset((char *)to + part, 0, bytes - part);
}

uint32_t *cuda_words(CUdeviceptr at, size_t most, size_t *out_count)
{
    const struct allocation *a = at % 4 == 0 ? find(at) : NULL;
    unsigned char *out = NULL;
    *out_count = (a ? real_part(a, at, most > SIZE_MAX / 4 ? SIZE_MAX : most * 4, &out) : 0) / 4;
    return (uint32_t *)(void *)out;
}

void cuda_fill(CUdeviceptr at, uint32_t value, size_t words)
{
    size_t count;
    uint32_t *to = cuda_words(at, words, &count);
    for (size_t i = 0; i < count; i++)
        to[i] = value;
}

void cuda_move(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    const struct allocation *a = find(to), *b = find(from);
    unsigned char *into = NULL, *out_of = NULL;
    size_t part = a ? real_part(a, to, bytes, &into) : 0;
    size_t other = b ? real_part(b, from, bytes, &out_of) : 0;
    if (part > other)
        part = other;
    if (part > 0)
        memmove(into, out_of, part);
}

void cuda_account(const struct cuda_context *context, int64_t bytes)
{
    struct sim_node *n = cuda_node();
    struct sim_process *p = &n->processes[n->works[context->work].process];
    atomic_fetch_add(&p->memory_bytes, bytes);
}

static CUresult claim(const struct call *c, size_t bytes)
{
    struct sim_memory m = {0};
    const struct cuda_context *x = c->context;
    cuda_lock_node();
    sim_work_reap(c->node);
    int64_t t = sim_now(c->node);
    int code = x->instance == SIM_NONE ? sim_gpu_memory(c->node, x->gpu, t, &m)
                                       : sim_instance_memory(c->node, x->instance, t, &m);
    CUresult result = code != 0 ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY;
    if (code == 0 && (size_t)m.free >= bytes) {
        cuda_account(x, (int64_t)bytes);
        result = CUDA_SUCCESS;
    }
    cuda_unlock_node();
    return result;
}

static CUresult add(const struct call *c, size_t bytes, CUdeviceptr *out)
{
    if (!table)
        table = calloc(MAX_ALLOCATIONS, sizeof(*table));
    if (!table || allocations == MAX_ALLOCATIONS || bytes > SIZE_MAX / 4)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct allocation a = {.at = next_address, .bytes = bytes, .context = c->context};
    a.real_bytes = bytes < CUDA_BACKED_BYTES ? bytes : CUDA_BACKED_BYTES;
    CUresult code = claim(c, rounded(bytes));
    if (code != CUDA_SUCCESS)
        return code;
    void *real = mmap(NULL, a.real_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (real == MAP_FAILED) {
        cuda_account(c->context, -(int64_t)rounded(bytes));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    a.real = real;
    next_address += rounded(bytes) + GRANULE; // so that running over the end is noticed
    table[allocations++] = a;
    *out = a.at;
    return CUDA_SUCCESS;
}

API(cuMemAlloc_v2, CUdeviceptr *out, size_t bytes)
{
    CALL_CONTEXT();
    if (!out || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    cuda_lock();
    CUresult code = add(&c, bytes, out);
    cuda_unlock();
    return code;
}

static void drop(struct allocation *a)
{
    cuda_account(a->context, -(int64_t)rounded(a->bytes));
    (void)munmap(a->real, a->real_bytes);
    allocations--;
    memmove(a, a + 1, (size_t)(table + allocations - a) * sizeof(*a));
}

void cuda_free_all(const struct cuda_context *context)
{
    for (uint32_t i = allocations; i-- > 0;) {
        if (table[i].context == context)
            drop(&table[i]);
    }
}

// Freeing waits for all that the context has queued, which may use the memory.
API(cuMemFree_v2, CUdeviceptr at)
{
    CALL_CONTEXT();
    CUresult code = CUDA_SUCCESS;
    if (at == 0)
        return code;
    for (struct cuda_stream *s = c.context->streams; s && code == CUDA_SUCCESS; s = s->next)
        code = cuda_wait(&c, s, s->tail_ns);
    cuda_lock();
    struct allocation *a = find(at);
    if (!a || a->at != at)
        code = CUDA_ERROR_INVALID_VALUE;
    else
        drop(a);
    cuda_unlock();
    return code;
}

API(cuMemAllocHost_v2, void **out, size_t bytes)
{
    CALL_CONTEXT();
    if (!out || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = calloc(1, bytes);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuMemFreeHost, void *at)
{
    CALL_CONTEXT();
    NEED(at);
    free(at);
    return CUDA_SUCCESS;
}

// --- Copies ---

// PCIe as the node tells of it: about 985 MB a second, lane and third generation, doubled by each
// later one; a sixth of it is overhead.
static int64_t bus_ns(const struct call *c, size_t bytes)
{
    int64_t generation = sim_truth_or_zero(c->node, c->context->gpu, SIM_PCIE_GEN_MAX, c->t);
    int64_t width = sim_truth_or_zero(c->node, c->context->gpu, SIM_PCIE_WIDTH, c->t);
    int64_t per_us = 820 * (width > 0 ? width : 16);
    for (int64_t g = generation > 0 ? generation : 3; g > 3 && g < 8; g--)
        per_us *= 2;
    return 5000 + (int64_t)((sim_wide)bytes * 1000 / per_us);
}

static CUresult copy(const struct call *c, CUstream stream, struct cuda_operation o)
{
    struct cuda_stream *s = cuda_find_stream(c, stream);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    cuda_lock();
    CUresult code = cuda_check_range(o.device, o.bytes);
    if (code == CUDA_SUCCESS && o.effect == CUDA_MOVE)
        code = cuda_check_range(o.other, o.bytes);
    cuda_unlock();
    if (code != CUDA_SUCCESS || (!o.host && o.effect != CUDA_MOVE && o.effect != CUDA_FILL))
        return CUDA_ERROR_INVALID_VALUE;
    int64_t takes = o.effect == CUDA_FILL ? 5000 + (int64_t)(o.bytes / 300) : bus_ns(c, o.bytes);
    return cuda_queue(c, s, &o, takes, o.effect == CUDA_FILL);
}

static CUresult copy_now(const struct call *c, struct cuda_operation o)
{
    CUresult code = copy(c, NULL, o);
    struct cuda_stream *s = cuda_find_stream(c, NULL);
    return code == CUDA_SUCCESS && s ? cuda_wait(c, s, s->tail_ns) : code;
}

API(cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    CALL_CONTEXT();
    return copy(
        &c, stream,
        (struct cuda_operation){
            .effect = CUDA_WRITE, .device = to, .host = (void *)(uintptr_t)from, .bytes = bytes});
}

API(cuMemcpyDtoHAsync_v2, void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CALL_CONTEXT();
    return copy(
        &c, stream,
        (struct cuda_operation){.effect = CUDA_READ, .device = from, .host = to, .bytes = bytes});
}

API(cuMemcpyHtoD_v2, CUdeviceptr to, const void *from, size_t bytes)
{
    CALL_CONTEXT();
    return copy_now(&c, (struct cuda_operation){.effect = CUDA_WRITE,
                                                .device = to,
                                                .host = (void *)(uintptr_t)from,
                                                .bytes = bytes});
}

API(cuMemcpyDtoH_v2, void *to, CUdeviceptr from, size_t bytes)
{
    CALL_CONTEXT();
    return copy_now(&c, (struct cuda_operation){
                            .effect = CUDA_READ, .device = from, .host = to, .bytes = bytes});
}

API(cuMemcpyPeerAsync, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
    CUcontext from_context, size_t bytes, CUstream stream)
{
    CALL_CONTEXT();
    if (!to_context || !from_context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return copy(
        &c, stream,
        (struct cuda_operation){.effect = CUDA_MOVE, .device = to, .other = from, .bytes = bytes});
}

// Memory is filled by a kernel.
static CUresult fill(const struct call *c, CUstream stream, CUdeviceptr at, uint32_t value,
                     size_t words)
{
    if (at % 4 != 0 || words > SIZE_MAX / 4)
        return CUDA_ERROR_INVALID_VALUE;
    return words == 0
               ? CUDA_SUCCESS
               : copy(c, stream,
                      (struct cuda_operation){
                          .effect = CUDA_FILL, .device = at, .value = value, .bytes = words * 4});
}

API(cuMemsetD32_v2, CUdeviceptr at, unsigned int value, size_t words)
{
    CALL_CONTEXT();
    return fill(&c, NULL, at, value, words);
}

// The function of CUDA 3.1, whose addresses have 32 bits.
API(cuMemsetD32, unsigned int at, unsigned int value, unsigned int words)
{
    CALL_CONTEXT();
    return fill(&c, NULL, at, value, words);
}

API(cuMemsetD32Async, CUdeviceptr at, unsigned int value, size_t words, CUstream stream)
{
    CALL_CONTEXT();
    return fill(&c, stream, at, value, words);
}
