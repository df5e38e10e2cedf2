// SPDX-License-Identifier: Apache-2.0
#include "fake_dcgm.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "gpu/catalogue.h"

struct fake_dcgm fake_dcgm;

#define F fake_dcgm

// Counts the call; what was set to fail does.
#define ANSWER(member)                                                                             \
    do {                                                                                           \
        F.call.member.calls++;                                                                     \
        if (F.call.member.result != DCGM_ST_OK)                                                    \
            return F.call.member.result;                                                           \
    } while (0)

#define WANT(version_of, expected)                                                                 \
    do {                                                                                           \
        if ((version_of) != (expected))                                                            \
            return DCGM_ST_VER_MISMATCH;                                                           \
    } while (0)

static dcgmReturn_t get_all_devices(dcgmHandle_t handle, unsigned *ids, int *count)
{
    ANSWER(dcgmGetAllDevices);
    for (unsigned i = 0; i < F.gpus; i++)
        ids[i] = F.gpu[i].id;
    *count = (int)F.gpus;
    return DCGM_ST_OK;
}

static struct fake_dcgm_gpu *find_gpu(unsigned id)
{
    for (unsigned i = 0; i < F.gpus; i++)
        if (F.gpu[i].id == id)
            return &F.gpu[i];
    return NULL;
}

static dcgmReturn_t get_attributes(dcgmHandle_t handle, unsigned id, dcgmDeviceAttributes_v3 *a)
{
    ANSWER(dcgmGetDeviceAttributes);
    WANT(a->version, 0x3001464u);
    const struct fake_dcgm_gpu *g = find_gpu(id);
    if (!g || g->result != DCGM_ST_OK)
        return g ? g->result : DCGM_ST_BADPARAM;
    (void)snprintf(a->identifiers.uuid, sizeof(a->identifiers.uuid), "%s", g->uuid);
    (void)snprintf(a->identifiers.deviceName, sizeof(a->identifiers.deviceName), "%s", g->name);
    (void)snprintf(a->identifiers.pciBusId, sizeof(a->identifiers.pciBusId), "%s", g->bus_id);
    (void)snprintf(a->identifiers.driverVersion, sizeof(a->identifiers.driverVersion), "580.95.05");
    a->settings.migModeEnabled = g->mig ? 1 : 0;
    return DCGM_ST_OK;
}

static dcgmReturn_t get_status(dcgmHandle_t handle, unsigned id, int *status)
{
    ANSWER(dcgmGetGpuStatus);
    const struct fake_dcgm_gpu *g = find_gpu(id);
    if (!g)
        return DCGM_ST_BADPARAM;
    *status = g->status;
    return DCGM_ST_OK;
}

static dcgmReturn_t get_entities(dcgmHandle_t handle, int group, unsigned *ids, int *count,
                                 unsigned flags)
{
    ANSWER(dcgmGetEntityGroupEntities);
    if (group != DCGM_FE_SWITCH)
        return DCGM_ST_NOT_SUPPORTED;
    bool fits = *count >= (int)F.switches;
    for (unsigned i = 0; fits && i < F.switches; i++)
        ids[i] = F.switch_ids[i];
    *count = (int)F.switches;
    return fits ? DCGM_ST_OK : DCGM_ST_INSUFFICIENT_SIZE;
}

static dcgmReturn_t get_hierarchy(dcgmHandle_t handle, dcgmMigHierarchy_v2 *out)
{
    ANSWER(dcgmGetGpuInstanceHierarchy);
    WANT(out->version, 0x2011f08u);
    *out = F.hierarchy;
    return DCGM_ST_OK;
}

static void fill_links(int *to, const unsigned char *from, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        to[i] = from[i];
}

