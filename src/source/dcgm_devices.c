// SPDX-License-Identifier: Apache-2.0
// How it works: a walk builds the next list beside the one that is alive (dcgm_survey_*.c), then
// takes it over with an index by entity. Records are zeroed before they are filled, so two lists
// are compared by their bytes.
#include "source/dcgm_devices.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "source/dcgm_survey.h"

#define WALKS_UNTIL_ALL 12 // two minutes of walks every 10 s

struct dcgm_place {
    uint64_t key; // group << 32 | id
    uint32_t at;
};

static uint64_t key_of(int group, uint32_t id)
{
    return (uint64_t)(uint32_t)group << 32 | id;
}

// --- the list in the making ---

struct dcgm_entity *dcgm_survey_add(struct dcgm_survey *b, int group, uint32_t id)
{
    static const uint8_t kinds[] = {
        [DCGM_FE_GPU] = FRAME_ENTITY_GPU,           [DCGM_FE_SWITCH] = FRAME_ENTITY_SWITCH,
        [DCGM_FE_GPU_I] = FRAME_ENTITY_GPU_I,       [DCGM_FE_GPU_CI] = FRAME_ENTITY_GPU_CI,
        [DCGM_FE_LINK] = FRAME_ENTITY_LINK,         [DCGM_FE_CPU] = FRAME_ENTITY_CPU,
        [DCGM_FE_CPU_CORE] = FRAME_ENTITY_CPU_CORE,
    };
    if (b->count >= LIMIT_ENTITIES) {
        b->left_out++;
        return NULL;
    }
    if (b->count == b->capacity) {
        uint32_t capacity = b->capacity ? b->capacity * 2 : 8;
        struct dcgm_entity *list = realloc(b->list, capacity * sizeof(*list));
        if (!list) {
            b->no_memory = true;
            return NULL;
        }
        b->list = list;
        b->capacity = capacity;
    }
    struct dcgm_entity *e = &b->list[b->count];
    memset(e, 0, sizeof(*e));
    e->group = (uint8_t)group;
    e->id = id;
    e->gpu_mask_bit = UINT32_MAX;
    e->record.kind = kinds[group];
    e->record.parent = b->count++;
    e->record.index = e->record.minor = e->record.gpu_instance_id = UINT32_MAX;
    e->record.instance_entity_id = e->record.id = UINT32_MAX;
    e->record.profile_id = e->record.placement = UINT32_MAX; // DCGM tells neither
    return e;
}

uint32_t dcgm_survey_find(const struct dcgm_survey *b, int group, uint32_t id)
{
    for (uint32_t i = 0; i < b->count; i++)
        if (b->list[i].group == group && b->list[i].id == id)
            return i;
    return UINT32_MAX;
}

const struct dcgm_entity *dcgm_survey_known(const struct dcgm_survey *b, int group, uint32_t id)
{
    uint32_t at = dcgm_devices_find(b->old, group, id);
    return at == UINT32_MAX ? NULL : &b->old->list[at];
}

void dcgm_survey_keep(struct dcgm_survey *b, int group)
{
    for (uint32_t i = 0; i < b->old->count; i++) {
        const struct dcgm_entity *from = &b->old->list[i];
        if (from->group != group)
            continue;
        uint32_t place = b->count;
        if (from->record.parent != i) {
            const struct dcgm_entity *above = &b->old->list[from->record.parent];
            place = dcgm_survey_find(b, above->group, above->id);
        }
        if (place == UINT32_MAX)
            continue;
        struct dcgm_entity *e = dcgm_survey_add(b, group, from->id);
        if (!e)
            return;
        *e = *from;
        e->record.parent = place;
    }
}

bool dcgm_result_is_of_engine(dcgmReturn_t result)
{
    return result == DCGM_ST_CONNECTION_NOT_VALID || result == DCGM_ST_UNINITIALIZED ||
           result == DCGM_ST_NVML_DRIVER_TIMEOUT;
}

bool dcgm_result_is_lack(dcgmReturn_t result)
{
    switch (result) {
    case DCGM_ST_NOT_SUPPORTED:
    case DCGM_ST_VER_MISMATCH:
    case DCGM_ST_NO_DATA:
    case DCGM_ST_NO_PERMISSION:
    case DCGM_ST_FUNCTION_NOT_FOUND:
    case DCGM_ST_GPU_NOT_SUPPORTED:
    case DCGM_ST_LIBRARY_NOT_FOUND:
    case DCGM_ST_REQUIRES_ROOT:
    case DCGM_ST_MODULE_NOT_LOADED:
    case DCGM_ST_INSUFFICIENT_DRIVER_VERSION:
    case DCGM_ST_NVML_NOT_LOADED:
    case DCGM_ST_GPUS_DETACHED:
        return true;
    default:
        return false;
    }
}

