// SPDX-License-Identifier: Apache-2.0
// MIG: which entities a page shows, whose numbers they carry, who holds them.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "render_fixture.h"

#define DRIVER 1
#define GPU_TEMP 150 // the board's
#define XID 230
#define FB_USED 252 // the instance's
#define CSV                                                                                        \
    "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_FB_USED, gauge, u\nDCGM_FI_DRIVER_VERSION, "      \
    "label, d\n"                                                                                   \
    "DCGM_FI_DEV_XID_ERRORS, gauge, x\n"
#define T_HEAD "# HELP DCGM_FI_DEV_GPU_TEMP t\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
#define U_HEAD "# HELP DCGM_FI_DEV_FB_USED u\n# TYPE DCGM_FI_DEV_FB_USED gauge\n"
#define U0 "GPU-00000000-0000-0000-0000-000000000000"
#define U1 "GPU-00000000-0000-0000-0000-000000000001"
#define BOARD0                                                                                     \
    "{gpu=\"0\",UUID=\"" U0                                                                        \
    "\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia0\",modelName=\"H100\""
#define BOARD1                                                                                     \
    "{gpu=\"1\",UUID=\"" U1                                                                        \
    "\",pci_bus_id=\"00000000:1C:00.0\",device=\"nvidia1\",modelName=\"H100\""
#define REST ",hostname=\"testhost\",DCGM_FI_DRIVER_VERSION=\"550\""
#define G0 BOARD0 REST
#define G1 BOARD1 REST
#define I11 BOARD0 ",GPU_I_PROFILE=\"1g.10gb\",GPU_I_ID=\"11\"" REST
#define I13 BOARD0 ",GPU_I_PROFILE=\"1g.10gb\",GPU_I_ID=\"13\"" REST
#define T "DCGM_FI_DEV_GPU_TEMP"
#define F "DCGM_FI_DEV_FB_USED"

// GPU 0 with two instances, GPU 1 whole.
static struct fixture *node(const char *devices)
{
    struct fixture *f = fixture_new(CSV, devices);
    uint32_t gpu = fixture_add_gpu(f, "H100");
    fixture_add_instance(f, gpu, 11, "1g.10gb");
    fixture_add_instance(f, gpu, 13, "1g.10gb");
    fixture_add_gpu(f, "H100");
    fixture_list(f);
    fixture_string(f, 0, DRIVER, "550");
    fixture_string(f, 3, DRIVER, "550");
    fixture_i64(f, 0, GPU_TEMP, 40);
    fixture_i64(f, 3, GPU_TEMP, 41);
    for (uint32_t i = 0; i < 4; i++)
        fixture_i64(f, i, FB_USED, 100 + i);
    return f;
}

static void test_each_selection_chooses_its_entities(void **state)
{
    static const struct {
        const char *devices, *temperature, *used;
    } cases[] = {
        {"f", T_HEAD T I11 "} 40\n" T I13 "} 40\n" T G1 "} 41\n",
         U_HEAD F I11 "} 101\n" F I13 "} 102\n" F G1 "} 103\n"},
        {"g", T_HEAD T G0 "} 40\n" T G1 "} 41\n", U_HEAD F G0 "} 100\n" F G1 "} 103\n"},
        {"g:1", T_HEAD T G1 "} 41\n", U_HEAD F G1 "} 103\n"},
        {"i", T_HEAD T I11 "} 40\n" T I13 "} 40\n", U_HEAD F I11 "} 101\n" F I13 "} 102\n"},
        {"i:1", T_HEAD T I13 "} 40\n", U_HEAD F I13 "} 102\n"},
        {"g+i:0", T_HEAD T G0 "} 40\n" T G1 "} 41\n" T I11 "} 40\n",
         U_HEAD F G0 "} 100\n" F G1 "} 103\n" F I11 "} 101\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(fixture_freep) struct fixture *f = node(cases[i].devices);
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        assert_string_equal(fixture_family(f, T), cases[i].temperature);
        assert_string_equal(fixture_family(f, F), cases[i].used);
    }
}

static void test_an_instance_that_is_missing_is_named(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node("i:9");
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, T), "");
    assert_non_null(
        strstr(render_selection_error(f->render, RENDER_GROUP_GPU), "GPU instance ID '9'"));
}