#define FILL_LINKS(out, gpu_links, switch_links)                                                   \
    do {                                                                                           \
        (out)->numGpus = F.gpus;                                                                   \
        for (unsigned i = 0; i < F.gpus; i++) {                                                    \
            (out)->gpus[i].entityId = F.gpu[i].id;                                                 \
            fill_links((out)->gpus[i].linkState, F.gpu_link[i], (gpu_links));                      \
        }                                                                                          \
        (out)->numNvSwitches = F.switches;                                                         \
        for (unsigned i = 0; i < F.switches && i < DCGM_MAX_NUM_SWITCHES; i++) {                   \
            (out)->nvSwitches[i].entityId = F.switch_ids[i];                                       \
            fill_links((out)->nvSwitches[i].linkState, F.switch_link[i], (switch_links));          \
        }                                                                                          \
    } while (0)

static dcgmReturn_t get_links(dcgmHandle_t handle, void *out)
{
    static const unsigned versions[] = {0, 0, 0, 0x30015bc, 0x40039bc, 0x50042bc};
    ANSWER(dcgmGetNvLinkLinkStatus);
    unsigned version = F.links_version ? F.links_version : F.d.major < 4 ? 3 : 5;
    WANT(*(unsigned *)out, versions[version]);
    if (version == 3)
        FILL_LINKS((dcgmNvLinkStatus_v3 *)out, 18, 64);
    else if (version == 4)
        FILL_LINKS((dcgmNvLinkStatus_v4 *)out, 18, 256);
    else
        FILL_LINKS((dcgmNvLinkStatus_v5 *)out, 36, 256);
    return DCGM_ST_OK;
}

static dcgmReturn_t get_peers(dcgmHandle_t handle, dcgmNvLinkP2PStatus_v1 *out)
{
    ANSWER(dcgmGetNvLinkP2PStatus);
    WANT(out->version, 0x1001088u);
    if (out->numGpus) // else the rows that are asked for
        return DCGM_ST_BADPARAM;
    *out = F.peers;
    return DCGM_ST_OK;
}

static dcgmReturn_t get_cpus(dcgmHandle_t handle, dcgmCpuHierarchy_v1 *out)
{
    ANSWER(dcgmGetCpuHierarchy);
    WANT(out->version, 0x1000488u);
    out->numCpus = F.cpus.numCpus;
    for (unsigned i = 0; i < DCGM_MAX_NUM_CPUS; i++) {
        out->cpus[i].cpuId = F.cpus.cpus[i].cpuId;
        out->cpus[i].ownedCores = F.cpus.cpus[i].ownedCores;
    }
    return DCGM_ST_OK;
}

static dcgmReturn_t get_cpus_v2(dcgmHandle_t handle, dcgmCpuHierarchy_v2 *out)
{
    ANSWER(dcgmGetCpuHierarchy_v2);
    WANT(out->version, 0x2000c88u);
    *out = F.cpus;
    return DCGM_ST_OK;
}

// --- groups and watches: handles are places + 1 ---

static bool is_taken(const char *name)
{
    for (unsigned i = 0; i < FAKE_DCGM_GROUPS; i++)
        if ((F.groups[i].alive && strcmp(F.groups[i].name, name) == 0) ||
            (F.fields[i].alive && strcmp(F.fields[i].name, name) == 0))
            return true;
    return F.taken_names && F.taken_names--;
}

static dcgmReturn_t group_create(dcgmHandle_t handle, int type, const char *name, dcgmGpuGrp_t *out)
{
    ANSWER(dcgmGroupCreate);
    if (is_taken(name))
        return DCGM_ST_DUPLICATE_KEY;
    for (unsigned i = 0; i < FAKE_DCGM_GROUPS; i++)
        if (!F.groups[i].alive) {
            F.groups[i] = (struct fake_dcgm_group){.alive = true};
            (void)snprintf(F.groups[i].name, sizeof(F.groups[i].name), "%s", name);
            *out = i + 1;
            return DCGM_ST_OK;
        }
    return DCGM_ST_MAX_LIMIT;
}