int dcgm_compare_ids(const void *a, const void *b)
{
    unsigned left = *(const unsigned *)a, right = *(const unsigned *)b;
    return (left > right) - (left < right);
}

struct sv dcgm_text(const char *text, size_t bytes)
{
    struct sv s = {text, strnlen(text, bytes)};
    return sv_starts_with(s, SV("<<<")) ? SV("") : s;
}

// --- the new list takes over ---

static bool differs(const struct dcgm_devices *v, const struct dcgm_survey *b)
{
    if (v->count != b->count)
        return true;
    for (uint32_t i = 0; i < b->count; i++)
        if (v->list[i].group != b->list[i].group || v->list[i].id != b->list[i].id ||
            memcmp(&v->list[i].record, &b->list[i].record, sizeof(b->list[i].record)) != 0)
            return true;
    return false;
}

static int compare_places(const void *a, const void *b)
{
    uint64_t left = ((const struct dcgm_place *)a)->key;
    uint64_t right = ((const struct dcgm_place *)b)->key;
    return (left > right) - (left < right);
}

static struct dcgm_place *make_places(const struct dcgm_survey *b)
{
    struct dcgm_place *places = calloc(b->count + 1, sizeof(*places));
    if (!places)
        return NULL;
    for (uint32_t i = 0; i < b->count; i++)
        places[i] = (struct dcgm_place){key_of(b->list[i].group, b->list[i].id), i};
    qsort(places, b->count, sizeof(*places), compare_places);
    return places;
}

static void tell(struct dcgm_devices *v, const struct dcgm_survey *b)
{
    if (b->left_out && !v->told_full)
        log_warn("too many devices, the last are left out", LOG_U64("limit", LIMIT_ENTITIES),
                 LOG_U64("left_out", b->left_out));
    v->told_full |= b->left_out > 0;
    if (b->no_mig && !v->told_no_mig)
        log_warn("host engine may not tell of MIG instances, GPUs alone are watched");
    v->told_no_mig |= b->no_mig;
    if (b->driver_version[0])
        memcpy(v->driver_version, b->driver_version, sizeof(v->driver_version));
}

static dcgmReturn_t take_over(struct dcgm_devices *v, struct dcgm_survey *b, bool *changed)
{
    struct dcgm_place *places = b->no_memory ? NULL : make_places(b);
    if (!places) {
        free(b->list);
        return DCGM_ST_MEMORY;
    }
    tell(v, b);
    *changed = !v->generation || differs(v, b);
    v->generation += *changed;
    v->walks++;
    free(v->list);
    free(v->places);
    v->list = b->list;
    v->count = b->count;
    v->capacity = b->capacity;
    v->places = places;
    return DCGM_ST_OK;
}

// --- the public ones ---

dcgmReturn_t dcgm_devices_walk(struct dcgm *d, struct dcgm_devices *v, bool *changed)
{
    *changed = false;
    struct dcgm_survey b = {.d = d, .old = v, .all = v->walks % WALKS_UNTIL_ALL == 0};
    dcgmReturn_t result = dcgm_survey_gpus(&b);
    if (result == DCGM_ST_OK)
        result = dcgm_survey_switches(&b);
    if (result == DCGM_ST_OK)
        result = dcgm_survey_cpus(&b);
    if (result == DCGM_ST_OK)
        return take_over(v, &b, changed);
    free(b.list);
    return result;
}

uint32_t dcgm_devices_find(const struct dcgm_devices *v, int group, uint32_t id)
{
    uint64_t key = key_of(group, id);
    uint32_t low = 0, high = v->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (v->places[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < v->count && v->places[low].key == key ? v->places[low].at : UINT32_MAX;
}

void dcgm_devices_forget(struct dcgm_devices *v)
{
    v->walks = 0;
}

void dcgm_devices_write(const struct dcgm_devices *v, struct buf *out)
{
    size_t start = frame_begin(out, FRAME_ENTITIES);
    struct frame_entities head = {.generation = v->generation, .count = v->count};
    buf_add(out, &head, sizeof(head));
    for (uint32_t i = 0; i < v->count; i++)
        buf_add(out, &v->list[i].record, sizeof(v->list[i].record));
    frame_end(out, start);
}

void dcgm_devices_deinit(struct dcgm_devices *v)
{
    free(v->list);
    free(v->places);
    *v = (struct dcgm_devices){0};
}
