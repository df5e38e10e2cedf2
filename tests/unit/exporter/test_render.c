// SPDX-License-Identifier: Apache-2.0
// The families of the counters file: layout, labels, values, freshness, selection, escaping, both
// formats.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/num.h"
#include "gpu/xid.h"
#include "render_fixture.h"

#define DRIVER 1
#define SM_CLOCK 100
#define GPU_TEMP 150
#define POWER 155
#define ENERGY 156
#define GPU_UTIL 203
#define XID 230
#define FB_USED 252

#define U0 "GPU-00000000-0000-0000-0000-000000000000"
#define GPU0                                                                                       \
    "gpu=\"0\",UUID=\"" U0                                                                         \
    "\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia0\",modelName=\"NVIDIA T4\""

static struct fixture *one_gpu(const char *csv)
{
    struct fixture *f = fixture_new(csv, "f");
    fixture_add_gpu(f, "NVIDIA T4");
    fixture_list(f);
    return f;
}

// --- The page of the post ---

// Its counters file, read back from its HELP and TYPE lines.
static void add_counters(struct sv text, struct buf *csv)
{
    struct sv line, word, help = {0};
    buf_add_str(csv, "DCGM_FI_DRIVER_VERSION, label, Driver Version\n");
    while (sv_next(&text, '\n', &line)) {
        if (sv_starts_with(line, SV("# HELP "))) {
            line = sv_sub(line, 7, line.len);
            assert_true(sv_next(&line, ' ', &word));
            help = line;
        } else if (sv_starts_with(line, SV("# TYPE "))) {
            line = sv_sub(line, 7, line.len);
            assert_true(sv_next(&line, ' ', &word));
            buf_add_fmt(csv, "%.*s, %.*s, %.*s\n", SV_FMT(word), SV_FMT(line), SV_FMT(help));
        }
    }
    assert_int_equal(csv->error, 0);
}

static void set_values(struct fixture *f, struct sv text)
{
    struct sv line;
    while (sv_next(&text, '\n', &line)) {
        if (line.ptr[0] == '#')
            continue;
        struct sv name = sv_sub(line, 0, sv_find_char(line, '{'));
        const struct field_info *field = field_find_by_name(name);
        assert_non_null(field);
        struct sv value = sv_sub(line, sv_find(line, SV("} ")) + 2, line.len);
        int64_t i64;
        double f64;
        if (num_parse_i64(value, INT64_MIN, INT64_MAX, &i64) == 0) {
            fixture_i64(f, 0, field->id, i64);
        } else {
            assert_int_equal(num_parse_double(value, &f64), 0);
            fixture_f64(f, 0, field->id, f64);
        }
    }
}

// Takes out what later versions of dcgm-exporter added to each line.
static void remove_all(char *text, const char *what)
{
    size_t length = strlen(what);
    for (char *at = text; (at = strstr(at, what));)
        memmove(at, at + length, strlen(at + length) + 1);
}

static void test_the_page_of_the_post_is_reproduced_to_the_byte(void **state)
{
    struct buf text = BUF_INIT(1 << 20), csv = BUF_INIT(1 << 20);
    assert_int_equal(file_read(SOURCE_ROOT "/tests/blog/metrics.txt", &text, NULL), 0);
    add_counters(buf_sv(&text), &csv);
    cleanup(fixture_freep) struct fixture *f = fixture_new(buf_cstr(&csv), "f");
    f->options.hostname_label = HOSTNAME_LABEL_UPPER;
    sv_copy(f->options.hostname, sizeof(f->options.hostname), SV("nvidia-dcgm-exporter-48cwd"));
    fixture_add_gpu(f, "NVIDIA A10G");
    sv_copy(f->entities[0].uuid, sizeof(f->entities[0].uuid),
            SV("GPU-ff76466b-22fc-f7a9-abe2-ce3ac453b8b3"));
    fixture_list(f);
    fixture_string(f, 0, DRIVER, "470.182.03");
    set_values(f, buf_sv(&text));
    fixture_hold(f, 0, "kube-system", "gpu-burn-c68d8c774-ltg9s", "main", NULL);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    char *page = f->page.data;
    remove_all(page, ",pci_bus_id=\"00000000:1B:00.0\"");
    remove_all(page, ",err_code=\"0\",err_msg=\"No Error\"");

    // Its families stand in the order of its counters file, ours by field id, as dcgm-exporter has
    // it since 3.x.
    size_t families = 0, bytes = 0;
    const char *end;
    for (const char *at = buf_cstr(&text); *at; at = end) {
        end = strstr(at + 1, "\n# HELP ");
        end = end ? end + 1 : at + strlen(at);
        char name[128];
        const char *space = strchr(at + 7, ' ');
        snprintf(name, sizeof(name), "%.*s", (int)(space - at - 7), at + 7);
        char want[4096];
        assert_true((size_t)(end - at) < sizeof(want));
        snprintf(want, sizeof(want), "%.*s", (int)(end - at), at);
        f->page.len = strlen(page);
        assert_string_equal(fixture_family(f, name), want);
        families++;
        bytes += strlen(want);
    }
    assert_int_equal(families, 23);
    assert_int_equal(bytes, text.len);
    buf_deinit(&text);
    buf_deinit(&csv);
}

