// SPDX-License-Identifier: Apache-2.0
// Random worlds: whatever the service, the disk and the process do, every event is delivered, lost
// with a reason, or waiting (world_check after each step).
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/clock.h"
#include "delivery_world.h"

#define WORLDS 45
#define ACTIONS 60

static unsigned trouble; // per cent of requests that do not go well

static void answer_at_random(struct request *r)
{
    static const enum logs_outcome outcomes[] = {LOGS_RETRY,    LOGS_RETRY,   LOGS_THROTTLED,
                                                 LOGS_SPLIT,    LOGS_REFUSED, LOGS_CREDENTIALS,
                                                 LOGS_DELIVERED};
    r->answer_after_ns = 1 + world_random(3 * NS_PER_S);
    if (world_random(100) >= trouble)
        return;
    r->result.outcome = outcomes[world_random(7)];
    r->result.retry_after_s = world_random(4) ? 0 : world_random(100);
    r->result.rejected_old = world_random(3);
    r->result.rejected_new = world_random(3);
    r->result.error = "chance";
    r->is_taken =
        r->result.outcome == LOGS_DELIVERED || (r->result.outcome == LOGS_RETRY && world_random(2));
}

struct total {
    uint64_t added, delivered, lost, samples_added, samples_delivered, samples_lost;
};

static void add_up(struct total *t)
{
    struct delivery_stats s = world_stats();
    t->added += s.events;
    t->samples_added += s.samples;
    t->delivered += s.delivered_events;
    t->samples_delivered += s.delivered_samples;
    for (size_t i = 0; i < DELIVERY_LOSS_COUNT; i++) {
        t->lost += s.lost_events[i];
        t->samples_lost += s.lost_samples[i];
    }
}

static void open_small(void)
{
    struct error err = ERROR_INIT;
    struct delivery_options o = world_options(world.directory);
    o.spool_max_bytes = 0; // the least there is: two batches
    assert_int_equal(delivery_new(&o, &world.delivery, &err), 0);
}

static void add_some(void)
{
    static const char *const streams[] = {"a", "b", "c", "d", "e"};
    uint64_t shape = world_random(20);
    unsigned count = shape == 0 ? 3000 : (unsigned)world_random(30);
    size_t bytes = shape == 1 ? 200000 : 10 + (size_t)world_random(300);
    for (unsigned i = 0; i < count; i++)
        world_add(streams[world_random(5)], (int64_t)world_random(20) - 10,
                  (unsigned)world_random(100), bytes);
}

static uint64_t done_in_queue(const struct queue *q)
{
    uint64_t events = 0;
    for (const struct batch *b = q->first; b; b = b->next)
        events += b->done_events;
    return events;
}

// Events of batches that are done with in part: the spool knows whole batches alone.
static uint64_t done_in_part(void)
{
    const struct delivery *d = world.delivery;
    uint64_t events = done_in_queue(&d->unspooled) + done_in_queue(&d->disk->append) +
                      done_in_queue(&d->disk->failed);
    for (const struct stream *s = d->streams; s; s = s->next) {
        events += done_in_queue(&s->live) + done_in_queue(&s->backlog);
        events += s->flight ? s->flight->batch->done_events : 0;
    }
    return events;
}

// One process after the other, in order; what the first could not write is lost with it.
static void reopen(struct total *t, bool is_small)
{
    add_up(t);
    uint64_t waiting = world_stats().waiting_events, samples = world_stats().waiting_samples;
    uint64_t whole = waiting + done_in_part();
    world_close();
    is_small ? open_small() : world_open(world.directory);
    world_run_until(world_is_quiet, 0);
    while (world.delivery->disk->is_recovering)
        assert_true(world_step());
    struct delivery_stats s = world_stats();
    assert_true(s.recovered_events <= whole);
    if (!world.disk_error && !world.sync_error && !is_small)
        assert_int_equal(s.recovered_events, whole);
    t->lost += waiting - s.recovered_events;
    t->samples_lost += samples - s.recovered_samples;
}

static void act(struct total *t, bool is_small)
{
    switch (world_random(12)) {
    case 0:
        world.disk_error = world_random(2) ? 0 : ENOSPC;
        world.sync_error = world_random(4) ? 0 : EIO;
        break;
    case 1:
        world.job_refusals = (unsigned)world_random(3);
        break;
    case 2:
        if (world_random(4) == 0)
            reopen(t, is_small);
        break;
    case 3:
        delivery_set_logs(world.delivery, world_random(3) ? world.logs : NULL);
        break;
    case 4:
        trouble = (unsigned)world_random(101);
        break;
    case 5:
        world.job_ns = world_random(3) ? 3 * NS_PER_MS : 2 * NS_PER_S;
        break;
    default:
        add_some();
        break;
    }
    world_run(world_random(2 * NS_PER_S));
}

