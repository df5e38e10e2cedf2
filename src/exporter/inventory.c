// SPDX-License-Identifier: Apache-2.0
// Fields, values and XID history. Lists of devices are in inventory_entities.c, lookups in
// inventory_find.c.
//
// Invariants: every entity has field_count values (a heap block even for none); a value of type
// string owns its text, whose bytes are summed in string_bytes; xids are ascending by code;
// info.parent of an entity is the place of one before it (its own of a GPU, switch or CPU), and
// instances and compute instances follow their GPU without a gap. A text value that finds no memory
// or no room becomes unknown: an old text is never shown for a new one.
#include "exporter/inventory_internal.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

// --- Values ---

struct inventory_value *inventory_values_new(size_t count)
{
    struct inventory_value *values = malloc((count + 1) * sizeof(values[0]));
    if (!values)
        return NULL;
    for (size_t i = 0; i < count; i++)
        values[i] = INVENTORY_VALUE_UNKNOWN;
    return values;
}

// Frees a text; the value becomes unknown.
static void value_clear(struct inventory *inv, struct inventory_value *v)
{
    if (v->type == FRAME_VALUE_STRING) {
        inv->string_bytes -= strlen(v->value.string) + 1;
        free(v->value.string);
    }
    *v = INVENTORY_VALUE_UNKNOWN;
}

void inventory_entity_deinit(struct inventory *inv, struct inventory_entity *e)
{
    for (size_t i = 0; e->values && i < inv->field_count; i++)
        value_clear(inv, &e->values[i]);
    free(e->values);
    free(e->xids);
}

void inventory_entity_clear_readings(struct inventory *inv, struct inventory_entity *e)
{
    for (size_t i = 0; i < inv->field_count; i++) {
        if (!inv->labels[i])
            value_clear(inv, &e->values[i]);
    }
}

void inventory_init(struct inventory *inv)
{
    *inv = (struct inventory){0};
}

void inventory_deinit(struct inventory *inv)
{
    for (size_t i = 0; i < inv->entity_count; i++)
        inventory_entity_deinit(inv, &inv->entities[i]);
    free(inv->entities);
    free(inv->map);
    free(inv->verdicts);
    free(inv->peers);
    free(inv->fields);
    free(inv->infos);
    free(inv->labels);
    inventory_init(inv);
}

void inventory_reset(struct inventory *inv)
{
    uint64_t layout = inv->layout + 1;
    bool ends_at_once = inv->ends_at_once;
    inventory_deinit(inv);
    inv->layout = layout;
    inv->ends_at_once = ends_at_once;
}

// --- Fields ---

struct field_set {
    uint16_t *fields;
    const struct field_info **infos;
    bool *labels;
    struct inventory_value **values; // per entity
    size_t entity_count;
};

static void field_set_deinit(struct field_set *s)
{
    for (size_t i = 0; s->values && i < s->entity_count; i++)
        free(s->values[i]);
    free(s->values);
    free(s->fields);
    free(s->infos);
    free(s->labels);
}

static int field_set_init(struct field_set *s, const struct inventory *inv, const uint16_t *fields,
                          size_t count)
{
    s->entity_count = inv->entity_count;
    s->fields = calloc(count + 1, sizeof(s->fields[0]));
    s->infos = calloc(count + 1, sizeof(s->infos[0]));
    s->labels = calloc(count + 1, sizeof(s->labels[0]));
    s->values = calloc(inv->entity_count + 1, sizeof(s->values[0]));
    if (!s->fields || !s->infos || !s->labels || !s->values)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        assert(i == 0 || fields[i - 1] < fields[i]);
        s->fields[i] = fields[i];
        s->infos[i] = field_find(fields[i]);
    }
    for (size_t i = 0; i < inv->entity_count; i++) {
        s->values[i] = inventory_values_new(count);
        if (!s->values[i])
            return -ENOMEM;
    }
    return 0;
}

// Moves the value of each field that stays to its place in the new set; clears the others.
static void field_set_move_values(struct field_set *s, struct inventory *inv, size_t count)
{
    size_t to = 0;
    for (size_t from = 0; from < inv->field_count; from++) {
        while (to < count && s->fields[to] < inv->fields[from])
            to++;
        bool stays = to < count && s->fields[to] == inv->fields[from];
        for (size_t i = 0; i < inv->entity_count; i++) {
            struct inventory_value *old = &inv->entities[i].values[from];
            if (stays)
                s->values[i][to] = *old;
            else
                value_clear(inv, old);
        }
        if (stays)
            s->labels[to] = inv->labels[from];
    }
}

