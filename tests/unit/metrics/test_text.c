// SPDX-License-Identifier: Apache-2.0
#include "metrics/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/limits.h"

static void assert_text(struct buf *b, const char *expected)
{
    assert_string_equal(buf_cstr(b), expected);
    buf_deinit(b);
}

static void label_values_escape_backslash_quote_and_newline(void **state)
{
    static const struct {
        const char *raw, *text;
    } cases[] = {
        {"", ""},
        {"NVIDIA A10G", "NVIDIA A10G"},
        {"a\"b", "a\\\"b"},
        {"C:\\dir\n", "C:\\\\dir\\n"},
        {"\\\\\"\"\n\n", "\\\\\\\\\\\"\\\"\\n\\n"},
        {"tab\tcr\r", "tab\tcr\r"},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"\xff", "\xef\xbf\xbd"},
        {"a\xc3", "a\xef\xbf\xbd"},
        {"\xed\xa0\x80z", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz"},
        {"\xff\"", "\xef\xbf\xbd\\\""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf b = BUF_INIT(1000);
        text_add_label_value(&b, sv_from(cases[i].raw));
        assert_text(&b, cases[i].text);
    }
}

static void help_escapes_quotes_only_in_openmetrics(void **state)
{
    struct buf b = BUF_INIT(1000);
    text_add_help(&b, TEXT_FORMAT_PROMETHEUS, SV("a \"b\" \\ \n\xff"));
    assert_text(&b, "a \"b\" \\\\ \\n\xef\xbf\xbd");
    text_add_help(&b, TEXT_FORMAT_OPENMETRICS, SV("a \"b\" \\ \n"));
    assert_text(&b, "a \\\"b\\\" \\\\ \\n");
}

static void long_values_are_cut_at_a_character(void **state)
{
    size_t size = LIMIT_LABEL_VALUE_BYTES + 8;
    char *raw = malloc(size);
    assert_non_null(raw);
    for (int extra = -1; extra <= 1; extra++) {
        struct buf b = BUF_INIT(200000);
        memset(raw, 'x', size);
        text_add_label_value(&b, (struct sv){raw, (size_t)(LIMIT_LABEL_VALUE_BYTES + extra)});
        assert_int_equal(b.len, LIMIT_LABEL_VALUE_BYTES + (extra < 0 ? extra : 0));
        buf_deinit(&b);
    }
    // A four-byte character across the cut goes whole, wherever in it the cut falls.
    for (size_t before = 1; before <= 3; before++) {
        struct buf b = BUF_INIT(200000);
        memset(raw, 'x', size);
        memcpy(raw + LIMIT_LABEL_VALUE_BYTES - before, "\xf0\x9f\x98\x80", 4);
        text_add_label_value(&b, (struct sv){raw, size});
        assert_int_equal(b.len, LIMIT_LABEL_VALUE_BYTES - before);
        assert_true(sv_is_utf8(buf_sv(&b)));
        buf_deinit(&b);
    }
    struct buf b = BUF_INIT(400000);
    memset(raw, 0x80, size); // no character anywhere: still an end
    text_add_label_value(&b, (struct sv){raw, size});
    assert_int_equal(b.error, 0);
    assert_true(sv_is_utf8(buf_sv(&b)));
    buf_deinit(&b);
    free(raw);
}

static void labels_are_parted_by_commas(void **state)
{
    struct buf b = BUF_INIT(1000);
    buf_add_str(&b, "up{");
    text_add_label(&b, "gpu", SV("0"));
    text_add_label(&b, "pod", SV("a\"b"));
    buf_add_str(&b, "} 1\n");
    assert_text(&b, "up{gpu=\"0\",pod=\"a\\\"b\"} 1\n");
}

static void families_have_the_header_of_their_format(void **state)
{
    static const struct {
        const char *name;
        enum text_type type;
        const char *prometheus, *openmetrics;
    } cases[] = {
        {"t", TEXT_TYPE_GAUGE, "# HELP t h\n# TYPE t gauge\n", "# TYPE t gauge\n# HELP t h\n"},
        {"e_total", TEXT_TYPE_COUNTER, "# HELP e_total h\n# TYPE e_total counter\n",
         "# TYPE e counter\n# HELP e h\n"},
        {"DCGM_X", TEXT_TYPE_COUNTER, "# HELP DCGM_X h\n# TYPE DCGM_X counter\n",
         "# TYPE DCGM_X unknown\n# HELP DCGM_X h\n"},
        {"_total", TEXT_TYPE_COUNTER, "# HELP _total h\n# TYPE _total counter\n",
         "# TYPE _total unknown\n# HELP _total h\n"},
        {"b_info", TEXT_TYPE_INFO, "# HELP b_info h\n# TYPE b_info gauge\n",
         "# TYPE b info\n# HELP b h\n"},
        {"b", TEXT_TYPE_INFO, "# HELP b h\n# TYPE b gauge\n", "# TYPE b gauge\n# HELP b h\n"},
        {"u", TEXT_TYPE_UNTYPED, "# HELP u h\n# TYPE u untyped\n",
         "# TYPE u unknown\n# HELP u h\n"},
        {"s", TEXT_TYPE_SUMMARY, "# HELP s h\n# TYPE s summary\n",
         "# TYPE s summary\n# HELP s h\n"},
        {"g", TEXT_TYPE_HISTOGRAM, "# HELP g h\n# TYPE g histogram\n",
         "# TYPE g histogram\n# HELP g h\n"},
        {"g_total", TEXT_TYPE_GAUGE, "# HELP g_total h\n# TYPE g_total gauge\n",
         "# TYPE g_total gauge\n# HELP g_total h\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf b = BUF_INIT(1000);
        text_add_family(&b, TEXT_FORMAT_PROMETHEUS, sv_from(cases[i].name), cases[i].type, SV("h"));
        assert_text(&b, cases[i].prometheus);
        text_add_family(&b, TEXT_FORMAT_OPENMETRICS, sv_from(cases[i].name), cases[i].type,
                        SV("h"));
        assert_text(&b, cases[i].openmetrics);
    }
    struct buf b = BUF_INIT(1000);
    text_add_family(&b, TEXT_FORMAT_PROMETHEUS, SV("TEST_METRIC"), TEXT_TYPE_GAUGE, SV(""));
    assert_text(&b, "# HELP TEST_METRIC \n# TYPE TEST_METRIC gauge\n");
}

static void content_types_name_the_version(void **state)
{
    assert_string_equal(text_content_type(TEXT_FORMAT_PROMETHEUS),
                        "text/plain; version=0.0.4; charset=utf-8");
    assert_string_equal(text_content_type(TEXT_FORMAT_OPENMETRICS),
                        "application/openmetrics-text; version=1.0.0; charset=utf-8");
}

static void assert_f6_as_printf(double v)
{
    char expected[400];
    struct buf b = BUF_INIT(1000);
    (void)snprintf(expected, sizeof(expected), "%f", v);
    text_add_f6(&b, v);
    assert_text(&b, expected);
}

static void six_decimals_are_those_of_printf(void **state)
{
    static const double values[] = {
        0,
        1,
        68.123,
        0.5,
        1e-7,
        5e-7,
        4.9999999e-7,
        0.0078125,
        0.0234375,
        1.0 / 3,
        0.999999,
        0.9999995,
        0.99999949999,
        0.9999999,
        1e11,
        999999999999.9999,
        1e12,
        1e15,
        1e22,
        1.7976931348623157e308,
        5e-324,
        123456.789012345,
        140737488355328.0,
    };
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        assert_f6_as_printf(values[i]);
        assert_f6_as_printf(-values[i]);
    }
    struct buf b = BUF_INIT(100);
    text_add_f6(&b, INFINITY);
    text_add_f6(&b, -INFINITY);
    text_add_f6(&b, -NAN);
    assert_text(&b, "+Inf-InfNaN");
}

static void six_decimals_round_ties_to_even(void **state)
{
    // k / 2^7 + n has its seventh decimal 5 and nothing behind it.
    for (unsigned n = 0; n < 200; n++) {
        for (unsigned k = 1; k < 128; k += 2)
            assert_f6_as_printf(n * 977 + k / 128.0);
    }
}

static void six_decimals_of_any_value_are_those_of_printf(void **state)
{
    uint64_t random = 3;
    for (unsigned i = 0; i < 100000; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double v = (double)(random >> 11) / (double)(UINT64_C(1) << (random & 63));
        assert_f6_as_printf(v);
    }
}

static void fixed_numbers_keep_their_decimals(void **state)
{
    static const struct {
        uint64_t units;
        unsigned decimals;
        const char *text;
    } cases[] = {
        {0, 0, "0"},
        {0, 3, "0.000"},
        {5, 6, "0.000005"},
        {1234567, 6, "1.234567"},
        {1000000, 6, "1.000000"},
        {999999, 6, "0.999999"},
        {42, 0, "42"},
        {UINT64_MAX, 9, "18446744073.709551615"},
        {UINT64_MAX, 20, "0.18446744073709551615"},
        {7, 22, "0.0000000000000000000007"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf b = BUF_INIT(1000);
        text_add_fixed(&b, cases[i].units, cases[i].decimals);
        assert_text(&b, cases[i].text);
    }
}

static void histograms_are_cumulative_and_end_with_sum_and_count(void **state)
{
    static const uint32_t bounds[] = {0, 100000, 990000, 1000000, 12500000};
    static const uint64_t counts[] = {3, 0, 2, 1, 4, 5};
    const struct text_histogram h = {bounds, counts, ARRAY_SIZE(bounds), 1234567};
    struct buf b = BUF_INIT(1000);
    text_add_histogram(&b, TEXT_FORMAT_PROMETHEUS, SV("h"), SV("{a=\"1\""), &h);
    assert_text(&b, "h_bucket{a=\"1\",le=\"0\"} 3\n"
                    "h_bucket{a=\"1\",le=\"0.1\"} 3\n"
                    "h_bucket{a=\"1\",le=\"0.99\"} 5\n"
                    "h_bucket{a=\"1\",le=\"1\"} 6\n"
                    "h_bucket{a=\"1\",le=\"12.5\"} 10\n"
                    "h_bucket{a=\"1\",le=\"+Inf\"} 15\n"
                    "h_sum{a=\"1\"} 1.234567\n"
                    "h_count{a=\"1\"} 15\n");
}

static void openmetrics_bounds_are_written_as_floats(void **state)
{
    static const uint32_t bounds[] = {0, 20000000};
    static const uint64_t counts[] = {1, 0, 0};
    const struct text_histogram h = {bounds, counts, ARRAY_SIZE(bounds), 0};
    struct buf b = BUF_INIT(1000);
    text_add_histogram(&b, TEXT_FORMAT_OPENMETRICS, SV("h"), SV(""), &h);
    assert_text(&b, "h_bucket{le=\"0.0\"} 1\nh_bucket{le=\"20.0\"} 1\nh_bucket{le=\"+Inf\"} 1\n"
                    "h_sum 0.000000\nh_count 1\n");
}

static void doubles_are_shortest(void **state)
{
    struct buf b = BUF_INIT(1000);
    text_add_double(&b, 0.1);
    buf_add_char(&b, ' ');
    text_add_double(&b, 1e21);
    assert_text(&b, "0.1 1e+21");
}

static void names_are_sanitised_and_checked(void **state)
{
    struct buf b = BUF_INIT(1000);
    text_add_sanitised_name(&b, SV("app.kubernetes.io/name"));
    assert_text(&b, "app_kubernetes_io_name");
    text_add_sanitised_name(&b, SV("1a:b-\xc3\xa9"));
    assert_text(&b, "_1a_b___");
    assert_true(text_is_metric_name(SV("a:b_1")));
    assert_true(text_is_metric_name(SV(":a")));
    assert_false(text_is_metric_name(SV("1a")));
    assert_false(text_is_metric_name(SV("")));
    assert_false(text_is_metric_name(SV("a-b")));
    assert_true(text_is_label_name(SV("_a1Z")));
    assert_false(text_is_label_name(SV("a:b")));
    assert_false(text_is_label_name(SV("9")));
    assert_false(text_is_label_name(SV("\xc3\xa9")));
}

static void a_full_buffer_stays_at_its_ceiling(void **state)
{
    struct buf b = BUF_INIT(20);
    text_add_family(&b, TEXT_FORMAT_PROMETHEUS, SV("long_family_name"), TEXT_TYPE_GAUGE,
                    SV("help"));
    assert_int_equal(b.error, -EFBIG);
    assert_true(b.len <= 20);
    text_add_label(&b, "x", SV("y"));
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(label_values_escape_backslash_quote_and_newline),
        cmocka_unit_test(help_escapes_quotes_only_in_openmetrics),
        cmocka_unit_test(long_values_are_cut_at_a_character),
        cmocka_unit_test(labels_are_parted_by_commas),
        cmocka_unit_test(families_have_the_header_of_their_format),
        cmocka_unit_test(content_types_name_the_version),
        cmocka_unit_test(six_decimals_are_those_of_printf),
        cmocka_unit_test(six_decimals_round_ties_to_even),
        cmocka_unit_test(six_decimals_of_any_value_are_those_of_printf),
        cmocka_unit_test(fixed_numbers_keep_their_decimals),
        cmocka_unit_test(histograms_are_cumulative_and_end_with_sum_and_count),
        cmocka_unit_test(openmetrics_bounds_are_written_as_floats),
        cmocka_unit_test(doubles_are_shortest),
        cmocka_unit_test(names_are_sanitised_and_checked),
        cmocka_unit_test(a_full_buffer_stays_at_its_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
