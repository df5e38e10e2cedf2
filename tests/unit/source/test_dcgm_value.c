// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/clock.h"
#include "source/dcgm_value.h"

#define TS INT64_C(1700000000000000)

static struct dcgm_reading read_as(dcgmFieldValue_v1 *v, enum field_type type)
{
    struct dcgm_reading out;
    v->version = dcgmFieldValue_version1;
    if (v->ts == 0)
        v->ts = TS;
    dcgm_value_read(v, type, &out);
    return out;
}

static struct dcgm_reading read_i64(int64_t value)
{
    dcgmFieldValue_v1 v = {.fieldType = DCGM_FT_INT64, .value.i64 = value};
    return read_as(&v, FIELD_I64);
}

static struct dcgm_reading read_double(double value)
{
    dcgmFieldValue_v1 v = {.fieldType = DCGM_FT_DOUBLE, .value.dbl = value};
    return read_as(&v, FIELD_DOUBLE);
}

static struct dcgm_reading read_string(const char *text)
{
    static dcgmFieldValue_v1 v;
    v = (dcgmFieldValue_v1){.fieldType = DCGM_FT_STRING};
    memcpy(v.value.str, text, strlen(text));
    return read_as(&v, FIELD_STRING);
}

static void test_an_integer_is_blank_at_both_widths(void **state)
{
    static const struct {
        int64_t value;
        enum frame_status status;
    } cases[] = {
        {2147483631, FRAME_OK},
        {2147483632, FRAME_NO_DATA},
        {2147483633, FRAME_NO_DATA},
        {2147483634, FRAME_NOT_SUPPORTED},
        {2147483635, FRAME_NO_PERMISSION},
        {2147483636, FRAME_OK},
        {9223372036854775791, FRAME_OK},
        {9223372036854775792, FRAME_NO_DATA},
        {9223372036854775793, FRAME_NO_DATA},
        {9223372036854775794, FRAME_NOT_SUPPORTED},
        {9223372036854775795, FRAME_NO_PERMISSION},
        {9223372036854775796, FRAME_NO_DATA},
        {INT64_MAX, FRAME_NO_DATA},
        {INT64_MIN, FRAME_OK},
        {0, FRAME_OK},
        {42, FRAME_OK},
        {-100, FRAME_OK},
        {1000000000, FRAME_OK},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct dcgm_reading r = read_i64(cases[i].value);
        assert_int_equal(r.status, cases[i].status);
        assert_int_equal(r.type, r.status == FRAME_OK ? FRAME_VALUE_I64 : FRAME_VALUE_NONE);
        if (r.status == FRAME_OK)
            assert_true(r.i64 == cases[i].value);
    }
}

static void test_a_double_is_blank_at_four_numbers_alone(void **state)
{
    static const struct {
        double value;
        enum frame_status status;
    } cases[] = {
        {140737488355328.0, FRAME_NO_DATA},
        {140737488355329.0, FRAME_NO_DATA},
        {140737488355330.0, FRAME_NOT_SUPPORTED},
        {140737488355331.0, FRAME_NO_PERMISSION},
        {140737488355327.0, FRAME_OK},
        {140737488355328.5, FRAME_OK},
        {140737488355332.0, FRAME_OK},
        {9e18, FRAME_OK}, // a count of cycles
        {0.0, FRAME_OK},
        {3.14, FRAME_OK},
        {-100.5, FRAME_OK},
        {NAN, FRAME_NO_DATA},
        {INFINITY, FRAME_NO_DATA},
        {-INFINITY, FRAME_NO_DATA},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct dcgm_reading r = read_double(cases[i].value);
        assert_int_equal(r.status, cases[i].status);
        assert_int_equal(r.type, r.status == FRAME_OK ? FRAME_VALUE_DOUBLE : FRAME_VALUE_NONE);
        if (r.status == FRAME_OK)
            assert_true(r.f64 == cases[i].value);
    }
}

static void test_a_string_is_blank_at_its_words(void **state)
{
    static const struct {
        const char *text;
        enum frame_status status;
    } cases[] = {
        {"<<<NULL>>>", FRAME_NO_DATA},
        {"<<<NOT_FOUND>>>", FRAME_NO_DATA},
        {"<<<NOT_SUPPORTED>>>", FRAME_NOT_SUPPORTED},
        {"<<<NOT_PERMISSIONED>>>", FRAME_NO_PERMISSION},
        {"<<<NOT_PERM>>>", FRAME_NO_PERMISSION},
        {"", FRAME_OK},
        {"Hello World", FRAME_OK},
        {"<<<NULL>>> ", FRAME_OK},
        {"<<<", FRAME_OK},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct dcgm_reading r = read_string(cases[i].text);
        assert_int_equal(r.status, cases[i].status);
        if (r.status != FRAME_OK)
            continue;
        assert_int_equal(r.type, FRAME_VALUE_STRING);
        assert_true(sv_equals(r.text, sv_from(cases[i].text)));
    }
}

