// SPDX-License-Identifier: Apache-2.0
// A stream of frames arriving in odd pieces. Byte 0: bit 0 puts a valid entity list before the
// input, so that samples and events get past their indices, bit 1 one with each kind of entity;
// byte 1: size of the pieces less one.
// The rest is the stream. Every frame that comes out is read to its last byte, so that a bad length
// is caught by the sanitizer, and held against its promises.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_text(const char *text, size_t bytes)
{
    check(memchr(text, 0, bytes) != NULL);
    check(sv_is_utf8(sv_from(text)));
}

static void check_parent(const struct frame_entity *list, uint32_t count, uint32_t self)
{
    static const unsigned parents[FRAME_ENTITY_KIND_END] = {
        [FRAME_ENTITY_GPU] = 1u << FRAME_ENTITY_GPU,
        [FRAME_ENTITY_GPU_I] = 1u << FRAME_ENTITY_GPU,
        [FRAME_ENTITY_GPU_CI] = 1u << FRAME_ENTITY_GPU_I,
        [FRAME_ENTITY_SWITCH] = 1u << FRAME_ENTITY_SWITCH,
        [FRAME_ENTITY_LINK] = 1u << FRAME_ENTITY_GPU | 1u << FRAME_ENTITY_SWITCH,
        [FRAME_ENTITY_CPU] = 1u << FRAME_ENTITY_CPU,
        [FRAME_ENTITY_CPU_CORE] = 1u << FRAME_ENTITY_CPU,
    };
    const struct frame_entity *e = &list[self];
    check(e->kind < FRAME_ENTITY_KIND_END && e->parent < count);
    check(parents[e->kind] >> list[e->parent].kind & 1);
    check(list[e->parent].kind != e->kind || e->parent == self);
}

static void check_entities(const struct frame *f)
{
    uint32_t count = f->as.entities.head->count;
    check(count <= LIMIT_ENTITIES);
    for (uint32_t i = 0; i < count; i++) {
        const struct frame_entity *e = &f->as.entities.list[i];
        check_parent(f->as.entities.list, count, i);
        check_text(e->uuid, sizeof(e->uuid));
        check_text(e->legacy_uuid, sizeof(e->legacy_uuid));
        check_text(e->name, sizeof(e->name));
        check_text(e->bus_id, sizeof(e->bus_id));
        check_text(e->profile, sizeof(e->profile));
    }
}

static void check_sample(const struct frame_reader *r, const struct frame *f)
{
    for (uint32_t i = 0; i < f->as.sample.head->count; i++) {
        const struct frame_record *rec = &f->as.sample.list[i];
        struct sv text;
        check(rec->entity < r->entity_count && rec->status < FRAME_STATUS_END);
        if (rec->type == FRAME_VALUE_STRING)
            check(frame_record_string(rec, f->as.sample.strings, &text) && sv_is_utf8(text));
    }
}

static void check_usage(const struct frame_reader *r, const struct frame *f)
{
    const struct frame_usage *head = f->as.usage.head;
    uint32_t spans = 0, shares = 0, processes = 0;
    for (uint32_t i = 0; i < head->count; i++) {
        const struct frame_usage_device *d = &f->as.usage.devices[i];
        check(d->entity < r->entity_count);
        spans += d->spans;
        shares += d->shares;
        processes += d->processes;
    }
    check(spans == head->spans && shares == head->shares && processes == head->processes);
    for (uint32_t i = 0; i < spans; i++)
        check(f->as.usage.spans[i].from_ns < f->as.usage.spans[i].to_ns &&
              f->as.usage.spans[i].ppm <= 1000000);
    for (uint32_t i = 0; i < processes; i++)
        check(f->as.usage.processes[i].kinds != 0);
}

