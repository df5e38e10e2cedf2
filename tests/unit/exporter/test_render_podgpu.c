// SPDX-License-Identifier: Apache-2.0
// podgpu's own families: devices, XID errors, fields without values, the exporter itself.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "exporter/render_internal.h"
#include "gpu/xid.h"
#include "render_fixture.h"

#define DRIVER 1
#define GPU_TEMP 150
#define XID 230
#define CSV "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_XID_ERRORS, gauge, x\n"
#define U0 "GPU-00000000-0000-0000-0000-000000000000"
#define U1 "GPU-00000000-0000-0000-0000-000000000001"
#define D0 "{gpu=\"0\",UUID=\"" U0 "\",hostname=\"testhost\""
#define D1 "{gpu=\"1\",UUID=\"" U1 "\",hostname=\"testhost\""

static struct fixture *two_gpus(void)
{
    struct fixture *f = fixture_new(CSV, "f");
    fixture_add_gpu(f, "H100");
    fixture_add_gpu(f, "H100");
    fixture_list(f);
    fixture_ready(f, true);
    for (uint32_t i = 0; i < 2; i++) {
        fixture_i64(f, i, GPU_TEMP, 42);
        fixture_i64(f, i, XID, 0);
    }
    return f;
}

// --- Devices ---

static void test_a_lost_gpu_is_down_and_keeps_its_evidence(void **state)
{
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    fixture_xid(f, 1, UINT32_MAX, 79, FIXTURE_WALL_NS + 123 * NS_PER_MS);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, "podgpu_gpu_state_info"), "");
    f->entities[1].state = FRAME_ENTITY_LOST;
    fixture_list(f);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "podgpu_gpu_up" D0 "} 1"));
    assert_true(fixture_has_line(f, "podgpu_gpu_up" D1 "} 0"));
    assert_string_equal(fixture_family(f, "podgpu_gpu_state_info"),
                        "# HELP podgpu_gpu_state_info Why a GPU or MIG instance is down.\n"
                        "# TYPE podgpu_gpu_state_info gauge\n"
                        "podgpu_gpu_state_info" D1 ",reason=\"lost\"} 1\n");
    assert_non_null(strstr(fixture_family(f, "DCGM_FI_DEV_GPU_TEMP"), "gpu=\"0\""));
    assert_null(strstr(fixture_family(f, "DCGM_FI_DEV_GPU_TEMP"), "gpu=\"1\""));
    assert_non_null(
        strstr(fixture_family(f, "DCGM_FI_DEV_XID_ERRORS"),
               "device=\"nvidia1\",modelName=\"H100\",hostname=\"testhost\",err_code=\"79\","
               "err_msg=\"GPU has fallen off the bus\"} 79\n"));
    assert_true(fixture_has_line(f, "podgpu_gpu_info" D1
                                    ",modelName=\"H100\",pci_bus_id=\"00000000:1C:00.0\","
                                    "driver_version=\"550.54.15\"} 1"));
    assert_true(fixture_has_line(f, "podgpu_gpu_xid_errors_total" D1 ",xid=\"79\"} 1"));
    assert_true(fixture_has_line(f, "podgpu_gpu_xid_last_timestamp_seconds" D1
                                    ",xid=\"79\"} 1700000000.123"));
    assert_true(
        fixture_has_line(f, "podgpu_exporter_field_unavailable_info{field=\"DCGM_FI_DEV_GPU_TEMP\","
                            "reason=\"lost\",gpu=\"1\",UUID=\"" U1 "\"} 1"));
}

static void test_a_gpu_marked_down_says_why_and_comes_back(void **state)
{
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    inventory_mark_down(&f->inventory, 0, "hung");
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "podgpu_gpu_up" D0 "} 0"));
    assert_true(fixture_has_line(f, "podgpu_gpu_up" D1 "} 1"));
    assert_true(fixture_has_line(f, "podgpu_gpu_state_info" D0 ",reason=\"hung\"} 1"));
    assert_null(strstr(fixture_family(f, "DCGM_FI_DEV_GPU_TEMP"), "gpu=\"0\""));
    inventory_mark_down(&f->inventory, UINT32_MAX, "driver_hung");
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "podgpu_gpu_state_info" D0 ",reason=\"driver_hung\"} 1"));
    assert_true(fixture_has_line(f, "podgpu_gpu_state_info" D1 ",reason=\"driver_hung\"} 1"));
    assert_string_equal(fixture_family(f, "DCGM_FI_DEV_GPU_TEMP"), "");
    fixture_list(f);
    fixture_i64(f, 0, GPU_TEMP, 43);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "podgpu_gpu_up" D0 "} 1"));
    assert_string_equal(fixture_family(f, "podgpu_gpu_state_info"), "");
    assert_non_null(strstr(fixture_family(f, "DCGM_FI_DEV_GPU_TEMP"), "} 43\n"));
}

