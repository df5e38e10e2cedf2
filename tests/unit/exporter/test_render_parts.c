// SPDX-License-Identifier: Apache-2.0
// Two sources on one page: values joined by device, and the groups that DCGM alone has: switches,
// links, CPUs and cores. Lines are dcgm-exporter's to the byte.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "render_fixture.h"

#define DRIVER 1
#define GPU_TEMP 150
#define POWER 155
#define XID 230
#define SWITCH_TEMP 858      // DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT
#define FLIT 786             // DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS, a link's
#define CPU_UTIL 1100        // DCGM_FI_DEV_CPU_UTIL_TOTAL, a core's
#define CPU_TEMP 1110        // DCGM_FI_DEV_CPU_TEMP_CURRENT
#define CPU_VENDOR 1140      // DCGM_FI_DEV_CPU_VENDOR, text
#define GRAPHICS 1001        // DCGM_FI_PROF_GR_ENGINE_ACTIVE
#define SUPPORTED_CLOCKS 130 // DCGM_FI_DEV_SUPPORTED_CLOCKS, bytes

#define U0 "GPU-00000000-0000-0000-0000-000000000000"
#define U1 "GPU-00000000-0000-0000-0000-000000000001"
#define HOST "hostname=\"testhost\""

static const char csv[] = "DCGM_FI_DEV_GPU_TEMP, gauge, t\n"
                          "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT, gauge, s\n"
                          "DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS, counter, l\n"
                          "DCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, u\n"
                          "DCGM_FI_DEV_CPU_TEMP_CURRENT, gauge, c\n";

// Two GPUs, whose ids DCGM has the other way round, each with links 0 and 2; switches 4 and 5 with
// links 0 and 7; CPUs 0 and 1 with cores 0 and 1, 72 and 73.
struct node {
    struct fixture *f;
    uint32_t gpus[2], gpu_links[4], switches[2], switch_links[4], cpus[2], cores[4];
};

static void node_deinit(struct node *n)
{
    fixture_free(n->f);
}

static struct node node_of(const char *counters, const char *devices)
{
    struct node n = {.f = fixture_new(counters, devices)};
    struct fixture *f = n.f;
    fixture_add_gpu(f, "NVIDIA H100 80GB HBM3");
    fixture_add_gpu(f, "NVIDIA H100 80GB HBM3");
    fixture_list(f);
    fixture_ready(f, true);
    for (uint32_t i = 0; i < 2; i++)
        n.gpus[1 - i] = fixture_add_dcgm_gpu(f, 1 - i, i);
    for (uint32_t i = 0; i < 2; i++)
        n.switches[i] = fixture_add_dcgm(f, FRAME_ENTITY_SWITCH, FIXTURE_ALONE, 4 + i);
    for (uint32_t i = 0; i < 4; i++) {
        n.gpu_links[i] = fixture_add_dcgm(f, FRAME_ENTITY_LINK, n.gpus[i / 2], i % 2 * 2);
        n.switch_links[i] = fixture_add_dcgm(f, FRAME_ENTITY_LINK, n.switches[i / 2], i % 2 * 7);
    }
    for (uint32_t i = 0; i < 2; i++)
        n.cpus[i] = fixture_add_dcgm(f, FRAME_ENTITY_CPU, FIXTURE_ALONE, i);
    for (uint32_t i = 0; i < 4; i++)
        n.cores[i] = fixture_add_dcgm(f, FRAME_ENTITY_CPU_CORE, n.cpus[i / 2], i / 2 * 72 + i % 2);
    fixture_list_dcgm(f);
    return n;
}

static void fill(const struct node *n)
{
    for (uint32_t i = 0; i < 2; i++) {
        fixture_i64(n->f, i, GPU_TEMP, 40 + i);
        fixture_dcgm_i64(n->f, n->switches[i], SWITCH_TEMP, 50 + i);
        fixture_dcgm_f64(n->f, n->cpus[i], CPU_TEMP, 60.5 + i);
    }
    for (uint32_t i = 0; i < 4; i++) {
        fixture_dcgm_i64(n->f, n->gpu_links[i], FLIT, 100 + i);
        fixture_dcgm_i64(n->f, n->switch_links[i], FLIT, 200 + i);
        fixture_dcgm_f64(n->f, n->cores[i], CPU_UTIL, 0.25 * i);
    }
}

static void select_devices(struct selection *s, const char *text)
{
    struct error err = ERROR_INIT;
    selection_deinit(s);
    assert_int_equal(selection_parse(sv_from(text), s, &err), 0);
}

// Lines of the last page that have both.
static unsigned lines_with(const struct node *n, const char *one, const char *other)
{
    unsigned count = 0;
    for (const char *at = buf_cstr(&n->f->page); (at = strstr(at, one));) {
        const char *found = strstr(at, other), *end = strchr(at + 1, '\n');
        count += found && end && found < end;
        at = end;
        assert_non_null(at);
    }
    return count;
}

#define PART_WHY(field, reason)                                                                    \
    "podgpu_exporter_field_unavailable_info{field=\"DCGM_FI_DEV_" field "\",reason=\"" reason      \
    "\",gpu=\"\",UUID=\"\"} 1"

#define GPU_LINK(ordinal, gpu, uuid, bus)                                                          \
    "DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS{nvlink=\"" #ordinal "\",gpu=\"" #gpu                    \
    "\",gpu_uuid=\"" uuid "\",pci_bus_id=\"00000000:" bus ":00.0\",device=\"nvidia" #gpu           \
    "\",model_name=\"NVIDIA H100 80GB HBM3\"," HOST "} "
