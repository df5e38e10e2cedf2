// SPDX-License-Identifier: Apache-2.0
// What the engine is made to do, what it refuses, and what becomes of it when it is gone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <limits.h>

#include "../allocation_sweep.h"
#include "dcgm_watch_fixture.h"

static bool generate_sum(int group, unsigned id, unsigned short field, struct fake_dcgm_value *out)
{
    out->i64 = 1000000 * group + 10000 * (int64_t)id + field;
    return true;
}

static void add_range(unsigned place, uint16_t first, uint16_t last)
{
    uint16_t ids[64];
    uint16_t count = (uint16_t)(last - first + 1);
    for (uint16_t i = 0; i < count; i++)
        ids[i] = first + i;
    fake_dcgm_add_metrics(place, 1, 1, ids, count);
}

static void pass_a_minute(void)
{
    now_ns += 61 * S;
    assert_int_equal(try_read(), DCGM_ST_OK);
    assert_true(has_frame);
}

// --- profiling ---

static void test_profiling_fields_are_watched_where_a_group_has_them(void **state)
{
    fake_dcgm.generate = generate_sum;
    for (unsigned i = 1; i < 4; i++)
        fake_dcgm_add_gpu(i, "GPU");
    add_range(0, 1001, 1008); // GPUs 0 and 2 are of one model, 1 of another, 3 has none
    add_range(1, 1001, 1005);
    fake_dcgm_add_metrics(1, 1, 2, (const uint16_t[]){1012, 9, 1100}, 3);
    add_range(2, 1001, 1008);
    walk();
    APPLY(150, 1004, 1007, 1012);
    read_now();
    static const struct {
        uint32_t gpu;
        uint16_t field;
        bool there;
    } cases[] = {
        {0, 1004, true},  {1, 1004, true},  {2, 1004, true},  {3, 1004, false},
        {0, 1007, true},  {1, 1007, false}, {2, 1007, true},  {3, 1007, false},
        {0, 1012, false}, {1, 1012, true},  {2, 1012, false}, {3, 1012, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (cases[i].there)
            assert_int_equal(i64_of(cases[i].gpu, cases[i].field),
                             1000000 + 10000 * cases[i].gpu + cases[i].field);
        else
            assert_int_equal(status_of(cases[i].gpu, cases[i].field), FRAME_NOT_SUPPORTED);
        assert_int_equal(fake_dcgm_is_watched(DCGM_FE_GPU, cases[i].gpu, cases[i].field),
                         cases[i].there);
    }
    assert_int_equal(i64_of(3, 150), 1030150);
    assert_int_equal(calls, 1); // one read, whatever is watched how
    assert_int_equal(dcgm_watch_profiling_code(watch), DCGM_ST_OK);
}

static void test_instances_have_the_metrics_of_their_gpu(void **state)
{
    fake_dcgm.generate = generate_sum;
    fake_dcgm_add_gpu(1, "GPU-1");
    add_range(0, 1001, 1005);
    fake_dcgm.gpu[0].mig = fake_dcgm.gpu[1].mig = true;
    fake_dcgm_add_instance(0, 0, 1, 3);
    fake_dcgm_add_instance(1, 7, 1, 3);
    walk();
    APPLY(1001, 1005);
    read_now();
    assert_int_equal(i64_of(place_of(DCGM_FE_GPU_I, 0), 1005), 4001005);
    assert_int_equal(status_of(place_of(DCGM_FE_GPU_I, 7), 1005), FRAME_NOT_SUPPORTED);
    assert_true(fake_dcgm_is_watched(DCGM_FE_GPU_I, 0, 1001));
    assert_false(fake_dcgm_is_watched(DCGM_FE_GPU_I, 7, 1001));
}

static void test_a_list_of_metrics_that_is_full_may_be_cut(void **state)
{
    fake_dcgm.generate = generate_sum;
    add_range(0, 1001, 1064);
    walk();
    APPLY(1001, 1090);
    read_now();
    assert_int_equal(i64_of(0, 1090), 1001090);
}

static void test_numbers_of_metrics_beyond_the_struct_are_not_believed(void **state)
{
    add_range(0, 1001, 1005);
    fake_dcgm.gpu[0].metrics.numMetricGroups = 4000000000u;
    for (unsigned i = 0; i < DCGM_PROF_MAX_NUM_GROUPS_V2; i++)
        fake_dcgm.gpu[0].metrics.metricGroups[i].numFieldIds = 4000000000u;
    walk();
    APPLY(1001);
    read_now();
    assert_int_equal(status_of(0, 1001), FRAME_NO_DATA);
}

static void test_why_profiling_is_not_to_be_had_is_told_on_those_gpus(void **state)
{
    static const struct {
        dcgmReturn_t result;
        enum frame_status status;
    } cases[] = {
        {DCGM_ST_PROFILING_NOT_SUPPORTED, FRAME_NOT_SUPPORTED},
        {DCGM_ST_PROFILING_LIBRARY_ERROR, FRAME_VENDOR_ERROR},
        {DCGM_ST_MODULE_NOT_LOADED, FRAME_VENDOR_ERROR},
        {DCGM_ST_REQUIRES_ROOT, FRAME_NO_PERMISSION},
        {DCGM_ST_IN_USE, FRAME_IN_USE},
        {DCGM_ST_PAUSED, FRAME_PAUSED},
    };
    fake_dcgm.generate = generate_sum;
    fake_dcgm_add_gpu(1, "GPU-1");
    add_range(0, 1001, 1005);
    add_range(1, 1001, 1005);
    walk();
    for (unsigned asked = 0; asked < 2; asked++)
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
            // Said when asked what there is, or when it is to be watched.
            fake_dcgm.gpu[1].profiling = asked ? cases[i].result : DCGM_ST_OK;
            fake_dcgm.refuse_watch[0] = (struct fake_dcgm_refusal){
                DCGM_FE_GPU, asked ? 99 : UINT_MAX, 1001, cases[i].result};
            APPLY(150, 1001);
            read_now();
            assert_int_equal(status_of(1, 1001), cases[i].status);
            if (cases[i].status == FRAME_VENDOR_ERROR)
                assert_int_equal(find(1, 1001)->value.i64, cases[i].result);
            assert_int_equal(i64_of(0, 150), 1000150);
            assert_int_equal(i64_of(1, 150), 1010150);
            if (asked)
                assert_int_equal(i64_of(0, 1001), 1001001);
            assert_int_equal(dcgm_watch_profiling_code(watch), cases[i].result);
        }
}

