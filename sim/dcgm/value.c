// SPDX-License-Identifier: Apache-2.0
// Reading what the engine sampled. Records live in this library's memory and are overwritten as
// soon as the callback has returned.
#include "double.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- One value ---

// Scenario time of a moment in real time.
static int64_t scenario_time(const struct call *c, uint64_t at_ns)
{
    if (atomic_load(&c->node->frozen_ns) != INT64_MIN)
        return c->t;
    return c->t - (int64_t)((sim_wide)(c->now_ns - at_ns) * (int64_t)c->node->rate_ppm / SIM_PPM);
}

static const struct sim_dcgm_value *own_value(const struct sim_node *n, const struct target *at,
                                              uint16_t field, int64_t t)
{
    const struct sim_dcgm *d = &n->dcgm;
    const struct sim_dcgm_value *found = NULL;
    for (uint32_t i = atomic_load_explicit(&d->value_count, memory_order_acquire); i-- > 0;) {
        const struct sim_dcgm_value *v = &d->values[i];
        if (v->field == field && v->key == at->key && v->entity == (uint32_t)at->entity &&
            v->from_ns <= t && (!found || v->from_ns > found->from_ns))
            found = v;
    }
    return found && found->shape != SIM_DCGM_AUTO ? found : NULL;
}

static void take_own(const struct sim_node *n, const struct sim_dcgm_value *v, struct reading *out)
{
    switch ((enum sim_dcgm_shape)v->shape) {
    case SIM_DCGM_AUTO:
        break;
    case SIM_DCGM_NUMBER:
        out->i64 = v->i64;
        out->f64 = v->f64;
        break;
    case SIM_DCGM_TEXT:
        (void)snprintf(out->text, sizeof(out->text), "%s", sim_string(n, v->text));
        break;
    case SIM_DCGM_BLANK:
        out->blank = (int)v->i64;
        break;
    case SIM_DCGM_NAN:
        out->f64 = NAN;
        break;
    case SIM_DCGM_STATUS:
        out->status = (int)v->i64;
        out->ts = 0;
        break;
    }
}

static void read_at(const struct call *c, const struct target *at, uint16_t field, int64_t before,
                    int64_t t, struct reading *out)
{
    struct target whole = *at;
    const dcgm_field_meta_t *meta = field_find(field);
    // What an instance has no value of its own for is read from its GPU.
    if (at->instance != SIM_NONE && meta && meta->entityLevel != SIM_ENTITY_GPU_CI &&
        !(meta->entityLevel == SIM_ENTITY_GPU_I && at->entity == SIM_ENTITY_GPU_I))
        whole = (struct target){
            .entity = SIM_ENTITY_GPU, .gpu = at->gpu, .instance = SIM_NONE, .key = at->gpu};
    const struct sim_dcgm_value *own = own_value(c->node, at, field, t);
    if (!own)
        own = own_value(c->node, &whole, field, t);
    out->ts = sim_wall_us(c->node, t);
    out->blank = -1;
    if (field_is_profiling(field) && atomic_load(&c->node->dcgm.paused))
        out->blank = 0;
    else if (own)
        take_own(c->node, own, out);
    else
        automatic_read(c->node, &whole, field, before, t, out);
}

// The newest XID since the watch began.
static void read_xid(const struct call *c, const struct target *at, int64_t since,
                     struct reading *out)
{
    const struct sim_node *n = c->node;
    for (uint32_t i = atomic_load(&n->event_count); i-- > 0;) {
        const struct sim_event *e = &n->events[i];
        bool whole = e->gi == UINT32_MAX;
        if (e->type != 8 || e->gpu != at->gpu || e->at_ns < since || e->at_ns > c->t ||
            !(e->flags & SIM_EVENT_NVML))
            continue;
        if (at->entity == SIM_ENTITY_GPU
                ? !whole
                : whole || e->gi != at->gi || (at->entity == SIM_ENTITY_GPU_CI && e->ci != at->ci))
            continue;
        out->blank = -1;
        out->i64 = (int64_t)e->data;
        out->ts = sim_wall_us(n, e->at_ns);
        return;
    }
    out->status = ST_NO_DATA;
}