static struct fake_dcgm_group *find_group(dcgmGpuGrp_t id)
{
    bool known = id && id <= FAKE_DCGM_GROUPS && F.groups[id - 1].alive;
    return known ? &F.groups[id - 1] : NULL;
}

static dcgmReturn_t group_destroy(dcgmHandle_t handle, dcgmGpuGrp_t id)
{
    ANSWER(dcgmGroupDestroy);
    struct fake_dcgm_group *g = find_group(id);
    if (g)
        g->alive = false;
    return g ? DCGM_ST_OK : DCGM_ST_NOT_CONFIGURED;
}

static dcgmReturn_t refusal_of(const struct fake_dcgm_refusal *list, size_t count, int group,
                               unsigned id, unsigned short field)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].result != DCGM_ST_OK && list[i].group == group &&
            (list[i].id == UINT_MAX || list[i].id == id) &&
            (!list[i].field || list[i].field == field))
            return list[i].result;
    return DCGM_ST_OK;
}

static dcgmReturn_t group_add(dcgmHandle_t handle, dcgmGpuGrp_t id, int group, unsigned entity)
{
    ANSWER(dcgmGroupAddEntity);
    struct fake_dcgm_group *g = find_group(id);
    if (!g)
        return DCGM_ST_NOT_CONFIGURED;
    if (g->count == (F.d.major < 4 ? 64 : 1024))
        return DCGM_ST_MAX_LIMIT;
    dcgmReturn_t refused = refusal_of(F.refuse_add, ARRAY_SIZE(F.refuse_add), group, entity, 0);
    if (refused != DCGM_ST_OK)
        return refused;
    g->pairs[g->count++] = (dcgmGroupEntityPair_t){group, entity};
    return DCGM_ST_OK;
}

static dcgmReturn_t fields_create(dcgmHandle_t handle, int count, const unsigned short *ids,
                                  const char *name, dcgmFieldGrp_t *out)
{
    ANSWER(dcgmFieldGroupCreate);
    if (count < 1 || count > DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP)
        return DCGM_ST_BADPARAM;
    for (int i = 0; i < count; i++)
        if (F.strange_field[ids[i]])
            return DCGM_ST_UNKNOWN_FIELD;
    if (is_taken(name))
        return DCGM_ST_DUPLICATE_KEY;
    for (unsigned i = 0; i < FAKE_DCGM_GROUPS; i++)
        if (!F.fields[i].alive) {
            F.fields[i].alive = true;
            (void)snprintf(F.fields[i].name, sizeof(F.fields[i].name), "%s", name);
            F.fields[i].count = (unsigned)count;
            memcpy(F.fields[i].ids, ids, (size_t)count * sizeof(*ids));
            *out = i + 1;
            return DCGM_ST_OK;
        }
    return DCGM_ST_MAX_LIMIT;
}

static struct fake_dcgm_fields *find_fields(dcgmFieldGrp_t id)
{
    bool known = id && id <= FAKE_DCGM_GROUPS && F.fields[id - 1].alive;
    return known ? &F.fields[id - 1] : NULL;
}

static dcgmReturn_t fields_destroy(dcgmHandle_t handle, dcgmFieldGrp_t id)
{
    ANSWER(dcgmFieldGroupDestroy);
    struct fake_dcgm_fields *f = find_fields(id);
    if (f)
        f->alive = false;
    return f ? DCGM_ST_OK : DCGM_ST_NO_DATA;
}

static struct fake_dcgm_watch *find_watch(dcgmGpuGrp_t group, dcgmFieldGrp_t fields)
{
    for (unsigned i = 0; i < FAKE_DCGM_WATCHES; i++)
        if (F.watches[i].alive && F.watches[i].group == group && F.watches[i].fields == fields)
            return &F.watches[i];
    return NULL;
}

