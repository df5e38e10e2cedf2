// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fake_nvml.h"
#include "source/nvml_survey.h"

static struct nvml_devices d;
static bool changed;

static int setup(void **state)
{
    fake_reset();
    d = (struct nvml_devices){0};
    return 0;
}

static int teardown(void **state)
{
    nvml_devices_deinit(&fake.n, &d);
    assert_int_equal(fake.samples_alive, 0);
    return 0;
}

static void enumerate(void)
{
    assert_int_equal(nvml_devices_enumerate(&fake.n, &d, &changed), NVML_SUCCESS);
}

static void walk(void)
{
    assert_int_equal(nvml_devices_walk(&fake.n, &d, &changed), NVML_SUCCESS);
}

static const struct frame_entity *record(uint32_t i)
{
    assert_true(i < d.count);
    return &d.list[i].record;
}

static void gpus_are_listed_with_their_identity(void **state)
{
    fake.gpus = 2;
    fake.gpu[1].gpm = true;
    enumerate();
    assert_true(changed);
    assert_int_equal(d.count, 2);
    assert_int_equal(d.gpus, 2);
    const struct frame_entity *e = record(1);
    assert_int_equal(e->kind, FRAME_ENTITY_GPU);
    assert_int_equal(e->state, FRAME_ENTITY_UP);
    assert_int_equal(e->index, 1);
    assert_int_equal(e->parent, 1);
    assert_int_equal(e->minor, 11);
    assert_int_equal(e->gpu_instance_id, UINT32_MAX);
    assert_int_equal(e->instance_entity_id, UINT32_MAX);
    assert_int_equal(e->slices, 0);
    assert_int_equal(e->total_slices, 0);
    assert_int_equal(e->gpm, 1);
    assert_string_equal(e->uuid, "GPU-1");
    assert_string_equal(e->name, "NVIDIA Fake");
    assert_string_equal(e->bus_id, "00000000:11:00.0");
    assert_int_equal(record(0)->gpm, 0);
}

static void a_second_look_changes_nothing(void **state)
{
    fake.gpus = 2;
    fake_add_slot(0, 0, 7, 1, 9728, "MIG-a", "NVIDIA Fake MIG 1g.10gb");
    enumerate();
    walk();
    assert_false(changed);
    enumerate();
    assert_false(changed);
}

static void the_bus_id_is_made_from_numbers_where_the_function_is_old(void **state)
{
    fake.n.fn.generation.nvmlDeviceGetPciInfo = 3;
    enumerate();
    assert_string_equal(record(0)->bus_id, "00000000:10:00.0");
    char out[32];
    nvml_format_bus_id(out, 10, 255, 31);
    assert_string_equal(out, "0000000A:FF:1F.0");
}

static void instances_stand_behind_their_gpu(void **state)
{
    fake.gpus = 2;
    fake.gpu[0].gpm = true;
    fake_add_slot(0, 0, 1, 3, 40192, "MIG-a", "NVIDIA Fake MIG 1c.3g.40gb");
    fake_add_slot(0, 1, 1, 3, 40192, "MIG-b",
                  "NVIDIA Fake MIG 2c.3g.40gb");                            // the same GPU instance
    fake_add_slot(0, 4, 9, 1, 9728, "MIG-c", "NVIDIA Fake MIG 1g.10gb+me"); // slots may be sparse
    fake.gpu[0].slots[4].ci = 3;
    enumerate();
    assert_int_equal(d.count, 4);
    assert_int_equal(d.gpus, 2);
    assert_int_equal(record(0)->mig_enabled, 1);
    assert_int_equal(record(0)->total_slices, 7);
    const struct frame_entity *e = record(1);
    assert_int_equal(e->kind, FRAME_ENTITY_GPU_I);
    assert_int_equal(e->index, 0);
    assert_int_equal(e->parent, 0);
    assert_int_equal(e->gpu_instance_id, 1);
    assert_int_equal(e->instance_entity_id, 0);
    assert_int_equal(e->slices, 3);
    assert_int_equal(e->total_slices, 7);
    assert_int_equal(e->gpm, 1);
    assert_string_equal(e->uuid, "MIG-a");
    assert_string_equal(e->legacy_uuid, "MIG-GPU-0/1/0");
    assert_string_equal(e->profile, "3g.40gb");
    assert_string_equal(e->name, "NVIDIA Fake");
    assert_string_equal(e->bus_id, "00000000:10:00.0");
    e = record(2);
    assert_int_equal(e->gpu_instance_id, 9);
    assert_int_equal(e->instance_entity_id, 1);
    assert_string_equal(e->legacy_uuid, "MIG-GPU-0/9/3");
    assert_string_equal(e->profile, "1g.10gb+me");
    assert_int_equal(record(3)->index, 1);
    assert_int_equal(record(3)->parent, 3);
}