static struct reading reading_of(uint16_t field)
{
    const dcgm_field_meta_t *meta = field_find(field);
    return (struct reading){.type = meta ? meta->fieldType : 'i', .blank = -1};
}

// The time of the sample before the one of t; while the clock stands, a period earlier.
static int64_t time_before(const struct call *c, const struct cell *cell, uint64_t before_ns,
                           int64_t t)
{
    int64_t before = scenario_time(c, before_ns);
    return before < t ? before : t - (int64_t)cell->period_ns;
}

static int why_not(const struct call *c, const struct cell *cell, uint16_t field)
{
    if (!field_find(field))
        return ST_UNKNOWN_FIELD;
    if (!cell)
        return ST_NOT_WATCHED;
    return cell->samples < (field_is_profiling(field) ? 2u : 1u) ? ST_NO_DATA : ST_OK;
}

void value_latest(struct call *c, int entity, unsigned int id, uint16_t field, struct reading *out)
{
    struct target at;
    struct cell *cell = cell_find(c->at, entity, id, field);
    *out = reading_of(field);
    if (cell)
        cell_advance(c->at, cell, c->now_ns);
    int status = why_not(c, cell, field);
    if (status == ST_OK && target_find(c->node, entity, id, c->t, &at) != 0)
        status = ST_NO_DATA;
    if (status != ST_OK) {
        out->status = status;
        return;
    }
    int64_t t = scenario_time(c, cell->last_ns);
    if (field == 230 && !own_value(c->node, &at, field, t))
        read_xid(c, &at, scenario_time(c, cell->start_ns), out);
    else
        read_at(c, &at, field, cell->samples > 1 ? time_before(c, cell, cell->before_ns, t) : t, t,
                out);
}

// --- Records ---

static void fill_blank(const struct reading *r, dcgmFieldValue_v1 *out)
{
    static const char *const texts[] = {"<<<NULL>>>", "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>",
                                        "<<<NOT_PERM>>>"};
    int offset = r->status != ST_OK || r->blank < 0 ? 0 : r->blank;
    if (r->type == 'd')
        out->value.dbl = BLANK_F64 + offset;
    else if (r->type == 's')
        (void)snprintf(out->value.str, sizeof(out->value.str), "%s", texts[offset]);
    else if (r->type != 'b')
        out->value.i64 = BLANK_I64 + offset;
}

// What stands in a record without a value tells the majors apart: 3 gives an integer 0, 4 the blank
// of the field's own type.
void value_record(const struct reading *r, uint16_t field, dcgmFieldValue_v1 *out)
{
    memset(out, 0, sizeof(*out));
    out->version = WORD(dcgmFieldValue_v1, 1);
    out->fieldId = field;
    out->fieldType = (unsigned short)r->type;
    out->status = r->status;
    out->ts = r->ts;
    if (r->status != ST_OK && DCGM_MAJOR == 3) {
        out->fieldType = 'i';
        return;
    }
    if (r->status != ST_OK || r->blank >= 0) {
        fill_blank(r, out);
        return;
    }
    if (r->type == 'd')
        out->value.dbl = r->f64;
    else if (r->type == 's')
        (void)snprintf(out->value.str, sizeof(out->value.str), "%s", r->text);
    else
        out->value.i64 = r->i64;
}

// --- Callbacks ---

#define PER_CALL 7u

struct delivery {
    struct call *c;
    dcgmFieldValueEntityEnumeration_f callback;
    void *data;
    uint32_t calls;
    bool stopped;
};

