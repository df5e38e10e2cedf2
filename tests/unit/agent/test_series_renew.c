// SPDX-License-Identifier: Apache-2.0
// A configuration that changes while series live.
#include "series_fixture.h"

static void each_series_is_told_anew_with_its_next_sample(void **state)
{
    struct fixture f;
    fixture_init(&f, "job=j");
    fixture_start(&f);
    fixture_take(&f, "a 1\nb 1\nc 1\n");
    buf_reset(&f.sink.log);
    fixture_set_rules(&f, "- {source_labels: [__name__], regex: b, action: drop}\n"
                          "- {target_label: x, replacement: 'y'}");
    fixture_renew(&f);
    fixture_expect(&f, ""); // the target is as it was
    fixture_take(&f, "a 2\nb 2\n");
    fixture_expect(&f, "s4 a{job=j,x=y} none replaces s1\n-s1\n-s2\n"
                       "begin T1 1000\ns4=2@1000\ns3 stale\nend\n");
    assert_int_equal(f.result.relabelled, 1);
    assert_int_equal(f.result.added, 0);
    fixture_take(&f, "a 3\nb 3\nc 3\n");
    fixture_expect(&f, "s5 c{job=j,x=y} none replaces s3\n-s3\n"
                       "begin T1 1000\ns4=3@1000\ns5=3@1000\nend\n");
    fixture_set_rules(&f, "[]");
    fixture_renew(&f);
    fixture_take(&f, "a 4\nb 4\n"); // what was dropped comes back
    fixture_expect(&f, "s6 a{job=j} none replaces s4\n-s4\ns7 b{job=j} none\n"
                       "begin T1 1000\ns6=4@1000\ns7=4@1000\ns5 stale\nend\n");
    fixture_deinit(&f);
}

static void a_target_that_changed_is_made_anew_and_the_old_one_ends_with_its_last_series(void **s)
{
    struct fixture f;
    fixture_init(&f, "job=j");
    fixture_start(&f);
    fixture_take(&f, "a 1\nb 1\n");
    buf_reset(&f.sink.log);
    fixture_set_labels(&f, "job=k");
    fixture_renew(&f);
    fixture_expect(&f, "T2 j{job=k} 15000ms\n");
    fixture_take(&f, "a 2\n");
    fixture_expect(&f, "s3 a{job=k} none replaces s1\n-s1\n"
                       "begin T1 1000\ns2 stale\nend\n"
                       "begin T2 1000\ns3=2@1000\nend\n");
    fixture_take(&f, "a 3\nb 3\n");
    fixture_expect(&f, "s4 b{job=k} none replaces s2\n-s2\n-T1\n"
                       "begin T2 1000\ns3=3@1000\ns4=3@1000\nend\n");
    fixture_deinit(&f);
}

static void an_old_target_without_series_ends_at_once(void **state)
{
    struct fixture f;
    fixture_init(&f, "job=j");
    f.sink.wants_internal = true;
    fixture_start(&f);
    buf_reset(&f.sink.log);
    f.interval_ns = 30 * NS_PER_S;
    fixture_renew(&f);
    fixture_expect(&f,
                   "T2 j{job=j} 30000ms\n"
                   "s6 up{job=j} gauge internal replaces s1\n"
                   "s7 scrape_duration_seconds{job=j} gauge internal replaces s2\n"
                   "s8 scrape_samples_scraped{job=j} gauge internal replaces s3\n"
                   "s9 scrape_samples_post_metric_relabeling{job=j} gauge internal replaces s4\n"
                   "s10 scrape_series_added{job=j} gauge internal replaces s5\n"
                   "-s1\n-s2\n-s3\n-s4\n-s5\n-T1\n");
    f.job.name = (char *)(uintptr_t) "other";
    fixture_renew(&f);
    assert_int_equal(f.sink.live_targets, 1);
    assert_non_null(strstr(buf_cstr(&f.sink.log), "T3 other{job=j} 30000ms\n"));
    fixture_deinit(&f);
}

static void a_series_of_an_old_target_that_is_forgotten_ends_it(void **state)
{
    struct fixture f;
    fixture_init(&f, "job=j");
    fixture_start(&f);
    fixture_take(&f, "a 1\nb 1\n");
    fixture_set_labels(&f, "job=k");
    fixture_renew(&f);
    fixture_take(&f, "b 1\n");
    assert_int_equal(f.sink.live_targets, 2);
    f.now_ms += 300000;
    fixture_take(&f, "b 1\n");
    assert_int_equal(f.sink.live_targets, 1);
    assert_int_equal(f.sink.live_series, 1);
    fixture_deinit(&f);
}

