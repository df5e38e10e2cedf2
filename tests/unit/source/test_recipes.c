// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "gpu/catalogue.h"
#include "source/nvml_fields.h"

static void recipes_stand_in_ascending_order(void **state)
{
    for (uint32_t i = 1; i < nvml_recipe_count; i++)
        assert_true(nvml_recipe_table[i].field > nvml_recipe_table[i - 1].field);
}

static void every_field_that_nvml_gives_has_a_recipe_and_no_other(void **state)
{
    for (size_t i = 0; i < field_table_count; i++) {
        const struct field_info *f = &field_table[i];
        const struct nvml_recipe *r = nvml_recipe_find(f->id);
        if ((f->origin != FIELD_ORIGIN_NONE) != (r != NULL))
            fail_msg("field %u: origin %u, recipe %s", f->id, f->origin, r ? "there" : "missing");
    }
    for (uint32_t i = 0; i < nvml_recipe_count; i++)
        assert_non_null(field_find(nvml_recipe_table[i].field));
}

static uint8_t origin_of(const struct nvml_recipe *r)
{
    if (r->getter < GETTER_CALL_COUNT)
        return FIELD_ORIGIN_CALL;
    if (r->getter == GETTER_GPM)
        return FIELD_ORIGIN_GPM;
    return r->getter == GETTER_XID ? FIELD_ORIGIN_EVENT : FIELD_ORIGIN_FIELD_VALUE;
}

static void recipes_agree_with_the_catalogue(void **state)
{
    for (uint32_t i = 0; i < nvml_recipe_count; i++) {
        const struct nvml_recipe *r = &nvml_recipe_table[i];
        const struct field_info *f = field_find(r->field);
        bool instance = f->level == FIELD_LEVEL_GPU_I || f->level == FIELD_LEVEL_GPU_CI;
        if (f->origin != origin_of(r) || f->cost != r->cost || instance != r->instance)
            fail_msg("field %u: origin %u/%u, cost %u/%u, instance %u/%u", r->field, f->origin,
                     origin_of(r), f->cost, r->cost, instance, r->instance);
        if (r->getter == GETTER_FIELD_VALUE)
            assert_int_equal(f->nvml_field_id, r->arg);
        if (r->getter == GETTER_GPM)
            assert_int_equal(f->gpm_metric_id, r->arg);
    }
}

// The type of a recipe's value, asked of the conversion itself.
static enum frame_value_type type_of(const struct nvml_recipe *r)
{
    struct nvml_reading reading = {.number = {1, 1, 1, 1, 1}, .real = 1, .text = {"x", "x"}};
    struct nvml_recipe first = *r;
    if (r->getter >= GETTER_CALL_COUNT)
        first.pick = 0;
    struct nvml_output out;
    nvml_convert(&first, &reading, &out);
    return out.type;
}

static void values_have_the_type_of_their_field(void **state)
{
    static const enum frame_value_type types[] = {[FIELD_I64] = FRAME_VALUE_I64,
                                                  [FIELD_DOUBLE] = FRAME_VALUE_DOUBLE,
                                                  [FIELD_STRING] = FRAME_VALUE_STRING};
    for (uint32_t i = 0; i < nvml_recipe_count; i++) {
        const struct field_info *f = field_find(nvml_recipe_table[i].field);
        if (f->type == FIELD_BINARY || type_of(&nvml_recipe_table[i]) != types[f->type])
            fail_msg("field %u: type %u, value %u", f->id, f->type, type_of(&nvml_recipe_table[i]));
    }
}

static void all_recipes_of_a_class_fit_one_bulk_call(void **state)
{
    unsigned values = 0;
    for (uint32_t i = 0; i < nvml_recipe_count; i++)
        values += nvml_recipe_table[i].getter == GETTER_FIELD_VALUE
                      ? 1
                      : nvml_recipe_table[i].getter == GETTER_NVLINK_RATE;
    assert_true(values < 256);
}

struct conversion {
    uint16_t field;
    uint64_t number; // each of the reading's numbers
    double real;
    enum frame_status status;
    int64_t i64;
    double f64;
};

