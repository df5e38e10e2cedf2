// SPDX-License-Identifier: Apache-2.0
// Events become batches: a record in the making for each stream, closed when it is full or at a
// flush. Every event is counted once when it comes and once when it goes, here.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/delivery_internal.h"
#include "base/clock.h"
#include "base/limits.h"

// --- Queues ---

void queue_push(struct queue *q, struct batch *b)
{
    b->next = NULL;
    if (q->last)
        q->last->next = b;
    else
        q->first = b;
    q->last = b;
}

struct batch *queue_pop(struct queue *q)
{
    struct batch *b = q->first;
    if (!b)
        return NULL;
    q->first = b->next;
    if (!q->first)
        q->last = NULL;
    b->next = NULL;
    return b;
}

void queue_insert(struct queue *q, struct batch *b)
{
    if (!q->last || q->last->order < b->order) {
        queue_push(q, b);
        return;
    }
    struct batch **at = &q->first;
    while ((*at)->order < b->order)
        at = &(*at)->next;
    b->next = *at;
    *at = b;
}

void queue_remove(struct queue *q, struct batch *b)
{
    struct batch *before = NULL;
    for (struct batch *i = q->first; i != b; i = i->next)
        before = i;
    *(before ? &before->next : &q->first) = b->next;
    if (q->last == b)
        q->last = before;
    b->next = NULL;
}

void queue_append(struct queue *q, struct queue *more)
{
    if (!more->first)
        return;
    if (q->last)
        q->last->next = more->first;
    else
        q->first = more->first;
    q->last = more->last;
    *more = (struct queue){0};
}

static void queue_free(struct queue *q)
{
    for (struct batch *b; (b = queue_pop(q));) {
        free(b->record);
        free(b);
    }
}

// --- Streams ---

int stream_key(struct sv group, struct sv stream, char *out, struct sv *key)
{
    if (group.len > SPOOL_NAME_BYTES_MAX || stream.len > SPOOL_NAME_BYTES_MAX)
        return -ENAMETOOLONG;
    memcpy(out, group.ptr, group.len);
    out[group.len] = '\0';
    memcpy(out + group.len + 1, stream.ptr, stream.len);
    *key = (struct sv){out, group.len + 1 + stream.len};
    return 0;
}

struct stream *stream_new(struct sv group, struct sv stream)
{
    struct stream *s = calloc(1, sizeof(*s));
    char *key = malloc(group.len + stream.len + 1);
    struct sv ignored;
    if (!s || !key || stream_key(group, stream, key, &ignored) < 0) {
        free(s);
        free(key);
        return NULL;
    }
    s->key = key;
    s->group_bytes = group.len;
    s->stream_bytes = stream.len;
    s->gather = BUF_INIT(SPOOL_RECORD_BYTES_MAX);
    return s;
}

void stream_free(struct stream *s)
{
    if (!s)
        return;
    queue_free(&s->live);
    queue_free(&s->backlog);
    buf_deinit(&s->gather);
    free(s->key);
    free(s);
}

static struct sv key_of(const struct stream *s)
{
    return (struct sv){s->key, s->group_bytes + 1 + s->stream_bytes};
}

void streams_sweep(struct delivery *d)
{
    for (struct stream **at = &d->streams; *at;) {
        struct stream *s = *at;
        if (s->batches > 0 || s->gather.len > 0 || s->flight) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        if (map_find(&d->stream_map, key_of(s)) == s)
            (void)map_remove(&d->stream_map, key_of(s));
        stream_free(s);
    }
    d->last_added = NULL;
}

static bool is_named(const struct stream *s, struct sv group, struct sv stream)
{
    return sv_equals((struct sv){s->key, s->group_bytes}, group) &&
           sv_equals((struct sv){s->key + s->group_bytes + 1, s->stream_bytes}, stream);
}

