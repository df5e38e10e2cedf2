// SPDX-License-Identifier: Apache-2.0
// Classic histograms as distributions: exact values for known increases.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/limits.h"
#include "emf_fixture.h"

#define T0 INT64_C(1767323040000) // a whole minute
#define VALUES "\"aggregate\": \"1m\", \"histograms\": \"values\""
#define EXTRACT(selector)                                                                          \
    "\"emf_processor\": {\"metric_namespace\": \"n\", \"metric_declaration\": [{\"source_labels\"" \
    ": [\"job\"], \"label_matcher\": \".\", \"metric_selectors\": [\"" selector                    \
    "\"], \"dimensions\": [[\"job\"]]}]}"
#define EVENT_AT(time, more, values)                                                               \
    "{\"Version\":\"1\",\"_aws\":{\"CloudWatchMetrics\":[{\"Namespace\":\"n\",\"Dimensions\":"     \
    "[[\"job\"]],\"Metrics\":[{\"Name\":\"h\",\"StorageResolution\":60}]}],\"Timestamp\":" time    \
    "},\"job\":\"j\"," more "\"prom_metric_type\":\"histogram\",\"h\":" values "}\n"
#define EVENT(values) EVENT_AT("1767323040000", "", values)
#define DISTRIBUTION(values, counts, most, least, count, sum)                                      \
    "{\"Values\":[" values "],\"Counts\":[" counts "],\"Max\":" most ",\"Min\":" least             \
    ",\"Count\":" count ",\"Sum\":" sum "}"

static struct emf_fixture *fixture(const char *podgpu)
{
    return emf_fixture_new(&(struct emf_fixture_options){
        .config = EXTRACT("^h$"), .podgpu = podgpu, .labels = "job=\"j\"", .interval_s = 15});
}

// A page of h with bounds 0.1, 0.5, 2 and +Inf.
static const char *page_of(const double *buckets, double sum, double count)
{
    static char page[1024];
    (void)snprintf(page, sizeof(page),
                   "# TYPE h histogram\nh_bucket{le=\"0.1\"} %.17g\nh_bucket{le=\"0.5\"} %.17g\n"
                   "h_bucket{le=\"2\"} %.17g\nh_bucket{le=\"+Inf\"} %.17g\nh_sum %.17g\n"
                   "h_count %.17g\n",
                   buckets[0], buckets[1], buckets[2], buckets[3], sum, count);
    return page;
}

static void scrape(struct emf_fixture *f, const double *buckets, double sum, int64_t time_ms)
{
    emf_fixture_scrape(f, page_of(buckets, sum, buckets[3]), time_ms);
}

// What one minute with those scrapes gives.
static void expect_minute(struct emf_fixture *f, const char *event)
{
    buf_reset(&f->events);
    emf_flush(f->emf, T0 + 60000, false);
    emf_fixture_expect(f, event);
}

static void a_minutes_increases_become_values_and_counts(void **state)
{
    struct emf_fixture *f = fixture(VALUES);
    scrape(f, (double[]){1, 2, 3, 4}, 10, T0);
    assert_int_equal(emf_fixture_stats(f).dropped_first, 6);
    assert_int_equal(emf_fixture_stats(f).custom_metrics, 1);
    scrape(f, (double[]){2, 5, 7, 9}, 20.5, T0 + 15000); // 1, 2, 1, 1 more
    scrape(f, (double[]){2, 5, 8, 11}, 26, T0 + 30000);  // 0, 0, 1, 1 more
    assert_int_equal(emf_fixture_stats(f).waiting, 12);
    expect_minute(f, EVENT(DISTRIBUTION("0.05,0.3,1.25,2", "1,2,2,2", "2", "0.05", "7", "16")));
    assert_string_equal(buf_cstr(&f->places),
                        "/aws/containerinsights/undefined/prometheus j 1767323040000 12\n");
    assert_int_equal(emf_fixture_stats(f).waiting, 0);
    buf_reset(&f->events);
    scrape(f, (double[]){2, 5, 9, 12}, 27, T0 + 60000);
    emf_flush(f->emf, T0 + 60000, true); // nothing of the minute before is in it
    emf_fixture_expect(
        f, EVENT_AT("1767323100000", "", DISTRIBUTION("1.25", "1", "1.25", "1.25", "1", "1")));
    emf_fixture_free(f);
}

