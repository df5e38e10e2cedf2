// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "fake_dcgm.h"
#include "source/dcgm_survey.h"

#define F fake_dcgm
#define NONE UINT32_MAX

static struct dcgm_devices v;
static bool changed;

static int setup(void **state)
{
    fake_dcgm_reset(4);
    v = (struct dcgm_devices){0};
    return 0;
}

static int teardown(void **state)
{
    dcgm_devices_deinit(&v);
    return 0;
}

// What the exporter's reader says of the list.
static const char *reader_complaint(void)
{
    static const char *what;
    struct buf out = BUF_INIT(LIMIT_FRAME_BYTES + sizeof(struct frame_header));
    struct frame_reader reader;
    struct frame frame;
    frame_reader_init(&reader);
    dcgm_devices_write(&v, &out);
    int result = 0;
    what = NULL;
    for (size_t at = 0; !result && at < out.len;) {
        char *space;
        size_t bytes;
        assert_int_equal(frame_reader_space(&reader, &space, &bytes), 0);
        bytes = bytes < out.len - at ? bytes : out.len - at;
        memcpy(space, out.data + at, bytes);
        frame_reader_commit(&reader, bytes);
        at += bytes;
        result = frame_reader_next(&reader, &frame, &what);
    }
    if (result == 1) {
        assert_int_equal(frame.type, FRAME_ENTITIES);
        assert_int_equal(frame.as.entities.head->count, v.count);
        assert_int_equal(frame.as.entities.head->generation, v.generation);
    }
    frame_reader_deinit(&reader);
    buf_deinit(&out);
    return result == 1 ? NULL : what ? what : "no frame";
}

static void walk(void)
{
    assert_int_equal(dcgm_devices_walk(&F.d, &v, &changed), DCGM_ST_OK);
    assert_null(reader_complaint());
}

static const struct frame_entity *record(uint32_t i)
{
    assert_true(i < v.count);
    return &v.list[i].record;
}

struct expected {
    uint8_t group;
    uint32_t id, parent, gpu;
};

static void assert_list(const struct expected *expected, uint32_t count)
{
    assert_int_equal(v.count, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(v.list[i].group, expected[i].group);
        assert_int_equal(v.list[i].id, expected[i].id);
        assert_int_equal(record(i)->parent, expected[i].parent);
        assert_int_equal(v.list[i].gpu_mask_bit, expected[i].gpu);
        assert_int_equal(dcgm_devices_find(&v, expected[i].group, expected[i].id), i);
    }
}

#define ASSERT_LIST(...)                                                                           \
    do {                                                                                           \
        const struct expected expected_[] = {__VA_ARGS__};                                         \
        assert_list(expected_, ARRAY_SIZE(expected_));                                             \
    } while (0)

static void gpus_are_listed_with_their_identity(void **state)
{
    fake_dcgm_add_gpu(1, "GPU-1");
    F.gpu[1].bus_id = "0001:ab:00.0";
    walk();
    assert_true(changed);
    assert_int_equal(v.generation, 1);
    ASSERT_LIST({DCGM_FE_GPU, 0, 0, 0}, {DCGM_FE_GPU, 1, 1, 1});
    const struct frame_entity *e = record(1);
    assert_int_equal(e->kind, FRAME_ENTITY_GPU);
    assert_int_equal(e->state, FRAME_ENTITY_UP);
    assert_int_equal(e->index, 1);
    assert_int_equal(e->minor, 11);
    assert_int_equal(e->mig_enabled, 0);
    assert_int_equal(e->total_slices, 0);
    assert_string_equal(e->uuid, "GPU-1");
    assert_string_equal(e->name, "NVIDIA Fake");
    assert_string_equal(e->bus_id, "00000001:AB:00.0");
    assert_string_equal(v.driver_version, "580.95.05");
}

static void a_second_walk_changes_nothing_and_costs_few_calls(void **state)
{
    static const unsigned majors[] = {4, 3};
    // Of DCGM 4: list, hierarchy, status of the GPU, switches, links, CPUs. Of 3 attributes for the
    // status and the first form of the CPUs.
    for (size_t i = 0; i < ARRAY_SIZE(majors); i++) {
        fake_dcgm_reset(majors[i]);
        F.gpu_link[0][3] = DcgmNvLinkLinkStateUp;
        fake_dcgm_add_instance(0, 0, 1, 3);
        fake_dcgm_add_compute(0, 0, 1, 0);
        walk();
        assert_int_equal(v.count, 4);
        for (unsigned k = 0; k < 30; k++) {
            unsigned before = fake_dcgm_calls();
            walk();
            assert_false(changed);
            assert_int_equal(v.generation, 1);
            // Names, profiles and UUIDs each twelfth time.
            bool all = (k + 1) % 12 == 0;
            assert_int_equal(fake_dcgm_calls() - before, all ? majors[i] == 4 ? 10 : 9 : 6);
        }
        dcgm_devices_deinit(&v);
    }
}

