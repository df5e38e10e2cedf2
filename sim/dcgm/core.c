// SPDX-License-Identifier: Apache-2.0
// Opening the library, and the way into every call.
#include "double.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// One lock for all: the callbacks of reads may call again.
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct sim_node *mapped; // stays once made
static unsigned inits;

uint64_t double_mono_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint32_t known_symbol(struct call *c, const char *name, _Atomic uint32_t *symbol)
{
    uint32_t at = atomic_load(symbol);
    if (at == SIM_NONE) {
        at = sim_symbol_find(c->node, name);
        atomic_store(symbol, at);
    }
    return at;
}

static void count_and_meet_faults(struct call *c, uint32_t gpu)
{
    sim_count_begin(c->node, c->symbol);
    struct double_call at = {.node = c->node,
                             .symbol = c->symbol,
                             .gpu = gpu < c->node->gpu_count ? c->node->dcgm.order[gpu] : SIM_NONE,
                             .t = sim_now(c->node)};
    double_meet_faults(&at); // without the lock: others go on while one call hangs
    c->code = at.code;
    c->dropped = at.dropped;
}

// A connection that drops does so at once, but in the middle of a read of values.
static dcgmReturn_t find_connection(struct call *c, dcgmHandle_t handle, bool reads)
{
    c->at = connection_find(handle);
    if (!c->at || !connection_lives(c->at))
        return ST_CONNECTION_NOT_VALID;
    if (c->dropped)
        c->at->gone = true;
    return c->dropped && !reads ? ST_CONNECTION_NOT_VALID : c->at->refusal;
}

struct call call_begin(const char *name, _Atomic uint32_t *symbol, const dcgmHandle_t *handle,
                       uint32_t gpu)
{
    struct call c = {.symbol = SIM_NONE, .entered_ns = double_mono_ns()};
    (void)pthread_mutex_lock(&lock);
    c.node = inits > 0 ? mapped : NULL;
    (void)pthread_mutex_unlock(&lock);
    if (!c.node) {
        c.code = ST_UNINITIALIZED;
        return c;
    }
    c.symbol = known_symbol(&c, name, symbol);
    count_and_meet_faults(&c, gpu);
    (void)pthread_mutex_lock(&lock);
    c.locked = true;
    c.t = sim_now(c.node);
    c.now_ns = double_mono_ns();
    if (c.code == ST_OK && handle)
        c.code = find_connection(&c, *handle, strstr(name, "Values") != NULL);
    return c;
}

void call_end(struct call *c)
{
    if (c->locked)
        (void)pthread_mutex_unlock(&lock);
    if (c->node)
        sim_count_end(c->node, c->symbol, double_mono_ns() - c->entered_ns);
}

// --- Opening ---

API(dcgmInit, void)
{
    (void)pthread_mutex_lock(&lock);
    const char *path = getenv("SIM_NODE");
    if (!mapped && path)
        mapped = sim_map(path);
    dcgmReturn_t code = mapped ? ST_OK : ST_INIT_ERROR;
    if (mapped) {
        struct call c = {.node = mapped,
                         .symbol = sim_symbol_find(mapped, __func__),
                         .entered_ns = double_mono_ns()};
        count_and_meet_faults(&c, SIM_NONE);
        code = c.code;
        inits += code == ST_OK;
        call_end(&c);
    }
    (void)pthread_mutex_unlock(&lock);
    return code;
}

API(dcgmShutdown, void)
{
    CALL();
    inits--;
    return ST_OK;
}

static dcgmReturn_t tell_version(dcgmVersionInfo_v2 *out)
{
    NEED(out);
    if (out->version != WORD(dcgmVersionInfo_v2, 2))
        return ST_VER_MISMATCH;
    (void)snprintf(out->rawBuildInfoString, sizeof(out->rawBuildInfoString), "%s",
                   DCGM_MAJOR == 4
                       ? "version:4.6.1;arch:x86_64;buildtype:Release;branch:podgpu-sim;"
                       : "version:3.3.9;arch:x86_64;buildtype:Release;branch:podgpu-sim;");
    return ST_OK;
}

API(dcgmVersionInfo, dcgmVersionInfo_v2 *out)
{
    CALL();
    return tell_version(out);
}

API(dcgmHostengineVersionInfo, dcgmHandle_t handle, dcgmVersionInfo_v2 *out)
{
    CALL_AT(handle);
    return tell_version(out);
}

// --- Fields ---

const dcgm_field_meta_t *field_find(uint16_t id)
{
    size_t low = 0, high = double_field_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (double_fields[middle].fieldId < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < double_field_count && double_fields[low].fieldId == id ? &double_fields[low]
                                                                        : NULL;
}

static _Atomic bool fields_open;

API(DcgmFieldsInit, void)
{
    atomic_store(&fields_open, true);
    return ST_OK;
}

API(DcgmFieldsTerm, void)
{
    atomic_store(&fields_open, false);
    return ST_OK;
}

EXPORT const dcgm_field_meta_t *DcgmFieldGetById(unsigned short id);
EXPORT const dcgm_field_meta_t *DcgmFieldGetById(unsigned short id)
{
    return atomic_load(&fields_open) ? field_find(id) : NULL;
}
