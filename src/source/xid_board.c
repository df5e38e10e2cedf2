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
    *b = (struct xid_board){.output = output,
                            .frame = BUF_INIT(XID_BOARD_PENDING * sizeof(b->pending[0]) + 4096)};
    (void)pthread_mutex_init(&b->lock, NULL);
}

void xid_board_deinit(struct xid_board *b)
{
    free(b->rows);
    b->rows = NULL;
    buf_deinit(&b->frame);
    (void)pthread_mutex_destroy(&b->lock);
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

// --- telling ---

// Sends what is pending. Unless forced it stays while frames wait: the exporter does not read, and
// here the same XID again takes no more room.
static int flush(struct xid_board *b, uint64_t now_ns, bool forced)
{
    if (b->pending_count == 0)
        return 0;
    b->flush_ns = now_ns + XID_BOARD_FLUSH_NS;
    if (!forced && output_is_pending(b->output))
        return 0;
    struct frame_events head = {.generation = b->generation, .count = b->pending_count};
    buf_reset(&b->frame);
    size_t start = frame_begin(&b->frame, FRAME_EVENTS);
    buf_add(&b->frame, &head, sizeof(head));
    buf_add(&b->frame, b->pending, b->pending_count * sizeof(b->pending[0]));
    frame_end(&b->frame, start);
    b->pending_count = 0;
    return output_send(b->output, FRAME_EVENTS, &b->frame);
}

// Takes the same XID of the same GPU out of what is pending: how many there were.
static uint32_t take_pending(struct xid_board *b, uint32_t gpu, const struct xid_sighting *s)
{
    for (uint32_t i = 0; i < b->pending_count; i++) {
        struct frame_event *e = &b->pending[i];
        if (e->entity != gpu || e->xid != s->xid || e->gpu_instance_id != s->gpu_instance_id)
            continue;
        uint32_t count = e->repeats + 1;
        b->pending_count--;
        memmove(e, e + 1, (b->pending_count - i) * sizeof(*e));
        return count;
    }
    return 0;
}

static int tell(struct xid_board *b, uint32_t gpu, const struct xid_sighting *s)
{
    if (gpu >= b->count)
        return 0; // a GPU we may not see
    note_last(b, gpu, s);
    uint32_t before = take_pending(b, gpu, s);
    int rc = 0;
    if (b->pending_count == XID_BOARD_PENDING)
        rc = flush(b, clock_mono_ns(), true);
    struct frame_event *e = &b->pending[b->pending_count++];
    *e = (struct frame_event){
        .entity = gpu,
        .origin = s->origin,
        .xid = s->xid,
        .gpu_instance_id = s->gpu_instance_id,
        .repeats = before + s->count - 1,
        .taken_ns = s->taken_ns,
        .wall_ns = s->wall_ns,
    };
    memcpy(e->text, s->text, sizeof(e->text));
    return rc;
}

static int flush_if_due(struct xid_board *b, uint64_t now_ns)
{
    return now_ns >= b->flush_ns ? flush(b, now_ns, false) : 0;
}

// --- the list ---

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
    b->listed = true;
    return 0;
}

int xid_board_send_entities(struct xid_board *b, const struct nvml_devices *d,
                            const struct buf *frame)
{
    (void)pthread_mutex_lock(&b->lock);
    int rc = flush(b, clock_mono_ns(), true); // names entities of the list before
    if (rc == 0)
        rc = take_list(b, d);
    if (rc == 0)
        rc = output_send(b->output, FRAME_ENTITIES, frame);
    (void)pthread_mutex_unlock(&b->lock);
    return rc;
}

void xid_board_set_armed(struct xid_board *b, bool events_armed)
{
    (void)pthread_mutex_lock(&b->lock);
    b->events_armed = events_armed;
    if (!events_armed)
        b->drained_ns = clock_mono_ns(); // what was queued is gone with the set
    (void)pthread_mutex_unlock(&b->lock);
}

// --- sightings ---

