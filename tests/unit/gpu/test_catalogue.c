// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/catalogue.h"

static void tables_are_sorted_and_whole(void **state)
{
    (void)state;
    assert_int_equal(field_table_count, 657 + 6);
    for (size_t i = 1; i < field_table_count; i++)
        assert_true(field_table[i - 1].id < field_table[i].id);
    for (size_t i = 1; i < field_name_table_count; i++)
        assert_true(strcmp(field_name_table[i - 1].name, field_name_table[i].name) < 0);
    for (size_t i = 0; i < field_name_table_count; i++)
        assert_non_null(field_find(field_name_table[i].id));
}

static void every_field_has_a_name_that_finds_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < field_table_count; i++) {
        const struct field_info *f = &field_table[i];
        assert_ptr_equal(field_find(f->id), f);
        assert_ptr_equal(field_find_by_name(sv_from(f->name)), f);
        assert_true(f->type <= FIELD_BINARY && f->level <= FIELD_LEVEL_CONNECTX);
        assert_true(f->origin <= FIELD_ORIGIN_EVENT && f->cost < FIELD_CLASS_COUNT);
    }
}

static void origins_carry_what_the_source_asks_with(void **state)
{
    (void)state;
    for (size_t i = 0; i < field_table_count; i++) {
        const struct field_info *f = &field_table[i];
        if (f->origin == FIELD_ORIGIN_FIELD_VALUE)
            assert_int_not_equal(f->nvml_field_id, 0);
        if (f->origin == FIELD_ORIGIN_GPM) {
            assert_int_not_equal(f->gpm_metric_id, 0);
            assert_true(f->id >= 1001 && f->id <= 1099); // DCGM_FI_PROF_*
        }
        if (f->id >= FIELD_EXP_FIRST)
            assert_int_equal(f->origin, FIELD_ORIGIN_NONE);
    }
}