struct stream *stream_get(struct delivery *d, struct sv group, struct sv stream)
{
    char bytes[2 * SPOOL_NAME_BYTES_MAX + 1];
    struct sv key;
    if (d->last_added && is_named(d->last_added, group, stream))
        return d->last_added;
    if (stream_key(group, stream, bytes, &key) < 0)
        return NULL;
    struct stream *s = map_find(&d->stream_map, key);
    if (s && is_named(s, group, stream))
        return d->last_added = s;
    if (d->stream_map.count >= LIMIT_DELIVERY_STREAMS)
        streams_sweep(d);
    if (d->stream_map.count >= LIMIT_DELIVERY_STREAMS || !(s = stream_new(group, stream)))
        return NULL;
    if (map_put(&d->stream_map, key, s, NULL) < 0) {
        stream_free(s);
        return NULL;
    }
    s->delivery = d;
    s->next = d->streams;
    d->streams = s;
    return d->last_added = s;
}

// --- Accounts ---

void lose_event(struct delivery *d, unsigned samples, enum delivery_loss why)
{
    d->stats.lost_events[why]++;
    d->stats.lost_samples[why] += samples;
}

void batch_settle(struct batch *b, uint32_t events, uint64_t samples, const enum delivery_loss *why)
{
    struct delivery_stats *t = &b->stream->delivery->stats;
    b->done_events += events;
    b->samples -= samples;
    t->waiting_events -= events;
    t->waiting_samples -= samples;
    *(why ? &t->lost_events[*why] : &t->delivered_events) += events;
    *(why ? &t->lost_samples[*why] : &t->delivered_samples) += samples;
}

void batch_lose(struct batch *b, enum delivery_loss why)
{
    batch_settle(b, b->events - b->done_events, b->samples, &why);
    batch_finish(b);
}

static void release_record(struct batch *b)
{
    struct delivery *d = b->stream->delivery;
    if (b->record && !b->ref.segment)
        d->memory_bytes -= b->ref.bytes;
    free(b->record);
    b->record = NULL;
}

void batch_free(struct batch *b)
{
    release_record(b);
    b->stream->batches--;
    free(b);
}

void batch_finish(struct batch *b)
{
    struct delivery *d = b->stream->delivery;
    d->stats.spool_batches--;
    d->stats.spool_bytes -= b->ref.bytes;
    release_record(b);
    if (!b->ref.segment) {
        batch_free(b);
        return;
    }
    b->stream->acknowledging++;
    queue_push(&d->done, b);
}

void batch_unload(struct batch *b)
{
    if (b->ref.segment)
        release_record(b);
}

bool batch_is_old(const struct batch *b)
{
    int64_t now_ms = (int64_t)(clock_wall_ns() / NS_PER_MS);
    return b->last_ms < now_ms - (int64_t)b->stream->delivery->max_age_ms;
}

// --- Waiting for a turn ---

// The live batch that has waited longest makes room: it is on disk.
static void shift_oldest_live(struct delivery *d)
{
    struct stream *oldest = NULL;
    for (struct stream *s = d->streams; s; s = s->next)
        if (s->live.first && s->live.first->ref.segment &&
            (!oldest || s->live.first->order < oldest->live.first->order))
            oldest = s;
    struct batch *b = oldest ? queue_pop(&oldest->live) : NULL;
    if (!b)
        return;
    d->loaded_bytes -= b->ref.bytes;
    b->is_backlog = true;
    batch_unload(b);
    queue_insert(&oldest->backlog, b);
}

static bool is_held_up(const struct stream *s)
{
    const struct delivery *d = s->delivery;
    return s->attempts > 0 || !d->logs || loop_now_ns(d->loop) < d->gate_ns;
}

// What waited through an outage is not live any more: what is made after it must not queue behind.
static void shift_all_live(struct stream *s)
{
    for (struct batch *b; (b = queue_pop(&s->live));) {
        s->delivery->loaded_bytes -= b->ref.segment ? b->ref.bytes : 0;
        b->is_backlog = true;
        batch_unload(b);
        queue_insert(&s->backlog, b);
    }
}