#define SWITCH_LINK(number, id)                                                                    \
    "DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS{nvlink=\"" #number "\",nvswitch=\"nvswitch" #id         \
    "\"," HOST "} "
#define GPU_LINKS(gpu, uuid, bus, first, second)                                                   \
    GPU_LINK(1, gpu, uuid, bus) first "\n" GPU_LINK(3, gpu, uuid, bus) second "\n"
#define SWITCH_LINKS(id, first, second) SWITCH_LINK(0, id) first "\n" SWITCH_LINK(7, id) second "\n"
#define LINKS                                                                                      \
    GPU_LINKS(0, U0, "1B", "100", "101")                                                           \
    GPU_LINKS(1, U1, "1C", "102", "103")                                                           \
    SWITCH_LINKS(4, "200", "201")                                                                  \
    SWITCH_LINKS(5, "202", "203")
#define FLIT_HEADER                                                                                \
    "# HELP DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS l\n"                                             \
    "# TYPE DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS counter\n"

// --- Groups ---

static void test_each_group_has_its_labels_and_links_of_gpus_come_first(void **state)
{
    cleanup(node_deinit) struct node n = node_of(csv, "f");
    fill(&n);
    const char *page = fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    const char *want =
        "# HELP DCGM_FI_DEV_GPU_TEMP t\n"
        "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
        "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"" U0 "\",pci_bus_id=\"00000000:1B:00.0\","
        "device=\"nvidia0\",modelName=\"NVIDIA H100 80GB HBM3\"," HOST "} 40\n"
        "DCGM_FI_DEV_GPU_TEMP{gpu=\"1\",UUID=\"" U1 "\",pci_bus_id=\"00000000:1C:00.0\","
        "device=\"nvidia1\",modelName=\"NVIDIA H100 80GB HBM3\"," HOST "} 41\n" FLIT_HEADER LINKS
        "# HELP "
        "DCGM_FI_"
        "DEV_"
        "NVSWITCH_"
        "TEMPERATUR"
        "E_CURRENT "
        "s\n"
        "# TYPE "
        "DCGM_FI_"
        "DEV_"
        "NVSWITCH_"
        "TEMPERATUR"
        "E_CURRENT "
        "gauge\n"
        "DCGM_FI_"
        "DEV_"
        "NVSWITCH_"
        "TEMPERATUR"
        "E_CURRENT{"
        "nvswitch="
        "\"nvswitch"
        "4\"," HOST "} 50\n"
        "DCGM_FI_"
        "DEV_"
        "NVSWITCH_"
        "TEMPERATUR"
        "E_CURRENT{"
        "nvswitch="
        "\"nvswitch"
        "5\"," HOST "} 51\n"
        "# HELP "
        "DCGM_FI_"
        "DEV_CPU_"
        "UTIL_"
        "TOTAL u\n"
        "# TYPE "
        "DCGM_FI_"
        "DEV_CPU_"
        "UTIL_"
        "TOTAL "
        "gauge\n"
        "DCGM_FI_"
        "DEV_CPU_"
        "UTIL_"
        "TOTAL{"
        "cpucore="
        "\"0\",cpu="
        "\"0\""
        "," HOST "} "
        "0.000000\n"
        "DCGM_FI_"
        "DEV_CPU_"
        "UTIL_"
        "TOTAL{"
        "cpucore="
        "\"1\",cpu="
        "\"0\""
        "," HOST "} "
        "0.250000\n"
        "DCGM_FI_"
        "DEV_CPU_"
        "UTIL_"
        "TOTAL{"
        "cpucore="
        "\"72\","
        "cpu="
        "\"1\""
        "," HOST "} "
        "0.500000\n"
        "DCGM_FI_"
        "DEV_CPU_"
        "UTIL_"
        "TOTAL{"
        "cpucore="
        "\"73\","
        "cpu="
        "\"1\""
        "," HOST "} "
        "0.750000\n"
        "# HELP "
        "DCGM_FI_"
        "DEV_CPU_"
        "TEMP_"
        "CURRENT "
        "c\n"
        "# TYPE "
        "DCGM_FI_"
        "DEV_CPU_"
        "TEMP_"
        "CURRENT "
        "gauge\n"
        "DCGM_FI_"
        "DEV_CPU_"
        "TEMP_"
        "CURRENT{"
        "cpu="
        "\"0\""
        "," HOST "} "
        "60."
        "500000\n"
        "DCGM_FI_"
        "DEV_CPU_"
        "TEMP_"
        "CURRENT{"
        "cpu="
        "\"1\""
        "," HOST "} "
        "61."
        "500000\n"
        "# HELP "
        "podgpu_"
        "gpu_up ";
    char *start = strndup(page, strlen(want));
    assert_string_equal(start, want);
    free(start);
    size_t device, all;
    render_counts(n.f->render, &device, &all);
    assert_int_equal(device, 2 + 8 + 2 + 4 + 2);
}

#define TEMP(id, value)                                                                            \
    "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT{nvswitch=\"nvswitch" #id "\"," HOST "} " #value "\n"
#define TEMP_HEADER                                                                                \
    "# HELP DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT s\n"                                          \
    "# TYPE DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT gauge\n"