static void test_each_instance_has_its_own_holder(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node("f");
    fixture_hold(f, 2, "ns", "p", "c", NULL);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, T), T_HEAD T I11
                        "} 40\n" T I13 ",container=\"c\",namespace=\"ns\",pod=\"p\"} 40\n" T G1
                        "} 41\n");
    assert_string_equal(fixture_family(f, F), U_HEAD F I11
                        "} 101\n" F I13 ",container=\"c\",namespace=\"ns\",pod=\"p\"} 102\n" F G1
                        "} 103\n");
}

static void test_board_fields_once_stand_on_the_board_without_an_owner(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node("f");
    f->options.mig_board_once = true;
    fixture_hold(f, 1, "ns", "p", "c", NULL);
    fixture_hold(f, 3, "n2", "p2", "c2", NULL);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, T), T_HEAD T G0
                        "} 40\n" T G1 ",container=\"c2\",namespace=\"n2\",pod=\"p2\"} 41\n");
    assert_string_equal(fixture_family(f, F), U_HEAD F I11
                        ",container=\"c\",namespace=\"ns\",pod=\"p\"} 101\n" F I13 "} 102\n" F G1
                        ",container=\"c2\",namespace=\"n2\",pod=\"p2\"} 103\n");
    f->options.flags.empty_owner_labels = true;
    f->owners.version++;
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, T G0 ",container=\"\",namespace=\"\",pod=\"\"} 40"));
}

static void test_board_fields_once_with_board_and_instances_chosen(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node("g:0+i");
    f->options.mig_board_once = true;
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, T), T_HEAD T G0 "} 40\n");
    assert_string_equal(fixture_family(f, F),
                        U_HEAD F G0 "} 100\n" F I11 "} 101\n" F I13 "} 102\n");
}

static void test_an_instance_without_a_profile_is_still_a_series_of_its_own(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node("i");
    f->entities[1].profile[0] = f->entities[2].profile[0] = '\0';
    f->entities[1].uuid[5] = f->entities[2].uuid[5] = 'x'; // else the profile known before is kept
    fixture_list(f);
    fixture_i64(f, 1, FB_USED, 5);
    fixture_i64(f, 2, FB_USED, 6);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, F),
                        U_HEAD F BOARD0 ",GPU_I_PROFILE=\"\",GPU_I_ID=\"11\"" REST "} 5\n" F BOARD0
                                        ",GPU_I_PROFILE=\"\",GPU_I_ID=\"13\"" REST "} 6\n");
}

static void test_an_instance_that_is_gone_leaves_the_page(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node("f");
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    f->entities[2] = f->entities[3];
    f->entities[2].parent = 2;
    f->entity_count = 3;
    fixture_list(f);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, F), U_HEAD F I11 "} 101\n" F G1 "} 103\n");
    assert_null(strstr(buf_cstr(&f->page), "GPU_I_ID=\"13\""));
}

static void test_an_xid_of_an_instance_is_told_there(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node("f");
    fixture_ready(f, true);
    for (uint32_t i = 0; i < 4; i++)
        fixture_i64(f, i, XID, 0);
    fixture_xid(f, 0, 13, 31, FIXTURE_WALL_NS);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "DCGM_FI_DEV_XID_ERRORS" I11
                                    ",err_code=\"0\",err_msg=\"No Error\"} 0"));
    assert_true(fixture_has_line(f, "DCGM_FI_DEV_XID_ERRORS" I13
                                    ",err_code=\"31\",err_msg=\"GPU memory page fault\"} 31"));
    assert_true(fixture_has_line(f, "podgpu_gpu_xid_errors_total{gpu=\"0\",UUID=\"" U0
                                    "\",hostname=\"testhost\",GPU_I_ID=\"13\",xid=\"31\"} 1"));
    assert_null(strstr(buf_cstr(&f->page), "GPU_I_ID=\"11\",xid="));
    assert_true(fixture_has_line(f, "podgpu_gpu_xid_errors_total{gpu=\"0\",UUID=\"" U0
                                    "\",hostname=\"testhost\",xid=\"79\"} 0"));
}

