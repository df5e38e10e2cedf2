// SPDX-License-Identifier: Apache-2.0
// The entity list is sent under the board's lock, so that an event of the other thread can't name
// an entity of a list that is not out yet. Order of locks: board, then output.
#include "source/xid_board.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "source/kmsg.h"

void xid_board_init(struct xid_board *b, struct output *output)
{
    *b = (struct xid_board){.output = output, .frame = BUF_INIT(4096)};
    (void)pthread_mutex_init(&b->lock, NULL);
}

void xid_board_deinit(struct xid_board *b)
{
    free(b->rows);
    b->rows = NULL;
    buf_deinit(&b->frame);
    (void)pthread_mutex_destroy(&b->lock);
}

static uint32_t last_of(const struct xid_board *b, const struct xid_row *row)
{
    for (uint32_t i = 0; i < b->count; i++)
        if (b->rows[i].known && b->rows[i].bus_key == row->bus_key &&
            b->rows[i].gpu_instance_id == row->gpu_instance_id)
            return b->rows[i].last;
    return 0;
}

static int take_list(struct xid_board *b, const struct nvml_devices *d)
{
    struct xid_row *rows = calloc(d->count ? d->count : 1, sizeof(*rows));
    if (!rows)
        return -ENOMEM;
    for (uint32_t i = 0; i < d->count; i++) {
        const struct frame_entity *e = &d->list[i].record;
        rows[i].known = kmsg_bus_key_parse(sv_from(e->bus_id), &rows[i].bus_key);
        rows[i].gpu_instance_id = e->gpu_instance_id;
        rows[i].last = rows[i].known ? last_of(b, &rows[i]) : 0;
    }
    free(b->rows);
    b->rows = rows;
    b->count = d->count;
    b->generation = d->generation;
    return 0;
}

int xid_board_send_entities(struct xid_board *b, const struct nvml_devices *d,
                            const struct buf *frame)
{
    (void)pthread_mutex_lock(&b->lock);
    int rc = take_list(b, d);
    if (rc == 0)
        rc = output_send(b->output, FRAME_ENTITIES, frame);
    (void)pthread_mutex_unlock(&b->lock);
    return rc;
}

void xid_board_set_armed(struct xid_board *b, bool events_armed)
{
    (void)pthread_mutex_lock(&b->lock);
    b->events_armed = events_armed;
    (void)pthread_mutex_unlock(&b->lock);
}

static uint32_t find_gpu(const struct xid_board *b, uint64_t bus_key)
{
    for (uint32_t i = 0; i < b->count; i++)
        if (b->rows[i].known && b->rows[i].gpu_instance_id == UINT32_MAX &&
            b->rows[i].bus_key == bus_key)
            return i;
    return UINT32_MAX;
}

// What nobody in particular did concerns each instance of the board.
static void note_last(struct xid_board *b, uint32_t gpu, const struct xid_sighting *s)
{
    b->rows[gpu].last = s->xid;
    for (uint32_t i = gpu + 1; i < b->count && b->rows[i].gpu_instance_id != UINT32_MAX; i++)
        if (s->gpu_instance_id == UINT32_MAX || b->rows[i].gpu_instance_id == s->gpu_instance_id)
            b->rows[i].last = s->xid;
}

static int tell(struct xid_board *b, uint32_t gpu, const struct xid_sighting *s)
{
    if (gpu >= b->count)
        return 0; // a GPU we may not see
    note_last(b, gpu, s);
    struct frame_events head = {.generation = b->generation, .count = 1};
    struct frame_event event = {
        .entity = gpu,
        .origin = s->origin,
        .xid = s->xid,
        .gpu_instance_id = s->gpu_instance_id,
        .taken_ns = s->taken_ns,
        .wall_ns = s->wall_ns,
    };
    memcpy(event.text, s->text, sizeof(event.text));
    buf_reset(&b->frame);
    size_t start = frame_begin(&b->frame, FRAME_EVENTS);
    buf_add(&b->frame, &head, sizeof(head));
    buf_add(&b->frame, &event, sizeof(event));
    frame_end(&b->frame, start);
    return output_send(b->output, FRAME_EVENTS, &b->frame);
}

int xid_board_event(struct xid_board *b, uint32_t entity, uint32_t xid, uint32_t gpu_instance_id)
{
    struct xid_sighting event = {
        .xid = xid,
        .gpu_instance_id = gpu_instance_id,
        .origin = FRAME_EVENT_NVML,
        .taken_ns = clock_mono_ns(),
        .wall_ns = clock_wall_ns(),
    };
    struct xid_sighting whole;
    int rc = 0;
    (void)pthread_mutex_lock(&b->lock);
    if (entity < b->count && b->rows[entity].known) {
        event.bus_key = b->rows[entity].bus_key;
        xid_pairs_event(&b->pairs, &event, &whole);
        rc = tell(b, entity, &whole);
    } else {
        rc = tell(b, entity, &event);
    }
    (void)pthread_mutex_unlock(&b->lock);
    return rc;
}

int xid_board_line(struct xid_board *b, struct sv line)
{
    struct kmsg_xid parsed;
    if (!kmsg_parse(line, &parsed))
        return 0;
    struct xid_sighting sighting = {
        .bus_key = parsed.bus_key,
        .xid = parsed.xid,
        .gpu_instance_id = parsed.gpu_instance_id,
        .origin = FRAME_EVENT_KMSG,
        .taken_ns = clock_mono_ns(),
        .wall_ns = clock_wall_ns(),
    };
    memcpy(sighting.text, parsed.text, sizeof(sighting.text));
    struct xid_sighting now;
    (void)pthread_mutex_lock(&b->lock);
    int rc = xid_pairs_line(&b->pairs, &sighting, b->events_armed, &now)
                 ? tell(b, find_gpu(b, now.bus_key), &now)
                 : 0;
    (void)pthread_mutex_unlock(&b->lock);
    return rc;
}

int xid_board_expire(struct xid_board *b, uint64_t now_ns)
{
    struct xid_sighting alone;
    int rc = 0;
    (void)pthread_mutex_lock(&b->lock);
    while (rc == 0 && xid_pairs_expire(&b->pairs, now_ns, &alone))
        rc = tell(b, find_gpu(b, alone.bus_key), &alone);
    (void)pthread_mutex_unlock(&b->lock);
    return rc;
}

uint64_t xid_board_due_ns(struct xid_board *b)
{
    (void)pthread_mutex_lock(&b->lock);
    uint64_t due = xid_pairs_due_ns(&b->pairs);
    (void)pthread_mutex_unlock(&b->lock);
    return due;
}

uint32_t xid_board_last(struct xid_board *b, uint32_t entity)
{
    (void)pthread_mutex_lock(&b->lock);
    uint32_t last = entity < b->count ? b->rows[entity].last : 0;
    (void)pthread_mutex_unlock(&b->lock);
    return last;
}