// Where the watch of a field of an entity is or would be; what is global is so once.
static uint64_t *cell_of(int group, unsigned id, unsigned short field, uint64_t *key)
{
    const struct field_info *info = field_find(field);
    if (info && info->level == FIELD_LEVEL_NONE)
        group = 0, id = 0;
    *key = UINT64_C(1) << 63 | (uint64_t)group << 48 | (uint64_t)field << 32 | id;
    uint64_t at = *key * UINT64_C(0x9e3779b97f4a7c15) >> 40;
    while (F.cells[at % FAKE_DCGM_CELLS] &&
           (F.cells[at % FAKE_DCGM_CELLS] | 1ull << 62) != (*key | 1ull << 62))
        at++;
    return &F.cells[at % FAKE_DCGM_CELLS];
}

#define CELL_IS_OFF (UINT64_C(1) << 62)

static void set_cells(const struct fake_dcgm_group *g, const struct fake_dcgm_fields *f, bool on)
{
    for (unsigned i = 0; i < g->count; i++)
        for (unsigned k = 0; k < f->count; k++) {
            uint64_t key, *cell;
            cell = cell_of(g->pairs[i].entityGroupId, g->pairs[i].entityId, f->ids[k], &key);
            *cell = on ? key : key | CELL_IS_OFF;
        }
}

bool fake_dcgm_is_watched(int group, unsigned id, unsigned short field)
{
    uint64_t key, *cell = cell_of(group, id, field, &key);
    return *cell == key;
}

static dcgmReturn_t refuse_watch(const struct fake_dcgm_group *g, const struct fake_dcgm_fields *f)
{
    dcgmReturn_t result = DCGM_ST_OK;
    for (unsigned i = 0; i < g->count && result == DCGM_ST_OK; i++)
        for (unsigned k = 0; k < f->count && result == DCGM_ST_OK; k++)
            result = refusal_of(F.refuse_watch, ARRAY_SIZE(F.refuse_watch),
                                g->pairs[i].entityGroupId, g->pairs[i].entityId, f->ids[k]);
    return result;
}

static dcgmReturn_t watch(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields,
                          long long period_us, double keep_age_s, int keep_samples)
{
    ANSWER(dcgmWatchFields);
    const struct fake_dcgm_group *g = find_group(group);
    const struct fake_dcgm_fields *f = find_fields(fields);
    if (!g || !f)
        return DCGM_ST_NOT_CONFIGURED;
    dcgmReturn_t refused = refuse_watch(g, f);
    if (refused != DCGM_ST_OK)
        return refused;
    struct fake_dcgm_watch *w = find_watch(group, fields);
    for (unsigned i = 0; !w && i < FAKE_DCGM_WATCHES; i++)
        if (!F.watches[i].alive)
            w = &F.watches[i];
    if (!w)
        return DCGM_ST_MAX_LIMIT;
    *w = (struct fake_dcgm_watch){true, group, fields, period_us, keep_age_s, keep_samples};
    set_cells(g, f, true);
    return DCGM_ST_OK;
}

static dcgmReturn_t unwatch(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields)
{
    ANSWER(dcgmUnwatchFields);
    struct fake_dcgm_watch *w = find_watch(group, fields);
    if (w)
        w->alive = false;
    if (w && find_group(group) && find_fields(fields))
        set_cells(find_group(group), find_fields(fields), false);
    return w ? DCGM_ST_OK : DCGM_ST_NOT_WATCHED;
}

static dcgmReturn_t update_all(dcgmHandle_t handle, int wait)
{
    ANSWER(dcgmUpdateAllFields);
    return DCGM_ST_OK;
}

// --- values ---

static const struct fake_dcgm_value *find_value(int group, unsigned id, unsigned short field)
{
    const struct fake_dcgm_value *found = NULL;
    for (unsigned i = 0; i < F.value_count; i++)
        if (F.values[i].group == group && F.values[i].id == id && F.values[i].field == field)
            found = &F.values[i];
    return found;
}

