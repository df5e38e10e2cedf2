// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "base/clock.h"
#include "fake_nvml.h"
#include "source/nvml_gpm.h"

static struct nvml_gpm gpm;

static int setup(void **state)
{
    fake_reset();
    gpm = (struct nvml_gpm){0};
    return 0;
}

static int teardown(void **state)
{
    nvml_gpm_reset(&fake.n, &gpm, 0);
    assert_int_equal(fake.samples_alive, 0);
    return 0;
}

static nvmlReturn_t read_gi(uint64_t now_ns, struct nvml_gpm_value *values, uint32_t count,
                            uint32_t gi)
{
    struct nvml_gpm_target target = {.device = fake_device(0), .mig_gi = gi};
    return nvml_gpm_read(&fake.n, &gpm, &target, now_ns, values, count);
}

static nvmlReturn_t read_gpu(uint64_t now_ns, struct nvml_gpm_value *values, uint32_t count)
{
    return read_gi(now_ns, values, count, UINT32_MAX);
}

static void the_first_sample_gives_nothing_and_the_second_all_metrics_in_one_call(void **state)
{
    struct nvml_gpm_value v[] = {{.metric = 1}, {.metric = 5}, {.metric = 20}};
    fake.metric[1] = 55.5;
    fake.metric[5] = 12.25;
    fake.metric[20] = 700;
    assert_int_equal(read_gpu(NS_PER_S, v, 3), NVML_ERROR_NO_DATA);
    fake.n.calls = 0;
    assert_int_equal(read_gpu(2 * NS_PER_S, v, 3), NVML_SUCCESS);
    assert_int_equal(fake.n.calls, 1 + 1 + 1); // alloc of the second object, sample, metrics
    assert_true(v[0].value == 55.5 && v[1].value == 12.25 && v[2].value == 700);
    assert_int_equal(fake.last_request.numMetrics, 3);
    assert_int_equal(fake.last_request.version, 1);
    assert_int_equal(fake.pair[0], 1);
    assert_int_equal(fake.pair[1], 2);
}

static void each_reading_is_the_next_ones_base_and_two_objects_are_enough(void **state)
{
    struct nvml_gpm_value v[] = {{.metric = 1}};
    for (uint64_t i = 1; i <= 5; i++) {
        (void)read_gpu(i * NS_PER_S, v, 1);
        if (i > 1) {
            assert_int_equal(fake.pair[0], i - 1);
            assert_int_equal(fake.pair[1], i);
        }
    }
    assert_int_equal(fake.samples_alive, 2);
    fake.n.calls = 0;
    assert_int_equal(read_gpu(6 * NS_PER_S, v, 1), NVML_SUCCESS);
    assert_int_equal(fake.n.calls, 2);
}

static void samples_lie_at_least_100_ms_apart(void **state)
{
    struct nvml_gpm_value v[] = {{.metric = 1}};
    assert_int_equal(read_gpu(NS_PER_S, v, 1), NVML_ERROR_NO_DATA);
    fake.n.calls = 0;
    assert_int_equal(read_gpu(NS_PER_S + NVML_GPM_LEAST_NS - 1, v, 1), NVML_ERROR_NOT_READY);
    assert_int_equal(fake.n.calls, 0);
    assert_int_equal(read_gpu(NS_PER_S + NVML_GPM_LEAST_NS, v, 1), NVML_SUCCESS);
}

static void an_instance_is_sampled_through_its_parent_by_its_id(void **state)
{
    struct nvml_gpm_value v[] = {{.metric = 1}};
    assert_int_equal(read_gi(NS_PER_S, v, 1, 7), NVML_ERROR_NO_DATA);
    assert_int_equal(gpm.base->gi, 7);
    assert_int_equal(gpm.base->of.slot, -1);
    fake.n.fn.nvmlGpmMigSampleGet = NULL; // a driver before 525
    assert_int_equal(read_gi(2 * NS_PER_S, v, 1, 7), NVML_ERROR_FUNCTION_NOT_FOUND);
}