// --- Layout ---

static void test_a_sample_looks_as_dcgm_exporter_prints_it(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new("DCGM_FI_DEV_GPU_TEMP, gauge, \n", "f");
    fixture_add_gpu(f, "NVIDIA T400 4GB");
    f->entities[0].bus_id[0] = '\0';
    fixture_list(f);
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, "DCGM_FI_DEV_GPU_TEMP"),
                        "# HELP DCGM_FI_DEV_GPU_TEMP \n"
                        "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
                        "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"" U0
                        "\",pci_bus_id=\"\",device=\"nvidia0\","
                        "modelName=\"NVIDIA T400 4GB\",hostname=\"testhost\"} 42\n");
}

static void test_families_ascend_by_field_id_whatever_the_file_says(void **state)
{
    cleanup(fixture_freep) struct fixture *f = one_gpu("DCGM_FI_DEV_FB_USED, gauge, c\n"
                                                       "DCGM_FI_DEV_SM_CLOCK, gauge, a\n"
                                                       "DCGM_FI_DEV_GPU_UTIL, gauge, b\n");
    fixture_i64(f, 0, FB_USED, 3);
    fixture_i64(f, 0, SM_CLOCK, 1);
    fixture_i64(f, 0, GPU_UTIL, 2);
    const char *page = fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    const char *a = strstr(page, "# HELP DCGM_FI_DEV_SM_CLOCK a\n"),
               *b = strstr(page, "# HELP DCGM_FI_DEV_GPU_UTIL b\n"),
               *c = strstr(page, "# HELP DCGM_FI_DEV_FB_USED c\n");
    assert_ptr_equal(a, page);
    assert_true(a < b && b < c);
}

static void test_samples_follow_the_order_of_the_devices(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new("DCGM_FI_DEV_GPU_TEMP, gauge, t\n", "f");
    for (int i = 0; i < 3; i++)
        fixture_add_gpu(f, "NVIDIA T4");
    fixture_list(f);
    for (uint32_t i = 3; i-- > 0;)
        fixture_i64(f, i, GPU_TEMP, 40 + i);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, "DCGM_FI_DEV_GPU_TEMP"),
                        "# HELP DCGM_FI_DEV_GPU_TEMP t\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
                        "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-00000000-0000-0000-0000-"
                        "000000000000\",pci_bus_id=\"00000000:1B:00.0\","
                        "device=\"nvidia0\",modelName=\"NVIDIA T4\",hostname=\"testhost\"} 40\n"
                        "DCGM_FI_DEV_GPU_TEMP{gpu=\"1\",UUID=\"GPU-00000000-0000-0000-0000-"
                        "000000000001\",pci_bus_id=\"00000000:1C:00.0\","
                        "device=\"nvidia1\",modelName=\"NVIDIA T4\",hostname=\"testhost\"} 41\n"
                        "DCGM_FI_DEV_GPU_TEMP{gpu=\"2\",UUID=\"GPU-00000000-0000-0000-0000-"
                        "000000000002\",pci_bus_id=\"00000000:1D:00.0\","
                        "device=\"nvidia2\",modelName=\"NVIDIA T4\",hostname=\"testhost\"} 42\n");
}

static void test_device_is_named_by_index_not_by_minor_number(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new("DCGM_FI_DEV_GPU_TEMP, gauge, t\n", "f");
    fixture_add_gpu(f, "NVIDIA T4");
    f->entities[0].minor = 3;
    fixture_list(f);
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "DCGM_FI_DEV_GPU_TEMP{" GPU0 ",hostname=\"testhost\"} 42"));
}

static void test_old_namespace_spells_uuid_and_owner_its_way(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        one_gpu("dcgm_gpu_temp, gauge, t\ndcgm_xid_errors, gauge, x\n");
    f->options.flags.use_old_namespace = true;
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_i64(f, 0, XID, 0);
    fixture_hold(f, 0, "ns", "p", "c", NULL);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(
        f,
        "dcgm_gpu_temp{gpu=\"0\",uuid=\"" U0
        "\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia0\","
        "modelName=\"NVIDIA "
        "T4\",hostname=\"testhost\",container_name=\"c\",pod_name=\"p\",pod_namespace=\"ns\"} 42"));
    assert_true(fixture_has_line(
        f, "dcgm_xid_errors{gpu=\"0\",uuid=\"" U0
           "\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia0\","
           "modelName=\"NVIDIA "
           "T4\",hostname=\"testhost\",container_name=\"c\",err_code=\"0\",err_msg=\"No Error\","
           "pod_name=\"p\",pod_namespace=\"ns\"} 0"));
}

