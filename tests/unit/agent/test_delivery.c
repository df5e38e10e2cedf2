// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/limits.h"
#include "delivery_world.h"

#define DAY_MS (24 * 3600 * INT64_C(1000))

static int set_up(void **state)
{
    world_start();
    world_open(world.directory);
    return 0;
}

static int tear_down(void **state)
{
    world_stop();
    return 0;
}

static const struct request *request(size_t i)
{
    assert_true(i < world.request_count);
    return &world.requests[i];
}

static void settle(void)
{
    if (!world_run_until(world_is_quiet, 3600 * NS_PER_S))
        fail_msg("%lu events still wait", (unsigned long)world_stats().waiting_events);
}

// --- Gathering ---

static void events_of_a_stream_are_one_request_at_a_flush(void **state)
{
    world_add("a", 0, 1, 10);
    world_add("b", 0, 2, 10);
    world_add("a", 0, 3, 10);
    world_run(900 * NS_PER_MS);
    assert_int_equal(world.request_count, 0);
    settle();
    assert_int_equal(world.request_count, 2);
    assert_string_equal(request(0)->group, "/group");
    const struct request *a = request(strcmp(request(0)->stream, "a") != 0);
    assert_int_equal(a->count, 2);
    assert_true(a->ids[0] == 0 && a->ids[1] == 2);
    struct delivery_stats t = world_stats();
    assert_int_equal(t.delivered_events, 3);
    assert_int_equal(t.delivered_samples, 6);
    assert_int_equal(t.batches, 2);
    assert_int_equal(t.retries + t.duplicate_events, 0);
    assert_int_equal(t.spool_batches + t.spool_bytes + t.oldest_wall_ns, 0);
    assert_true(t.last_delivery_wall_ns > WORLD_START_WALL_NS);
}

static void events_are_sorted_by_time_and_equal_ones_stay(void **state)
{
    static const int64_t ages[] = {5, 9, 5, 0, 9, 5};
    static const uint32_t order[] = {1, 4, 0, 2, 5, 3};
    for (size_t i = 0; i < 6; i++)
        world_add("a", ages[i], 1, 10 + i);
    settle();
    assert_int_equal(request(0)->count, 6);
    assert_memory_equal(request(0)->ids, order, sizeof(order));
}

static void a_batch_of_ten_thousand_events_does_not_wait_for_the_flush(void **state)
{
    for (unsigned i = 0; i < 10001; i++)
        world_add("a", 0, 1, 10);
    world_run(500 * NS_PER_MS);
    assert_int_equal(world.request_count, 1);
    assert_int_equal(request(0)->count, 10000);
    settle();
    assert_int_equal(request(1)->count, 1);
}

static void a_batch_is_as_large_as_the_service_takes(void **state)
{
    // 1,048,576 / 65,536 = 16 events with their overhead, to the byte.
    for (unsigned i = 0; i < 17; i++)
        world_add("a", 0, 1, 65536 - LOGS_EVENT_OVERHEAD);
    settle();
    assert_int_equal(world.request_count, 2);
    assert_int_equal(request(0)->count, 16);
    for (unsigned i = 0; i < 16; i++)
        world_add("b", 0, 1, 65536 - LOGS_EVENT_OVERHEAD + (i == 15));
    settle();
    assert_int_equal(world.request_count, 4);
    assert_int_equal(request(2)->count, 15);
}

static void a_batch_spans_a_day_at_most(void **state)
{
    world_add("a", DAY_MS, 1, 10);
    world_add("a", 0, 1, 10);
    world_add("b", DAY_MS + 1, 1, 10);
    world_add("b", 0, 1, 10);
    world_add("c", 0, 1, 10);
    world_add("c", DAY_MS + 1, 1, 10);
    settle();
    size_t of[3] = {0};
    for (size_t i = 0; i < world.request_count; i++)
        of[request(i)->stream[0] - 'a']++;
    assert_true(of[0] == 1 && of[1] == 2 && of[2] == 2);
}

