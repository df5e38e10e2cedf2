// SPDX-License-Identifier: Apache-2.0
// How it works: a batch whose turn comes gets one of a few flights, and its stream has no other
// meanwhile. Each request of a flight is a turn of its own: the oldest live batch or, at most every
// other time while a live one could go, the oldest of the backlog. Halves of a batch that had to be
// split wait for their turns in the same flight, in order, so that what is done with is always the
// first part of the batch. A request that fails puts its batch into the backlog and its stream to
// sleep; throttling closes the gate for all and narrows the window; refused credentials close it
// but for one request at a time.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/delivery_internal.h"
#include "base/clock.h"
#include "base/log.h"

#define RETRY_LEAST_NS (200 * NS_PER_MS)
#define THROTTLE_LEAST_NS NS_PER_S
#define HOLD_LEAST_NS NS_PER_S
#define WAIT_MOST_NS (60 * NS_PER_S)
#define RETRY_AFTER_MOST_S 900

static uint64_t wait_ns(unsigned attempt, uint64_t least_ns, uint64_t retry_after_s)
{
    uint64_t wait = clock_backoff_ns(attempt, least_ns, WAIT_MOST_NS);
    wait = wait / 2 + clock_jitter_ns(wait / 2);
    uint64_t asked_s = retry_after_s < RETRY_AFTER_MOST_S ? retry_after_s : RETRY_AFTER_MOST_S;
    return wait > asked_s * NS_PER_S ? wait : asked_s * NS_PER_S;
}

// --- Flights ---

static struct flight *flight_new(struct delivery *d, struct batch *b)
{
    for (size_t i = 0; i < DELIVERY_FLIGHTS; i++) {
        struct flight *f = &d->flights[i];
        if (f->batch)
            continue;
        *f = (struct flight){.stream = b->stream, .batch = b, .ends = {b->events}, .depth = 1};
        b->stream->flight = f;
        d->flight_count++;
        d->backlog_flights += b->is_backlog;
        return f;
    }
    return NULL;
}

// The batch is the caller's again.
static struct batch *flight_end(struct flight *f)
{
    struct batch *b = f->batch;
    struct delivery *d = f->stream->delivery;
    logs_call_free(f->call);
    f->stream->flight = NULL;
    d->flight_count--;
    d->backlog_flights -= b->is_backlog;
    *f = (struct flight){0};
    return b;
}

static void put_back(struct flight *f)
{
    struct batch *b = flight_end(f);
    b->is_backlog = b->was_tried = true;
    batch_enqueue(b);
}

void delivery_cancel_flights(struct delivery *d)
{
    for (size_t i = 0; i < DELIVERY_FLIGHTS; i++) {
        struct flight *f = &d->flights[i];
        if (!f->batch)
            continue;
        if (f->call)
            f->batch->maybe_to = f->ends[f->depth - 1];
        put_back(f);
    }
}

// --- Outcomes ---

static uint64_t samples_of(const struct batch *b, uint32_t from, uint32_t to)
{
    struct sv events = spool_record_events((struct sv){b->record, b->ref.bytes});
    struct spool_event e;
    uint64_t samples = 0;
    for (uint32_t i = 0; i < to && spool_event_next(&events, &e); i++)
        samples += i >= from ? e.samples : 0;
    return samples;
}

// The next events of the batch, up to this one, went like this.
static void settle_to(struct batch *b, uint32_t to, const enum delivery_loss *why)
{
    if (to > b->done_events)
        batch_settle(b, to - b->done_events, samples_of(b, b->done_events, to), why);
}

static void settle_delivered(struct batch *b, uint32_t to, const struct logs_result *r)
{
    static const enum delivery_loss old = DELIVERY_LOST_OLD;
    uint32_t count = to - b->done_events;
    uint32_t too_old = r->rejected_old < count ? (uint32_t)r->rejected_old : count;
    count -= too_old;
    uint32_t too_new = r->rejected_new < count ? (uint32_t)r->rejected_new : count;
    settle_to(b, b->done_events + too_old, &old);
    settle_to(b, to - too_new, NULL);
    settle_to(b, to, &old);
}

// The part that was sent is done with: on to the next, or to the end of the flight.
static void next_part(struct flight *f)
{
    f->depth--;
    if (f->depth == 0)
        batch_finish(flight_end(f));
}

static void delivered(struct delivery *d, struct flight *f, const struct logs_result *r)
{
    struct stream *s = f->stream;
    if (s->attempts > 0)
        log_info("delivers again",
                 LOG_SV("stream", ((struct sv){s->key + s->group_bytes + 1, s->stream_bytes})));
    s->attempts = 0;
    s->not_before_ns = 0;
    d->throttles = 0;
    if (d->window < DELIVERY_FLIGHTS)
        d->window++;
    d->stats.last_delivery_wall_ns = clock_wall_ns();
    settle_delivered(f->batch, f->ends[f->depth - 1], r);
    next_part(f);
}