// Values of one entity, some at a time: 1, 2, 3 ... up to PER_CALL, then 1 again.
struct batch {
    struct delivery *d;
    int entity;
    unsigned int id;
    uint32_t count;
    dcgmFieldValue_v1 values[PER_CALL];
};

static void batch_send(struct batch *b)
{
    struct delivery *d = b->d;
    if (b->count == 0 || d->stopped)
        return;
    if (d->callback(b->entity, b->id, b->values, (int)b->count, d->data) != 0)
        d->stopped = true;
    memset(b->values, 0xa5, sizeof(b->values));
    b->count = 0;
    d->calls++;
    if (d->c->dropped)
        d->stopped = true;
}

static void batch_add(struct batch *b, const struct reading *r, uint16_t field)
{
    value_record(r, field, &b->values[b->count++]);
    if (b->count > b->d->calls % PER_CALL)
        batch_send(b);
}

static dcgmReturn_t find_both(struct call *c, dcgmGpuGrp_t group, dcgmFieldGrp_t fields,
                              struct group **out_group, struct field_group **out_fields)
{
    *out_group = group_find(c->at, group);
    *out_fields = field_group_find(c->at, fields);
    if (!*out_group)
        return ST_NOT_CONFIGURED;
    return *out_fields ? ST_OK : ST_NO_DATA;
}

static struct batch *batch_new(struct delivery *d)
{
    struct batch *b = malloc(sizeof(*b));
    if (b)
        *b = (struct batch){.d = d};
    return b;
}

API(dcgmGetLatestValues_v2, dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields,
    dcgmFieldValueEntityEnumeration_f callback, void *data)
{
    CALL_AT(handle);
    NEED(callback);
    struct group *g;
    struct field_group *f;
    dcgmReturn_t code = find_both(&c, group, fields, &g, &f);
    struct delivery d = {.c = &c, .callback = callback, .data = data};
    struct batch *b = code == ST_OK ? batch_new(&d) : NULL;
    if (!b)
        return code == ST_OK ? ST_MEMORY : code;
    for (uint32_t i = 0; i < g->count && !d.stopped; i++) {
        b->entity = g->list[i].entityGroupId;
        b->id = g->list[i].entityId;
        for (uint32_t k = 0; k < f->count && !d.stopped; k++) {
            struct reading r;
            value_latest(&c, b->entity, b->id, f->fields[k], &r);
            batch_add(b, &r, f->fields[k]);
        }
        batch_send(b);
    }
    free(b);
    return c.dropped ? ST_CONNECTION_NOT_VALID : ST_OK;
}

// --- Since ---

struct since {
    struct call *c;
    struct batch *b;
    int64_t from_us, newest_us;
};

static void send_since(struct since *s, const struct reading *r, uint16_t field)
{
    if (r->ts < s->from_us)
        return;
    if (r->ts > s->newest_us)
        s->newest_us = r->ts;
    batch_add(s->b, r, field);
}

static void xids_since(struct since *s, const struct target *at, const struct cell *cell)
{
    const struct sim_node *n = s->c->node;
    struct call then = *s->c; // the look at each event's own time
    int64_t start = scenario_time(s->c, cell->start_ns);
    uint32_t count = atomic_load(&n->event_count);
    for (uint32_t i = 0; i < count && !s->b->d->stopped; i++) {
        struct reading r = reading_of(230);
        then.t = n->events[i].at_ns;
        if (then.t < start || then.t > s->c->t)
            continue;
        read_xid(&then, at, then.t, &r);
        if (r.status == ST_OK)
            send_since(s, &r, 230);
    }
}

#define MAX_HISTORY 100u