static void test_counters_of_another_owner_are_asked_for_again_each_minute(void **state)
{
    fake_dcgm.generate = generate_sum;
    fake_dcgm_add_gpu(1, "GPU-1");
    add_range(0, 1001, 1005);
    add_range(1, 1001, 1005);
    fake_dcgm.refuse_watch[0] = (struct fake_dcgm_refusal){DCGM_FE_GPU, 1, 1001, DCGM_ST_IN_USE};
    walk();
    APPLY(150, 1001);
    read_now();
    assert_int_equal(i64_of(0, 1001), 1001001); // the other GPU is nobody's
    assert_int_equal(status_of(1, 1001), FRAME_IN_USE);
    assert_true(dcgm_watch_due_ns(watch) <= now_ns + 61 * S);
    unsigned watches = fake_dcgm.call.dcgmWatchFields.calls;
    now_ns += 30 * S;
    assert_int_equal(try_read(), DCGM_ST_OK);
    assert_int_equal(fake_dcgm.call.dcgmWatchFields.calls, watches);
    pass_a_minute();
    assert_true(fake_dcgm.call.dcgmWatchFields.calls > watches);
    assert_null(find(1, 1001)); // as before
    fake_dcgm.refuse_watch[0].result = DCGM_ST_OK;
    pass_a_minute();
    assert_int_equal(i64_of(1, 1001), 1011001);
    assert_int_equal(i64_of(0, 1001), 1001001);
    assert_int_equal(dcgm_watch_profiling_code(watch), DCGM_ST_OK);
    watches = fake_dcgm.call.dcgmWatchFields.calls;
    pass_a_minute();
    assert_int_equal(fake_dcgm.call.dcgmWatchFields.calls, watches); // nothing is left to ask
}

static void test_what_is_asked_of_gpus_in_use_is_asked_again(void **state)
{
    fake_dcgm.generate = generate_sum;
    add_range(0, 1001, 1005);
    fake_dcgm.gpu[0].profiling = DCGM_ST_IN_USE;
    walk();
    APPLY(1001);
    read_now();
    assert_int_equal(status_of(0, 1001), FRAME_IN_USE);
    fake_dcgm.gpu[0].profiling = DCGM_ST_OK;
    now_ns = clock_mono_ns() + 61 * S;
    assert_int_equal(try_read(), DCGM_ST_OK);
    read_now();
    assert_int_equal(i64_of(0, 1001), 1001001);
}

static void test_paused_profiling_says_so_and_the_rest_goes_on(void **state)
{
    fake_dcgm.generate = generate_sum;
    add_range(0, 1001, 1005);
    walk();
    APPLY(150, 1001, 1002, 1030);
    fake_dcgm_set_status(DCGM_FE_GPU, 0, 1002, DCGM_ST_PAUSED); // by somebody else
    read_now();
    assert_int_equal(status_of(0, 1002), FRAME_PAUSED);
    dcgm_watch_set_paused(watch, true);
    read_later();
    assert_int_equal(status_of(0, 1001), FRAME_PAUSED);
    assert_null(find(0, 1030)); // not supported, as told
    assert_int_equal(i64_of(0, 150), 1000150);
    dcgm_watch_set_paused(watch, false);
    read_later();
    assert_int_equal(i64_of(0, 1001), 1001001);
}