static void test_up_is_told_of_boards_and_instances_info_of_boards(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node("f");
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_non_null(
        strstr(fixture_family(f, "podgpu_gpu_up"),
               "podgpu_gpu_up{gpu=\"0\",UUID=\"" U0 "\",hostname=\"testhost\"} 1\n"
               "podgpu_gpu_up{gpu=\"0\",UUID=\"" U0 "\",hostname=\"testhost\",GPU_I_ID=\"11\"} 1\n"
               "podgpu_gpu_up{gpu=\"0\",UUID=\"" U0 "\",hostname=\"testhost\",GPU_I_ID=\"13\"} 1\n"
               "podgpu_gpu_up{gpu=\"1\",UUID=\"" U1 "\",hostname=\"testhost\"} 1\n"));
    assert_string_equal(
        fixture_family(f, "podgpu_gpu_info"),
        "# HELP podgpu_gpu_info What a GPU is; join it on gpu and UUID.\n# TYPE podgpu_gpu_info "
        "gauge\n"
        "podgpu_gpu_info{gpu=\"0\",UUID=\"" U0
        "\",hostname=\"testhost\",modelName=\"H100\",pci_bus_id=\"00000000:1B:00.0\","
        "driver_version=\"\"} 1\n"
        "podgpu_gpu_info{gpu=\"1\",UUID=\"" U1
        "\",hostname=\"testhost\",modelName=\"H100\",pci_bus_id=\"00000000:1C:00.0\","
        "driver_version=\"\"} 1\n");
}

static void test_a_chosen_instance_brings_its_board_to_the_podgpu_families(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node("i:1");
    const char *page = fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(
        fixture_has_line(f, "podgpu_gpu_up{gpu=\"0\",UUID=\"" U0 "\",hostname=\"testhost\"} 1"));
    assert_true(fixture_has_line(f, "podgpu_gpu_up{gpu=\"0\",UUID=\"" U0
                                    "\",hostname=\"testhost\",GPU_I_ID=\"13\"} 1"));
    assert_null(strstr(page, "GPU_I_ID=\"11\""));
    assert_null(strstr(page, "gpu=\"1\""));
}

static void test_reasons_of_instances_are_told_once_a_board(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node("f");
    fixture_status(f, 1, FB_USED, FRAME_NOT_SUPPORTED);
    fixture_status(f, 2, FB_USED, FRAME_NOT_SUPPORTED);
    fixture_status(f, 0, GPU_TEMP, FRAME_NO_PERMISSION);
    for (uint32_t i = 0; i < 4; i++)
        fixture_i64(f, i, XID, 0);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    const char *lines =
        strchr(strchr(fixture_family(f, "podgpu_exporter_field_unavailable_info"), '\n') + 1, '\n');
    assert_string_equal(lines, "\npodgpu_exporter_field_unavailable_info{field=\"" T
                               "\",reason=\"no_permission\",gpu=\"0\","
                               "UUID=\"" U0 "\"} 1\n"
                               "podgpu_exporter_field_unavailable_info{field=\"" F
                               "\",reason=\"not_supported\",gpu=\"0\","
                               "UUID=\"" U0 "\"} 1\n");
    fixture_status(f, 2, FB_USED, FRAME_NO_DATA);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "podgpu_exporter_field_unavailable_info{field=\"" F
                                    "\",reason=\"not_supported\","
                                    "gpu=\"0\",UUID=\"" U0 "\"} 1"));
    assert_true(fixture_has_line(f, "podgpu_exporter_field_unavailable_info{field=\"" F
                                    "\",reason=\"no_data\",gpu=\"0\","
                                    "UUID=\"" U0 "\"} 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_selection_chooses_its_entities),
        cmocka_unit_test(test_an_instance_that_is_missing_is_named),
        cmocka_unit_test(test_each_instance_has_its_own_holder),
        cmocka_unit_test(test_board_fields_once_stand_on_the_board_without_an_owner),
        cmocka_unit_test(test_board_fields_once_with_board_and_instances_chosen),
        cmocka_unit_test(test_an_instance_without_a_profile_is_still_a_series_of_its_own),
        cmocka_unit_test(test_an_instance_that_is_gone_leaves_the_page),
        cmocka_unit_test(test_an_xid_of_an_instance_is_told_there),
        cmocka_unit_test(test_up_is_told_of_boards_and_instances_info_of_boards),
        cmocka_unit_test(test_a_chosen_instance_brings_its_board_to_the_podgpu_families),
        cmocka_unit_test(test_reasons_of_instances_are_told_once_a_board),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