static void where_an_instance_stands_is_asked_once(void **state)
{
    fake_add_slot(0, 0, 1, 3, 40192, "MIG-a", "NVIDIA Fake MIG 3g.40gb");
    fake_add_slot(0, 2, 9, 1, 9728, "MIG-b", "NVIDIA Fake MIG 1g.10gb");
    fake.gpu[0].slots[0].profile_id = 9;
    fake.gpu[0].slots[0].placement = 4;
    fake.gpu[0].slots[2].profile_id = 19;
    enumerate();
    assert_int_equal(record(0)->profile_id, UINT32_MAX);
    assert_int_equal(record(0)->placement, UINT32_MAX);
    assert_int_equal(record(1)->profile_id, 9);
    assert_int_equal(record(1)->placement, 4);
    assert_int_equal(record(2)->profile_id, 19);
    assert_int_equal(record(2)->placement, 0);
    assert_int_equal(fake.instance_calls, 2);
    walk();
    enumerate();
    assert_false(changed);
    assert_int_equal(record(1)->placement, 4);
    assert_int_equal(fake.instance_calls, 2);
    fake_add_slot(0, 3, 9, 2, 19456, "MIG-b", "NVIDIA Fake MIG 2g.20gb"); // another of that id
    fake.gpu[0].slots[2].exists = false;
    fake.gpu[0].slots[3].profile_id = 14;
    walk();
    assert_int_equal(record(2)->profile_id, 14);
    assert_int_equal(fake.instance_calls, 3);
}

static void who_has_no_right_to_it_does_not_learn_where_an_instance_stands(void **state)
{
    fake_add_slot(0, 0, 1, 3, 40192, "MIG-a", "NVIDIA Fake MIG 3g.40gb");
    fake.instance_result = NVML_ERROR_NO_PERMISSION;
    enumerate();
    walk();
    walk();
    assert_int_equal(record(1)->state, FRAME_ENTITY_UP);
    assert_int_equal(record(1)->profile_id, UINT32_MAX);
    assert_int_equal(record(1)->placement, UINT32_MAX);
    assert_int_equal(fake.instance_calls, 1);
}

static void profiles_come_from_the_name_or_the_rule(void **state)
{
    char out[32];
    nvml_mig_profile(out, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 0, 0);
    assert_string_equal(out, "1g.10gb");
    nvml_mig_profile(out, "NVIDIA A100-SXM4-40GB MIG 1c.4g.20gb+me", 4, 19968);
    assert_string_equal(out, "4g.20gb+me");
    nvml_mig_profile(out, "NVIDIA A100", 2, 9856);
    assert_string_equal(out, "2g.10gb");
    nvml_mig_profile(out, "NVIDIA A100", 1, 4864);
    assert_string_equal(out, "1g.5gb");
    nvml_mig_profile(out, "NVIDIA A100", 0, 0);
    assert_string_equal(out, "");
    nvml_mig_profile(out, "", 0, 4864);
    assert_string_equal(out, "");
}

static void slices_come_from_the_profile_where_attributes_are_old(void **state)
{
    fake_add_slot(0, 0, 1, 3, 40192, "MIG-a", "NVIDIA Fake MIG 3g.40gb");
    fake.n.fn.generation.nvmlDeviceGetAttributes = 2;
    enumerate();
    assert_int_equal(record(1)->slices, 3);
}

static void a_new_mig_layout_is_seen_by_the_walk(void **state)
{
    fake_add_slot(0, 0, 7, 1, 9728, "MIG-a", "NVIDIA Fake MIG 1g.10gb");
    fake_add_slot(0, 1, 8, 1, 9728, "MIG-b", "NVIDIA Fake MIG 1g.10gb");
    enumerate();
    fake.gpu[0].slots[0].exists = false;
    walk();
    assert_true(changed);
    assert_int_equal(d.count, 2);
    assert_string_equal(record(1)->uuid, "MIG-b");
    fake_add_slot(0, 3, 7, 2, 19968, "MIG-d", "NVIDIA Fake MIG 2g.20gb");
    walk();
    assert_true(changed);
    assert_int_equal(d.count, 3);
    fake.gpu[0].mig_on = false;
    walk();
    assert_true(changed);
    assert_int_equal(d.count, 1);
    assert_int_equal(record(0)->mig_enabled, 0);
}