static void test_a_string_ends_with_its_array(void **state)
{
    static dcgmFieldValue_v1 v = {.fieldType = DCGM_FT_STRING};
    memset(&v.value, 'x', sizeof(v.value));
    struct dcgm_reading r = read_as(&v, FIELD_STRING);
    assert_int_equal(r.status, FRAME_OK);
    assert_int_equal(r.text.len, 256);
}

static void test_a_binary_field_is_never_a_value(void **state)
{
    static const char types[] = {'b', 'i', 'd', 's', 't', 0};
    for (size_t i = 0; i < sizeof(types); i++) {
        dcgmFieldValue_v1 v = {.fieldType = (unsigned char)types[i], .value.i64 = 1};
        assert_int_equal(read_as(&v, FIELD_BINARY).status, FRAME_NOT_SUPPORTED);
    }
    dcgmFieldValue_v1 v = {.fieldType = DCGM_FT_BINARY, .value.i64 = 1};
    assert_int_equal(read_as(&v, FIELD_I64).status, FRAME_NOT_SUPPORTED);
}

static void test_the_status_goes_before_the_number(void **state)
{
    // The shape of DCGM up to 4.4.1: integer 0, no time, whatever the field is.
    static const enum field_type types[] = {FIELD_I64, FIELD_DOUBLE, FIELD_STRING, FIELD_BINARY};
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        dcgmFieldValue_v1 v = {.fieldType = DCGM_FT_INT64, .status = DCGM_ST_NO_DATA};
        struct dcgm_reading r;
        dcgm_value_read(&v, types[i], &r);
        assert_int_equal(r.status, FRAME_NO_DATA);
        assert_int_equal(r.type, FRAME_VALUE_NONE);
    }
    // And a number that looks well.
    dcgmFieldValue_v1 v = {
        .fieldType = DCGM_FT_INT64, .status = DCGM_ST_GPU_IS_LOST, .value.i64 = 7};
    assert_int_equal(read_as(&v, FIELD_I64).status, FRAME_LOST);
}

static void test_a_value_without_a_time_was_never_sampled(void **state)
{
    dcgmFieldValue_v1 v = {.fieldType = DCGM_FT_INT64};
    struct dcgm_reading r;
    dcgm_value_read(&v, FIELD_I64, &r);
    assert_int_equal(r.status, FRAME_NO_DATA);
    assert_int_equal(r.type, FRAME_VALUE_NONE);
    v.value.i64 = DCGM_INT64_BLANK + 2; // but a blank says why
    dcgm_value_read(&v, FIELD_I64, &r);
    assert_int_equal(r.status, FRAME_NOT_SUPPORTED);
    v = (dcgmFieldValue_v1){.fieldType = DCGM_FT_DOUBLE, .ts = -1, .value.dbl = 0.5};
    dcgm_value_read(&v, FIELD_DOUBLE, &r);
    assert_int_equal(r.status, FRAME_NO_DATA);
}

static void test_the_record_names_the_number_and_the_field_where_it_does_not(void **state)
{
    dcgmFieldValue_v1 v = {.fieldType = 0, .value.dbl = 0.25};
    assert_true(read_as(&v, FIELD_DOUBLE).f64 == 0.25);
    v.value.dbl = 140737488355330.0;
    assert_int_equal(read_as(&v, FIELD_DOUBLE).status, FRAME_NOT_SUPPORTED);
    v = (dcgmFieldValue_v1){.fieldType = DCGM_FT_INT64, .value.i64 = 7};
    assert_int_equal(read_as(&v, FIELD_DOUBLE).type, FRAME_VALUE_I64);
    v = (dcgmFieldValue_v1){.fieldType = DCGM_FT_TIMESTAMP, .value.i64 = TS};
    assert_true(read_as(&v, FIELD_I64).i64 == TS);
}

