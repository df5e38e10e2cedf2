// SPDX-License-Identifier: Apache-2.0
// The hierarchy is a flat list in no order that could be relied on: what stands under a GPU or an
// instance is found by its parent, whatever comes first. It has neither profiles nor UUIDs; those
// are read from the driver through the engine (DCGM_FV_FLAG_LIVE_DATA), of many entities at once,
// when an entity is new.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source/dcgm_call.h"
#include "source/dcgm_survey.h"
#include "source/nvml_survey.h"

#define LIVE_DATA 1u
#define ASKED_MAX 16 // entities of one call: a value has 4 KB
#define FIELDS_MAX 2

enum {
    FIELD_NAME = 50,
    FIELD_UUID = 54,
    FIELD_MINOR = 55,
    FIELD_MIG_MAX_SLICES = 69,
    FIELD_FB_TOTAL = 250, // MiB
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

void dcgm_mig_profile(char out[32], const char *name, uint32_t slices, uint64_t memory_mib)
{
    char named[96 + sizeof(" MIG ")];
    (void)snprintf(named, sizeof(named), "%s%.95s", is_digit(name[0]) ? " MIG " : "", name);
    nvml_mig_profile(out, named, slices, memory_mib);
}

dcgmReturn_t dcgm_survey_hierarchy(struct dcgm_survey *b, dcgmMigHierarchy_v2 **out)
{
    dcgmMigHierarchy_v2 *hierarchy = calloc(1, sizeof(*hierarchy));
    if (!hierarchy) {
        b->no_memory = true;
        return DCGM_ST_MEMORY;
    }
    hierarchy->version = dcgmMigHierarchy_version2;
    dcgmReturn_t result = dcgm_call(b->d, dcgmGetGpuInstanceHierarchy, b->d->engine, hierarchy);
    b->no_mig = result == DCGM_ST_REQUIRES_ROOT || result == DCGM_ST_NO_PERMISSION;
    if (result != DCGM_ST_OK && !dcgm_result_is_lack(result)) {
        free(hierarchy);
        return dcgm_result_is_of_engine(result) ? result : DCGM_ST_OK;
    }
    if (result != DCGM_ST_OK || hierarchy->count > DCGM_MAX_HIERARCHY_INFO)
        hierarchy->count = 0;
    *out = hierarchy;
    return DCGM_ST_OK;
}

static bool is_pair(const dcgmGroupEntityPair_t *pair, int group, uint32_t id)
{
    return pair->entityGroupId == group && pair->entityId == id;
}

// An instance that an engine lists twice, or two of one id, would be two series of one name.
static bool has_instance(const struct dcgm_survey *b, uint32_t gpu, uint32_t id,
                         uint32_t instance_id)
{
    for (uint32_t i = gpu + 1; i < b->count; i++)
        if (b->list[i].group == DCGM_FE_GPU_I &&
            (b->list[i].id == id || b->list[i].record.gpu_instance_id == instance_id))
            return true;
    return dcgm_survey_find(b, DCGM_FE_GPU_I, id) != UINT32_MAX;
}

// What it has of its GPU.
static void place_under(struct dcgm_survey *b, struct dcgm_entity *e, uint32_t gpu, uint32_t parent)
{
    const struct frame_entity *above = &b->list[gpu].record;
    e->gpu_mask_bit = above->index;
    e->record.index = above->index;
    e->record.parent = parent;
    e->record.minor = above->minor;
    e->record.state = above->state;
    memcpy(e->record.name, above->name, sizeof(e->record.name));
    memcpy(e->record.bus_id, above->bus_id, sizeof(e->record.bus_id));
}

static bool has_compute(const struct dcgm_survey *b, uint32_t instance, uint32_t id,
                        uint32_t compute_id)
{
    for (uint32_t i = instance + 1; i < b->count; i++)
        if (b->list[i].record.id == compute_id)
            return true;
    return dcgm_survey_find(b, DCGM_FE_GPU_CI, id) != UINT32_MAX;
}

static void add_compute_instances(struct dcgm_survey *b, const dcgmMigHierarchy_v2 *hierarchy,
                                  uint32_t gpu, uint32_t instance)
{
    for (uint32_t i = 0; i < hierarchy->count; i++) {
        const dcgmMigHierarchyInfo_v2 *info = &hierarchy->entityList[i];
        uint32_t id = info->entity.entityId;
        if (info->entity.entityGroupId != DCGM_FE_GPU_CI ||
            !is_pair(&info->parent, DCGM_FE_GPU_I, b->list[instance].id) ||
            info->info.nvmlComputeInstanceId == UINT32_MAX ||
            has_compute(b, instance, id, info->info.nvmlComputeInstanceId))
            continue;
        struct dcgm_entity *e = dcgm_survey_add(b, DCGM_FE_GPU_CI, id);
        if (!e)
            return;
        place_under(b, e, gpu, instance);
        e->record.id = info->info.nvmlComputeInstanceId;
        e->record.gpu_instance_id = b->list[instance].record.gpu_instance_id;
    }
}

// UUID and profile as they were, if it is the same instance of the same GPU.
static void recall(const struct dcgm_survey *b, struct dcgm_entity *e, uint32_t gpu)
{
    const struct dcgm_entity *known = dcgm_survey_known(b, e->group, e->id);
    const struct dcgm_entity *before = dcgm_survey_known(b, DCGM_FE_GPU, b->list[gpu].id);
    if (!known || !before || known->record.gpu_instance_id != e->record.gpu_instance_id ||
        known->record.slices != e->record.slices ||
        strcmp(before->record.uuid, b->list[gpu].record.uuid) != 0)
        return;
    memcpy(e->record.uuid, known->record.uuid, sizeof(e->record.uuid));
    memcpy(e->record.legacy_uuid, known->record.legacy_uuid, sizeof(e->record.legacy_uuid));
    memcpy(e->record.profile, known->record.profile, sizeof(e->record.profile));
    e->status = known->status;
}

static void add_instance(struct dcgm_survey *b, const dcgmMigHierarchy_v2 *hierarchy, uint32_t gpu,
                         const dcgmMigHierarchyInfo_v2 *info)
{
    uint32_t place = b->count;
    struct dcgm_entity *e = dcgm_survey_add(b, DCGM_FE_GPU_I, info->entity.entityId);
    if (!e)
        return;
    place_under(b, e, gpu, gpu);
    e->record.gpu_instance_id = info->info.nvmlInstanceId;
    e->record.instance_entity_id = e->id;
    e->record.slices = info->info.nvmlProfileSlices < 16 ? info->info.nvmlProfileSlices : 0;
    b->list[gpu].record.mig_enabled = 1;
    recall(b, e, gpu);
    add_compute_instances(b, hierarchy, gpu, place);
}

// Of a GPU that cannot be asked now, what it had.
static bool keep_instances(struct dcgm_survey *b, uint32_t gpu)
{
    uint32_t instance = UINT32_MAX, id = b->list[gpu].id;
    for (uint32_t i = 0; i < b->old->count; i++) {
        const struct dcgm_entity *from = &b->old->list[i];
        if ((from->group != DCGM_FE_GPU_I && from->group != DCGM_FE_GPU_CI) ||
            from->gpu_mask_bit != id)
            continue;
        if (from->group == DCGM_FE_GPU_I)
            instance = b->count;
        struct dcgm_entity *e = dcgm_survey_add(b, from->group, from->id);
        if (!e)
            break;
        *e = *from;
        e->record.parent = from->group == DCGM_FE_GPU_I ? gpu : instance;
        e->record.state = b->list[gpu].record.state;
    }
    if (instance != UINT32_MAX)
        b->list[gpu].record.mig_enabled = 1;
    return instance != UINT32_MAX;
}

void dcgm_survey_instances(struct dcgm_survey *b, const dcgmMigHierarchy_v2 *hierarchy,
                           uint32_t gpu)
{
    bool up = b->list[gpu].record.state == FRAME_ENTITY_UP;
    if ((!up || !hierarchy) && (keep_instances(b, gpu) || !hierarchy))
        return;
    for (uint32_t i = 0; i < hierarchy->count; i++) {
        const dcgmMigHierarchyInfo_v2 *info = &hierarchy->entityList[i];
        if (info->entity.entityGroupId == DCGM_FE_GPU_I &&
            is_pair(&info->parent, DCGM_FE_GPU, b->list[gpu].id) &&
            info->info.nvmlInstanceId != UINT32_MAX && info->entity.entityId != UINT32_MAX &&
            !has_instance(b, gpu, info->entity.entityId, info->info.nvmlInstanceId))
            add_instance(b, hierarchy, gpu, info);
    }
}

// --- what the driver knows ---

struct question {
    dcgmGroupEntityPair_t pairs[ASKED_MAX];
    uint32_t places[ASKED_MAX]; // that the answers are for
    uint32_t count;
    unsigned short fields[FIELDS_MAX];
    uint32_t field_count;
    void (*take)(struct dcgm_survey *b, uint32_t place, const dcgmFieldValue_v2 *values);
};

static bool value_number(const dcgmFieldValue_v2 *v, uint64_t most, uint32_t *out)
{
    if (v->status != DCGM_ST_OK || v->fieldType != DCGM_FT_INT64 || v->value.i64 < 0 ||
        (uint64_t)v->value.i64 > most)
        return false;
    *out = (uint32_t)v->value.i64;
    return true;
}

static struct sv value_text(const dcgmFieldValue_v2 *v)
{
    bool is_text = v->status == DCGM_ST_OK && v->fieldType == DCGM_FT_STRING;
    return is_text ? dcgm_text(v->value.str, sizeof(v->value.str)) : SV("");
}

static dcgmReturn_t ask(struct dcgm_survey *b, struct question *q)
{
    uint32_t each = q->field_count;
    if (!q->count)
        return DCGM_ST_OK;
    dcgmFieldValue_v2 *values = calloc((size_t)q->count * each, sizeof(*values));
    if (!values) {
        b->no_memory = true;
        return DCGM_ST_MEMORY;
    }
    for (uint32_t i = 0; i < q->count * each; i++)
        values[i] =
            (dcgmFieldValue_v2){.version = dcgmFieldValue_version2, .status = DCGM_ST_NO_DATA};
    dcgmReturn_t result = dcgm_call(b->d, dcgmEntitiesGetLatestValues, b->d->engine, q->pairs,
                                    q->count, q->fields, each, LIVE_DATA, values);
    for (uint32_t i = 0; result == DCGM_ST_OK && i < q->count; i++)
        q->take(b, q->places[i], &values[(size_t)i * each]);
    q->count = 0;
    free(values);
    return dcgm_result_is_of_engine(result) ? result : DCGM_ST_OK;
}

static dcgmReturn_t add_question(struct dcgm_survey *b, struct question *q, uint32_t asked,
                                 uint32_t place)
{
    q->pairs[q->count] = (dcgmGroupEntityPair_t){b->list[asked].group, b->list[asked].id};
    q->places[q->count++] = place;
    return q->count == ASKED_MAX ? ask(b, q) : DCGM_ST_OK;
}

static void take_gpu(struct dcgm_survey *b, uint32_t place, const dcgmFieldValue_v2 *values)
{
    struct frame_entity *record = &b->list[place].record;
    (void)value_number(&values[0], UINT32_MAX - 1, &record->minor);
    (void)value_number(&values[1], 64, &record->total_slices);
}

static void take_instance(struct dcgm_survey *b, uint32_t place, const dcgmFieldValue_v2 *values)
{
    struct frame_entity *record = &b->list[place].record;
    struct sv name = value_text(&values[0]);
    char text[96], profile[32];
    uint32_t memory_mib = 0;
    (void)value_number(&values[1], UINT32_MAX - 1, &memory_mib);
    sv_copy(text, sizeof(text), name);
    dcgm_mig_profile(profile, text, record->slices, memory_mib);
    if (!profile[0])
        return;
    memset(record->profile, 0, sizeof(record->profile));
    sv_copy(record->profile, sizeof(record->profile), sv_from(profile));
}

static void take_uuid(struct dcgm_survey *b, uint32_t place, const dcgmFieldValue_v2 *values)
{
    struct frame_entity *record = &b->list[place].record;
    struct sv uuid = value_text(&values[0]);
    if (!sv_starts_with(uuid, SV("MIG-")))
        return;
    memset(record->uuid, 0, sizeof(record->uuid));
    sv_copy(record->uuid, sizeof(record->uuid), uuid);
}

// As drivers before 470 named it, and device plugins still may.
static bool name_instance(struct dcgm_survey *b, uint32_t place)
{
    struct frame_entity *record = &b->list[place].record;
    const char *gpu = b->list[record->parent].record.uuid;
    char before[sizeof(record->legacy_uuid)];
    memcpy(before, record->legacy_uuid, sizeof(before));
    memset(record->legacy_uuid, 0, sizeof(record->legacy_uuid));
    bool computes = place + 1 < b->count && b->list[place + 1].group == DCGM_FE_GPU_CI;
    if (computes)
        (void)snprintf(record->legacy_uuid, sizeof(record->legacy_uuid), "MIG-GPU-%.64s/%u/%u",
                       strncmp(gpu, "GPU-", 4) == 0 ? gpu + 4 : gpu, record->gpu_instance_id,
                       b->list[place + 1].record.id);
    if (memcmp(before, record->legacy_uuid, sizeof(before)) == 0)
        return false;
    memset(record->uuid, 0, sizeof(record->uuid)); // another compute instance, another UUID
    return computes;
}

static dcgmReturn_t describe_gpus(struct dcgm_survey *b)
{
    struct question q = {
        .fields = {FIELD_MINOR, FIELD_MIG_MAX_SLICES}, .field_count = 2, .take = take_gpu};
    dcgmReturn_t result = DCGM_ST_OK;
    for (uint32_t i = 0; i < b->count && result == DCGM_ST_OK; i++) {
        const struct dcgm_entity *e = &b->list[i];
        const struct dcgm_entity *known = dcgm_survey_known(b, DCGM_FE_GPU, e->id);
        bool mig_is_new = e->record.mig_enabled && (!known || !known->record.mig_enabled);
        if (e->group == DCGM_FE_GPU && e->record.state == FRAME_ENTITY_UP &&
            (b->all || !known || mig_is_new))
            result = add_question(b, &q, i, i);
    }
    return result == DCGM_ST_OK ? ask(b, &q) : result;
}

static dcgmReturn_t describe_instances(struct dcgm_survey *b)
{
    struct question profiles = {
        .fields = {FIELD_NAME, FIELD_FB_TOTAL}, .field_count = 2, .take = take_instance};
    struct question uuids = {.fields = {FIELD_UUID}, .field_count = 1, .take = take_uuid};
    dcgmReturn_t result = DCGM_ST_OK;
    for (uint32_t i = 0; i < b->count && result == DCGM_ST_OK; i++) {
        struct dcgm_entity *e = &b->list[i];
        if (e->group != DCGM_FE_GPU_I || e->record.state != FRAME_ENTITY_UP)
            continue;
        bool computes = i + 1 < b->count && b->list[i + 1].group == DCGM_FE_GPU_CI;
        bool renamed = name_instance(b, i);
        bool is_new = b->all || e->status == DcgmEntityStatusUnknown;
        e->status = DcgmEntityStatusOk;
        if (is_new)
            result = add_question(b, &profiles, i, i);
        if (result == DCGM_ST_OK && computes && (is_new || renamed))
            result = add_question(b, &uuids, i + 1, i);
    }
    if (result == DCGM_ST_OK)
        result = ask(b, &profiles);
    return result == DCGM_ST_OK ? ask(b, &uuids) : result;
}

// A board has 7 slices where its driver does not tell, 8 where its instances take as many.
static void settle_slices(struct dcgm_survey *b)
{
    uint32_t gpu = 0, taken = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        struct dcgm_entity *e = &b->list[i];
        if (e->group == DCGM_FE_GPU) {
            gpu = i;
            taken = 0;
            e->record.total_slices = !e->record.mig_enabled       ? 0
                                     : e->record.total_slices > 0 ? e->record.total_slices
                                                                  : 7;
        } else if (e->group == DCGM_FE_GPU_I) {
            taken += e->record.slices;
            if (taken > b->list[gpu].record.total_slices)
                b->list[gpu].record.total_slices = taken < 8 ? 8 : taken;
        }
    }
    for (uint32_t i = 0; i < b->count; i++)
        if (b->list[i].group == DCGM_FE_GPU_I)
            b->list[i].record.total_slices = b->list[b->list[i].record.parent].record.total_slices;
}

dcgmReturn_t dcgm_survey_describe(struct dcgm_survey *b)
{
    dcgmReturn_t result = describe_gpus(b);
    if (result == DCGM_ST_OK)
        result = describe_instances(b);
    if (result != DCGM_ST_OK)
        return result;
    settle_slices(b);
    for (uint32_t i = 0; i < b->count; i++)
        if (b->list[i].group != DCGM_FE_GPU)
            b->list[i].record.minor = b->list[b->list[i].record.parent].record.minor;
    return DCGM_ST_OK;
}