static void test_podgpu_families_can_be_left_out(void **state)
{
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    f->options.podgpu_families = PODGPU_FAMILIES_NONE;
    const char *page = fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_null(strstr(page, "podgpu_gpu_"));
    assert_non_null(strstr(page, "podgpu_exporter_build_info{"));
    assert_non_null(strstr(page, "DCGM_FI_DEV_GPU_TEMP{"));
}

// --- XID errors ---

static void test_critical_codes_start_at_zero_while_somebody_listens(void **state)
{
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    struct buf want = BUF_INIT(1 << 20);
    buf_add_fmt(
        &want,
        "# HELP podgpu_gpu_xid_errors_total %s\n# TYPE podgpu_gpu_xid_errors_total counter\n",
        render_families[RENDER_GPU_XID_ERRORS].help);
    for (int gpu = 0; gpu < 2; gpu++)
        for (size_t i = 0; i < xid_critical_count; i++)
            buf_add_fmt(&want, "podgpu_gpu_xid_errors_total%s,xid=\"%u\"} 0\n", gpu ? D1 : D0,
                        xid_critical_codes[i]);
    assert_true(xid_critical_count > 10);
    assert_string_equal(fixture_family(f, "podgpu_gpu_xid_errors_total"), buf_cstr(&want));
    buf_deinit(&want);
    assert_string_equal(fixture_family(f, "podgpu_gpu_xid_last_timestamp_seconds"), "");

    fixture_ready(f, false);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, "podgpu_gpu_xid_errors_total"), "");
}

static void test_xid_errors_are_counted_by_code_in_ascending_order(void **state)
{
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    fixture_xid(f, 0, UINT32_MAX, 255, FIXTURE_WALL_NS);
    fixture_xid(f, 0, UINT32_MAX, 79, FIXTURE_WALL_NS + NS_PER_S);
    fixture_xid(f, 0, UINT32_MAX, 13, FIXTURE_WALL_NS + 2 * NS_PER_S);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    fixture_xid(f, 0, UINT32_MAX, 79, FIXTURE_WALL_NS + 3 * NS_PER_S);
    const char *page = fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    static const char *const lines[] = {
        "podgpu_gpu_xid_errors_total" D0 ",xid=\"13\"} 1\n",
        "podgpu_gpu_xid_errors_total" D0 ",xid=\"46\"} 0\n",
        "podgpu_gpu_xid_errors_total" D0 ",xid=\"74\"} 0\n",
        "podgpu_gpu_xid_errors_total" D0 ",xid=\"79\"} 2\n",
        "podgpu_gpu_xid_errors_total" D0 ",xid=\"95\"} 0\n",
        "podgpu_gpu_xid_errors_total" D0 ",xid=\"255\"} 1\n",
        "podgpu_gpu_xid_errors_total" D1 ",xid=\"46\"} 0\n",
        "podgpu_gpu_xid_last_timestamp_seconds" D0 ",xid=\"13\"} 1700000002.000\n",
        "podgpu_gpu_xid_last_timestamp_seconds" D0 ",xid=\"79\"} 1700000003.000\n",
        "podgpu_gpu_xid_last_timestamp_seconds" D0 ",xid=\"255\"} 1700000000.000\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        page = strstr(page, lines[i]);
        assert_non_null(page);
    }
}

// --- Fields ---