static void test_results_say_what_frames_can(void **state)
{
    static const struct {
        dcgmReturn_t result;
        enum frame_status status;
    } cases[] = {
        {DCGM_ST_OK, FRAME_OK},
        {DCGM_ST_NO_DATA, FRAME_NO_DATA},
        {DCGM_ST_STALE_DATA, FRAME_NO_DATA},
        {DCGM_ST_NOT_WATCHED, FRAME_NO_DATA},
        {DCGM_ST_PENDING, FRAME_NO_DATA},
        {DCGM_ST_GPUS_DETACHED, FRAME_NO_DATA},
        {DCGM_ST_NOT_SUPPORTED, FRAME_NOT_SUPPORTED},
        {DCGM_ST_UNKNOWN_FIELD, FRAME_NOT_SUPPORTED},
        {DCGM_ST_FIELD_UNSUPPORTED_BY_API, FRAME_NOT_SUPPORTED},
        {DCGM_ST_GPU_NOT_SUPPORTED, FRAME_NOT_SUPPORTED},
        {DCGM_ST_PROFILING_NOT_SUPPORTED, FRAME_NOT_SUPPORTED},
        {DCGM_ST_FUNCTION_NOT_FOUND, FRAME_NO_SYMBOL},
        {DCGM_ST_NO_PERMISSION, FRAME_NO_PERMISSION},
        {DCGM_ST_REQUIRES_ROOT, FRAME_NO_PERMISSION},
        {DCGM_ST_GPU_IS_LOST, FRAME_LOST},
        {DCGM_ST_CONNECTION_NOT_VALID, FRAME_NOT_CONNECTED},
        {DCGM_ST_IN_USE, FRAME_IN_USE},
        {DCGM_ST_PAUSED, FRAME_PAUSED},
        {DCGM_ST_GENERIC_ERROR, FRAME_VENDOR_ERROR},
        {DCGM_ST_TIMEOUT, FRAME_VENDOR_ERROR},
        {DCGM_ST_PROFILING_LIBRARY_ERROR, FRAME_VENDOR_ERROR},
        {DCGM_ST_PROFILING_MULTI_PASS, FRAME_VENDOR_ERROR},
        {DCGM_ST_MODULE_NOT_LOADED, FRAME_VENDOR_ERROR},
        {DCGM_ST_NVML_DRIVER_TIMEOUT, FRAME_VENDOR_ERROR},
        {-999, FRAME_VENDOR_ERROR},
        {7, FRAME_VENDOR_ERROR},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(dcgm_status_of(cases[i].result), cases[i].status);
        dcgmFieldValue_v1 v = {.fieldType = DCGM_FT_INT64, .status = cases[i].result};
        struct dcgm_reading r = read_as(&v, FIELD_I64);
        assert_int_equal(r.status, cases[i].status);
        if (r.status == FRAME_VENDOR_ERROR)
            assert_true(r.i64 == cases[i].result);
    }
}

// --- when ---

#define WALL (UINT64_C(1700000000) * NS_PER_S)
#define MONO (UINT64_C(5000) * NS_PER_S)

static void test_a_value_is_as_old_as_its_stamp_says(void **state)
{
    struct dcgm_moment now = {.mono_ns = MONO, .wall_ns = WALL};
    assert_true(dcgm_value_taken_ns(TS, &now, 0) == MONO);
    assert_true(dcgm_value_taken_ns(TS - 250000, &now, 0) == MONO - 250 * NS_PER_MS);
    assert_true(dcgm_value_taken_ns(TS - 250000, &now, MONO - NS_PER_S) == MONO - 250 * NS_PER_MS);
    // Older than the machine runs.
    assert_true(dcgm_value_taken_ns(TS - INT64_C(6000000000), &now, 0) == 0);
    assert_true(dcgm_value_taken_ns(1, &now, 0) == 0);
    assert_true(dcgm_value_taken_ns(INT64_MIN, &now, 0) == 0);
}

static void test_a_stamp_that_is_new_lies_between_two_looks_whatever_the_clocks_say(void **state)
{
    struct dcgm_moment now = {.mono_ns = MONO, .wall_ns = WALL};
    uint64_t since = MONO - NS_PER_S;
    // The engine's clock is an hour behind, or ours was set ahead.
    assert_true(dcgm_value_taken_ns(TS - INT64_C(3600000000), &now, since) == since);
    // The other way round.
    assert_true(dcgm_value_taken_ns(TS + INT64_C(3600000000), &now, since) == MONO);
    assert_true(dcgm_value_taken_ns(INT64_MAX, &now, since) == MONO);
    // Never in the future, though the last look is.
    assert_true(dcgm_value_taken_ns(TS - 1, &now, MONO + 1) == MONO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_integer_is_blank_at_both_widths),
        cmocka_unit_test(test_a_double_is_blank_at_four_numbers_alone),
        cmocka_unit_test(test_a_string_is_blank_at_its_words),
        cmocka_unit_test(test_a_string_ends_with_its_array),
        cmocka_unit_test(test_a_binary_field_is_never_a_value),
        cmocka_unit_test(test_the_status_goes_before_the_number),
        cmocka_unit_test(test_a_value_without_a_time_was_never_sampled),
        cmocka_unit_test(test_the_record_names_the_number_and_the_field_where_it_does_not),
        cmocka_unit_test(test_results_say_what_frames_can),
        cmocka_unit_test(test_a_value_is_as_old_as_its_stamp_says),
        cmocka_unit_test(test_a_stamp_that_is_new_lies_between_two_looks_whatever_the_clocks_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
