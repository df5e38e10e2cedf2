// SPDX-License-Identifier: Apache-2.0
// The counter files that are installed, and the one of the simulated node of the blog post.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/limits.h"
#include "exporter/counters.h"

struct expected {
    uint16_t id;
    const char *name, *type, *help;
};

#define PCIE_RATE(verb)                                                                            \
    "The rate of data " verb                                                                       \
    " over the PCIe bus - including both protocol headers and data payloads - in bytes per "       \
    "second."

// dcgm-exporter 4.8.4's default-counters.csv and dcp-metrics-included.csv.
static const struct expected stock[] = {
    {1, "DCGM_FI_DRIVER_VERSION", "label", "Driver Version"},
    {100, "DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz)."},
    {101, "DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz)."},
    {140, "DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C)."},
    {150, "DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."},
    {155, "DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."},
    {156, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter",
     "Total energy consumption since boot (in mJ)."},
    {202, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Total number of PCIe retries."},
    {203, "DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."},
    {204, "DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %)."},
    {206, "DCGM_FI_DEV_ENC_UTIL", "gauge", "Encoder utilization (in %)."},
    {207, "DCGM_FI_DEV_DEC_UTIL", "gauge", "Decoder utilization (in %)."},
    {230, "DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered."},
    {251, "DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB)."},
    {252, "DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB)."},
    {253, "DCGM_FI_DEV_FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB)."},
    {393, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter",
     "Number of remapped rows for uncorrectable errors"},
    {394, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter",
     "Number of remapped rows for correctable errors"},
    {395, "DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether remapping of rows has failed"},
    {449, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gauge",
     "Total number of NVLink bandwidth counters for all lanes."},
    {526, "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "gauge", "vGPU License status"},
    {1001, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge",
     "Ratio of time the graphics engine is active."},
    {1004, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge",
     "Ratio of cycles the tensor (HMMA) pipe is active."},
    {1005, "DCGM_FI_PROF_DRAM_ACTIVE", "gauge",
     "Ratio of cycles the device memory interface is active sending or receiving data."},
    {1009, "DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", PCIE_RATE("transmitted")},
    {1010, "DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", PCIE_RATE("received")},
};

// dcgm-exporter's 1.x-compatibility-metrics.csv, its two rows that stand there twice once.
static const struct expected old[] = {
    {100, "dcgm_sm_clock", "gauge", "SM clock frequency (in MHz)."},
    {101, "dcgm_memory_clock", "gauge", "Memory clock frequency (in MHz)."},
    {140, "dcgm_memory_temp", "gauge", "Memory temperature (in C)."},
    {150, "dcgm_gpu_temp", "gauge", "GPU temperature (in C)."},
    {155, "dcgm_power_usage", "gauge", "Power draw (in W)."},
    {156, "dcgm_total_energy_consumption", "counter",
     "Total energy consumption since boot (in mJ)."},
    {202, "dcgm_pcie_replay_counter", "counter", "Total number of PCIe retries."},
    {203, "dcgm_gpu_utilization", "gauge", "GPU utilization (in %)."},
    {204, "dcgm_mem_copy_utilization", "gauge", "Memory utilization (in %)."},
    {206, "dcgm_enc_utilization", "gauge", "Encoder utilization (in %)."},
    {207, "dcgm_dec_utilization", "gauge", "Decoder utilization (in %)."},
    {230, "dcgm_xid_errors", "gauge", "Value of the last XID error encountered."},
    {251, "dcgm_fb_free", "gauge", "Framebuffer memory free (in MiB)."},
    {252, "dcgm_fb_used", "gauge", "Framebuffer memory used (in MiB)."},
    {449, "dcgm_nvlink_bandwidth_total", "counter",
     "Total number of NVLink bandwidth counters for all lanes"},
    {1001, "dcgm_fi_prof_gr_engine_active", "gauge",
     "Ratio of time the graphics engine is active (in %)."},
    {1004, "dcgm_fi_prof_pipe_tensor_active", "gauge",
     "Ratio of cycles the tensor (HMMA) pipe is active (in %)."},
    {1005, "dcgm_fi_prof_dram_active", "gauge",
     "Ratio of cycles the device memory interface is active sending or receiving data (in %)."},
    {1009, "dcgm_fi_prof_pcie_tx_bytes", "counter",
     "Total number of bytes transmitted through PCIe TX via NVML."},
    {1010, "dcgm_fi_prof_pcie_rx_bytes", "counter",
     "Total number of bytes received through PCIe RX via NVML."},
};

static struct counter_list load(const char *path)
{
    struct counter_list l = {0};
    struct error err = ERROR_INIT;
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    assert_int_equal(file_read(path, &text, &err), 0);
    if (counters_parse(buf_sv(&text), path, &l, &err) != 0)
        fail_msg("%s:%u:%u: %s", path, err.line, err.column, err.text);
    buf_deinit(&text);
    return l;
}

static void assert_rows(const char *path, const struct expected *rows, size_t count)
{
    struct counter_list l = load(path);
    assert_int_equal(l.count, count);
    assert_int_equal(l.duplicates, 0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(l.rows[i].field->id, rows[i].id);
        assert_string_equal(l.rows[i].name, rows[i].name);
        assert_string_equal(l.rows[i].type_text, rows[i].type);
        assert_string_equal(l.rows[i].help, rows[i].help);
    }
    counter_list_deinit(&l);
}

static void stock_files_enable_what_dcgm_exporter_does(void **state)
{
    (void)state;
    assert_rows(SOURCE_ROOT "/etc/default-counters.csv", stock, ARRAY_SIZE(stock));
    assert_rows(SOURCE_ROOT "/etc/dcp-metrics-included.csv", stock, ARRAY_SIZE(stock));
    assert_rows(SOURCE_ROOT "/etc/1.x-compatibility-metrics.csv", old, ARRAY_SIZE(old));
}

static size_t commented_rows(const char *path)
{
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    struct error err = ERROR_INIT;
    assert_int_equal(file_read(path, &text, &err), 0);
    struct sv rest = buf_sv(&text), line;
    size_t count = 0;
    while (sv_next(&rest, '\n', &line)) {
        if (!sv_starts_with(line, SV("# DCGM_")) && !sv_starts_with(line, SV("# dcgm_")))
            continue;
        struct counter_list l = {0};
        if (counters_parse(sv_sub(line, 2, line.len), path, &l, &err) != 0)
            fail_msg("%.*s: %s", SV_FMT(line), err.text);
        assert_int_equal(l.count, 1);
        counter_list_deinit(&l);
        count++;
    }
    buf_deinit(&text);
    return count;
}

static void commented_rows_parse_when_the_sign_is_taken_away(void **state)
{
    (void)state;
    assert_int_equal(commented_rows(SOURCE_ROOT "/etc/default-counters.csv"), 43);
    assert_int_equal(commented_rows(SOURCE_ROOT "/etc/dcp-metrics-included.csv"), 33);
    assert_int_equal(commented_rows(SOURCE_ROOT "/etc/1.x-compatibility-metrics.csv"), 19);
}

static void the_posts_counters_match_its_page(void **state)
{
    (void)state;
    struct counter_list l = load(SOURCE_ROOT "/sim/scenarios/post/counters.csv");
    struct buf page = BUF_INIT(LIMIT_CONFIG_FILE_BYTES), heads = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    struct error err = ERROR_INIT;
    assert_int_equal(file_read(SOURCE_ROOT "/tests/blog/metrics.txt", &page, &err), 0);
    size_t labels = 0, families = 0;
    for (size_t i = 0; i < l.count; i++) {
        if (l.rows[i].type == COUNTER_LABEL) {
            labels++;
            assert_string_equal(l.rows[i].name, "DCGM_FI_DRIVER_VERSION");
            continue;
        }
        families++;
        buf_add_fmt(&heads, "# HELP %s %s\n# TYPE %s %s\n", l.rows[i].name, l.rows[i].help,
                    l.rows[i].name, l.rows[i].type_text);
    }
    assert_int_equal(labels, 1);
    assert_int_equal(families, 23);
    // Each head stands on the page, and the page has no other.
    struct sv rest = buf_sv(&heads), line;
    while (sv_next(&rest, '\n', &line))
        if (sv_find(buf_sv(&page), line) == (size_t)-1)
            fail_msg("not on the page: %.*s", SV_FMT(line));
    rest = buf_sv(&page);
    while (sv_next(&rest, '\n', &line))
        if (sv_starts_with(line, SV("# ")) && sv_find(buf_sv(&heads), line) == (size_t)-1)
            fail_msg("not in the file: %.*s", SV_FMT(line));
    buf_deinit(&page);
    buf_deinit(&heads);
    counter_list_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stock_files_enable_what_dcgm_exporter_does),
        cmocka_unit_test(commented_rows_parse_when_the_sign_is_taken_away),
        cmocka_unit_test(the_posts_counters_match_its_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