int inventory_set_fields(struct inventory *inv, const uint16_t *fields, size_t count,
                         uint32_t watch_id)
{
    bool same = count == inv->field_count && inv->fields &&
                memcmp(fields, inv->fields, count * sizeof(fields[0])) == 0;
    if (same) {
        inv->watch_id = watch_id;
        return 0;
    }
    cleanup(field_set_deinit) struct field_set s = {0};
    int r = field_set_init(&s, inv, fields, count);
    if (r < 0)
        return r;
    field_set_move_values(&s, inv, count);
    for (size_t i = 0; i < inv->entity_count; i++) {
        free(inv->entities[i].values);
        inv->entities[i].values = TAKE_PTR(s.values[i]);
    }
    free(inv->fields);
    free(inv->infos);
    free(inv->labels);
    inv->fields = TAKE_PTR(s.fields);
    inv->infos = TAKE_PTR(s.infos);
    inv->labels = TAKE_PTR(s.labels);
    inv->field_count = count;
    inv->watch_id = watch_id;
    inv->layout++;
    return 0;
}

void inventory_set_labels(struct inventory *inv, const uint16_t *fields, size_t count)
{
    bool changed = false;
    for (size_t i = 0; i < inv->field_count; i++) {
        bool label = false;
        for (size_t n = 0; n < count && !label; n++)
            label = fields[n] == inv->fields[i];
        changed = changed || label != inv->labels[i];
        inv->labels[i] = label;
    }
    if (changed)
        inv->layout++;
}

// --- Samples ---

// Cut to the ceiling at a character boundary and up to the first NUL; text that is not UTF-8 keeps
// its ASCII.
static int text_new(struct inventory *inv, struct sv text, char **out)
{
    text = sv_cut(sv_sub(text, 0, sv_find_char(text, '\0')), LIMIT_VALUE_STRING_BYTES);
    if (inv->string_bytes + text.len + 1 > LIMIT_INVENTORY_STRING_BYTES) {
        inv->dropped++;
        *out = NULL;
        return 0;
    }
    char *copy = malloc(text.len + 1);
    if (!copy)
        return -ENOMEM;
    bool utf8 = sv_is_utf8(text);
    for (size_t i = 0; i < text.len; i++)
        copy[i] = !utf8 && (unsigned char)text.ptr[i] >= 0x80 ? '?' : text.ptr[i];
    copy[text.len] = '\0';
    inv->string_bytes += text.len + 1;
    *out = copy;
    return 0;
}

static bool value_equals(const struct inventory_value *a, const struct inventory_value *b)
{
    if (a->type != b->type)
        return false;
    switch ((enum frame_value_type)a->type) {
    case FRAME_VALUE_I64:
    case FRAME_VALUE_DOUBLE:
        return a->value.i64 == b->value.i64; // bits
    case FRAME_VALUE_STRING:
        return strcmp(a->value.string, b->value.string) == 0;
    case FRAME_VALUE_NONE:
    case FRAME_VALUE_TYPE_END:
        break;
    }
    return true;
}

// Makes an owned value of a record. -ENOMEM: *out is unknown.
static int value_from_record(struct inventory *inv, const struct frame_record *r, struct sv strings,
                             struct inventory_value *out)
{
    *out = (struct inventory_value){
        .taken_ns = r->taken_ns, .status = r->status, .type = FRAME_VALUE_NONE};
    if (r->status != FRAME_OK) {
        out->value.i64 = r->value.i64; // a vendor's code
        return 0;
    }
    switch ((enum frame_value_type)r->type) {
    case FRAME_VALUE_I64:
        out->value.i64 = r->value.i64;
        break;
    case FRAME_VALUE_DOUBLE:
        if (!isfinite(r->value.f64)) {
            out->status = FRAME_INVALID;
            return 0;
        }
        out->value.f64 = r->value.f64;
        break;
    case FRAME_VALUE_STRING: {
        uint64_t packed = (uint64_t)r->value.i64;
        struct sv text = sv_sub(strings, (size_t)(packed >> 32), (size_t)(packed & UINT32_MAX));
        int e = text_new(inv, text, &out->value.string);
        if (e < 0 || !out->value.string) {
            *out = INVENTORY_VALUE_UNKNOWN;
            return e;
        }
        break;
    }
    case FRAME_VALUE_NONE:
    case FRAME_VALUE_TYPE_END:
        out->status = FRAME_INVALID;
        return 0;
    }
    out->type = r->type;
    return 0;
}

static int store_record(struct inventory *inv, struct inventory_entity *e, size_t field,
                        const struct frame_record *r, struct sv strings)
{
    struct inventory_value *v = &e->values[field];
    if (inv->labels[field] && r->status == FRAME_LOST && v->type != FRAME_VALUE_NONE)
        return 0; // a lost GPU keeps its labels
    struct inventory_value next;
    int err = value_from_record(inv, r, strings, &next);
    bool shows =
        inv->labels[field] || v->type == FRAME_VALUE_STRING || next.type == FRAME_VALUE_STRING;
    if (shows && !value_equals(v, &next))
        inv->layout++;
    value_clear(inv, v);
    *v = next;
    return err;
}