int xid_board_event(struct xid_board *b, uint32_t entity, uint32_t xid, uint32_t gpu_instance_id)
{
    struct xid_sighting event = {
        .xid = xid,
        .gpu_instance_id = gpu_instance_id,
        .origin = FRAME_EVENT_NVML,
        .count = 1,
        .taken_ns = clock_mono_ns(),
        .wall_ns = clock_wall_ns(),
    };
    struct xid_sighting whole;
    int rc = 0;
    (void)pthread_mutex_lock(&b->lock);
    if (entity < b->count && b->rows[entity].known) {
        event.bus_key = b->rows[entity].bus_key;
        if (xid_pairs_event(&b->pairs, &event, &whole))
            rc = tell(b, entity, &whole);
    } else {
        rc = tell(b, entity, &event);
    }
    (void)pthread_mutex_unlock(&b->lock);
    return rc;
}

int xid_board_fetched(struct xid_board *b, uint64_t started_ns, bool drained)
{
    (void)pthread_mutex_lock(&b->lock);
    if (drained)
        b->drained_ns = started_ns;
    // The next look is a second away, and may hang.
    int rc = flush(b, clock_mono_ns(), false);
    (void)pthread_mutex_unlock(&b->lock);
    return rc;
}

// The times of a record that was written before this process came to read it.
static void set_times(struct xid_sighting *s, const struct kmsg_stamp *stamp, bool stamped)
{
    s->taken_ns = clock_mono_ns();
    s->wall_ns = clock_wall_ns();
    uint64_t written_ns = stamped ? stamp->boot_us * 1000 : s->taken_ns;
    if (written_ns + NS_PER_S < s->taken_ns && s->taken_ns - written_ns < s->wall_ns) {
        s->wall_ns -= s->taken_ns - written_ns;
        s->taken_ns = written_ns;
    }
}

int xid_board_line(struct xid_board *b, struct sv line)
{
    struct kmsg_xid parsed;
    struct kmsg_stamp stamp = {0};
    if (!kmsg_parse(line, &parsed))
        return 0;
    bool stamped = kmsg_stamp_parse(line, &stamp);
    struct xid_sighting sighting = {
        .bus_key = parsed.bus_key,
        .xid = parsed.xid,
        .gpu_instance_id = parsed.gpu_instance_id,
        .origin = FRAME_EVENT_KMSG,
        .count = 1,
        .seq = stamp.seq,
    };
    set_times(&sighting, &stamp, stamped);
    memcpy(sighting.text, parsed.text, sizeof(sighting.text));
    struct xid_sighting now;
    int rc = 0;
    (void)pthread_mutex_lock(&b->lock);
    bool waits = !b->listed || b->events_armed;
    if (xid_pairs_line(&b->pairs, &sighting, waits, &now))
        rc = tell(b, find_gpu(b, now.bus_key), &now);
    if (rc == 0)
        rc = flush_if_due(b, clock_mono_ns());
    (void)pthread_mutex_unlock(&b->lock);
    return rc;
}

int xid_board_expire(struct xid_board *b, uint64_t now_ns)
{
    struct xid_sighting alone;
    int rc = 0;
    (void)pthread_mutex_lock(&b->lock);
    uint64_t drained_ns = b->events_armed ? b->drained_ns : UINT64_MAX;
    while (rc == 0 && b->listed && xid_pairs_expire(&b->pairs, now_ns, drained_ns, &alone))
        rc = tell(b, find_gpu(b, alone.bus_key), &alone);
    if (rc == 0)
        rc = flush_if_due(b, now_ns);
    (void)pthread_mutex_unlock(&b->lock);
    return rc;
}

uint64_t xid_board_due_ns(struct xid_board *b)
{
    (void)pthread_mutex_lock(&b->lock);
    uint64_t due = b->listed ? xid_pairs_due_ns(&b->pairs) : UINT64_MAX;
    if (b->pending_count > 0 && b->flush_ns < due)
        due = b->flush_ns;
    (void)pthread_mutex_unlock(&b->lock);
    return due;
}

uint64_t xid_board_told_seq(struct xid_board *b, uint64_t seq_read)
{
    (void)pthread_mutex_lock(&b->lock);
    uint64_t first = xid_pairs_first_seq(&b->pairs);
    uint64_t told = first <= seq_read && first > 0 ? first - 1 : seq_read;
    if (b->pending_count > 0 || first == 0 || output_is_pending(b->output))
        told = 0;
    (void)pthread_mutex_unlock(&b->lock);
    return told;
}

uint32_t xid_board_last(struct xid_board *b, uint32_t entity)
{
    (void)pthread_mutex_lock(&b->lock);
    uint32_t last = entity < b->count ? b->rows[entity].last : 0;
    (void)pthread_mutex_unlock(&b->lock);
    return last;
}