static void test_fields_say_where_they_come_from_or_why_they_do_not(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        fixture_new("DCGM_FI_DRIVER_VERSION, label, d\nDCGM_FI_DEV_GPU_TEMP, gauge, "
                    "t\nDCGM_FI_DEV_XID_ERRORS, gauge, x\n"
                    "DCGM_FI_DEV_SERIAL, label, s\nDCGM_FI_PROF_SM_ACTIVE, gauge, "
                    "a\nDCGM_FI_PROF_DRAM_ACTIVE, gauge, a\n"
                    "DCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, c\nDCGM_EXP_GPU_HEALTH_STATUS, gauge, h\n",
                    "f");
    fixture_add_gpu(f, "H100");
    fixture_list(f);
    fixture_string(f, 0, DRIVER, "550");
    fixture_i64(f, 0, XID, 0);
    fixture_status(f, 0, GPU_TEMP, FRAME_NO_PERMISSION);
    fixture_status(f, 0, 53, FRAME_NOT_SUPPORTED);
    fixture_status(f, 0, 1002, FRAME_NEEDS_GPM);
    fixture_f64(f, 0, 1005, 0.5);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
#define SOURCE(field, source)                                                                      \
    "podgpu_exporter_field_source_info{field=\"" field "\",source=\"" source "\"} 1\n"
#define MISSING(field, reason, gpu, uuid)                                                          \
    "podgpu_exporter_field_unavailable_info{field=\"" field "\",reason=\"" reason "\",gpu=\"" gpu  \
    "\",UUID=\"" uuid "\"} 1\n"
    assert_string_equal(
        strchr(strchr(fixture_family(f, "podgpu_exporter_field_source_info"), '\n') + 1, '\n') + 1,
        SOURCE("DCGM_FI_DRIVER_VERSION", "nvml") SOURCE("DCGM_FI_DEV_XID_ERRORS", "nvml_events")
            SOURCE("DCGM_FI_PROF_DRAM_ACTIVE", "nvml_gpm"));
    assert_string_equal(
        strchr(strchr(fixture_family(f, "podgpu_exporter_field_unavailable_info"), '\n') + 1,
               '\n') +
            1,
        MISSING("DCGM_FI_DEV_SERIAL", "not_supported", "0", U0)
            MISSING("DCGM_FI_DEV_GPU_TEMP", "no_permission", "0", U0)
                MISSING("DCGM_FI_PROF_SM_ACTIVE", "needs_gpm", "0", U0)
                    MISSING("DCGM_FI_DEV_CPU_UTIL_TOTAL", "needs_dcgm", "", "")
                        MISSING("DCGM_EXP_GPU_HEALTH_STATUS", "needs_dcgm", "0", U0));
    // A value that comes takes its reason away.
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_null(strstr(fixture_family(f, "podgpu_exporter_field_unavailable_info"),
                       "DCGM_FI_DEV_GPU_TEMP"));
    assert_true(fixture_has_line(
        f, "podgpu_exporter_field_source_info{field=\"DCGM_FI_DEV_GPU_TEMP\",source=\"nvml\"} 1"));
    // Another reason replaces the one before.
    fixture_status(f, 0, GPU_TEMP, FRAME_INVALID);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(
        fixture_has_line(f, "podgpu_exporter_field_unavailable_info{field=\"DCGM_FI_DEV_GPU_TEMP\","
                            "reason=\"invalid\",gpu=\"0\",UUID=\"" U0 "\"} 1"));
}

static void test_flags_without_effect_are_listed(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new("", "f");
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, "podgpu_exporter_feature_unavailable_info"), "");
    f->options.unavailable[0] = "enable-pprof";
    f->options.unavailable[1] = "dump-enabled";
    f->options.unavailable_count = 2;
    f->config.hash++; // a new configuration; options stand still in a process
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(
        strchr(strchr(fixture_family(f, "podgpu_exporter_feature_unavailable_info"), '\n') + 1,
               '\n') +
            1,
        "podgpu_exporter_feature_unavailable_info{flag=\"enable-pprof\"} 1\n"
        "podgpu_exporter_feature_unavailable_info{flag=\"dump-enabled\"} 1\n");
}

// --- The exporter ---

// All sample lines of the page that start with a prefix.
static char *lines_of(struct fixture *f, const char *prefix)
{
    struct buf out = BUF_INIT(1 << 20);
    size_t length = strlen(prefix);
    for (const char *at = buf_cstr(&f->page); *at; at = strchr(at, '\n') + 1)
        if (strncmp(at, prefix, length) == 0)
            buf_add(&out, at, (size_t)(strchr(at, '\n') + 1 - at));
    buf_add_char(&out, '\0');
    return buf_take(&out, NULL);
}