static void events_that_nobody_takes_are_lost_and_counted(void **state)
{
    world_add("a", 14 * DAY_MS + 1000, 2, 10);
    world_add("a", -2 * 3600 * 1000 - 1000, 3, 10);
    world_add("a", 0, 5, LOGS_EVENT_BYTES_MAX - LOGS_EVENT_OVERHEAD + 1);
    const struct delivery_event empty = {SV("/group"), SV("a"), SV(""),
                                         (int64_t)(WORLD_START_WALL_NS / NS_PER_MS), 7};
    delivery_add(world.delivery, &empty);
    char name[513];
    memset(name, 'n', sizeof(name));
    const struct delivery_event long_name = {
        SV("/group"), {name, 513}, SV("x"), (int64_t)(WORLD_START_WALL_NS / NS_PER_MS), 11};
    delivery_add(world.delivery, &long_name);
    uint32_t ok = world_add("a", 14 * DAY_MS - 60000, 1, 10);
    world_add("a", -2 * 3600 * 1000 + 1000, 1, 10);
    world_add("a", 0, 1, LOGS_EVENT_BYTES_MAX - LOGS_EVENT_OVERHEAD);
    settle();
    struct delivery_stats t = world_stats();
    assert_int_equal(t.lost_events[DELIVERY_LOST_OLD], 2);
    assert_int_equal(t.lost_samples[DELIVERY_LOST_OLD], 5);
    assert_int_equal(t.lost_events[DELIVERY_LOST_LARGE], 1);
    assert_int_equal(t.lost_samples[DELIVERY_LOST_LARGE], 5);
    assert_int_equal(t.lost_events[DELIVERY_LOST_REFUSED], 2);
    assert_int_equal(t.lost_samples[DELIVERY_LOST_REFUSED], 18);
    assert_int_equal(t.delivered_events, 3);
    assert_int_equal(world.seen[ok], 1);
}

static void each_loss_has_its_word(void **state)
{
    static const char *const words[] = {"too_old",   "spool_full", "refused",
                                        "too_large", "corrupt",    "no_memory"};
    for (size_t i = 0; i < DELIVERY_LOSS_COUNT; i++)
        assert_string_equal(delivery_loss_text((enum delivery_loss)i), words[i]);
}

static void too_many_streams_are_lost_as_full(void **state)
{
    char name[16];
    for (unsigned i = 0; i < LIMIT_DELIVERY_STREAMS + 3; i++) {
        (void)snprintf(name, sizeof(name), "s%u", i);
        world_add(name, 0, 1, 10);
    }
    assert_int_equal(world_stats().lost_events[DELIVERY_LOST_FULL], 3);
    settle();
    assert_int_equal(world.most_in_flight, DELIVERY_FLIGHTS);
    world_add("new", 0, 1, 10);
    settle();
    assert_int_equal(world_stats().delivered_events, LIMIT_DELIVERY_STREAMS + 1);
    world_run(2 * NS_PER_S);
    assert_null(world.delivery->streams);
}

// --- Outcomes ---

static enum logs_outcome bad_outcome; // of stream "bad"; of all while is_bad
static bool is_bad;

static void answer_bad(struct request *r)
{
    if (!is_bad && strcmp(r->stream, "bad") != 0)
        return;
    r->result = (struct logs_result){.outcome = bad_outcome, .error = "as the test wants"};
    r->is_taken = false;
}

static void fail_with(enum logs_outcome outcome, bool all)
{
    world.answer = answer_bad;
    bad_outcome = outcome;
    is_bad = all;
}

static void one_failing_stream_waits_longer_and_longer_and_the_others_do_not(void **state)
{
    fail_with(LOGS_RETRY, false);
    world_add("bad", 0, 1, 10);
    for (unsigned i = 0; i < 600; i++) {
        world_add("good", 0, 1, 10);
        world_run(NS_PER_S);
    }
    uint64_t last_ns = 0, wait_ns = 200 * NS_PER_MS;
    unsigned tries = 0;
    for (size_t i = 0; i < world.request_count; i++) {
        if (strcmp(request(i)->stream, "bad") != 0)
            continue;
        if (tries++) {
            uint64_t waited_ns = request(i)->at_ns - last_ns;
            assert_true(waited_ns >= wait_ns / 2);
            assert_true(waited_ns <= wait_ns + 100 * NS_PER_MS); // answer and disk
            wait_ns = wait_ns * 2 < 60 * NS_PER_S ? wait_ns * 2 : 60 * NS_PER_S;
        }
        last_ns = request(i)->at_ns;
    }
    assert_true(tries >= 15 && tries <= 30);
    struct delivery_stats t = world_stats();
    assert_true(t.delivered_events >= 598 && t.waiting_events <= 2);
    assert_int_equal(t.retries, tries - 1);
    assert_int_equal(t.duplicate_events, tries - 1);
    assert_string_equal(t.last_error, "as the test wants");
    world.answer = NULL;
    settle();
    assert_int_equal(world_lost(), 0);
}