static void each_pair_of_pages_gives_its_distribution(void **state)
{
    static const struct {
        const char *what, *before, *after, *distribution;
        uint64_t first, empty, type;
    } cases[] = {
        {"bounds below zero: the first stands for itself",
         "h_bucket{le=\"-2\"} 0\nh_bucket{le=\"-1\"} 0\nh_bucket{le=\"+Inf\"} 0\nh_sum 0\nh_count "
         "0\n",
         "h_bucket{le=\"-2\"} 1\nh_bucket{le=\"-1\"} 3\nh_bucket{le=\"+Inf\"} 4\nh_sum -4\nh_count "
         "4\n",
         DISTRIBUTION("-2,-1.5,-1", "1,2,1", "-1", "-2", "4", "-4"), 5, 0, 0},
        {"without a finite bound the mean stands for all",
         "h_bucket{le=\"+Inf\"} 0\nh_sum 0\nh_count 0\n",
         "h_bucket{le=\"+Inf\"} 4\nh_sum 10\nh_count 4\n",
         DISTRIBUTION("2.5", "4", "2.5", "2.5", "4", "10"), 3, 0, 0},
        {"count and sum alone", "h_sum 0\nh_count 0\n", "h_sum 9\nh_count 2\n",
         DISTRIBUTION("4.5", "2", "4.5", "4.5", "2", "9"), 2, 0, 0},
        {"the count takes the place of a bucket +Inf that is not there",
         "h_bucket{le=\"1\"} 0\nh_count 0\nh_sum 0\n", "h_bucket{le=\"1\"} 2\nh_count 5\nh_sum 7\n",
         DISTRIBUTION("0.5,1", "2,3", "1", "0.5", "5", "7"), 3, 0, 0},
        {"without a sum it is reckoned from the values",
         "h_bucket{le=\"1\"} 0\nh_bucket{le=\"3\"} 0\n",
         "h_bucket{le=\"1\"} 2\nh_bucket{le=\"3\"} 3\n",
         DISTRIBUTION("0.5,2", "2,1", "2", "0.5", "3", "3"), 2, 0, 0},
        {"order on the page and writing of bounds do not matter",
         "h_bucket{le=\"+Inf\"} 0\nh_bucket{le=\"1e1\"} 0\nh_bucket{le=\"2.0\"} 0\n",
         "h_bucket{le=\"+Inf\"} 6\nh_bucket{le=\"1e1\"} 5\nh_bucket{le=\"2.0\"} 3\n",
         DISTRIBUTION("1,6,10", "3,2,1", "10", "1", "6", "25"), 3, 0, 0},
        {"no observation: no event", "h_bucket{le=\"1\"} 3\nh_sum 3\nh_count 3\n",
         "h_bucket{le=\"1\"} 3\nh_sum 3\nh_count 3\n", NULL, 3, 3, 0},
        {"a bucket that is new waits for its second value",
         "h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\n",
         "h_bucket{le=\"1\"} 2\nh_bucket{le=\"2\"} 3\nh_bucket{le=\"+Inf\"} 5\n",
         DISTRIBUTION("0.5,2", "1,3", "2", "0.5", "4", "6.5"), 3, 0, 0},
        {"what is no part of it is dropped by type",
         "h_bucket 1\nh_bucket{le=\"x\"} 1\nh_bucket{le=\"NaN\"} 1\nh_bucket{le=\"-Inf\"} 1\n"
         "h_bucket{le=\"1e200\"} 1\nh 1\n",
         "h_bucket{le=\"1\"} 1\n", NULL, 1, 0, 6},
        {"cumulative counts that fall from bucket to bucket count no less than nothing",
         "h_bucket{le=\"1\"} 0\nh_bucket{le=\"2\"} 0\nh_count 0\nh_sum 0\n",
         "h_bucket{le=\"1\"} 3\nh_bucket{le=\"2\"} 2\nh_count 2\nh_sum 1\n",
         DISTRIBUTION("0.5", "3", "0.5", "0.5", "3", "1"), 4, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char page[1024], event[1024] = "";
        struct emf_fixture *f = fixture(VALUES);
        (void)snprintf(page, sizeof(page), "# TYPE h histogram\n%s", cases[i].before);
        emf_fixture_scrape(f, page, T0);
        (void)snprintf(page, sizeof(page), "# TYPE h histogram\n%s", cases[i].after);
        emf_fixture_scrape(f, page, T0 + 15000);
        if (cases[i].distribution)
            (void)snprintf(event, sizeof(event), EVENT("%s"), cases[i].distribution);
        print_message("%s\n", cases[i].what);
        expect_minute(f, event);
        assert_int_equal(emf_fixture_stats(f).dropped_first, cases[i].first);
        assert_int_equal(emf_fixture_stats(f).dropped_empty, cases[i].empty);
        assert_int_equal(emf_fixture_stats(f).dropped_type[PARSE_TYPE_HISTOGRAM], cases[i].type);
        emf_fixture_free(f);
    }
}

static void a_histogram_starts_again_as_a_whole(void **state)
{
    struct emf_fixture *f = fixture(VALUES);
    scrape(f, (double[]){1, 2, 3, 4}, 10, T0);
    // The first two have already passed what they were.
    scrape(f, (double[]){2, 3, 3, 3}, 1, T0 + 15000);
    expect_minute(f, EVENT(DISTRIBUTION("0.05,0.3", "2,1", "0.3", "0.05", "3", "1")));
    emf_fixture_free(f);
    f = fixture(VALUES);
    scrape(f, (double[]){1, 2, 3, 4}, 10, T0);
    // A sum may fall where observations are below zero: no start.
    scrape(f, (double[]){2, 3, 4, 5}, 4, T0 + 15000);
    expect_minute(f, EVENT(DISTRIBUTION("0.05", "1", "0.05", "0.05", "1", "-6")));
    emf_fixture_free(f);
}

static void samples_that_say_nothing_are_counted(void **state)
{
    struct emf_fixture *f = fixture(VALUES);
    emf_fixture_scrape(f,
                       "# TYPE h histogram\nh_bucket{le=\"1\"} 1 1767323040000\n"
                       "h_bucket{le=\"1.0\"} 2\nh_sum NaN\nh_count 1 1\n",
                       T0);
    struct emf_stats s = emf_fixture_stats(f);
    assert_int_equal(s.dropped_first, 1);
    assert_int_equal(s.dropped_duplicate, 1);
    assert_int_equal(s.dropped_not_finite, 1);
    assert_int_equal(s.dropped_old, 1);
    emf_fixture_scrape(f, "# TYPE h histogram\nh_bucket{le=\"1\"} 3 1767323040000\n", T0 + 1000);
    assert_int_equal(emf_fixture_stats(f).dropped_repeated, 1);
    emf_fixture_scrape(f, "# TYPE h histogram\nh_bucket{le=\"1\"} 4\nh_sum 1e300\n", T0 + 2000);
    emf_fixture_scrape(f, "# TYPE h histogram\nh_bucket{le=\"1\"} 4\nh_sum 2e300\n", T0 + 3000);
    assert_int_equal(emf_fixture_stats(f).dropped_value, 1);
    expect_minute(f, EVENT(DISTRIBUTION("0.5", "3", "0.5", "0.5", "3", "1.5")));
    // Forgotten after five minutes.
    emf_fixture_scrape(f, "# TYPE h histogram\nh_bucket{le=\"1\"} 9\n", T0 + 400000);
    assert_int_equal(emf_fixture_stats(f).dropped_first, 3);
    emf_fixture_free(f);
}

static void without_the_keys_histograms_are_dropped_by_type(void **state)
{
    static const char *const podgpu[] = {"\"aggregate\": \"1m\"",
                                         "\"aggregate\": \"1m\", \"histograms\": \"drop\"", NULL};
    for (size_t i = 0; i < ARRAY_SIZE(podgpu); i++) {
        struct emf_fixture *f = fixture(podgpu[i]);
        scrape(f, (double[]){1, 2, 3, 4}, 10, T0);
        assert_int_equal(emf_fixture_stats(f).dropped_type[PARSE_TYPE_HISTOGRAM], 6);
        expect_minute(f, "");
        emf_fixture_free(f);
    }
}

static void declarations_select_by_the_histograms_name(void **state)
{
    struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
        .config = EXTRACT("^h_(bucket|sum|count)$"), .podgpu = VALUES, .labels = "job=\"j\""});
    scrape(f, (double[]){1, 2, 3, 4}, 10, T0);
    assert_int_equal(emf_fixture_stats(f).dropped_unmatched, 6);
    expect_minute(f, "");
    emf_fixture_free(f);
}

