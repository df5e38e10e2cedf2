// SPDX-License-Identifier: Apache-2.0
// The engine keeps the XIDs it saw as samples of field 230 at the GPU, or at the instance that they
// are attributed to. Each look asks for those of the last seconds again, and a mark at each entity
// says which are told: samples of other entities may come with times before the newest one. Marks
// outlive the connection, so that what was sampled meanwhile is told and nothing twice; of another
// engine, and of an entity that is new, what is there at the first look is history.
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "gpu/catalogue.h"
#include "source/dcgm_call.h"
#include "source/dcgm_health_internal.h"
#include "source/dcgm_survey.h"

#define PERIOD_US 1000000
#define KEEP_AGE_S 600.0            // a lost connection, an exporter that restarts
#define OVERLAP_US INT64_C(5000000) // between looks
#define LOOKS_MOST 64               // of one read, as many as have more than there is room for
#define CLOCKS_APART_S 3600         // a sample older than this comes from a clock that is not ours

// --- marks ---

static bool is_mark_of(const struct xid_mark *m, const struct dcgm_entity *gpu,
                       const struct dcgm_entity *e)
{
    bool same_gpu = m->uuid[0] ? strcmp(m->uuid, gpu->record.uuid) == 0
                               : !gpu->record.uuid[0] && m->gpu == gpu->id;
    return same_gpu && m->group == e->group && m->gpu_instance_id == e->record.gpu_instance_id &&
           m->compute_instance_id == e->record.id;
}

static uint32_t find_mark(const struct dcgm_xids *x, const struct dcgm_entity *gpu,
                          const struct dcgm_entity *e)
{
    for (uint32_t i = 0; i < x->mark_count; i++)
        if (is_mark_of(&x->marks[i], gpu, e))
            return i;
    return UINT32_MAX;
}

static uint32_t add_mark(struct dcgm_xids *x, const struct dcgm_entity *gpu,
                         const struct dcgm_entity *e)
{
    struct xid_mark *m = &x->marks[x->mark_count];
    *m = (struct xid_mark){
        .gpu = gpu->id,
        .gpu_instance_id = e->record.gpu_instance_id,
        .compute_instance_id = e->record.id,
        .group = e->group,
    };
    memcpy(m->uuid, gpu->record.uuid, sizeof(m->uuid));
    return x->mark_count++;
}

static const struct dcgm_entity *gpu_above(const struct dcgm_devices *v, uint32_t at)
{
    while (v->list[at].record.parent != at)
        at = v->list[at].record.parent;
    return &v->list[at];
}

// A mark for each member. Those of entities that are gone are kept while there is room: they may
// come back with the engine.
static dcgmReturn_t map_marks(struct dcgm_health *h, const uint32_t *places, uint32_t count)
{
    struct dcgm_xids *x = &h->xids;
    if (x->mark_count + count > 2 * LIMIT_ENTITIES)
        x->mark_count = 0;
    uint32_t *by_place = malloc((h->v->count + 1) * sizeof(*by_place));
    struct xid_mark *marks = reallocarray(x->marks, x->mark_count + count + 1, sizeof(*marks));
    x->marks = marks ? marks : x->marks;
    if (!by_place || !marks) {
        free(by_place);
        return DCGM_ST_MEMORY;
    }
    memset(by_place, 0xff, (h->v->count + 1) * sizeof(*by_place));
    for (uint32_t i = 0; i < count; i++) {
        const struct dcgm_entity *e = &h->v->list[places[i]];
        const struct dcgm_entity *gpu = gpu_above(h->v, places[i]);
        uint32_t mark = find_mark(x, gpu, e);
        by_place[places[i]] = mark == UINT32_MAX ? add_mark(x, gpu, e) : mark;
    }
    free(x->by_place);
    x->by_place = by_place;
    x->generation = h->v->generation;
    return DCGM_ST_OK;
}

