// SPDX-License-Identifier: Apache-2.0
// How it works: the reader keeps one buffer whose front is always the start of a frame, so every
// struct in a frame lies aligned as malloc gave it (the header is 8 bytes). The frame handed out
// last is dropped at the next frame_reader_next, which moves what is behind it to the front;
// frame_reader_space never offers more than a page beyond the announced frame, so that move stays
// small and memory follows what was really sent. Checks come first and alone: a frame is handed out
// only when every count, index, enum and flag in it holds.
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "gpu/catalogue.h"
#include "gpu/frame_internal.h"

#define READ_BYTES 4096u

_Static_assert(sizeof(struct frame_header) == 8, "payload must stay 8-byte aligned");
_Static_assert(sizeof(struct frame_entities) % _Alignof(struct frame_entity) == 0,
               "list follows head");
_Static_assert(sizeof(struct frame_sample) % _Alignof(struct frame_record) == 0,
               "list follows head");
_Static_assert(sizeof(struct frame_events) % _Alignof(struct frame_event) == 0,
               "list follows head");
_Static_assert(sizeof(struct frame_record) == 24, "no padding: LIMIT_FRAME_BYTES counts on it");
_Static_assert(sizeof(struct frame_call_page) <= FRAME_CALL_PAGE_BYTES, "the shared page holds it");

// --- writing ---

size_t frame_begin(struct buf *b, enum frame_type type)
{
    size_t start = b->len;
    struct frame_header header = {.type = (uint16_t)type, .protocol = FRAME_PROTOCOL};
    buf_add(b, &header, sizeof(header));
    return start;
}

void frame_end(struct buf *b, size_t start)
{
    if (b->error)
        return;
    assert(b->len - start >= sizeof(struct frame_header));
    size_t bytes = b->len - start - sizeof(struct frame_header);
    if (bytes > LIMIT_FRAME_BYTES) {
        b->error = -EFBIG;
        return;
    }
    uint32_t announced = (uint32_t)bytes;
    memcpy(b->data + start + offsetof(struct frame_header, bytes), &announced, sizeof(announced));
}

// --- text ---

// Each byte that is no part of UTF-8 text, and each NUL, becomes '?'. True when there was one.
static bool sanitise(char *text, size_t len)
{
    bool changed = false;
    for (size_t i = 0; i < len;) {
        size_t step = text[i] ? sv_utf8_length((struct sv){text + i, len - i}) : 0;
        if (!step) {
            text[i] = '?';
            step = 1;
            changed = true;
        }
        i += step;
    }
    return changed;
}

static void sanitise_array(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    (void)sanitise(text, strlen(text));
}

#define SANITISE(array) sanitise_array((array), sizeof(array))

// --- checks: each returns NULL, or the static name of what is wrong ---

// True when bytes is head + count * each + rest, without overflow.
static bool adds_up(size_t bytes, size_t head, uint64_t count, size_t each, uint64_t rest)
{
    if (bytes < head)
        return false;
    uint64_t left = bytes - head;
    return rest <= left && count <= (left - rest) / each && count * each == left - rest;
}

static const char *check_hello(const struct frame_hello *h, size_t bytes)
{
    if (bytes != sizeof(*h))
        return "hello: length";
    if (h->protocol != FRAME_PROTOCOL)
        return "hello: protocol";
    if (h->source != FRAME_SOURCE_NVML && h->source != FRAME_SOURCE_DCGM)
        return "hello: source";
    return h->pid > 0 ? NULL : "hello: pid";
}

static const char *check_state(struct frame_state *s, size_t bytes)
{
    if (bytes != sizeof(*s))
        return "state: length";
    if (s->code >= FRAME_STATE_END)
        return "state: code";
    if (s->xid_events_armed > 1 || s->kmsg_armed > 1 || s->paused > 1)
        return "state: flag";
    SANITISE(s->engine);
    SANITISE(s->text);
    SANITISE(s->driver_version);
    SANITISE(s->library_version);
    SANITISE(s->library_path);
    return NULL;
}