static void answer_retry_after(struct request *r)
{
    r->result = (struct logs_result){.outcome = bad_outcome, .retry_after_s = 30, .error = "busy"};
    r->is_taken = false;
    world.answer = NULL;
}

static void what_the_service_asks_for_is_waited(void **state)
{
    static const enum logs_outcome outcomes[] = {LOGS_RETRY, LOGS_THROTTLED};
    for (size_t i = 0; i < 2; i++) {
        bad_outcome = outcomes[i];
        world.answer = answer_retry_after;
        world_add("a", 0, 1, 10);
        settle();
        uint64_t waited_ns = request(2 * i + 1)->at_ns - request(2 * i)->at_ns;
        assert_true(waited_ns >= 30 * NS_PER_S && waited_ns < 31 * NS_PER_S);
    }
}

static void throttling_slows_everything(void **state)
{
    fail_with(LOGS_THROTTLED, true);
    for (unsigned i = 0; i < 60; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "s%u", i % 20);
        world_add(name, 0, 1, 10);
        world_run(NS_PER_S);
    }
    // At first 8 at a time, then waits of 1, 2, 4 ... s, and one at a time in the end.
    assert_true(world.puts < 40);
    assert_int_equal(world.delivery->window, 1);
    assert_int_equal(world_stats().duplicate_events, 0);
    world.answer = NULL;
    settle();
    assert_int_equal(world_stats().delivered_events, 60);
    assert_int_equal(world.delivery->window, DELIVERY_FLIGHTS);
}

static void answer_poison(struct request *r)
{
    for (size_t i = 0; i < r->count; i++) {
        if (r->ids[i] % 1000 != 777)
            continue;
        r->result = (struct logs_result){.outcome = LOGS_SPLIT, .error = "one of them"};
        r->is_taken = false;
    }
}

static void halves_of_a_batch_are_sent_until_the_bad_event_is_alone(void **state)
{
    world.answer = answer_poison;
    for (unsigned i = 0; i < 10000; i++)
        world_add("a", 0, 2, 10);
    settle();
    struct delivery_stats t = world_stats();
    assert_int_equal(t.lost_events[DELIVERY_LOST_REFUSED], 10);
    assert_int_equal(t.lost_samples[DELIVERY_LOST_REFUSED], 20);
    assert_int_equal(t.delivered_events, 9990);
    assert_int_equal(t.duplicate_events, 0);
    for (unsigned i = 0; i < 10000; i++)
        assert_int_equal(world.seen[i], i % 1000 != 777);
    assert_true(world.puts < 10 * 2 * 14 + 20);
}

static void answer_split_all(struct request *r)
{
    r->result = (struct logs_result){.outcome = LOGS_SPLIT, .error = "none of them"};
    r->is_taken = false;
}

static void a_batch_that_is_split_to_nothing_is_lost(void **state)
{
    world.answer = answer_split_all;
    for (unsigned i = 0; i < 100; i++)
        world_add("a", 0, 1, 10);
    settle();
    assert_int_equal(world_stats().lost_events[DELIVERY_LOST_REFUSED], 100);
    assert_int_equal(world.puts, 199);
}

static void refused_batches_are_lost_and_nothing_waits_for_them(void **state)
{
    fail_with(LOGS_REFUSED, false);
    world_add("bad", 0, 3, 10);
    world_add("good", 0, 4, 10);
    settle();
    struct delivery_stats t = world_stats();
    assert_int_equal(t.lost_samples[DELIVERY_LOST_REFUSED], 3);
    assert_int_equal(t.delivered_samples, 4);
}

