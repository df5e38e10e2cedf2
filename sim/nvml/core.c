// SPDX-License-Identifier: Apache-2.0
// Opening and closing the library, the way into every call, and the faults that wait there.
#include "double.h"

#include "../double_fault.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAGIC_GPU 0x4e564755u
#define MAGIC_MIG 0x4e564d49u

static struct nvmlDevice_st gpu_handles[SIM_MAX_GPUS];
static struct nvmlDevice_st mig_handles[SIM_MAX_INSTANCES];

// The library's state: opened by nvmlInit, references counted. The mapping stays once made, so that
// a call in another thread never loses it.
static pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_node *mapped;
static _Atomic unsigned references;
static int64_t opened_at;

struct sim_node *double_node(void)
{
    return atomic_load(&references) > 0 ? mapped : NULL;
}

int64_t double_opened_at(void)
{
    return opened_at;
}

nvmlDevice_t double_gpu_handle(uint32_t gpu)
{
    gpu_handles[gpu] = (struct nvmlDevice_st){MAGIC_GPU, gpu, SIM_NONE, 0};
    return &gpu_handles[gpu];
}

nvmlDevice_t double_mig_handle(uint32_t instance)
{
    mig_handles[instance] =
        (struct nvmlDevice_st){MAGIC_MIG, mapped->instances[instance].gpu, instance, 0};
    return &mig_handles[instance];
}

static uint64_t mono_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void meet_faults(struct call *c)
{
    struct double_call at = {.node = c->node, .symbol = c->symbol, .gpu = c->gpu, .t = c->t};
    double_meet_faults(&at);
    c->t = at.t;
    if (at.code != 0)
        c->code = at.code;
}

// --- The way in and out ---

static nvmlReturn_t check_device(struct call *c, enum call_device kind, nvmlDevice_t device)
{
    if (kind == NO_DEVICE)
        return OK;
    if (!device || (device->magic != MAGIC_GPU && device->magic != MAGIC_MIG))
        return INVALID_ARGUMENT;
    int code = sim_gpu_return(c->node, c->gpu, opened_at, c->t);
    if (code != 0)
        return code;
    if (c->instance == SIM_NONE)
        return OK;
    if (!sim_instance_alive(c->node, c->instance, c->t))
        return NOT_FOUND;
    return kind == GPU_ONLY ? INVALID_ARGUMENT : OK;
}

struct call call_begin(const char *name, _Atomic uint32_t *symbol, enum call_device kind,
                       nvmlDevice_t device)
{
    struct call c = {
        .node = double_node(), .gpu = SIM_NONE, .instance = SIM_NONE, .entered_ns = mono_ns()};
    if (!c.node) {
        c.code = UNINITIALIZED;
        return c;
    }
    c.symbol = atomic_load(symbol);
    if (c.symbol == SIM_NONE) {
        c.symbol = sim_symbol_find(c.node, name);
        atomic_store(symbol, c.symbol);
    }
    if (kind != NO_DEVICE && device && (device->magic == MAGIC_GPU || device->magic == MAGIC_MIG)) {
        c.gpu = device->gpu;
        c.instance = device->instance;
    }
    sim_count_begin(c.node, c.symbol);
    sim_work_reap(c.node);
    c.t = sim_now(c.node);
    if (c.symbol != SIM_NONE && c.node->symbols[c.symbol].branch > c.node->driver_branch)
        c.code = FUNCTION_NOT_FOUND;
    if (c.code == OK)
        meet_faults(&c);
    if (c.code == OK)
        c.code = check_device(&c, kind, device);
    return c;
}

void call_end(struct call *c)
{
    if (c->node)
        sim_count_end(c->node, c->symbol, mono_ns() - c->entered_ns);
}

// --- Helpers of the other files ---

bool call_mig_enabled(const struct call *c)
{
    return sim_truth_or_zero(c->node, c->gpu, SIM_MIG_MODE, c->t) != 0;
}

nvmlReturn_t call_u32(const struct call *c, enum sim_field field, unsigned int *out)
{
    int64_t value;
    NEED(out);
    int code = sim_truth(c->node, c->gpu, field, c->t, &value);
    if (code == OK)
        *out = (unsigned int)value;
    return code;
}

nvmlReturn_t call_u64(const struct call *c, enum sim_field field, unsigned long long *out)
{
    int64_t value;
    NEED(out);
    int code = sim_truth(c->node, c->gpu, field, c->t, &value);
    if (code == OK)
        *out = (unsigned long long)value;
    return code;
}

nvmlReturn_t copy_text(char *out, unsigned int bytes, const char *text)
{
    NEED(out);
    size_t len = strlen(text);
    if (len == 0)
        return NOT_SUPPORTED;
    if (len + 1 > bytes)
        return INSUFFICIENT_SIZE;
    memcpy(out, text, len + 1);
    return OK;
}

// --- Opening ---

static nvmlReturn_t open_library(void)
{
    const char *path = getenv("SIM_NODE");
    if (!mapped && path)
        mapped = sim_map(path);
    if (!mapped)
        return DRIVER_NOT_LOADED;
    int64_t now = sim_now(mapped);
    int64_t code = sim_truth_or_zero(mapped, SIM_NODE, SIM_DRIVER_INIT, now);
    if (code != OK)
        return (nvmlReturn_t)code;
    if (sim_client_open(mapped) != 0)
        return INSUFFICIENT_RESOURCES;
    if (atomic_load(&references) == 0)
        opened_at = now;
    atomic_fetch_add(&references, 1);
    return OK;
}

// Init counts too, and meets faults, though the library isn't open yet.
static nvmlReturn_t init(const char *name)
{
    (void)pthread_mutex_lock(&state_lock);
    nvmlReturn_t code = open_library();
    struct call c = {
        .node = mapped, .gpu = SIM_NONE, .instance = SIM_NONE, .entered_ns = mono_ns()};
    if (mapped) {
        c.symbol = sim_symbol_find(mapped, name);
        sim_count_begin(mapped, c.symbol);
        c.t = sim_now(mapped);
        meet_faults(&c);
        if (code == OK && c.code != OK) {
            atomic_fetch_sub(&references, 1);
            sim_client_close(mapped);
            code = c.code;
        }
        call_end(&c);
    }
    (void)pthread_mutex_unlock(&state_lock);
    return code;
}

API(nvmlInit, void)
{
    return init(__func__);
}

API(nvmlInit_v2, void)
{
    return init(__func__);
}

API(nvmlInitWithFlags, unsigned int flags)
{
    return init(__func__);
}

API(nvmlShutdown, void)
{
    CALL();
    (void)pthread_mutex_lock(&state_lock);
    unsigned had = atomic_load(&references);
    if (had > 0) {
        atomic_store(&references, had - 1);
        sim_client_close(mapped);
    }
    (void)pthread_mutex_unlock(&state_lock);
    return had > 0 ? OK : UNINITIALIZED;
}