void batch_enqueue(struct batch *b)
{
    struct delivery *d = b->stream->delivery;
    bool is_on_disk = b->ref.segment != 0;
    if (b->is_dropped) {
        batch_lose(b, DELIVERY_LOST_FULL);
    } else if (!is_on_disk && d->disk && !d->is_disk_failing) {
        queue_push(&d->unspooled, b);
    } else if (b->is_backlog) {
        batch_unload(b);
        queue_insert(&b->stream->backlog, b);
    } else {
        if (is_held_up(b->stream))
            shift_all_live(b->stream);
        queue_insert(&b->stream->live, b);
        d->loaded_bytes += is_on_disk ? b->ref.bytes : 0;
        if (d->loaded_bytes > LIMIT_DELIVERY_LOADED_BYTES)
            shift_oldest_live(d);
    }
}

// The place where the oldest that may be dropped hangs.
static void find_oldest(struct queue *q, bool memory_only, struct queue **at, struct batch **found)
{
    for (struct batch *b = q->first; b; b = b->next) {
        if (b->is_loading || (memory_only && b->ref.segment))
            continue;
        if (!*found || b->order < (*found)->order) {
            *found = b;
            *at = q;
        }
        return;
    }
}

bool delivery_drop_oldest(struct delivery *d, bool memory_only)
{
    struct queue *at = NULL;
    struct batch *b = NULL;
    find_oldest(&d->unspooled, memory_only, &at, &b);
    for (struct stream *s = d->streams; s; s = s->next) {
        find_oldest(&s->live, memory_only, &at, &b);
        find_oldest(&s->backlog, memory_only, &at, &b);
    }
    if (!b || !at)
        return false;
    queue_remove(at, b);
    if (at == &b->stream->live && b->ref.segment)
        d->loaded_bytes -= b->ref.bytes;
    batch_lose(b, DELIVERY_LOST_FULL);
    return true;
}

void delivery_keep_memory(struct delivery *d)
{
    // At the end all of it goes to disk at once.
    while (!d->is_closing && d->memory_bytes > LIMIT_DELIVERY_MEMORY_BYTES)
        if (!delivery_drop_oldest(d, true))
            return;
}

// --- Gathering ---

static void widen(struct spool_info *i, int64_t timestamp_ms)
{
    if (i->events == 0 || timestamp_ms < i->first_ms)
        i->first_ms = timestamp_ms;
    if (i->events == 0 || timestamp_ms > i->last_ms)
        i->last_ms = timestamp_ms;
}

static bool fits(const struct stream *s, const struct delivery_event *e)
{
    struct spool_info i = s->gathered;
    widen(&i, e->timestamp_ms);
    return s->gathered_bytes + e->message.len + LOGS_EVENT_OVERHEAD <= LOGS_BATCH_BYTES_MAX &&
           i.last_ms - i.first_ms <= LOGS_BATCH_SPAN_MS;
}

bool stream_gather(struct stream *s, const struct delivery_event *e)
{
    struct delivery *d = s->delivery;
    if (s->gather.len > 0 && !fits(s, e))
        stream_close(s);
    size_t before = s->gather.len;
    if (before == 0)
        spool_record_begin(&s->gather, (struct sv){s->key, s->group_bytes},
                           (struct sv){s->key + s->group_bytes + 1, s->stream_bytes});
    spool_record_add(&s->gather, e->timestamp_ms, e->samples, e->message);
    if (s->gather.error) {
        // What was there before is whole.
        s->gather.len = before;
        s->gather.error = 0;
        lose_event(d, e->samples, DELIVERY_LOST_MEMORY);
        return false;
    }
    s->is_unsorted |= s->gathered.events > 0 && e->timestamp_ms < s->gathered.last_ms;
    widen(&s->gathered, e->timestamp_ms);
    s->gathered.events++;
    s->gathered.samples += e->samples;
    s->gathered_bytes += (uint32_t)(e->message.len + LOGS_EVENT_OVERHEAD);
    d->gathered_bytes += s->gather.len - before;
    d->stats.waiting_events++;
    d->stats.waiting_samples += e->samples;
    if (s->gathered.events == LOGS_BATCH_EVENTS_MAX)
        stream_close(s);
    return true;
}