static void a_new_engine_is_asked_for_everything(void **state)
{
    walk();
    F.gpu[0].uuid = "GPU-other";
    walk();
    assert_string_equal(record(0)->uuid, "GPU-0");
    dcgm_devices_forget(&v);
    walk();
    assert_true(changed);
    assert_string_equal(record(0)->uuid, "GPU-other");
}

static void bus_ids_are_written_as_nvml_does(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"00000000:1B:00.0", "00000000:1B:00.0"},
        {"0000:1b:00.0", "00000000:1B:00.0"},
        {"a:1b:00.0", "0000000A:1B:00.0"},
        {"000000000a:1b:00.0", "0000000A:1B:00.0"},
        {"123456789:1b:00.0", "123456789:1B:00.0"},
        {"", ""},
        {"nothing", "NOTHING"},
        {":1b", ":1B"},
        {"0000:1b:00.0 and a long text behind", "0000:1B:00.0 AND A LONG TEXT BE"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char out[32];
        dcgm_bus_id(out, sv_from(cases[i].in));
        assert_string_equal(out, cases[i].out);
    }
}

static void states_come_from_the_status_and_else_from_the_answer(void **state)
{
    static const struct {
        unsigned major;
        int status;
        dcgmReturn_t result;
        enum frame_entity_state state;
    } cases[] = {
        {4, DcgmEntityStatusOk, DCGM_ST_OK, FRAME_ENTITY_UP},
        {4, DcgmEntityStatusFake, DCGM_ST_OK, FRAME_ENTITY_UP},
        {4, DcgmEntityStatusUnsupported, DCGM_ST_OK, FRAME_ENTITY_UP},
        {4, DcgmEntityStatusUnknown, DCGM_ST_OK, FRAME_ENTITY_UP},
        {4, DcgmEntityStatusLost, DCGM_ST_OK, FRAME_ENTITY_LOST},
        {4, DcgmEntityStatusLost, DCGM_ST_GPU_IS_LOST, FRAME_ENTITY_LOST},
        {4, DcgmEntityStatusInaccessible, DCGM_ST_OK, FRAME_ENTITY_NO_PERMISSION},
        {4, DcgmEntityStatusDisabled, DCGM_ST_OK, FRAME_ENTITY_SKIPPED},
        {4, DcgmEntityStatusDetached, DCGM_ST_OK, FRAME_ENTITY_SKIPPED},
        {4, DcgmEntityStatusOk, DCGM_ST_RESET_REQUIRED, FRAME_ENTITY_RESET_REQUIRED},
        {4, DcgmEntityStatusOk, DCGM_ST_GENERIC_ERROR, FRAME_ENTITY_FAILED},
        {3, 0, DCGM_ST_OK, FRAME_ENTITY_UP},
        {3, 0, DCGM_ST_GPU_IS_LOST, FRAME_ENTITY_LOST},
        {3, 0, DCGM_ST_RESET_REQUIRED, FRAME_ENTITY_RESET_REQUIRED},
        {3, 0, DCGM_ST_NO_PERMISSION, FRAME_ENTITY_NO_PERMISSION},
        {3, 0, DCGM_ST_TIMEOUT, FRAME_ENTITY_FAILED},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fake_dcgm_reset(cases[i].major);
        F.gpu[0].status = cases[i].status;
        F.gpu[0].result = cases[i].result;
        walk();
        assert_int_equal(record(0)->state, cases[i].state);
        dcgm_devices_deinit(&v);
    }
}

static void a_lost_gpu_keeps_its_identity_and_its_instances(void **state)
{
    fake_dcgm_add_instance(0, 0, 1, 3);
    fake_dcgm_add_compute(0, 0, 1, 0);
    walk();
    F.gpu[0].status = DcgmEntityStatusLost;
    F.gpu[0].uuid = F.gpu[0].name = F.gpu[0].bus_id = "<<<NULL>>>";
    F.hierarchy.count = 0;
    walk();
    assert_true(changed);
    ASSERT_LIST({DCGM_FE_GPU, 0, 0, 0}, {DCGM_FE_GPU_I, 0, 0, 0}, {DCGM_FE_GPU_CI, 0, 1, 0});
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(record(i)->state, FRAME_ENTITY_LOST);
    assert_string_equal(record(0)->uuid, "GPU-0");
    assert_string_equal(record(0)->name, "NVIDIA Fake");
    assert_string_equal(record(0)->bus_id, "00000000:1B:00.0");
    walk();
    assert_false(changed);
    F.gpu[0].status = DcgmEntityStatusOk;
    walk();
    assert_true(changed);
    assert_int_equal(v.count, 1);
    assert_int_equal(record(0)->state, FRAME_ENTITY_UP);
}