static void numbers_become_what_dcgm_publishes(void **state)
{
    static const struct conversion cases[] = {
        {100, 1455, 0, FRAME_OK, 1455, 0},                               // MHz
        {1603, 1455, 0, FRAME_OK, 1455000000, 0},                        // Hz
        {155, 299437, 0, FRAME_OK, 0, 299.437},                          // mW to W
        {160, 299999, 0, FRAME_OK, 0, 299.0},                            // limits: whole watts
        {1611, 15782796862, 0, FRAME_OK, 0, 15782796.862},               // mJ to J
        {252, (UINT64_C(20501) << 20) + 1048575, 0, FRAME_OK, 20501, 0}, // MiB, floor
        {1600, 34359738368, 0, FRAME_OK, 34359738368, 0},                // bytes
        {254, 0, 0.5, FRAME_OK, 0, 0.5},
        {150, 200, 0, FRAME_OK, 200, 0},
        {150, 201, 0, FRAME_INVALID, 0, 0}, // DCGM drops it
        {1612, 55, 0, FRAME_OK, 0, 0.55},
        {1001, 0, 57.25, FRAME_OK, 0, 0.5725},      // GPM percent to ratio
        {1001, 0, 100.5, FRAME_OK, 0, 1.005},       // never clamped
        {1009, 0, 1.0000009, FRAME_OK, 1048576, 0}, // MiB/s to bytes/s, truncated
        {1080, 0, 99.9, FRAME_OK, 99, 0},
        {1084, 0, 1e300, FRAME_INVALID, 0, 0},
        {1216, 0xf << 8 | 255, 0, FRAME_OK, 0, 0.0}, // no errors
        {1216, 5 << 8 | 12, 0, FRAME_OK, 0, 5e-12},
        {1215, 5 << 8 | 12, 0, FRAME_OK, 1292, 0},
        {153, (uint64_t)-7, 0, FRAME_OK, -7, 0}, // a margin may be negative
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct conversion *c = &cases[i];
        struct nvml_recipe r = *nvml_recipe_find(c->field);
        if (r.getter >= GETTER_CALL_COUNT)
            r.pick = 0;
        struct nvml_reading reading = {.real = c->real};
        for (unsigned k = 0; k < NVML_READING_NUMBERS; k++)
            reading.number[k] = c->number;
        struct nvml_output out;
        nvml_convert(&r, &reading, &out);
        if (out.status != c->status ||
            (!out.status && out.type == FRAME_VALUE_I64 && out.i64 != c->i64) ||
            (!out.status && out.type == FRAME_VALUE_DOUBLE && out.f64 != c->f64))
            fail_msg("case %zu, field %u: status %d, %lld, %.17g", i, c->field, out.status,
                     (long long)out.i64, out.f64);
    }
}

static void return_codes_become_statuses(void **state)
{
    assert_int_equal(nvml_status_of(NVML_SUCCESS), FRAME_OK);
    assert_int_equal(nvml_status_of(NVML_ERROR_NOT_SUPPORTED), FRAME_NOT_SUPPORTED);
    assert_int_equal(nvml_status_of(NVML_ERROR_INVALID_ARGUMENT), FRAME_NOT_SUPPORTED);
    assert_int_equal(nvml_status_of(NVML_ERROR_NO_PERMISSION), FRAME_NO_PERMISSION);
    assert_int_equal(nvml_status_of(NVML_ERROR_FUNCTION_NOT_FOUND), FRAME_NO_SYMBOL);
    assert_int_equal(nvml_status_of(NVML_ERROR_DEPRECATED), FRAME_NO_SYMBOL);
    assert_int_equal(nvml_status_of(NVML_ERROR_NO_DATA), FRAME_NO_DATA);
    assert_int_equal(nvml_status_of(NVML_ERROR_GPU_IS_LOST), FRAME_LOST);
    assert_int_equal(nvml_status_of(NVML_ERROR_UNKNOWN), FRAME_VENDOR_ERROR);
    assert_int_equal(nvml_status_of(NVML_ERROR_RESET_REQUIRED), FRAME_VENDOR_ERROR);
    assert_true(nvml_status_is_final(FRAME_NOT_SUPPORTED));
    assert_true(nvml_status_is_final(FRAME_NO_SYMBOL));
    assert_false(nvml_status_is_final(FRAME_LOST));
    assert_false(nvml_status_is_final(FRAME_VENDOR_ERROR));
    assert_false(nvml_status_is_final(FRAME_NO_DATA));
}

static void a_failed_call_keeps_its_code(void **state)
{
    struct nvml_reading reading = {.result = NVML_ERROR_UNKNOWN, .number[0] = 7};
    struct nvml_output out;
    nvml_convert(nvml_recipe_find(100), &reading, &out);
    assert_int_equal(out.status, FRAME_VENDOR_ERROR);
    assert_int_equal(out.type, FRAME_VALUE_NONE);
    assert_int_equal(out.i64, 999);
}

static void a_number_that_the_call_lacks_has_a_status_of_its_own(void **state)
{
    struct nvml_reading reading = {.number = {1 << 20, 1 << 20, 1 << 20, 0},
                                   .status = {[3] = FRAME_NOT_SUPPORTED}};
    struct nvml_output out;
    nvml_convert(nvml_recipe_find(253), &reading, &out);
    assert_int_equal(out.status, FRAME_NOT_SUPPORTED);
    nvml_convert(nvml_recipe_find(252), &reading, &out);
    assert_int_equal(out.status, FRAME_OK);
    assert_int_equal(out.i64, 1);
}

static void an_empty_text_is_no_value(void **state)
{
    struct nvml_reading reading = {0};
    struct nvml_output out;
    nvml_convert(nvml_recipe_find(53), &reading, &out);
    assert_int_equal(out.status, FRAME_NO_DATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipes_stand_in_ascending_order),
        cmocka_unit_test(every_field_that_nvml_gives_has_a_recipe_and_no_other),
        cmocka_unit_test(recipes_agree_with_the_catalogue),
        cmocka_unit_test(values_have_the_type_of_their_field),
        cmocka_unit_test(all_recipes_of_a_class_fit_one_bulk_call),
        cmocka_unit_test(numbers_become_what_dcgm_publishes),
        cmocka_unit_test(return_codes_become_statuses),
        cmocka_unit_test(a_failed_call_keeps_its_code),
        cmocka_unit_test(a_number_that_the_call_lacks_has_a_status_of_its_own),
        cmocka_unit_test(an_empty_text_is_no_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