static void test_a_family_stands_once_with_the_samples_of_its_groups(void **state)
{
    cleanup(node_deinit) struct node n = node_of(csv, "f");
    fill(&n);
    // Switches take fields of links, CPUs those of cores, where DCGM has them for the whole.
    fixture_dcgm_i64(n.f, n.switches[1], FLIT, 7);
    fixture_dcgm_f64(n.f, n.cpus[0], CPU_UTIL, 0.5);
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(n.f, "DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS"), FLIT_HEADER
                        "DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS{nvswitch=\"nvswitch5\"," HOST
                        "} 7\n" LINKS);
    assert_string_equal(
        fixture_family(n.f, "DCGM_FI_DEV_CPU_UTIL_TOTAL"),
        "# HELP DCGM_FI_DEV_CPU_UTIL_TOTAL u\n# TYPE DCGM_FI_DEV_CPU_UTIL_TOTAL gauge\n"
        "DCGM_FI_DEV_CPU_UTIL_TOTAL{cpu=\"0\"," HOST "} 0.500000\n"
        "DCGM_FI_DEV_CPU_UTIL_TOTAL{cpucore=\"0\",cpu=\"0\"," HOST "} 0.000000\n"
        "DCGM_FI_DEV_CPU_UTIL_TOTAL{cpucore=\"1\",cpu=\"0\"," HOST "} 0.250000\n"
        "DCGM_FI_DEV_CPU_UTIL_TOTAL{cpucore=\"72\",cpu=\"1\"," HOST "} 0.500000\n"
        "DCGM_FI_DEV_CPU_UTIL_TOTAL{cpucore=\"73\",cpu=\"1\"," HOST "} 0.750000\n");
    // That the other switch and CPU have none is nothing to tell.
    assert_null(strstr(buf_cstr(&n.f->page), "field_unavailable_info{field=\"DCGM_FI_DEV_CPU"));
    assert_null(strstr(buf_cstr(&n.f->page), "field_unavailable_info{field=\"DCGM_FI_DEV_NVS"));
}

static void test_parts_are_chosen_by_their_flags(void **state)
{
    static const struct {
        const char *gpus, *switches, *cpus;
        unsigned gpu_links, switches_shown, switch_links, cpus_shown, cores;
        enum render_group group; // of the error
        const char *error;
    } cases[] = {
        {"f", "f", "f", 4, 2, 4, 2, 4, RENDER_GROUP_GPU, ""},
        {"g", "g", "g", 4, 2, 0, 2, 0, RENDER_GROUP_SWITCH, ""},
        {"g:1", "g:5", "g:1", 2, 1, 0, 1, 0, RENDER_GROUP_SWITCH, ""},
        {"i", "i", "i", 0, 0, 0, 0, 0, RENDER_GROUP_LINK, ""},
        {"f", "g+i", "g+i", 4, 2, 4, 2, 4, RENDER_GROUP_LINK, ""},
        {"f", "g:5+i:7", "g:1+i:73", 4, 1, 1, 1, 1, RENDER_GROUP_LINK, ""},
        {"f", "g:6+i", "f", 4, 0, 0, 2, 4, RENDER_GROUP_SWITCH,
         "couldn't find requested NvSwitch ID '6'"},
        {"f", "g+i:0,3", "f", 4, 2, 2, 2, 4, RENDER_GROUP_LINK,
         "couldn't find requested NvLink '3'"},
        {"f", "f", "g:2", 4, 2, 4, 0, 0, RENDER_GROUP_CPU, "couldn't find requested CPU ID '2'"},
        {"f", "f", "g+i:5", 4, 2, 4, 2, 0, RENDER_GROUP_CORE,
         "couldn't find requested CPU core '5'"},
        {"g:7", "f", "f", 0, 2, 4, 2, 4, RENDER_GROUP_GPU, "couldn't find requested GPU ID '7'"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(node_deinit) struct node n = node_of(csv, cases[i].gpus);
        fill(&n);
        select_devices(&n.f->options.switches, cases[i].switches);
        select_devices(&n.f->options.cpus, cases[i].cpus);
        fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
        assert_int_equal(lines_with(&n, "LINK_FLIT_ERRORS{nvlink=", ",gpu="), cases[i].gpu_links);
        assert_int_equal(lines_with(&n, "LINK_FLIT_ERRORS{nvlink=", ",nvswitch="),
                         cases[i].switch_links);
        assert_int_equal(lines_with(&n, "TEMPERATURE_CURRENT{nvswitch=", ""),
                         cases[i].switches_shown);
        assert_int_equal(lines_with(&n, "CPU_TEMP_CURRENT{cpu=", ""), cases[i].cpus_shown);
        assert_int_equal(lines_with(&n, "CPU_UTIL_TOTAL{cpucore=", ""), cases[i].cores);
        for (int group = 0; group < RENDER_GROUP_COUNT; group++)
            assert_string_equal(render_selection_error(n.f->render, (enum render_group)group),
                                group == (int)cases[i].group ? cases[i].error : "");
        assert_true(fixture_has_line(n.f, cases[i].error[0]
                                              ? "podgpu_exporter_device_selection_ok 0"
                                              : "podgpu_exporter_device_selection_ok 1"));
    }
}

static void test_nothing_is_missing_before_dcgm_is_there(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new(csv, "f");
    select_devices(&f->options.switches, "g:6");
    select_devices(&f->options.cpus, "g:6");
    fixture_add_gpu(f, "NVIDIA T4");
    fixture_list(f);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(render_selection_error(f->render, RENDER_GROUP_SWITCH), "");
    fixture_use_dcgm(f);
    fixture_dcgm_state(f, FRAME_STATE_NO_LIBRARY);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(render_selection_error(f->render, RENDER_GROUP_SWITCH), "");
    fixture_list_dcgm(f);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(render_selection_error(f->render, RENDER_GROUP_SWITCH),
                        "couldn't find requested NvSwitch ID '6'");
    assert_string_equal(render_selection_error(f->render, RENDER_GROUP_CPU),
                        "couldn't find requested CPU ID '6'");
}

static void test_with_the_quirk_one_switch_called_nvswitch0_is_left(void **state)
{
    cleanup(node_deinit) struct node n = node_of(csv, "f");
    fill(&n);
    n.f->options.flags.switch_id_quirk = true;
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(n.f, "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT"),
                        TEMP_HEADER TEMP(0, 50));
    assert_true(fixture_has_line(n.f, "podgpu_exporter_series_dropped{reason=\"duplicate\"} 1"));
    assert_true(fixture_has_line(n.f, SWITCH_LINK(7, 5) "203")); // links always have their own
}