static void other_labels_are_another_distribution(void **state)
{
    struct emf_fixture *f = fixture(VALUES);
    for (int i = 0; i < 2; i++) {
        char page[512];
        (void)snprintf(page, sizeof(page),
                       "# TYPE h histogram\nh_bucket{a=\"x\",le=\"1\"} %d\nh_count{a=\"x\"} %d\n"
                       "h_bucket{a=\"y\",le=\"1\"} %d\nh_count{a=\"y\"} %d\n",
                       i, i, 2 * i, 2 * i);
        emf_fixture_scrape(f, page, T0 + i * 1000);
    }
    buf_reset(&f->events);
    emf_flush(f->emf, T0 + 60000, false);
    assert_non_null(strstr(buf_cstr(&f->events), "\"a\":\"x\""));
    assert_non_null(
        strstr(buf_cstr(&f->events), DISTRIBUTION("0.5", "1", "0.5", "0.5", "1", "0.5") "}\n"));
    assert_non_null(
        strstr(buf_cstr(&f->events), DISTRIBUTION("0.5", "2", "0.5", "0.5", "2", "1") "}\n"));
    emf_fixture_check_stats(f);
    emf_fixture_free(f);
}

static const char *many_buckets(unsigned count, unsigned each)
{
    static char page[1u << 18];
    size_t len = (size_t)snprintf(page, sizeof(page), "# TYPE h histogram\n");
    for (unsigned i = 1; i <= count; i++)
        len += (size_t)snprintf(page + len, sizeof(page) - len, "h_bucket{le=\"%u\"} %u\n", 2 * i,
                                each * i);
    (void)snprintf(page + len, sizeof(page) - len, "h_sum %u\nh_count %u\n", each * 7,
                   each * count);
    return page;
}