static void every_event_is_delivered_or_lost_or_waiting(void **state)
{
    for (unsigned seed = 1; seed <= WORLDS; seed++) {
        struct total t = {0};
        bool is_small = seed % 3 == 0;
        world_start();
        world.random ^= seed * UINT64_C(0x9e3779b97f4a7c15);
        world.answer = answer_at_random;
        trouble = 50;
        world.keeps_requests = false;
        is_small ? open_small() : world_open(world.directory);
        for (unsigned i = 0; i < ACTIONS; i++)
            act(&t, is_small);
        world.disk_error = world.sync_error = 0;
        world.job_refusals = 0;
        trouble = 10;
        delivery_set_logs(world.delivery, world.logs);
        if (!world_run_until(world_is_quiet, 24 * 3600 * NS_PER_S))
            fail_msg("world %u: %lu events wait for ever", seed,
                     (unsigned long)world_stats().waiting_events);
        add_up(&t);
        assert_int_equal(t.added, t.delivered + t.lost);
        assert_int_equal(t.samples_added, t.samples_delivered + t.samples_lost);
        uint64_t seen = 0;
        for (uint32_t id = 0; id < world.next_id; id++)
            seen += world.seen[id];
        assert_true(seen >= t.delivered);
        world_stop();
    }
}

// --- Kills ---

// Taken or not, but never taken without saying so: duplicates come from kills alone.
static void answer_honestly(struct request *r)
{
    r->answer_after_ns = 1 + world_random(300 * NS_PER_MS);
    if (world_random(100) >= trouble)
        return;
    r->result.outcome = world_random(3) ? LOGS_RETRY : LOGS_THROTTLED;
    r->result.error = "chance";
    r->is_taken = false;
}

static uint8_t spooled[WORLD_EVENTS_MAX];

static void mark_batch(const struct batch *b)
{
    if (!b || !b->record || !b->ref.segment)
        return;
    struct sv events = spool_record_events((struct sv){b->record, b->ref.bytes});
    struct spool_event e;
    while (spool_event_next(&events, &e)) {
        uint32_t id = 0;
        for (size_t i = 0; i < 8; i++)
            id = id * 10 + (uint32_t)(e.message.ptr[i] - '0');
        spooled[id] = 1;
    }
}

static void mark_spooled(void)
{
    for (const struct stream *s = world.delivery->streams; s; s = s->next) {
        for (const struct batch *b = s->live.first; b; b = b->next)
            mark_batch(b);
        mark_batch(s->flight ? s->flight->batch : NULL);
    }
}

// What a kill now may send again: one batch of a stream at most.
static uint64_t may_be_sent_again(void)
{
    const struct delivery *d = world.delivery;
    uint64_t events = 0;
    for (const struct stream *s = d->streams; s; s = s->next) {
        assert_true((s->flight ? 1 : 0) + s->acknowledging <= 1);
        events += s->flight ? s->flight->batch->events : 0;
    }
    const struct batch *heads[] = {d->done.first, d->disk->done.first};
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++)
        for (const struct batch *b = heads[i]; b; b = b->next)
            events += b->events;
    return events;
}

static void kill_and_restart(uint64_t *again)
{
    char snapshot[64];
    (void)snprintf(snapshot, sizeof(snapshot), "%s", world.directory);
    char *mark = &snapshot[strlen(snapshot) - 6];
    *mark = *mark == 'k' ? 'l' : 'k';
    (void)mkdir(snapshot, 0700);
    mark_spooled();
    *again += may_be_sent_again();
    world_kill(snapshot);
    (void)rmdir(world.directory);
    (void)snprintf(world.directory, sizeof(world.directory), "%s", snapshot);
    world_open(world.directory);
    assert_true(world_stats().was_unclean);
    while (world.delivery->disk->is_recovering)
        assert_true(world_step());
    assert_int_equal(world_lost(), 0);
}

static void nothing_that_was_spooled_is_lost_over_kills(void **state)
{
    for (unsigned seed = 1; seed <= 25; seed++) {
        uint64_t again = 0, twice = 0;
        world_start();
        world.random ^= seed * UINT64_C(0x9e3779b97f4a7c15);
        world.answer = answer_honestly;
        world.keeps_requests = false;
        world.job_ns = 200 * NS_PER_MS;
        memset(spooled, 0, sizeof(spooled));
        world_open(world.directory);
        for (unsigned round = 0; round < 5; round++) {
            trouble = (unsigned)world_random(100);
            for (unsigned i = 0; i < 20; i++) {
                add_some();
                uint64_t steps = world_random(60);
                for (uint64_t k = 0; k < steps; k++) {
                    (void)world_step();
                    mark_spooled();
                }
            }
            kill_and_restart(&again);
        }
        trouble = 0;
        if (!world_run_until(world_is_quiet, 24 * 3600 * NS_PER_S))
            fail_msg("world %u does not end", seed);
        for (uint32_t id = 0; id < world.next_id; id++) {
            assert_true(!spooled[id] || world.seen[id]);
            twice += world.seen[id] > 1 ? world.seen[id] - 1u : 0;
        }
        assert_true(twice <= again);
        world_stop();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_is_delivered_or_lost_or_waiting),
        cmocka_unit_test(nothing_that_was_spooled_is_lost_over_kills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
