// SPDX-License-Identifier: Apache-2.0
// How it works: the library calls back with each value of a bulk read; a record is made of it
// there, straight into the frame's buffer. What is no value goes to its cell, from which it is told
// when the exporter does not know it yet.
#include "source/dcgm_watch_internal.h"

#include "base/log.h"

struct reading { // of a pair
    struct dcgm_watch *w;
    struct watch_pair *pair;
    const uint16_t *ids;
    uint32_t id_count;
    struct dcgm_moment now;
    uint32_t entity, field; // where the last value belonged: the next is near
    uint32_t values, not_watched;
};

// --- where a value belongs ---

static bool is_entity(const struct dcgm_watch *w, uint32_t place, int group, unsigned id)
{
    return place < w->v->count && w->v->list[place].group == group && w->v->list[place].id == id;
}

// Engines go through the entities in the group's order, which is the list's.
static uint32_t find_entity(const struct reading *r, int group, unsigned id)
{
    const struct dcgm_watch *w = r->w;
    uint32_t place = r->entity;
    if (group != r->pair->kind)
        return WATCH_NONE;
    if (!is_entity(w, place, group, id))
        place = is_entity(w, place + 1, group, id) ? place + 1 : dcgm_devices_find(w->v, group, id);
    return place < w->plan.entity_count && w->plan.cells[place] != WATCH_NONE ? place : WATCH_NONE;
}

static uint32_t find_field(const struct reading *r, uint16_t id)
{
    for (uint32_t i = 0; i < r->id_count; i++) {
        uint32_t at = (r->field + 1 + i) % r->id_count;
        if (r->ids[at] == id)
            return at;
    }
    return WATCH_NONE;
}

// --- records ---

// A text that does not fit any more is left out: no text is worth the frame.
static bool fits(struct dcgm_watch *w, size_t text_bytes)
{
    size_t bytes = sizeof(struct frame_sample) + sizeof(struct frame_record);
    bytes += w->records.len + w->strings.len + text_bytes;
    w->cut |= bytes > LIMIT_FRAME_BYTES;
    return bytes <= LIMIT_FRAME_BYTES;
}

static void add_record(struct dcgm_watch *w, uint32_t entity, uint16_t field,
                       const struct dcgm_reading *value, uint64_t taken_ns)
{
    struct frame_record record = {
        .entity = entity,
        .field = field,
        .status = (uint8_t)value->status,
        .type = (uint8_t)value->type,
        .taken_ns = taken_ns,
        .value.i64 = value->i64,
    };
    if (!fits(w, value->text.len))
        return;
    if (value->type == FRAME_VALUE_DOUBLE)
        record.value.f64 = value->f64;
    if (value->type == FRAME_VALUE_STRING) {
        record.value.i64 = (int64_t)((uint64_t)w->strings.len << 32 | value->text.len);
        buf_add_sv(&w->strings, value->text);
    }
    buf_add(&w->records, &record, sizeof(record));
    w->record_count++;
}

static void add_statuses(struct dcgm_watch *w, uint64_t now_ns)
{
    for (uint32_t i = 0; i < w->plan.entity_count && w->unsent; i++) {
        if (w->plan.cells[i] == WATCH_NONE)
            continue;
        unsigned kind = w->v->list[i].group;
        const uint16_t *rows = watch_rows(&w->plan, kind);
        for (uint32_t row = 0; row < w->plan.kinds[kind].count; row++) {
            struct watch_cell *cell = &w->cells[w->plan.cells[i] + row];
            if (!cell->now || cell->now == FRAME_OK + 1 || cell->now == cell->sent)
                continue;
            struct dcgm_reading value = {.status = (enum frame_status)(cell->now - 1)};
            value.i64 = value.status == FRAME_VENDOR_ERROR ? cell->code : 0;
            add_record(w, i, w->fields[rows[row]].id, &value, now_ns);
            cell->sent = cell->now;
        }
    }
    w->unsent = false;
}

// --- a value ---