static void without_credentials_everything_waits_and_one_asks(void **state)
{
    fail_with(LOGS_CREDENTIALS, true);
    for (unsigned i = 0; i < 300; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "s%u", i % 20);
        world_add(name, 0, 1, 10);
        world_run(NS_PER_S);
    }
    // 8 that were under way at first, then one after 1, 2, 4 ... 60 s.
    assert_true(world.puts >= 10 && world.puts <= 30);
    for (size_t i = DELIVERY_FLIGHTS + 1; i < world.request_count; i++)
        assert_true(request(i)->at_ns - request(i - 1)->at_ns >= NS_PER_S / 2);
    world.answer = NULL;
    settle();
    assert_int_equal(world_stats().delivered_events, 300);
    assert_int_equal(world_stats().duplicate_events, 0);
}

static void a_stream_that_is_not_allowed_does_not_stop_the_others(void **state)
{
    fail_with(LOGS_CREDENTIALS, false);
    for (unsigned i = 0; i < 300; i++) {
        world_add("bad", 0, 1, 10);
        world_add("good", 0, 1, 10);
        world_run(NS_PER_S);
    }
    assert_true(world_stats().delivered_events >= 290);
}

static void answer_rejecting(struct request *r)
{
    r->result.rejected_old = 2;
    r->result.rejected_new = 1;
}

static void events_that_the_service_threw_away_are_counted_with_their_samples(void **state)
{
    world.answer = answer_rejecting;
    for (unsigned i = 0; i < 5; i++)
        world_add("a", 5 - (int64_t)i, 1u << i, 10);
    settle();
    struct delivery_stats t = world_stats();
    assert_int_equal(t.lost_events[DELIVERY_LOST_OLD], 3);
    assert_int_equal(t.lost_samples[DELIVERY_LOST_OLD], 1 + 2 + 16);
    assert_int_equal(t.delivered_samples, 4 + 8);
    // More than there are.
    world_add("a", 0, 1, 10);
    settle();
    assert_int_equal(world_stats().lost_samples[DELIVERY_LOST_OLD], 20);
}

static void answer_lost(struct request *r)
{
    r->result = (struct logs_result){.outcome = LOGS_RETRY, .error = "connection reset"};
    world.answer = NULL; // taken all the same
}