static void refused(struct delivery *d, struct flight *f, const struct logs_result *r)
{
    static const enum delivery_loss why = DELIVERY_LOST_REFUSED;
    log_warn("log events refused, they are lost",
             LOG_SV("group", ((struct sv){f->stream->key, f->stream->group_bytes})),
             LOG_STR("reason", r->error), LOG_LIMIT("refused"));
    settle_to(f->batch, f->ends[f->depth - 1], &why);
    next_part(f);
    (void)d;
}

static void split(struct delivery *d, struct flight *f, const struct logs_result *r)
{
    uint32_t from = f->batch->done_events, to = f->ends[f->depth - 1];
    if (to - from <= 1 || f->depth == DELIVERY_SPLITS) {
        refused(d, f, r);
        return;
    }
    f->ends[f->depth++] = from + (to - from) / 2;
}

// A stream that sleeps does not keep what others could read meanwhile.
static void sleep_stream(struct stream *s, uint64_t until_ns)
{
    s->not_before_ns = until_ns;
    if (s->backlog.first && !s->backlog.first->is_loading)
        batch_unload(s->backlog.first);
}

static void try_later(struct delivery *d, struct flight *f, const struct logs_result *r)
{
    struct stream *s = f->stream;
    if (s->attempts == 0)
        log_warn("cannot deliver, will try again",
                 LOG_SV("group", ((struct sv){s->key, s->group_bytes})),
                 LOG_SV("stream", ((struct sv){s->key + s->group_bytes + 1, s->stream_bytes})),
                 LOG_STR("reason", r->error), LOG_LIMIT("retry"));
    f->batch->maybe_to = f->ends[f->depth - 1];
    sleep_stream(s, loop_now_ns(d->loop) + wait_ns(s->attempts, RETRY_LEAST_NS, r->retry_after_s));
    s->attempts += s->attempts < 32;
    put_back(f);
}

static void throttled(struct delivery *d, struct flight *f, const struct logs_result *r)
{
    uint64_t now_ns = loop_now_ns(d->loop);
    // Requests that were under way together are one event.
    if (now_ns >= d->gate_ns) {
        log_warn("throttled, slowing down", LOG_STR("reason", r->error), LOG_LIMIT("throttled"));
        d->throttles += d->throttles < 32;
        d->window = d->window > 1 ? d->window / 2 : 1;
    }
    uint64_t until_ns =
        now_ns + wait_ns(d->throttles ? d->throttles - 1 : 0, THROTTLE_LEAST_NS, r->retry_after_s);
    if (until_ns > d->gate_ns)
        d->gate_ns = until_ns;
    put_back(f);
}

static void hold(struct delivery *d, struct flight *f, const struct logs_result *r)
{
    uint64_t now_ns = loop_now_ns(d->loop);
    struct stream *s = f->stream;
    if (!d->is_held)
        log_error("no good credentials, everything waits", LOG_STR("reason", r->error));
    if (!d->is_held || now_ns >= d->gate_ns) {
        d->gate_ns = now_ns + wait_ns(d->holds, HOLD_LEAST_NS, r->retry_after_s);
        d->holds += d->holds < 32;
    }
    d->is_held = true;
    // Another stream asks next: it may be that only this one's group is not allowed.
    sleep_stream(s, now_ns + wait_ns(s->attempts, HOLD_LEAST_NS, 0));
    s->attempts += s->attempts < 32;
    put_back(f);
}

static void release_hold(struct delivery *d)
{
    if (!d->is_held)
        return;
    log_info("credentials are good again");
    d->is_held = false;
    d->holds = 0;
    d->gate_ns = 0;
}

static void done(void *user, const struct logs_result *r)
{
    struct flight *f = user;
    struct delivery *d = f->stream->delivery;
    struct logs_call *call = TAKE_PTR(f->call);
    if (r->outcome != LOGS_DELIVERED)
        sv_copy(d->last_error, sizeof(d->last_error), sv_from(r->error));
    if (r->outcome == LOGS_DELIVERED || r->outcome == LOGS_SPLIT || r->outcome == LOGS_REFUSED)
        release_hold(d);
    switch (r->outcome) {
    case LOGS_DELIVERED:
        delivered(d, f, r);
        break;
    case LOGS_RETRY:
        try_later(d, f, r);
        break;
    case LOGS_THROTTLED:
        throttled(d, f, r);
        break;
    case LOGS_SPLIT:
        split(d, f, r);
        break;
    case LOGS_REFUSED:
        refused(d, f, r);
        break;
    case LOGS_CREDENTIALS:
        hold(d, f, r);
        break;
    }
    logs_call_free(call); // with the result
    disk_start(d);
    delivery_pump(d);
}

// --- Turns ---

// A batch, and its flight when it has one already.
struct turn {
    struct batch *batch;
    struct flight *flight;
};

static void offer(struct turn *best, struct batch *b, struct flight *f)
{
    if (b && b->record && (!best->batch || b->order < best->batch->order))
        *best = (struct turn){b, f};
}