static void test_what_was_refused_while_paused_is_asked_for_after_it(void **state)
{
    fake_dcgm.generate = generate_sum;
    add_range(0, 1001, 1005);
    walk();
    dcgm_watch_set_paused(watch, true);
    fake_dcgm.refuse_watch[0] =
        (struct fake_dcgm_refusal){DCGM_FE_GPU, UINT_MAX, 1001, DCGM_ST_PAUSED};
    APPLY(1001);
    read_now();
    assert_int_equal(status_of(0, 1001), FRAME_PAUSED);
    fake_dcgm.refuse_watch[0].result = DCGM_ST_OK;
    dcgm_watch_set_paused(watch, false);
    assert_int_equal(dcgm_watch_due_ns(watch), 0);
    now_ns = clock_mono_ns() + S;
    assert_int_equal(try_read(), DCGM_ST_OK);
    assert_int_equal(i64_of(0, 1001), 1001001);
}

// --- refusals ---

static uint32_t many_fields(uint16_t *ids, uint32_t count)
{
    uint32_t found = 0;
    for (size_t i = 0; i < field_table_count && found < count; i++)
        if (field_table[i].cost == FIELD_CLASS_MEDIUM && field_table[i].level == FIELD_LEVEL_GPU &&
            field_table[i].type == FIELD_I64)
            ids[found++] = field_table[i].id;
    return found;
}

static void test_a_refused_field_costs_itself(void **state)
{
    uint16_t ids[128];
    fake_dcgm.generate = generate_sum;
    for (unsigned i = 1; i < 8; i++)
        fake_dcgm_add_gpu(i, "GPU");
    walk();
    assert_int_equal(many_fields(ids, 128), 128);
    for (size_t i = 0; i < 3; i++)
        fake_dcgm.refuse_watch[i] = (struct fake_dcgm_refusal){DCGM_FE_GPU, UINT_MAX, ids[i * 60],
                                                               DCGM_ST_FIELD_UNSUPPORTED_BY_API};
    assert_int_equal(apply_set(ids, 128, UINT64_MAX), DCGM_ST_OK);
    read_now();
    for (uint32_t gpu = 0; gpu < 8; gpu++)
        for (uint32_t i = 0; i < 128; i++) {
            if (i % 60 == 0 && i / 60 < 3)
                assert_int_equal(status_of(gpu, ids[i]), FRAME_NOT_SUPPORTED);
            else
                assert_int_equal(i64_of(gpu, ids[i]), 1000000 + 10000 * gpu + ids[i]);
        }
    assert_int_equal(calls, 1);
    assert_true(fake_dcgm.call.dcgmWatchFields.calls < 70);
    // And nothing of the search is left behind.
    renew_watch();
    assert_int_equal(fake_dcgm_alive(), 0);
}

static void test_a_refused_entity_costs_itself(void **state)
{
    fake_dcgm.generate = generate_sum;
    for (unsigned i = 1; i < 8; i++)
        fake_dcgm_add_gpu(i, "GPU");
    walk();
    fake_dcgm.refuse_watch[0] =
        (struct fake_dcgm_refusal){DCGM_FE_GPU, 5, 0, DCGM_ST_GPU_NOT_SUPPORTED};
    fake_dcgm.refuse_watch[1] = (struct fake_dcgm_refusal){DCGM_FE_GPU, 2, 0, DCGM_ST_GPU_IS_LOST};
    APPLY(100, 101, 150);
    read_now();
    for (uint32_t gpu = 0; gpu < 8; gpu++) {
        if (gpu == 5)
            assert_int_equal(status_of(gpu, 150), FRAME_NOT_SUPPORTED);
        else if (gpu == 2)
            assert_int_equal(status_of(gpu, 150), FRAME_LOST);
        else
            assert_int_equal(i64_of(gpu, 150), 1000150 + 10000 * gpu);
    }
    assert_int_equal(calls, 1);
}

