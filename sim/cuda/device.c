// SPDX-License-Identifier: Apache-2.0
// The devices that this process may see, what they are, and their primary contexts.
#include "double.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTEXT_BYTES (INT64_C(256) << 20) // what a context takes of the GPU before any allocation

struct cuda_context cuda_devices[CUDA_MAX_DEVICES];
uint32_t cuda_device_count;

// --- What is visible ---

static const char *device_uuid(const struct sim_node *n, const struct cuda_context *x)
{
    return sim_string(n, x->instance == SIM_NONE ? n->gpus[x->gpu].uuid
                                                 : n->instances[x->instance].uuid);
}

// The GPU, or in MIG mode its first instance, which is all that a process may use of it.
static bool whole_or_first(const struct sim_node *n, uint32_t gpu, int64_t t,
                           struct cuda_context *out)
{
    *out = (struct cuda_context){.gpu = gpu, .instance = SIM_NONE, .work = SIM_NONE};
    if (sim_truth_or_zero(n, gpu, SIM_MIG_MODE, t) == 0)
        return sim_gpu_return(n, gpu, t, t) == 0;
    for (uint32_t i = 0; i < atomic_load(&n->instance_count); i++) {
        if (n->instances[i].gpu == gpu && sim_instance_alive(n, i, t)) {
            out->instance = i;
            return true;
        }
    }
    return false;
}

static void add_device(const struct cuda_context *x)
{
    if (cuda_device_count < CUDA_MAX_DEVICES)
        cuda_devices[cuda_device_count++] = *x;
}

// "2", or the beginning of a UUID.
static bool find_visible(const struct sim_node *n, const char *word, size_t len,
                         struct cuda_context *out)
{
    int64_t t = sim_now(n);
    if (len > 0 && strspn(word, "0123456789") >= len) {
        uint32_t index = 0;
        for (size_t i = 0; i < len && index < SIM_MAX_GPUS; i++)
            index = index * 10 + (uint32_t)(word[i] - '0');
        return index < n->gpu_count && whole_or_first(n, index, t, out);
    }
    for (uint32_t i = 0; len > 4 && i < atomic_load(&n->instance_count); i++) {
        *out = (struct cuda_context){.gpu = n->instances[i].gpu, .instance = i, .work = SIM_NONE};
        if (sim_instance_alive(n, i, t) && strncmp(device_uuid(n, out), word, len) == 0)
            return true;
    }
    for (uint32_t gpu = 0; len > 4 && gpu < n->gpu_count; gpu++) {
        if (strncmp(sim_string(n, n->gpus[gpu].uuid), word, len) == 0)
            return whole_or_first(n, gpu, t, out);
    }
    return false;
}

// A list ends at the first word that is no device; a device that is named twice leaves none.
static void add_listed(const struct sim_node *n, const char *list)
{
    struct cuda_context x;
    for (size_t len; *list; list += len + (list[len] == ',')) {
        len = strcspn(list, ",");
        if (!find_visible(n, list, len, &x))
            return;
        for (uint32_t i = 0; i < cuda_device_count; i++) {
            if (cuda_devices[i].gpu == x.gpu && cuda_devices[i].instance == x.instance) {
                cuda_device_count = 0;
                return;
            }
        }
        add_device(&x);
    }
}

void cuda_find_devices(struct sim_node *n)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    cuda_device_count = 0;
    if (list) {
        add_listed(n, list);
        return;
    }
    struct cuda_context x;
    for (uint32_t gpu = 0; gpu < n->gpu_count; gpu++) {
        if (whole_or_first(n, gpu, sim_now(n), &x))
            add_device(&x);
    }
}

// --- What a device is ---

API(cuDeviceGetCount, int *count)
{
    CALL();
    NEED(count);
    *count = (int)cuda_device_count;
    return CUDA_SUCCESS;
}

API(cuDeviceGet, CUdevice *device, int ordinal)
{
    CALL_DEVICE(ordinal);
    NEED(device);
    *device = ordinal;
    return CUDA_SUCCESS;
}