static const char *check_gpu(const struct frame_entity *e, size_t self, uint64_t *seen)
{
    if (e->parent != self)
        return "entities: parent of a GPU";
    if (e->gpu_instance_id != UINT32_MAX || e->instance_entity_id != UINT32_MAX ||
        e->id != UINT32_MAX || e->slices)
        return "entities: a GPU with instance ids";
    if (e->index >= LIMIT_GPUS || (*seen >> e->index & 1))
        return "entities: index of a GPU";
    *seen |= UINT64_C(1) << e->index;
    return NULL;
}

static const char *check_instance(const struct frame_entity *list, size_t self)
{
    const struct frame_entity *e = &list[self];
    if (e->parent >= self || list[e->parent].kind != FRAME_ENTITY_GPU ||
        list[e->parent].index != e->index)
        return "entities: parent of an instance";
    if (e->gpu_instance_id == UINT32_MAX || e->instance_entity_id == UINT32_MAX ||
        e->id != UINT32_MAX)
        return "entities: instance ids";
    if (e->slices > e->total_slices)
        return "entities: slices";
    for (size_t i = 0; i < self; i++) {
        bool same_instance =
            list[i].index == e->index && list[i].gpu_instance_id == e->gpu_instance_id;
        if (list[i].kind == FRAME_ENTITY_GPU_I &&
            (same_instance || list[i].instance_entity_id == e->instance_entity_id))
            return "entities: an instance twice";
    }
    return NULL;
}

// True when a part hangs on what it can hang on, and has that one's index.
static bool fits_parent(const struct frame_entity *e, const struct frame_entity *parent)
{
    switch ((enum frame_entity_kind)e->kind) {
    case FRAME_ENTITY_GPU_CI:
        return parent->kind == FRAME_ENTITY_GPU_I &&
               e->gpu_instance_id == parent->gpu_instance_id && e->index == parent->index;
    case FRAME_ENTITY_LINK:
        // A switch has no index, nor have its links.
        return (parent->kind == FRAME_ENTITY_GPU || parent->kind == FRAME_ENTITY_SWITCH) &&
               e->index == parent->index;
    case FRAME_ENTITY_CPU_CORE:
        return parent->kind == FRAME_ENTITY_CPU && e->index == UINT32_MAX;
    case FRAME_ENTITY_GPU:
    case FRAME_ENTITY_GPU_I:
    case FRAME_ENTITY_SWITCH:
    case FRAME_ENTITY_CPU:
    case FRAME_ENTITY_KIND_END:
        break;
    }
    return false;
}

// Compute instances, switches, links, CPUs and cores.
static const char *check_part(const struct frame_entity *list, size_t self)
{
    const struct frame_entity *e = &list[self];
    bool alone = e->kind == FRAME_ENTITY_SWITCH || e->kind == FRAME_ENTITY_CPU;
    if (e->id == UINT32_MAX || e->instance_entity_id != UINT32_MAX || e->slices || e->mig_enabled)
        return "entities: ids of a part";
    if ((e->gpu_instance_id != UINT32_MAX) != (e->kind == FRAME_ENTITY_GPU_CI))
        return "entities: instance id of a part";
    if (alone ? e->parent != self || e->index != UINT32_MAX
              : e->parent >= self || !fits_parent(e, &list[e->parent]))
        return "entities: parent of a part";
    for (size_t i = alone ? 0 : e->parent + 1; i < self; i++)
        if (list[i].kind == e->kind && list[i].id == e->id &&
            (alone || list[i].parent == e->parent))
            return "entities: a part twice";
    return NULL;
}

