// SPDX-License-Identifier: Apache-2.0
// Launches. The double runs no PTX; it knows podgpu-burn's entries by name and number of parameters
// (src/burn/ptx/README.md). What each takes follows from its parameters and the GPU's
// multiprocessors and clock. What it does to memory is done for the first words of each block: they
// are what is looked at, and computing all would take a GPU. Any other entry takes 10 us.
#include "double.h"

#include <string.h>

#define LAUNCH_NS 4000
#define FIRST_WORDS 256u // of a block that are computed or compared
#define LONG_TURNS 16u   // with more, fewer are computed: they take the CPU long
#define FEW_WORDS 4u
#define MOST_TURNS 65536u // with more, none
#define MOST_BLOCKS 4096u // of a launch

enum kernel_shape {
    SHAPE_WORK,
    SHAPE_COPY, // dram
    SHAPE_FILL,
    SHAPE_COMPARE,
    SHAPE_VERIFY,
    SHAPE_FAULT,
};

struct cuda_kernel {
    const char *name;
    enum kernel_shape shape;
    uint32_t parameters;
    uint32_t per_turn;  // operations of a thread in a turn, bytes that it copies
    uint32_t per_clock; // operations of a multiprocessor in a cycle
};

static const struct cuda_kernel kernels[] = {
    {"fp32", SHAPE_WORK, 7, 32, 128},    {"fp64", SHAPE_WORK, 7, 16, 32},
    {"int32", SHAPE_WORK, 7, 32, 64},    {"fp16", SHAPE_WORK, 7, 2048, 1024},
    {"bf16", SHAPE_WORK, 7, 2048, 1024}, {"tf32", SHAPE_WORK, 7, 1024, 512},
    {"dram", SHAPE_COPY, 7, 64, 0},      {"fill", SHAPE_FILL, 3, 0, 0},
    {"compare", SHAPE_COMPARE, 7, 0, 0}, {"verify", SHAPE_VERIFY, 7, 0, 0},
    {"fault", SHAPE_FAULT, 0, 0, 0},
};

static const struct cuda_kernel *find_kernel(const struct cuda_function *f)
{
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        if (strcmp(kernels[i].name, f->name) == 0 && kernels[i].parameters == f->parameters)
            return &kernels[i];
    }
    return NULL;
}

// The parameters of the work kernels and of dram; of compare and verify.
enum { OUT, SOURCE, FIRST, BLOCKS, QUANTA, TURNS, SEED };
enum { REFERENCE, RESULTS, MISMATCHES, WORDS, FIRST_COMPARED, BLOCKS_COMPARED, COUNT };

static uint32_t low(const struct cuda_operation *o, unsigned parameter)
{
    return (uint32_t)o->parameters[parameter];
}

// --- What a kernel takes ---

// 600 GB/s, 3.3 TB/s from Hopper on.
static int64_t memory_ns(const struct call *c, sim_wide bytes)
{
    return (int64_t)(bytes / (c->node->gpus[c->context->gpu].cc_major >= 9 ? 3300 : 600));
}

static int64_t work_ns(const struct call *c, const struct cuda_kernel *k,
                       const struct cuda_operation *o)
{
    const struct cuda_context *x = c->context;
    sim_wide turns = (sim_wide)low(o, QUANTA) * low(o, TURNS) * (sim_wide)o->threads;
    if (k->shape == SHAPE_COPY)
        return memory_ns(c, turns * k->per_turn * 2);
    int64_t mhz = sim_truth_or_zero(c->node, x->gpu, SIM_MAX_SM_CLOCK, c->t);
    int64_t units = x->instance == SIM_NONE ? c->node->gpus[x->gpu].multiprocessors
                                            : c->node->instances[x->instance].multiprocessors;
    sim_wide per_us = (sim_wide)k->per_clock * (mhz > 0 ? mhz : 1000) * (units > 0 ? units : 1);
    return (int64_t)(turns * k->per_turn * 1000 / per_us);
}

static int64_t kernel_ns(const struct call *c, const struct cuda_operation *o)
{
    if (!o->kernel)
        return 10000;
    switch (o->kernel->shape) {
    case SHAPE_WORK:
    case SHAPE_COPY:
        return LAUNCH_NS + work_ns(c, o->kernel, o);
    case SHAPE_FILL:
        return LAUNCH_NS + memory_ns(c, (sim_wide)o->parameters[1] * 4);
    case SHAPE_COMPARE:
    case SHAPE_VERIFY:
        return LAUNCH_NS + memory_ns(c, (sim_wide)low(o, WORDS) * low(o, COUNT) * 4);
    case SHAPE_FAULT:
        break;
    }
    return LAUNCH_NS;
}

// --- What it does ---

static uint32_t pattern(uint64_t j, uint32_t seed)
{
    return ((uint32_t)j + (uint32_t)(j >> 32)) * UINT32_C(2654435761) + seed;
}

static void fill(const struct cuda_operation *o)
{
    size_t count;
    uint32_t *to = cuda_words(o->parameters[0], (size_t)o->parameters[1], &count);
    for (size_t j = 0; j < count; j++)
        to[j] = pattern(j, low(o, 2));
}

