// SPDX-License-Identifier: Apache-2.0
// DCGM 4 answers with a struct of a megabyte. It is mapped for each check and given back: 0.7 ms
// every 10 s, where memory of malloc would stay in the process for good.
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "source/dcgm_call.h"
#include "source/dcgm_health_internal.h"
#include "source/dcgm_survey.h"

#define KEEP_AGE_S 600.0 // the rules for PCIe, heat and power look back a minute

static dcgmReturn_t set_systems(struct dcgm_health *h, dcgmGpuGrp_t group, unsigned systems)
{
    dcgmHealthSetParams_v2 params = {
        .version = dcgmHealthSetParams_version2,
        .groupId = group,
        .systems = systems,
        .updateInterval = (long long)(h->medium_ns / NS_PER_US),
        .maxKeepAge = KEEP_AGE_S,
    };
    return dcgm_call(h->d, dcgmHealthSet_v2, h->d->engine, &params);
}

static void destroy(struct dcgm_health *h, dcgmGpuGrp_t group)
{
    if (!group || h->d->lost)
        return;
    (void)set_systems(h, group, 0);
    dcgm_group_destroy(h->d, group);
}

dcgmReturn_t dcgm_verdicts_set(struct dcgm_health *h)
{
    uint32_t places[LIMIT_GPUS];
    uint32_t count = dcgm_health_members(h, false, h->gpus, places);
    uint64_t members = dcgm_health_hash(h, places, count) ^ h->medium_ns;
    if (h->group && h->members == members)
        return DCGM_ST_OK;
    dcgmGpuGrp_t group = 0;
    dcgmReturn_t result =
        count ? dcgm_health_make_group(h, places, count, &group) : DCGM_ST_NO_DATA;
    if (result == DCGM_ST_OK)
        result = set_systems(h, group, DCGM_HEALTH_WATCH_ALL);
    if (result != DCGM_ST_OK)
        destroy(h, group);
    dcgm_verdicts_unset(h);
    h->group = result == DCGM_ST_OK ? group : 0;
    h->members = members;
    return result;
}

void dcgm_verdicts_unset(struct dcgm_health *h)
{
    destroy(h, h->group);
    h->group = 0;
}

// The GPU that an incident is of; UINT32_MAX: none of the list.
static uint32_t gpu_of(const struct dcgm_devices *v, const dcgmGroupEntityPair_t *pair)
{
    if (pair->entityGroupId != DCGM_FE_GPU && pair->entityGroupId != DCGM_FE_GPU_I &&
        pair->entityGroupId != DCGM_FE_GPU_CI)
        return UINT32_MAX;
    uint32_t at = dcgm_devices_find(v, pair->entityGroupId, pair->entityId);
    while (at != UINT32_MAX && v->list[at].record.parent != at)
        at = v->list[at].record.parent;
    return at;
}

static bool is_system(uint32_t system)
{
    return system == DCGM_HEALTH_WATCH_ALL || (system && !(system & (system - 1)));
}

static struct frame_verdict *find_verdict(struct frame_verdict *list, uint32_t count,
                                          uint32_t entity, uint32_t system)
{
    for (uint32_t i = 0; i < count; i++)
        if (list[i].entity == entity && list[i].system == system)
            return &list[i];
    return NULL;
}

uint32_t dcgm_verdicts_of(const struct dcgm_devices *v, const dcgmIncidentInfo_t *incidents,
                          uint32_t count, struct frame_verdict *out)
{
    uint32_t rows = 0, kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        const dcgmIncidentInfo_t *incident = &incidents[i];
        uint32_t entity = gpu_of(v, &incident->entityInfo);
        bool has_result = incident->health == DCGM_HEALTH_RESULT_PASS ||
                          incident->health == DCGM_HEALTH_RESULT_WARN ||
                          incident->health == DCGM_HEALTH_RESULT_FAIL;
        if (entity == UINT32_MAX || !is_system(incident->system) || !has_result)
            continue;
        // Of several for one GPU and system the last stands, as dcgm-exporter shows it.
        struct frame_verdict *row = find_verdict(out, rows, entity, incident->system);
        if (!row)
            row = &out[rows++];
        *row = (struct frame_verdict){.entity = entity,
                                      .system = incident->system,
                                      .result = (uint32_t)incident->health,
                                      .code = incident->error.code};
    }
    for (uint32_t i = 0; i < rows; i++)
        if (out[i].result != DCGM_HEALTH_RESULT_PASS)
            out[kept++] = out[i];
    return kept;
}

static void write_verdicts(const struct dcgm_health *h, const dcgmHealthResponse_v5 *response,
                           uint32_t most, struct buf *out)
{
    struct frame_verdict verdicts[LIMIT_VERDICTS];
    _Static_assert(ARRAY_SIZE(response->incidents) <= LIMIT_VERDICTS, "each may be a row");
    uint32_t count = response->incidentCount < most ? response->incidentCount : most;
    struct frame_health head = {.generation = h->v->generation, .taken_ns = clock_mono_ns()};
    head.count = dcgm_verdicts_of(h->v, response->incidents, count, verdicts);
    size_t start = frame_begin(out, FRAME_HEALTH);
    buf_add(out, &head, sizeof(head));
    buf_add(out, verdicts, head.count * sizeof(*verdicts));
    frame_end(out, start);
}

dcgmReturn_t dcgm_verdicts_read(struct dcgm_health *h, struct buf *out)
{
    _Static_assert(offsetof(dcgmHealthResponse_v4, incidents) ==
                       offsetof(dcgmHealthResponse_v5, incidents),
                   "one reader for both");
    bool is_old = h->d->major < 4;
    size_t bytes = is_old ? sizeof(dcgmHealthResponse_v4) : sizeof(dcgmHealthResponse_v5);
    uint32_t most = is_old ? ARRAY_SIZE(((dcgmHealthResponse_v4 *)0)->incidents)
                           : ARRAY_SIZE(((dcgmHealthResponse_v5 *)0)->incidents);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return DCGM_ST_MEMORY;
    dcgmHealthResponse_v5 *response = memory; // as far as it goes
    response->version = is_old ? dcgmHealthResponse_version4 : dcgmHealthResponse_version5;
    dcgmReturn_t result = dcgm_call(h->d, dcgmHealthCheck, h->d->engine, h->group, response);
    if (result == DCGM_ST_OK)
        write_verdicts(h, response, most, out);
    (void)munmap(memory, bytes);
    return result;
}
