// SPDX-License-Identifier: Apache-2.0
// What the sinks are told of scrapes: exact sequences.
#include "series_fixture.h"

#include "base/limits.h"

static void a_series_is_told_once_and_then_given_by_its_pointer(void **state)
{
    struct fixture f;
    fixture_init(&f, "instance=i job=j");
    fixture_start(&f);
    fixture_expect(&f, "T1 j{instance=i,job=j} 15000ms\n");
    fixture_take(&f, "# TYPE a gauge\na{x=\"1\"} 5\n# TYPE b counter\nb 6\n");
    fixture_expect(&f, "s1 a{instance=i,job=j,x=1} gauge\n"
                       "s2 b{instance=i,job=j} counter\n"
                       "begin T1 1000\ns1=5@1000\ns2=6@1000\nend\n");
    f.now_ms = 16000;
    fixture_take(&f, "# TYPE a gauge\na{x=\"1\"} 7\n# TYPE b counter\nb 8\n");
    fixture_expect(&f, "begin T1 16000\ns1=7@16000\ns2=8@16000\nend\n");
    fixture_deinit(&f);
}

static void the_order_of_a_page_may_change(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    fixture_start(&f);
    fixture_take(&f, "a 1\nb 2\nc 3\n");
    fixture_expect(&f, "T1 j{} 15000ms\ns1 a{} none\ns2 b{} none\ns3 c{} none\n"
                       "begin T1 1000\ns1=1@1000\ns2=2@1000\ns3=3@1000\nend\n");
    fixture_take(&f, "c 6\na 4\nb 5\n");
    fixture_expect(&f, "begin T1 1000\ns1=4@1000\ns2=5@1000\ns3=6@1000\nend\n");
    fixture_deinit(&f);
}

static void a_series_that_began_between_two_good_scrapes_is_new(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    fixture_start(&f);
    fixture_take(&f, "a 1\n");
    fixture_take(&f, "a 1\nb 1\n");
    fixture_expect(&f, "T1 j{} 15000ms\ns1 a{} none\nbegin T1 1000\ns1=1@1000\nend\n"
                       "s2 b{} none new\nbegin T1 1000\ns1=1@1000\ns2=1@1000\nend\n");
    series_table_fail(f.table, 1000, 0);
    fixture_take(&f, "c 1\n");
    fixture_expect(&f, "begin T1 1000\ns1 stale\ns2 stale\nend\n"
                       "s3 c{} none\nbegin T1 1000\ns3=1@1000\nend\n");
    assert_int_equal(fixture_take_sv(&f, SV("{\n")), -EINVAL);
    fixture_take(&f, "d 1\n"); // a page that was not taken counts as failed
    fixture_expect(&f, "begin T1 1000\ns3 stale\nend\n"
                       "s4 d{} none\nbegin T1 1000\ns4=1@1000\nend\n");
    fixture_deinit(&f);
}

static void what_vanishes_is_stale_once(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    fixture_start(&f);
    fixture_take(&f, "a 1\nb 1\n");
    buf_reset(&f.sink.log);
    fixture_take(&f, "b 2\n");
    fixture_expect(&f, "begin T1 1000\ns1 stale\ns2=2@1000\nend\n");
    fixture_take(&f, "b 3\n");
    fixture_expect(&f, "begin T1 1000\ns2=3@1000\nend\n");
    fixture_take(&f, "a 4\nb 3\n"); // and comes back as what it was
    fixture_expect(&f, "begin T1 1000\ns1=4@1000\ns2=3@1000\nend\n");
    fixture_take(&f, "");
    fixture_expect(&f, "begin T1 1000\ns1 stale\ns2 stale\nend\n");
    fixture_deinit(&f);
}