static void test_an_entity_that_no_group_takes_costs_itself(void **state)
{
    fake_dcgm.generate = generate_sum;
    fake_dcgm_add_gpu(1, "GPU-1");
    walk();
    fake_dcgm.refuse_add[0] = (struct fake_dcgm_refusal){DCGM_FE_GPU, 1, 0, DCGM_ST_BADPARAM};
    APPLY(150, 203);
    read_now();
    assert_int_equal(i64_of(0, 150), 1000150);
    assert_int_equal(status_of(1, 150), FRAME_VENDOR_ERROR);
    assert_int_equal(find(1, 203)->value.i64, DCGM_ST_BADPARAM);
    fake_dcgm.refuse_add[0].id = UINT_MAX;
    renew_watch();
    APPLY(150);
    read_now();
    assert_int_equal(calls, 0);
    assert_int_equal(status_of(0, 150), FRAME_VENDOR_ERROR);
    assert_int_equal(fake_dcgm.call.dcgmGroupCreate.calls, fake_dcgm.call.dcgmGroupDestroy.calls);
}

static void test_the_search_for_what_is_refused_is_bounded(void **state)
{
    uint16_t ids[128];
    fake_dcgm.generate = generate_sum;
    for (unsigned i = 1; i < 8; i++)
        fake_dcgm_add_gpu(i, "GPU");
    walk();
    fake_dcgm.refuse_watch[0] =
        (struct fake_dcgm_refusal){DCGM_FE_GPU, UINT_MAX, 0, DCGM_ST_GENERIC_ERROR};
    (void)many_fields(ids, 128);
    assert_int_equal(apply_set(ids, 128, UINT64_MAX), DCGM_ST_OK);
    assert_in_range(fake_dcgm.call.dcgmWatchFields.calls, 2, 66);
    read_now();
    assert_int_equal(frame.as.sample.head->count, 8 * 128);
    for (uint32_t i = 0; i < frame.as.sample.head->count; i++)
        assert_int_equal(frame.as.sample.list[i].value.i64, DCGM_ST_GENERIC_ERROR);
    // And what is asked again ever later, ten minutes apart in the end.
    unsigned rounds = 0;
    for (unsigned s = 0; s < 3600; s++) {
        unsigned watches = fake_dcgm.call.dcgmWatchFields.calls;
        now_ns += S;
        assert_int_equal(try_read(), DCGM_ST_OK);
        rounds += fake_dcgm.call.dcgmWatchFields.calls > watches;
        assert_in_range(fake_dcgm.call.dcgmWatchFields.calls - watches, 0, 66);
    }
    assert_in_range(rounds, 7, 16);
    fake_dcgm.refuse_watch[0].result = DCGM_ST_OK;
    now_ns += 600 * S;
    assert_int_equal(try_read(), DCGM_ST_OK);
    assert_int_equal(i64_of(7, ids[0]), 1070000 + ids[0]);
}

// What an engine that has just started says in passing.
static void test_a_refusal_in_passing_costs_seconds(void **state)
{
    static const dcgmReturn_t results[] = {
        DCGM_ST_NOT_SUPPORTED, DCGM_ST_MODULE_NOT_LOADED,       DCGM_ST_NO_PERMISSION,
        DCGM_ST_GENERIC_ERROR, DCGM_ST_PROFILING_LIBRARY_ERROR, DCGM_ST_IN_USE};
    fake_dcgm.generate = generate_sum;
    add_range(0, 1001, 1005);
    walk();
    for (size_t i = 0; i < ARRAY_SIZE(results); i++) {
        fake_dcgm.refuse_watch[0] =
            (struct fake_dcgm_refusal){DCGM_FE_GPU, UINT_MAX, 0, results[i]};
        renew_watch();
        APPLY(150, 1001);
        read_now();
        assert_int_not_equal(status_of(0, 1001), FRAME_OK);
        fake_dcgm.refuse_watch[0].result = DCGM_ST_OK;
        now_ns += 6 * S;
        assert_int_equal(try_read(), DCGM_ST_OK);
        assert_int_equal(i64_of(0, 150), 1000150);
        assert_int_equal(i64_of(0, 1001), 1001001);
        assert_true(dcgm_watch_due_ns(watch) <= now_ns + S);
    }
}

static void test_an_engine_that_does_not_sample_at_once_is_read_early(void **state)
{
    for (unsigned refuses = 0; refuses < 2; refuses++) {
        renew_watch();
        walk();
        fake_dcgm.call.dcgmUpdateAllFields.result = refuses ? DCGM_ST_TIMEOUT : DCGM_ST_OK;
        APPLY(53, 391); // each ten minutes, each 30 s
        read_now();
        assert_int_equal(calls, 2);
        for (unsigned s = 0; s < 2; s++) {
            now_ns += S;
            assert_int_equal(try_read(), DCGM_ST_OK);
            assert_in_range(calls, refuses ? 2 : 0, refuses ? 2 : 1);
        }
        now_ns += 10 * S;
        assert_int_equal(try_read(), DCGM_ST_OK);
        now_ns += S;
        assert_int_equal(try_read(), DCGM_ST_OK);
        assert_in_range(calls, 0, 1);
    }
}

