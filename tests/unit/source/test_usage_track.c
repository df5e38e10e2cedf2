// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "source/nvml_usage_internal.h"

#define WALL_US 1700000000000000u  // of the driver's clock when ours stands at START_NS
#define START_NS (1000 * NS_PER_S) // CLOCK_MONOTONIC
#define W_US 100000u               // the driver's window
#define W_NS (W_US * NS_PER_US)
#define LIST(...)                                                                                  \
    (const struct usage_entry[]){__VA_ARGS__},                                                     \
        sizeof((const struct usage_entry[]){__VA_ARGS__}) / sizeof(struct usage_entry)

static struct usage_track track, busy;
static struct usage_times times;
static struct buf out;

static int setup(void **state)
{
    (void)state;
    track = busy = (struct usage_track){0};
    times = (struct usage_times){.ahead_ns = (int64_t)(WALL_US * NS_PER_US - START_NS),
                                 .wall_us = WALL_US + 3600000000u};
    out = BUF_INIT(1 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_deinit(&out);
    return 0;
}

// The time of the driver's k-th window's end, in hundredths of a window.
static uint64_t us(unsigned hundredths)
{
    return WALL_US + (uint64_t)hundredths * (W_US / 100);
}

static uint64_t ns(unsigned hundredths)
{
    return START_NS + (uint64_t)hundredths * (W_NS / 100);
}

static bool add_spans(const struct usage_entry *list, size_t count)
{
    buf_reset(&out);
    return usage_add_spans(&track, &times, list, count, &out);
}

static void assert_spans(const struct frame_usage_span *spans, size_t count)
{
    assert_int_equal(out.len, count * sizeof(*spans));
    for (size_t i = 0; i < count; i++) {
        const struct frame_usage_span *s = (const void *)(out.data + i * sizeof(*s));
        assert_int_equal(s->from_ns, spans[i].from_ns);
        assert_int_equal(s->to_ns, spans[i].to_ns);
        assert_int_equal(s->ppm, spans[i].ppm);
        assert_int_equal(s->filled, spans[i].filled);
    }
}

#define SPANS(...)                                                                                 \
    assert_spans((const struct frame_usage_span[]){__VA_ARGS__},                                   \
                 sizeof((const struct frame_usage_span[]){__VA_ARGS__}) /                          \
                     sizeof(struct frame_usage_span))

static void add_shares(uint64_t known_ns, const struct usage_entry *list, size_t count)
{
    buf_reset(&out);
    usage_add_shares(&track, &times, &busy, known_ns, list, count, &out);
}

static void assert_shares(const struct frame_usage_share *shares, size_t count)
{
    assert_int_equal(out.len, count * sizeof(*shares));
    for (size_t i = 0; i < count; i++) {
        const struct frame_usage_share *s = (const void *)(out.data + i * sizeof(*s));
        assert_int_equal(s->from_ns, shares[i].from_ns);
        assert_int_equal(s->to_ns, shares[i].to_ns);
        assert_int_equal(s->pid, shares[i].pid);
        assert_int_equal(s->ppm, shares[i].ppm);
    }
}

#define SHARES(...)                                                                                \
    assert_shares((const struct frame_usage_share[]){__VA_ARGS__},                                 \
                  sizeof((const struct frame_usage_share[]){__VA_ARGS__}) /                        \
                      sizeof(struct frame_usage_share))

// A history that ends at window 10, busy 500000.
static void begin(void)
{
    assert_true(add_spans(LIST({us(800), 0, 1}, {us(900), 0, 2}, {us(1000), 0, 500000})));
    assert_int_equal(out.len, 0);
    assert_int_equal(track.to_ns, ns(1000));
}

static void whole_percents_are_taken_half_a_percent_higher(void **state)
{
    (void)state;
    static const struct {
        uint32_t percent, ppm;
    } cases[] = {{0, 0}, {1, 15000}, {50, 505000}, {99, 995000}, {100, 1000000}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(usage_ppm(cases[i].percent), cases[i].ppm);
}

static void a_sample_is_of_the_time_since_the_one_before(void **state)
{
    (void)state;
    begin();
    assert_false(add_spans(LIST({us(1100), 0, 10}, {us(1198), 0, 20}, {us(1305), 0, 30})));
    SPANS({ns(1000), ns(1100), 10}, {ns(1100), ns(1198), 20}, {ns(1198), ns(1305), 30});
    assert_false(add_spans(NULL, 0)); // nothing new
    assert_int_equal(out.len, 0);
    assert_int_equal(track.to_ns, ns(1305));
    assert_false(add_spans(LIST({us(1400), 0, 40})));
    SPANS({ns(1305), ns(1400), 40});
}

static void a_lost_entry_is_filled_with_the_mean_of_its_neighbours(void **state)
{
    (void)state;
    begin();
    assert_false(add_spans(LIST({us(1200), 0, 100000}, {us(1300), 0, 1000000})));
    SPANS({ns(1000), ns(1100), 300000, 1}, {ns(1100), ns(1200), 100000},
          {ns(1200), ns(1300), 1000000});
}

static void a_hole_is_filled_up_to_a_second_and_longer_ones_are_a_gap(void **state)
{
    (void)state;
    begin();
    assert_false(add_spans(LIST({us(2100), 0, 100000}))); // ten windows of 100 ms
    SPANS({ns(1000), ns(2000), 300000, 1}, {ns(2000), ns(2100), 100000});
    assert_true(add_spans(LIST({us(3201), 0, 7}, {us(3301), 0, 8})));
    SPANS({ns(3101), ns(3201), 7}, {ns(3201), ns(3301), 8});
    assert_false(add_spans(LIST({us(3401), 0, 9})));
    SPANS({ns(3301), ns(3401), 9});
}

static void an_empty_buffer_gives_its_first_entry_as_the_base(void **state)
{
    (void)state;
    assert_true(add_spans(NULL, 0));
    assert_true(add_spans(LIST({us(100), 0, 5})));
    assert_int_equal(out.len, 0);
    assert_false(add_spans(LIST({us(200), 0, 6})));
    SPANS({ns(100), ns(200), 6});
}

static void clocks_that_drift_leave_no_hole_and_no_overlap(void **state)
{
    (void)state;
    static const int64_t drifts_ns[] = {3000000, -3000000};
    for (size_t i = 0; i < 2; i++) {
        teardown(NULL);
        setup(NULL);
        begin();
        times.ahead_ns -= drifts_ns[i];
        assert_false(add_spans(LIST({us(1100), 0, 10})));
        SPANS({ns(1000), ns(1100) + (uint64_t)drifts_ns[i], 10});
    }
}

static void a_longer_window_of_the_driver_is_learnt_again(void **state)
{
    (void)state;
    begin();
    uint64_t at = us(1000);
    unsigned filled = 0;
    for (unsigned i = 0; i < 200; i++) {
        at += 2 * W_US;
        assert_false(add_spans(LIST({at, 0, 10})));
        filled += out.len > sizeof(struct frame_usage_span);
        if (i >= 128)
            assert_int_equal(out.len, sizeof(struct frame_usage_span));
    }
    assert_true(filled > 0);
}

static void a_buffer_may_be_in_any_order_and_hold_what_is_not_new(void **state)
{
    (void)state;
    struct usage_entry list[] = {{us(300), 0, 3}, {us(100), 0, 1}, {us(200), 0, 2},
                                 {us(200), 0, 2}, {us(0), 0, 9},   {us(90000000), 0, 9}};
    track.last_us = us(0);
    times.wall_us = us(300);
    assert_int_equal(usage_entries_settle(&track, &times, list, 6), 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(list[i].us, us((i + 1) * 100));
        assert_int_equal(list[i].ppm, i + 1);
    }
}

static void after_a_step_back_only_what_came_after_it_counts(void **state)
{
    (void)state;
    struct usage_entry list[] = {
        {us(500), 0, 1}, {us(600), 0, 2}, {us(550), 0, 3}, {us(650), 0, 4}};
    times.stepped_lately = true;
    assert_int_equal(usage_entries_settle(&track, &times, list, 4), 2);
    assert_int_equal(list[0].us, us(550));
    assert_int_equal(list[1].us, us(650));
}

static void of_one_process_and_time_the_larger_share_counts(void **state)
{
    (void)state;
    struct usage_entry list[] = {{us(100), 8, 1}, {us(100), 7, 1}, {us(100), 7, 5}};
    assert_int_equal(usage_entries_settle(&track, &times, list, 3), 2);
    assert_int_equal(list[0].pid, 7);
    assert_int_equal(list[0].ppm, 5);
    assert_int_equal(list[1].pid, 8);
}

static void a_share_is_of_the_window_that_ends_at_its_time(void **state)
{
    (void)state;
    busy.window_us = W_US;
    add_shares(ns(1000), LIST({us(900), 7, 5}, {us(1000), 7, 5})); // history
    assert_int_equal(out.len, 0);
    assert_int_equal(track.to_ns, ns(1000));
    add_shares(ns(1500), LIST({us(1100), 7, 10}, {us(1100), 8, 20}, {us(1400), 8, 30}));
    SHARES({ns(1000), ns(1100), 7, 10}, {ns(1000), ns(1100), 8, 20}, {ns(1300), ns(1400), 8, 30});
    assert_int_equal(track.to_ns, ns(1500)); // nobody was busy after that
    add_shares(ns(2500), NULL, 0);
    assert_int_equal(out.len, 0);
    assert_int_equal(track.to_ns, ns(2500));
    add_shares(ns(2500), LIST({us(2600), 7, 0}, {us(2705), 7, 40})); // 0 is not told
    SHARES({ns(2600), ns(2705), 7, 40});
    assert_int_equal(track.to_ns, ns(2705));
}

static void shares_that_follow_on_each_other_are_joined_though_clocks_drift(void **state)
{
    (void)state;
    busy.window_us = W_US;
    add_shares(0, LIST({us(1000), 7, 5}));
    add_shares(0, LIST({us(1100), 7, 5}));
    times.ahead_ns -= 700;
    add_shares(0, LIST({us(1200), 7, 5}));
    SHARES({ns(1100), ns(1200) + 700, 7, 5});
}

static void shares_without_spans_have_the_shortest_distance_for_a_window(void **state)
{
    (void)state;
    add_shares(0, NULL, 0);
    add_shares(0, LIST({us(100), 7, 1}));
    SHARES({ns(100) - 166667 * NS_PER_US, ns(100), 7, 1}); // as long as none was seen
    add_shares(0, LIST({us(500), 7, 2}, {us(600), 7, 3}));
    SHARES({ns(400), ns(500), 7, 2}, {ns(500), ns(600), 7, 3});
}

static void shares_that_come_late_are_waited_for(void **state)
{
    (void)state;
    busy.window_us = W_US;
    add_shares(ns(1000), NULL, 0);
    add_shares(ns(2000), NULL, 0);
    assert_int_equal(track.to_ns, ns(2000));
    add_shares(ns(3000), LIST({us(1900), 7, 1}, {us(2000), 7, 1}, {us(2100), 7, 5}));
    SHARES({ns(2000), ns(2100), 7, 5}); // what was told to be nothing stays so
    assert_int_equal(track.to_ns, ns(2100));
    add_shares(ns(4000), LIST({us(2200), 7, 5}));
    SHARES({ns(2100), ns(2200), 7, 5});
    assert_int_equal(track.to_ns, ns(3000)); // as it was known a pass ago
}

// Two spans, of which the first fills a hole, and what processes did then.
static void refill(struct nvml_usage_device *x, const struct frame_usage_share *shares,
                   size_t count)
{
    struct buf told = BUF_INIT(1 << 12);
    const struct frame_usage_span spans[] = {{ns(1000), ns(1100), 500000, 1},
                                             {ns(1100), ns(1200), 400000, 0}};
    buf_reset(&out);
    buf_add(&out, spans, sizeof(spans));
    buf_add(&told, shares, count * sizeof(*shares));
    usage_refill_spans(x, &out, 0, &told, 0);
    buf_deinit(&told);
}

static void a_hole_has_what_processes_are_known_to_have_done(void **state)
{
    static const struct {
        struct usage_track shares;
        uint32_t before[2], after; // of two processes in the hole, of one behind it
        uint32_t ppm;
    } rows[] = {
        {{.last_us = 1, .to_ns = UINT64_MAX}, {0, 0}, 400000, 0},
        {{.last_us = 1, .to_ns = UINT64_MAX}, {200000, 150000}, 400000, 350000},
        {{.last_us = 1, .to_ns = UINT64_MAX}, {700000, 400000}, 400000, 1000000},
        {{.last_us = 1, .to_ns = UINT64_MAX}, {200000, 150000}, 300000, 350000},
        // Others were busy, too, or these at the same time.
        {{.last_us = 1, .to_ns = UINT64_MAX}, {200000, 150000}, 290000, 500000},
        {{.last_us = 1, .to_ns = UINT64_MAX}, {200000, 150000}, 510000, 500000},
        // None is told; not of that time yet; they come late.
        {{.last_us = 0, .to_ns = UINT64_MAX}, {0, 0}, 400000, 500000},
        {{.last_us = 1, .to_ns = START_NS}, {0, 0}, 400000, 500000},
        {{.last_us = 1, .to_ns = UINT64_MAX, .late = true}, {0, 0}, 400000, 500000},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct nvml_usage_device x = {
            .shares = rows[i].shares, .busy.to_ns = ns(1200), .ahead = BUF_INIT(1 << 12)};
        const struct frame_usage_share told[] = {{ns(1000), ns(1100), 1, rows[i].before[0]},
                                                 {ns(1000), ns(1100), 2, rows[i].before[1]},
                                                 {ns(1100), ns(1200), 1, rows[i].after}};
        refill(&x, told, 3);
        SPANS({ns(1000), ns(1100), rows[i].ppm, 1}, {ns(1100), ns(1200), 400000});
        assert_int_equal(x.ahead.len, 0);
        buf_deinit(&x.ahead);
    }
}

static void shares_that_came_before_their_samples_are_remembered(void **state)
{
    (void)state;
    const struct frame_usage_share shares[] = {{ns(1000), ns(1100), 1, 200000},
                                               {ns(1100), ns(1200), 1, 400000}};
    struct nvml_usage_device x = {.shares = {.last_us = 1, .to_ns = UINT64_MAX},
                                  .busy.to_ns = ns(1000),
                                  .ahead = BUF_INIT(1 << 12)};
    refill(&x, shares, 1);
    assert_int_equal(x.ahead.len, sizeof(shares[0]));
    x.busy.to_ns = ns(1200);
    refill(&x, &shares[1], 1);
    SPANS({ns(1000), ns(1100), 200000, 1}, {ns(1100), ns(1200), 400000});
    assert_int_equal(x.ahead.len, 0);
    buf_deinit(&x.ahead);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(whole_percents_are_taken_half_a_percent_higher),
        TEST(a_sample_is_of_the_time_since_the_one_before),
        TEST(a_lost_entry_is_filled_with_the_mean_of_its_neighbours),
        TEST(a_hole_is_filled_up_to_a_second_and_longer_ones_are_a_gap),
        TEST(an_empty_buffer_gives_its_first_entry_as_the_base),
        TEST(clocks_that_drift_leave_no_hole_and_no_overlap),
        TEST(a_longer_window_of_the_driver_is_learnt_again),
        TEST(a_buffer_may_be_in_any_order_and_hold_what_is_not_new),
        TEST(after_a_step_back_only_what_came_after_it_counts),
        TEST(of_one_process_and_time_the_larger_share_counts),
        TEST(a_share_is_of_the_window_that_ends_at_its_time),
        TEST(shares_that_follow_on_each_other_are_joined_though_clocks_drift),
        TEST(shares_without_spans_have_the_shortest_distance_for_a_window),
        TEST(shares_that_come_late_are_waited_for),
        TEST(a_hole_has_what_processes_are_known_to_have_done),
        TEST(shares_that_came_before_their_samples_are_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
