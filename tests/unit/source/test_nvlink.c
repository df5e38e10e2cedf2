// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "source/nvml_nvlink.h"

static void the_rate_is_kib_per_second_over_1000_truncated(void **state)
{
    struct nvml_rate rate = {0};
    int64_t out = -1;
    assert_false(nvml_rate_update(&rate, 1000000, 10 * NS_PER_S, 0, &out));
    assert_true(nvml_rate_update(&rate, 1000000 + 2999, 11 * NS_PER_S, 0, &out));
    assert_int_equal(out, 2);
    assert_true(nvml_rate_update(&rate, 1002999 + 50000000, 13 * NS_PER_S, 0, &out));
    assert_int_equal(out, 25000);
}

static void no_traffic_is_zero(void **state)
{
    struct nvml_rate rate = {0};
    int64_t out = -1;
    assert_true(nvml_rate_update(&rate, 0, NS_PER_S, 0, &out)); // none since the driver was loaded
    assert_int_equal(out, 0);
    assert_true(nvml_rate_update(&rate, 0, 2 * NS_PER_S, 0, &out));
    assert_int_equal(out, 0);
    assert_true(nvml_rate_update(&rate, 4000, 3 * NS_PER_S, 0, &out));
    assert_int_equal(out, 4);
}

static void a_counter_that_went_back_is_a_new_base(void **state)
{
    struct nvml_rate rate = {0};
    int64_t out;
    (void)nvml_rate_update(&rate, 9000000, NS_PER_S, 0, &out);
    assert_false(nvml_rate_update(&rate, 1000, 2 * NS_PER_S, 0, &out));
    assert_true(nvml_rate_update(&rate, 6000, 3 * NS_PER_S, 0, &out));
    assert_int_equal(out, 5);
}

static void without_time_between_there_is_no_rate(void **state)
{
    struct nvml_rate rate = {0};
    int64_t out;
    (void)nvml_rate_update(&rate, 1000, NS_PER_S, 0, &out);
    assert_false(nvml_rate_update(&rate, 2000, NS_PER_S, 0, &out));
}

static void the_drivers_own_time_is_taken_when_it_agrees(void **state)
{
    struct nvml_rate rate = {0};
    int64_t out;
    (void)nvml_rate_update(&rate, 1000, NS_PER_S, 1700000000000000, &out);
    // We looked 1.05 s later, the driver's counters are 1 s apart.
    assert_true(
        nvml_rate_update(&rate, 101000, 2 * NS_PER_S + 50 * NS_PER_MS, 1700000001000000, &out));
    assert_int_equal(out, 100);
    // The wall clock was set back an hour in between.
    assert_true(
        nvml_rate_update(&rate, 201000, 3 * NS_PER_S + 50 * NS_PER_MS, 1699996401000000, &out));
    assert_int_equal(out, 100);
}

static void every_link_and_direction_has_a_base_of_its_own(void **state)
{
    struct nvml_rates rates = {0};
    struct nvml_rate *seen[19 * 3];
    size_t n = 0;
    for (unsigned link = 0; link < NVML_NVLINK_LINKS; link++)
        for (unsigned d = NVML_NVLINK_TX; d <= NVML_NVLINK_BOTH; d++)
            seen[n++] = nvml_rates_get(&rates, link, (enum nvml_nvlink_direction)d);
    for (unsigned d = NVML_NVLINK_TX; d <= NVML_NVLINK_BOTH; d++)
        seen[n++] = nvml_rates_get(&rates, 0xffff, (enum nvml_nvlink_direction)d);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            assert_ptr_not_equal(seen[i], seen[k]);
    assert_ptr_equal(nvml_rates_get(&rates, NVML_NVLINK_ALL_LINKS, NVML_NVLINK_BOTH), seen[n - 1]);
    nvml_rates_deinit(&rates);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rate_is_kib_per_second_over_1000_truncated),
        cmocka_unit_test(no_traffic_is_zero),
        cmocka_unit_test(a_counter_that_went_back_is_a_new_base),
        cmocka_unit_test(without_time_between_there_is_no_rate),
        cmocka_unit_test(the_drivers_own_time_is_taken_when_it_agrees),
        cmocka_unit_test(every_link_and_direction_has_a_base_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