static void an_answer_that_was_lost_makes_counted_duplicates(void **state)
{
    world.answer = answer_lost;
    for (unsigned i = 0; i < 5; i++)
        world_add("a", 0, 1, 10);
    settle();
    assert_int_equal(world_stats().duplicate_events, 5);
    assert_int_equal(world_stats().delivered_events, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(world.seen[i], 2);
}

// --- Order and priorities ---

static void live_batches_go_first_and_backlog_at_half_the_rate(void **state)
{
    fail_with(LOGS_RETRY, true);
    for (unsigned i = 0; i < 100; i++) {
        world_add(i % 2 ? "a" : "b", 0, 1, 10);
        world_run(NS_PER_S);
    }
    assert_int_equal(world_stats().delivered_events, 0);
    world.answer = NULL;
    world_run(61 * NS_PER_S); // they wake up
    size_t from = world.request_count;
    for (unsigned i = 0; i < 400; i++) {
        world_add("a", 0, 1, 10);
        world_add("c", 0, 1, 10);
        world_run(world_random(30) * NS_PER_MS);
        delivery_set_flush(world.delivery, NS_PER_MS);
    }
    settle();
    size_t backlog = 0;
    for (size_t i = from; i + 1 < world.request_count; i++) {
        backlog += request(i)->was_backlog;
        // While a live one could have gone instead, no two in a row.
        assert_false(request(i)->was_backlog && request(i)->live_waited &&
                     request(i + 1)->was_backlog && request(i + 1)->live_waited);
    }
    assert_int_equal(world_lost(), 0);
    assert_int_equal(world_stats().delivered_events, 900);
    (void)backlog;
}

static void answer_after_a_second(struct request *r)
{
    r->answer_after_ns = NS_PER_S;
}

static void what_waited_through_an_outage_does_not_hold_up_what_comes_after(void **state)
{
    fail_with(LOGS_RETRY, true);
    for (unsigned i = 0; i < 300; i++) {
        world_add("a", 0, 1, 10);
        world_run(NS_PER_S);
    }
    world.answer = answer_after_a_second;
    world_run(61 * NS_PER_S); // it wakes up
    uint32_t id = world_add("a", 0, 1, 10);
    world_run(5 * NS_PER_S);
    assert_int_equal(world.seen[id], 1);
    assert_true(world_stats().waiting_events > 200);
    settle();
    assert_int_equal(world_lost(), 0);
}

// A reload sets it again, and many come in a row.
static void a_flush_that_is_set_again_is_not_put_off(void **state)
{
    uint32_t id = world_add("a", 0, 1, 10);
    for (unsigned i = 0; i < 30; i++) {
        delivery_set_flush(world.delivery, NS_PER_S);
        world_run(100 * NS_PER_MS);
    }
    assert_int_equal(world.seen[id], 1);
}

static void batches_of_a_stream_keep_their_order(void **state)
{
    for (unsigned i = 0; i < 200; i++) {
        world_add("a", 0, 1, 10);
        world_add("b", 0, 1, 10);
        world_run(world_random(2000) * NS_PER_MS);
    }
    settle();
    int64_t last[2] = {-1, -1};
    for (size_t i = 0; i < world.request_count; i++)
        for (size_t k = 0; k < request(i)->count; k++) {
            int64_t *at = &last[request(i)->stream[0] - 'a'];
            assert_true(request(i)->ids[k] > *at);
            *at = request(i)->ids[k];
        }
}

static void backlog_follows_oldest_first(void **state)
{
    fail_with(LOGS_RETRY, true);
    for (unsigned i = 0; i < 50; i++) {
        world_add("a", 0, 1, 10);
        world_run(NS_PER_S);
    }
    world_close(); // the next one finds all of it as backlog
    world.answer = NULL;
    size_t from = world.request_count;
    world_open(world.directory);
    settle();
    assert_int_equal(world.request_count - from, 50);
    for (size_t i = from; i < world.request_count; i++)
        assert_int_equal(request(i)->ids[0], i - from);
    assert_int_equal(world_stats().recovered_events, 50);
    assert_int_equal(world_stats().events, 0);
}

// --- Limits ---

static void batches_that_grew_too_old_are_lost(void **state)
{
    fail_with(LOGS_RETRY, true);
    world.keeps_requests = false;
    delivery_set_flush(world.delivery, 60 * NS_PER_S);
    world_add("a", 0, 3, 10);
    world_run(13 * 24 * 3600 * NS_PER_S);
    world_add("a", 0, 4, 10);
    world_run(23 * 3600 * NS_PER_S);
    assert_int_equal(world_lost(), 0);
    assert_int_equal(world_stats().oldest_wall_ns / NS_PER_S, WORLD_START_WALL_NS / NS_PER_S + 1);
    world_run(3600 * NS_PER_S + 200 * NS_PER_S);
    struct delivery_stats t = world_stats();
    assert_int_equal(t.lost_events[DELIVERY_LOST_OLD], 1);
    assert_int_equal(t.lost_samples[DELIVERY_LOST_OLD], 3);
    assert_int_equal(t.waiting_samples, 4);
    world.answer = NULL;
    settle();
    assert_int_equal(world_stats().delivered_samples, 4);
}

static void without_a_directory_memory_holds_what_fits_and_the_oldest_go(void **state)
{
    world_close();
    world_open("");
    fail_with(LOGS_RETRY, true);
    assert_true(world_stats().is_spooling_to_memory);
    for (unsigned i = 0; i < 40; i++) {
        for (unsigned k = 0; k < 4; k++)
            world_add("a", 0, 1, 250000);
        world_run(NS_PER_S);
        assert_true(world.delivery->memory_bytes <= LIMIT_DELIVERY_MEMORY_BYTES);
    }
    struct delivery_stats t = world_stats();
    assert_int_equal(t.waiting_events, 4 * 16);
    assert_int_equal(t.lost_events[DELIVERY_LOST_FULL], 4 * 24);
    world.answer = NULL;
    settle();
    for (unsigned i = 0; i < 160; i++)
        assert_int_equal(world.seen[i], i >= 96);
}

static void a_full_spool_drops_the_oldest_batches(void **state)
{
    struct error err = ERROR_INIT;
    struct delivery_options o = world_options(world.directory);
    o.spool_max_bytes = 8u << 20;
    world_close();
    assert_int_equal(delivery_new(&o, &world.delivery, &err), 0);
    fail_with(LOGS_RETRY, true);
    for (unsigned i = 0; i < 60; i++) {
        world_add("a", 0, 2, 250000);
        world_run(10 * NS_PER_S);
    }
    struct delivery_stats t = world_stats();
    assert_true(t.waiting_events >= 29 && t.waiting_events <= 33);
    assert_int_equal(t.lost_events[DELIVERY_LOST_FULL], 60 - t.waiting_events);
    assert_false(t.is_spooling_to_memory);
    world.answer = NULL;
    settle();
    for (unsigned i = 0; i < 60; i++)
        assert_int_equal(world.seen[i], i >= 60 - t.waiting_events);
}

static void what_cannot_be_read_back_is_lost_as_corrupt(void **state)
{
    char path[128];
    fail_with(LOGS_RETRY, true);
    world_add("a", 0, 5, 1000);
    world_run(5 * NS_PER_S);
    world_add("b", 0, 7, 1000);
    world_run(5 * NS_PER_S);
    (void)snprintf(path, sizeof(path), "%s/00000001.spool", world.directory);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 300, SEEK_SET), 0);
    assert_int_equal(fputc('!', f), '!');
    assert_int_equal(fclose(f), 0);
    world.answer = NULL;
    settle();
    struct delivery_stats t = world_stats();
    assert_int_equal(t.lost_samples[DELIVERY_LOST_CORRUPT], 5);
    assert_int_equal(t.delivered_samples, 7);
}