static void samples_since(struct since *s, const struct target *at, const struct cell *cell)
{
    uint64_t count = cell->samples < MAX_HISTORY ? cell->samples : MAX_HISTORY;
    uint64_t skip = field_is_profiling(cell->field) && count == cell->samples ? 1 : 0;
    if (s->c->at->manual && count > 2)
        count = 2; // what is known of the times of samples
    for (uint64_t i = count; i-- > skip && !s->b->d->stopped;) {
        uint64_t back = i * cell->period_ns;
        uint64_t at_ns = i == 0             ? cell->last_ns
                         : s->c->at->manual ? cell->before_ns
                                            : cell->last_ns - back;
        struct reading r = reading_of(cell->field);
        int64_t t = scenario_time(s->c, at_ns);
        read_at(s->c, at, cell->field, time_before(s->c, cell, at_ns - cell->period_ns, t), t, &r);
        send_since(s, &r, cell->field);
    }
}

API(dcgmGetValuesSince_v2, dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields,
    long long since_us, long long *next_us, dcgmFieldValueEntityEnumeration_f callback, void *data)
{
    CALL_AT(handle);
    NEED(callback && next_us && since_us >= 0);
    struct group *g;
    struct field_group *f;
    dcgmReturn_t code = find_both(&c, group, fields, &g, &f);
    struct delivery d = {.c = &c, .callback = callback, .data = data};
    struct batch *b = code == ST_OK ? batch_new(&d) : NULL;
    if (!b)
        return code == ST_OK ? ST_MEMORY : code;
    struct since s = {&c, b, since_us, since_us - 1};
    for (uint32_t i = 0; i < g->count && !d.stopped; i++) {
        b->entity = g->list[i].entityGroupId;
        b->id = g->list[i].entityId;
        for (uint32_t k = 0; k < f->count && !d.stopped; k++) {
            struct cell *cell = cell_find(c.at, b->entity, b->id, f->fields[k]);
            struct target at;
            if (!cell || target_find(c.node, b->entity, b->id, c.t, &at) != 0)
                continue;
            cell_advance(c.at, cell, c.now_ns);
            if (f->fields[k] == 230)
                xids_since(&s, &at, cell);
            else
                samples_since(&s, &at, cell);
        }
        batch_send(b);
    }
    free(b);
    *next_us = s.newest_us + 1;
    return c.dropped ? ST_CONNECTION_NOT_VALID : ST_OK;
}

// --- An array of records ---

API(dcgmEntitiesGetLatestValues, dcgmHandle_t handle, dcgmGroupEntityPair_t *entities,
    unsigned int entity_count, unsigned short *fields, unsigned int field_count, unsigned int flags,
    dcgmFieldValue_v2 *out)
{
    CALL_AT(handle);
    NEED(entities && fields && out && entity_count > 0 && field_count > 0);
    NEED(entity_count <= 1024 && field_count <= MAX_FIELDS_OF_GROUP);
    for (unsigned int i = 0; i < entity_count; i++) {
        for (unsigned int k = 0; k < field_count; k++) {
            struct reading r = reading_of(fields[k]);
            dcgmFieldValue_v1 record;
            struct target at;
            bool live =
                flags & FV_FLAG_LIVE_DATA && !field_is_profiling(fields[k]) &&
                target_find(c.node, entities[i].entityGroupId, entities[i].entityId, c.t, &at) == 0;
            if (live)
                read_at(&c, &at, fields[k], c.t, c.t, &r);
            else
                value_latest(&c, entities[i].entityGroupId, entities[i].entityId, fields[k], &r);
            value_record(&r, fields[k], &record);
            dcgmFieldValue_v2 *to = &out[(size_t)i * field_count + k];
            *to = (dcgmFieldValue_v2){.version = WORD(dcgmFieldValue_v2, 2),
                                      .entityGroupId = entities[i].entityGroupId,
                                      .entityId = entities[i].entityId,
                                      .fieldId = fields[k],
                                      .fieldType = record.fieldType,
                                      .status = record.status,
                                      .ts = record.ts};
            memcpy(to->value.blob, record.value.blob, sizeof(to->value.blob));
        }
    }
    return c.dropped ? ST_CONNECTION_NOT_VALID : ST_OK;
}