static void test_what_a_gpu_does_not_tell_of_itself_is_left_out_of_its_links(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new(csv, "f");
    for (uint32_t i = 0; i < 2; i++)
        fixture_add_gpu(f, i == 0 ? "" : "NVIDIA  H100");
    f->entities[0].bus_id[0] = '\0';
    fixture_list(f);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t gpu = fixture_add_dcgm_gpu(f, i, i);
        fixture_add_dcgm(f, FRAME_ENTITY_LINK, gpu, 0);
    }
    fixture_list_dcgm(f);
    fixture_dcgm_i64(f, 1, FLIT, 100);
    fixture_dcgm_i64(f, 3, FLIT, 101);
    f->options.hostname[0] = '\0';
    f->options.flags.replace_blanks = true; // in the GPU group alone
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(
        fixture_family(f, "DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS"),
        FLIT_HEADER "DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS{nvlink=\"1\",gpu=\"0\",gpu_uuid=\"" U0
                    "\",device=\"nvidia0\"} 100\n"
                    "DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS{nvlink=\"1\",gpu=\"1\",gpu_uuid=\"" U1
                    "\",pci_bus_id=\"00000000:1C:00.0\",device=\"nvidia1\",model_name=\"NVIDIA  "
                    "H100\"} 101\n");
}

static void test_the_host_name_is_spelled_alike_in_all_groups(void **state)
{
    static const struct {
        enum hostname_label option;
        const char *labels;
    } cases[] = {
        {HOSTNAME_LABEL_LOWER, ",hostname=\"testhost\"} "},
        {HOSTNAME_LABEL_UPPER, ",Hostname=\"testhost\"} "},
        {HOSTNAME_LABEL_BOTH, ",Hostname=\"testhost\",hostname=\"testhost\"} "},
        {HOSTNAME_LABEL_NONE, "\"} "},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(node_deinit) struct node n = node_of(csv, "f");
        fill(&n);
        n.f->options.hostname_label = cases[i].option;
        fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
        assert_int_equal(lines_with(&n, "\nDCGM_FI_", cases[i].labels), 18);
    }
}

// --- Configured labels and owners ---