static void begin_gpm(uint32_t entity)
{
    struct nvml_gpm_value v[] = {{.metric = 1}};
    struct nvml_gpm_target t = {.device = fake_device(0),
                                .mig_gi = d.list[entity].record.gpu_instance_id};
    assert_int_equal(nvml_gpm_read(&fake.n, &d.list[entity].gpm, &t, NS_PER_S, v, 1),
                     NVML_ERROR_NO_DATA);
}

static void what_stays_keeps_its_samples_and_a_recreated_instance_does_not(void **state)
{
    fake.gpu[0].gpm = true;
    fake_add_slot(0, 0, 7, 1, 9728, "MIG-a", "NVIDIA Fake MIG 1g.10gb");
    fake_add_slot(0, 1, 8, 1, 9728, "MIG-b", "NVIDIA Fake MIG 1g.10gb");
    enumerate();
    begin_gpm(1);
    begin_gpm(2);
    nvmlGpmSample_t kept = d.list[2].gpm.base;
    // GPU instance 7 comes back with the same id and another size.
    fake_add_slot(0, 0, 7, 2, 19968, "MIG-a", "NVIDIA Fake MIG 2g.20gb");
    walk();
    assert_true(changed);
    assert_int_equal(d.list[1].gpm.base_ns, 0);
    assert_ptr_equal(d.list[2].gpm.base, kept);
    assert_int_equal(fake.samples_alive, 1);
}

static void a_lost_gpu_stays_listed_with_its_identity(void **state)
{
    fake.gpus = 2;
    fake_add_slot(0, 0, 7, 1, 9728, "MIG-a", "NVIDIA Fake MIG 1g.10gb");
    enumerate();
    fake.gpu[0].result = NVML_ERROR_GPU_IS_LOST;
    walk();
    assert_true(changed);
    assert_int_equal(d.count, 3);
    assert_int_equal(record(0)->state, FRAME_ENTITY_LOST);
    assert_string_equal(record(0)->uuid, "GPU-0");
    assert_string_equal(record(0)->bus_id, "00000000:10:00.0");
    assert_int_equal(record(1)->state, FRAME_ENTITY_LOST);
    assert_string_equal(record(1)->uuid, "MIG-a");
    assert_int_equal(record(2)->state, FRAME_ENTITY_UP);
    assert_true(nvml_devices_any_lost(&d));
    assert_false(nvml_devices_all_lost(&d));
    walk();
    assert_false(changed);

    fake.gpu[0].result = NVML_SUCCESS;
    walk();
    assert_true(changed);
    assert_int_equal(record(0)->state, FRAME_ENTITY_UP);
    assert_int_equal(record(1)->state, FRAME_ENTITY_UP);
}

static void a_gpu_lost_before_a_reopening_keeps_its_identity(void **state)
{
    fake.gpus = 2;
    enumerate();
    nvml_devices_release(&fake.n, &d);
    assert_true(nvml_devices_all_lost(&d));
    fake.gpu[0].result = NVML_ERROR_GPU_IS_LOST; // no handle at all now
    enumerate();
    assert_int_equal(record(0)->state, FRAME_ENTITY_LOST);
    assert_string_equal(record(0)->uuid, "GPU-0");
    assert_int_equal(record(1)->state, FRAME_ENTITY_UP);
    fake.gpu[0].result = NVML_SUCCESS;
    walk();
    assert_true(changed);
    assert_int_equal(record(0)->state, FRAME_ENTITY_UP);
    assert_int_equal(record(0)->minor, 10);
}

static void a_gpu_out_of_reach_keeps_its_place(void **state)
{
    fake.gpus = 2;
    fake.gpu[0].result = NVML_ERROR_NO_PERMISSION;
    enumerate();
    assert_int_equal(d.count, 2);
    assert_int_equal(record(0)->state, FRAME_ENTITY_NO_PERMISSION);
    assert_string_equal(record(0)->uuid, "");
    assert_int_equal(record(1)->index, 1);
    fake.n.calls = 0;
    walk();
    assert_false(changed);
    assert_int_equal(fake.n.calls, 1); // the other one's UUID alone: it has no MIG
}

static void a_skipped_gpu_is_never_called(void **state)
{
    fake.gpus = 2;
    d.skipped = 1;
    enumerate();
    assert_int_equal(record(0)->state, FRAME_ENTITY_SKIPPED);
    assert_int_equal(record(1)->state, FRAME_ENTITY_UP);
    fake.gpu[0].result = NVML_ERROR_GPU_IS_LOST;
    walk();
    assert_int_equal(record(0)->state, FRAME_ENTITY_SKIPPED);
    assert_false(nvml_devices_all_lost(&d));
}