// What other engines had is nothing to go on from.
static void check_address(struct dcgm_health *h)
{
    struct dcgm_xids *x = &h->xids;
    if (strcmp(x->address, h->d->address) == 0)
        return;
    for (uint32_t i = 0; i < x->mark_count; i++)
        x->marks[i].begun = false;
    x->newest_us = 0;
    memcpy(x->address, h->d->address, sizeof(x->address));
}

// --- events ---

static struct xid_pending *find_pending(struct dcgm_xids *x, uint32_t gpu, uint32_t xid,
                                        uint32_t gpu_instance_id)
{
    for (uint32_t i = 0; i < x->pending_count; i++) {
        struct xid_pending *p = &x->pending[i];
        if (p->gpu == gpu && p->event.xid == xid && p->event.gpu_instance_id == gpu_instance_id)
            return p;
    }
    return NULL;
}

// The sample's time by our clocks; where the engine's is another, now.
static void set_times(struct frame_event *event, int64_t ts_us)
{
    uint64_t mono_ns = clock_mono_ns(), wall_ns = clock_wall_ns();
    uint64_t ts_ns = (uint64_t)ts_us * NS_PER_US;
    uint64_t age_ns = wall_ns > ts_ns ? wall_ns - ts_ns : 0;
    bool is_ours =
        age_ns < CLOCKS_APART_S * NS_PER_S && ts_ns < wall_ns + CLOCKS_APART_S * NS_PER_S;
    event->wall_ns = is_ours ? ts_ns : wall_ns;
    event->taken_ns = is_ours && age_ns < mono_ns ? mono_ns - age_ns : mono_ns;
}

// False: no room.
static bool tell(struct dcgm_xids *x, uint32_t gpu, uint32_t gpu_instance_id,
                 const dcgmFieldValue_v1 *value)
{
    uint32_t xid = (uint32_t)value->value.i64;
    struct xid_pending *p = find_pending(x, gpu, xid, gpu_instance_id);
    if (p) {
        p->event.repeats += p->event.repeats < UINT32_MAX;
    } else if (x->pending_count == XID_PENDING) {
        return false;
    } else {
        p = &x->pending[x->pending_count++];
        *p = (struct xid_pending){
            .gpu = gpu,
            .event = {.origin = FRAME_EVENT_DCGM, .xid = xid, .gpu_instance_id = gpu_instance_id}};
    }
    set_times(&p->event, value->ts);
    return true;
}

// One event may stand at a compute instance and at its instance both.
static bool is_told_elsewhere(struct dcgm_xids *x, const struct xid_told *event)
{
    if (event->gpu_instance_id == UINT32_MAX)
        return false;
    for (unsigned i = 0; i < ARRAY_SIZE(x->told); i++) {
        const struct xid_told *t = &x->told[i];
        if (t->ts_us == event->ts_us && t->xid == event->xid && t->gpu == event->gpu &&
            t->gpu_instance_id == event->gpu_instance_id && t->place != event->place)
            return true;
    }
    x->told[x->told_count++ % ARRAY_SIZE(x->told)] = *event;
    return false;
}

static bool is_xid(const dcgmFieldValue_v1 *value)
{
    return value->status == DCGM_ST_OK && value->fieldId == FIELD_XID_ERRORS &&
           value->fieldType == DCGM_FT_INT64 && value->ts > 0 && value->ts < INT64_MAX / 1000 &&
           value->value.i64 > 0 && value->value.i64 < UINT32_MAX;
}

static void take_sample(struct dcgm_health *h, uint32_t at, const dcgmFieldValue_v1 *value)
{
    struct dcgm_xids *x = &h->xids;
    struct xid_mark *m = &x->marks[x->by_place[at]];
    bool same_time = value->ts == m->last_us;
    if (value->ts < m->last_us || (same_time && m->seen < m->at_last)) {
        m->seen += same_time;
        return;
    }
    struct xid_told event = {.ts_us = value->ts,
                             .gpu = gpu_above(h->v, at)->id,
                             .gpu_instance_id = h->v->list[at].record.gpu_instance_id,
                             .xid = (uint32_t)value->value.i64,
                             .place = at};
    if (m->begun && !is_told_elsewhere(x, &event) &&
        !tell(x, event.gpu, event.gpu_instance_id, value)) {
        x->more = true;
        x->told_count -= event.gpu_instance_id != UINT32_MAX;
        return;
    }
    m->at_last = m->seen = same_time ? m->at_last + 1 : 1;
    m->last_us = value->ts;
}