static void test_each_number_about_ourselves_has_its_line(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new("", "f");
    fixture_ready(f, true);
    f->self = (struct render_self){
        .started_wall_ns = FIXTURE_WALL_NS,
        .version = "1.2.3",
        .revision = "abc",
        .sources[DEVICE_SOURCE_NVML].sample_last_wall_ns = FIXTURE_WALL_NS + 1500 * NS_PER_MS,
        .sources[DEVICE_SOURCE_NVML].sample_duration_s = 0.25,
        .sources[DEVICE_SOURCE_NVML].starts = 1,
        .sources[DEVICE_SOURCE_NVML].crashes = 2,
        .sources[DEVICE_SOURCE_NVML].hangs = 3,
        .sources[DEVICE_SOURCE_NVML].protocol_errors = 4,
        .sources[DEVICE_SOURCE_NVML].running = true,
        .sources[DEVICE_SOURCE_NVML].released = true,
        .attribution_on = true,
        .attribution_up = true,
        .attribution_age_s = 0.5,
        .attribution_polls = 5,
        .attribution_failures = 6,
        .attribution_rate_limited = 7,
        .attribution_unknown_ids = 8,
        .attribution_superseded_ids = 28,
        .attribution_rows = 9,
        .config_ok = true,
        .config_last_ok_wall_ns = FIXTURE_WALL_NS + 1,
        .config_reloads = 10,
        .config_failures = 11,
        .config_duplicates = 12,
        .exp_counts_on = true,
        .exp_counts_dropped = 47,
        .http = {.requests = 13,
                 .denied = 14,
                 .limited = 15,
                 .bad_requests = 16,
                 .connections = 17,
                 .refused = 18,
                 .evicted = 19,
                 .timed_out = 20,
                 .open = 21,
                 .web_config_ok = true},
        .page_bytes = 22,
        .page_shut_readers = 23,
        .page_without_owners = true,
        .process_metrics = true,
        .process = {.cpu_seconds = 1.5,
                    .resident_bytes = 24,
                    .virtual_bytes = 25,
                    .open_fds = 26,
                    .max_fds = 27,
                    .start_wall_ns = FIXTURE_WALL_NS - NS_PER_S},
    };
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    char *own = lines_of(f, "podgpu_exporter_"), *process = lines_of(f, "process_");
    assert_string_equal(
        own, "podgpu_exporter_build_info{version=\"1.2.3\",revision=\"abc\"} 1\n"
             "podgpu_exporter_device_selection_ok 1\n"
             "podgpu_exporter_series_dropped{reason=\"duplicate\"} 0\n"
             "podgpu_exporter_series_dropped{reason=\"holders\"} 0\n"
             "podgpu_exporter_source_up{source=\"nvml\"} 0\n"
             "podgpu_exporter_source_state_info{source=\"nvml\",state=\"released\"} 1\n"
             "podgpu_exporter_start_time_seconds 1700000000.000\n"
             "podgpu_exporter_last_sample_timestamp_seconds{source=\"nvml\"} 1700000001.500\n"
             "podgpu_exporter_sample_duration_seconds{source=\"nvml\"} 0.25\n"
             "podgpu_exporter_errors_total{source=\"nvml\",code=\"crashed\"} 2\n"
             "podgpu_exporter_errors_total{source=\"nvml\",code=\"hung\"} 3\n"
             "podgpu_exporter_errors_total{source=\"nvml\",code=\"protocol\"} 4\n"
             "podgpu_exporter_helper_starts_total{source=\"nvml\"} 1\n"
             "podgpu_exporter_helper_running{source=\"nvml\"} 1\n"
             "podgpu_exporter_helper_released{source=\"nvml\"} 1\n"
             "podgpu_exporter_attribution_up 1\n"
             "podgpu_exporter_attribution_age_seconds 0.5\n"
             "podgpu_exporter_attribution_polls_total 5\n"
             "podgpu_exporter_attribution_failures_total 6\n"
             "podgpu_exporter_attribution_rate_limited_total 7\n"
             "podgpu_exporter_attribution_unknown_ids 8\n"
             "podgpu_exporter_attribution_superseded_ids 28\n"
             "podgpu_exporter_attribution_rows 9\n"
             "podgpu_exporter_config_last_reload_success 1\n"
             "podgpu_exporter_config_last_reload_success_timestamp_seconds 1700000000.000\n"
             "podgpu_exporter_config_reloads_total 10\n"
             "podgpu_exporter_config_reload_failures_total 11\n"
             "podgpu_exporter_config_duplicate_rows 12\n"
             "podgpu_exporter_exp_counts_dropped_total 47\n"
             "podgpu_exporter_http_requests_total 13\n"
             "podgpu_exporter_http_rejected_requests_total{reason=\"unauthorized\"} 14\n"
             "podgpu_exporter_http_rejected_requests_total{reason=\"rate_limit\"} 15\n"
             "podgpu_exporter_http_rejected_requests_total{reason=\"malformed\"} 16\n"
             "podgpu_exporter_http_connections_total 17\n"
             "podgpu_exporter_http_closed_connections_total{reason=\"peer_limit\"} 18\n"
             "podgpu_exporter_http_closed_connections_total{reason=\"made_room\"} 19\n"
             "podgpu_exporter_http_closed_connections_total{reason=\"deadline\"} 20\n"
             "podgpu_exporter_http_open_connections 21\n"
             "podgpu_exporter_web_config_last_reload_success 1\n"
             "podgpu_exporter_page_bytes 22\n"
             "podgpu_exporter_page_readers_cut_total 23\n"
             "podgpu_exporter_page_without_owners 1\n");
    assert_string_equal(process,
                        "process_cpu_seconds_total 1.5\nprocess_start_time_seconds 1699999999.000\n"
                        "process_resident_memory_bytes 24\nprocess_virtual_memory_bytes 25\n"
                        "process_open_fds 26\nprocess_max_fds 27\n");
    free(own);
    free(process);
}

