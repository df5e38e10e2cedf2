// SPDX-License-Identifier: Apache-2.0
// An engine that answers with anything: whatever it lists, the exporter's reader takes the frames,
// the index finds each entity, and nothing is read or written past an answer.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "source/dcgm_health.h"

static const uint8_t *input;
static size_t input_bytes;

static uint8_t take_byte(void)
{
    if (!input_bytes)
        return 0;
    input_bytes--;
    return *input++;
}

// Small numbers, and those that mean something else.
static uint32_t take_id(void)
{
    int8_t byte = (int8_t)take_byte();
    return byte == 127 ? 64 : (uint32_t)byte;
}

static dcgmReturn_t take_result(void)
{
    uint8_t byte = take_byte();
    return byte < 200 ? DCGM_ST_OK : (dcgmReturn_t)byte - 256;
}

static dcgmReturn_t get_all_devices(dcgmHandle_t engine, unsigned *ids, int *count)
{
    *count = (int8_t)take_byte();
    for (unsigned i = 0; i < DCGM_MAX_NUM_DEVICES && i < 8; i++)
        ids[i] = take_id();
    return take_result();
}

static dcgmReturn_t get_attributes(dcgmHandle_t engine, unsigned id, dcgmDeviceAttributes_v3 *a)
{
    memset(a->identifiers.uuid, take_byte(), sizeof(a->identifiers.uuid));
    for (unsigned i = 0; i < 16; i++)
        a->identifiers.pciBusId[i] = (char)take_byte();
    a->settings.migModeEnabled = take_byte();
    return take_result();
}

static dcgmReturn_t get_status(dcgmHandle_t engine, unsigned id, int *status)
{
    *status = (int8_t)take_byte();
    return take_result();
}

static dcgmReturn_t get_entities(dcgmHandle_t engine, int group, unsigned *ids, int *count,
                                 unsigned flags)
{
    int room = *count;
    *count = (int8_t)take_byte();
    for (int i = 0; i < room && i < 6; i++)
        ids[i] = take_id();
    return take_result();
}

static dcgmReturn_t get_hierarchy(dcgmHandle_t engine, dcgmMigHierarchy_v2 *out)
{
    unsigned rows = take_byte() % 32;
    for (unsigned i = 0; i < rows; i++) {
        dcgmMigHierarchyInfo_v2 *row = &out->entityList[i];
        row->entity = (dcgmGroupEntityPair_t){take_byte() % 7, take_id()};
        row->parent = (dcgmGroupEntityPair_t){take_byte() % 7, take_id()};
        row->info.nvmlInstanceId = take_id();
        row->info.nvmlComputeInstanceId = take_id();
        row->info.nvmlProfileSlices = take_id();
    }
    out->count = take_byte() == 255 ? UINT32_MAX : rows;
    return take_result();
}

static dcgmReturn_t get_links(dcgmHandle_t engine, void *out)
{
    uint32_t *words = out, version = words[0];
    size_t count = (version & 0xffffff) / 4;
    for (unsigned i = 0; i < 16; i++) { // runs of one number
        size_t at = (size_t)take_byte() << 8 | take_byte(), length = take_byte();
        uint32_t value = take_id();
        for (size_t k = 0; k < length && at % count + k < count; k++)
            words[at % count + k] = value;
    }
    return take_result();
}

static dcgmReturn_t get_cpus(dcgmHandle_t engine, dcgmCpuHierarchy_v2 *out)
{
    out->numCpus = take_id();
    for (unsigned i = 0; i < 4; i++) {
        out->cpus[i].cpuId = take_id();
        for (unsigned k = 0; k < 16; k++)
            out->cpus[i].ownedCores.bitmask[k] = (uint64_t)take_byte() << (take_byte() % 64);
    }
    return take_result();
}

static dcgmReturn_t get_live(dcgmHandle_t engine, dcgmGroupEntityPair_t *pairs, unsigned count,
                             unsigned short *fields, unsigned field_count, unsigned flags,
                             dcgmFieldValue_v2 *out)
{
    for (unsigned i = 0; i < count * field_count; i++) {
        out[i].fieldType = take_byte() & 1 ? DCGM_FT_STRING : DCGM_FT_INT64;
        out[i].status = take_result();
        memset(out[i].value.blob, take_byte(), sizeof(out[i].value.blob));
    }
    return take_result();
}

static dcgmReturn_t group_create(dcgmHandle_t engine, int type, const char *name, dcgmGpuGrp_t *out)
{
    *out = 1;
    return take_result();
}

static dcgmReturn_t group_add(dcgmHandle_t engine, dcgmGpuGrp_t group, int kind, unsigned id)
{
    return DCGM_ST_OK;
}

static dcgmReturn_t fields_create(dcgmHandle_t engine, int count, const unsigned short *ids,
                                  const char *name, dcgmFieldGrp_t *out)
{
    *out = 1;
    return take_result();
}

static dcgmReturn_t watch(dcgmHandle_t engine, dcgmGpuGrp_t group, dcgmFieldGrp_t fields,
                          long long period, double age, int samples)
{
    return take_result();
}