static void a_segment_that_somebody_removed_is_lost_as_corrupt(void **state)
{
    char path[128];
    fail_with(LOGS_RETRY, true);
    world_add("a", 0, 5, 1000);
    world_run(5 * NS_PER_S);
    world_close();
    struct aws_logs *logs = TAKE_PTR(world.logs); // so that nothing is read yet
    world_open(world.directory);
    world_run(20 * NS_PER_MS);
    (void)snprintf(path, sizeof(path), "%s/00000001.spool", world.directory);
    assert_int_equal(unlink(path), 0);
    world.answer = NULL;
    world.logs = logs;
    delivery_set_logs(world.delivery, logs);
    world_add("b", 0, 7, 1000);
    settle();
    struct delivery_stats t = world_stats();
    assert_int_equal(t.lost_samples[DELIVERY_LOST_CORRUPT], 5);
    assert_int_equal(t.delivered_samples, 7);
}

static void a_disk_that_fails_is_tried_again_later_and_later(void **state)
{
    world.disk_error = ENOSPC;
    fail_with(LOGS_RETRY, true);
    for (unsigned i = 0; i < 600; i++) {
        world_add("a", 0, 1, 100);
        world_run(NS_PER_S);
    }
    struct delivery_stats t = world_stats();
    assert_true(t.is_spooling_to_memory);
    assert_int_equal(t.waiting_events, 600);
    // After 1, 2, 4 ... 60 s.
    assert_true(t.spool_failures >= 12 && t.spool_failures <= 18);
    world.disk_error = 0;
    world_run(61 * NS_PER_S);
    assert_false(world_stats().is_spooling_to_memory);
    assert_int_equal(world.delivery->memory_bytes, 0);
    world_close();
    world_open(world.directory);
    world.answer = NULL;
    settle();
    assert_int_equal(world_stats().delivered_events, 600);
}

// --- The end ---

static void drained_is_told_when_nothing_is_left(void **state)
{
    world_add("a", 0, 1, 10);
    delivery_drain(world.delivery, 10 * NS_PER_S);
    assert_int_equal(world.drained, 0);
    world_run(500 * NS_PER_MS);
    assert_int_equal(world.drained, 1);
    assert_int_equal(world_stats().delivered_events, 1);
    world_run(20 * NS_PER_S);
    assert_int_equal(world.drained, 1);
}