static void test_each_group_has_labels_of_its_level_and_global_ones(void **state)
{
    cleanup(node_deinit) struct node n =
        node_of("DCGM_FI_DEV_GPU_TEMP, gauge, t\n"
                "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT, gauge, s\n"
                "DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS, counter, l\n"
                "DCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, u\n"
                "DCGM_FI_DEV_CPU_TEMP_CURRENT, gauge, c\n"
                "DCGM_FI_DRIVER_VERSION, label, d\nDCGM_FI_DEV_SERIAL, label, s\n"
                "DCGM_FI_DEV_CPU_VENDOR, label, v\nDCGM_FI_DEV_NVSWITCH_PHYS_ID, label, p\n"
                "DCGM_FI_DEV_NVSWITCH_LINK_ID, label, i\n",
                "f");
    fill(&n);
    fixture_string(n.f, 0, DRIVER, "550.54"); // where NVML alone knows it
    fixture_string(n.f, 0, 53, "1234");
    fixture_dcgm_string(n.f, n.cpus[0], CPU_VENDOR, "Nvidia");
    fixture_dcgm_string(n.f, n.cpus[1], CPU_VENDOR, "<<<NULL>>>");
    fixture_dcgm_i64(n.f, n.switches[0], 863, 11);
    fixture_dcgm_i64(n.f, n.switch_links[1], 865, 7);
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    static const char *const lines[] = {
        "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"" U0 "\",pci_bus_id=\"00000000:1B:00.0\",device="
        "\"nvidia0\",modelName=\"NVIDIA H100 80GB HBM3\"," HOST
        ",DCGM_FI_DEV_SERIAL=\"1234\",DCGM_FI_DRIVER_VERSION=\"550.54\"} 40",
        "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT{nvswitch=\"nvswitch4\"," HOST
        ",DCGM_FI_DEV_NVSWITCH_PHYS_ID=\"11\",DCGM_FI_DRIVER_VERSION=\"550.54\"} 50",
        "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT{nvswitch=\"nvswitch5\"," HOST
        ",DCGM_FI_DRIVER_VERSION=\"550.54\"} 51",
        "DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS{nvlink=\"7\",nvswitch=\"nvswitch4\"," HOST
        ",DCGM_FI_DEV_NVSWITCH_LINK_ID=\"7\",DCGM_FI_DRIVER_VERSION=\"550.54\"} 201",
        "DCGM_FI_DEV_CPU_TEMP_CURRENT{cpu=\"0\"," HOST
        ",DCGM_FI_DEV_CPU_VENDOR=\"Nvidia\",DCGM_FI_DRIVER_VERSION=\"550.54\"} 60.500000",
        "DCGM_FI_DEV_CPU_TEMP_CURRENT{cpu=\"1\"," HOST ",DCGM_FI_DRIVER_VERSION=\"550.54\"} "
        "61.500000",
        "DCGM_FI_DEV_CPU_UTIL_TOTAL{cpucore=\"72\",cpu=\"1\"," HOST
        ",DCGM_FI_DRIVER_VERSION=\"550.54\"} 0.500000",
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        assert_true(fixture_has_line(n.f, lines[i]));
}

static void test_links_of_a_gpu_are_its_owners_and_no_other_part_is_anybodys(void **state)
{
    cleanup(node_deinit) struct node n = node_of(csv, "f");
    fill(&n);
    static const char *const jobs[] = {"j1", "j2"};
    n.f->jobs[1] = (struct render_jobs){jobs, 2};
    n.f->owners.jobs = n.f->jobs;
    fixture_hold(n.f, 0, "ns", "p", "c", NULL);
    fixture_label(n.f, "ns/p", "u1", "\"app\":\"x\",\"model_name\":\"mine\",\"nvlink\":\"0\"");
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    // Pod labels called as a label of links make way there.
    assert_true(fixture_has_line(
        n.f, "DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS{nvlink=\"3\",gpu=\"0\",gpu_uuid=\"" U0
             "\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia0\",model_name=\"NVIDIA H100 80GB "
             "HBM3\"," HOST ",app=\"x\",container=\"c\",namespace=\"ns\",pod=\"p\",pod_uid=\"u1\"} "
             "101"));
    assert_true(fixture_has_line(
        n.f, "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"" U0 "\",pci_bus_id=\"00000000:1B:00.0\","
             "device=\"nvidia0\",modelName=\"NVIDIA H100 80GB HBM3\"," HOST ",app=\"x\","
             "model_name=\"mine\",nvlink=\"0\",container=\"c\",namespace=\"ns\",pod=\"p\","
             "pod_uid=\"u1\"} 40"));
    assert_int_equal(lines_with(&n, "LINK_FLIT_ERRORS{nvlink=\"1\",gpu=\"1\"", "hpc_job=\"j2\""),
                     1);
    assert_int_equal(lines_with(&n, "LINK_FLIT_ERRORS{nvlink=", ",gpu="), 2 + 2 * 2);
    assert_true(fixture_has_line(n.f, SWITCH_LINK(0, 4) "200"));
    n.f->options.flags.use_old_namespace = true;
    n.f->options.flags.empty_owner_labels = true;
    n.f->config.hash++;
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    assert_int_equal(lines_with(&n, "LINK_FLIT_ERRORS{nvlink=\"3\",gpu=\"0\",gpu_uuid=\"" U0 "\"",
                                ",container_name=\"c\",pod_name=\"p\",pod_namespace=\"ns\""),
                     1);
    // Else a scrape with honor_labels would give them the exporter's own pod.
    assert_true(fixture_has_line(n.f, "DCGM_FI_DEV_CPU_TEMP_CURRENT{cpu=\"0\"," HOST
                                      ",container_name=\"\",pod_name=\"\",pod_namespace=\"\"} "
                                      "60.500000"));
}

static void test_with_virtual_gpus_each_holder_has_a_copy_of_the_links(void **state)
{
    cleanup(node_deinit) struct node n = node_of(csv, "f");
    fill(&n);
    n.f->options.flags.virtual_gpus = true;
    fixture_hold(n.f, 0, "ns", "p", "c", "0");
    fixture_hold(n.f, 0, "ns", "q", "c", "1");
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    assert_int_equal(lines_with(&n, "LINK_FLIT_ERRORS{nvlink=", "pod=\"p\",vgpu=\"0\""), 2);
    assert_int_equal(lines_with(&n, "LINK_FLIT_ERRORS{nvlink=", "pod=\"q\",vgpu=\"1\""), 2);
    assert_int_equal(lines_with(&n, "LINK_FLIT_ERRORS{nvlink=", ",gpu=\"0\""), 4);
}

// --- Two sources ---

static void test_a_gpu_that_dcgm_alone_sees_has_no_links(void **state)
{
    cleanup(node_deinit) struct node n = node_of(csv, "f");
    sv_copy(n.f->dcgm_entities[n.gpus[1]].uuid, sizeof(n.f->dcgm_entities[0].uuid),
            SV("GPU-ffffffff-0000-0000-0000-000000000000"));
    fixture_list_dcgm(n.f);
    fill(&n);
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    assert_int_equal(lines_with(&n, "LINK_FLIT_ERRORS{nvlink=", ",gpu="), 2);
    assert_int_equal(lines_with(&n, "LINK_FLIT_ERRORS{nvlink=", ",gpu=\"0\""), 2);
}

#define GPU1                                                                                       \
    "gpu=\"1\",UUID=\"" U1 "\",pci_bus_id=\"00000000:1C:00.0\",device=\"nvidia1\",modelName="      \
    "\"NVIDIA H100 80GB HBM3\"," HOST
#define SOURCE(source)                                                                             \
    "podgpu_exporter_field_source_info{field=\"DCGM_FI_PROF_GR_ENGINE_ACTIVE\",source=\"" source   \
    "\"} 1"
#define WHY(reason)                                                                                \
    "podgpu_exporter_field_unavailable_info{field=\"DCGM_FI_PROF_GR_ENGINE_ACTIVE\",reason="       \
    "\"" reason "\",gpu=\"1\",UUID=\"" U1 "\"} 1"

static void test_what_nvml_has_not_comes_from_dcgm_by_uuid_and_says_so(void **state)
{
    cleanup(node_deinit) struct node n = node_of("DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, g\n", "f");
    fixture_f64(n.f, 0, GRAPHICS, 0.5);
    fixture_status(n.f, 1, GRAPHICS, FRAME_NEEDS_GPM);
    fixture_dcgm_f64(n.f, n.gpus[0], GRAPHICS, 0.875); // NVML's stands
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(n.f, SOURCE("nvml_gpm")));
    assert_false(fixture_has_line(n.f, SOURCE("dcgm")));
    fixture_dcgm_f64(n.f, n.gpus[1], GRAPHICS, 0.25);
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(
        fixture_family(n.f, "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
        "# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE g\n# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge\n"
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu=\"0\",UUID=\"" U0 "\",pci_bus_id=\"00000000:1B:00.0\","
        "device=\"nvidia0\",modelName=\"NVIDIA H100 80GB HBM3\"," HOST "} 0.500000\n"
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE{" GPU1 "} 0.250000\n");
    assert_true(fixture_has_line(n.f, SOURCE("nvml_gpm")));
    assert_true(fixture_has_line(n.f, SOURCE("dcgm")));
    assert_false(fixture_has_line(n.f, WHY("needs_gpm")));
}

static void test_why_there_is_no_value_is_dcgms_to_say_where_it_is_asked(void **state)
{
    static const struct {
        enum frame_status nvml, dcgm;
        const char *reason;
    } cases[] = {
        {FRAME_NEEDS_GPM, FRAME_IN_USE, "in_use"},
        {FRAME_NEEDS_DCGM, FRAME_PAUSED, "paused"},
        {FRAME_NEEDS_GPM, FRAME_NOT_SUPPORTED, "not_supported"},
        {FRAME_NO_PERMISSION, FRAME_NO_DATA, "no_permission"},
        {FRAME_LOST, FRAME_IN_USE, "lost"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(node_deinit) struct node n =
            node_of("DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, g\n", "f");
        fixture_status(n.f, 1, GRAPHICS, cases[i].nvml);
        fixture_dcgm_status(n.f, n.gpus[1], GRAPHICS, cases[i].dcgm);
        fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
        char line[256];
        snprintf(line, sizeof(line), WHY("%s"), cases[i].reason);
        assert_true(fixture_has_line(n.f, line));
        assert_string_equal(fixture_family(n.f, "DCGM_FI_PROF_GR_ENGINE_ACTIVE"), "");
    }
}

// The page looks values up by position; device_view_find is the rule.
static void test_a_page_shows_what_device_view_find_finds(void **state)
{
    static const enum frame_status statuses[] = {FRAME_NEEDS_DCGM, FRAME_NOT_SUPPORTED,
                                                 FRAME_NO_DATA, FRAME_IN_USE};
    cleanup(node_deinit) struct node n =
        node_of("DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_FB_USED, gauge, u\n"
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, g\nDCGM_FI_DEV_COUNT, gauge, c\n",
                "f");
    struct fixture *f = n.f;
    unsigned of_source[DEVICE_SOURCE_COUNT] = {0}, none = 0;
    for (unsigned round = 0; round < 128; round++) {
        for (size_t i = 0; i < 8; i++) {
            uint16_t field = f->inventory.fields[i / 2];
            unsigned mix = (round * 7 + (unsigned)i * 5) % 13,
                     other = (round * 3 + (unsigned)i) % 7;
            f->now_ns = FIXTURE_NOW_NS + round * NS_PER_S;
            if (mix < 4)
                fixture_i64(f, i % 2, field, 1);
            else if (mix < 8)
                fixture_status(f, i % 2, field, statuses[mix % 4]);
            if (other < 3)
                fixture_dcgm_i64(f, n.gpus[i % 2], field, 2);
            else if (other < 5)
                fixture_dcgm_status(f, n.gpus[i % 2], field, statuses[other % 4]);
        }
        f->now_ns += (round % 3) * 12 * NS_PER_S;
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        for (size_t i = 0; i < f->config.counters.count; i++) {
            const struct counter *c = &f->config.counters.rows[i];
            for (uint32_t gpu = 0; gpu < 2; gpu++) {
                enum device_source source = DEVICE_SOURCE_NVML;
                const struct inventory_value *v = device_view_find(
                    &f->view, gpu, c->field, f->config.period_ns, f->now_ns, &source);
                char start[128], end[32] = "} ";
                snprintf(start, sizeof(start), "\n%s{gpu=\"%u\"", c->name, gpu);
                if (v)
                    snprintf(end, sizeof(end), "} %d\n", source == DEVICE_SOURCE_DCGM ? 2 : 1);
                assert_int_equal(lines_with(&n, start, end), v != NULL);
                of_source[source] += v != NULL;
                none += v == NULL;
            }
        }
    }
    assert_true(of_source[DEVICE_SOURCE_NVML] > 100 && of_source[DEVICE_SOURCE_DCGM] > 100);
    assert_true(none > 100);
}

static void test_a_lost_engine_takes_its_values_along_and_nothing_else(void **state)
{
    cleanup(node_deinit) struct node n =
        node_of("DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, g\n"
                "DCGM_FI_DEV_CPU_TEMP_CURRENT, gauge, c\n",
                "f");
    fill(&n);
    for (uint32_t i = 0; i < 2; i++) {
        fixture_status(n.f, i, GRAPHICS, FRAME_NEEDS_GPM);
        fixture_dcgm_f64(n.f, n.gpus[i], GRAPHICS, 0.25);
    }
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    assert_int_equal(lines_with(&n, "\nDCGM_FI_", "} "), 2 + 2 + 2);
    inventory_disconnect(&n.f->dcgm);
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    assert_int_equal(lines_with(&n, "\nDCGM_FI_", "} "), 2);
    assert_int_equal(lines_with(&n, "\nDCGM_FI_DEV_GPU_TEMP", "} "), 2);
    assert_true(fixture_has_line(n.f, WHY("not_connected")));
    assert_true(fixture_has_line(n.f, PART_WHY("CPU_TEMP_CURRENT", "not_connected")));
    assert_true(fixture_has_line(n.f, "podgpu_gpu_up{gpu=\"1\",UUID=\"" U1 "\"," HOST "} 1"));
    fixture_list_dcgm(n.f);
    fill(&n);
    for (uint32_t i = 0; i < 2; i++)
        fixture_dcgm_f64(n.f, n.gpus[i], GRAPHICS, 0.25);
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    assert_int_equal(lines_with(&n, "\nDCGM_FI_", "} "), 2 + 2 + 2);
    assert_null(strstr(buf_cstr(&n.f->page), "not_connected"));
}

static void test_dcgm_alone_makes_the_whole_page(void **state)
{
    cleanup(node_deinit) struct node n = node_of(csv, "f");
    n.f->without_nvml = true;
    fill(&n);
    for (uint32_t i = 0; i < 2; i++)
        fixture_dcgm_i64(n.f, n.gpus[i], GPU_TEMP, 70 + i);
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(
        n.f, "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"" U1 "\",pci_bus_id=\"00000000:1C:00.0\","
             "device=\"nvidia0\",modelName=\"NVIDIA H100 80GB HBM3\"," HOST "} 71"));
    assert_int_equal(lines_with(&n, "LINK_FLIT_ERRORS{nvlink=", ",gpu=\"0\",gpu_uuid=\"" U1), 2);
    assert_int_equal(lines_with(&n, "\nDCGM_FI_", "} "), 18);
    assert_true(fixture_has_line(
        n.f,
        "podgpu_exporter_field_source_info{field=\"DCGM_FI_DEV_GPU_TEMP\",source=\"dcgm\"} 1"));
    assert_int_equal(lines_with(&n, "podgpu_exporter_field_source_info{", "nvml"), 0);
    // Only GPUs have podgpu's own families.
    assert_int_equal(lines_with(&n, "\npodgpu_gpu_up{", "} 1"), 2);
}

static void test_compute_instances_have_no_samples(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, g\nDCGM_FI_DEV_XID_ERRORS, gauge, x\n", "f");
    fixture_add_gpu(f, "NVIDIA H100");
    fixture_list(f);
    f->without_nvml = true;
    uint32_t gpu = fixture_add_dcgm_gpu(f, 0, 0);
    uint32_t instance = fixture_add_dcgm(f, FRAME_ENTITY_GPU_I, gpu, UINT32_MAX);
    f->dcgm_entities[instance].gpu_instance_id = 3;
    f->dcgm_entities[instance].instance_entity_id = 0;
    sv_copy(f->dcgm_entities[instance].profile, sizeof(f->dcgm_entities[0].profile), SV("3g.40gb"));
    uint32_t compute = fixture_add_dcgm(f, FRAME_ENTITY_GPU_CI, instance, 0);
    f->dcgm_entities[compute].index = 0;
    f->dcgm_entities[compute].gpu_instance_id = 3;
    fixture_list_dcgm(f);
    for (uint32_t e = 0; e < f->dcgm_count; e++) {
        fixture_dcgm_f64(f, e, GRAPHICS, 0.25);
        fixture_dcgm_i64(f, e, XID, 0);
    }
    fixture_hold(f, 0, "ns", "p", "c", NULL);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    struct node n = {.f = f};
    assert_int_equal(lines_with(&n, "\nDCGM_FI_PROF_GR_ENGINE_ACTIVE{", "GPU_I_ID=\"3\""), 1);
    assert_int_equal(lines_with(&n, "\nDCGM_FI_", "} "), 2);
    assert_int_equal(lines_with(&n, "\npodgpu_gpu_up{", "} 1"), 2);
}

// --- Why not ---

static void test_why_parts_have_no_value_is_told_once_a_field(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new(
        "DCGM_FI_DEV_CPU_TEMP_CURRENT, gauge, c\nDCGM_FI_DEV_CONNECTX_HEALTH, gauge, x\n", "f");
    struct node n = {.f = f};
    static const char *const fields[] = {"CPU_TEMP_CURRENT", "CONNECTX_HEALTH"};
    const char *first[] = {"needs_dcgm", "not_connected", "no_such_entity"};
    fixture_add_gpu(f, "NVIDIA T4");
    fixture_add_gpu(f, "NVIDIA T4");
    fixture_list(f);
    for (size_t step = 0; step < ARRAY_SIZE(first); step++) {
        if (step == 1)
            fixture_use_dcgm(f);
        if (step == 2)
            fixture_list_dcgm(f);
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
            char line[256];
            snprintf(line, sizeof(line), PART_WHY("%s", "%s"), fields[i], first[step]);
            assert_true(fixture_has_line(f, line));
        }
        assert_int_equal(lines_with(&n, "field_unavailable_info{", "} 1"), 2);
    }
    for (uint32_t i = 0; i < 3; i++)
        fixture_add_dcgm(f, FRAME_ENTITY_CPU, FIXTURE_ALONE, i);
    fixture_list_dcgm(f);
    fixture_dcgm_status(f, 0, CPU_TEMP, FRAME_NOT_SUPPORTED);
    fixture_dcgm_status(f, 1, CPU_TEMP, FRAME_NOT_SUPPORTED);
    fixture_dcgm_f64(f, 2, CPU_TEMP, 61);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, PART_WHY("CPU_TEMP_CURRENT", "not_supported")));
    assert_int_equal(lines_with(&n, "field_unavailable_info{", "} 1"), 2);
    select_devices(&f->options.cpus, "g:3-1");
    f->config.hash++;
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, PART_WHY("CPU_TEMP_CURRENT", "not_selected")));
}