// The last XID stays true, and while none was seen it is 0: the engine waits for them as long as
// the field is watched.
static void judge_xid(const struct reading *r, int status, struct watch_cell *cell,
                      struct dcgm_reading *value)
{
    if (value->status == FRAME_NO_DATA && status != DCGM_ST_NOT_WATCHED)
        *value = (struct dcgm_reading){.type = FRAME_VALUE_I64};
    if (value->status == FRAME_OK)
        cell->taken_ns = r->now.mono_ns;
}

static void take_value(struct reading *r, uint32_t entity, uint32_t at,
                       const dcgmFieldValue_v1 *value)
{
    struct dcgm_watch *w = r->w;
    uint32_t row = r->pair->row + at;
    const struct watch_field *field = &w->fields[watch_rows(&w->plan, r->pair->kind)[row]];
    struct watch_cell *cell = &w->cells[w->plan.cells[entity] + row];
    struct dcgm_reading v;
    if (cell->settled)
        return;
    r->values++;
    r->not_watched += value->status == DCGM_ST_NOT_WATCHED;
    dcgm_value_read(value, (enum field_type)field->type, &v);
    if (v.status == FRAME_OK && value->ts != cell->stamp) {
        // Looked at before, it is no older than that look.
        uint64_t since_ns = cell->now ? r->pair->read_ns : 0;
        cell->taken_ns = dcgm_value_taken_ns(value->ts, &r->now, since_ns);
        cell->stamp = value->ts;
    }
    if (field->id == FIELD_XID_ERRORS)
        judge_xid(r, value->status, cell, &v);
    if (w->paused && dcgm_field_is_profiling(field->id))
        v = (struct dcgm_reading){.status = FRAME_PAUSED};
    if (v.status == FRAME_OK) {
        cell->now = cell->sent = FRAME_OK + 1;
        add_record(w, entity, field->id, &v, cell->taken_ns);
        return;
    }
    if (v.status == FRAME_VENDOR_ERROR && cell->code != v.i64)
        cell->sent = 0;
    cell->code = (int32_t)v.i64;
    cell->now = (uint8_t)(v.status + 1);
    w->unsent |= cell->now != cell->sent;
}

// Global values may come as of nothing; they are everybody's.
static void take_global(struct reading *r, uint32_t at, const dcgmFieldValue_v1 *value)
{
    const struct watch_group *g = &r->w->plan.groups[r->pair->group];
    const struct watch_member *members = watch_members(&r->w->plan, g);
    for (uint32_t i = 0; i < g->count; i++)
        take_value(r, members[i].entity, at, value);
}

// What was not asked for is left alone.
static int take_values(int group, unsigned int id, dcgmFieldValue_v1 *values, int count, void *data)
{
    struct reading *r = data;
    uint32_t entity = find_entity(r, group, id);
    if (!values || (entity == WATCH_NONE && group != DCGM_FE_NONE))
        return 0;
    for (int i = 0; i < count && i < DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP; i++) {
        uint32_t at = find_field(r, values[i].fieldId);
        if (at == WATCH_NONE || values[i].version != dcgmFieldValue_version1)
            continue;
        r->field = at;
        if (entity == WATCH_NONE) {
            take_global(r, at, &values[i]);
            continue;
        }
        r->entity = entity;
        take_value(r, entity, at, &values[i]);
    }
    return 0;
}

// --- a read ---

// A call that fails half way leaves nothing behind.
static dcgmReturn_t read_pair(struct dcgm_watch *w, struct watch_pair *pair)
{
    const struct watch_group *g = &w->plan.groups[pair->group];
    const struct watch_field_group *f = &w->plan.field_groups[pair->fields];
    size_t records = w->records.len, strings = w->strings.len;
    uint32_t count = w->record_count;
    struct reading r = {
        .w = w,
        .pair = pair,
        .ids = watch_ids(&w->plan, f),
        .id_count = f->count,
        .now = {.mono_ns = clock_mono_ns(), .wall_ns = clock_wall_ns()},
        .entity = watch_members(&w->plan, g)[0].entity,
        .field = f->count - 1,
    };
    dcgmReturn_t result =
        dcgm_call(w->d, dcgmGetLatestValues_v2, w->d->engine, g->id, f->id, take_values, &r);
    if (result != DCGM_ST_OK) {
        w->records.len = records;
        w->strings.len = strings;
        w->record_count = count;
        return result;
    }
    pair->read_ns = r.now.mono_ns;
    pair->alive |= r.values > r.not_watched;
    if (pair->alive && r.values && r.values == r.not_watched)
        return DCGM_ST_NOT_WATCHED; // it was watched before
    return DCGM_ST_OK;
}

