// SPDX-License-Identifier: Apache-2.0
#include "base/num.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/num_text.h"

static void unsigned_text_is_read_whole_and_in_range(void **state)
{
    static const struct {
        const char *text;
        int result;
        uint64_t value;
    } cases[] = {
        {"0", 0, 0},
        {"007", 0, 7},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -ERANGE, 0},
        {"99999999999999999999", -ERANGE, 0},
        {"99999999999999999999x", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"+1", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {" 1", -EINVAL, 0},
        {"1 ", -EINVAL, 0},
        {"1a", -EINVAL, 0},
        {"0x1", -EINVAL, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t value = 42;
        assert_int_equal(num_parse_u64(sv_from(cases[i].text), 0, UINT64_MAX, &value),
                         cases[i].result);
        assert_int_equal(value, cases[i].result ? 42 : cases[i].value);
    }
    uint64_t value;
    assert_int_equal(num_parse_u64(SV("4"), 5, 7, &value), -ERANGE);
    assert_int_equal(num_parse_u64(SV("5"), 5, 7, &value), 0);
    assert_int_equal(num_parse_u64(SV("7"), 5, 7, &value), 0);
    assert_int_equal(num_parse_u64(SV("8"), 5, 7, &value), -ERANGE);
}

static void signed_text_is_read_whole_and_in_range(void **state)
{
    int64_t value;
    assert_int_equal(num_parse_i64(SV("-9223372036854775808"), INT64_MIN, INT64_MAX, &value), 0);
    assert_true(value == INT64_MIN);
    assert_int_equal(num_parse_i64(SV("9223372036854775807"), INT64_MIN, INT64_MAX, &value), 0);
    assert_true(value == INT64_MAX);
    assert_int_equal(num_parse_i64(SV("9223372036854775808"), INT64_MIN, INT64_MAX, &value),
                     -ERANGE);
    assert_int_equal(num_parse_i64(SV("-9223372036854775809"), INT64_MIN, INT64_MAX, &value),
                     -ERANGE);
    assert_int_equal(num_parse_i64(SV("-"), INT64_MIN, INT64_MAX, &value), -EINVAL);
    assert_int_equal(num_parse_i64(SV("--1"), INT64_MIN, INT64_MAX, &value), -EINVAL);
    assert_int_equal(num_parse_i64(SV("-1"), 0, 9, &value), -ERANGE);
}

static void go_integers_take_prefixes_and_underscores(void **state)
{
    static const struct {
        const char *text;
        int result;
        int64_t value;
    } cases[] = {
        {"0", 0, 0},
        {"-0", 0, 0},
        {"+12", 0, 12},
        {"30_000", 0, 30000},
        {"0x1F", 0, 31},
        {"0X1f", 0, 31},
        {"-0xff", 0, -255},
        {"0b101", 0, 5},
        {"0o17", 0, 15},
        {"017", 0, 15},
        {"0_17", 0, 15},
        {"0x_1f", 0, 31},
        {"0x7fffffffffffffff", 0, INT64_MAX},
        {"-0x8000000000000000", 0, INT64_MIN},
        {"0x8000000000000000", -ERANGE, 0},
        {"08", -EINVAL, 0},
        {"0x", -EINVAL, 0},
        {"0b2", -EINVAL, 0},
        {"_1", -EINVAL, 0},
        {"1_", -EINVAL, 0},
        {"1__2", -EINVAL, 0},
        {"0x_", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"+", -EINVAL, 0},
        {"+-1", -EINVAL, 0},
        {"1e3", -EINVAL, 0},
        {"1.0", -EINVAL, 0},
        {" 1", -EINVAL, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int64_t value = 42;
        assert_int_equal(num_parse_i64_go(sv_from(cases[i].text), INT64_MIN, INT64_MAX, &value),
                         cases[i].result);
        assert_true(value == (cases[i].result ? 42 : cases[i].value));
    }
}

static void go_booleans_are_the_twelve_words(void **state)
{
    static const char *const yes[] = {"1", "t", "T", "TRUE", "true", "True"};
    static const char *const no[] = {"0", "f", "F", "FALSE", "false", "False"};
    static const char *const neither[] = {"", "yes", "on", "tRUE", "true ", "2"};
    for (size_t i = 0; i < 6; i++) {
        bool value = false;
        assert_int_equal(num_parse_bool_go(sv_from(yes[i]), &value), 0);
        assert_true(value);
        assert_int_equal(num_parse_bool_go(sv_from(no[i]), &value), 0);
        assert_false(value);
        assert_int_equal(num_parse_bool_go(sv_from(neither[i]), &value), -EINVAL);
    }
}

static void go_durations_are_read(void **state)
{
    static const struct {
        const char *text;
        int result;
        uint64_t ns;
    } cases[] = {
        {"0", 0, 0},
        {"-0", 0, 0},
        {"1s", 0, NS_PER_S},
        {"+1s", 0, NS_PER_S},
        {"1h30m", 0, 5400 * NS_PER_S},
        {"100ms", 0, 100 * NS_PER_MS},
        {"1.5s", 0, 1500 * NS_PER_MS},
        {".5s", 0, 500 * NS_PER_MS},
        {"5.s", 0, 5 * NS_PER_S},
        {"1.000000001s", 0, NS_PER_S + 1},
        {"1.5h", 0, 5400 * NS_PER_S},
        {"3us", 0, 3000},
        {"3\xc2\xb5s", 0, 3000},
        {"3\xce\xbcs", 0, 3000},
        {"7ns", 0, 7},
        {"2540400h10m10.000000000s", 0, UINT64_C(9145440610) * NS_PER_S},
        {"2562048h", -ERANGE, 0},
        {"99999999999999999999s", -ERANGE, 0},
        {"-1s", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"1", -EINVAL, 0},
        {"s", -EINVAL, 0},
        {".s", -EINVAL, 0},
        {"1x", -EINVAL, 0},
        {"1s ", -EINVAL, 0},
        {"1S", -EINVAL, 0},
        {"1..5s", -EINVAL, 0},
        {"1d", -EINVAL, 0},
        {"-", -EINVAL, 0},
        {"1s2", -EINVAL, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t ns = 42;
        assert_int_equal(num_parse_duration_go(sv_from(cases[i].text), &ns), cases[i].result);
        assert_int_equal(ns, cases[i].result ? 42 : cases[i].ns);
    }
}

static void doubles_are_read_as_the_nearest(void **state)
{
    static const char *const good[] = {
        "0",
        "-0",
        "1",
        "0.1",
        ".5",
        "5.",
        "1e3",
        "1E+3",
        "1e-3",
        "+2.5",
        "123456789012345",
        "1e22",
        "1e23",
        "-1e-22",
        "1e-23",
        "9007199254740993",
        "0.30000000000000004",
        "1.7976931348623157e308",
        "4.9e-324",
        "2.2250738585072011e-308",
        "1e-400",
        "00000000000000000000000001",
        "0.000000000000000000000000001",
        "1e0000000001",
        "123456789.123456789e-5",
        "8.41e21",
        "9007199254740992.5",
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        double value = 42, expected = strtod(good[i], NULL);
        assert_int_equal(num_parse_double(sv_from(good[i]), &value), 0);
        assert_memory_equal(&value, &expected, sizeof(value));
    }
    static const char *const bad[] = {
        "",    "+",   "-",   ".",  "e1", "1e",    "1e+", "1e1.", "0x1",
        "inf", "nan", "NaN", "1 ", " 1", "1.2.3", "1_0", "1f",   "+-1",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        double value;
        assert_int_equal(num_parse_double(sv_from(bad[i]), &value), -EINVAL);
    }
    double value;
    assert_int_equal(num_parse_double(SV("1e309"), &value), -ERANGE);
    assert_int_equal(num_parse_double(SV("-1e999999999999"), &value), -ERANGE);
    // The view's end is the number's end.
    assert_int_equal(num_parse_double((struct sv){"12345", 3}, &value), 0);
    assert_true(value == 123);
}

static void integers_print_and_read_back(void **state)
{
    static const int64_t values[] = {0, 1, -1, 9, 10, 99, 100, INT64_MAX, INT64_MIN, INT64_MIN + 1};
    char text[NUM_I64_BYTES];
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        int64_t back;
        unsigned len = num_print_i64(text, values[i]);
        assert_int_equal(num_parse_i64((struct sv){text, len}, INT64_MIN, INT64_MAX, &back), 0);
        assert_true(back == values[i]);
    }
    assert_int_equal(num_print_u64(text, UINT64_MAX), 20);
    assert_memory_equal(text, "18446744073709551615", 20);
}

static void doubles_print_shortest_in_go_layout(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0"},
        {-0.0, "-0"},
        {1, "1"},
        {-1.5, "-1.5"},
        {0.1, "0.1"},
        {0.30000000000000004, "0.30000000000000004"},
        {100, "100"},
        {1234567, "1234567"},
        {0.0001, "0.0001"},
        {0.00012345, "0.00012345"},
        {0.00001, "1e-05"},
        {1.5e-7, "1.5e-07"},
        {1e20, "100000000000000000000"},
        {123456789012345680000.0, "123456789012345680000"},
        {1e21, "1e+21"},
        {1.25e21, "1.25e+21"},
        {1e100, "1e+100"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {5e-324, "5e-324"},
        {9007199254740993.0, "9007199254740992"},
        {INFINITY, "+Inf"},
        {-INFINITY, "-Inf"},
        {NAN, "NaN"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[NUM_DOUBLE_BYTES + 1];
        text[num_print_double(text, cases[i].value)] = '\0';
        assert_string_equal(text, cases[i].text);
    }
}

static void any_double_prints_within_its_room_and_reads_back(void **state)
{
    uint64_t random = 99;
    for (unsigned i = 0; i < 200000; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t bits = random ^ random >> 29;
        double value, back;
        memcpy(&value, &bits, sizeof(value));
        if (!isfinite(value))
            continue;
        char text[NUM_DOUBLE_BYTES];
        unsigned len = num_print_double(text, value);
        assert_true(len <= NUM_DOUBLE_BYTES);
        assert_int_equal(num_parse_double((struct sv){text, len}, &back), 0);
        assert_memory_equal(&value, &back, sizeof(value));
    }
}

static void a_hexadecimal_digit_has_a_value_in_either_case(void **state)
{
    (void)state;
    static const char digits[] = "0123456789abcdef", capitals[] = "0123456789ABCDEF";
    for (int i = 0; i < 16; i++) {
        assert_int_equal(num_hex_digit(digits[i]), i);
        assert_int_equal(num_hex_digit(capitals[i]), i);
    }
    static const char others[] = "/:@G`g \xff";
    for (size_t i = 0; i < sizeof(others); i++) // the NUL too
        assert_int_equal(num_hex_digit(others[i]), -1);
}

static void infinities_and_nan_are_read_as_go_reads_them(void **state)
{
    static const struct {
        const char *text;
        double expected;
    } good[] = {{"inf", HUGE_VAL},      {"+Inf", HUGE_VAL},       {"-INF", -HUGE_VAL},
                {"Infinity", HUGE_VAL}, {"-infinity", -HUGE_VAL}, {"NaN", (double)NAN}};
    static const char *const bad[] = {"", "+", "-", "1", "in", "infi", "infinityx", "+nan", "-NaN"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        double v = 7;
        assert_true(num_parse_special_go(sv_from(good[i].text), &v));
        assert_true(isnan(good[i].expected) ? isnan(v) : v == good[i].expected);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        double v = 7;
        assert_false(num_parse_special_go(sv_from(bad[i]), &v));
        assert_true(v == 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infinities_and_nan_are_read_as_go_reads_them),
        cmocka_unit_test(a_hexadecimal_digit_has_a_value_in_either_case),
        cmocka_unit_test(unsigned_text_is_read_whole_and_in_range),
        cmocka_unit_test(signed_text_is_read_whole_and_in_range),
        cmocka_unit_test(go_integers_take_prefixes_and_underscores),
        cmocka_unit_test(go_booleans_are_the_twelve_words),
        cmocka_unit_test(go_durations_are_read),
        cmocka_unit_test(doubles_are_read_as_the_nearest),
        cmocka_unit_test(integers_print_and_read_back),
        cmocka_unit_test(doubles_print_shortest_in_go_layout),
        cmocka_unit_test(any_double_prints_within_its_room_and_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