static const char *check_entity(struct frame_entity *list, size_t self, uint64_t *seen)
{
    struct frame_entity *e = &list[self];
    if (!e->kind || e->kind >= FRAME_ENTITY_KIND_END)
        return "entities: kind";
    if (e->state >= FRAME_ENTITY_STATE_END)
        return "entities: state";
    if (e->mig_enabled > 1 || e->gpm > 1)
        return "entities: flag";
    SANITISE(e->uuid);
    SANITISE(e->legacy_uuid);
    SANITISE(e->name);
    SANITISE(e->bus_id);
    SANITISE(e->profile);
    if (e->kind == FRAME_ENTITY_GPU)
        return check_gpu(e, self, seen);
    return e->kind == FRAME_ENTITY_GPU_I ? check_instance(list, self) : check_part(list, self);
}

static const char *check_entities(struct frame_reader *r, struct frame_entities *head, size_t bytes)
{
    _Static_assert(LIMIT_GPUS <= 64, "one bit a GPU");
    if (bytes < sizeof(*head) ||
        !adds_up(bytes, sizeof(*head), head->count, sizeof(struct frame_entity), 0))
        return "entities: length";
    if (head->count > LIMIT_ENTITIES)
        return "entities: count";
    struct frame_entity *list = (struct frame_entity *)(head + 1);
    uint64_t seen = 0, gpus[ARRAY_SIZE(r->gpu_bits)] = {0};
    for (size_t i = 0; i < head->count; i++) {
        const char *wrong = check_entity(list, i, &seen);
        if (wrong)
            return wrong;
        if (list[i].kind == FRAME_ENTITY_GPU)
            gpus[i / 64] |= UINT64_C(1) << i % 64;
    }
    memcpy(r->gpu_bits, gpus, sizeof(gpus));
    r->entity_count = head->count;
    r->generation = head->generation;
    return NULL;
}

static const char *check_record(struct frame_record *rec, uint32_t entity_count, struct sv strings,
                                bool *changed)
{
    if (rec->entity >= entity_count)
        return "sample: entity";
    if (rec->status >= FRAME_STATUS_END)
        return "sample: status";
    if (rec->type >= FRAME_VALUE_TYPE_END ||
        (rec->status == FRAME_OK) != (rec->type != FRAME_VALUE_NONE))
        return "sample: value type";
    if (rec->type == FRAME_VALUE_DOUBLE && !isfinite(rec->value.f64)) {
        rec->status = FRAME_INVALID;
        rec->type = FRAME_VALUE_NONE;
        rec->value.i64 = 0;
    }
    if (rec->type == FRAME_VALUE_STRING) {
        struct sv s;
        if (!frame_record_string(rec, strings, &s))
            return "sample: string";
        *changed |= sanitise((char *)s.ptr, s.len);
    }
    return NULL;
}

static const char *check_records(struct frame_record *list, uint32_t count, uint32_t entity_count,
                                 struct sv strings)
{
    bool changed = false;
    for (size_t i = 0; i < count; i++) {
        const char *wrong = check_record(&list[i], entity_count, strings, &changed);
        if (wrong)
            return wrong;
    }
    // Mending one string may have cut a character of another that overlaps it: only a broken writer
    // overlaps them.
    for (size_t i = 0; changed && i < count; i++) {
        struct sv s;
        if (list[i].type == FRAME_VALUE_STRING &&
            (!frame_record_string(&list[i], strings, &s) || !sv_is_utf8(s)))
            return "sample: strings overlap";
    }
    return NULL;
}

static const char *check_sample(const struct frame_reader *r, struct frame_sample *head,
                                size_t bytes)
{
    if (bytes < sizeof(*head) || !adds_up(bytes, sizeof(*head), head->count,
                                          sizeof(struct frame_record), head->string_bytes))
        return "sample: length";
    if (head->classes >> FIELD_CLASS_COUNT)
        return "sample: classes";
    if (head->started_ns > head->ended_ns)
        return "sample: ends before it starts";
    if (head->generation != r->generation) {
        head->count = 0;
        head->string_bytes = 0;
        return NULL;
    }
    struct frame_record *list = (struct frame_record *)(head + 1);
    struct sv strings = {(const char *)(list + head->count), head->string_bytes};
    return check_records(list, head->count, r->entity_count, strings);
}