static void one_late_answer_about_a_known_gpu_does_not_fail_it(void **state)
{
    walk();
    F.gpu[0].result = DCGM_ST_TIMEOUT;
    dcgm_devices_forget(&v);
    walk();
    assert_false(changed);
    assert_int_equal(record(0)->state, FRAME_ENTITY_UP);
}

static void skipped_gpus_are_listed_and_not_touched(void **state)
{
    fake_dcgm_add_gpu(1, "GPU-1");
    fake_dcgm_add_instance(0, 0, 1, 3);
    F.gpu_link[0][0] = F.gpu_link[1][0] = DcgmNvLinkLinkStateUp;
    v.skipped = 1;
    walk();
    ASSERT_LIST({DCGM_FE_GPU, 0, 0, 0}, {DCGM_FE_GPU, 1, 1, 1},
                {DCGM_FE_LINK, dcgm_link_pack(4, DCGM_FE_GPU, 0, 1), 1, 1});
    assert_int_equal(record(0)->state, FRAME_ENTITY_SKIPPED);
    assert_string_equal(record(0)->uuid, "");
    assert_int_equal(F.call.dcgmGetGpuStatus.calls, 1);
    assert_int_equal(F.call.dcgmGetDeviceAttributes.calls, 1);
}

static void gpus_are_in_the_order_of_their_ids_each_once(void **state)
{
    F.gpus = 0;
    fake_dcgm_add_gpu(7, "GPU-7");
    fake_dcgm_add_gpu(2, "GPU-2");
    fake_dcgm_add_gpu(7, "GPU-7");
    fake_dcgm_add_gpu(64, "GPU-64"); // more than the exporter knows
    walk();
    ASSERT_LIST({DCGM_FE_GPU, 2, 0, 2}, {DCGM_FE_GPU, 7, 1, 7});
}

static void nothing_at_all_is_a_list_too(void **state)
{
    F.gpus = 0;
    walk();
    assert_true(changed);
    assert_int_equal(v.count, 0);
    assert_int_equal(dcgm_devices_find(&v, DCGM_FE_GPU, 0), NONE);
    walk();
    assert_false(changed);
    F.call.dcgmGetAllDevices.result = DCGM_ST_NVML_NOT_LOADED; // a node with switches alone
    F.switches = 1;
    walk();
    ASSERT_LIST({DCGM_FE_SWITCH, 0, 0, NONE});
}

static void instances_stand_under_their_gpu_in_whatever_order_they_are_told(void **state)
{
    static const bool backwards[] = {false, true};
    for (size_t k = 0; k < ARRAY_SIZE(backwards); k++) {
        fake_dcgm_reset(4);
        fake_dcgm_add_gpu(1, "GPU-1");
        fake_dcgm_add_instance(0, 0, 5, 3);
        fake_dcgm_add_compute(0, 0, 5, 0);
        fake_dcgm_add_compute(0, 2, 5, 1); // numbers may have gaps
        fake_dcgm_add_instance(1, 14, 9, 1);
        fake_dcgm_add_compute(14, 15, 9, 0);
        fake_dcgm_set_text(DCGM_FE_GPU_I, 0, 50, "3g.40gb");
        fake_dcgm_set_text(DCGM_FE_GPU_I, 14, 50, "1g.10gb+me");
        fake_dcgm_set_text(DCGM_FE_GPU_CI, 0, 54, "MIG-a");
        fake_dcgm_set_text(DCGM_FE_GPU_CI, 2, 54, "MIG-b");
        fake_dcgm_set_i64(DCGM_FE_GPU, 0, 69, 7);
        for (unsigned i = 0; backwards[k] && i < F.hierarchy.count / 2; i++) {
            dcgmMigHierarchyInfo_v2 *a = &F.hierarchy.entityList[i];
            dcgmMigHierarchyInfo_v2 *b = &F.hierarchy.entityList[F.hierarchy.count - 1 - i];
            dcgmMigHierarchyInfo_v2 one = *a;
            *a = *b;
            *b = one;
        }
        walk();
        ASSERT_LIST({DCGM_FE_GPU, 0, 0, 0}, {DCGM_FE_GPU_I, 0, 0, 0},
                    {DCGM_FE_GPU_CI, backwards[k] ? 2 : 0, 1, 0},
                    {DCGM_FE_GPU_CI, backwards[k] ? 0 : 2, 1, 0}, {DCGM_FE_GPU, 1, 4, 1},
                    {DCGM_FE_GPU_I, 14, 4, 1}, {DCGM_FE_GPU_CI, 15, 5, 1});
        const struct frame_entity *e = record(1);
        assert_int_equal(e->kind, FRAME_ENTITY_GPU_I);
        assert_int_equal(e->index, 0);
        assert_int_equal(e->minor, 10);
        assert_int_equal(e->gpu_instance_id, 5);
        assert_int_equal(e->instance_entity_id, 0);
        assert_int_equal(e->profile_id, NONE);
        assert_int_equal(e->placement, NONE);
        assert_int_equal(e->slices, 3);
        assert_int_equal(e->total_slices, 7);
        assert_string_equal(e->profile, "3g.40gb");
        assert_string_equal(e->name, "NVIDIA Fake");
        assert_string_equal(e->uuid, backwards[k] ? "MIG-b" : "MIG-a");
        assert_string_equal(e->legacy_uuid, backwards[k] ? "MIG-GPU-0/5/1" : "MIG-GPU-0/5/0");
        e = record(backwards[k] ? 2 : 3);
        assert_int_equal(e->kind, FRAME_ENTITY_GPU_CI);
        assert_int_equal(e->id, 1);
        assert_int_equal(e->gpu_instance_id, 5);
        assert_int_equal(e->instance_entity_id, NONE);
        assert_string_equal(e->uuid, ""); // an instance alone is found by UUID
        assert_int_equal(record(0)->mig_enabled, 1);
        assert_string_equal(record(5)->profile, "1g.10gb+me");
        assert_string_equal(record(5)->uuid, "");
        assert_string_equal(record(5)->legacy_uuid, "MIG-GPU-1/9/0");
        dcgm_devices_deinit(&v);
    }
}