API(cuDeviceGetName, char *name, int bytes, CUdevice device)
{
    CALL_DEVICE(device);
    const struct cuda_context *x = &cuda_devices[device];
    if (!name || bytes <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    const char *gpu = sim_string(c.node, c.node->gpus[x->gpu].name);
    if (x->instance == SIM_NONE)
        (void)snprintf(name, (size_t)bytes, "%s", gpu);
    else
        (void)snprintf(name, (size_t)bytes, "%s MIG %s", gpu,
                       sim_string(c.node, c.node->instances[x->instance].profile));
    return CUDA_SUCCESS;
}

static int hex(char c)
{
    return c <= '9' ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

// "GPU-" or "MIG-" and 32 hexadecimal digits with dashes.
static CUresult uuid_bytes(const char *text, CUuuid *uuid)
{
    size_t at = 0;
    NEED(uuid);
    for (text += strlen(text) < 4 ? 0 : 4; *text && at < 32; text++) {
        if (!isxdigit((unsigned char)*text))
            continue;
        unsigned char *byte = &uuid->bytes[at / 2];
        *byte = (unsigned char)(at % 2 == 0 ? hex(*text) << 4 : *byte | hex(*text));
        at++;
    }
    return at == 32 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

API(cuDeviceGetUuid, CUuuid *uuid, CUdevice device)
{
    CALL_DEVICE(device);
    return uuid_bytes(sim_string(c.node, c.node->gpus[cuda_devices[device].gpu].uuid), uuid);
}

API(cuDeviceGetUuid_v2, CUuuid *uuid, CUdevice device)
{
    CALL_DEVICE(device);
    return uuid_bytes(device_uuid(c.node, &cuda_devices[device]), uuid);
}

static int multiprocessors(const struct sim_node *n, const struct cuda_context *x)
{
    return (int)(x->instance == SIM_NONE ? n->gpus[x->gpu].multiprocessors
                                         : n->instances[x->instance].multiprocessors);
}

API(cuDeviceGetAttribute, int *value, int attribute, CUdevice device)
{
    CALL_DEVICE(device);
    const struct cuda_context *x = &cuda_devices[device];
    const struct sim_gpu *g = &c.node->gpus[x->gpu];
    NEED(value);
    if (attribute <= 0 || attribute >= 160)
        return CUDA_ERROR_INVALID_VALUE;
    const struct {
        int attribute, value;
    } known[] = {
        {1, 1024},      // threads in a block
        {2, 1024},      // in its x
        {3, 1024},      // y
        {4, 64},        // z
        {5, INT32_MAX}, // blocks in a grid's x
        {6, 65535},     // y
        {7, 65535},     // z
        {8, 48 << 10},  // shared memory of a block
        {10, 32},       // warp
        {12, 65536},    // registers of a block
        {13, 1000 * (int)sim_truth_or_zero(c.node, x->gpu, SIM_MAX_SM_CLOCK, c.t)}, // kHz
        {16, multiprocessors(c.node, x)},
        {31, 1}, // concurrent kernels
        {32, sim_truth_or_zero(c.node, x->gpu, SIM_ECC_MODE, c.t) != 0},
        {33, (int)g->bus},
        {34, (int)g->device},
        {36, 1000 * (int)sim_truth_or_zero(c.node, x->gpu, SIM_MAX_MEM_CLOCK, c.t)},
        {39, g->cc_major == 7 && g->cc_minor == 5 ? 1024
             : g->cc_minor >= 6                   ? 1536
                                                  : 2048},
        {40, 2}, // copy engines
        {41, 1}, // unified addressing
        {50, (int)g->domain},
        {75, (int)g->cc_major},
        {76, (int)g->cc_minor},
    };
    *value = 0;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].attribute == attribute)
            *value = known[i].value;
    }
    return CUDA_SUCCESS;
}

// What programs may have of the memory: without what the driver keeps.
static CUresult memory(const struct call *c, const struct cuda_context *x, size_t *free_bytes,
                       size_t *total)
{
    struct sim_memory m = {0};
    int code = x->instance == SIM_NONE ? sim_gpu_memory(c->node, x->gpu, c->t, &m)
                                       : sim_instance_memory(c->node, x->instance, c->t, &m);
    if (code != 0)
        return CUDA_ERROR_UNKNOWN;
    *free_bytes = (size_t)m.free;
    *total = (size_t)(m.total - m.reserved);
    return CUDA_SUCCESS;
}

API(cuDeviceTotalMem_v2, size_t *bytes, CUdevice device)
{
    CALL_DEVICE(device);
    size_t unused;
    NEED(bytes);
    return memory(&c, &cuda_devices[device], &unused, bytes);
}

API(cuMemGetInfo_v2, size_t *free_bytes, size_t *total)
{
    CALL_CONTEXT();
    NEED(free_bytes);
    NEED(total);
    sim_work_reap(c.node);
    return memory(&c, c.context, free_bytes, total);
}

// --- Contexts ---