static void test_hostname_label_follows_its_option(void **state)
{
    static const struct {
        enum hostname_label option;
        const char *hostname, *labels;
    } cases[] = {
        {HOSTNAME_LABEL_LOWER, "h", ",hostname=\"h\""},
        {HOSTNAME_LABEL_UPPER, "h", ",Hostname=\"h\""},
        {HOSTNAME_LABEL_BOTH, "h", ",Hostname=\"h\",hostname=\"h\""},
        {HOSTNAME_LABEL_NONE, "h", ""},
        {HOSTNAME_LABEL_LOWER, "", ""},
        {HOSTNAME_LABEL_BOTH, "", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(fixture_freep) struct fixture *f = one_gpu("DCGM_FI_DEV_GPU_TEMP, gauge, t\n");
        f->options.hostname_label = cases[i].option;
        sv_copy(f->options.hostname, sizeof(f->options.hostname), sv_from(cases[i].hostname));
        fixture_i64(f, 0, GPU_TEMP, 42);
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        char line[512];
        snprintf(line, sizeof(line), "DCGM_FI_DEV_GPU_TEMP{" GPU0 "%s} 42", cases[i].labels);
        assert_true(fixture_has_line(f, line));
        snprintf(line, sizeof(line), "podgpu_gpu_up{gpu=\"0\",UUID=\"" U0 "\"%s} 1",
                 cases[i].labels);
        assert_true(fixture_has_line(f, line));
    }
}

static void test_blanks_in_the_model_name_become_single_dashes_on_request(void **state)
{
    static const struct {
        const char *name, *kept, *replaced;
    } cases[] = {
        {"NVIDIA T400 4GB", "NVIDIA T400 4GB", "NVIDIA-T400-4GB"},
        {"  NVIDIA \t A100  ", "  NVIDIA \t A100  ", "NVIDIA-A100"},
        {"", "", ""},
        {"   ", "   ", ""},
        {"GB200", "GB200", "GB200"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        for (int replace = 0; replace < 2; replace++) {
            cleanup(fixture_freep) struct fixture *f =
                fixture_new("DCGM_FI_DEV_GPU_TEMP, gauge, t\n", "f");
            f->options.flags.replace_blanks = replace;
            fixture_add_gpu(f, cases[i].name);
            fixture_list(f);
            fixture_i64(f, 0, GPU_TEMP, 42);
            fixture_page(f, TEXT_FORMAT_PROMETHEUS);
            char line[512];
            const char *model = replace ? cases[i].replaced : cases[i].kept;
            snprintf(line, sizeof(line),
                     "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"" U0
                     "\",pci_bus_id=\"00000000:1B:00.0\","
                     "device=\"nvidia0\",modelName=\"%s\",hostname=\"testhost\"} 42",
                     model);
            assert_true(fixture_has_line(f, line));
            snprintf(line, sizeof(line),
                     "podgpu_gpu_info{gpu=\"0\",UUID=\"" U0
                     "\",hostname=\"testhost\",modelName=\"%s\","
                     "pci_bus_id=\"00000000:1B:00.0\",driver_version=\"\"} 1",
                     model);
            assert_true(fixture_has_line(f, line));
        }
    }
}

// --- Configured labels ---

static void test_configured_labels_stand_by_name_before_the_owner(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        one_gpu("DCGM_FI_NVML_VERSION, label, n\nDCGM_FI_DEV_GPU_TEMP, gauge, t\n"
                "DCGM_FI_DRIVER_VERSION, label, d\nDCGM_FI_DEV_SERIAL, label, s\n"
                "DCGM_FI_DEV_SM_CLOCK, label, c\nDCGM_FI_DEV_POWER_USAGE, label, p\n");
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_string(f, 0, DRIVER, "550.54");
    fixture_string(f, 0, 2, "12.550.54");
    fixture_string(f, 0, 53, ""); // empty is a value
    fixture_i64(f, 0, SM_CLOCK, 1410);
    fixture_f64(f, 0, POWER, 70.5);
    fixture_hold(f, 0, "ns", "p", "c", NULL);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(
        f,
        "DCGM_FI_DEV_GPU_TEMP{" GPU0 ",hostname=\"testhost\",DCGM_FI_DEV_POWER_USAGE=\"70.500000\","
        "DCGM_FI_DEV_SERIAL=\"\",DCGM_FI_DEV_SM_CLOCK=\"1410\",DCGM_FI_DRIVER_VERSION=\"550.54\","
        "DCGM_FI_NVML_VERSION=\"12.550.54\",container=\"c\",namespace=\"ns\",pod=\"p\"} 42"));
    assert_string_equal(fixture_family(f, "DCGM_FI_DRIVER_VERSION"),
                        ""); // never a family of its own
}

static void test_a_label_without_a_value_is_left_out(void **state)
{
    static const char *const blanks[] = {"<<<NULL>>>", "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>",
                                         "<<<NOT_PERMISSIONED>>>"};
    for (size_t i = 0; i <= ARRAY_SIZE(blanks); i++) {
        cleanup(fixture_freep) struct fixture *f =
            one_gpu("DCGM_FI_DRIVER_VERSION, label, d\nDCGM_FI_DEV_GPU_TEMP, gauge, t\n");
        if (i < ARRAY_SIZE(blanks))
            fixture_string(f, 0, DRIVER, blanks[i]);
        fixture_i64(f, 0, GPU_TEMP, 42);
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        assert_true(fixture_has_line(f, "DCGM_FI_DEV_GPU_TEMP{" GPU0 ",hostname=\"testhost\"} 42"));
    }
}

static void test_a_changed_label_is_on_the_next_page(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        one_gpu("DCGM_FI_DRIVER_VERSION, label, d\nDCGM_FI_DEV_SM_CLOCK, label, c\n"
                "DCGM_FI_DEV_GPU_TEMP, gauge, t\n");
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_string(f, 0, DRIVER, "one");
    fixture_i64(f, 0, SM_CLOCK, 1);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    fixture_string(f, 0, DRIVER, "two");
    fixture_i64(f, 0, SM_CLOCK, 2);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "DCGM_FI_DEV_GPU_TEMP{" GPU0
                                    ",hostname=\"testhost\",DCGM_FI_DEV_SM_CLOCK=\"2\","
                                    "DCGM_FI_DRIVER_VERSION=\"two\"} 42"));
}

