// SPDX-License-Identifier: Apache-2.0
// What every function of the double does first: count the call, meet its faults, check the driver's
// age, the library's state and the device.
#pragma once

#include "../node.h"
#include "abi.h"

#define EXPORT __attribute__((visibility("default")))
// One exported function: declared and defined.
#define API(name, ...)                                                                             \
    EXPORT nvmlReturn_t name(__VA_ARGS__);                                                         \
    EXPORT nvmlReturn_t name(__VA_ARGS__)

// A handle: real memory, the same for the whole life of the process.
struct nvmlDevice_st {
    uint32_t magic;
    uint32_t gpu;
    uint32_t instance; // index in the node, SIM_NONE for a GPU
    uint32_t reserved;
};

// One call in flight.
struct call {
    struct sim_node *node; // NULL when the library isn't open
    uint32_t symbol;
    uint32_t gpu;
    uint32_t instance;
    nvmlReturn_t code; // not OK: return it at once
    int64_t t;         // scenario time at which the call looks
    uint64_t entered_ns;
};

enum call_device {
    NO_DEVICE,  // a call about no device
    GPU_OR_MIG, // both kinds of handles are good
    GPU_ONLY,   // a MIG handle gets INVALID_ARGUMENT, as a driver does where a call has no meaning
                // there
};

struct call call_begin(const char *name, _Atomic uint32_t *symbol, enum call_device kind,
                       nvmlDevice_t device);
void call_end(struct call *c);

#define CALL_(kind, device)                                                                        \
    static _Atomic uint32_t symbol_ = SIM_NONE;                                                    \
    struct call c __attribute__((cleanup(call_end))) =                                             \
        call_begin(__func__, &symbol_, kind, device);                                              \
    if (c.code != OK)                                                                              \
    return c.code

#define CALL() CALL_(NO_DEVICE, NULL)
#define CALL_DEVICE(device) CALL_(GPU_OR_MIG, device)
#define CALL_GPU(device) CALL_(GPU_ONLY, device)

// An out parameter that may not be NULL.
#define NEED(pointer)                                                                              \
    do {                                                                                           \
        if (!(pointer))                                                                            \
            return INVALID_ARGUMENT;                                                               \
    } while (0)

static inline const struct sim_gpu *call_gpu(const struct call *c)
{
    return &c->node->gpus[c->gpu];
}

static inline bool call_is_mig(const struct call *c)
{
    return c->instance != SIM_NONE;
}

bool call_mig_enabled(const struct call *c);
// A whole number of a signal into an unsigned; NOT_SUPPORTED and other codes come from the signal.
nvmlReturn_t call_u32(const struct call *c, enum sim_field field, unsigned int *out);
// A function that tells such a number of a GPU.
#define API_GPU_U32(name, field)                                                                   \
    API(name, nvmlDevice_t device, unsigned int *out)                                              \
    {                                                                                              \
        CALL_GPU(device);                                                                          \
        return call_u32(&c, field, out);                                                           \
    }
nvmlReturn_t call_u64(const struct call *c, enum sim_field field, unsigned long long *out);
// Text into a caller's buffer: INSUFFICIENT_SIZE when it and its NUL don't fit; NOT_SUPPORTED when
// there is none.
nvmlReturn_t copy_text(char *out, unsigned int bytes, const char *text);

// Whether the caller doesn't see this process: a client that MPS hides (driver.mps_hidden), or one
// of another PID namespace (driver.pids_hidden); whether this is a server that stands for hidden
// clients (utilization.c).
bool double_is_hidden(const struct call *c, const struct sim_process *p);
bool double_is_mps_server(const struct call *c, uint32_t process);

struct sim_node *double_node(void); // NULL while the library isn't open
int64_t double_opened_at(void);     // scenario time of the first nvmlInit
nvmlDevice_t double_gpu_handle(uint32_t gpu);
nvmlDevice_t double_mig_handle(uint32_t instance);