static void test_an_entity_that_no_group_takes_in_passing_is_taken_later(void **state)
{
    fake_dcgm.generate = generate_sum;
    fake_dcgm_add_gpu(1, "GPU-1");
    walk();
    fake_dcgm.refuse_add[0] = (struct fake_dcgm_refusal){DCGM_FE_GPU, 1, 0, DCGM_ST_BADPARAM};
    APPLY(150);
    read_now();
    assert_int_equal(status_of(1, 150), FRAME_VENDOR_ERROR);
    fake_dcgm.refuse_add[0].result = DCGM_ST_OK;
    now_ns += 6 * S;
    assert_int_equal(try_read(), DCGM_ST_OK);
    read_later();
    assert_int_equal(i64_of(1, 150), 1010150);
    assert_int_equal(i64_of(0, 150), 1000150);
}

static void test_fields_that_only_the_engine_does_not_know_cost_themselves(void **state)
{
    uint16_t ids[128];
    fake_dcgm.generate = generate_sum;
    walk();
    (void)many_fields(ids, 128);
    for (unsigned i = 0; i < 128; i += 40)
        fake_dcgm.strange_field[ids[i]] = true;
    assert_int_equal(apply_set(ids, 128, UINT64_MAX), DCGM_ST_OK);
    read_now();
    for (uint32_t i = 0; i < 128; i++) {
        if (i % 40 == 0)
            assert_int_equal(status_of(0, ids[i]), FRAME_NOT_SUPPORTED);
        else
            assert_int_equal(i64_of(0, ids[i]), 1000000 + ids[i]);
    }
    assert_in_range(fake_dcgm.call.dcgmFieldGroupCreate.calls, 3, 66);
    // An engine that knows none of them is not asked for ever.
    memset(fake_dcgm.strange_field, true, sizeof(fake_dcgm.strange_field));
    renew_watch();
    assert_int_equal(apply_set(ids, 128, UINT64_MAX), DCGM_ST_OK);
    assert_in_range(fake_dcgm.call.dcgmFieldGroupCreate.calls, 3, 200);
    read_now();
    for (uint32_t i = 0; i < 128; i++)
        assert_int_equal(status_of(0, ids[i]), FRAME_NOT_SUPPORTED);
    renew_watch();
    assert_int_equal(fake_dcgm_alive(), 0);
}

static void test_names_that_are_taken_are_left_to_their_owner(void **state)
{
    fake_dcgm.generate = generate_sum;
    fake_dcgm.taken_names = 2;
    walk();
    APPLY(150);
    read_now();
    assert_int_equal(i64_of(0, 150), 1000150);
}

static void test_an_engine_without_room_for_groups_is_asked_again(void **state)
{
    fake_dcgm.generate = generate_sum;
    fake_dcgm.call.dcgmGroupCreate.result = DCGM_ST_MAX_LIMIT;
    walk();
    APPLY(150);
    read_now();
    assert_int_equal(calls, 0);
    assert_int_equal(find(0, 150)->value.i64, DCGM_ST_MAX_LIMIT);
    fake_dcgm.call.dcgmGroupCreate.result = DCGM_ST_OK;
    pass_a_minute();
    assert_int_equal(i64_of(0, 150), 1000150);
    renew_watch();
    fake_dcgm.call.dcgmFieldGroupCreate.result = DCGM_ST_MAX_LIMIT;
    APPLY(150);
    read_now();
    assert_int_equal(find(0, 150)->value.i64, DCGM_ST_MAX_LIMIT);
    fake_dcgm.call.dcgmFieldGroupCreate.result = DCGM_ST_OK;
    pass_a_minute();
    assert_int_equal(i64_of(0, 150), 1000150);
}

// --- change ---

static void test_a_new_set_keeps_what_it_shares_with_the_old_one(void **state)
{
    fake_dcgm.generate = generate_sum;
    add_range(0, 1001, 1005);
    walk();
    APPLY(53, 150, 1001);
    read_now();
    unsigned unwatched = fake_dcgm.call.dcgmUnwatchFields.calls;
    APPLY(53, 150, 310, 1001); // one more, of another class
    assert_int_equal(fake_dcgm.call.dcgmUnwatchFields.calls, unwatched);
    read_now();
    assert_int_equal(i64_of(0, 310), 1000310);
    assert_int_equal(i64_of(0, 1001), 1001001);
    APPLY(53, 150, 203, 1001); // another of the same class, and one less
    read_now();
    assert_int_equal(i64_of(0, 150), 1000150);
    assert_int_equal(i64_of(0, 203), 1000203);
    assert_int_equal(i64_of(0, 1001), 1001001);
    assert_int_equal(i64_of(0, 53), 1000053);
    assert_null(find(0, 310));
    assert_false(fake_dcgm_is_watched(DCGM_FE_GPU, 0, 310));
    unsigned alive = fake_dcgm_alive();
    for (unsigned i = 0; i < 50; i++) {
        if (i % 2)
            APPLY(53, 150, 203, 1001);
        else
            APPLY(53, 150, 1001, 1002);
    }
    assert_int_equal(fake_dcgm_alive(), alive);
    renew_watch();
    assert_int_equal(fake_dcgm_alive(), 0);
}