static int take_values(int group, unsigned id, dcgmFieldValue_v1 *values, int count, void *user)
{
    struct dcgm_health *h = user;
    uint32_t at = dcgm_devices_find(h->v, group, id);
    if (at == UINT32_MAX || h->xids.by_place[at] == UINT32_MAX)
        return 0;
    for (int i = 0; i < count && !h->xids.more; i++)
        if (is_xid(&values[i]))
            take_sample(h, at, &values[i]);
    return h->xids.more;
}

// --- looking ---

static dcgmReturn_t look(struct dcgm_health *h)
{
    struct dcgm_xids *x = &h->xids;
    dcgmReturn_t result = DCGM_ST_OK;
    long long since = x->newest_us > OVERLAP_US ? x->newest_us - OVERLAP_US : 0, next = 0;
    x->more = false;
    for (uint32_t i = 0; i < h->v->count; i++) {
        if (x->by_place[i] == UINT32_MAX)
            continue;
        x->marks[x->by_place[i]].seen = 0;
        if (!x->marks[x->by_place[i]].begun)
            since = 0;
    }
    for (uint32_t i = 0; i < x->group_count && result == DCGM_ST_OK && !x->more; i++) {
        result = dcgm_call(h->d, dcgmGetValuesSince_v2, h->d->engine, x->groups[i], x->fields,
                           since, &next, take_values, h);
        if (result == DCGM_ST_NO_DATA)
            result = DCGM_ST_OK;
    }
    if (result != DCGM_ST_OK || x->more)
        return result;
    for (uint32_t i = 0; i < h->v->count; i++)
        if (x->by_place[i] != UINT32_MAX)
            x->marks[x->by_place[i]].begun = true;
    for (uint32_t i = 0; i < x->mark_count; i++)
        if (x->marks[i].last_us > x->newest_us)
            x->newest_us = x->marks[i].last_us;
    return DCGM_ST_OK;
}

static dcgmReturn_t map_again(struct dcgm_health *h)
{
    uint32_t *places = malloc((h->v->count + 1) * sizeof(*places));
    if (!places)
        return DCGM_ST_MEMORY;
    uint32_t count = dcgm_health_members(h, true, UINT64_MAX, places);
    dcgmReturn_t result = map_marks(h, places, count);
    free(places);
    return result;
}

static void flush(struct dcgm_health *h, struct buf *out)
{
    struct dcgm_xids *x = &h->xids;
    struct frame_events head = {.generation = h->v->generation};
    if (!x->pending_count)
        return;
    size_t start = frame_begin(out, FRAME_EVENTS), at = out->len;
    buf_add(out, &head, sizeof(head));
    for (uint32_t i = 0; i < x->pending_count; i++) {
        struct xid_pending *p = &x->pending[i];
        p->event.entity = dcgm_devices_find(h->v, DCGM_FE_GPU, p->gpu);
        if (p->event.entity == UINT32_MAX)
            continue;
        buf_add(out, &p->event, sizeof(p->event));
        head.count++;
    }
    if (!out->error)
        memcpy(out->data + at, &head, sizeof(head));
    frame_end(out, start);
    x->pending_count = 0;
}

dcgmReturn_t dcgm_xids_read(struct dcgm_health *h, struct buf *out)
{
    struct dcgm_xids *x = &h->xids;
    dcgmReturn_t result = DCGM_ST_OK;
    if (x->generation != h->v->generation)
        result = map_again(h);
    for (unsigned i = 0; i < LOOKS_MOST && result == DCGM_ST_OK; i++) {
        flush(h, out);
        result = look(h);
        if (!x->more)
            break;
    }
    flush(h, out);
    return result;
}