static const dcgm_field_meta_t *get_meta(unsigned short field)
{
    static dcgm_field_meta_t metas[8];
    static unsigned turn;
    const struct field_info *info = field_find(field);
    for (unsigned i = 0; i < ARRAY_SIZE(F.meta); i++)
        if (F.meta[i].fieldId == field && field)
            return &F.meta[i];
    if (!info || F.unknown_field[field])
        return NULL;
    dcgm_field_meta_t *meta = &metas[turn++ % ARRAY_SIZE(metas)];
    *meta = (dcgm_field_meta_t){
        .fieldId = field, .fieldType = "idsb"[info->type], .entityLevel = info->level};
    return meta;
}

static dcgmReturn_t get_metrics(dcgmHandle_t handle, dcgmProfGetMetricGroups_v3 *out)
{
    ANSWER(dcgmProfGetSupportedMetricGroups);
    WANT(out->version, 0x3000560u);
    const struct fake_dcgm_gpu *g = find_gpu(out->gpuId);
    if (!g || g->profiling != DCGM_ST_OK)
        return g ? g->profiling : DCGM_ST_BADPARAM;
    out->numMetricGroups = g->metrics.numMetricGroups;
    memcpy(out->metricGroups, g->metrics.metricGroups, sizeof(out->metricGroups));
    return DCGM_ST_OK;
}

static void fill_value(dcgmFieldValue_v1 *out, const struct fake_dcgm_value *v,
                       unsigned short field)
{
    memset(out, 0, sizeof(*out));
    out->version = dcgmFieldValue_version1;
    out->fieldId = field;
    out->fieldType = DCGM_FT_INT64;
    out->status = v ? v->status : DCGM_ST_NO_DATA;
    if (!v)
        return;
    out->fieldType = v->type;
    out->ts = v->ts;
    if (v->type == DCGM_FT_STRING)
        (void)snprintf(out->value.str, sizeof(out->value.str), "%s", v->text);
    else if (v->type == DCGM_FT_DOUBLE)
        out->value.dbl = v->dbl;
    else
        out->value.i64 = v->i64;
}

static dcgmReturn_t get_live(dcgmHandle_t handle, dcgmGroupEntityPair_t *pairs, unsigned count,
                             unsigned short *fields, unsigned field_count, unsigned flags,
                             dcgmFieldValue_v2 *out)
{
    ANSWER(dcgmEntitiesGetLatestValues);
    static dcgmFieldValue_v1 value;
    for (unsigned i = 0; i < count * field_count; i++) {
        const dcgmGroupEntityPair_t *pair = &pairs[i / field_count];
        unsigned short field = fields[i % field_count];
        fill_value(&value, find_value(pair->entityGroupId, pair->entityId, field), field);
        out[i] = (dcgmFieldValue_v2){.version = dcgmFieldValue_version2,
                                     .entityGroupId = pair->entityGroupId,
                                     .entityId = pair->entityId,
                                     .fieldId = field,
                                     .fieldType = value.fieldType,
                                     .status = value.status,
                                     .ts = value.ts};
        memcpy(&out[i].value, &value.value, sizeof(out[i].value));
    }
    return DCGM_ST_OK;
}

static void fill_latest(dcgmFieldValue_v1 *out, const dcgmGroupEntityPair_t *e,
                        unsigned short field)
{
    struct fake_dcgm_value generated = {.ts = F.now_us, .type = DCGM_FT_INT64};
    const struct fake_dcgm_value *v = find_value(e->entityGroupId, e->entityId, field);
    if (!v && F.generate && F.generate(e->entityGroupId, (unsigned)e->entityId, field, &generated))
        v = &generated;
    fill_value(out, v, field);
    if (F.needs_watch && !fake_dcgm_is_watched(e->entityGroupId, e->entityId, field)) {
        fill_value(out, NULL, field);
        out->status = DCGM_ST_NOT_WATCHED;
    }
}

