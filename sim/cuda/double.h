// SPDX-License-Identifier: Apache-2.0
// The parts of the double of libcuda: the way into every call, devices with their primary contexts,
// memory, modules, and streams whose work takes the time it would take.
#pragma once

#include "../node.h"
#include "abi.h"

#define EXPORT __attribute__((visibility("default")))
#define API(name, ...)                                                                             \
    EXPORT CUresult name(__VA_ARGS__);                                                             \
    EXPORT CUresult name(__VA_ARGS__)

#define CUDA_MAX_DEVICES SIM_MAX_GPUS

// A GPU, or a MIG instance of one, as this process sees it; its primary context.
struct cuda_context {
    uint32_t gpu, instance; // in the node
    uint32_t references;    // 0: no context
    uint32_t work;          // in the node, SIM_NONE: none
    uint32_t life;          // grows with each making, so that old handles are told apart
    uint32_t peers;         // bit per device whose memory may be reached
    _Atomic int32_t broken; // an error that every later call gets
    struct cuda_stream *streams;
};

extern struct cuda_context cuda_devices[CUDA_MAX_DEVICES];
extern uint32_t cuda_device_count;

// --- Calls (core.c) ---

struct call {
    struct sim_node *node;
    struct cuda_context *context; // current in this thread, NULL: none
    uint32_t symbol;
    CUresult code; // not 0: return it at once
    int64_t t;     // scenario time
    uint64_t entered_ns;
};

enum call_kind {
    CALL_DRIVER,  // needs cuInit
    CALL_DEVICE,  // and a device's ordinal
    CALL_CONTEXT, // and a current context
};
struct call call_begin(const char *name, _Atomic uint32_t *symbol, enum call_kind kind, int device);
void call_end(struct call *c);

#define CALL_(kind, device)                                                                        \
    static _Atomic uint32_t symbol_ = SIM_NONE;                                                    \
    struct call c __attribute__((cleanup(call_end))) =                                             \
        call_begin(__func__, &symbol_, kind, device);                                              \
    if (c.code != CUDA_SUCCESS)                                                                    \
    return c.code
#define CALL() CALL_(CALL_DRIVER, -1)
#define CALL_DEVICE(device) CALL_(CALL_DEVICE, device)
#define CALL_CONTEXT() CALL_(CALL_CONTEXT, -1)

#define NEED(pointer)                                                                              \
    do {                                                                                           \
        if (!(pointer))                                                                            \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
    } while (0)

struct sim_node *cuda_node(void); // NULL before cuInit
void cuda_find_devices(struct sim_node *n);
void cuda_end_contexts(void); // at exit
// The process's own lock around its tables; with the node's, which simnode takes, too.
void cuda_lock(void);
void cuda_unlock(void);
void cuda_lock_node(void);
void cuda_unlock_node(void);
// The context that calls of this thread are about.
extern _Thread_local struct cuda_context *cuda_current;

// --- Memory (memory.c) ---

// The part of an allocation that has bytes, which take memory only where they are written; the rest
// reads as 0.
#define CUDA_BACKED_BYTES ((size_t)64 << 20)
CUresult cuda_check_range(CUdeviceptr at, size_t bytes); // 0, or INVALID_VALUE
void cuda_write(CUdeviceptr at, const void *from, size_t bytes);
void cuda_read(CUdeviceptr at, void *to, size_t bytes);
void cuda_fill(CUdeviceptr at, uint32_t value, size_t words);
void cuda_move(CUdeviceptr to, CUdeviceptr from, size_t bytes);
// The words from `at` on that have bytes, at most `most`; *out_count of them.
uint32_t *cuda_words(CUdeviceptr at, size_t most, size_t *out_count);
void cuda_free_all(const struct cuda_context *context);
void cuda_account(const struct cuda_context *context, int64_t bytes); // of its process

// --- Streams (stream.c) ---

enum cuda_effect {
    CUDA_NOTHING,
    CUDA_WRITE, // host to device
    CUDA_READ,  // device to host
    CUDA_MOVE,
    CUDA_FILL,
    CUDA_KERNEL,
    CUDA_ILLEGAL, // writes where nothing is: XID 31, and the context is broken
};

#define CUDA_MAX_PARAMETERS 24u

struct cuda_kernel;

// One piece of work in a stream and what it has done when its time is over.
struct cuda_operation {
    int64_t end_ns;
    enum cuda_effect effect;
    CUdeviceptr device, other;
    void *host;
    size_t bytes;
    uint32_t value; // to fill with; mismatches to add
    const struct cuda_kernel *kernel;
    uint64_t threads;
    uint64_t parameters[CUDA_MAX_PARAMETERS];
};

#define CUDA_MAX_QUEUE 1024u // as in the driver, a launch waits when as many are pending

struct cuda_stream {
    struct cuda_context *context;
    struct cuda_stream *next;
    uint32_t life;
    int64_t tail_ns; // when all that is queued is done
    uint32_t first, count;
    struct cuda_operation queue[CUDA_MAX_QUEUE];
};

// NULL: the default stream. NULL when it is none of the current context's.
struct cuda_stream *cuda_find_stream(const struct call *c, CUstream stream);
void cuda_free_streams(struct cuda_context *context);
// Queues *o, whose end is `takes_ns` after all that is queued, on the GPU itself when it is a
// kernel.
CUresult cuda_queue(const struct call *c, struct cuda_stream *s, struct cuda_operation *o,
                    int64_t takes_ns, int kernel);
CUresult cuda_wait(const struct call *c, struct cuda_stream *s, int64_t until_ns);

// --- Kernels (module.c, kernel.c) ---

#define CUDA_MAX_NAME 96u

struct cuda_function {
    struct cuda_module *module;
    struct cuda_function *next;
    uint32_t parameters;
    uint8_t bytes[CUDA_MAX_PARAMETERS]; // size of each
    char name[CUDA_MAX_NAME];
};

// What a kernel has done to memory when it is over.
void cuda_kernel_effect(const struct cuda_operation *o);
// What a work kernel ("fp32") computes for a thread (arithmetic.c).
uint32_t cuda_result(const char *kernel, uint32_t thread, uint32_t turns, uint32_t seed);