// --- the watch ---

static void destroy(struct dcgm_health *h, const dcgmGpuGrp_t *groups, uint32_t count,
                    dcgmFieldGrp_t fields)
{
    struct dcgm *d = h->d;
    for (uint32_t i = 0; i < count && !d->lost; i++) {
        (void)dcgm_call(d, dcgmUnwatchFields, d->engine, groups[i], fields);
        dcgm_group_destroy(d, groups[i]);
    }
    if (fields)
        dcgm_field_group_destroy(d, fields);
}

static dcgmReturn_t make_watch(struct dcgm_health *h, const uint32_t *places, uint32_t count)
{
    struct dcgm_xids *x = &h->xids;
    const uint16_t field = FIELD_XID_ERRORS;
    dcgmGpuGrp_t groups[XID_GROUPS];
    dcgmFieldGrp_t fields = 0;
    uint32_t made = 0;
    dcgmReturn_t result = dcgm_field_group_create(h->d, &field, 1, &fields);
    for (uint32_t at = 0; at < count && made < XID_GROUPS && result == DCGM_ST_OK;
         at += DCGM_GROUP_ENTITIES) {
        uint32_t left = count - at;
        result = dcgm_health_make_group(
            h, places + at, left < DCGM_GROUP_ENTITIES ? left : DCGM_GROUP_ENTITIES, &groups[made]);
        if (result == DCGM_ST_OK)
            result = dcgm_call(h->d, dcgmWatchFields, h->d->engine, groups[made++], fields,
                               PERIOD_US, KEEP_AGE_S, 0);
    }
    if (result != DCGM_ST_OK) {
        destroy(h, groups, made, fields);
        return result;
    }
    dcgm_xids_unset(h);
    memcpy(x->groups, groups, made * sizeof(*groups));
    x->group_count = made;
    x->fields = fields;
    x->watched = true;
    return DCGM_ST_OK;
}

static dcgmReturn_t set_members(struct dcgm_health *h, const uint32_t *places, uint32_t count)
{
    struct dcgm_xids *x = &h->xids;
    uint64_t members = dcgm_health_hash(h, places, count);
    check_address(h);
    dcgmReturn_t result = map_marks(h, places, count);
    if (result == DCGM_ST_OK && !(x->watched && x->members == members)) {
        result = make_watch(h, places, count);
        x->members = result == DCGM_ST_OK ? members : 0;
    }
    return result;
}

// The look at once says where history ends; failing that, the next one does.
dcgmReturn_t dcgm_xids_set(struct dcgm_health *h)
{
    uint32_t *places = malloc((h->v->count + 1) * sizeof(*places));
    if (!places)
        return DCGM_ST_MEMORY;
    uint32_t count = dcgm_health_members(h, true, UINT64_MAX, places);
    dcgmReturn_t result = count ? set_members(h, places, count) : DCGM_ST_NO_DATA;
    free(places);
    if (result == DCGM_ST_OK) {
        result = look(h);
        return dcgm_result_is_of_engine(result) ? result : DCGM_ST_OK;
    }
    if (result != DCGM_ST_MEMORY)
        dcgm_xids_unset(h);
    return result;
}

void dcgm_xids_unset(struct dcgm_health *h)
{
    struct dcgm_xids *x = &h->xids;
    destroy(h, x->groups, x->group_count, x->fields);
    dcgm_xids_forget(x);
}

void dcgm_xids_forget(struct dcgm_xids *x)
{
    x->group_count = 0;
    x->fields = 0;
    x->watched = false;
}

void dcgm_xids_deinit(struct dcgm_xids *x)
{
    free(x->marks);
    free(x->by_place);
    *x = (struct dcgm_xids){0};
}