static void note_last_xid(struct inventory *inv, struct inventory_entity *e, uint32_t code,
                          uint64_t taken_ns)
{
    if (e->last_xid != (int64_t)code)
        inv->layout++; // it stands in labels
    e->last_xid = code;
    e->last_xid_value = (struct inventory_value){
        .taken_ns = taken_ns, .status = FRAME_OK, .type = FRAME_VALUE_I64, .value.i64 = code};
}

// A source that tells of XIDs by the field alone: the code is remembered, but nothing can be
// counted. A board's field repeats what an event told of one of its instances: that is known.
static void note_xid_record(struct inventory *inv, struct inventory_entity *e,
                            const struct frame_record *r)
{
    bool code = inventory_is_of_gpu(e) && r->status == FRAME_OK && r->type == FRAME_VALUE_I64 &&
                r->value.i64 > 0 && r->value.i64 <= UINT32_MAX;
    const struct inventory_value *known = inventory_last_xid_find(inv, e);
    if (!code || (known && (r->value.i64 == known->value.i64 || r->taken_ns < known->taken_ns)))
        return;
    note_last_xid(inv, e, (uint32_t)r->value.i64, r->taken_ns);
}

size_t inventory_listed_place(const struct inventory *inv, uint32_t listed)
{
    if (listed >= inv->map_count || inv->map[listed] == INVENTORY_NONE)
        return SIZE_MAX;
    return inv->map[listed];
}

static struct inventory_entity *entity_of(const struct inventory *inv, uint32_t listed)
{
    size_t place = inventory_listed_place(inv, listed);
    return place == SIZE_MAX ? NULL : &inv->entities[place];
}

static int apply_records(struct inventory *inv, const struct frame *frame)
{
    int result = 0;
    size_t field = SIZE_MAX;
    for (uint32_t i = 0; i < frame->as.sample.head->count; i++) {
        const struct frame_record *r = &frame->as.sample.list[i];
        struct inventory_entity *e = entity_of(inv, r->entity);
        if (!e)
            continue;
        field++; // records mostly come in field order
        if (field >= inv->field_count || inv->fields[field] != r->field)
            field = inventory_field_index(inv, r->field);
        if (r->field == FIELD_XID_ERRORS)
            note_xid_record(inv, e, r);
        if (field == SIZE_MAX)
            continue;
        int err = store_record(inv, e, field, r, frame->as.sample.strings);
        if (err < 0)
            result = err;
    }
    return result;
}

static int apply_sample(struct inventory *inv, const struct frame *frame)
{
    const struct frame_sample *head = frame->as.sample.head;
    if (head->generation != inv->generation || head->watch_id != inv->watch_id)
        return 0;
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++) {
        if (head->classes & (1u << c))
            inv->last_sample_ns[c] = head->ended_ns;
    }
    inv->last_duration_ns =
        head->ended_ns > head->started_ns ? head->ended_ns - head->started_ns : 0;
    inv->samples++;
    if (inv->stale) {
        inv->stale = false;
        inventory_refresh(inv);
    }
    return apply_records(inv, frame);
}

// --- XIDs ---

// The row of a code, made if need be. NULL with *err -ENOMEM, or 0 at the ceiling.
static struct inventory_xid *xid_get(struct inventory *inv, struct inventory_entity *e,
                                     uint32_t code, int *err)
{
    size_t at = 0;
    while (at < e->xid_count && e->xids[at].code < code)
        at++;
    if (at < e->xid_count && e->xids[at].code == code)
        return &e->xids[at];
    if (e->xid_count >= LIMIT_XID_CODES) {
        inv->dropped++;
        return NULL;
    }
    struct inventory_xid *grown = realloc(e->xids, (e->xid_count + 1) * sizeof(grown[0]));
    if (!grown) {
        *err = -ENOMEM;
        return NULL;
    }
    e->xids = grown;
    memmove(&grown[at + 1], &grown[at], (e->xid_count - at) * sizeof(grown[0]));
    grown[at] = (struct inventory_xid){.code = code};
    e->xid_count++;
    inv->layout++;
    return &grown[at];
}

