// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fake_nvml.h"
#include "source/nvml_field_values.h"

static struct nvml_field_values known;

static int setup(void **state)
{
    fake_reset();
    nvml_field_values_init(&known, "550.90.07");
    return 0;
}

static nvmlReturn_t get(struct nvml_value *values, uint32_t count)
{
    return nvml_field_values_get(&fake.n, &known, fake_device(0), 0, values, count);
}

static void all_ids_come_from_one_call(void **state)
{
    fake_set_value(83, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, (nvmlValue_t){.ullVal = 15782796862});
    fake_set_value(82, NVML_VALUE_TYPE_UNSIGNED_INT, (nvmlValue_t){.uiVal = 61});
    fake_set_value(143, NVML_VALUE_TYPE_UNSIGNED_INT, (nvmlValue_t){.uiVal = 2});
    struct nvml_value v[] = {{.id = 83, .expect = EXPECT_U64},
                             {.id = 82, .expect = EXPECT_U32},
                             {.id = 143, .expect = EXPECT_U32}};
    assert_int_equal(get(v, 3), NVML_SUCCESS);
    assert_int_equal(fake.value_calls, 1);
    assert_int_equal(v[0].number, 15782796862);
    assert_int_equal(v[1].number, 61);
    assert_int_equal(v[2].number, 2);
    assert_int_equal(v[0].driver_us, 1700000000000000);
}