static void a_reset_that_is_required_ends_when_no_call_says_so_any_more(void **state)
{
    fake.gpus = 1;
    enumerate();
    assert_true(nvml_devices_mark(&d, 0, FRAME_ENTITY_RESET_REQUIRED));
    assert_false(nvml_devices_mark(&d, 0, FRAME_ENTITY_RESET_REQUIRED));
    assert_int_equal(record(0)->state, FRAME_ENTITY_RESET_REQUIRED);
    walk();
    assert_int_equal(record(0)->state, FRAME_ENTITY_RESET_REQUIRED);
    walk();
    assert_true(changed);
    assert_int_equal(record(0)->state, FRAME_ENTITY_UP);
}

static void marking_reaches_the_whole_board(void **state)
{
    fake.gpus = 2;
    fake_add_slot(0, 0, 7, 1, 9728, "MIG-a", "NVIDIA Fake MIG 1g.10gb");
    fake_add_slot(0, 1, 8, 1, 9728, "MIG-b", "NVIDIA Fake MIG 1g.10gb");
    enumerate();
    assert_true(nvml_devices_mark(&d, 2, FRAME_ENTITY_LOST)); // an instance's call said so
    assert_int_equal(record(0)->state, FRAME_ENTITY_LOST);
    assert_int_equal(record(1)->state, FRAME_ENTITY_LOST);
    assert_int_equal(record(2)->state, FRAME_ENTITY_LOST);
    assert_int_equal(record(3)->state, FRAME_ENTITY_UP);
}

static void another_gpu_in_the_same_place_is_surveyed(void **state)
{
    enumerate();
    fake.gpu[0].uuid = "GPU-new";
    fake.gpu[0].name = "NVIDIA Other";
    walk();
    assert_true(changed);
    assert_string_equal(record(0)->uuid, "GPU-new");
    assert_string_equal(record(0)->name, "NVIDIA Other");
}

static void a_count_that_fails_leaves_the_list(void **state)
{
    enumerate();
    fake.n.fn.nvmlDeviceGetCount = NULL;
    assert_int_equal(nvml_devices_enumerate(&fake.n, &d, &changed), NVML_ERROR_FUNCTION_NOT_FOUND);
    assert_int_equal(d.count, 1);
}

static void an_old_driver_without_mig_has_gpus_alone(void **state)
{
    fake_add_slot(0, 0, 7, 1, 9728, "MIG-a", "NVIDIA Fake MIG 1g.10gb");
    fake.n.fn.nvmlDeviceGetMigMode = NULL;
    fake.n.fn.nvmlGpmQueryDeviceSupport = NULL;
    enumerate();
    assert_int_equal(d.count, 1);
    assert_int_equal(record(0)->gpm, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gpus_are_listed_with_their_identity, setup, teardown),
        cmocka_unit_test_setup_teardown(a_second_look_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(the_bus_id_is_made_from_numbers_where_the_function_is_old,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(instances_stand_behind_their_gpu, setup, teardown),
        cmocka_unit_test_setup_teardown(where_an_instance_stands_is_asked_once, setup, teardown),
        cmocka_unit_test_setup_teardown(
            who_has_no_right_to_it_does_not_learn_where_an_instance_stands, setup, teardown),
        cmocka_unit_test_setup_teardown(profiles_come_from_the_name_or_the_rule, setup, teardown),
        cmocka_unit_test_setup_teardown(slices_come_from_the_profile_where_attributes_are_old,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_new_mig_layout_is_seen_by_the_walk, setup, teardown),
        cmocka_unit_test_setup_teardown(
            what_stays_keeps_its_samples_and_a_recreated_instance_does_not, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_gpu_stays_listed_with_its_identity, setup, teardown),
        cmocka_unit_test_setup_teardown(a_gpu_lost_before_a_reopening_keeps_its_identity, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_gpu_out_of_reach_keeps_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(a_skipped_gpu_is_never_called, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reset_that_is_required_ends_when_no_call_says_so_any_more,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(marking_reaches_the_whole_board, setup, teardown),
        cmocka_unit_test_setup_teardown(another_gpu_in_the_same_place_is_surveyed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_count_that_fails_leaves_the_list, setup, teardown),
        cmocka_unit_test_setup_teardown(an_old_driver_without_mig_has_gpus_alone, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