// argv[0], as the driver's lists of processes have it.
static void process_name(char out[static 64])
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, out, 63);
    if (fd >= 0)
        (void)close(fd);
    out[got > 0 ? got : 0] = '\0';
}

static CUresult make_context(const struct call *c, struct cuda_context *x)
{
    char name[64];
    process_name(name);
    size_t available, total;
    cuda_lock_node();
    sim_work_reap(c->node);
    CUresult code = memory(c, x, &available, &total);
    if (code == CUDA_SUCCESS && available < (size_t)CONTEXT_BYTES)
        code = CUDA_ERROR_OUT_OF_MEMORY;
    if (code == CUDA_SUCCESS) {
        x->work = sim_work_begin(c->node, x->gpu, x->instance, name);
        code = x->work == SIM_NONE ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    if (code == CUDA_SUCCESS)
        cuda_account(x, CONTEXT_BYTES);
    cuda_unlock_node();
    x->life++;
    x->peers = 0;
    atomic_store(&x->broken, 0);
    return code;
}

API(cuDevicePrimaryCtxRetain, CUcontext *context, CUdevice device)
{
    CALL_DEVICE(device);
    struct cuda_context *x = &cuda_devices[device];
    CUresult code = CUDA_SUCCESS;
    NEED(context);
    cuda_lock();
    if (x->references == 0)
        code = make_context(&c, x);
    if (code == CUDA_SUCCESS) {
        x->references++;
        *context = x;
    }
    cuda_unlock();
    return code;
}

// With the process's lock held.
static void end_context(struct sim_node *n, struct cuda_context *x)
{
    cuda_free_streams(x);
    cuda_free_all(x);
    cuda_lock_node();
    sim_work_end(n, x->work);
    cuda_unlock_node();
    x->work = SIM_NONE;
    x->references = 0;
}

static CUresult release(const struct call *c, CUdevice device)
{
    struct cuda_context *x = &cuda_devices[device];
    CUresult code = CUDA_SUCCESS;
    cuda_lock();
    if (x->references == 0)
        code = CUDA_ERROR_INVALID_CONTEXT;
    else if (--x->references == 0)
        end_context(c->node, x);
    cuda_unlock();
    return code;
}

API(cuDevicePrimaryCtxRelease, CUdevice device)
{
    CALL_DEVICE(device);
    return release(&c, device);
}

API(cuDevicePrimaryCtxRelease_v2, CUdevice device)
{
    CALL_DEVICE(device);
    return release(&c, device);
}

void cuda_end_contexts(void)
{
    struct sim_node *n = cuda_node();
    for (uint32_t i = 0; n && i < cuda_device_count; i++) {
        if (cuda_devices[i].references > 0)
            end_context(n, &cuda_devices[i]);
    }
}

API(cuCtxSetCurrent, CUcontext context)
{
    CALL();
    if (context && (context < cuda_devices || context >= cuda_devices + cuda_device_count ||
                    context->references == 0))
        return CUDA_ERROR_INVALID_CONTEXT;
    cuda_current = context;
    return CUDA_SUCCESS;
}

API(cuCtxGetCurrent, CUcontext *context)
{
    CALL();
    NEED(context);
    *context = cuda_current;
    return CUDA_SUCCESS;
}

// --- Peers: as the node tells of NVLink's ---

static bool peers(const struct sim_node *n, const struct cuda_context *a,
                  const struct cuda_context *b)
{
    return a->gpu != b->gpu && a->instance == SIM_NONE && b->instance == SIM_NONE &&
           n->gpus[a->gpu].links > 0 && n->gpus[b->gpu].links > 0 &&
           atomic_load(&n->dcgm.peers[a->gpu][b->gpu]) == 0;
}

API(cuDeviceCanAccessPeer, int *can, CUdevice device, CUdevice peer)
{
    CALL_DEVICE(device);
    NEED(can);
    if (peer < 0 || (uint32_t)peer >= cuda_device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *can = peers(c.node, &cuda_devices[device], &cuda_devices[peer]);
    return CUDA_SUCCESS;
}

API(cuCtxEnablePeerAccess, CUcontext context, unsigned int flags)
{
    CALL_CONTEXT();
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context || context < cuda_devices || context >= cuda_devices + cuda_device_count ||
        context == c.context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!peers(c.node, c.context, context))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    uint32_t bit = 1u << (context - cuda_devices);
    if (c.context->peers & bit)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    c.context->peers |= bit;
    return CUDA_SUCCESS;
}