// The callbacks of an entity; false: no more.
static bool tell_entity(const dcgmGroupEntityPair_t *e, dcgmFieldValue_v1 *values, unsigned count,
                        dcgmFieldValueEntityEnumeration_f take, void *user)
{
    for (unsigned k = 0; F.one_by_one && k < count; k++)
        if (take(e->entityGroupId, e->entityId, &values[k], 1, user))
            return false;
    return F.one_by_one || !take(e->entityGroupId, e->entityId, values, (int)count, user);
}

static void make_noise(dcgmFieldValueEntityEnumeration_f take, void *user)
{
    static dcgmFieldValue_v1 value;
    static const unsigned short fields[] = {150, 7777};
    for (unsigned i = 0; i < ARRAY_SIZE(fields); i++) {
        fill_value(&value, &(struct fake_dcgm_value){.ts = 1, .type = 'i', .i64 = -1}, fields[i]);
        (void)take(DCGM_FE_GPU, 99, &value, 1, user);
        (void)take(DCGM_FE_CONNECTX, 0, &value, 1, user);
        (void)take(77, 0, &value, 1, user);
        (void)take(DCGM_FE_GPU, 0, NULL, 3, user);
        (void)take(DCGM_FE_GPU, 0, &value, -1, user);
    }
    fill_value(&value, &(struct fake_dcgm_value){.ts = 1, .type = 'i', .i64 = -1}, 7777);
    (void)take(DCGM_FE_GPU, 0, &value, 1, user);
    value.fieldId = 150;
    value.version = 0x2001018; // of another size
    (void)take(DCGM_FE_GPU, 0, &value, 1, user);
}

static dcgmReturn_t get_latest(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields,
                               dcgmFieldValueEntityEnumeration_f take, void *user)
{
    ANSWER(dcgmGetLatestValues_v2);
    static dcgmFieldValue_v1 values[DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP];
    const struct fake_dcgm_group *g = find_group(group);
    const struct fake_dcgm_fields *f = find_fields(fields);
    if (!g || !f)
        return DCGM_ST_NOT_CONFIGURED;
    if (F.noise)
        make_noise(take, user);
    for (unsigned i = 0; i < g->count; i++) {
        if (F.fail_result != DCGM_ST_OK && i == F.fail_after)
            return F.fail_result;
        for (unsigned k = 0; k < f->count; k++)
            fill_latest(&values[k], &g->pairs[i], f->ids[k]);
        if (!tell_entity(&g->pairs[i], values, f->count, take, user))
            break;
    }
    return DCGM_ST_OK;
}

static bool is_in(const struct fake_dcgm_group *g, const struct fake_dcgm_fields *f,
                  const struct fake_dcgm_value *v)
{
    bool entity = false, field = false;
    for (unsigned i = 0; i < g->count; i++)
        entity |= g->pairs[i].entityGroupId == v->group && g->pairs[i].entityId == v->id;
    for (unsigned k = 0; k < f->count; k++)
        field |= f->ids[k] == v->field;
    return entity && field;
}

// Samples at or after `since`; the next begins behind the engine's now.
static dcgmReturn_t get_since(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields,
                              long long since, long long *next,
                              dcgmFieldValueEntityEnumeration_f take, void *user)
{
    ANSWER(dcgmGetValuesSince_v2);
    F.since_us = since;
    static dcgmFieldValue_v1 value;
    const struct fake_dcgm_group *g = find_group(group);
    const struct fake_dcgm_fields *f = find_fields(fields);
    if (!g || !f)
        return DCGM_ST_NOT_CONFIGURED;
    long long last = since;
    for (unsigned i = 0; i < F.value_count; i++) {
        const struct fake_dcgm_value *v = &F.values[i];
        if (v->ts < since || v->ts > F.now_us || !is_in(g, f, v))
            continue;
        last = v->ts + 1 > last ? v->ts + 1 : last;
        fill_value(&value, v, v->field);
        if (take(v->group, v->id, &value, 1, user))
            break;
    }
    *next = last;
    return DCGM_ST_OK;
}