static void test_a_label_that_clashes_with_a_built_in_one_is_renamed(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        one_gpu("DCGM_FI_DRIVER_VERSION, label, d\nDCGM_FI_DEV_GPU_TEMP, gauge, t\n");
    free(f->config.counters.rows[0].name);
    f->config.counters.rows[0].name = strdup("pod");
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_string(f, 0, DRIVER, "550");
    fixture_hold(f, 0, "ns", "p", "c", NULL);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "DCGM_FI_DEV_GPU_TEMP{" GPU0
                                    ",hostname=\"testhost\",label_pod=\"550\","
                                    "container=\"c\",namespace=\"ns\",pod=\"p\"} 42"));
}

// --- Values ---

static void test_integers_and_doubles_are_printed_as_go_prints_them(void **state)
{
    static const struct {
        enum frame_value_type type;
        int64_t i64;
        double f64;
        const char *text; // NULL: no sample
    } cases[] = {
        {FRAME_VALUE_I64, 0, 0, "0"},
        {FRAME_VALUE_I64, -100, 0, "-100"},
        {FRAME_VALUE_I64, 1000000000, 0, "1000000000"},
        {FRAME_VALUE_I64, INT64_MIN, 0, "-9223372036854775808"},
        {FRAME_VALUE_I64, INT64_MAX, 0, "9223372036854775807"},
        {FRAME_VALUE_I64, 2147483631, 0, "2147483631"},
        {FRAME_VALUE_I64, 2147483632, 0, NULL},
        {FRAME_VALUE_I64, 2147483633, 0, NULL},
        {FRAME_VALUE_I64, 2147483634, 0, NULL},
        {FRAME_VALUE_I64, 2147483635, 0, NULL},
        {FRAME_VALUE_I64, 2147483636, 0, "2147483636"},
        {FRAME_VALUE_I64, 9223372036854775791, 0, "9223372036854775791"},
        {FRAME_VALUE_I64, 9223372036854775792, 0, NULL},
        {FRAME_VALUE_I64, 9223372036854775795, 0, NULL},
        {FRAME_VALUE_I64, 9223372036854775796, 0, "9223372036854775796"},
        {FRAME_VALUE_DOUBLE, 0, 0.0, "0.000000"},
        {FRAME_VALUE_DOUBLE, 0, 68.123, "68.123000"},
        {FRAME_VALUE_DOUBLE, 0, -100.5, "-100.500000"},
        {FRAME_VALUE_DOUBLE, 0, 1e300,
         "1000000000000000052504760255204420248704468581108159154915854115111802457988908195"
         "786371375080447854045104832651162454774545848733030204440300765855704829158000"
         "67841842346842612637793205463101344882929664.000000"},
        {FRAME_VALUE_DOUBLE, 0, 140737488355327.0, "140737488355327.000000"},
        {FRAME_VALUE_DOUBLE, 0, 140737488355328.0, NULL},
        {FRAME_VALUE_DOUBLE, 0, 140737488355331.0, NULL},
        {FRAME_VALUE_DOUBLE, 0, 140737488355332.0, "140737488355332.000000"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(fixture_freep) struct fixture *f = one_gpu("DCGM_FI_DEV_POWER_USAGE, gauge, p\n");
        fixture_record(f, 0, POWER, FRAME_OK, cases[i].type, cases[i].i64, cases[i].f64, NULL);
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        char want[1024], printed[512];
        if (cases[i].type == FRAME_VALUE_DOUBLE && cases[i].text) {
            snprintf(printed, sizeof(printed), "%f",
                     cases[i].f64); // the C library judges the long one
            snprintf(want, sizeof(want),
                     "DCGM_FI_DEV_POWER_USAGE{" GPU0 ",hostname=\"testhost\"} %s", printed);
            assert_true(fixture_has_line(f, want));
            if (strlen(cases[i].text) < 30)
                assert_string_equal(printed, cases[i].text);
        } else if (cases[i].text) {
            snprintf(want, sizeof(want),
                     "DCGM_FI_DEV_POWER_USAGE{" GPU0 ",hostname=\"testhost\"} %s", cases[i].text);
            assert_true(fixture_has_line(f, want));
        } else {
            assert_string_equal(fixture_family(f, "DCGM_FI_DEV_POWER_USAGE"), "");
        }
    }
}

static void test_text_is_no_value_of_a_gauge(void **state)
{
    cleanup(fixture_freep) struct fixture *f = one_gpu("DCGM_FI_DEV_SERIAL, gauge, s\n");
    fixture_string(f, 0, 53, "1234");
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, "DCGM_FI_DEV_SERIAL"), "");
    assert_true(
        fixture_has_line(f, "podgpu_exporter_field_unavailable_info{field=\"DCGM_FI_DEV_SERIAL\","
                            "reason=\"not_numeric\",gpu=\"0\",UUID=\"" U0 "\"} 1"));
}