// Links are of GPUs or of switches, and what the field isn't of doesn't lack it.
static void test_a_field_of_links_is_missed_at_the_kind_of_links_that_has_it(void **state)
{
    static const struct {
        const char *switches;
        bool shown, missed;
        const char *reason; // NULL: nothing is missing
    } cases[] = {
        {"f", true, false, NULL},
        {"f", true, true, "not_supported"},  // at one of the kind
        {"f", false, true, "not_supported"}, // everywhere
        {"g", true, false, "not_selected"},
    };
    for (size_t c = 0; c < ARRAY_SIZE(cases); c++) {
        cleanup(node_deinit) struct node n =
            node_of("DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS, counter, l\n", "f");
        fixture_list_dcgm(n.f);
        for (uint32_t i = 0; i < 4; i++) {
            fixture_dcgm_status(n.f, n.gpu_links[i], FLIT, FRAME_NOT_SUPPORTED);
            if (cases[c].shown && (i > 0 || !cases[c].missed))
                fixture_dcgm_i64(n.f, n.switch_links[i], FLIT, 7);
            else
                fixture_dcgm_status(n.f, n.switch_links[i], FLIT, FRAME_NOT_SUPPORTED);
        }
        select_devices(&n.f->options.switches, cases[c].switches);
        n.f->config.hash++;
        fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
        char line[256] = "";
        if (cases[c].reason)
            snprintf(line, sizeof(line), PART_WHY("%s", "%s"), "NVSWITCH_LINK_FLIT_ERRORS",
                     cases[c].reason);
        assert_true(!cases[c].reason || fixture_has_line(n.f, line));
        assert_int_equal(lines_with(&n, "field_unavailable_info{", "} 1"), cases[c].reason != NULL);
    }
}