static void test_what_is_off_or_unknown_has_no_line(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new("", "f");
    f->self = (struct render_self){.attribution_age_s = -1};
    const char *page = fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_null(strstr(page, "podgpu_exporter_attribution_"));
    assert_null(strstr(page, "process_"));
    assert_null(strstr(page, "podgpu_exporter_last_sample_timestamp_seconds"));
    assert_true(fixture_has_line(f, "podgpu_exporter_build_info{version=\"\",revision=\"\"} 1"));
    assert_true(fixture_has_line(
        f, "podgpu_exporter_source_state_info{source=\"nvml\",state=\"unknown\"} 1"));
    f->self.attribution_on = true; // asked, not answered yet
    page = fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "podgpu_exporter_attribution_up 0"));
    assert_null(strstr(page, "podgpu_exporter_attribution_age_seconds"));
}

static void test_source_state_follows_the_inventory(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new("", "f");
    struct frame_state no_driver = {.code = FRAME_STATE_NO_DRIVER, .vendor_code = 9};
    struct frame frame = {.type = FRAME_STATE, .as.state = &no_driver};
    assert_int_equal(inventory_apply(&f->inventory, &frame), 0);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "podgpu_exporter_source_up{source=\"nvml\"} 0"));
    assert_true(fixture_has_line(
        f, "podgpu_exporter_source_state_info{source=\"nvml\",state=\"no_driver\"} 1"));
}

static void test_a_driver_that_is_released_is_not_up(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new("", "f");
    struct frame_state ready = {.code = FRAME_STATE_READY};
    struct frame frame = {.type = FRAME_STATE, .as.state = &ready};
    assert_int_equal(inventory_apply(&f->inventory, &frame), 0);
    f->self.sources[DEVICE_SOURCE_NVML].released = true;
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "podgpu_exporter_source_up{source=\"nvml\"} 0"));
    assert_true(fixture_has_line(
        f, "podgpu_exporter_source_state_info{source=\"nvml\",state=\"released\"} 1"));
    f->self.sources[DEVICE_SOURCE_NVML].released = false;
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "podgpu_exporter_source_up{source=\"nvml\"} 1"));
}

// --- Health ---

#define CLOCKS 112
#define RECOVERY 1523
#define HEALTH_CSV                                                                                 \
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS, gauge, c\nDCGM_FI_DEV_GPU_RECOVERY_ACTION, gauge, r\n"

static struct fixture *two_gpus_of_health(void)
{
    struct fixture *f = fixture_new(HEALTH_CSV, "f");
    fixture_add_gpu(f, "H100");
    fixture_add_gpu(f, "H100");
    fixture_list(f);
    fixture_ready(f, true);
    return f;
}