// --- health ---

static dcgmReturn_t health_set(dcgmHandle_t handle, dcgmHealthSetParams_v2 *p)
{
    ANSWER(dcgmHealthSet_v2);
    WANT(p->version, 0x2000028u);
    if (!find_group(p->groupId))
        return DCGM_ST_NOT_CONFIGURED;
    F.health_group = p->groupId;
    F.health_systems = p->systems;
    F.health_period_us = p->updateInterval;
    return DCGM_ST_OK;
}

static dcgmReturn_t health_check(dcgmHandle_t handle, dcgmGpuGrp_t group, void *out)
{
    ANSWER(dcgmHealthCheck);
    if (!find_group(group) || F.health_group != group)
        return DCGM_ST_NOT_CONFIGURED;
    WANT(*(unsigned *)out, F.d.major < 4 ? 0x401050cu : 0x510500cu);
    dcgmHealthResponse_v4 *response = out; // the fifth version has room for more
    response->overallHealth = F.incidents ? DCGM_HEALTH_RESULT_WARN : DCGM_HEALTH_RESULT_PASS;
    response->incidentCount = F.incidents;
    memcpy(response->incidents, F.incident, F.incidents * sizeof(F.incident[0]));
    return DCGM_ST_OK;
}

// --- setting up ---

static void set_functions(unsigned major)
{
    struct dcgm_functions *fn = &F.d.fn;
    fn->dcgmGetAllDevices = get_all_devices;
    fn->dcgmGetDeviceAttributes = get_attributes;
    fn->dcgmGetEntityGroupEntities = get_entities;
    fn->dcgmGetGpuInstanceHierarchy = get_hierarchy;
    fn->dcgmGetNvLinkLinkStatus = get_links;
    fn->dcgmGetCpuHierarchy = get_cpus;
    fn->dcgmGroupCreate = group_create;
    fn->dcgmGroupDestroy = group_destroy;
    fn->dcgmGroupAddEntity = group_add;
    fn->dcgmFieldGroupCreate = fields_create;
    fn->dcgmFieldGroupDestroy = fields_destroy;
    fn->dcgmWatchFields = watch;
    fn->dcgmUnwatchFields = unwatch;
    fn->dcgmUpdateAllFields = update_all;
    fn->dcgmGetLatestValues_v2 = get_latest;
    fn->dcgmGetValuesSince_v2 = get_since;
    fn->dcgmEntitiesGetLatestValues = get_live;
    fn->dcgmProfGetSupportedMetricGroups = get_metrics;
    fn->DcgmFieldGetById = get_meta;
    fn->dcgmHealthSet_v2 = health_set;
    fn->dcgmHealthCheck = health_check;
    if (major < 4)
        return;
    fn->dcgmGetGpuStatus = get_status;
    fn->dcgmGetNvLinkP2PStatus = get_peers;
    fn->dcgmGetCpuHierarchy_v2 = get_cpus_v2;
}

void fake_dcgm_reset(unsigned major)
{
    memset(&F, 0, sizeof(F));
    F.d.page = &F.page;
    F.d.major = major;
    F.d.engine = 1;
    F.now_us = INT64_C(1700000000000000);
    set_functions(major);
    fake_dcgm_add_gpu(0, "GPU-0");
}

void fake_dcgm_add_gpu(unsigned id, const char *uuid)
{
    F.gpu[F.gpus++] = (struct fake_dcgm_gpu){.id = id,
                                             .status = DcgmEntityStatusOk,
                                             .uuid = uuid,
                                             .name = "NVIDIA Fake",
                                             .bus_id = "00000000:1B:00.0"};
    fake_dcgm_set_i64(DCGM_FE_GPU, id, 55, id + 10);
}