static void a_failed_scrape_ends_all_series_once(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    fixture_start(&f);
    fixture_take(&f, "a 1\nb 1\n");
    buf_reset(&f.sink.log);
    series_table_fail(f.table, 2000, 0);
    fixture_expect(&f, "begin T1 2000\ns1 stale\ns2 stale\nend\n");
    series_table_fail(f.table, 3000, 0);
    fixture_expect(&f, "begin T1 3000\nend\n");
    fixture_take(&f, "a 2\n");
    fixture_expect(&f, "begin T1 1000\ns1=2@1000\nend\n");
    fixture_deinit(&f);
}

static void a_page_counts_whole_or_not_at_all(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    fixture_start(&f);
    fixture_take(&f, "a 1\nb 1\n");
    buf_reset(&f.sink.log);
    assert_int_equal(fixture_take_sv(&f, SV("a 2\nc 2\nd 2\nx{ 1\n")), -EINVAL);
    assert_int_equal(f.err.line, 4);
    assert_string_equal(f.err.text, "expected a label name or '}', got '1'");
    assert_int_equal(f.result.scraped, 3);
    assert_int_equal(f.result.relabelled, 3);
    assert_int_equal(f.result.added, 2);
    assert_int_equal(series_table_count(f.table), 2);
    fixture_expect(&f, "s3 c{} none new\ns4 d{} none new\n-s3\n-s4\n"
                       "begin T1 1000\ns1 stale\ns2 stale\nend\n");
    fixture_take(&f, "a 3\nb 3\nc 3\n");
    fixture_expect(&f, "s5 c{} none\nbegin T1 1000\ns1=3@1000\ns2=3@1000\ns5=3@1000\nend\n");
    fixture_deinit(&f);
}

static void timestamps_of_the_page_count_when_honoured(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    fixture_start(&f);
    fixture_take(&f, "a 1 555\nb 2\n");
    fixture_expect(&f, "T1 j{} 15000ms\ns1 a{} none\ns2 b{} none\n"
                       "begin T1 1000\ns1=1@555\ns2=2@1000\nend\n");
    fixture_take(&f, ""); // who gives timestamps ends series with a marker of his own
    fixture_expect(&f, "begin T1 1000\ns2 stale\nend\n");
    f.job.track_timestamps_staleness = true;
    fixture_take(&f, "a 1 556\n");
    fixture_take(&f, "");
    fixture_expect(&f, "begin T1 1000\ns1=1@556\nend\nbegin T1 1000\ns1 stale\nend\n");
    f.job.track_timestamps_staleness = false;
    f.job.honor_timestamps = false;
    fixture_take(&f, "a 1 557\n");
    fixture_take(&f, "");
    fixture_expect(&f, "begin T1 1000\ns1=1@1000\nend\nbegin T1 1000\ns1 stale\nend\n");
    fixture_deinit(&f);
}

static void of_a_series_given_twice_the_first_counts(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    fixture_set_rules(&f, "- {source_labels: [__name__], regex: d, action: drop}");
    fixture_start(&f);
    fixture_take(&f, "a 1\nb 1\na 2\na 3\nd 1\nd 1\n");
    fixture_expect(&f, "T1 j{} 15000ms\ns1 a{} none\ns2 b{} none\n"
                       "begin T1 1000\ns1=1@1000\ns2=1@1000\nend\n");
    assert_int_equal(f.result.scraped, 6);
    assert_int_equal(f.result.duplicates, 3);
    assert_int_equal(f.result.relabelled, 4);
    assert_int_equal(f.result.added, 2);
    fixture_deinit(&f);
}

static void not_a_number_and_infinity_are_samples(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    fixture_start(&f);
    fixture_take(&f, "a NaN\nb +Inf\nc -Inf\n");
    fixture_expect(&f, "T1 j{} 15000ms\ns1 a{} none\ns2 b{} none\ns3 c{} none\n"
                       "begin T1 1000\ns1=nan@1000\ns2=inf@1000\ns3=-inf@1000\nend\n");
    fixture_deinit(&f);
}