static bool is_gpu(const struct frame_reader *r, uint32_t entity)
{
    return entity < r->entity_count && (r->gpu_bits[entity / 64] >> entity % 64 & 1);
}

static const char *check_events(const struct frame_reader *r, struct frame_events *head,
                                size_t bytes)
{
    if (bytes < sizeof(*head) ||
        !adds_up(bytes, sizeof(*head), head->count, sizeof(struct frame_event), 0))
        return "events: length";
    if (head->generation != r->generation) {
        head->count = 0;
        return NULL;
    }
    struct frame_event *list = (struct frame_event *)(head + 1);
    for (size_t i = 0; i < head->count; i++) {
        if (!is_gpu(r, list[i].entity))
            return "events: entity";
        if (!list[i].origin || list[i].origin >= FRAME_EVENT_ORIGIN_END)
            return "events: origin";
        SANITISE(list[i].text);
    }
    return NULL;
}

static const char *check_health(const struct frame_reader *r, struct frame_health *head,
                                size_t bytes)
{
    if (bytes < sizeof(*head) || head->count > LIMIT_VERDICTS ||
        !adds_up(bytes, sizeof(*head), head->count, sizeof(struct frame_verdict), 0))
        return "health: length";
    if (head->generation != r->generation) {
        head->count = 0;
        return NULL;
    }
    const struct frame_verdict *list = (const struct frame_verdict *)(head + 1);
    for (size_t i = 0; i < head->count; i++) {
        uint32_t system = list[i].system;
        if (!is_gpu(r, list[i].entity))
            return "health: entity";
        if (system != UINT32_MAX && (!system || system & (system - 1)))
            return "health: system";
        if (list[i].result != 10 && list[i].result != 20)
            return "health: result";
    }
    return NULL;
}

static const char *check_peers(const struct frame_reader *r, struct frame_peers *head, size_t bytes)
{
    if (bytes < sizeof(*head) || head->count > LIMIT_GPUS * LIMIT_GPUS ||
        !adds_up(bytes, sizeof(*head), head->count, sizeof(struct frame_peer), 0))
        return "peers: length";
    if (head->generation != r->generation) {
        head->count = 0;
        return NULL;
    }
    const struct frame_peer *list = (const struct frame_peer *)(head + 1);
    for (size_t i = 0; i < head->count; i++)
        if (!is_gpu(r, list[i].entity) || !is_gpu(r, list[i].peer))
            return "peers: entity";
    return NULL;
}

// Of another list: nothing of it.
static const char *check_usage(const struct frame_reader *r, struct frame_usage *head, size_t bytes)
{
    const char *wrong = frame_usage_check(
        head, bytes,
        bytes >= sizeof(*head) && head->generation == r->generation ? r->entity_count
                                                                    : LIMIT_ENTITIES);
    if (!wrong && head->generation != r->generation)
        head->count = head->spans = head->shares = head->processes = 0;
    return wrong;
}

static const char *check_control(const struct frame_control *c, size_t bytes)
{
    if (bytes != sizeof(*c))
        return "control: length";
    return c->command && c->command < FRAME_COMMAND_END ? NULL : "control: command";
}

static const char *check_control_done(struct frame_control_done *d, size_t bytes)
{
    if (bytes != sizeof(*d))
        return "control done: length";
    SANITISE(d->text);
    return NULL;
}

static const char *check_watch(const struct frame_watch *head, size_t bytes)
{
    if (bytes < sizeof(*head) || !adds_up(bytes, sizeof(*head), head->count, sizeof(uint16_t), 0))
        return "watch: length";
    _Static_assert(ARRAY_SIZE(head->period_ns) == FIELD_CLASS_COUNT, "a period for each class");
    for (size_t i = 0; i < ARRAY_SIZE(head->period_ns); i++)
        if (head->period_ns[i] < NS_PER_MS)
            return "watch: period";
    const uint16_t *ids = (const uint16_t *)(head + 1);
    for (size_t i = 1; i < head->count; i++)
        if (ids[i] <= ids[i - 1])
            return "watch: field ids";
    return NULL;
}

