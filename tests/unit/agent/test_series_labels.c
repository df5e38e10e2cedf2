// SPDX-License-Identifier: Apache-2.0
// What becomes of the labels of a line, and the limits on them: exact sets.
#include "series_fixture.h"

#include "base/limits.h"

// The one line of log that tells the first series, less "s1 " and its type; "" when none was told.
static struct sv told(struct fixture *f)
{
    struct sv log = buf_sv(&f->sink.log), line;
    while (sv_next(&log, '\n', &line)) {
        if (sv_starts_with(line, SV("s1 ")))
            return sv_sub(line, 3, line.len - 3 - strlen(" none"));
    }
    return SV("");
}

struct labels_case {
    const char *target, *line, *rules, *told;
};

static void check(const struct labels_case *c, bool honor)
{
    struct fixture f;
    fixture_init(&f, c->target);
    f.job.honor_labels = honor;
    if (c->rules)
        fixture_set_rules(&f, c->rules);
    fixture_start(&f);
    fixture_take(&f, c->line);
    if (!sv_equals(told(&f), sv_from(c->told)))
        fail_msg("%s on %s: %.*s, expected %s", c->line, c->target, SV_FMT(told(&f)), c->told);
    fixture_deinit(&f);
}

static void labels_of_the_target_count_and_the_lines_own_are_renamed(void **state)
{
    static const struct labels_case cases[] = {
        {"instance=i job=j", "a 1\n", NULL, "a{instance=i,job=j}"},
        {"instance=i job=j", "a{b=\"c\"} 1\n", NULL, "a{b=c,instance=i,job=j}"},
        {"job=j", "a{job=\"x\"} 1\n", NULL, "a{exported_job=x,job=j}"},
        {"namespace=n pod=p", "a{pod=\"q\",namespace=\"m\",container=\"c\"} 1\n", NULL,
         "a{container=c,exported_namespace=m,exported_pod=q,namespace=n,pod=p}"},
        // An empty label is none.
        {"job=j", "a{job=\"\",x=\"\"} 1\n", NULL, "a{job=j}"},
        // The prefix is repeated until the name is free.
        {"job=j", "a{job=\"x\",exported_job=\"y\"} 1\n", NULL,
         "a{exported_exported_job=x,exported_job=y,job=j}"},
        {"job=j exported_job=k", "a{job=\"x\"} 1\n", NULL,
         "a{exported_exported_job=x,exported_job=k,job=j}"},
        // The shorter name is renamed first.
        {"job=j exported_job=k", "a{job=\"x\",exported_job=\"y\"} 1\n", NULL,
         "a{exported_exported_exported_job=y,exported_exported_job=x,exported_job=k,job=j}"},
        {"foo=1", "a{foo=\"2\",exported_foo=\"\"} 1\n", NULL, "a{exported_foo=2,foo=1}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check(&cases[i], false);
}

static void honoured_labels_of_the_line_count(void **state)
{
    static const struct labels_case cases[] = {
        {"instance=i job=j", "a 1\n", NULL, "a{instance=i,job=j}"},
        {"job=j", "a{job=\"x\",b=\"c\"} 1\n", NULL, "a{b=c,job=x}"},
        {"job=j pod=p", "a{pod=\"\"} 1\n", NULL, "a{job=j}"}, // takes the target's away
        {"job=j", "a{x=\"\",job=\"y\"} 1\n", NULL, "a{job=y}"},
        {"job=j exported_job=k", "a{job=\"x\"} 1\n", NULL, "a{exported_job=k,job=x}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check(&cases[i], true);
}

static void text_is_unescaped_and_utf8_names_are_names(void **state)
{
    static const struct labels_case cases[] = {
        {"job=j", "a{b=\"q\\\"\\\\n\\n\"} 1\n", NULL, "a{b=q\"\\n\n,job=j}"},
        {"job=j", "{\"m.x\",\"l.y\"=\"z\"} 1\n", NULL, "m.x{job=j,l.y=z}"},
        {"job=j", "{\"m\\\"x\",b=\"1\\\\\",c=\"2\",d=\"3\\\\\"} 1\n", NULL,
         "m\"x{b=1\\,c=2,d=3\\,job=j}"},
        {"job.x=j", "a{\"job.x\"=\"\\\\\"} 1\n", NULL, "a{exported_job.x=\\,job.x=j}"},
    };
    // A line feed in a value would break the log's line: what stands before it is compared.
    for (size_t i = 1; i < ARRAY_SIZE(cases); i++)
        check(&cases[i], false);
    struct fixture f;
    fixture_init(&f, cases[0].target);
    fixture_start(&f);
    buf_reset(&f.sink.log);
    fixture_take(&f, cases[0].line);
    assert_non_null(strstr(buf_cstr(&f.sink.log), "s1 a{b=q\"\\n\n,job=j} none\n"));
    fixture_deinit(&f);
}

static void metric_relabelling_sees_all_labels_and_the_name(void **state)
{
    static const struct labels_case cases[] = {
        {"job=j", "a{x=\"1\"} 1\n",
         "- {source_labels: [__name__, job, x], target_label: all}\n"
         "- {regex: x, action: labeldrop}",
         "a{all=a;j;1,job=j}"},
        {"job=j", "a 1\n", "- {target_label: __name__, replacement: 'b.c'}", "b.c{job=j}"},
        {"job=j", "a 1\n", "- {regex: job, action: labeldrop}", "a{}"},
        {"job=j", "a{__tmp=\"1\"} 1\n", NULL, "a{__tmp=1,job=j}"},
        {"job=j", "a 1\n", "- {source_labels: [__name__], regex: a, action: drop}", ""},
        {"job=j", "a 1\n", "- {source_labels: [__name__], regex: b, action: keep}", ""},
        {"job=j", "a 1\n", "- {regex: nothing, action: labelkeep}", ""}, // no label at all
        {"job=j", "a 1\n", "- {regex: job, action: labelkeep}", ""},     // no name
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check(&cases[i], false);
}

static void a_sample_left_without_a_good_name_is_counted_each_time(void **state)
{
    static const struct {
        const char *rules, *page;
        bool legacy;
        unsigned unusable;
    } cases[] = {
        {"- {regex: job, action: labelkeep}", "a 1\nb 1\n", false, 2},
        {"- {target_label: __name__, replacement: 'x.y'}", "a 1\n", true, 1},
        {"- {target_label: __name__, replacement: 'x.y'}", "a 1\n", false, 0},
        {"- {target_label: __name__, replacement: ':x9_'}", "a 1\n", true, 0},
        {"- {target_label: __name__, replacement: '9x'}", "a 1\n", true, 1},
        {"[]", "{\"m.x\"} 1\na{\"l.x\"=\"y\"} 1\na{l=\"y\"} 1\n", true, 2},
        {"[]", "a{l=\"\xc3\xa4.\"} 1\n", true, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fixture f;
        fixture_init(&f, "job=j");
        f.job.legacy_names = cases[i].legacy;
        fixture_set_rules(&f, cases[i].rules);
        fixture_start(&f);
        for (int turn = 0; turn < 2; turn++) {
            fixture_take(&f, cases[i].page);
            if (f.result.unusable != cases[i].unusable ||
                f.result.relabelled + f.result.unusable != f.result.scraped)
                fail_msg("case %zu: %llu unusable", i, (unsigned long long)f.result.unusable);
        }
        assert_int_equal(f.sink.live_series, f.result.relabelled);
        fixture_deinit(&f);
    }
}

static void a_label_given_twice_fails_the_page(void **state)
{
    static const char *const pages[] = {
        "b 1\na{x=\"1\",x=\"2\"} 1\n",
        "b 1\na{x=\"1\",y=\"\",x=\"1\"} 1\n",
        "b 1\na{x=\"1\\\\\",\"x\"=\"1\"} 1\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(pages); i++) {
        struct fixture f;
        fixture_init(&f, "job=j");
        fixture_start(&f);
        assert_int_equal(fixture_take_sv(&f, sv_from(pages[i])), -EINVAL);
        assert_int_equal(f.err.line, 2);
        assert_string_equal(f.err.text, "label \"x\" twice");
        assert_int_equal(series_table_count(f.table), 0);
        fixture_deinit(&f);
    }
    struct fixture f;
    fixture_init(&f, "job=j");
    fixture_start(&f);
    assert_int_equal(fixture_take_sv(&f, SV("a{__name__=\"b\"} 1\n")), -EINVAL);
    assert_string_equal(f.err.text, "label \"__name__\" twice");
    fixture_deinit(&f);
}

static void no_label_is_lost_among_many(void **state)
{
    struct fixture f;
    struct buf page = BUF_INIT(1u << 20);
    fixture_init(&f, "job=j");
    fixture_start(&f);
    // With __name__ and the target's: as many as a set holds, then one more.
    for (unsigned extra = 0; extra < 2; extra++) {
        buf_reset(&page);
        buf_add_str(&page, "a{");
        for (unsigned i = 0; i < LIMIT_LABELS - 2 + extra; i++)
            buf_add_fmt(&page, "l%u=\"%u\",", i, i);
        buf_add_str(&page, "} 1\n");
        int r = fixture_take_sv(&f, buf_sv(&page));
        assert_int_equal(r, extra ? -E2BIG : 0);
    }
    assert_string_equal(f.err.text, "labels of one series over 2048 in number or 1048576 bytes");
    assert_int_equal(f.err.line, 1);
    buf_deinit(&page);
    fixture_deinit(&f);
}

static void long_labels_are_taken_up_to_our_own_cap(void **state)
{
    struct fixture f;
    struct buf page = BUF_INIT(4u << 20);
    char *value = malloc(LIMIT_SERIES_LABELS_BYTES + 1);
    memset(value, 'v', LIMIT_SERIES_LABELS_BYTES + 1);
    fixture_init(&f, "job=j");
    f.sink.unwanted = "a";
    fixture_start(&f);
    // One escape, so that the text has to be copied.
    for (unsigned turn = 0; turn < 2; turn++) {
        buf_reset(&page);
        buf_add_str(&page, "a{l=\"\\\\");
        buf_add(&page, value, turn ? LIMIT_SERIES_LABELS_BYTES : LIMIT_SERIES_LABELS_BYTES / 4);
        buf_add_str(&page, "\"} 1\n");
        assert_int_equal(fixture_take_sv(&f, buf_sv(&page)), turn ? -E2BIG : 0);
    }
    assert_int_equal(f.err.code, -E2BIG);
    free(value);
    buf_deinit(&page);
    fixture_deinit(&f);
}

static void label_limits_fail_the_page_beyond_them(void **state)
{
    static const struct {
        const char *page, *error; // NULL: within
        uint64_t count, name, value;
        unsigned line;
    } cases[] = {
        // a{__name__, job, x, y}
        {"a{x=\"1\",y=\"2\"} 1\n", NULL, 4, 0, 0, 0},
        {"b 1\na{x=\"1\",y=\"2\"} 1\n", "label_limit exceeded by metric a: 4, 3 at most", 3, 0, 0,
         2},
        {"a{x=\"\",y=\"2\"} 1\n", NULL, 3, 0, 0, 0},
        // __name__ is a name of eight bytes.
        {"a{x=\"1\"} 1\n", NULL, 0, 8, 0, 0},
        {"a{x=\"1\"} 1\n", "label_name_length_limit exceeded by metric a: 8, 7 at most", 0, 7, 0,
         1},
        {"a{nine_long=\"1\"} 1\n", "label_name_length_limit exceeded by metric a: 9, 8 at most", 0,
         8, 0, 1},
        {"a{x=\"123\"} 1\n", NULL, 0, 0, 3, 0},
        {"a{x=\"1234\"} 1\n", "label_value_length_limit exceeded by metric a: 4, 3 at most", 0, 0,
         3, 1},
        {"abcd 1\n", "label_value_length_limit exceeded by metric abcd: 4, 3 at most", 0, 0, 3, 1},
        {"abc 1\n", NULL, 0, 0, 3, 0},
        {"dropped{x=\"1234\"} 1\n", NULL, 0, 0, 3, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fixture f;
        fixture_init(&f, "job=j");
        fixture_set_rules(&f, "- {source_labels: [__name__], regex: dropped, action: drop}");
        f.job.label_limit = cases[i].count;
        f.job.label_name_length_limit = cases[i].name;
        f.job.label_value_length_limit = cases[i].value;
        fixture_start(&f);
        int r = fixture_take_sv(&f, sv_from(cases[i].page));
        if (r != (cases[i].error ? -EINVAL : 0) ||
            strcmp(f.err.text, cases[i].error ? cases[i].error : "") != 0)
            fail_msg("%s: %d, %s", cases[i].page, r, f.err.text);
        assert_int_equal(f.err.line, cases[i].line);
        fixture_deinit(&f);
    }
}

// As Go formats them; the cases from 1e6 on are where it changes to exponents.
static void numbers_in_le_and_quantile_are_written_one_way(void **state)
{
    static const struct {
        const char *text, *normal; // NULL: left as it is
    } cases[] = {
        {"1", "1.0"},
        {"0", "0.0"},
        {"-1", "-1.0"},
        {"-0", "0.0"},
        {"0.5", "0.5"},
        {"1.0", "1.0"},
        {"0.50", "0.5"},
        {"10", "10.0"},
        {"+Inf", "+Inf"},
        {"inf", "+Inf"},
        {"-Inf", "-Inf"},
        {"nan", "NaN"},
        {"100000", "100000.0"},
        {"1e5", "100000.0"},
        {"999999", "999999.0"},
        {"999999.5", "999999.5"},
        {"1000000", "1e+06"},
        {"1e6", "1e+06"},
        {"1234567", "1.234567e+06"},
        {"1234567.5", "1.2345675e+06"},
        {"-2500000", "-2.5e+06"},
        {"1e20", "1e+20"},
        {"1e21", "1e+21"},
        {"1.5e300", "1.5e+300"},
        {"0.0001", "0.0001"},
        {"0.00001", "1e-05"},
        {"", NULL},
        {"x", NULL},
        {"1x", NULL},
        {"++1", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char out[SERIES_NUMBER_BYTES];
        unsigned length = series_normalise_number(sv_from(cases[i].text), out);
        const char *expected = cases[i].normal ? cases[i].normal : "";
        if (!sv_equals((struct sv){out, length}, sv_from(expected)))
            fail_msg("%s: %.*s, expected %s", cases[i].text, (int)length, out, expected);
    }
}

static void only_labels_of_summaries_and_histograms_are_numbers(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    fixture_start(&f);
    buf_reset(&f.sink.log);
    fixture_take(&f,
                 "# TYPE s summary\ns{quantile=\"1\",le=\"1\"} 1\n"
                 "# TYPE h histogram\nh_bucket{le=\"5\",quantile=\"1\"} 1\nh_bucket{le=\"x\"} 1\n"
                 "# TYPE g gauge\ng{le=\"1\",quantile=\"1\"} 1\n");
    fixture_expect(&f, "s1 s{le=1,quantile=1.0} summary\n"
                       "s2 h_bucket{le=5.0,quantile=1} histogram\n"
                       "s3 h_bucket{le=x} histogram\n"
                       "s4 g{le=1,quantile=1} gauge\n"
                       "begin T1 1000\ns1=1@1000\ns2=1@1000\ns3=1@1000\ns4=1@1000\nend\n");
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_of_the_target_count_and_the_lines_own_are_renamed),
        cmocka_unit_test(honoured_labels_of_the_line_count),
        cmocka_unit_test(text_is_unescaped_and_utf8_names_are_names),
        cmocka_unit_test(metric_relabelling_sees_all_labels_and_the_name),
        cmocka_unit_test(a_sample_left_without_a_good_name_is_counted_each_time),
        cmocka_unit_test(a_label_given_twice_fails_the_page),
        cmocka_unit_test(numbers_in_le_and_quantile_are_written_one_way),
        cmocka_unit_test(only_labels_of_summaries_and_histograms_are_numbers),
        cmocka_unit_test(no_label_is_lost_among_many),
        cmocka_unit_test(long_labels_are_taken_up_to_our_own_cap),
        cmocka_unit_test(label_limits_fail_the_page_beyond_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