static void profiles_come_from_the_name_or_the_rule(void **state)
{
    static const struct {
        const char *name;
        uint32_t slices;
        uint64_t memory_mib;
        const char *profile;
    } cases[] = {
        {"1g.10gb", 1, 9728, "1g.10gb"},
        {"1c.3g.20gb", 3, 0, "3g.20gb"},
        {"NVIDIA A100-SXM4-40GB MIG 1c.4g.20gb+me", 4, 19968, "4g.20gb+me"},
        {"NVIDIA A100", 2, 9856, "2g.10gb"},
        {"", 1, 4864, "1g.5gb"},
        {"", 0, 0, ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char out[32];
        dcgm_mig_profile(out, cases[i].name, cases[i].slices, cases[i].memory_mib);
        assert_string_equal(out, cases[i].profile);
    }
}

static void the_profile_of_an_instance_without_a_name_is_made_of_its_size(void **state)
{
    fake_dcgm_add_instance(0, 3, 5, 2);
    fake_dcgm_set_text(DCGM_FE_GPU_I, 3, 50, "<<<NOT_SUPPORTED>>>");
    fake_dcgm_set_i64(DCGM_FE_GPU_I, 3, 250, 9856);
    walk();
    assert_string_equal(record(1)->profile, "2g.10gb");
    assert_string_equal(record(1)->legacy_uuid, ""); // no compute instance, nothing to run on
}

static void a_hierarchy_that_makes_no_sense_is_no_list_of_ours(void **state)
{
    fake_dcgm_add_instance(0, 3, 5, 2);
    fake_dcgm_add_instance(0, 3, 6, 2);   // the same entity again
    fake_dcgm_add_instance(0, 4, 5, 2);   // the same instance again
    fake_dcgm_add_instance(9, 5, 7, 2);   // of a GPU that is not there
    fake_dcgm_add_compute(3, 1, 5, NONE); // no number
    fake_dcgm_add_compute(3, 1, 5, 0);
    fake_dcgm_add_compute(3, 1, 5, 0);     // again
    fake_dcgm_add_compute(3, 2, 5, 0);     // the same compute instance again
    fake_dcgm_add_compute(77, 2, 5, 0);    // of an instance that is not there
    fake_dcgm_add_instance(0, 6, NONE, 2); // no number
    fake_dcgm_add_instance(0, 7, 8, 99);   // more slices than any board has
    walk();
    ASSERT_LIST({DCGM_FE_GPU, 0, 0, 0}, {DCGM_FE_GPU_I, 3, 0, 0}, {DCGM_FE_GPU_CI, 1, 1, 0},
                {DCGM_FE_GPU_I, 7, 0, 0});
    assert_int_equal(record(3)->slices, 0);
    F.hierarchy.count = DCGM_MAX_HIERARCHY_INFO + 1;
    walk();
    assert_int_equal(v.count, 1);
}

static void boards_have_seven_slices_unless_more_are_told_or_used(void **state)
{
    static const struct {
        unsigned instances, slices;
        int64_t told;
        uint32_t total;
    } cases[] = {{1, 1, -1, 7}, {7, 1, -1, 7}, {8, 1, -1, 8},
                 {1, 1, 8, 8},  {1, 4, 4, 4},  {2, 15, 7, 30}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fake_dcgm_reset(4);
        for (unsigned k = 0; k < cases[i].instances; k++)
            fake_dcgm_add_instance(0, k, k, cases[i].slices);
        if (cases[i].told > 0)
            fake_dcgm_set_i64(DCGM_FE_GPU, 0, 69, cases[i].told);
        walk();
        assert_int_equal(record(0)->total_slices, cases[i].total);
        assert_int_equal(record(1)->total_slices, cases[i].total);
        dcgm_devices_deinit(&v);
    }
}

static void an_instance_that_was_made_anew_is_described_anew(void **state)
{
    fake_dcgm_add_instance(0, 0, 1, 3);
    fake_dcgm_add_compute(0, 0, 1, 0);
    fake_dcgm_set_text(DCGM_FE_GPU_I, 0, 50, "3g.40gb");
    fake_dcgm_set_text(DCGM_FE_GPU_CI, 0, 54, "MIG-a");
    walk();
    assert_string_equal(record(1)->uuid, "MIG-a");
    F.hierarchy.entityList[0].info.nvmlProfileSlices = 4;
    fake_dcgm_set_text(DCGM_FE_GPU_I, 0, 50, "4g.40gb");
    fake_dcgm_set_text(DCGM_FE_GPU_CI, 0, 54, "MIG-b");
    walk();
    assert_true(changed);
    assert_string_equal(record(1)->profile, "4g.40gb");
    assert_string_equal(record(1)->uuid, "MIG-b");
    // Another first compute instance has another UUID; it is not told here.
    F.hierarchy.entityList[1].entity.entityId = 5;
    F.hierarchy.entityList[1].info.nvmlComputeInstanceId = 5;
    walk();
    assert_string_equal(record(1)->uuid, "");
    assert_string_equal(record(1)->legacy_uuid, "MIG-GPU-0/1/5");
}

static void without_rights_to_the_hierarchy_the_gpu_stands_alone(void **state)
{
    static const dcgmReturn_t results[] = {DCGM_ST_REQUIRES_ROOT, DCGM_ST_NO_PERMISSION,
                                           DCGM_ST_NOT_SUPPORTED};
    for (size_t i = 0; i < ARRAY_SIZE(results); i++) {
        fake_dcgm_reset(4);
        F.gpu[0].mig = true;
        fake_dcgm_add_instance(0, 0, 1, 3);
        F.call.dcgmGetGpuInstanceHierarchy.result = results[i];
        walk();
        ASSERT_LIST({DCGM_FE_GPU, 0, 0, 0});
        assert_int_equal(record(0)->mig_enabled, 1);
        assert_int_equal(record(0)->total_slices, 7);
        dcgm_devices_deinit(&v);
    }
}

static void five_switches_of_four_links_show_those_that_are_up(void **state)
{
    static const unsigned majors[] = {4, 3};
    for (size_t k = 0; k < ARRAY_SIZE(majors); k++) {
        unsigned major = majors[k];
        fake_dcgm_reset(major);
        F.switches = 5;
        for (unsigned i = 0; i < 5; i++) {
            F.switch_ids[i] = 10 - i; // listed backwards
            for (unsigned link = 0; link < 4; link++)
                F.switch_link[i][link] = (unsigned char)((i + link) % 4); // 3 is up
        }
        F.gpu_link[0][17] = DcgmNvLinkLinkStateUp;
        walk();
        ASSERT_LIST({DCGM_FE_GPU, 0, 0, 0}, {DCGM_FE_SWITCH, 6, 1, NONE},
                    {DCGM_FE_SWITCH, 7, 2, NONE}, {DCGM_FE_SWITCH, 8, 3, NONE},
                    {DCGM_FE_SWITCH, 9, 4, NONE}, {DCGM_FE_SWITCH, 10, 5, NONE},
                    {DCGM_FE_LINK, dcgm_link_pack(major, DCGM_FE_GPU, 17, 0), 0, 0},
                    {DCGM_FE_LINK, dcgm_link_pack(major, DCGM_FE_SWITCH, 3, 6), 1, NONE},
                    {DCGM_FE_LINK, dcgm_link_pack(major, DCGM_FE_SWITCH, 0, 7), 2, NONE},
                    {DCGM_FE_LINK, dcgm_link_pack(major, DCGM_FE_SWITCH, 1, 8), 3, NONE},
                    {DCGM_FE_LINK, dcgm_link_pack(major, DCGM_FE_SWITCH, 2, 9), 4, NONE},
                    {DCGM_FE_LINK, dcgm_link_pack(major, DCGM_FE_SWITCH, 3, 10), 5, NONE});
        assert_int_equal(record(6)->kind, FRAME_ENTITY_LINK);
        assert_int_equal(record(6)->id, 17);
        assert_int_equal(record(6)->index, 0);
        assert_int_equal(record(6)->minor, 10);
        assert_int_equal(record(7)->id, 3);
        assert_int_equal(record(7)->index, NONE);
        assert_int_equal(record(1)->kind, FRAME_ENTITY_SWITCH);
        assert_int_equal(record(1)->id, 6);
        dcgm_devices_deinit(&v);
    }
}

static void links_are_packed_as_each_major_does(void **state)
{
    assert_int_equal(dcgm_link_pack(3, DCGM_FE_SWITCH, 0x12, 0x0456), 0x04561203u);
    assert_int_equal(dcgm_link_pack(4, DCGM_FE_SWITCH, 0x112, 0x04), 0x04011203u);
    assert_int_equal(dcgm_link_pack(4, DCGM_FE_GPU, 35, 31), 0x1f002301u);
}

static void the_form_of_the_links_is_found_by_asking(void **state)
{
    static const struct {
        unsigned major, version;
        uint32_t last_gpu_link, last_switch_link, calls;
    } cases[] = {{4, 5, 35, 255, 1}, {4, 4, 17, 255, 2}, {3, 3, 17, 63, 1}, {3, 4, 0, 0, 1}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fake_dcgm_reset(cases[i].major);
        F.links_version = cases[i].version;
        F.switches = 1;
        F.gpu_link[0][cases[i].last_gpu_link] = DcgmNvLinkLinkStateUp;
        F.switch_link[0][cases[i].last_switch_link] = DcgmNvLinkLinkStateUp;
        walk();
        assert_int_equal(F.call.dcgmGetNvLinkLinkStatus.calls, cases[i].calls);
        if (cases[i].major == 3 && cases[i].version == 4) {
            assert_int_equal(v.count, 2);
        } else {
            assert_int_equal(v.count, 4);
            assert_int_equal(record(2)->id, cases[i].last_gpu_link);
            assert_int_equal(record(3)->id, cases[i].last_switch_link);
        }
        dcgm_devices_deinit(&v);
    }
}

static void cores_are_the_bits_of_the_mask(void **state)
{
    static const struct {
        uint64_t mask[16];
        uint32_t count;
        uint32_t cores[16];
    } cases[] = {
        {{0}, 0, {0}},
        {{1}, 1, {0}},
        {{1, 2, 8}, 3, {0, 65, 131}},
        {{0xd}, 3, {0, 2, 3}},
        {{0xd, 0x7}, 6, {0, 2, 3, 64, 65, 66}},
        {{0xd, 0xa, 0xf0f0}, 13, {0, 2, 3, 65, 67, 132, 133, 134, 135, 140, 141, 142, 143}},
        {{[15] = UINT64_C(1) << 63}, 1, {1023}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint32_t out[DCGM_MAX_NUM_CPU_CORES] = {0};
        assert_int_equal(dcgm_cores(cases[i].mask, 16, out), cases[i].count);
        assert_memory_equal(out, cases[i].cores, cases[i].count * sizeof(*out));
    }
}

static void add_cpu(unsigned id, uint64_t first, uint64_t second)
{
    dcgmCpuHierarchyCpu_v2 *cpu = &F.cpus.cpus[F.cpus.numCpus++];
    cpu->cpuId = id;
    cpu->ownedCores.bitmask[0] = first;
    cpu->ownedCores.bitmask[1] = second;
}

static void cores_follow_all_cpus(void **state)
{
    static const unsigned majors[] = {4, 3};
    for (size_t i = 0; i < ARRAY_SIZE(majors); i++) {
        fake_dcgm_reset(majors[i]);
        F.gpus = 0;
        add_cpu(1, 0, 0xf);
        add_cpu(0, 0xf, 0);
        add_cpu(2, 0x3, 0x10); // two cores are the first CPU's already
        walk();
        ASSERT_LIST({DCGM_FE_CPU, 0, 0, NONE}, {DCGM_FE_CPU, 1, 1, NONE}, {DCGM_FE_CPU, 2, 2, NONE},
                    {DCGM_FE_CPU_CORE, 0, 0, NONE}, {DCGM_FE_CPU_CORE, 1, 0, NONE},
                    {DCGM_FE_CPU_CORE, 2, 0, NONE}, {DCGM_FE_CPU_CORE, 3, 0, NONE},
                    {DCGM_FE_CPU_CORE, 64, 1, NONE}, {DCGM_FE_CPU_CORE, 65, 1, NONE},
                    {DCGM_FE_CPU_CORE, 66, 1, NONE}, {DCGM_FE_CPU_CORE, 67, 1, NONE},
                    {DCGM_FE_CPU_CORE, 68, 2, NONE});
        assert_int_equal(record(0)->kind, FRAME_ENTITY_CPU);
        assert_int_equal(record(0)->id, 0);
        assert_int_equal(record(11)->kind, FRAME_ENTITY_CPU_CORE);
        assert_int_equal(record(11)->id, 68);
        dcgm_devices_deinit(&v);
    }
}

static void an_engine_of_four_that_knows_the_first_form_of_cpus_is_understood(void **state)
{
    F.call.dcgmGetCpuHierarchy_v2.result = DCGM_ST_FUNCTION_NOT_FOUND;
    add_cpu(0, 1, 0);
    walk();
    assert_int_equal(v.count, 3);
}

static void counts_past_the_arrays_are_cut(void **state)
{
    F.cpus.numCpus = 1000;
    F.switches = 40; // more than the links' struct has rows for
    for (unsigned i = 0; i < 40; i++) {
        F.switch_ids[i] = i;
        F.switch_link[i][0] = DcgmNvLinkLinkStateUp;
    }
    walk();
    assert_int_equal(v.count, 1 + 40 + 12 + 1); // the CPUs are all id 0
}

static void more_than_the_limit_is_left_out(void **state)
{
    F.switches = 12;
    for (unsigned i = 0; i < 12; i++) {
        F.switch_ids[i] = i;
        memset(F.switch_link[i], DcgmNvLinkLinkStateUp, sizeof(F.switch_link[i]));
    }
    for (unsigned cpu = 0; cpu < 8; cpu++) {
        add_cpu(cpu, 0, 0);
        F.cpus.cpus[cpu].ownedCores.bitmask[2 * cpu] = UINT64_MAX;
        F.cpus.cpus[cpu].ownedCores.bitmask[2 * cpu + 1] = UINT64_MAX;
    }
    walk(); // 1 + 12 + 12 * 256 + 8 + 1024 = 4117
    assert_int_equal(v.count, LIMIT_ENTITIES);
    assert_true(v.told_full);
    walk();
    assert_false(changed);
}

static void what_an_engine_lacks_is_left_out(void **state)
{
    static const dcgmReturn_t results[] = {DCGM_ST_NOT_SUPPORTED,      DCGM_ST_MODULE_NOT_LOADED,
                                           DCGM_ST_FUNCTION_NOT_FOUND, DCGM_ST_NO_DATA,
                                           DCGM_ST_VER_MISMATCH,       DCGM_ST_REQUIRES_ROOT,
                                           DCGM_ST_GENERIC_ERROR,      DCGM_ST_TIMEOUT};
    for (size_t i = 0; i < ARRAY_SIZE(results); i++) {
        fake_dcgm_reset(4);
        F.call.dcgmGetEntityGroupEntities.result = results[i];
        F.call.dcgmGetNvLinkLinkStatus.result = results[i];
        F.call.dcgmGetCpuHierarchy_v2.result = results[i];
        F.call.dcgmGetCpuHierarchy.result = results[i];
        F.call.dcgmGetGpuInstanceHierarchy.result = results[i];
        F.call.dcgmEntitiesGetLatestValues.result = results[i];
        walk();
        ASSERT_LIST({DCGM_FE_GPU, 0, 0, 0});
        dcgm_devices_deinit(&v);
    }
    fake_dcgm_reset(4);
    struct dcgm_functions fn = {.dcgmGetAllDevices = F.d.fn.dcgmGetAllDevices,
                                .dcgmGetDeviceAttributes = F.d.fn.dcgmGetDeviceAttributes};
    F.d.fn = fn;
    walk();
    ASSERT_LIST({DCGM_FE_GPU, 0, 0, 0});
    assert_int_equal(record(0)->minor, NONE);
}

static void make_one_of_each(void)
{
    fake_dcgm_add_instance(0, 0, 1, 3);
    fake_dcgm_add_compute(0, 0, 1, 0);
    fake_dcgm_set_text(DCGM_FE_GPU_I, 0, 50, "3g.40gb");
    fake_dcgm_set_text(DCGM_FE_GPU_CI, 0, 54, "MIG-a");
    F.switches = 1;
    F.gpu_link[0][1] = F.switch_link[0][2] = DcgmNvLinkLinkStateUp;
    add_cpu(0, 3, 0);
}

static void what_is_refused_for_now_stays_as_it_was(void **state)
{
    make_one_of_each();
    walk();
    assert_int_equal(v.count, 9);
    struct fake_dcgm_call *calls[] = {
        &F.call.dcgmGetEntityGroupEntities, &F.call.dcgmGetNvLinkLinkStatus,
        &F.call.dcgmGetCpuHierarchy_v2, &F.call.dcgmGetGpuInstanceHierarchy,
        &F.call.dcgmEntitiesGetLatestValues};
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        calls[i]->result = DCGM_ST_TIMEOUT;
        dcgm_devices_forget(&v);
        walk();
        assert_false(changed);
        calls[i]->result = DCGM_ST_OK;
    }
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        calls[i]->result = DCGM_ST_GENERIC_ERROR;
    walk();
    assert_false(changed);
}

static void an_engine_that_is_gone_leaves_the_list_as_it_was(void **state)
{
    make_one_of_each();
    walk();
    struct fake_dcgm_call *calls[] = {
        &F.call.dcgmGetAllDevices,           &F.call.dcgmGetGpuStatus,
        &F.call.dcgmGetDeviceAttributes,     &F.call.dcgmGetEntityGroupEntities,
        &F.call.dcgmGetNvLinkLinkStatus,     &F.call.dcgmGetCpuHierarchy_v2,
        &F.call.dcgmGetGpuInstanceHierarchy, &F.call.dcgmEntitiesGetLatestValues};
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        F.d.lost = false;
        calls[i]->result = DCGM_ST_CONNECTION_NOT_VALID;
        dcgm_devices_forget(&v);
        assert_int_equal(dcgm_devices_walk(&F.d, &v, &changed), DCGM_ST_CONNECTION_NOT_VALID);
        assert_false(changed);
        assert_true(F.d.lost);
        assert_int_equal(v.count, 9);
        assert_int_equal(dcgm_devices_find(&v, DCGM_FE_CPU_CORE, 1), 8);
        calls[i]->result = DCGM_ST_OK;
    }
    walk();
    assert_false(changed);
}