static void test_what_overlaps_stays_watched_when_the_rest_goes(void **state)
{
    // What is global is watched once, through whichever kind: the switch's watch goes.
    fake_dcgm.generate = generate_sum;
    fake_dcgm.switches = 1;
    walk();
    APPLY(4, 150);
    assert_true(fake_dcgm_is_watched(DCGM_FE_GPU, 0, 4));
    fake_dcgm.switches = 0;
    walk();
    APPLY(4, 150);
    assert_true(fake_dcgm_is_watched(DCGM_FE_GPU, 0, 4));
    read_now();
    assert_int_equal(i64_of(0, 4), 1000004);
}

static void test_a_new_list_is_watched_and_read_by_its_places(void **state)
{
    fake_dcgm.generate = generate_sum;
    fake_dcgm_add_gpu(1, "GPU-1");
    walk();
    APPLY(150);
    read_now();
    assert_int_equal(i64_of(1, 150), 1010150);
    fake_dcgm.gpu[0].mig = true;
    fake_dcgm_add_instance(0, 0, 1, 3);
    walk();
    const struct buf *b;
    assert_int_equal(dcgm_watch_due_ns(watch), UINT64_MAX); // its places are the old list's
    assert_int_equal(dcgm_watch_read(watch, now_ns + 600 * S, &b), DCGM_ST_OK);
    assert_null(b);
    APPLY(150);
    read_now();
    assert_int_equal(place_of(DCGM_FE_GPU, 1), 2);
    assert_int_equal(i64_of(2, 150), 1010150);
}

static void test_another_period_is_the_engines_too(void **state)
{
    walk();
    APPLY(150);
    struct frame_watch w = {.watch_id = WATCH_ID,
                            .count = 1,
                            .period_ns = {2 * S, 10 * S, 30 * S, 600 * S},
                            .gpus = UINT64_MAX};
    assert_int_equal(dcgm_watch_set(watch, &w, (const uint16_t[]){150}), 0);
    assert_int_equal(dcgm_watch_apply(watch), DCGM_ST_OK);
    long long period_us = 0;
    for (unsigned i = 0; i < FAKE_DCGM_WATCHES; i++)
        if (fake_dcgm.watches[i].alive)
            period_us += fake_dcgm.watches[i].period_us;
    assert_int_equal(period_us, 2000000);
}

// --- failures ---

static void test_a_call_that_fails_half_way_gives_no_half_sample(void **state)
{
    fake_dcgm.generate = generate_sum;
    for (unsigned i = 1; i < 4; i++)
        fake_dcgm_add_gpu(i, "GPU");
    walk();
    APPLY(53, 150);
    read_now();
    fake_dcgm.fail_after = 2;
    fake_dcgm.fail_result = DCGM_ST_CONNECTION_NOT_VALID;
    now_ns += 600 * S;
    assert_int_equal(try_read(), DCGM_ST_CONNECTION_NOT_VALID);
    assert_false(has_frame);
    assert_int_equal(calls, 1); // and no other
    // Another failure costs its pair alone, and all of it.
    fake_dcgm.d.lost = false;
    fake_dcgm.fail_result = DCGM_ST_GENERIC_ERROR;
    now_ns += 600 * S;
    assert_int_equal(try_read(), DCGM_ST_GENERIC_ERROR);
    assert_false(has_frame);
    assert_int_equal(calls, 2);
    fake_dcgm.fail_result = DCGM_ST_OK;
    read_later();
    assert_int_equal(frame.as.sample.head->count, 8);
}

static void test_a_pair_that_fails_leaves_the_others(void **state)
{
    fake_dcgm.generate = generate_sum;
    fake_dcgm.switches = 1; // one entity, the GPUs are three
    fake_dcgm_add_gpu(1, "GPU-1");
    fake_dcgm_add_gpu(2, "GPU-2");
    walk();
    APPLY(150, 705);
    fake_dcgm.fail_after = 1;
    fake_dcgm.fail_result = DCGM_ST_TIMEOUT;
    read_now();
    assert_true(has_frame);
    assert_null(find(0, 150));
    assert_int_equal(i64_of(place_of(DCGM_FE_SWITCH, 0), 705), 3000705);
}