static void test_clocks_events_are_states_of_each_reason(void **state)
{
    cleanup(fixture_freep) struct fixture *f = two_gpus_of_health();
    static const char *const names[] = {"gpu_idle",    "applications_clocks", "sw_power_cap",
                                        "hw_slowdown", "sync_boost",          "sw_thermal",
                                        "hw_thermal",  "hw_power_brake",      "display"};
    for (unsigned bit = 0; bit < ARRAY_SIZE(names); bit++) {
        fixture_i64(f, 0, CLOCKS, INT64_C(1) << bit | 0x200); // a reason of a later driver is none
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
            char line[200];
            snprintf(line, sizeof(line), "podgpu_gpu_clocks_event_active%s,reason=\"%s\"} %d", D0,
                     names[i], i == bit);
            assert_true(fixture_has_line(f, line));
        }
    }
    assert_null(strstr(fixture_family(f, "podgpu_gpu_clocks_event_active"), "gpu=\"1\""));
    fixture_status(f, 0, CLOCKS, FRAME_NOT_SUPPORTED);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, "podgpu_gpu_clocks_event_active"), "");
}

static void test_the_recovery_action_is_a_word(void **state)
{
    cleanup(fixture_freep) struct fixture *f = two_gpus_of_health();
    static const struct {
        int64_t value;
        const char *word;
    } cases[] = {{0, "none"},      {1, "gpu_reset"},       {2, "node_reboot"},
                 {3, "drain_p2p"}, {4, "drain_and_reset"}, {5, "recover_imex"},
                 {6, "other"},     {INT32_MAX, "other"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char expected[400];
        fixture_i64(f, 1, RECOVERY, cases[i].value);
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        snprintf(expected, sizeof(expected), "podgpu_gpu_recovery_action_info%s,action=\"%s\"} 1",
                 D1, cases[i].word);
        if (cases[i].value == INT32_MAX) // out of any sense, or DCGM's blank
            assert_false(strstr(f->page.data, "action=\"none\"") != NULL);
        else
            assert_true(fixture_has_line(f, expected));
    }
    fixture_i64(f, 1, RECOVERY, 1);
    f->entities[1].state = FRAME_ENTITY_LOST; // what a lost GPU asked for is not what it asks for
    fixture_list(f);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, "podgpu_gpu_recovery_action_info"), "");
}

static void test_each_xid_that_came_has_its_advice(void **state)
{
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, "podgpu_gpu_xid_advice_info"), "");
    fixture_xid(f, 0, UINT32_MAX, 31, FIXTURE_WALL_NS);
    fixture_xid(f, 1, UINT32_MAX, 79, FIXTURE_WALL_NS);
    fixture_xid(f, 1, UINT32_MAX, 4000, FIXTURE_WALL_NS);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_non_null(strstr(
        fixture_family(f, "podgpu_gpu_xid_advice_info"),
        "podgpu_gpu_xid_advice_info" D0 ",xid=\"31\",severity=\"app\",advice=\"restart the "
        "application; when different ones fail on this GPU, suspect the GPU\"} 1\n"
        "podgpu_gpu_xid_advice_info" D1 ",xid=\"79\",severity=\"critical\",advice=\"drain the "
        "node and reboot it\"} 1\n"
        "podgpu_gpu_xid_advice_info" D1 ",xid=\"4000\",severity=\"unknown\",advice=\"keep the "
        "kernel log; the code is newer than this podgpu\"} 1\n"));
}

static void test_without_podgpus_families_there_is_no_health(void **state)
{
    cleanup(fixture_freep) struct fixture *f = two_gpus_of_health();
    f->options.podgpu_families = PODGPU_FAMILIES_NONE;
    fixture_i64(f, 0, CLOCKS, 1);
    fixture_i64(f, 0, RECOVERY, 1);
    fixture_xid(f, 0, UINT32_MAX, 79, FIXTURE_WALL_NS);
    const char *page = fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_null(strstr(page, "podgpu_gpu_"));
}

// --- The list of families (test_families.c holds it against data/podgpu-families.tsv) ---

static size_t family_of_line(const char *line)
{
    size_t length = strcspn(line, "{ ");
    for (size_t i = 0; i < RENDER_FAMILY_COUNT; i++)
        if (strlen(render_families[i].name) == length &&
            strncmp(render_families[i].name, line, length) == 0)
            return i;
    return RENDER_FAMILY_COUNT;
}