static dcgmReturn_t get_since(dcgmHandle_t engine, dcgmGpuGrp_t group, dcgmFieldGrp_t fields,
                              long long since, long long *next,
                              dcgmFieldValueEntityEnumeration_f take, void *user)
{
    static dcgmFieldValue_v1 value;
    unsigned count = take_byte() % 200;
    for (unsigned i = 0; i < count; i++) {
        value.fieldId = 230;
        value.fieldType = take_byte() & 128 ? DCGM_FT_DOUBLE : DCGM_FT_INT64;
        value.status = take_result();
        value.ts = (int64_t)((uint64_t)(int8_t)take_byte() << (take_byte() % 56));
        value.value.i64 = (int8_t)take_byte();
        int group_id = take_byte() % 7;
        if (take(group_id, take_id(), &value, 1, user))
            break;
    }
    return take_result();
}

static dcgmReturn_t health_set(dcgmHandle_t engine, dcgmHealthSetParams_v2 *params)
{
    return take_result();
}

static dcgmReturn_t health_check(dcgmHandle_t engine, dcgmGpuGrp_t group, void *out)
{
    dcgmHealthResponse_v4 *response = out;
    response->incidentCount = take_id();
    for (unsigned i = 0; i < 16; i++) {
        dcgmIncidentInfo_t *incident = &response->incidents[i];
        incident->system = 1u << take_byte() % 32 | take_byte() % 4;
        incident->health = take_byte() % 4 * 10;
        incident->error.code = take_byte();
        incident->entityInfo = (dcgmGroupEntityPair_t){take_byte() % 7, take_id()};
    }
    return take_result();
}

static dcgmReturn_t get_peers(dcgmHandle_t engine, dcgmNvLinkP2PStatus_v1 *out)
{
    out->numGpus = take_id();
    for (unsigned i = 0; i < 6; i++) {
        out->gpus[i].entityId = take_id();
        for (unsigned k = 0; k < 6; k++)
            out->gpus[i].linkStatus[k] = (int)take_id();
    }
    return take_result();
}

static void set_functions(struct dcgm *d)
{
    d->fn.dcgmGetAllDevices = get_all_devices;
    d->fn.dcgmGetDeviceAttributes = get_attributes;
    d->fn.dcgmGetEntityGroupEntities = get_entities;
    d->fn.dcgmGetGpuInstanceHierarchy = get_hierarchy;
    d->fn.dcgmGetNvLinkLinkStatus = get_links;
    d->fn.dcgmEntitiesGetLatestValues = get_live;
    d->fn.dcgmGroupCreate = group_create;
    d->fn.dcgmGroupAddEntity = group_add;
    d->fn.dcgmFieldGroupCreate = fields_create;
    d->fn.dcgmWatchFields = watch;
    d->fn.dcgmGetValuesSince_v2 = get_since;
    d->fn.dcgmHealthSet_v2 = health_set;
    d->fn.dcgmHealthCheck = health_check;
    d->fn.dcgmGetCpuHierarchy_v2 = get_cpus;
    if (d->major < 4)
        return;
    d->fn.dcgmGetGpuStatus = get_status;
    d->fn.dcgmGetNvLinkP2PStatus = get_peers;
}

static void feed(struct frame_reader *reader, const struct buf *out)
{
    for (size_t at = 0; at < out->len;) {
        char *space;
        size_t bytes;
        struct frame frame;
        const char *what;
        int rc;
        if (frame_reader_space(reader, &space, &bytes) < 0)
            abort();
        bytes = bytes < out->len - at ? bytes : out->len - at;
        memcpy(space, out->data + at, bytes);
        frame_reader_commit(reader, bytes);
        at += bytes;
        while ((rc = frame_reader_next(reader, &frame, &what)) > 0)
            ;
        if (rc < 0)
            abort();
    }
}

static void check_index(const struct dcgm_devices *v)
{
    for (uint32_t i = 0; i < v->count; i++)
        if (dcgm_devices_find(v, v->list[i].group, v->list[i].id) != i)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct frame_call_page page;
    const uint64_t periods[4] = {NS_PER_S, NS_PER_S, NS_PER_S, NS_PER_S};
    input = data;
    input_bytes = size;
    struct dcgm d = {.page = &page, .engine = 1, .major = take_byte() & 1 ? 3 : 4};
    struct dcgm_devices v = {.skipped = take_byte()};
    struct dcgm_health *h;
    struct frame_reader reader;
    struct buf out = BUF_INIT(2 * LIMIT_FRAME_BYTES);
    set_functions(&d);
    frame_reader_init(&reader);
    if (dcgm_health_new(&d, &v, &h) < 0)
        abort();
    for (unsigned turn = 0; turn < 3; turn++) {
        bool changed;
        if (take_byte() & 1)
            dcgm_devices_forget(&v);
        d.lost = false;
        buf_reset(&out);
        if (dcgm_devices_walk(&d, &v, &changed) == DCGM_ST_OK || v.generation)
            dcgm_devices_write(&v, &out);
        check_index(&v);
        (void)dcgm_health_apply(h, true, true, UINT64_MAX, periods);
        (void)dcgm_health_read(h, (turn + 1) * NS_PER_S, &out);
        feed(&reader, &out);
    }
    dcgm_health_free(h);
    dcgm_devices_deinit(&v);
    frame_reader_deinit(&reader);
    buf_deinit(&out);
    return 0;
}
