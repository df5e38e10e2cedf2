// SPDX-License-Identifier: Apache-2.0
// How it works: a walk builds the next list beside the one that is alive (nvml_survey.c), then the
// new list takes over what running state still belongs to the same entity, and the rest of the old
// one is freed. Records are zeroed before they are filled, so two lists are compared by their
// bytes.
#include "source/nvml_devices.h"

#include <stdlib.h>
#include <string.h>

#include "source/nvml_call.h"
#include "source/nvml_survey.h"

bool nvml_result_is_of_library(nvmlReturn_t result)
{
    return result == NVML_ERROR_UNINITIALIZED || result == NVML_ERROR_DRIVER_NOT_LOADED ||
           result == NVML_ERROR_LIBRARY_NOT_FOUND || result == NVML_ERROR_LIB_RM_VERSION_MISMATCH;
}

enum frame_entity_state nvml_state_of(nvmlReturn_t result)
{
    switch (result) {
    case NVML_ERROR_GPU_IS_LOST:
    case NVML_ERROR_GPU_NOT_FOUND:
        return FRAME_ENTITY_LOST;
    case NVML_ERROR_RESET_REQUIRED:
        return FRAME_ENTITY_RESET_REQUIRED;
    default:
        return FRAME_ENTITY_UP;
    }
}

// --- the new list takes over ---

static bool same_entity(const struct nvml_entity *a, const struct nvml_entity *b)
{
    return a->record.kind == b->record.kind && a->record.uuid[0] &&
           strcmp(a->record.uuid, b->record.uuid) == 0 &&
           a->record.gpu_instance_id == b->record.gpu_instance_id &&
           a->record.slices == b->record.slices &&
           strcmp(a->record.profile, b->record.profile) == 0;
}

static void inherit(struct nvml_entity *e, struct nvml_devices *old)
{
    for (uint32_t i = 0; i < old->count; i++) {
        struct nvml_entity *from = &old->list[i];
        if (!same_entity(e, from))
            continue;
        e->xid_armed = from->xid_armed && e->device == from->device;
        e->rates = from->rates;
        from->rates = (struct nvml_rates){0};
        if (e->device == from->device && e->record.state != FRAME_ENTITY_LOST) {
            e->gpm = from->gpm;
            from->gpm = (struct nvml_gpm){0};
        }
        return;
    }
}

static void free_list(struct nvml *n, struct nvml_devices *d)
{
    for (uint32_t i = 0; i < d->count; i++) {
        nvml_gpm_reset(n, &d->list[i].gpm, d->list[i].record.index);
        nvml_rates_deinit(&d->list[i].rates);
    }
    free(d->list);
    d->list = NULL;
    d->count = d->gpus = 0;
}

static bool differs(const struct nvml_devices *d, const struct nvml_survey *b)
{
    if (d->count != b->count)
        return true;
    for (uint32_t i = 0; i < b->count; i++)
        if (memcmp(&d->list[i].record, &b->list[i].record, sizeof(b->list[i].record)) != 0)
            return true;
    return false;
}

static void settle_states(struct nvml_survey *b)
{
    for (uint32_t i = 0; i < b->count; i++)
        if (!nvml_entity_is_gpu(&b->list[i]))
            b->list[i].record.state = b->list[b->list[i].record.parent].record.state;
}

static nvmlReturn_t replace_list(struct nvml_devices *d, struct nvml_survey *b, bool *out_changed)
{
    if (b->no_memory) {
        free(b->list);
        return NVML_ERROR_MEMORY;
    }
    settle_states(b);
    *out_changed = differs(d, b);
    for (uint32_t i = 0; i < b->count; i++)
        inherit(&b->list[i], d);
    free_list(b->n, d);
    d->list = b->list;
    d->count = b->count;
    for (uint32_t i = 0; i < d->count; i++)
        d->gpus += nvml_entity_is_gpu(&d->list[i]);
    return NVML_SUCCESS;
}

// --- the public ones ---