// Checks the payload and points *out into it.
static const char *open_payload(struct frame_reader *r, char *payload, size_t bytes,
                                struct frame *out)
{
    void *p = payload;
    const char *wrong = "type";
    switch (out->type) {
    case FRAME_HELLO:
        out->as.hello = p;
        return check_hello(p, bytes);
    case FRAME_STATE:
        out->as.state = p;
        return check_state(p, bytes);
    case FRAME_ENTITIES:
        out->as.entities.head = p;
        out->as.entities.list = (const struct frame_entity *)(out->as.entities.head + 1);
        return check_entities(r, p, bytes);
    case FRAME_SAMPLE:
        wrong = check_sample(r, p, bytes);
        out->as.sample.head = p;
        out->as.sample.list = (const struct frame_record *)(out->as.sample.head + 1);
        if (!wrong)
            out->as.sample.strings = (struct sv){
                (const char *)(out->as.sample.list + out->as.sample.head->count),
                out->as.sample.head->string_bytes,
            };
        return wrong;
    case FRAME_EVENTS:
        out->as.events.head = p;
        out->as.events.list = (const struct frame_event *)(out->as.events.head + 1);
        return check_events(r, p, bytes);
    case FRAME_WATCH:
        out->as.watch.head = p;
        out->as.watch.field_ids = (const uint16_t *)(out->as.watch.head + 1);
        return check_watch(p, bytes);
    case FRAME_HEALTH:
        out->as.health.head = p;
        out->as.health.list = (const struct frame_verdict *)(out->as.health.head + 1);
        return check_health(r, p, bytes);
    case FRAME_PEERS:
        out->as.peers.head = p;
        out->as.peers.list = (const struct frame_peer *)(out->as.peers.head + 1);
        return check_peers(r, p, bytes);
    case FRAME_CONTROL:
        out->as.control = p;
        return check_control(p, bytes);
    case FRAME_USAGE:
        wrong = check_usage(r, p, bytes);
        if (!wrong)
            frame_usage_open(p, out);
        return wrong;
    case FRAME_CONTROL_DONE:
        out->as.control_done = p;
        return check_control_done(p, bytes);
    case FRAME_TYPE_END:
        break;
    }
    return wrong;
}

// --- reading ---

void frame_reader_init(struct frame_reader *r)
{
    *r = (struct frame_reader){
        .input = BUF_INIT(LIMIT_FRAME_BYTES + sizeof(struct frame_header) + READ_BYTES),
    };
}

void frame_reader_deinit(struct frame_reader *r)
{
    buf_deinit(&r->input);
}

static void drop_consumed(struct frame_reader *r)
{
    if (r->consumed)
        buf_consume(&r->input, r->consumed);
    r->consumed = 0;
}

int frame_reader_space(struct frame_reader *r, char **out_space, size_t *out_bytes)
{
    drop_consumed(r);
    size_t want = READ_BYTES;
    struct frame_header header;
    if (r->input.len >= sizeof(header)) {
        memcpy(&header, r->input.data, sizeof(header));
        size_t whole = sizeof(header) + header.bytes;
        size_t missing = whole > r->input.len ? whole - r->input.len : 0;
        // At most as much again as has come: an announced length alone allocates nothing.
        if (missing > want)
            want = missing < r->input.len ? missing : r->input.len > want ? r->input.len : want;
    }
    int rc = buf_reserve(&r->input, want);
    if (rc < 0)
        return -ENOMEM; // only a failed reader, which must not be fed, meets the ceiling
    *out_space = r->input.data + r->input.len;
    *out_bytes = want;
    return 0;
}

void frame_reader_commit(struct frame_reader *r, size_t bytes)
{
    assert(bytes <= r->input.cap - r->input.len);
    r->input.len += bytes;
}