static void drained_is_told_at_the_deadline(void **state)
{
    fail_with(LOGS_RETRY, true);
    world_add("a", 0, 1, 10);
    delivery_drain(world.delivery, 10 * NS_PER_S);
    world_run(9900 * NS_PER_MS);
    assert_int_equal(world.drained, 0);
    world_run(200 * NS_PER_MS);
    assert_int_equal(world.drained, 1);
    world_close();
    world_open(world.directory);
    world_run(NS_PER_MS * 10);
    assert_int_equal(world_stats().recovered_events, 1);
    assert_false(world_stats().was_unclean);
}

static void what_was_gathered_is_in_the_spool_afterwards(void **state)
{
    world.job_ns = 100 * NS_PER_MS;
    for (unsigned round = 0; round < 40; round++) {
        unsigned held = (unsigned)world_stats().waiting_events;
        unsigned more = 1 + (unsigned)world_random(30);
        world.answer = answer_bad;
        is_bad = true;
        bad_outcome = LOGS_RETRY;
        for (unsigned i = 0; i < more; i++)
            world_add("a", 0, 2, 10 + (size_t)world_random(1000));
        world_run(world_random(1500) * NS_PER_MS);
        world_close();
        world_open(world.directory);
        world_run(300 * NS_PER_MS);
        struct delivery_stats t = world_stats();
        assert_int_equal(t.recovered_events, held + more);
        assert_int_equal(t.recovered_samples, 2 * (held + more));
        assert_false(t.was_unclean);
    }
    world.answer = NULL;
    settle();
    assert_int_equal(world_lost(), 0);
}

static void other_logs_get_what_was_in_flight(void **state)
{
    world_add("a", 0, 1, 10);
    world_run(1010 * NS_PER_MS);
    assert_int_equal(world.in_flight, 1);
    struct aws_logs *other = (struct aws_logs *)&world; // never looked into
    delivery_set_logs(world.delivery, NULL);
    assert_int_equal(world.in_flight, 0);
    world_run(10 * NS_PER_S);
    assert_int_equal(world.puts, 1);
    world.logs = other;
    delivery_set_logs(world.delivery, other);
    settle();
    assert_int_equal(world.puts, 2);
    assert_int_equal(world_stats().duplicate_events, 1);
    assert_int_equal(world_stats().delivered_events, 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(events_of_a_stream_are_one_request_at_a_flush),
        T(events_are_sorted_by_time_and_equal_ones_stay),
        T(a_batch_of_ten_thousand_events_does_not_wait_for_the_flush),
        T(a_batch_is_as_large_as_the_service_takes),
        T(a_batch_spans_a_day_at_most),
        T(events_that_nobody_takes_are_lost_and_counted),
        T(each_loss_has_its_word),
        T(too_many_streams_are_lost_as_full),
        T(one_failing_stream_waits_longer_and_longer_and_the_others_do_not),
        T(what_the_service_asks_for_is_waited),
        T(throttling_slows_everything),
        T(halves_of_a_batch_are_sent_until_the_bad_event_is_alone),
        T(a_batch_that_is_split_to_nothing_is_lost),
        T(refused_batches_are_lost_and_nothing_waits_for_them),
        T(without_credentials_everything_waits_and_one_asks),
        T(a_stream_that_is_not_allowed_does_not_stop_the_others),
        T(events_that_the_service_threw_away_are_counted_with_their_samples),
        T(an_answer_that_was_lost_makes_counted_duplicates),
        T(live_batches_go_first_and_backlog_at_half_the_rate),
        T(what_waited_through_an_outage_does_not_hold_up_what_comes_after),
        T(a_flush_that_is_set_again_is_not_put_off),
        T(batches_of_a_stream_keep_their_order),
        T(backlog_follows_oldest_first),
        T(batches_that_grew_too_old_are_lost),
        T(without_a_directory_memory_holds_what_fits_and_the_oldest_go),
        T(a_full_spool_drops_the_oldest_batches),
        T(what_cannot_be_read_back_is_lost_as_corrupt),
        T(a_segment_that_somebody_removed_is_lost_as_corrupt),
        T(a_disk_that_fails_is_tried_again_later_and_later),
        T(drained_is_told_when_nothing_is_left),
        T(drained_is_told_at_the_deadline),
        T(what_was_gathered_is_in_the_spool_afterwards),
        T(other_logs_get_what_was_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