static void test_the_words_of_the_file_stand_on_the_type_line(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        one_gpu("DCGM_FI_DEV_SM_CLOCK, gauge, a\nDCGM_FI_DEV_GPU_TEMP, counter, "
                "b\nDCGM_FI_DEV_GPU_UTIL, histogram, c\n"
                "DCGM_FI_DEV_FB_USED, summary, d\n");
    static const uint16_t ids[] = {SM_CLOCK, GPU_TEMP, GPU_UTIL, FB_USED};
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        fixture_i64(f, 0, ids[i], 1);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "# TYPE DCGM_FI_DEV_SM_CLOCK gauge"));
    assert_true(fixture_has_line(f, "# TYPE DCGM_FI_DEV_GPU_TEMP counter"));
    assert_true(fixture_has_line(f, "# TYPE DCGM_FI_DEV_GPU_UTIL histogram"));
    assert_true(fixture_has_line(f, "# TYPE DCGM_FI_DEV_FB_USED summary"));
    fixture_page(f, TEXT_FORMAT_OPENMETRICS); // where these words ask for samples of another shape
    assert_true(fixture_has_line(f, "# TYPE DCGM_FI_DEV_SM_CLOCK gauge"));
    assert_true(fixture_has_line(f, "# TYPE DCGM_FI_DEV_GPU_TEMP unknown"));
    assert_true(fixture_has_line(f, "# TYPE DCGM_FI_DEV_GPU_UTIL unknown"));
    assert_true(fixture_has_line(f, "# TYPE DCGM_FI_DEV_FB_USED unknown"));
}

static void test_each_status_but_ok_means_no_sample(void **state)
{
    for (int status = FRAME_OK + 1; status < FRAME_STATUS_END; status++) {
        cleanup(fixture_freep) struct fixture *f = one_gpu("DCGM_FI_DEV_GPU_TEMP, gauge, t\n");
        fixture_status(f, 0, GPU_TEMP, (enum frame_status)status);
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        assert_string_equal(fixture_family(f, "DCGM_FI_DEV_GPU_TEMP"), "");
        char line[256];
        snprintf(line, sizeof(line),
                 "podgpu_exporter_field_unavailable_info{field=\"DCGM_FI_DEV_GPU_TEMP\",reason=\"%"
                 "s\",gpu=\"0\","
                 "UUID=\"" U0 "\"} 1",
                 frame_status_text((enum frame_status)status));
        assert_true(fixture_has_line(f, line));
    }
}

// --- Freshness ---

static void test_a_value_is_shown_up_to_its_horizon_and_not_a_nanosecond_longer(void **state)
{
    static const struct {
        uint64_t fast_period_ns, horizon_ns;
    } cases[] = {
        {NS_PER_S, 15 * NS_PER_S}, {5 * NS_PER_S, 15 * NS_PER_S}, {30 * NS_PER_S, 90 * NS_PER_S}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(fixture_freep) struct fixture *f =
            one_gpu("DCGM_FI_DEV_GPU_UTIL, gauge, u\nDCGM_FI_DEV_GPU_TEMP, gauge, t\n");
        const struct field_info *field = field_find(GPU_UTIL);
        f->config.period_ns[field->cost] = cases[i].fast_period_ns;
        fixture_i64(f, 0, GPU_UTIL, 42);
        for (int late = -1; late <= 1; late++) {
            f->now_ns = FIXTURE_NOW_NS + cases[i].horizon_ns + (uint64_t)late;
            fixture_page(f, TEXT_FORMAT_PROMETHEUS);
            bool shown = fixture_family(f, "DCGM_FI_DEV_GPU_UTIL")[0] != '\0';
            assert_int_equal(shown, late <= 0);
            assert_int_equal(shown, inventory_find(&f->inventory, &f->inventory.entities[0], field,
                                                   f->config.period_ns, f->now_ns) != NULL);
        }
        assert_true(fixture_has_line(
            f, "podgpu_exporter_field_unavailable_info{field=\"DCGM_FI_DEV_GPU_UTIL\","
               "reason=\"stale\",gpu=\"0\",UUID=\"" U0 "\"} 1"));
        fixture_i64(f, 0, GPU_UTIL, 43);
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        assert_true(fixture_has_line(f, "DCGM_FI_DEV_GPU_UTIL{" GPU0 ",hostname=\"testhost\"} 43"));
        assert_null(strstr(buf_cstr(&f->page), "reason=\"stale\""));
    }
}