// An event belongs to the instance it names, else to the GPU: to one of them, so that sums count it
// once.
static struct inventory_entity *event_entity(const struct inventory *inv,
                                             const struct frame_event *event)
{
    struct inventory_entity *gpu = entity_of(inv, event->entity);
    if (!gpu || event->gpu_instance_id == UINT32_MAX || gpu->info.kind != FRAME_ENTITY_GPU)
        return gpu;
    for (struct inventory_entity *e = gpu + 1; e < inv->entities + inv->entity_count; e++) {
        if (e->info.kind != FRAME_ENTITY_GPU_I && e->info.kind != FRAME_ENTITY_GPU_CI)
            break;
        if (e->info.kind == FRAME_ENTITY_GPU_I && e->info.gpu_instance_id == event->gpu_instance_id)
            return e;
    }
    return gpu;
}

const struct inventory_entity *inventory_event_entity(const struct inventory *inv,
                                                      const struct frame *events, uint32_t at)
{
    if (events->as.events.head->generation != inv->generation)
        return NULL;
    return event_entity(inv, &events->as.events.list[at]);
}

static int apply_events(struct inventory *inv, const struct frame *frame)
{
    if (frame->as.events.head->generation != inv->generation)
        return 0;
    int result = 0;
    for (uint32_t i = 0; i < frame->as.events.head->count; i++) {
        const struct frame_event *event = &frame->as.events.list[i];
        struct inventory_entity *e = event_entity(inv, event);
        if (!e)
            continue;
        struct inventory_xid *xid = xid_get(inv, e, event->xid, &result);
        uint64_t count = (uint64_t)event->repeats + 1;
        if (xid) {
            xid->count += count;
            xid->last_wall_ns = event->wall_ns;
        }
        note_last_xid(inv, e, event->xid, event->taken_ns);
    }
    return result;
}

// --- Frames ---

// No value is shown any more, and each says why. A label that is known stays.
static void end_values(struct inventory *inv)
{
    for (size_t i = 0; i < inv->entity_count; i++) {
        for (size_t f = 0; f < inv->field_count; f++) {
            struct inventory_value *v = &inv->entities[i].values[f];
            if (inv->labels[f] && v->type != FRAME_VALUE_NONE)
                continue;
            value_clear(inv, v);
            v->status = FRAME_NOT_CONNECTED;
        }
    }
    inv->layout++;
}

static void apply_state(struct inventory *inv, const struct frame_state *state)
{
    bool connects = inv->disconnected && state->code == FRAME_STATE_READY;
    if (!connects && inv->state_known && memcmp(&inv->state, state, sizeof(*state)) == 0)
        return;
    if (connects)
        inv->disconnected = false;
    inv->state = *state;
    inv->state_known = true;
    inv->layout++;
    inventory_refresh(inv);
    if (state->code != FRAME_STATE_READY)
        inventory_tables_clear(inv);
    if (inv->ends_at_once && state->code != FRAME_STATE_READY)
        end_values(inv);
}

int inventory_apply(struct inventory *inv, const struct frame *frame)
{
    switch (frame->type) {
    case FRAME_STATE:
        apply_state(inv, frame->as.state);
        return 0;
    case FRAME_ENTITIES:
        return inventory_apply_entities(inv, frame);
    case FRAME_SAMPLE:
        return apply_sample(inv, frame);
    case FRAME_EVENTS:
        return apply_events(inv, frame);
    case FRAME_HEALTH:
        return inventory_apply_health(inv, frame);
    case FRAME_PEERS:
        return inventory_apply_peers(inv, frame);
    case FRAME_HELLO:
    case FRAME_WATCH:
    case FRAME_CONTROL:
    case FRAME_CONTROL_DONE:
    case FRAME_USAGE: // the ledger's
    case FRAME_TYPE_END:
        break;
    }
    return 0;
}

static void nobody_listens(struct inventory *inv)
{
    if (!inv->state.xid_events_armed && !inv->state.kmsg_armed)
        return;
    inv->state.xid_events_armed = 0;
    inv->state.kmsg_armed = 0;
    inv->layout++;
}

void inventory_mark_down(struct inventory *inv, uint32_t index, const char *reason)
{
    for (size_t i = 0; i < inv->entity_count; i++) {
        struct inventory_entity *e = &inv->entities[i];
        bool is_gpu = e->info.kind == FRAME_ENTITY_GPU;
        if (index == UINT32_MAX || (is_gpu && e->present && e->info.index == index))
            e->mark = reason; // of parts without effect
    }
    if (index == UINT32_MAX) {
        nobody_listens(inv);
        inventory_tables_clear(inv);
    }
    inventory_refresh(inv);
}

void inventory_disconnect(struct inventory *inv)
{
    inv->disconnected = true;
    nobody_listens(inv);
    inventory_tables_clear(inv);
    end_values(inv);
    inventory_refresh(inv);
}

void inventory_forget_absent(struct inventory *inv)
{
    inv->forget_absent = true;
}