static void changes_faster_than_series_are_seen_cost_the_target_with_the_fewest(void **state)
{
    struct fixture f;
    struct buf text = BUF_INIT(10000);
    fixture_init(&f, "job=j");
    fixture_start(&f);
    fixture_take(&f, "a 1\nb 1\n");
    for (unsigned i = 0; i < 3 * SERIES_ERAS; i++) {
        buf_reset(&text);
        buf_add_fmt(&text, "job=j%u", i);
        fixture_set_labels(&f, buf_cstr(&text));
        fixture_renew(&f);
        buf_reset(&text);
        buf_add_fmt(&text, "n%u 1\n", i);
        fixture_take(&f, buf_cstr(&text));
        assert_true(f.sink.live_targets <= SERIES_ERAS);
    }
    assert_int_equal(f.sink.live_targets, SERIES_ERAS);
    buf_reset(&f.sink.log);
    fixture_take(&f, "a 2\n");
    buf_reset(&text);
    buf_add_fmt(&text, "a{job=j%u} none replaces s1\n", 3 * SERIES_ERAS - 1);
    assert_non_null(strstr(buf_cstr(&f.sink.log), buf_cstr(&text)));
    buf_deinit(&text);
    fixture_deinit(&f);
}

static void a_page_that_fails_after_a_change_tells_the_rest_later(void **state)
{
    struct fixture f;
    fixture_init(&f, "job=j");
    fixture_start(&f);
    fixture_take(&f, "a 1\nb 1\n");
    buf_reset(&f.sink.log);
    fixture_set_labels(&f, "job=k");
    fixture_renew(&f);
    assert_int_equal(fixture_take_sv(&f, SV("a 2\nc 2\nx\n")), -EINVAL);
    fixture_expect(&f, "T2 j{job=k} 15000ms\n"
                       "s3 a{job=k} none replaces s1\n-s1\n" // it is known: that stays
                       "s4 c{job=k} none new\n-s4\n"
                       "begin T1 1000\ns2 stale\nend\n"
                       "begin T2 1000\ns3 stale\nend\n");
    fixture_take(&f, "a 3\nb 3\n");
    fixture_expect(&f, "s5 b{job=k} none replaces s2\n-s2\n-T1\n"
                       "begin T2 1000\ns3=3@1000\ns5=3@1000\nend\n");
    fixture_deinit(&f);
}

static void without_memory_nothing_is_renewed(void **state)
{
    struct fixture f;
    struct sink sink;
    fixture_init(&f, "job=j");
    fixture_start(&f);
    fixture_take(&f, "a 1\n");
    buf_reset(&f.sink.log);
    fixture_set_labels(&f, "job=k");
    f.sink.refuses = true;
    struct series_options o = fixture_options(&f, &sink);
    assert_int_equal(series_table_renew(f.table, &o), -ENOMEM);
    f.sink.refuses = false;
    fixture_take(&f, "a 2\n");
    fixture_expect(&f, "begin T1 1000\ns1=2@1000\nend\n");
    fixture_deinit(&f);
}

static void a_sink_without_memory_fails_the_page(void **state)
{
    struct fixture f;
    fixture_init(&f, "job=j");
    fixture_start(&f);
    fixture_take(&f, "# TYPE a gauge\na 1\n");
    buf_reset(&f.sink.log);
    f.sink.refuses = true;
    assert_int_equal(fixture_take_sv(&f, SV("# TYPE a gauge\na 2\nb 2\n")), -ENOMEM);
    assert_string_equal(f.err.text, "out of memory");
    fixture_expect(&f, "begin T1 1000\ns1 stale\nend\n");
    assert_int_equal(fixture_take_sv(&f, SV("# TYPE a counter\na 2\n")), -ENOMEM);
    fixture_expect(&f, "begin T1 1000\nend\n");
    f.sink.refuses = false;
    fixture_take(&f, "# TYPE a counter\na 3\n"); // it still has to be told
    fixture_expect(&f, "s2 a{job=j} counter replaces s1\n-s1\nbegin T1 1000\ns2=3@1000\nend\n");
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_series_is_told_anew_with_its_next_sample),
        cmocka_unit_test(
            a_target_that_changed_is_made_anew_and_the_old_one_ends_with_its_last_series),
        cmocka_unit_test(an_old_target_without_series_ends_at_once),
        cmocka_unit_test(a_series_of_an_old_target_that_is_forgotten_ends_it),
        cmocka_unit_test(changes_faster_than_series_are_seen_cost_the_target_with_the_fewest),
        cmocka_unit_test(a_page_that_fails_after_a_change_tells_the_rest_later),
        cmocka_unit_test(without_memory_nothing_is_renewed),
        cmocka_unit_test(a_sink_without_memory_fails_the_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