static void renew_engine(void)
{
    dcgm_watch_forget(watch);
    memset(fake_dcgm.groups, 0, sizeof(fake_dcgm.groups));
    memset(fake_dcgm.fields, 0, sizeof(fake_dcgm.fields));
    memset(fake_dcgm.watches, 0, sizeof(fake_dcgm.watches));
    memset(fake_dcgm.cells, 0, sizeof(fake_dcgm.cells));
    fake_dcgm.d.lost = false;
}

static void test_a_lost_connection_is_the_loops_to_mend(void **state)
{
    static const struct {
        size_t member;
        bool in_apply;
    } steps[] = {
        {offsetof(struct fake_dcgm, call.dcgmProfGetSupportedMetricGroups.result), true},
        {offsetof(struct fake_dcgm, call.dcgmGroupCreate.result), true},
        {offsetof(struct fake_dcgm, call.dcgmGroupAddEntity.result), true},
        {offsetof(struct fake_dcgm, call.dcgmFieldGroupCreate.result), true},
        {offsetof(struct fake_dcgm, call.dcgmWatchFields.result), true},
        {offsetof(struct fake_dcgm, call.dcgmUpdateAllFields.result), true},
        {offsetof(struct fake_dcgm, call.dcgmGetLatestValues_v2.result), false},
    };
    fake_dcgm.generate = generate_sum;
    add_range(0, 1001, 1005);
    walk();
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        dcgmReturn_t *result = (dcgmReturn_t *)(void *)((char *)&fake_dcgm + steps[i].member);
        *result = DCGM_ST_CONNECTION_NOT_VALID;
        dcgmReturn_t got = apply_set((const uint16_t[]){150, 1001}, 2, UINT64_MAX);
        assert_int_equal(got, steps[i].in_apply ? DCGM_ST_CONNECTION_NOT_VALID : DCGM_ST_OK);
        if (!steps[i].in_apply) {
            now_ns = clock_mono_ns();
            assert_int_equal(try_read(), DCGM_ST_CONNECTION_NOT_VALID);
        }
        assert_true(fake_dcgm.d.lost);
        if (steps[i].in_apply)
            assert_int_equal(dcgm_watch_due_ns(watch), UINT64_MAX);
        *result = DCGM_ST_OK;
        renew_engine();
        APPLY(150, 1001);
        read_now();
        assert_int_equal(i64_of(0, 150), 1000150);
        assert_int_equal(i64_of(0, 1001), 1001001);
        renew_engine();
    }
}

static void test_an_engine_that_watches_nothing_of_ours_any_more_is_told_of(void **state)
{
    fake_dcgm.generate = generate_sum;
    walk();
    APPLY(150, 203);
    read_now();
    memset(fake_dcgm.cells, 0, sizeof(fake_dcgm.cells)); // it was started anew
    now_ns += S;
    assert_int_equal(try_read(), DCGM_ST_NOT_WATCHED);
    assert_false(has_frame);
    dcgm_watch_forget(watch);
    APPLY(150, 203);
    read_now();
    assert_int_equal(i64_of(0, 150), 1000150);
    // Where it never was, it is no news.
    renew_watch();
    fake_dcgm.generate = NULL;
    APPLY(204);
    memset(fake_dcgm.cells, 0, sizeof(fake_dcgm.cells));
    read_now();
    assert_int_equal(status_of(0, 204), FRAME_NO_DATA);
}

static void test_groups_that_are_gone_are_told_of(void **state)
{
    fake_dcgm.generate = generate_sum;
    walk();
    APPLY(150);
    read_now();
    memset(fake_dcgm.groups, 0, sizeof(fake_dcgm.groups));
    now_ns += S;
    assert_int_equal(try_read(), DCGM_ST_NOT_CONFIGURED);
}

static void test_nothing_is_unwatched_at_an_engine_that_is_gone(void **state)
{
    walk();
    APPLY(150);
    fake_dcgm.d.lost = true;
    renew_watch();
    assert_int_equal(fake_dcgm.call.dcgmUnwatchFields.calls, 0);
    assert_int_equal(fake_dcgm.call.dcgmGroupDestroy.calls, 0);
}

static void test_without_a_set_or_devices_nothing_is_asked(void **state)
{
    const struct buf *b;
    unsigned before = fake_dcgm_calls();
    assert_int_equal(dcgm_watch_apply(watch), DCGM_ST_OK);
    assert_int_equal(dcgm_watch_due_ns(watch), UINT64_MAX);
    assert_int_equal(dcgm_watch_read(watch, now_ns, &b), DCGM_ST_OK);
    assert_null(b);
    assert_false(dcgm_watch_wants(watch, 150));
    APPLY(150, 1001); // of no devices
    read_now();
    assert_true(has_frame);
    assert_int_equal(frame.as.sample.head->count, 0);
    assert_int_equal(fake_dcgm_calls(), before);
}