static void each_metric_has_its_own_return_and_a_nan_is_no_value(void **state)
{
    struct nvml_gpm_value v[] = {{.metric = 1}, {.metric = 2}, {.metric = 3}};
    fake.metric[1] = NAN;
    fake.metric_result[2] = NVML_ERROR_NOT_SUPPORTED;
    fake.metric[3] = 1;
    (void)read_gpu(NS_PER_S, v, 3);
    assert_int_equal(read_gpu(2 * NS_PER_S, v, 3), NVML_SUCCESS);
    assert_int_equal(v[0].result, NVML_ERROR_NO_DATA);
    assert_int_equal(v[1].result, NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(v[2].result, NVML_SUCCESS);
}

static void a_failed_sample_drops_both_ends(void **state)
{
    struct nvml_gpm_value v[] = {{.metric = 1}};
    (void)read_gpu(NS_PER_S, v, 1);
    fake.gpm_result = NVML_ERROR_UNKNOWN;
    assert_int_equal(read_gpu(2 * NS_PER_S, v, 1), NVML_ERROR_UNKNOWN);
    fake.gpm_result = NVML_SUCCESS;
    assert_int_equal(read_gpu(3 * NS_PER_S, v, 1), NVML_ERROR_NO_DATA); // a base again
    assert_int_equal(read_gpu(4 * NS_PER_S, v, 1), NVML_SUCCESS);
    assert_int_equal(fake.pair[1] - fake.pair[0], 1);
}

static void failed_metrics_drop_both_ends(void **state)
{
    struct nvml_gpm_value v[] = {{.metric = 1}};
    (void)read_gpu(NS_PER_S, v, 1);
    fake.metrics_result = NVML_ERROR_UNKNOWN;
    assert_int_equal(read_gpu(2 * NS_PER_S, v, 1), NVML_ERROR_UNKNOWN);
    fake.metrics_result = NVML_SUCCESS;
    assert_int_equal(read_gpu(3 * NS_PER_S, v, 1), NVML_ERROR_NO_DATA);
}

static void the_request_is_clean_behind_its_last_metric(void **state)
{
    struct nvml_gpm_value many[NVML_GPM_WANTED_MAX];
    for (unsigned i = 0; i < NVML_GPM_WANTED_MAX; i++)
        many[i] = (struct nvml_gpm_value){.metric = i + 1};
    (void)read_gpu(NS_PER_S, many, NVML_GPM_WANTED_MAX);
    assert_int_equal(read_gpu(2 * NS_PER_S, many, NVML_GPM_WANTED_MAX), NVML_SUCCESS);
    assert_int_equal(fake.last_request.metrics[NVML_GPM_WANTED_MAX].metricId, 0);
    assert_int_equal(read_gpu(3 * NS_PER_S, many, 1), NVML_SUCCESS);
    assert_int_equal(fake.last_request.numMetrics, 1);
    assert_true(fake.last_request.metrics[0].value == 0);
}

static void a_metric_that_the_library_does_not_know_costs_only_itself(void **state)
{
    struct nvml_gpm_value v[] = {{.metric = 1}, {.metric = 248}, {.metric = 5}};
    fake.metrics_end = 98;
    fake.metric[1] = 10;
    fake.metric[5] = 20;
    (void)read_gpu(NS_PER_S, v, 3);
    assert_int_equal(read_gpu(2 * NS_PER_S, v, 3), NVML_SUCCESS);
    assert_true(v[0].value == 10 && v[2].value == 20);
    assert_int_equal(v[1].result, NVML_ERROR_INVALID_ARGUMENT);
    fake.n.calls = 0;
    assert_int_equal(read_gpu(3 * NS_PER_S, v, 3), NVML_SUCCESS);
    assert_int_equal(fake.n.calls, 2); // it is remembered
    assert_int_equal(fake.last_request.numMetrics, 2);
    assert_true(v[0].value == 10 && v[2].value == 20);
    assert_int_equal(v[1].result, NVML_ERROR_NOT_SUPPORTED);
}

static void when_every_metric_fails_none_is_remembered(void **state)
{
    struct nvml_gpm_value v[] = {{.metric = 1}, {.metric = 5}};
    fake.metrics_end = 0;
    (void)read_gpu(NS_PER_S, v, 2);
    assert_int_equal(read_gpu(2 * NS_PER_S, v, 2), NVML_ERROR_INVALID_ARGUMENT);
    fake.metrics_end = 400;
    (void)read_gpu(3 * NS_PER_S, v, 2);
    assert_int_equal(read_gpu(4 * NS_PER_S, v, 2), NVML_SUCCESS);
    assert_int_equal(v[0].result, NVML_SUCCESS);
}

static void support_is_asked_with_version_1(void **state)
{
    assert_false(nvml_gpm_supported(&fake.n, fake_device(0), 0));
    fake.gpu[0].gpm = true;
    assert_true(nvml_gpm_supported(&fake.n, fake_device(0), 0));
    fake.n.fn.nvmlGpmQueryDeviceSupport = NULL;
    assert_false(nvml_gpm_supported(&fake.n, fake_device(0), 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            the_first_sample_gives_nothing_and_the_second_all_metrics_in_one_call, setup, teardown),
        cmocka_unit_test_setup_teardown(
            each_reading_is_the_next_ones_base_and_two_objects_are_enough, setup, teardown),
        cmocka_unit_test_setup_teardown(samples_lie_at_least_100_ms_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(an_instance_is_sampled_through_its_parent_by_its_id, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(each_metric_has_its_own_return_and_a_nan_is_no_value, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_failed_sample_drops_both_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(failed_metrics_drop_both_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(the_request_is_clean_behind_its_last_metric, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_metric_that_the_library_does_not_know_costs_only_itself,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(when_every_metric_fails_none_is_remembered, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(support_is_asked_with_version_1, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