// The page looks values up by position; inventory_find is the rule.
static void test_a_page_shows_what_inventory_find_finds(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        fixture_new("DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_FB_USED, gauge, "
                    "u\nDCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, v\n"
                    "DCGM_FI_DEV_COUNT, gauge, c\nDCGM_FI_PROF_PCIE_TX_BYTES, gauge, "
                    "p\nDCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, g\n"
                    "DCGM_FI_PROF_DRAM_ACTIVE, gauge, d\nDCGM_FI_DEV_ENC_UTIL, gauge, e\n",
                    "g+i");
    uint32_t gpu = fixture_add_gpu(f, "NVIDIA H100");
    fixture_add_instance(f, gpu, 1, "1g.10gb");
    fixture_add_gpu(f, "NVIDIA H100");
    fixture_list(f);
    unsigned shown = 0, all = 0;
    for (unsigned round = 0; round < 64; round++) {
        for (size_t i = 0; i < f->inventory.field_count; i++) {
            for (uint32_t e = 0; e < 3; e++) {
                unsigned mix = (round * 7 + (unsigned)i * 5 + e * 3) % 11;
                f->now_ns = FIXTURE_NOW_NS + round * NS_PER_S;
                if (mix < 5)
                    fixture_i64(f, e, f->inventory.fields[i], 1);
                else if (mix < 7)
                    fixture_status(f, e, f->inventory.fields[i], FRAME_NOT_SUPPORTED);
            }
        }
        f->now_ns += (round % 3) * 12 * NS_PER_S;
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        for (size_t i = 0; i < f->config.counters.count; i++) {
            const struct counter *c = &f->config.counters.rows[i];
            unsigned found = 0, lines = 0;
            for (size_t e = 0; e < 3; e++)
                found += inventory_find(&f->inventory, &f->inventory.entities[e], c->field,
                                        f->config.period_ns, f->now_ns) != NULL;
            char start[128];
            snprintf(start, sizeof(start), "\n%s{", c->name);
            for (const char *at = buf_cstr(&f->page); (at = strstr(at, start)); at++)
                lines++;
            assert_int_equal(lines, found);
            shown += found;
            all += 3;
        }
    }
    assert_true(shown > all / 4 && shown < all); // both outcomes were met
}

// --- XID ---

static void test_the_last_xid_has_its_text_among_the_attributes(void **state)
{
    static const struct {
        uint32_t code;
        const char *message;
    } cases[] = {{42, "Video processor exception"},
                 {79, "GPU has fallen off the bus"},
                 {172, "Uncorrectable SRAM Error"},
                 {173, "Unknown Error"},
                 {255, "Unknown Error"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(fixture_freep) struct fixture *f =
            one_gpu("DCGM_FI_DEV_XID_ERRORS, gauge, x\nDCGM_FI_DRIVER_VERSION, label, d\n");
        fixture_string(f, 0, DRIVER, "550");
        fixture_i64(f, 0, XID, 0);
        fixture_hold(f, 0, "ns", "p", "c", NULL);
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        assert_true(fixture_has_line(
            f,
            "DCGM_FI_DEV_XID_ERRORS{" GPU0 ",hostname=\"testhost\",DCGM_FI_DRIVER_VERSION=\"550\","
            "container=\"c\",err_code=\"0\",err_msg=\"No Error\",namespace=\"ns\",pod=\"p\"} 0"));
        fixture_xid(f, 0, UINT32_MAX, cases[i].code, FIXTURE_WALL_NS);
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        char line[512];
        snprintf(line, sizeof(line),
                 "DCGM_FI_DEV_XID_ERRORS{" GPU0
                 ",hostname=\"testhost\",DCGM_FI_DRIVER_VERSION=\"550\",container=\"c\","
                 "err_code=\"%u\",err_msg=\"%s\",namespace=\"ns\",pod=\"p\"} %u",
                 cases[i].code, cases[i].message, cases[i].code);
        assert_true(fixture_has_line(f, line));
    }
}

static void test_the_texts_of_xids_need_no_escaping(void **state)
{
    for (size_t code = 0; code <= xid_message_count; code++)
        for (const char *at = xid_error_message(code); *at; at++)
            assert_true(*at >= ' ' && *at <= '~' && *at != '"' && *at != '\\');
}

static void test_no_xid_without_somebody_listening(void **state)
{
    cleanup(fixture_freep) struct fixture *f = one_gpu("DCGM_FI_DEV_XID_ERRORS, gauge, x\n");
    fixture_status(f, 0, XID, FRAME_NO_DATA);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, "DCGM_FI_DEV_XID_ERRORS"), "");
    assert_true(fixture_has_line(
        f, "podgpu_exporter_field_unavailable_info{field=\"DCGM_FI_DEV_XID_ERRORS\","
           "reason=\"no_data\",gpu=\"0\",UUID=\"" U0 "\"} 1"));
}

// --- Selection ---