static void sweep_work(void)
{
    struct dcgm_devices list = {0};
    fake_dcgm_reset(4);
    make_one_of_each();
    bool news;
    dcgmReturn_t result = dcgm_devices_walk(&F.d, &list, &news);
    bool again = result == DCGM_ST_OK;
    if (again) {
        add_cpu(1, 0, UINT64_MAX);
        result = dcgm_devices_walk(&F.d, &list, &news);
        if (result != DCGM_ST_OK)
            assert_int_equal(list.count, 9);
    }
    assert_true(result == DCGM_ST_OK || result == DCGM_ST_MEMORY);
    assert_true((result == DCGM_ST_OK) == !allocation_failed);
    dcgm_devices_deinit(&list);
}

static void without_memory_the_list_stays_as_it_was(void **state)
{
    assert_true(allocation_sweep(sweep_work) >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        CASE(gpus_are_listed_with_their_identity),
        CASE(a_second_walk_changes_nothing_and_costs_few_calls),
        CASE(a_new_engine_is_asked_for_everything),
        CASE(bus_ids_are_written_as_nvml_does),
        CASE(states_come_from_the_status_and_else_from_the_answer),
        CASE(a_lost_gpu_keeps_its_identity_and_its_instances),
        CASE(one_late_answer_about_a_known_gpu_does_not_fail_it),
        CASE(skipped_gpus_are_listed_and_not_touched),
        CASE(gpus_are_in_the_order_of_their_ids_each_once),
        CASE(nothing_at_all_is_a_list_too),
        CASE(instances_stand_under_their_gpu_in_whatever_order_they_are_told),
        CASE(profiles_come_from_the_name_or_the_rule),
        CASE(the_profile_of_an_instance_without_a_name_is_made_of_its_size),
        CASE(a_hierarchy_that_makes_no_sense_is_no_list_of_ours),
        CASE(boards_have_seven_slices_unless_more_are_told_or_used),
        CASE(an_instance_that_was_made_anew_is_described_anew),
        CASE(without_rights_to_the_hierarchy_the_gpu_stands_alone),
        CASE(five_switches_of_four_links_show_those_that_are_up),
        CASE(links_are_packed_as_each_major_does),
        CASE(the_form_of_the_links_is_found_by_asking),
        CASE(cores_are_the_bits_of_the_mask),
        CASE(cores_follow_all_cpus),
        CASE(an_engine_of_four_that_knows_the_first_form_of_cpus_is_understood),
        CASE(counts_past_the_arrays_are_cut),
        CASE(more_than_the_limit_is_left_out),
        CASE(what_an_engine_lacks_is_left_out),
        CASE(what_is_refused_for_now_stays_as_it_was),
        CASE(an_engine_that_is_gone_leaves_the_list_as_it_was),
        CASE(without_memory_the_list_stays_as_it_was),
#undef CASE
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