static int fail(struct frame_reader *r, int code, const char **what, const char *text)
{
    r->failed = code;
    *what = text;
    return code;
}

int frame_reader_next(struct frame_reader *r, struct frame *out, const char **what)
{
    if (r->failed)
        return fail(r, r->failed, what, "stream has failed before");
    drop_consumed(r);
    struct frame_header header;
    if (r->input.len < sizeof(header))
        return 0;
    memcpy(&header, r->input.data, sizeof(header));
    if (header.protocol != FRAME_PROTOCOL)
        return fail(r, -EPROTO, what, "protocol");
    if (!header.type || header.type >= FRAME_TYPE_END)
        return fail(r, -EPROTO, what, "type");
    if (header.bytes > LIMIT_FRAME_BYTES)
        return fail(r, -EFBIG, what, "length");
    if (r->input.len - sizeof(header) < header.bytes)
        return 0;
    struct frame frame = {.type = header.type};
    const char *wrong = open_payload(r, r->input.data + sizeof(header), header.bytes, &frame);
    if (wrong)
        return fail(r, -EPROTO, what, wrong);
    r->consumed = sizeof(header) + header.bytes;
    *out = frame;
    return 1;
}

bool frame_record_string(const struct frame_record *rec, struct sv strings, struct sv *out)
{
    if (rec->type != FRAME_VALUE_STRING)
        return false;
    size_t offset = (uint64_t)rec->value.i64 >> 32, len = (uint32_t)rec->value.i64;
    if (offset > strings.len || len > strings.len - offset)
        return false;
    *out = (struct sv){strings.ptr + offset, len};
    return true;
}

// --- names ---

const char *frame_status_text(enum frame_status status)
{
    switch (status) {
    case FRAME_OK:
        return "ok";
    case FRAME_NO_DATA:
        return "no_data";
    case FRAME_NOT_SUPPORTED:
        return "not_supported";
    case FRAME_NO_SYMBOL:
        return "no_symbol";
    case FRAME_NO_PERMISSION:
        return "no_permission";
    case FRAME_NEEDS_DCGM:
        return "needs_dcgm";
    case FRAME_NEEDS_GPM:
        return "needs_gpm";
    case FRAME_LOST:
        return "lost";
    case FRAME_VENDOR_ERROR:
        return "vendor_error";
    case FRAME_INVALID:
        return "invalid";
    case FRAME_AVOIDED:
        return "avoided";
    case FRAME_NOT_CONNECTED:
        return "not_connected";
    case FRAME_IN_USE:
        return "in_use";
    case FRAME_PAUSED:
        return "paused";
    case FRAME_STATUS_END:
        break;
    }
    return "unknown";
}

const char *frame_state_text(enum frame_state_code code)
{
    switch (code) {
    case FRAME_STATE_READY:
        return "ready";
    case FRAME_STATE_NO_LIBRARY:
        return "no_library";
    case FRAME_STATE_NO_DRIVER:
        return "no_driver";
    case FRAME_STATE_NO_PERMISSION:
        return "no_permission";
    case FRAME_STATE_MISMATCH:
        return "mismatch";
    case FRAME_STATE_FAILED:
        return "failed";
    case FRAME_STATE_END:
        break;
    }
    return "unknown";
}

const char *frame_entity_state_text(enum frame_entity_state state)
{
    switch (state) {
    case FRAME_ENTITY_UP:
        return "up";
    case FRAME_ENTITY_LOST:
        return "lost";
    case FRAME_ENTITY_RESET_REQUIRED:
        return "reset_required";
    case FRAME_ENTITY_NO_PERMISSION:
        return "no_permission";
    case FRAME_ENTITY_SKIPPED:
        return "skipped";
    case FRAME_ENTITY_FAILED:
        return "failed";
    case FRAME_ENTITY_STATE_END:
        break;
    }
    return "unknown";
}
