// SPDX-License-Identifier: Apache-2.0
// cuInit, the way into every call and the faults that wait there, the names of errors.
#include "double.h"

#include "../double_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_node *mapped;
static int node_fd = -1;
static pid_t owner; // the process that called cuInit: a child has no use of what it inherits
_Thread_local struct cuda_context *cuda_current;

void cuda_lock(void)
{
    (void)pthread_mutex_lock(&lock);
}

void cuda_unlock(void)
{
    (void)pthread_mutex_unlock(&lock);
}

void cuda_lock_node(void)
{
    while (flock(node_fd, LOCK_EX) != 0 && errno == EINTR) {
    }
}

void cuda_unlock_node(void)
{
    (void)flock(node_fd, LOCK_UN);
}

struct sim_node *cuda_node(void)
{
    return owner == getpid() ? mapped : NULL;
}

static uint64_t mono_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

// Errors after which a context is of no more use.
static bool breaks_context(CUresult code)
{
    return code == CUDA_ERROR_ECC_UNCORRECTABLE || code == CUDA_ERROR_ILLEGAL_ADDRESS ||
           code == CUDA_ERROR_LAUNCH_TIMEOUT ||
           (code >= CUDA_ERROR_ILLEGAL_INSTRUCTION && code <= CUDA_ERROR_LAUNCH_FAILED);
}

static void meet_faults(struct call *c, uint32_t gpu)
{
    struct double_call at = {.node = c->node, .symbol = c->symbol, .gpu = gpu, .t = c->t};
    double_meet_faults(&at);
    c->t = at.t;
    if (at.code == 0)
        return;
    c->code = at.code;
    if (c->context && breaks_context(at.code))
        atomic_store(&c->context->broken, at.code);
}

static CUresult check(struct call *c, enum call_kind kind, int device)
{
    if (kind == CALL_DRIVER)
        return CUDA_SUCCESS;
    if (kind == CALL_DEVICE && (device < 0 || (uint32_t)device >= cuda_device_count))
        return CUDA_ERROR_INVALID_DEVICE;
    const struct cuda_context *x = kind == CALL_DEVICE ? &cuda_devices[device] : c->context;
    if (!x || (kind == CALL_CONTEXT && x->references == 0))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (sim_gpu_return(c->node, x->gpu, c->t, c->t) != 0)
        return CUDA_ERROR_UNKNOWN;
    return kind == CALL_CONTEXT ? atomic_load(&x->broken) : CUDA_SUCCESS;
}

static void enter(struct call *c, const char *name, _Atomic uint32_t *symbol)
{
    c->symbol = atomic_load(symbol);
    if (c->symbol == SIM_NONE) {
        c->symbol = sim_symbol_find(c->node, name);
        atomic_store(symbol, c->symbol);
    }
    sim_count_begin(c->node, c->symbol);
    c->t = sim_now(c->node);
}

struct call call_begin(const char *name, _Atomic uint32_t *symbol, enum call_kind kind, int device)
{
    struct call c = {.node = cuda_node(), .context = cuda_current, .entered_ns = mono_ns()};
    if (!c.node) {
        c.code = CUDA_ERROR_NOT_INITIALIZED;
        return c;
    }
    enter(&c, name, symbol);
    bool known = device >= 0 && (uint32_t)device < cuda_device_count;
    meet_faults(&c, known ? cuda_devices[device].gpu : c.context ? c.context->gpu : SIM_NONE);
    if (c.code == CUDA_SUCCESS)
        c.code = check(&c, kind, device);
    return c;
}

void call_end(struct call *c)
{
    if (c->node)
        sim_count_end(c->node, c->symbol, mono_ns() - c->entered_ns);
}

// --- Opening and closing ---

// At exit, and when the library is unloaded.
static void close_all(void)
{
    cuda_end_contexts();
    owner = 0;
    sim_unmap(mapped);
    mapped = NULL;
    if (node_fd >= 0)
        (void)close(node_fd);
    node_fd = -1;
}

static struct sim_node *open_node(void)
{
    const char *path = getenv("SIM_NODE");
    if (!mapped && path) {
        node_fd = open(path, O_RDWR | O_CLOEXEC);
        mapped = node_fd >= 0 ? sim_map(path) : NULL;
    }
    return mapped;
}

static CUresult init(struct call *c)
{
    CUresult code = (CUresult)sim_truth_or_zero(c->node, SIM_NODE, SIM_CUDA_INIT, c->t);
    if (code != CUDA_SUCCESS)
        return code;
    if (sim_truth_or_zero(c->node, SIM_NODE, SIM_DRIVER_INIT, c->t) != 0)
        return CUDA_ERROR_NO_DEVICE;
    if (owner == getpid())
        return CUDA_SUCCESS;
    if (owner != 0)
        return CUDA_ERROR_NOT_INITIALIZED; // a child of a process that had called it
    cuda_find_devices(c->node);
    if (cuda_device_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    owner = getpid();
    (void)atexit(close_all);
    return CUDA_SUCCESS;
}

API(cuInit, unsigned int flags)
{
    static _Atomic uint32_t symbol = SIM_NONE;
    cuda_lock();
    struct call c = {.node = open_node(), .entered_ns = mono_ns()};
    if (c.node) {
        enter(&c, __func__, &symbol);
        meet_faults(&c, SIM_NONE);
    }
    if (!c.node)
        c.code = CUDA_ERROR_NO_DEVICE; // no driver
    if (c.code == CUDA_SUCCESS)
        c.code = flags == 0 ? init(&c) : CUDA_ERROR_INVALID_VALUE;
    call_end(&c);
    cuda_unlock();
    return c.code;
}

// Needs no cuInit: programs ask before it.
API(cuDriverGetVersion, int *version)
{
    static _Atomic uint32_t symbol = SIM_NONE;
    cuda_lock();
    struct call c = {.node = open_node(), .entered_ns = mono_ns()};
    if (c.node) {
        enter(&c, __func__, &symbol);
        meet_faults(&c, SIM_NONE);
        call_end(&c);
    }
    cuda_unlock();
    NEED(version);
    if (c.code == CUDA_SUCCESS)
        *version = c.node ? (int)c.node->cuda_version : 0;
    return c.code;
}

// --- Errors ---

static CUresult error_text(CUresult error, const char **text, bool name)
{
    static const struct {
        CUresult code;
        const char *name, *text;
    } known[] = {
#define CUDA_RESULT(code, name, text)                                                              \
    {code, code == 0 ? "CUDA_SUCCESS" : "CUDA_ERROR_" #name, text},
        CUDA_RESULTS(CUDA_RESULT)
#undef CUDA_RESULT
    };
    NEED(text);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].code == error) {
            *text = name ? known[i].name : known[i].text;
            return CUDA_SUCCESS;
        }
    }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

API(cuGetErrorName, CUresult error, const char **text)
{
    return error_text(error, text, true);
}

API(cuGetErrorString, CUresult error, const char **text)
{
    return error_text(error, text, false);
}