static void check_frame(const struct frame_reader *r, const struct frame *f)
{
    switch (f->type) {
    case FRAME_HELLO:
        check(f->as.hello->protocol == FRAME_PROTOCOL);
        break;
    case FRAME_STATE:
        check_text(f->as.state->text, sizeof(f->as.state->text));
        check_text(f->as.state->library_path, sizeof(f->as.state->library_path));
        check_text(f->as.state->engine, sizeof(f->as.state->engine));
        break;
    case FRAME_ENTITIES:
        check_entities(f);
        break;
    case FRAME_SAMPLE:
        check_sample(r, f);
        break;
    case FRAME_EVENTS:
        for (uint32_t i = 0; i < f->as.events.head->count; i++) {
            check(f->as.events.list[i].entity < r->entity_count);
            check_text(f->as.events.list[i].text, sizeof(f->as.events.list[i].text));
        }
        break;
    case FRAME_WATCH:
        for (uint32_t i = 1; i < f->as.watch.head->count; i++)
            check(f->as.watch.field_ids[i] > f->as.watch.field_ids[i - 1]);
        break;
    case FRAME_HEALTH:
        check(f->as.health.head->count <= LIMIT_VERDICTS);
        for (uint32_t i = 0; i < f->as.health.head->count; i++) {
            const struct frame_verdict *v = &f->as.health.list[i];
            check(v->entity < r->entity_count && v->system && (v->result == 10 || v->result == 20));
        }
        break;
    case FRAME_PEERS:
        for (uint32_t i = 0; i < f->as.peers.head->count; i++)
            check(f->as.peers.list[i].entity < r->entity_count &&
                  f->as.peers.list[i].peer < r->entity_count);
        break;
    case FRAME_USAGE:
        check_usage(r, f);
        break;
    case FRAME_CONTROL:
        check(f->as.control->command && f->as.control->command < FRAME_COMMAND_END);
        break;
    case FRAME_CONTROL_DONE:
        check_text(f->as.control_done->text, sizeof(f->as.control_done->text));
        break;
    case FRAME_TYPE_END:
        abort();
    }
}

static struct frame_entity entity(enum frame_entity_kind kind, uint32_t parent, uint32_t id)
{
    bool of_gpu = parent < 3;
    return (struct frame_entity){
        .kind = (uint8_t)kind,
        .index = of_gpu ? 0 : UINT32_MAX,
        .parent = parent,
        .gpu_instance_id = UINT32_MAX,
        .instance_entity_id = UINT32_MAX,
        .id = id,
    };
}

// A GPU and its instance, or each kind of entity.
static void put_entities(struct buf *wire, bool all)
{
    struct frame_entities head = {.generation = 1, .count = all ? 9 : 2};
    struct frame_entity list[9] = {
        entity(FRAME_ENTITY_GPU, 0, UINT32_MAX), entity(FRAME_ENTITY_GPU_I, 0, UINT32_MAX),
        entity(FRAME_ENTITY_GPU_CI, 1, 0),       entity(FRAME_ENTITY_SWITCH, 3, 0),
        entity(FRAME_ENTITY_LINK, 0, 0),         entity(FRAME_ENTITY_LINK, 3, 0),
        entity(FRAME_ENTITY_CPU, 6, 0),          entity(FRAME_ENTITY_CPU_CORE, 6, 0),
        entity(FRAME_ENTITY_CPU_CORE, 6, 1),
    };
    list[1].instance_entity_id = 0;
    list[1].slices = 1;
    list[1].total_slices = 7;
    list[1].gpu_instance_id = list[2].gpu_instance_id = 3;
    size_t start = frame_begin(wire, FRAME_ENTITIES);
    buf_add(wire, &head, sizeof(head));
    buf_add(wire, list, head.count * sizeof(list[0]));
    frame_end(wire, start);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct buf wire = BUF_INIT((1u << 20) + 8192);
    if (data[0] & 3)
        put_entities(&wire, data[0] & 2);
    buf_add(&wire, data + 2, size - 2);
    struct frame_reader reader;
    frame_reader_init(&reader);
    int rc = 0;
    unsigned frames = 0;
    for (size_t at = 0; rc == 0 && at < wire.len;) {
        char *space;
        size_t room;
        check(frame_reader_space(&reader, &space, &room) == 0 && room >= 4096);
        size_t piece = (size_t)data[1] + 1;
        piece = piece < room ? piece : room;
        piece = piece < wire.len - at ? piece : wire.len - at;
        memcpy(space, wire.data + at, piece);
        frame_reader_commit(&reader, piece);
        at += piece;
        struct frame frame;
        const char *what = NULL;
        while ((rc = frame_reader_next(&reader, &frame, &what)) == 1) {
            check_frame(&reader, &frame);
            frames++;
        }
        check(rc == 0 || what);
    }
    check(!(data[0] & 3) || frames > 0); // the list at least
    check(reader.input.cap <= 2 * (wire.len + 8192));
    frame_reader_deinit(&reader);
    buf_deinit(&wire);
    return 0;
}