// --- memory ---

static void work(void)
{
    struct dcgm_watch *w = NULL;
    const struct buf *b;
    const uint16_t ids[] = {4, 53, 150, 203, 252, 1001, 1003};
    struct frame_watch want = {.watch_id = 1,
                               .count = ARRAY_SIZE(ids),
                               .period_ns = {S, 10 * S, 30 * S, 600 * S},
                               .gpus = UINT64_MAX};
    if (dcgm_watch_new(&fake_dcgm.d, &devices, &w) < 0)
        return;
    for (unsigned i = 0; i < 3; i++) {
        want.count = ARRAY_SIZE(ids) - i;
        if (dcgm_watch_set(w, &want, ids) < 0 || dcgm_watch_apply(w) != DCGM_ST_OK)
            break;
        if (dcgm_watch_read(w, clock_mono_ns(), &b) == DCGM_ST_OK)
            assert_int_equal(b->error, 0);
    }
    dcgm_watch_free(w);
    assert_int_equal(fake_dcgm_alive(), 0);
}

static void test_without_memory_nothing_is_left_behind(void **state)
{
    fake_dcgm.generate = generate_sum;
    fake_dcgm.switches = 1;
    fake_dcgm.gpu[0].mig = true;
    fake_dcgm_add_instance(0, 0, 1, 3);
    add_range(0, 1001, 1002);
    walk();
    assert_in_range(allocation_sweep(work), 20, 100);
}

static void test_an_apply_without_memory_leaves_what_was(void **state)
{
    fake_dcgm.generate = generate_sum;
    walk();
    APPLY(150);
    const uint16_t ids[] = {150, 203};
    for (unsigned n = 2;; n++) { // the first is the copy of the set
        allocation_failed = false;
        allocation_until_failure = n;
        dcgmReturn_t result = apply_set(ids, 2, UINT64_MAX);
        allocation_until_failure = 0;
        if (!allocation_failed) {
            assert_int_equal(result, DCGM_ST_OK);
            break;
        }
        assert_int_equal(result, DCGM_ST_MEMORY);
        read_later();
        assert_int_equal(i64_of(0, 150), 1000150);
        assert_null(find(0, 203));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_profiling_fields_are_watched_where_a_group_has_them,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_instances_have_the_metrics_of_their_gpu, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_list_of_metrics_that_is_full_may_be_cut, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_numbers_of_metrics_beyond_the_struct_are_not_believed,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_why_profiling_is_not_to_be_had_is_told_on_those_gpus,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(
            test_counters_of_another_owner_are_asked_for_again_each_minute, watch_setup,
            watch_teardown),
        cmocka_unit_test_setup_teardown(test_what_is_asked_of_gpus_in_use_is_asked_again,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_paused_profiling_says_so_and_the_rest_goes_on,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_what_was_refused_while_paused_is_asked_for_after_it,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_refused_field_costs_itself, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_refused_entity_costs_itself, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_an_entity_that_no_group_takes_costs_itself,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_an_engine_that_does_not_sample_at_once_is_read_early,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_refusal_in_passing_costs_seconds, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(
            test_an_entity_that_no_group_takes_in_passing_is_taken_later, watch_setup,
            watch_teardown),
        cmocka_unit_test_setup_teardown(test_the_search_for_what_is_refused_is_bounded, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(
            test_fields_that_only_the_engine_does_not_know_cost_themselves, watch_setup,
            watch_teardown),
        cmocka_unit_test_setup_teardown(test_names_that_are_taken_are_left_to_their_owner,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_an_engine_without_room_for_groups_is_asked_again,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_new_set_keeps_what_it_shares_with_the_old_one,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_what_overlaps_stays_watched_when_the_rest_goes,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_new_list_is_watched_and_read_by_its_places,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_another_period_is_the_engines_too, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_call_that_fails_half_way_gives_no_half_sample,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_pair_that_fails_leaves_the_others, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_lost_connection_is_the_loops_to_mend, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(
            test_an_engine_that_watches_nothing_of_ours_any_more_is_told_of, watch_setup,
            watch_teardown),
        cmocka_unit_test_setup_teardown(test_groups_that_are_gone_are_told_of, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_nothing_is_unwatched_at_an_engine_that_is_gone,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_without_a_set_or_devices_nothing_is_asked, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_without_memory_nothing_is_left_behind, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_an_apply_without_memory_leaves_what_was, watch_setup,
                                        watch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