static void test_a_missing_device_leaves_no_device_families(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        fixture_new("DCGM_FI_DEV_GPU_TEMP, gauge, t\n", "g:0,7");
    fixture_add_gpu(f, "NVIDIA T4");
    fixture_list(f);
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(f, "DCGM_FI_DEV_GPU_TEMP"), "");
    assert_string_equal(render_selection_error(f->render, RENDER_GROUP_GPU),
                        "couldn't find requested GPU ID '7'");
    assert_true(fixture_has_line(f, "podgpu_exporter_device_selection_ok 0"));
    assert_true(
        fixture_has_line(f, "podgpu_gpu_up{gpu=\"0\",UUID=\"" U0 "\",hostname=\"testhost\"} 1"));
    for (int i = 0; i < 7; i++)
        fixture_add_gpu(f, "NVIDIA T4");
    fixture_list(f);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(render_selection_error(f->render, RENDER_GROUP_GPU), "");
    assert_true(fixture_has_line(f, "podgpu_exporter_device_selection_ok 1"));
    assert_true(fixture_has_line(f, "DCGM_FI_DEV_GPU_TEMP{" GPU0 ",hostname=\"testhost\"} 42"));
}

static void test_only_chosen_devices_are_shown(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        fixture_new("DCGM_FI_DEV_GPU_TEMP, gauge, t\n", "g:1");
    for (int i = 0; i < 3; i++)
        fixture_add_gpu(f, "NVIDIA T4");
    fixture_list(f);
    for (uint32_t i = 0; i < 3; i++)
        fixture_i64(f, i, GPU_TEMP, 42);
    const char *page = fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_non_null(strstr(page, "DCGM_FI_DEV_GPU_TEMP{gpu=\"1\""));
    assert_non_null(strstr(page, "podgpu_gpu_up{gpu=\"1\""));
    assert_null(strstr(page, "gpu=\"0\""));
    assert_null(strstr(page, "gpu=\"2\""));
}

// --- Escaping ---

static void test_foreign_text_is_escaped_repaired_and_cut(void **state)
{
    static char huge[LIMIT_LABEL_VALUE_BYTES + 100];
    memset(huge, 'x', sizeof(huge) - 1);
    static const struct {
        const char *raw, *shown;
    } cases[] = {
        {"a\"b\\c\nd", "a\\\"b\\\\c\\nd"},
        {"{}", "{}"},
        {"\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xe6\x97\xa5", "\xe6\x97\xa5"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(fixture_freep) struct fixture *f = one_gpu("DCGM_FI_DEV_GPU_TEMP, gauge, t\n");
        fixture_i64(f, 0, GPU_TEMP, 42);
        fixture_hold(f, 0, "ns", cases[i].raw, "c", NULL);
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        char line[512];
        snprintf(line, sizeof(line),
                 "DCGM_FI_DEV_GPU_TEMP{" GPU0 ",hostname=\"testhost\",container=\"c\","
                 "namespace=\"ns\",pod=\"%s\"} 42",
                 cases[i].shown);
        assert_true(fixture_has_line(f, line));
    }
    cleanup(fixture_freep) struct fixture *f = one_gpu("DCGM_FI_DEV_GPU_TEMP, gauge, t\n");
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_hold(f, 0, "ns", huge, "c", NULL);
    const char *page = fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    const char *at = strstr(page, ",pod=\"");
    assert_non_null(at);
    assert_int_equal(strspn(at + 6, "x"), LIMIT_LABEL_VALUE_BYTES);
    assert_memory_equal(at + 6 + LIMIT_LABEL_VALUE_BYTES, "\"} 42\n", 6);
}

static void test_help_text_is_escaped(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        one_gpu("DCGM_FI_DEV_GPU_TEMP,gauge,\"a \"\"b\"\" \\ c\nd\"\n");
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "# HELP DCGM_FI_DEV_GPU_TEMP a \"b\" \\\\ c\\nd"));
    fixture_page(f, TEXT_FORMAT_OPENMETRICS);
    assert_true(fixture_has_line(f, "# HELP DCGM_FI_DEV_GPU_TEMP a \\\"b\\\" \\\\ c\\nd"));
}

// --- OpenMetrics ---

static void test_openmetrics_ends_with_eof_and_keeps_the_samples(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        one_gpu("DCGM_FI_DEV_GPU_TEMP, gauge, t\n"
                "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, e\n");
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_i64(f, 0, ENERGY, 7);
    const char *page = fixture_page(f, TEXT_FORMAT_OPENMETRICS);
    const char *want = "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n# HELP DCGM_FI_DEV_GPU_TEMP t\n"
                       "DCGM_FI_DEV_GPU_TEMP{" GPU0 ",hostname=\"testhost\"} 42\n"
                       "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION unknown\n"
                       "# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION e\n"
                       "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{" GPU0 ",hostname=\"testhost\"} 7\n"
                       "# TYPE podgpu_gpu_up gauge\n";
    assert_memory_equal(page, want, strlen(want));
    size_t length = strlen(page);
    assert_string_equal(page + length - 7, "\n# EOF\n");
    assert_ptr_equal(strstr(page, "# EOF"), page + length - 6);
    assert_null(strstr(fixture_page(f, TEXT_FORMAT_PROMETHEUS), "# EOF"));
}

// --- Keeping ---