static bool is_awake(const struct stream *s, uint64_t now_ns)
{
    return !s->flight && s->acknowledging == 0 && s->not_before_ns <= now_ns;
}

static struct turn choose(struct delivery *d)
{
    struct turn live = {0}, backlog = {0};
    uint64_t now_ns = loop_now_ns(d->loop);
    bool has_room = d->flight_count < (d->is_held ? 1 : d->window);
    bool backlog_has_room = has_room && d->backlog_flights < DELIVERY_BACKLOG_FLIGHTS;
    for (size_t i = 0; i < DELIVERY_FLIGHTS; i++) {
        struct flight *f = &d->flights[i];
        if (f->batch && !f->call)
            offer(f->batch->is_backlog ? &backlog : &live, f->batch, f);
    }
    for (struct stream *s = has_room ? d->streams : NULL; s; s = s->next) {
        if (!is_awake(s, now_ns))
            continue;
        offer(&live, s->live.first, NULL);
        if (backlog_has_room)
            offer(&backlog, s->backlog.first, NULL);
    }
    if (live.batch && backlog.batch)
        return d->last_was_backlog ? live : backlog;
    return live.batch ? live : backlog;
}

// Out of the queue it waited in.
static struct flight *take_off(struct delivery *d, struct batch *b)
{
    if (b->is_backlog) {
        (void)queue_pop(&b->stream->backlog);
    } else {
        (void)queue_pop(&b->stream->live);
        d->loaded_bytes -= b->ref.segment ? b->ref.bytes : 0;
    }
    return flight_new(d, b);
}

static int put(struct delivery *d, struct flight *f)
{
    struct batch *b = f->batch;
    struct sv record = {b->record, b->ref.bytes};
    struct sv events = spool_record_events(record);
    uint32_t to = f->ends[f->depth - 1];
    struct logs_batch request = {.count = to - b->done_events};
    cleanup(mem_freep) struct logs_event *list = calloc(request.count, sizeof(*list));
    struct spool_event e;
    if (!list)
        return -ENOMEM;
    for (uint32_t i = 0; i < to && spool_event_next(&events, &e); i++)
        if (i >= b->done_events)
            list[i - b->done_events] = (struct logs_event){e.timestamp_ms, e.message};
    spool_record_names(record, &request.group, &request.stream);
    request.events = list;
    return aws_logs_put(d->logs, &request, done, f, &f->call);
}

static void send(struct delivery *d, const struct turn *turn)
{
    struct batch *b = turn->batch;
    struct flight *f = turn->flight ? turn->flight : take_off(d, b);
    if (batch_is_old(b)) {
        batch_lose(flight_end(f), DELIVERY_LOST_OLD);
        return;
    }
    d->last_was_backlog = b->is_backlog;
    if (put(d, f) < 0) {
        sleep_stream(f->stream, loop_now_ns(d->loop) + wait_ns(f->stream->attempts, NS_PER_S, 0));
        put_back(f);
        return;
    }
    uint32_t to = f->ends[f->depth - 1];
    uint32_t maybe_to = b->maybe_to < to ? b->maybe_to : to;
    d->stats.retries += b->was_tried;
    d->stats.duplicate_events += maybe_to > b->done_events ? maybe_to - b->done_events : 0;
}

// When something that waits may go.
static void arm(struct delivery *d)
{
    uint64_t now_ns = loop_now_ns(d->loop), next_ns = UINT64_MAX;
    if (d->is_disk_failing && d->memory_bytes > 0 && d->disk_retry_ns > now_ns)
        next_ns = d->disk_retry_ns;
    for (struct stream *s = d->streams; s; s = s->next) {
        uint64_t at_ns = s->not_before_ns > d->gate_ns ? s->not_before_ns : d->gate_ns;
        if ((s->live.first || s->backlog.first) && at_ns > now_ns && at_ns < next_ns)
            next_ns = at_ns;
    }
    for (size_t i = 0; i < DELIVERY_FLIGHTS; i++)
        if (d->flights[i].batch && !d->flights[i].call && d->gate_ns > now_ns &&
            d->gate_ns < next_ns)
            next_ns = d->gate_ns;
    if (next_ns == UINT64_MAX)
        loop_timer_stop(d->wake);
    else
        loop_timer_set(d->wake, next_ns > now_ns ? next_ns - now_ns : 0, 0);
}

static void tell_if_drained(struct delivery *d)
{
    if (d->is_draining && d->stats.waiting_events == 0 && disk_is_idle(d))
        loop_timer_set(d->drain, 0, 0);
}

void delivery_pump(struct delivery *d)
{
    while (d->logs && !d->is_closing && loop_now_ns(d->loop) >= d->gate_ns) {
        struct turn turn = choose(d);
        if (!turn.batch)
            break;
        send(d, &turn);
    }
    disk_start(d);
    arm(d);
    tell_if_drained(d);
}