static void test_bytes_are_told_to_be_no_number(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        fixture_new("DCGM_FI_DEV_SUPPORTED_CLOCKS, gauge, c\n", "f");
    struct node n = {.f = f};
    fixture_add_gpu(f, "NVIDIA T4");
    fixture_list(f);
    fixture_ready(f, true);
    fixture_status(f, 0, SUPPORTED_CLOCKS, FRAME_NEEDS_DCGM);
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_int_equal(lines_with(&n, "field_unavailable_info{", "reason=\"not_numeric\""), 1);
    assert_int_equal(lines_with(&n, "field_unavailable_info{", "} 1"), 1);
}

static void test_an_old_value_of_a_part_is_not_shown(void **state)
{
    cleanup(node_deinit) struct node n = node_of(csv, "f");
    fill(&n);
    n.f->now_ns += 3 * 30 * NS_PER_S + 1;
    fixture_page(n.f, TEXT_FORMAT_PROMETHEUS);
    assert_int_equal(lines_with(&n, "\nDCGM_FI_", "} "), 0);
    assert_true(fixture_has_line(n.f, PART_WHY("CPU_TEMP_CURRENT", "stale")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_field_of_links_is_missed_at_the_kind_of_links_that_has_it),
        cmocka_unit_test(test_bytes_are_told_to_be_no_number),
        cmocka_unit_test(test_each_group_has_its_labels_and_links_of_gpus_come_first),
        cmocka_unit_test(test_a_family_stands_once_with_the_samples_of_its_groups),
        cmocka_unit_test(test_parts_are_chosen_by_their_flags),
        cmocka_unit_test(test_nothing_is_missing_before_dcgm_is_there),
        cmocka_unit_test(test_with_the_quirk_one_switch_called_nvswitch0_is_left),
        cmocka_unit_test(test_what_a_gpu_does_not_tell_of_itself_is_left_out_of_its_links),
        cmocka_unit_test(test_the_host_name_is_spelled_alike_in_all_groups),
        cmocka_unit_test(test_each_group_has_labels_of_its_level_and_global_ones),
        cmocka_unit_test(test_links_of_a_gpu_are_its_owners_and_no_other_part_is_anybodys),
        cmocka_unit_test(test_with_virtual_gpus_each_holder_has_a_copy_of_the_links),
        cmocka_unit_test(test_a_gpu_that_dcgm_alone_sees_has_no_links),
        cmocka_unit_test(test_what_nvml_has_not_comes_from_dcgm_by_uuid_and_says_so),
        cmocka_unit_test(test_why_there_is_no_value_is_dcgms_to_say_where_it_is_asked),
        cmocka_unit_test(test_a_page_shows_what_device_view_find_finds),
        cmocka_unit_test(test_a_lost_engine_takes_its_values_along_and_nothing_else),
        cmocka_unit_test(test_dcgm_alone_makes_the_whole_page),
        cmocka_unit_test(test_compute_instances_have_no_samples),
        cmocka_unit_test(test_why_parts_have_no_value_is_told_once_a_field),
        cmocka_unit_test(test_an_old_value_of_a_part_is_not_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