static void test_a_page_is_the_same_again_and_formats_do_not_disturb_each_other(void **state)
{
    cleanup(fixture_freep) struct fixture *f = one_gpu("DCGM_FI_DEV_GPU_TEMP, gauge, t\n");
    fixture_i64(f, 0, GPU_TEMP, 42);
    char *first = strdup(fixture_page(f, TEXT_FORMAT_PROMETHEUS));
    char *open = strdup(fixture_page(f, TEXT_FORMAT_OPENMETRICS));
    assert_string_equal(fixture_page(f, TEXT_FORMAT_PROMETHEUS), first);
    assert_string_equal(fixture_page(f, TEXT_FORMAT_OPENMETRICS), open);
    free(first);
    free(open);
}

static void test_another_configuration_is_noticed(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        one_gpu("DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_SM_CLOCK, gauge, c\n");
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_i64(f, 0, SM_CLOCK, 1);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    f->config.hash = 1;
    free(f->config.counters.rows[0].help);
    f->config.counters.rows[0].help = strdup("other");
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "# HELP DCGM_FI_DEV_SM_CLOCK other"));
}

static void test_series_are_counted(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        one_gpu("DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_SM_CLOCK, gauge, c\n");
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_i64(f, 0, SM_CLOCK, 1);
    const char *page = fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    size_t lines = 0, device, all;
    for (const char *at = page; *at; at = strchr(at, '\n') + 1)
        lines += *at != '#';
    render_counts(f->render, &device, &all);
    assert_int_equal(device, 2);
    assert_int_equal(all, lines);
}

static void test_a_page_over_its_ceiling_is_refused(void **state)
{
    cleanup(fixture_freep) struct fixture *f = one_gpu("DCGM_FI_DEV_GPU_TEMP, gauge, t\n");
    fixture_i64(f, 0, GPU_TEMP, 42);
    size_t bytes = strlen(fixture_page(f, TEXT_FORMAT_PROMETHEUS));
    const struct render_input in = fixture_input(f);
    for (size_t max = 0; max < bytes; max++) {
        struct buf out = BUF_INIT(max);
        assert_int_equal(render_page(f->render, &in, TEXT_FORMAT_PROMETHEUS, &out), -EFBIG);
        buf_deinit(&out);
    }
}

static void test_a_page_of_nothing_is_still_a_page(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new("", "f");
    struct render_input in = fixture_input(f);
    in.owners = NULL; // nobody is known
    assert_int_equal(render_page(f->render, &in, TEXT_FORMAT_PROMETHEUS, &f->page), 0);
    assert_true(
        fixture_has_line(f, "podgpu_exporter_build_info{version=\"1.2.3\",revision=\"abc\"} 1"));
    assert_true(fixture_has_line(f, "podgpu_exporter_source_up{source=\"nvml\"} 0"));
    assert_null(strstr(buf_cstr(&f->page), "podgpu_gpu_"));
    render_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_page_of_the_post_is_reproduced_to_the_byte),
        cmocka_unit_test(test_a_sample_looks_as_dcgm_exporter_prints_it),
        cmocka_unit_test(test_families_ascend_by_field_id_whatever_the_file_says),
        cmocka_unit_test(test_samples_follow_the_order_of_the_devices),
        cmocka_unit_test(test_device_is_named_by_index_not_by_minor_number),
        cmocka_unit_test(test_old_namespace_spells_uuid_and_owner_its_way),
        cmocka_unit_test(test_hostname_label_follows_its_option),
        cmocka_unit_test(test_blanks_in_the_model_name_become_single_dashes_on_request),
        cmocka_unit_test(test_configured_labels_stand_by_name_before_the_owner),
        cmocka_unit_test(test_a_label_without_a_value_is_left_out),
        cmocka_unit_test(test_a_changed_label_is_on_the_next_page),
        cmocka_unit_test(test_a_label_that_clashes_with_a_built_in_one_is_renamed),
        cmocka_unit_test(test_integers_and_doubles_are_printed_as_go_prints_them),
        cmocka_unit_test(test_text_is_no_value_of_a_gauge),
        cmocka_unit_test(test_the_words_of_the_file_stand_on_the_type_line),
        cmocka_unit_test(test_each_status_but_ok_means_no_sample),
        cmocka_unit_test(test_a_value_is_shown_up_to_its_horizon_and_not_a_nanosecond_longer),
        cmocka_unit_test(test_a_page_shows_what_inventory_find_finds),
        cmocka_unit_test(test_the_last_xid_has_its_text_among_the_attributes),
        cmocka_unit_test(test_the_texts_of_xids_need_no_escaping),
        cmocka_unit_test(test_no_xid_without_somebody_listening),
        cmocka_unit_test(test_a_missing_device_leaves_no_device_families),
        cmocka_unit_test(test_only_chosen_devices_are_shown),
        cmocka_unit_test(test_foreign_text_is_escaped_repaired_and_cut),
        cmocka_unit_test(test_help_text_is_escaped),
        cmocka_unit_test(test_openmetrics_ends_with_eof_and_keeps_the_samples),
        cmocka_unit_test(test_a_page_is_the_same_again_and_formats_do_not_disturb_each_other),
        cmocka_unit_test(test_another_configuration_is_noticed),
        cmocka_unit_test(test_series_are_counted),
        cmocka_unit_test(test_a_page_over_its_ceiling_is_refused),
        cmocka_unit_test(test_a_page_of_nothing_is_still_a_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