// The first words of a block, 0 where none is computed: a block is new altogether or two of a round
// would differ. Kept, since launches of a round all make the same.
static const uint32_t *results(const struct cuda_operation *o)
{
    static const struct cuda_kernel *kernel;
    static uint32_t turns, seed, words[FIRST_WORDS];
    uint32_t count = low(o, TURNS) > MOST_TURNS   ? 0
                     : low(o, TURNS) > LONG_TURNS ? FEW_WORDS
                                                  : FIRST_WORDS;
    if (kernel != o->kernel || turns != low(o, TURNS) || seed != low(o, SEED)) {
        kernel = o->kernel;
        turns = low(o, TURNS);
        seed = low(o, SEED);
        for (uint32_t i = 0; i < FIRST_WORDS; i++)
            words[i] = i < count ? cuda_result(kernel->name, i, turns, seed) : 0;
    }
    return words;
}

static void write_block(const struct cuda_operation *o, uint64_t block)
{
    if (o->kernel->shape == SHAPE_COPY) {
        uint64_t at = block * o->threads * low(o, TURNS) * o->kernel->per_turn;
        cuda_move(o->parameters[OUT] + at, o->parameters[SOURCE] + at, FIRST_WORDS * 4);
        return;
    }
    cuda_write(o->parameters[OUT] + block * o->threads * 4, results(o), FIRST_WORDS * 4);
}

static void work(const struct cuda_operation *o)
{
    uint32_t blocks = low(o, BLOCKS);
    for (uint32_t k = 0; k < blocks && k < low(o, QUANTA) && k < MOST_BLOCKS; k++)
        write_block(o, ((uint64_t)low(o, FIRST) + k) % blocks);
}

// Words of a block that are other than the reference block's, or than the pattern.
static uint64_t wrong_words(const struct cuda_operation *o, uint64_t first_word, size_t words)
{
    size_t count, wanted = words;
    bool verify = o->kernel->shape == SHAPE_VERIFY;
    const uint32_t *is = cuda_words(o->parameters[RESULTS] + first_word * 4, words, &count);
    const uint32_t *want = verify ? NULL : cuda_words(o->parameters[REFERENCE], words, &wanted);
    uint64_t wrong = 0;
    for (size_t j = 0; j < count && j < wanted; j++)
        wrong += is[j] != (want ? want[j] : pattern(first_word + j, low(o, REFERENCE)));
    return wrong;
}

static void compare(const struct cuda_operation *o)
{
    uint32_t blocks = low(o, BLOCKS_COMPARED), words = low(o, WORDS);
    size_t looked = words < FIRST_WORDS ? words : FIRST_WORDS;
    uint64_t sum;
    cuda_read(o->parameters[MISMATCHES], &sum, sizeof(sum));
    sum += o->value;
    for (uint32_t k = 0; blocks > 0 && k < low(o, COUNT) && k < MOST_BLOCKS; k++) {
        uint64_t block = ((uint64_t)low(o, FIRST_COMPARED) + k) % blocks;
        sum += wrong_words(o, block * words, looked);
    }
    cuda_write(o->parameters[MISMATCHES], &sum, sizeof(sum));
}

void cuda_kernel_effect(const struct cuda_operation *o)
{
    switch (o->kernel->shape) {
    case SHAPE_WORK:
    case SHAPE_COPY:
        work(o);
        break;
    case SHAPE_FILL:
        fill(o);
        break;
    case SHAPE_COMPARE:
    case SHAPE_VERIFY:
        compare(o);
        break;
    case SHAPE_FAULT:
        break;
    }
}

// --- The launch ---

static CUresult read_parameters(const struct cuda_function *f, void **from, uint64_t *out)
{
    for (uint32_t i = 0; i < f->parameters; i++) {
        if (!from || !from[i])
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(&out[i], from[i], f->bytes[i] < 8 ? f->bytes[i] : 8);
    }
    return CUDA_SUCCESS;
}

API(cuLaunchKernel, CUfunction function, unsigned int grid_x, unsigned int grid_y,
    unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,
    unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)
{
    CALL_CONTEXT();
    struct cuda_stream *s = cuda_find_stream(&c, stream);
    if (!s || !function)
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t blocks = (uint64_t)grid_x * grid_y * grid_z;
    uint64_t threads = (uint64_t)block_x * block_y * block_z;
    if (blocks == 0 || threads == 0 || threads > 1024 || shared_bytes > 48u << 10 || extra)
        return CUDA_ERROR_INVALID_VALUE;
    struct cuda_operation o = {.kernel = find_kernel(function), .threads = blocks * threads};
    CUresult code = read_parameters(function, parameters, o.parameters);
    if (code != CUDA_SUCCESS)
        return code;
    if (o.kernel)
        o.effect = o.kernel->shape == SHAPE_FAULT ? CUDA_ILLEGAL : CUDA_KERNEL;
    if (o.kernel && (o.kernel->shape == SHAPE_COMPARE || o.kernel->shape == SHAPE_VERIFY))
        o.value = (uint32_t)sim_truth_or_zero(c.node, c.context->gpu, SIM_CUDA_MISMATCHES, c.t);
    return cuda_queue(&c, s, &o, kernel_ns(&c, &o), 1);
}