struct place {
    int64_t timestamp_ms;
    uint32_t at; // rising as they came, which keeps the sort stable
    uint32_t bytes;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->timestamp_ms != y->timestamp_ms)
        return x->timestamp_ms < y->timestamp_ms ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

// The same events in order of time. 0, -ENOMEM.
static int sort_events(struct buf *record, size_t count)
{
    struct sv events = spool_record_events(buf_sv(record));
    size_t head = record->len - events.len;
    cleanup(mem_freep) struct place *places = calloc(count, sizeof(*places));
    struct buf sorted = BUF_INIT(record->max);
    struct spool_event e;
    if (!places || buf_reserve(&sorted, record->len) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const char *at = events.ptr;
        (void)spool_event_next(&events, &e);
        places[i] = (struct place){e.timestamp_ms, (uint32_t)(at - record->data),
                                   (uint32_t)(SPOOL_EVENT_BYTES + e.message.len)};
    }
    qsort(places, count, sizeof(*places), compare_places);
    buf_add(&sorted, record->data, head);
    for (size_t i = 0; i < count; i++)
        buf_add(&sorted, record->data + places[i].at, places[i].bytes);
    buf_deinit(record);
    *record = sorted;
    return 0;
}

// The batch of a record in the making, or NULL: no memory.
static struct batch *make_batch(struct stream *s)
{
    if (s->is_unsorted && sort_events(&s->gather, s->gathered.events) < 0)
        return NULL;
    struct batch *b = calloc(1, sizeof(*b));
    if (!b)
        return NULL;
    const struct spool_info *i = &s->gathered;
    spool_record_finish(s->gather.data, s->gather.len, i);
    *b = (struct batch){
        .stream = s,
        .ref = {.bytes = (uint32_t)s->gather.len},
        .events = i->events,
        .samples = i->samples,
        .order = s->delivery->next_order++,
        .first_ms = i->first_ms,
        .last_ms = i->last_ms,
    };
    b->record = buf_take(&s->gather, NULL);
    char *fitting = realloc(b->record, b->ref.bytes);
    if (fitting)
        b->record = fitting;
    return b;
}

static void lose_gathered(struct stream *s)
{
    struct delivery_stats *t = &s->delivery->stats;
    t->waiting_events -= s->gathered.events;
    t->waiting_samples -= s->gathered.samples;
    t->lost_events[DELIVERY_LOST_MEMORY] += s->gathered.events;
    t->lost_samples[DELIVERY_LOST_MEMORY] += s->gathered.samples;
}

void stream_close(struct stream *s)
{
    struct delivery *d = s->delivery;
    if (s->gather.len == 0)
        return;
    d->gathered_bytes -= s->gather.len;
    struct batch *b = make_batch(s);
    if (!b)
        lose_gathered(s);
    buf_deinit(&s->gather);
    s->gathered = (struct spool_info){0};
    s->gathered_bytes = 0;
    s->is_unsorted = false;
    if (!b)
        return;
    s->batches++;
    d->stats.batches++;
    d->stats.spool_batches++;
    d->stats.spool_bytes += b->ref.bytes;
    d->memory_bytes += b->ref.bytes;
    batch_enqueue(b);
    if (d->stats.spool_batches > LIMIT_DELIVERY_BATCHES)
        (void)delivery_drop_oldest(d, false);
    delivery_keep_memory(d);
}