static void each_id_has_its_own_return(void **state)
{
    fake_set_value(83, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, (nvmlValue_t){.ullVal = 5});
    fake.values[82] = (nvmlFieldValue_t){.fieldId = 82, .nvmlReturn = NVML_ERROR_NOT_SUPPORTED};
    struct nvml_value v[] = {{.id = 82, .expect = EXPECT_U32}, {.id = 83, .expect = EXPECT_U64}};
    assert_int_equal(get(v, 2), NVML_SUCCESS);
    assert_int_equal(v[0].result, NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(v[1].result, NVML_SUCCESS);
    assert_int_equal(v[1].number, 5);
}

static void a_wrong_type_is_read_as_what_the_id_holds(void **state)
{
    // r545 calls the memory temperature a double but writes an unsigned int; some call ECC counts
    // doubles.
    fake_set_value(82, NVML_VALUE_TYPE_DOUBLE, (nvmlValue_t){.uiVal = 61});
    fake_set_value(3, NVML_VALUE_TYPE_DOUBLE, (nvmlValue_t){.ullVal = UINT64_C(1) << 33});
    fake_set_value(74, NVML_VALUE_TYPE_UNSIGNED_INT, (nvmlValue_t){.uiVal = 9});
    fake_set_value(230, NVML_VALUE_TYPE_SIGNED_INT, (nvmlValue_t){.siVal = -2});
    fake_set_value(254, NVML_VALUE_TYPE_DOUBLE, (nvmlValue_t){.dVal = 612.5});
    fake_set_value(255, NVML_VALUE_TYPE_UNSIGNED_INT, (nvmlValue_t){.uiVal = 300});
    struct nvml_value v[] = {
        {.id = 82, .expect = EXPECT_U32},    {.id = 3, .expect = EXPECT_U64},
        {.id = 74, .expect = EXPECT_U64},    {.id = 230, .expect = EXPECT_U32},
        {.id = 254, .expect = EXPECT_TYPED}, {.id = 255, .expect = EXPECT_TYPED}};
    assert_int_equal(get(v, 6), NVML_SUCCESS);
    assert_int_equal(v[0].number, 61);
    assert_int_equal(v[1].number, UINT64_C(1) << 33);
    assert_int_equal(v[2].number, 9);
    assert_int_equal(v[3].number, (uint64_t)-2);
    assert_true(v[4].real == 612.5);
    assert_true(v[5].real == 300.0);
}

static void a_record_left_untouched_is_not_supported(void **state)
{
    fake_set_value(83, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, (nvmlValue_t){.ullVal = 5});
    fake.unknown_from = 200;
    struct nvml_value v[] = {{.id = 83, .expect = EXPECT_U64}, {.id = 230, .expect = EXPECT_U32}};
    assert_int_equal(get(v, 2), NVML_SUCCESS);
    assert_int_equal(v[0].number, 5);
    assert_int_equal(v[1].result, NVML_ERROR_NOT_SUPPORTED);
}

static void a_call_that_fails_as_a_whole_is_made_id_by_id_once(void **state)
{
    fake_set_value(83, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, (nvmlValue_t){.ullVal = 5});
    fake_set_value(82, NVML_VALUE_TYPE_UNSIGNED_INT, (nvmlValue_t){.uiVal = 61});
    fake.unknown_from = 200;
    fake.unknown_fails_all = true;
    struct nvml_value v[] = {{.id = 83, .expect = EXPECT_U64},
                             {.id = 230, .expect = EXPECT_U32},
                             {.id = 82, .expect = EXPECT_U32}};
    assert_int_equal(get(v, 3), NVML_SUCCESS);
    assert_int_equal(fake.value_calls, 1 + 3);
    assert_int_equal(v[0].number, 5);
    assert_int_equal(v[1].result, NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(v[2].number, 61);

    fake.value_calls = 0;
    assert_int_equal(get(v, 3), NVML_SUCCESS);
    assert_int_equal(fake.value_calls, 1); // the bad id is remembered
    assert_int_equal(fake.last_value_count, 2);
    assert_int_equal(v[0].number, 5);
    assert_int_equal(v[1].result, NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(v[2].number, 61);
}

static void when_every_id_fails_none_is_remembered(void **state)
{
    fake.unknown_from = 0;
    fake.unknown_fails_all = true;
    struct nvml_value v[] = {{.id = 83, .expect = EXPECT_U64}, {.id = 82, .expect = EXPECT_U32}};
    assert_int_equal(get(v, 2), NVML_ERROR_INVALID_ARGUMENT);
    fake.unknown_from = 500;
    fake_set_value(83, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, (nvmlValue_t){.ullVal = 5});
    assert_int_equal(get(v, 2), NVML_SUCCESS);
    assert_int_equal(v[0].number, 5);
}

static void a_lost_gpu_is_told_at_once(void **state)
{
    fake.gpu[0].result = NVML_ERROR_GPU_IS_LOST;
    struct nvml_value v[] = {{.id = 83}, {.id = 82}};
    assert_int_equal(get(v, 2), NVML_ERROR_GPU_IS_LOST);
    assert_int_equal(fake.value_calls, 0);
    assert_int_equal(fake.n.calls, 1);
}

static void ids_that_branch_575_numbers_otherwise_are_not_asked_there(void **state)
{
    fake_set_value(269, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, (nvmlValue_t){.ullVal = 5});
    fake_set_value(83, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, (nvmlValue_t){.ullVal = 6});
    static const struct {
        const char *driver;
        nvmlReturn_t result;
    } cases[] = {{"570.124.06", NVML_SUCCESS}, {"575.51.03", NVML_ERROR_NOT_SUPPORTED},
                 {"579", NVML_SUCCESS},        {"580.65.06", NVML_SUCCESS},
                 {"", NVML_SUCCESS},           {"garbage", NVML_SUCCESS}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct nvml_value v[] = {{.id = 269, .expect = EXPECT_U64},
                                 {.id = 83, .expect = EXPECT_U64}};
        nvml_field_values_init(&known, cases[i].driver);
        assert_int_equal(get(v, 2), NVML_SUCCESS);
        assert_int_equal(v[1].number, 6);
        if (strcmp(cases[i].driver, "579") != 0)
            assert_int_equal(v[0].result, cases[i].result);
    }
}

static void counters_of_nvlink_5_are_asked_for_all_links(void **state)
{
    assert_int_equal(nvml_field_value_scope(83), 0);
    assert_int_equal(nvml_field_value_scope(186), 0); // 0: the GPU, 1: the module
    assert_int_equal(nvml_field_value_scope(200), 0);
    assert_int_equal(nvml_field_value_scope(201), UINT32_MAX);
    assert_int_equal(nvml_field_value_scope(222), UINT32_MAX);
    assert_int_equal(nvml_field_value_scope(230), 0);
    assert_int_equal(nvml_field_value_scope(250), UINT32_MAX);
    assert_int_equal(nvml_field_value_scope(251), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_ids_come_from_one_call, setup),
        cmocka_unit_test_setup(each_id_has_its_own_return, setup),
        cmocka_unit_test_setup(a_wrong_type_is_read_as_what_the_id_holds, setup),
        cmocka_unit_test_setup(a_record_left_untouched_is_not_supported, setup),
        cmocka_unit_test_setup(a_call_that_fails_as_a_whole_is_made_id_by_id_once, setup),
        cmocka_unit_test_setup(when_every_id_fails_none_is_remembered, setup),
        cmocka_unit_test_setup(a_lost_gpu_is_told_at_once, setup),
        cmocka_unit_test_setup(ids_that_branch_575_numbers_otherwise_are_not_asked_there, setup),
        cmocka_unit_test_setup(counters_of_nvlink_5_are_asked_for_all_links, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