static void names_resolve_to_the_ids_they_always_had(void **state)
{
    (void)state;
    static const struct field_name cases[] = {
        // the stock files
        {"DCGM_FI_DRIVER_VERSION", 1},
        {"DCGM_FI_NVML_VERSION", 2},
        {"DCGM_FI_DEV_BRAND", 51},
        {"DCGM_FI_DEV_SERIAL", 53},
        {"DCGM_FI_DEV_OEM_INFOROM_VER", 56},
        {"DCGM_FI_DEV_ECC_INFOROM_VER", 80},
        {"DCGM_FI_DEV_POWER_INFOROM_VER", 81},
        {"DCGM_FI_DEV_INFOROM_IMAGE_VER", 82},
        {"DCGM_FI_DEV_VBIOS_VERSION", 85},
        {"DCGM_FI_DEV_SM_CLOCK", 100},
        {"DCGM_FI_DEV_MEM_CLOCK", 101},
        {"DCGM_FI_DEV_MEMORY_TEMP", 140},
        {"DCGM_FI_DEV_GPU_TEMP", 150},
        {"DCGM_FI_DEV_POWER_USAGE", 155},
        {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 156},
        {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 202},
        {"DCGM_FI_DEV_GPU_UTIL", 203},
        {"DCGM_FI_DEV_MEM_COPY_UTIL", 204},
        {"DCGM_FI_DEV_ENC_UTIL", 206},
        {"DCGM_FI_DEV_DEC_UTIL", 207},
        {"DCGM_FI_DEV_XID_ERRORS", 230},
        {"DCGM_FI_DEV_POWER_VIOLATION", 240},
        {"DCGM_FI_DEV_RELIABILITY_VIOLATION", 245},
        {"DCGM_FI_DEV_FB_TOTAL", 250},
        {"DCGM_FI_DEV_FB_FREE", 251},
        {"DCGM_FI_DEV_FB_USED", 252},
        {"DCGM_FI_DEV_FB_RESERVED", 253},
        {"DCGM_FI_DEV_FB_USED_PERCENT", 254},
        {"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 313},
        {"DCGM_FI_DEV_RETIRED_SBE", 390},
        {"DCGM_FI_DEV_RETIRED_DBE", 391},
        {"DCGM_FI_DEV_RETIRED_PENDING", 392},
        {"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 393},
        {"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 394},
        {"DCGM_FI_DEV_ROW_REMAP_FAILURE", 395},
        {"DCGM_FI_DEV_ROW_REMAP_PENDING", 396},
        {"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 409},
        {"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 439},
        {"DCGM_FI_DEV_VGPU_LICENSE_STATUS", 526},
        {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1001},
        {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1004},
        {"DCGM_FI_PROF_DRAM_ACTIVE", 1005},
        {"DCGM_FI_PROF_PCIE_TX_BYTES", 1009},
        {"DCGM_FI_PROF_PCIE_RX_BYTES", 1010},
        // older and newer spellings
        {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 112},
        {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 112},
        {"DCGM_FI_DEV_GPU_UTIL_RATIO", 203},
        {"DCGM_FI_DEV_GPU_TEMP_CELSIUS", 150},
        {"DCGM_FI_DEV_BOARD_POWER_WATTS", 155},
        {"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 1001},
        {"DCGM_FI_SYSTEM_DRIVER_VERSION", 1},
        {"DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", 175},
        {"DCGM_FI_DEV_NVSWITCH_FIRMWARE_VERSION", 1524},
        {"DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1611},
        {"DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL", 1091},
        {"DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", 1523},
        // dcgm-exporter's own
        {"DCGM_EXP_XID_ERRORS_COUNT", 9001},
        {"DCGM_EXP_CLOCK_EVENTS_COUNT", 9002},
        {"DCGM_EXP_GPU_HEALTH_STATUS", 9003},
        {"DCGM_EXP_P2P_STATUS", 9004},
        {"DCGM_EXP_CLOCK_EVENTS_TOTAL", 9005},
        {"DCGM_EXP_XID_ERRORS_TOTAL", 9006},
        {"DCGM_FI_UNKNOWN", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct field_info *f = field_find_by_name(sv_from(cases[i].name));
        assert_non_null(f);
        assert_int_equal(f->id, cases[i].id);
    }
}

static void the_names_of_1x_resolve(void **state)
{
    (void)state;
    static const struct field_name cases[] = {
        {"sm_clock", 100},
        {"memory_clock", 101},
        {"memory_temp", 140},
        {"gpu_temp", 150},
        {"power_usage", 155},
        {"total_energy_consumption", 156},
        {"pcie_tx_throughput", 200},
        {"pcie_rx_throughput", 201},
        {"pcie_replay_counter", 202},
        {"gpu_utilization", 203},
        {"mem_copy_utilization", 204},
        {"enc_utilization", 206},
        {"dec_utilization", 207},
        {"xid_errors", 230},
        {"power_violation", 240},
        {"thermal_violation", 241},
        {"sync_boost_violation", 242},
        {"board_limit_violation", 243},
        {"low_util_violation", 244},
        {"reliability_violation", 245},
        {"fb_free", 251},
        {"fb_used", 252},
        {"ecc_sbe_volatile_total", 310},
        {"ecc_dbe_volatile_total", 311},
        {"ecc_sbe_aggregate_total", 312},
        {"ecc_dbe_aggregate_total", 313},
        {"retired_pages_sbe", 390},
        {"retired_pages_dbe", 391},
        {"retired_pages_pending", 392},
        {"nvlink_flit_crc_error_count_total", 409},
        {"nvlink_data_crc_error_count_total", 419},
        {"nvlink_replay_error_count_total", 429},
        {"nvlink_recovery_error_count_total", 439},
        {"nvlink_bandwidth_total", 449},
        {"fi_prof_gr_engine_active", 1001},
        {"fi_prof_sm_active", 1002},
        {"fi_prof_sm_occupancy", 1003},
        {"fi_prof_pipe_tensor_active", 1004},
        {"fi_prof_dram_active", 1005},
        {"fi_prof_pcie_tx_bytes", 1009},
        {"fi_prof_pcie_rx_bytes", 1010},
    };
    size_t lower = 0;
    for (size_t i = 0; i < field_name_table_count; i++)
        lower += strncmp(field_name_table[i].name, "dcgm_", 5) == 0;
    assert_int_equal(lower, ARRAY_SIZE(cases));
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char name[64];
        snprintf(name, sizeof(name), "dcgm_%s", cases[i].name);
        const struct field_info *f = field_find_by_name(sv_from(name));
        assert_non_null(f);
        assert_int_equal(f->id, cases[i].id);
    }
}

// Both spellings of the three NVLink families, link by link (dcgm-exporter's tables).
static void nvlink_names_resolve_link_by_link(void **state)
{
    (void)state;
    static const uint16_t both[19] = {440, 441, 442, 443, 444, 445, 475, 476, 477, 478,
                                      479, 480, 446, 447, 448, 494, 495, 496, 449};
    static const char *const spellings[] = {"BANDWIDTH", "THROUGHPUT"};
    for (unsigned link = 0; link <= 18; link++) {
        char where[8] = "TOTAL";
        if (link < 18)
            snprintf(where, sizeof(where), "L%u", link);
        for (size_t s = 0; s < 2; s++) {
            static const char *const directions[] = {"", "TX_", "RX_"};
            const unsigned ids[] = {both[link], 825 + link, 879 + link};
            for (size_t d = 0; d < 3; d++) {
                char name[80];
                snprintf(name, sizeof(name), "DCGM_FI_DEV_NVLINK_%s%s_%s", directions[d],
                         spellings[s], where);
                const struct field_info *f = field_find_by_name(sv_from(name));
                assert_non_null(f);
                assert_int_equal(f->id, ids[d]);
                assert_int_equal(f->origin, FIELD_ORIGIN_FIELD_VALUE);
            }
        }
    }
}

static void unknown_names_and_ids_find_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",
        "D",
        "DCGM_FI_DEV_GPU_TEMP ",
        " DCGM_FI_DEV_GPU_TEMP",
        "dcgm_fi_dev_gpu_temp",
        "DCGM_FI_MAX_FIELDS",
        "DCGM_EXP_XID_ERRORS_COUNTXXX",
        "DCGM_FI_PROF_NVLINK_THROUGHPUT_FIRST",
        "zzz",
    };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_null(field_find_by_name(sv_from(names[i])));
    assert_null(field_find_by_name(SV("DCGM_FI_DEV_GPU_TEMP\0")));
    static const uint16_t ids[] = {7, 49, 208, 698, 1000, 1097, 9000, 9007, UINT16_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        assert_null(field_find(ids[i]));
}

static void the_nearest_name_is_offered_when_one_is_near(void **state)
{
    (void)state;
    assert_string_equal(field_nearest_name(SV("DCGM_FI_DEV_GPU_TMP")), "DCGM_FI_DEV_GPU_TEMP");
    assert_string_equal(field_nearest_name(SV("dcgm_fi_dev_gpu_temp")), "DCGM_FI_DEV_GPU_TEMP");
    assert_string_equal(field_nearest_name(SV("DCGM_EXP_XID_ERRORS_COUNTXXX")),
                        "DCGM_EXP_XID_ERRORS_COUNT");
    assert_string_equal(field_nearest_name(SV("dcgm_gpu_utilisation")), "dcgm_gpu_utilization");
    assert_null(field_nearest_name(SV("node_cpu_seconds_total")));
    assert_null(field_nearest_name(SV("")));
    char huge[300];
    memset(huge, 'D', sizeof(huge));
    assert_null(field_nearest_name((struct sv){huge, sizeof(huge)}));
}

static void levels_follow_dcgm(void **state)
{
    (void)state;
    static const struct {
        uint16_t id;
        enum field_level level;
    } cases[] = {
        {1, FIELD_LEVEL_NONE},     {50, FIELD_LEVEL_GPU_CI},     {150, FIELD_LEVEL_GPU},
        {230, FIELD_LEVEL_GPU_CI}, {252, FIELD_LEVEL_GPU_CI},    {526, FIELD_LEVEL_VGPU},
        {858, FIELD_LEVEL_SWITCH}, {780, FIELD_LEVEL_LINK},      {1001, FIELD_LEVEL_GPU_CI},
        {1005, FIELD_LEVEL_GPU_I}, {1009, FIELD_LEVEL_GPU},      {1100, FIELD_LEVEL_CPU_CORE},
        {1110, FIELD_LEVEL_CPU},   {1300, FIELD_LEVEL_CONNECTX},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(field_find(cases[i].id)->level, cases[i].level);
}

static void types_and_sources_follow_dcgm(void **state)
{
    (void)state;
    assert_int_equal(field_find(1)->type, FIELD_STRING);
    assert_int_equal(field_find(150)->type, FIELD_I64);
    assert_int_equal(field_find(155)->type, FIELD_DOUBLE);
    assert_int_equal(field_find(506)->type, FIELD_BINARY);
    assert_int_equal(field_find(9001)->type, FIELD_I64);
    assert_int_equal(field_find(150)->origin, FIELD_ORIGIN_CALL);
    assert_int_equal(field_find(156)->nvml_field_id, 83);
    assert_int_equal(field_find(230)->origin, FIELD_ORIGIN_EVENT);
    assert_int_equal(field_find(858)->origin, FIELD_ORIGIN_NONE);
    assert_int_equal(field_find(1009)->gpm_metric_id, 20);
    assert_int_equal(field_find(1011)->gpm_metric_id, 61);
    assert_int_equal(field_find(150)->cost, FIELD_CLASS_FAST);
    assert_int_equal(field_find(313)->cost, FIELD_CLASS_MEDIUM);
    assert_int_equal(field_find(391)->cost, FIELD_CLASS_SLOW);
    assert_int_equal(field_find(85)->cost, FIELD_CLASS_STATIC);
}

// Each of NVIDIA's GPM metrics, as DCGM maps them (DcgmGpmManager).
static void profiling_fields_map_to_gpm_metrics(void **state)
{
    (void)state;
    static const struct {
        uint16_t field, metric;
    } cases[] = {
        {1001, 1},   {1002, 2},   {1003, 3},   {1004, 5},   {1005, 10},  {1006, 11},  {1007, 12},
        {1008, 13},  {1009, 20},  {1010, 21},  {1012, 60},  {1013, 9},   {1014, 7},   {1015, 6},
        {1016, 4},   {1017, 30},  {1024, 37},  {1025, 40},  {1032, 47},  {1033, 50},  {1034, 51},
        {1040, 63},  {1041, 62},  {1074, 97},  {1075, 96},  {1076, 100}, {1077, 102}, {1078, 101},
        {1079, 103}, {1080, 160}, {1083, 163}, {1084, 248}, {1091, 255}, {1092, 256}, {1096, 260},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(field_find(cases[i].field)->gpm_metric_id, cases[i].metric);
        assert_int_equal(field_find(cases[i].field)->origin, FIELD_ORIGIN_GPM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_sorted_and_whole),
        cmocka_unit_test(every_field_has_a_name_that_finds_it),
        cmocka_unit_test(origins_carry_what_the_source_asks_with),
        cmocka_unit_test(names_resolve_to_the_ids_they_always_had),
        cmocka_unit_test(the_names_of_1x_resolve),
        cmocka_unit_test(nvlink_names_resolve_link_by_link),
        cmocka_unit_test(unknown_names_and_ids_find_nothing),
        cmocka_unit_test(the_nearest_name_is_offered_when_one_is_near),
        cmocka_unit_test(levels_follow_dcgm),
        cmocka_unit_test(types_and_sources_follow_dcgm),
        cmocka_unit_test(profiling_fields_map_to_gpm_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