static void more_than_100_values_are_several_events_that_add_up(void **state)
{
    static const struct {
        unsigned buckets;
        uint64_t events;
        const char *last;
    } cases[] = {
        {99, 1, "\"Max\":197,\"Min\":1,\"Count\":99,\"Sum\":7}"},
        {100, 1, "\"Max\":199,\"Min\":1,\"Count\":100,\"Sum\":7}"},
        {101, 2, "{\"Values\":[201],\"Counts\":[1],\"Max\":201,\"Min\":201,\"Count\":1,\"Sum\":0}"},
        {250, 3, "\"Max\":499,\"Min\":401,\"Count\":50,\"Sum\":0}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct emf_fixture *f = fixture(VALUES);
        emf_fixture_scrape(f, many_buckets(cases[i].buckets, 0), T0);
        emf_fixture_scrape(f, many_buckets(cases[i].buckets, 1), T0 + 1000);
        emf_flush(f->emf, T0 + 60000, false);
        emf_fixture_check_stats(f);
        struct emf_stats s = emf_fixture_stats(f);
        assert_int_equal(s.events, cases[i].events);
        assert_int_equal(s.metrics_split, cases[i].events - 1);
        assert_int_equal(s.event_samples, cases[i].buckets + 2);
        if (!strstr(buf_cstr(&f->events), cases[i].last))
            fail_msg("%s is not in\n%s", cases[i].last, buf_cstr(&f->events));
        emf_fixture_free(f);
    }
}

static void buckets_beyond_the_limit_are_not_kept(void **state)
{
    struct emf_fixture *f = fixture(VALUES);
    struct sink_series s = {.name = SV("h_bucket"), .type = PARSE_TYPE_HISTOGRAM};
    void *handles[LIMIT_EMF_BUCKETS + 1];
    struct arena arena = ARENA_INIT(1u << 20);
    for (unsigned i = 0; i <= LIMIT_EMF_BUCKETS; i++) {
        struct labels l;
        char le[16];
        arena_reset(&arena);
        labels_init(&l, &arena);
        size_t len = (size_t)snprintf(le, sizeof(le), "%u", i);
        assert_int_equal(labels_set(&l, SV("job"), SV("j")), 0);
        assert_int_equal(labels_set(&l, SV("le"), (struct sv){le, len}), 0);
        s.labels = &l;
        assert_int_equal(f->sink.ops->series_new(f->target, &s, &handles[i]), 0);
    }
    f->sink.ops->begin(f->target, T0);
    for (unsigned i = 0; i <= LIMIT_EMF_BUCKETS; i++)
        f->sink.ops->sample(f->target, handles[i], 1, T0);
    assert_int_equal(f->sink.ops->end(f->target), 0);
    assert_int_equal(emf_fixture_stats(f).dropped_memory, 1);
    assert_int_equal(emf_fixture_stats(f).dropped_first, LIMIT_EMF_BUCKETS);
    for (unsigned i = 0; i <= LIMIT_EMF_BUCKETS; i++)
        f->sink.ops->series_free(f->target, handles[i]);
    arena_deinit(&arena);
    emf_fixture_free(f);
}

static void a_series_that_ends_sends_what_was_seen(void **state)
{
    struct emf_fixture *f = fixture(VALUES);
    scrape(f, (double[]){0, 0, 0, 0}, 0, T0);
    scrape(f, (double[]){1, 1, 1, 1}, 0.1, T0 + 1000);
    f->sink.ops->series_free(f->target, f->series[2].handle);
    f->series[2].handle = NULL;
    emf_fixture_expect(f, EVENT(DISTRIBUTION("0.05", "1", "0.05", "0.05", "1", "0.1")));
    emf_fixture_free(f);
}

static void a_new_histogram_of_ours_counts_from_zero(void **state)
{
    struct emf_fixture *f = fixture(VALUES ", \"counters_from_zero\": \"h\"");
    emf_fixture_scrape(f, "# TYPE g gauge\ng 1\n", T0);
    scrape(f, (double[]){1, 1, 1, 1}, 0.1, T0 + 1000);
    expect_minute(f, EVENT(DISTRIBUTION("0.05", "1", "0.05", "0.05", "1", "0.1")));
    emf_fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_minutes_increases_become_values_and_counts),
        cmocka_unit_test(each_pair_of_pages_gives_its_distribution),
        cmocka_unit_test(a_histogram_starts_again_as_a_whole),
        cmocka_unit_test(samples_that_say_nothing_are_counted),
        cmocka_unit_test(without_the_keys_histograms_are_dropped_by_type),
        cmocka_unit_test(declarations_select_by_the_histograms_name),
        cmocka_unit_test(other_labels_are_another_distribution),
        cmocka_unit_test(more_than_100_values_are_several_events_that_add_up),
        cmocka_unit_test(buckets_beyond_the_limit_are_not_kept),
        cmocka_unit_test(a_series_that_ends_sends_what_was_seen),
        cmocka_unit_test(a_new_histogram_of_ours_counts_from_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
