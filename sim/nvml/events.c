// SPDX-License-Identifier: Apache-2.0
// Event sets. A set sees what happened on a GPU after it was registered, each thing once, oldest
// first; other sets have their own view.
#include "double.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SET_MAGIC 0x45565453u

struct nvmlEventSet_st {
    uint32_t magic;
    uint64_t mask[SIM_MAX_GPUS]; // wanted types, 0: not registered
    int64_t since[SIM_MAX_GPUS]; // of registration
    uint8_t seen[SIM_MAX_EVENTS / 8];
};

// Types that every simulated GPU can tell of.
#define SUPPORTED_TYPES (1ull | 2 | 8 | 0x10 | 0x100)

API(nvmlEventSetCreate, nvmlEventSet_t *set)
{
    CALL();
    NEED(set);
    nvmlEventSet_t s = calloc(1, sizeof(*s));
    if (!s)
        return MEMORY;
    s->magic = SET_MAGIC;
    *set = s;
    return OK;
}

API(nvmlEventSetFree, nvmlEventSet_t set)
{
    CALL();
    if (!set || set->magic != SET_MAGIC)
        return INVALID_ARGUMENT;
    set->magic = 0;
    free(set);
    return OK;
}

static unsigned long long supported_types(const struct call *c)
{
    return call_gpu(c)->mig_capable ? SUPPORTED_TYPES : SUPPORTED_TYPES & ~0x100ull;
}

API(nvmlDeviceGetSupportedEventTypes, nvmlDevice_t device, unsigned long long *types)
{
    CALL_GPU(device);
    NEED(types);
    *types = supported_types(&c);
    return OK;
}

// One unsupported type refuses the whole mask.
API(nvmlDeviceRegisterEvents, nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    CALL_GPU(device);
    if (!set || set->magic != SET_MAGIC)
        return INVALID_ARGUMENT;
    if ((types & ~supported_types(&c)) != 0)
        return NOT_SUPPORTED;
    if (set->mask[c.gpu] == 0)
        set->since[c.gpu] = c.t;
    set->mask[c.gpu] |= types;
    return OK;
}

static bool is_for(const struct nvmlEventSet_st *s, const struct sim_event *e, uint32_t index,
                   int64_t now)
{
    if ((e->flags & SIM_EVENT_NVML) == 0 || (s->mask[e->gpu] & e->type) == 0)
        return false;
    return e->at_ns > s->since[e->gpu] && e->at_ns <= now &&
           (s->seen[index / 8] >> index % 8 & 1) == 0;
}

static const struct sim_event *take_event(struct sim_node *n, struct nvmlEventSet_st *s,
                                          int64_t now)
{
    uint32_t best = SIM_NONE, count = atomic_load(&n->event_count);
    for (uint32_t i = 0; i < count; i++) {
        if (is_for(s, &n->events[i], i, now) &&
            (best == SIM_NONE || n->events[i].at_ns < n->events[best].at_ns))
            best = i;
    }
    if (best == SIM_NONE)
        return NULL;
    s->seen[best / 8] = (uint8_t)(s->seen[best / 8] | 1u << best % 8);
    return &n->events[best];
}

static bool lost_one(const struct sim_node *n, const struct nvmlEventSet_st *s, int64_t now)
{
    for (uint32_t i = 0; i < n->gpu_count; i++) {
        if (s->mask[i] != 0 && sim_gpu_return(n, i, double_opened_at(), now) == GPU_IS_LOST)
            return true;
    }
    return false;
}

static uint64_t mono_ms(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

// Events first: what led to a loss is told before the loss itself.
static nvmlReturn_t wait_event(struct sim_node *n, struct nvmlEventSet_st *s,
                               unsigned int timeout_ms, const struct sim_event **out)
{
    if (!s || s->magic != SET_MAGIC)
        return INVALID_ARGUMENT;
    uint64_t until = mono_ms() + timeout_ms;
    for (;;) {
        uint32_t seen = atomic_load(&n->event_futex);
        int64_t now = sim_now(n);
        *out = take_event(n, s, now);
        if (*out)
            return OK;
        if (lost_one(n, s, now))
            return GPU_IS_LOST;
        uint64_t at = mono_ms();
        if (at >= until)
            return TIMEOUT;
        sim_event_sleep(n, seen, until - at > 1000 ? 1000 : (int)(until - at));
    }
}

API(nvmlEventSetWait_v2, nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    CALL();
    const struct sim_event *e;
    NEED(data);
    nvmlReturn_t code = wait_event(c.node, set, timeout_ms, &e);
    if (code == OK)
        *data = (nvmlEventData_t){double_gpu_handle(e->gpu), e->type, e->data, e->gi, e->ci};
    return code;
}

API(nvmlEventSetWait, nvmlEventSet_t set, nvmlEventData_v1_t *data, unsigned int timeout_ms)
{
    CALL();
    const struct sim_event *e;
    NEED(data);
    nvmlReturn_t code = wait_event(c.node, set, timeout_ms, &e);
    if (code == OK)
        *data = (nvmlEventData_v1_t){double_gpu_handle(e->gpu), e->type, e->data};
    return code;
}