static void exemplars_and_created_lines_touch_no_other_series(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    f.openmetrics = true;
    fixture_start(&f);
    fixture_take(&f,
                 "# TYPE a counter\na_total 5 # {trace=\"x\"} 0.67 1.5\na_created 1.5\n# EOF\n");
    fixture_expect(&f, "T1 j{} 15000ms\ns1 a_total{} counter\ns2 a_created{} counter\n"
                       "begin T1 1000\ns1=5@1000\ns2=1.5@1000\nend\n");
    assert_int_equal(fixture_take_sv(&f, SV("# TYPE a counter\na_total 6\n")), -EINVAL); // no EOF
    fixture_expect(&f, "begin T1 1000\ns1 stale\ns2 stale\nend\n");
    fixture_deinit(&f);
}

// The types of tests of the CloudWatch agent's type lookup (prometheus_scraper), where two targets
// have the same names: a type belongs to the family in the page, whatever relabelling makes of it.
static void a_type_is_that_of_the_family_before_relabelling(void **state)
{
    static const struct {
        const char *rules, *page, *told;
    } cases[] = {
        {"[]", "# TYPE m1 counter\n# TYPE m2 counter\nm3 1\nm1 1\nm2 1\n",
         "s1 m3{} none\ns2 m1{} counter\ns3 m2{} counter\n"},
        {"[]", "# TYPE m1 gauge\n# TYPE m2 gauge\nm1 1\nm3 1\nm2 1\n",
         "s1 m1{} gauge\ns2 m3{} none\ns3 m2{} gauge\n"},
        {"[]",
         "# TYPE m1 counter\n# TYPE m2 counter\n# TYPE m4 counter\n"
         "m3_sum 1\nm1_sum 1\nm2_count 1\nm4_total 1\n",
         "s1 m3_sum{} none\ns2 m1_sum{} counter\ns3 m2_count{} counter\ns4 m4_total{} counter\n"},
        {"- {source_labels: [__name__], regex: (m2|m3), target_label: __name__, "
         "replacement: '${1}_changed'}",
         "# TYPE m1 counter\n# TYPE m2 counter\nm3 1\nm1 1\nm2 1\n",
         "s1 m3_changed{} none\ns2 m1{} counter\ns3 m2_changed{} counter\n"},
        {"- {source_labels: [__name__], regex: foo_total, target_label: __name__, "
         "replacement: bar}",
         "# TYPE foo counter\nfoo_total 1\n", "s1 bar{} counter\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fixture f;
        fixture_init(&f, "");
        fixture_set_rules(&f, cases[i].rules);
        fixture_start(&f);
        buf_reset(&f.sink.log);
        fixture_take(&f, cases[i].page);
        struct sv log = buf_sv(&f.sink.log);
        log.len = sv_find(log, SV("begin"));
        if (!sv_equals(log, sv_from(cases[i].told)))
            fail_msg("%s\n%.*s", cases[i].page, SV_FMT(log));
        fixture_deinit(&f);
    }
}

static void a_type_that_changes_is_told_anew(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    f.sink.unwanted_untyped = true;
    fixture_start(&f);
    fixture_take(&f, "# TYPE a gauge\na 1\n");
    buf_reset(&f.sink.log);
    fixture_take(&f, "# TYPE a counter\na 2\n");
    fixture_expect(&f, "s2 a{} counter replaces s1\n-s1\nbegin T1 1000\ns2=2@1000\nend\n");
    fixture_take(&f, "a 3\n"); // no sink has a use for it now
    fixture_expect(&f, "-s2\nbegin T1 1000\nend\n");
    assert_int_equal(f.result.relabelled, 1);
    fixture_take(&f, "a 3\n");
    fixture_expect(&f, "begin T1 1000\nend\n");
    fixture_take(&f, "# TYPE a gauge\na 4\n");
    fixture_expect(&f, "s3 a{} gauge\nbegin T1 1000\ns3=4@1000\nend\n");
    fixture_deinit(&f);
}

static void reports_follow_each_scrape(void **state)
{
    struct fixture f;
    fixture_init(&f, "instance=i");
    f.sink.wants_internal = true;
    f.duration_ns = 1500 * NS_PER_MS;
    fixture_set_rules(&f, "- {source_labels: [__name__], regex: d, action: drop}");
    fixture_start(&f);
    fixture_expect(&f, "T1 j{instance=i} 15000ms\n"
                       "s1 up{instance=i} gauge internal\n"
                       "s2 scrape_duration_seconds{instance=i} gauge internal\n"
                       "s3 scrape_samples_scraped{instance=i} gauge internal\n"
                       "s4 scrape_samples_post_metric_relabeling{instance=i} gauge internal\n"
                       "s5 scrape_series_added{instance=i} gauge internal\n");
    fixture_take(&f, "a 1\nd 1\nb 1\n");
    fixture_expect(&f, "s6 a{instance=i} none\ns7 b{instance=i} none\nbegin T1 1000\ns6=1@1000\n"
                       "s7=1@1000\ns1=1@1000\ns2=1.5@1000\ns3=3@1000\ns4=2@1000\ns5=2@1000\nend\n");
    fixture_take(&f, "a 1\nd 1\nb 1\n");
    fixture_expect(&f, "begin T1 1000\ns6=1@1000\ns7=1@1000\n"
                       "s1=1@1000\ns2=1.5@1000\ns3=3@1000\ns4=2@1000\ns5=0@1000\nend\n");
    assert_int_equal(fixture_take_sv(&f, SV("a 1\nd 1\nb x\n")), -EINVAL);
    fixture_expect(&f, "begin T1 1000\ns6 stale\ns7 stale\n"
                       "s1=0@1000\ns2=1.5@1000\ns3=2@1000\ns4=1@1000\ns5=0@1000\nend\n");
    series_table_fail(f.table, 2000, 10 * NS_PER_S);
    fixture_expect(&f, "begin T1 2000\n"
                       "s1=0@2000\ns2=10@2000\ns3=0@2000\ns4=0@2000\ns5=0@2000\nend\n");
    fixture_take(&f, "a 1\n"); // known since before the failures: not added
    fixture_expect(&f, "begin T1 1000\ns6=1@1000\n"
                       "s1=1@1000\ns2=1.5@1000\ns3=1@1000\ns4=1@1000\ns5=0@1000\nend\n");
    fixture_take(&f, "a 1\nb 1\n"); // gone from a good page and back: added
    fixture_expect(&f, "begin T1 1000\ns6=1@1000\ns7=1@1000\n"
                       "s1=1@1000\ns2=1.5@1000\ns3=2@1000\ns4=2@1000\ns5=1@1000\nend\n");
    fixture_deinit(&f);
}

static void what_was_not_seen_for_long_is_forgotten(void **state)
{
    static const struct {
        uint64_t interval_ns;
        int64_t kept_ms;
    } cases[] = {
        {15 * NS_PER_S, 300000},
        {100 * NS_PER_S, 300000},
        {101 * NS_PER_S, 303000},
        {3600 * NS_PER_S, 10800000},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fixture f;
        fixture_init(&f, "");
        f.interval_ns = cases[i].interval_ns;
        fixture_start(&f);
        fixture_take(&f, "a 1\nb 1\nc 1\n");
        f.now_ms = 1000 + cases[i].kept_ms - 1;
        fixture_take(&f, "b 1\n");
        assert_int_equal(series_table_count(f.table), 3);
        buf_reset(&f.sink.log);
        f.now_ms++;
        fixture_take(&f, "b 1\nc 1\n");
        assert_int_equal(series_table_count(f.table), 2);
        buf_reset(&f.sink.log);
        fixture_take(&f, "c 1\nb 1\na 1\n"); // those that stay are found
        assert_int_equal(series_table_count(f.table), 3);
        assert_non_null(strstr(buf_cstr(&f.sink.log), "s4 a{} none new\n"));
        f.now_ms += cases[i].kept_ms;
        series_table_fail(f.table, f.now_ms, 0);
        assert_int_equal(series_table_count(f.table), 0);
        assert_int_equal(f.sink.live_series, 0);
        fixture_deinit(&f);
    }
}

static void a_clock_set_back_does_not_keep_series_for_ever(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    f.now_ms = INT64_C(4000000000000);
    fixture_start(&f);
    fixture_take(&f, "a 1\n");
    f.now_ms = INT64_C(1800000000000);
    fixture_take(&f, "b 1\n");
    assert_int_equal(series_table_count(f.table), 2);
    f.now_ms += 300000;
    fixture_take(&f, "b 1\n");
    assert_int_equal(series_table_count(f.table), 1);
    fixture_deinit(&f);
}

static void each_sink_gets_what_it_wants(void **state)
{
    struct fixture f;
    struct recorder other = {.log = BUF_INIT(1u << 20), .unwanted = "b"};
    fixture_init(&f, "");
    f.sink.unwanted = "a";
    struct sink sinks[2] = {{&recorder_ops, &f.sink}, {&recorder_ops, &other}};
    struct series_options o = {.job = &f.job,
                               .labels = &f.labels,
                               .interval_ns = NS_PER_S,
                               .sinks = sinks,
                               .sink_count = 2};
    assert_int_equal(series_table_new(&o, &f.table), 0);
    fixture_take(&f, "a 1\nb 2\nc 3\n");
    fixture_expect(&f, "T1 j{} 1000ms\ns1 b{} none\ns2 c{} none\n"
                       "begin T1 1000\ns1=2@1000\ns2=3@1000\nend\n");
    assert_string_equal(buf_cstr(&other.log), "T1 j{} 1000ms\ns1 a{} none\ns2 c{} none\n"
                                              "begin T1 1000\ns1=1@1000\ns2=3@1000\nend\n");
    buf_reset(&other.log);
    fixture_take(&f, "c 3\n");
    fixture_expect(&f, "begin T1 1000\ns1 stale\ns2=3@1000\nend\n");
    assert_string_equal(buf_cstr(&other.log), "begin T1 1000\ns1 stale\ns2=3@1000\nend\n");
    fixture_deinit(&f);
    assert_int_equal(other.live_series + other.live_targets, 0);
    buf_deinit(&other.log);
}

static void without_sinks_samples_are_counted(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    struct series_options o = {.job = &f.job, .labels = &f.labels, .interval_ns = NS_PER_S};
    assert_int_equal(series_table_new(&o, &f.table), 0);
    fixture_take(&f, "a 1\nb 2\n");
    fixture_take(&f, "a 1\nc 2\n");
    assert_int_equal(f.result.relabelled, 2);
    assert_int_equal(f.result.added, 1);
    assert_int_equal(series_table_count(f.table), 3);
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_series_is_told_once_and_then_given_by_its_pointer),
        cmocka_unit_test(the_order_of_a_page_may_change),
        cmocka_unit_test(a_series_that_began_between_two_good_scrapes_is_new),
        cmocka_unit_test(what_vanishes_is_stale_once),
        cmocka_unit_test(a_failed_scrape_ends_all_series_once),
        cmocka_unit_test(a_page_counts_whole_or_not_at_all),
        cmocka_unit_test(timestamps_of_the_page_count_when_honoured),
        cmocka_unit_test(of_a_series_given_twice_the_first_counts),
        cmocka_unit_test(not_a_number_and_infinity_are_samples),
        cmocka_unit_test(exemplars_and_created_lines_touch_no_other_series),
        cmocka_unit_test(a_type_is_that_of_the_family_before_relabelling),
        cmocka_unit_test(a_type_that_changes_is_told_anew),
        cmocka_unit_test(reports_follow_each_scrape),
        cmocka_unit_test(what_was_not_seen_for_long_is_forgotten),
        cmocka_unit_test(a_clock_set_back_does_not_keep_series_for_ever),
        cmocka_unit_test(each_sink_gets_what_it_wants),
        cmocka_unit_test(without_sinks_samples_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