// The label names of a line, as the list writes them; those that are not always there count as
// there.
static void add_label_names(const char *line, const char *expected, struct buf *out)
{
    struct sv names = sv_from(expected), name;
    const char *at = strchr(line, '{');
    at = at && at < line + strcspn(line, " ") ? at + 1 : NULL;
    while (sv_next(&names, ',', &name)) {
        bool here = at && strncmp(at, name.ptr, name.len) == 0 && at[name.len] == '=';
        if (!here && !sv_equals(name, SV("GPU_I_ID")))
            break;
        buf_add_fmt(out, "%s%.*s", out->len > 0 ? "," : "", SV_FMT(name));
        if (!here)
            continue;
        for (at += name.len + 2; *at != '"';
             at++) // no label of podgpu's own has an escaped quote in the test
            assert_int_not_equal(*at, '\\');
        at += at[1] == ',' ? 2 : 1;
    }
    assert_true(!at || *at == '}'); // no label more than the list has
    buf_add_char(out, '\0');
}

// Families that need more than the rich fixture has, each with a test of its own.
static bool is_tested_elsewhere(size_t family)
{
    static const enum render_family_id ids[] = {
        RENDER_GPU_XID_ADVICE_INFO,
        RENDER_GPU_RECOVERY_ACTION_INFO,
        RENDER_GPU_CLOCKS_EVENT_ACTIVE,
        RENDER_GPU_BUSY,
        RENDER_GPU_ENERGY,
        RENDER_GPU_MEMORY_USED,
        RENDER_GPU_MEMORY_TOTAL,
        RENDER_GPU_UNATTRIBUTED_BUSY,
        RENDER_GPU_UNATTRIBUTED_ENERGY,
        RENDER_GPU_UNATTRIBUTED_MEMORY,
        RENDER_GPU_ENDED_BUSY,
        RENDER_GPU_ENDED_ENERGY,
        RENDER_GPU_UTILIZATION,
        RENDER_CONTAINER_SHARE,
        RENDER_CONTAINER_ALLOCATED,
        RENDER_CONTAINER_BUSY,
        RENDER_CONTAINER_ENERGY,
        RENDER_CONTAINER_MEMORY,
        RENDER_CONTAINER_PROCESSES,
        RENDER_CONTAINER_IDLE,
        RENDER_ATTRIBUTION_INFO,
        RENDER_POD_INFO,
        RENDER_NODE_ALLOCATABLE,
        RENDER_NODE_ALLOCATED,
        RENDER_NODE_IDLE,
    };
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        if (ids[i] == family)
            return true;
    return false;
}

static void test_each_listed_family_is_printed_with_the_labels_of_the_list(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new_rich();
    bool seen[RENDER_FAMILY_COUNT] = {0};
    for (const char *at = fixture_page(f, TEXT_FORMAT_PROMETHEUS); *at; at = strchr(at, '\n') + 1) {
        if (*at == '#' || strncmp(at, "DCGM_", 5) == 0)
            continue;
        size_t family = family_of_line(at);
        assert_true(family < RENDER_FAMILY_COUNT);
        seen[family] = true;
        struct buf names = BUF_INIT(1024);
        add_label_names(at, render_families[family].labels, &names);
        assert_string_equal(names.data, render_families[family].labels);
        buf_deinit(&names);
    }
    for (size_t i = 0; i < RENDER_FAMILY_COUNT; i++)
        if (!seen[i] && !is_tested_elsewhere(i))
            fail_msg("no line of %s", render_families[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clocks_events_are_states_of_each_reason),
        cmocka_unit_test(test_the_recovery_action_is_a_word),
        cmocka_unit_test(test_each_xid_that_came_has_its_advice),
        cmocka_unit_test(test_without_podgpus_families_there_is_no_health),
        cmocka_unit_test(test_a_lost_gpu_is_down_and_keeps_its_evidence),
        cmocka_unit_test(test_a_gpu_marked_down_says_why_and_comes_back),
        cmocka_unit_test(test_podgpu_families_can_be_left_out),
        cmocka_unit_test(test_critical_codes_start_at_zero_while_somebody_listens),
        cmocka_unit_test(test_xid_errors_are_counted_by_code_in_ascending_order),
        cmocka_unit_test(test_fields_say_where_they_come_from_or_why_they_do_not),
        cmocka_unit_test(test_flags_without_effect_are_listed),
        cmocka_unit_test(test_each_number_about_ourselves_has_its_line),
        cmocka_unit_test(test_what_is_off_or_unknown_has_no_line),
        cmocka_unit_test(test_source_state_follows_the_inventory),
        cmocka_unit_test(test_a_driver_that_is_released_is_not_up),
        cmocka_unit_test(test_each_listed_family_is_printed_with_the_labels_of_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