static unsigned take_due(struct dcgm_watch *w, uint64_t now_ns)
{
    unsigned due = 0;
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++) {
        uint64_t period_ns = w->watch.period_ns[c] ? w->watch.period_ns[c] : NS_PER_S;
        if (now_ns < w->due_ns[c])
            continue;
        due |= 1u << c;
        w->due_ns[c] = (now_ns / period_ns + 1) * period_ns;
        if (now_ns < w->early_until_ns && w->due_ns[c] > now_ns + NS_PER_S)
            w->due_ns[c] = now_ns + NS_PER_S;
    }
    return due;
}

static void make_frame(struct dcgm_watch *w, unsigned classes, uint64_t started_ns, uint32_t calls)
{
    uint64_t now_ns = clock_mono_ns();
    add_statuses(w, now_ns);
    struct frame_sample head = {
        .generation = w->generation,
        .watch_id = w->watch.watch_id,
        .classes = classes,
        .count = w->record_count,
        .string_bytes = (uint32_t)w->strings.len,
        .vendor_calls = calls,
        .started_ns = started_ns,
        .ended_ns = now_ns,
    };
    buf_reset(&w->frame);
    size_t start = frame_begin(&w->frame, FRAME_SAMPLE);
    buf_add(&w->frame, &head, sizeof(head));
    buf_add_sv(&w->frame, buf_sv(&w->records));
    buf_add_sv(&w->frame, buf_sv(&w->strings));
    frame_end(&w->frame, start);
    if (w->cut)
        log_warn("a sample is too large, texts are left out", LOG_LIMIT("cut"));
}

static dcgmReturn_t read_classes(struct dcgm_watch *w, unsigned classes, bool *out_answered)
{
    dcgmReturn_t worst = DCGM_ST_OK;
    uint32_t asked = 0, answered = 0;
    for (uint32_t i = 0; i < w->plan.read_count; i++) {
        struct watch_pair *pair = &w->plan.reads[i];
        if (!pair->made || !(classes >> pair->cost & 1))
            continue;
        asked++;
        dcgmReturn_t result = read_pair(w, pair);
        if (dcgm_watch_is_of_engine(w, result) || result == DCGM_ST_NOT_WATCHED)
            return result;
        answered += result == DCGM_ST_OK;
        worst = result != DCGM_ST_OK ? result : worst;
    }
    if (worst != DCGM_ST_OK)
        log_warn("DCGM did not give values", LOG_STR("reason", dcgm_result_text(worst)),
                 LOG_I64("code", worst), LOG_LIMIT("read"));
    *out_answered = answered || !asked;
    return worst;
}

dcgmReturn_t dcgm_watch_read(struct dcgm_watch *w, uint64_t now_ns, const struct buf **frame)
{
    *frame = NULL;
    if (!w->applied || w->generation != w->v->generation)
        return DCGM_ST_OK;
    dcgmReturn_t result = dcgm_watch_retry(w, now_ns);
    if (result != DCGM_ST_OK)
        return result;
    unsigned classes = take_due(w, now_ns);
    if (!classes)
        return DCGM_ST_OK;
    uint64_t started_ns = clock_mono_ns();
    uint32_t calls = w->d->calls;
    bool answered = false;
    buf_reset(&w->records);
    buf_reset(&w->strings);
    w->record_count = 0;
    w->cut = false;
    result = read_classes(w, classes, &answered);
    if (!answered)
        return result;
    make_frame(w, classes, started_ns, w->d->calls - calls);
    if (w->records.error || w->strings.error || w->frame.error)
        return DCGM_ST_MEMORY;
    *frame = &w->frame;
    return DCGM_ST_OK;
}