nvmlReturn_t nvml_devices_enumerate(struct nvml *n, struct nvml_devices *d, bool *out_changed)
{
    unsigned int count = 0;
    *out_changed = false;
    nvmlReturn_t result = nvml_call(n, NVML_NO_GPU, nvmlDeviceGetCount, &count);
    if (result != NVML_SUCCESS)
        return result;
    struct nvml_survey b = {.n = n, .old = d};
    for (uint32_t i = 0; i < count && i < LIMIT_GPUS; i++)
        nvml_survey_gpu(&b, i);
    return replace_list(d, &b, out_changed);
}

nvmlReturn_t nvml_devices_walk(struct nvml *n, struct nvml_devices *d, bool *out_changed)
{
    *out_changed = false;
    struct nvml_survey b = {.n = n, .old = d};
    for (uint32_t i = 0; i < d->count; i++)
        if (nvml_entity_is_gpu(&d->list[i]))
            nvml_survey_again(&b, &d->list[i]);
    return replace_list(d, &b, out_changed);
}

// Of what a call tells, the worse counts; only an answer ends FAILED, only a walk the others.
static bool is_news(enum frame_entity_state before, enum frame_entity_state now)
{
    switch (now) {
    case FRAME_ENTITY_LOST:
        return before != FRAME_ENTITY_LOST;
    case FRAME_ENTITY_RESET_REQUIRED:
        return before == FRAME_ENTITY_UP || before == FRAME_ENTITY_FAILED;
    case FRAME_ENTITY_FAILED:
        return before == FRAME_ENTITY_UP;
    case FRAME_ENTITY_UP:
        return before == FRAME_ENTITY_FAILED;
    case FRAME_ENTITY_NO_PERMISSION:
    case FRAME_ENTITY_SKIPPED:
    case FRAME_ENTITY_STATE_END:
        break;
    }
    return false;
}

bool nvml_devices_mark(struct nvml_devices *d, uint32_t entity, enum frame_entity_state state)
{
    uint32_t gpu = d->list[entity].record.parent;
    struct nvml_entity *e = &d->list[gpu];
    if (state == FRAME_ENTITY_RESET_REQUIRED)
        e->reset_seen = true;
    if (!is_news((enum frame_entity_state)e->record.state, state))
        return false;
    for (uint32_t i = gpu; i < d->count && d->list[i].record.parent == gpu; i++)
        d->list[i].record.state = (uint8_t)state;
    return true;
}

void nvml_devices_release(struct nvml *n, struct nvml_devices *d)
{
    for (uint32_t i = 0; i < d->count; i++) {
        struct nvml_entity *e = &d->list[i];
        nvml_gpm_reset(n, &e->gpm, e->record.index);
        nvml_rates_deinit(&e->rates);
        e->device = NULL;
        e->xid_armed = false;
        if (e->record.state != FRAME_ENTITY_SKIPPED)
            e->record.state = FRAME_ENTITY_LOST;
    }
}

void nvml_devices_deinit(struct nvml *n, struct nvml_devices *d)
{
    free_list(n, d);
}

uint32_t nvml_devices_find(const struct nvml_devices *d, nvmlDevice_t device)
{
    for (uint32_t i = 0; i < d->count; i++)
        if (nvml_entity_is_gpu(&d->list[i]) && d->list[i].device == device)
            return i;
    return UINT32_MAX;
}

uint32_t nvml_devices_find_index(const struct nvml_devices *d, uint32_t index)
{
    for (uint32_t i = 0; i < d->count; i++)
        if (nvml_entity_is_gpu(&d->list[i]) && d->list[i].record.index == index)
            return i;
    return UINT32_MAX;
}

bool nvml_devices_any_lost(const struct nvml_devices *d)
{
    for (uint32_t i = 0; i < d->count; i++)
        if (d->list[i].record.state == FRAME_ENTITY_LOST)
            return true;
    return false;
}

bool nvml_devices_all_lost(const struct nvml_devices *d)
{
    uint32_t lost = 0, others = 0;
    for (uint32_t i = 0; i < d->count; i++) {
        if (!nvml_entity_is_gpu(&d->list[i]) || d->list[i].record.state == FRAME_ENTITY_SKIPPED)
            continue;
        if (d->list[i].record.state == FRAME_ENTITY_LOST ||
            d->list[i].record.state == FRAME_ENTITY_FAILED)
            lost++;
        else
            others++;
    }
    return lost && !others;
}