static dcgmMigHierarchyInfo_v2 *add_to_hierarchy(int group, unsigned id)
{
    dcgmMigHierarchyInfo_v2 *info = &F.hierarchy.entityList[F.hierarchy.count++];
    info->entity = (dcgmGroupEntityPair_t){group, id};
    info->info.nvmlComputeInstanceId = UINT32_MAX;
    return info;
}

void fake_dcgm_add_instance(unsigned gpu, unsigned id, unsigned gi, unsigned slices)
{
    dcgmMigHierarchyInfo_v2 *info = add_to_hierarchy(DCGM_FE_GPU_I, id);
    info->parent = (dcgmGroupEntityPair_t){DCGM_FE_GPU, gpu};
    info->info.nvmlInstanceId = gi;
    info->info.nvmlProfileSlices = slices;
}

void fake_dcgm_add_compute(unsigned instance, unsigned id, unsigned gi, unsigned ci)
{
    dcgmMigHierarchyInfo_v2 *info = add_to_hierarchy(DCGM_FE_GPU_CI, id);
    info->parent = (dcgmGroupEntityPair_t){DCGM_FE_GPU_I, instance};
    info->info.nvmlInstanceId = gi;
    info->info.nvmlComputeInstanceId = ci;
}

static struct fake_dcgm_value *add_value(int group, unsigned id, unsigned short field)
{
    struct fake_dcgm_value *v = &F.values[F.value_count++ % FAKE_DCGM_VALUES];
    *v = (struct fake_dcgm_value){.group = group, .id = id, .field = field, .ts = F.now_us};
    return v;
}

void fake_dcgm_set_i64(int group, unsigned id, unsigned short field, int64_t value)
{
    struct fake_dcgm_value *v = add_value(group, id, field);
    v->type = DCGM_FT_INT64;
    v->i64 = value;
}

void fake_dcgm_set_text(int group, unsigned id, unsigned short field, const char *text)
{
    struct fake_dcgm_value *v = add_value(group, id, field);
    v->type = DCGM_FT_STRING;
    v->text = text;
}

void fake_dcgm_set_double(int group, unsigned id, unsigned short field, double value)
{
    struct fake_dcgm_value *v = add_value(group, id, field);
    v->type = DCGM_FT_DOUBLE;
    v->dbl = value;
}

void fake_dcgm_set_status(int group, unsigned id, unsigned short field, int status)
{
    struct fake_dcgm_value *v = add_value(group, id, field);
    v->type = DCGM_FT_INT64;
    v->status = status;
    v->ts = 0;
}

void fake_dcgm_add_metrics(unsigned place, unsigned short major_id, unsigned short minor_id,
                           const unsigned short *ids, unsigned count)
{
    dcgmProfGetMetricGroups_v3 *metrics = &F.gpu[place].metrics;
    dcgmProfMetricGroupInfo_v2 *g = &metrics->metricGroups[metrics->numMetricGroups++];
    g->majorId = major_id;
    g->minorId = minor_id;
    g->numFieldIds = count;
    memcpy(g->fieldIds, ids, count * sizeof(*ids));
}

void fake_dcgm_add_sample(int group, unsigned id, unsigned short field, int64_t ts, int64_t value)
{
    fake_dcgm_set_i64(group, id, field, value);
    F.values[F.value_count - 1].ts = ts;
}

unsigned fake_dcgm_calls(void)
{
    unsigned calls = 0;
#define ADD_CALLS(member, ...) calls += F.call.member.calls;
    DCGM_FUNCTIONS(ADD_CALLS)
#undef ADD_CALLS
    return calls;
}

unsigned fake_dcgm_alive(void)
{
    unsigned alive = 0;
    for (unsigned i = 0; i < FAKE_DCGM_GROUPS; i++)
        alive += F.groups[i].alive + F.fields[i].alive;
    for (unsigned i = 0; i < FAKE_DCGM_WATCHES; i++)
        alive += F.watches[i].alive;
    return alive;
}
