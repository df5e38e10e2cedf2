// SPDX-License-Identifier: Apache-2.0
// Whose device it is: owner labels in each mode, copies, jobs.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "render_fixture.h"

#define GPU_TEMP 150
#define GPU_UTIL 203
#define CSV "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_GPU_UTIL, gauge, u\n"
#define HEAD "# HELP DCGM_FI_DEV_GPU_TEMP t\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
#define LINE(n, bus)                                                                               \
    "DCGM_FI_DEV_GPU_TEMP{gpu=\"" n "\",UUID=\"GPU-00000000-0000-0000-0000-00000000000" n          \
    "\",pci_bus_id=\"00000000:" bus ":00.0\",device=\"nvidia" n                                    \
    "\",modelName=\"T4\",hostname=\"testhost\""
#define GPU0 LINE("0", "1B")
#define GPU1 LINE("1", "1C")
#define GPU2 LINE("2", "1D")

static struct fixture *node(unsigned gpus)
{
    struct fixture *f = fixture_new(CSV, "f");
    for (unsigned i = 0; i < gpus; i++)
        fixture_add_gpu(f, "T4");
    fixture_list(f);
    for (uint32_t i = 0; i < gpus; i++) {
        fixture_i64(f, i, GPU_TEMP, 42);
        fixture_i64(f, i, GPU_UTIL, 7);
    }
    return f;
}

static const char *temperatures(struct fixture *f)
{
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    return fixture_family(f, "DCGM_FI_DEV_GPU_TEMP");
}

// --- One owner ---

static void test_one_holder_gives_the_device_its_labels(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(2);
    fixture_hold(f, 1, "ns", "p", "c", "3");
    assert_string_equal(temperatures(f), HEAD GPU0
                        "} 42\n" GPU1 ",container=\"c\",namespace=\"ns\",pod=\"p\"} 42\n");
}

static void test_a_container_with_two_replicas_is_one_holder(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(1);
    fixture_hold(f, 0, "ns", "p", "c", "0");
    fixture_hold(f, 0, "ns", "p", "c", "1");
    assert_string_equal(temperatures(f),
                        HEAD GPU0 ",container=\"c\",namespace=\"ns\",pod=\"p\"} 42\n");
}

static void test_two_holders_give_no_labels(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(1);
    fixture_hold(f, 0, "ns", "p", "c", NULL);
    fixture_hold(f, 0, "ns", "q", "c", NULL);
    assert_string_equal(temperatures(f), HEAD GPU0 "} 42\n");
    f->holding_count = 1;
    fixture_hold(f, 0, "other", "p", "c", NULL);
    assert_string_equal(temperatures(f), HEAD GPU0 "} 42\n");
}

// Without an empty container label a scrape with honor_labels would put the exporter's own there.
static void test_two_containers_of_a_pod_leave_the_pod_as_the_owner(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(1);
    fixture_hold(f, 0, "ns", "p", "a", "0");
    fixture_hold(f, 0, "ns", "p", "b", "1");
    assert_string_equal(temperatures(f),
                        HEAD GPU0 ",container=\"\",namespace=\"ns\",pod=\"p\"} 42\n");
    f->options.shared_owner = SHARED_OWNER_LAST;
    f->owners.version++;
    assert_string_equal(temperatures(f),
                        HEAD GPU0 ",container=\"b\",namespace=\"ns\",pod=\"p\"} 42\n");
}

static void test_the_last_of_several_holders_counts_on_request(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(2);
    f->options.shared_owner = SHARED_OWNER_LAST;
    fixture_hold(f, 0, "n1", "p1", "c1", NULL);
    fixture_hold(f, 0, "n2", "p2", "c2", "9");
    assert_string_equal(temperatures(f), HEAD GPU0
                        ",container=\"c2\",namespace=\"n2\",pod=\"p2\"} 42\n" GPU1 "} 42\n");
}

static void test_empty_owner_labels_stand_where_there_is_no_single_owner(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(3);
    f->options.flags.empty_owner_labels = true;
    fixture_hold(f, 0, "n1", "p1", "c1", NULL);
    fixture_hold(f, 0, "n2", "p2", "c2", NULL);
    fixture_hold(f, 1, "n1", "p1", "c1", NULL);
    assert_string_equal(temperatures(f),
                        HEAD GPU0 ",container=\"\",namespace=\"\",pod=\"\"} 42\n" GPU1
                                  ",container=\"c1\",namespace=\"n1\",pod=\"p1\"} 42\n" GPU2
                                  ",container=\"\",namespace=\"\",pod=\"\"} 42\n");
}

static void test_empty_owner_labels_in_the_old_namespace(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(1);
    f->options.flags.empty_owner_labels = true;
    f->options.flags.use_old_namespace = true;
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_non_null(strstr(
        buf_cstr(&f->page),
        ",hostname=\"testhost\",container_name=\"\",pod_name=\"\",pod_namespace=\"\"} 42\n"));
}

static void test_other_owners_are_on_the_next_page(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(1);
    assert_string_equal(temperatures(f), HEAD GPU0 "} 42\n");
    fixture_hold(f, 0, "ns", "p", "c", NULL);
    assert_string_equal(temperatures(f),
                        HEAD GPU0 ",container=\"c\",namespace=\"ns\",pod=\"p\"} 42\n");
    f->owners.rows = NULL; // the map became too old
    f->owners.holders = NULL;
    f->owners.version++;
    assert_string_equal(temperatures(f), HEAD GPU0 "} 42\n");
}

// --- Copies ---

static void test_each_holder_has_a_copy_with_its_replica(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(3);
    f->options.flags.virtual_gpus = true;
    fixture_hold(f, 1, "default", "gpu-pod-0", "default", "1");
    fixture_hold(f, 1, "default", "gpu-pod-1", "default", "");
    fixture_hold(f, 1, "default", "gpu-pod-2", "default", NULL);
    assert_string_equal(
        temperatures(f), HEAD GPU0
        "} 42\n" GPU1
        ",container=\"default\",namespace=\"default\",pod=\"gpu-pod-0\",vgpu=\"1\"} 42\n" GPU1
        ",container=\"default\",namespace=\"default\",pod=\"gpu-pod-1\"} 42\n" GPU1
        ",container=\"default\",namespace=\"default\",pod=\"gpu-pod-2\"} 42\n" GPU2 "} 42\n");
}

// dcgm-exporter prints the device and per-process numbers here; see add_entity.
static void test_utilisation_is_copied_like_other_families(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(1);
    f->options.flags.virtual_gpus = true;
    fixture_hold(f, 0, "ns", "a", "c", "0");
    fixture_hold(f, 0, "ns", "b", "c", "1");
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    const char *family = fixture_family(f, "DCGM_FI_DEV_GPU_UTIL");
    assert_non_null(strstr(family, "pod=\"a\",vgpu=\"0\"} 7\n"));
    assert_non_null(strstr(family, "pod=\"b\",vgpu=\"1\"} 7\n"));
    assert_null(strstr(family, "hostname=\"testhost\"} 7\n"));
}

static void test_equal_series_are_printed_once_and_counted(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(1);
    f->options.flags.virtual_gpus = true;
    for (int i = 0; i < 3; i++)
        fixture_hold(f, 0, "ns", "p", "c", NULL);
    assert_string_equal(temperatures(f),
                        HEAD GPU0 ",container=\"c\",namespace=\"ns\",pod=\"p\"} 42\n");
    assert_true(fixture_has_line(f, "podgpu_exporter_series_dropped{reason=\"duplicate\"} 2"));
    assert_true(fixture_has_line(f, "podgpu_exporter_series_dropped{reason=\"holders\"} 0"));
}

static void test_copies_of_a_device_end_at_their_ceiling(void **state)
{
    static char names[LIMIT_ENTITY_COPIES + 1][8];
    for (int over = -1; over <= 1; over++) {
        cleanup(fixture_freep) struct fixture *f = node(1);
        f->options.flags.virtual_gpus = true;
        size_t count = (size_t)(LIMIT_ENTITY_COPIES + over);
        for (size_t i = 0; i + 1 < count; i++) {
            snprintf(names[i], sizeof(names[i]), "%zu", i);
            f->holdings[f->holding_count++] =
                (struct fixture_holding){0, {"ns", "p", "c", "nvidia.com/gpu", "id", 0}, names[i]};
        }
        fixture_hold(f, 0, "ns", "last", "c", NULL);
        size_t device, all;
        fixture_page(f, TEXT_FORMAT_PROMETHEUS);
        render_counts(f->render, &device, &all);
        assert_int_equal(device, 2 * (over > 0 ? LIMIT_ENTITY_COPIES : count));
        char line[128];
        snprintf(line, sizeof(line), "podgpu_exporter_series_dropped{reason=\"holders\"} %d",
                 over > 0);
        assert_true(fixture_has_line(f, line));
    }
}

// --- From a device id to a line: attribution and render together ---

#define U "b8ea3855-276c-c9cb-b366-c6fa655957c5"
#define MIG_U "MIG-" U

static void check_mapping(const char *resource, bool by_name, unsigned instance,
                          const char *const *ids, const char *const *vgpus, bool shared)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new("DCGM_FI_DEV_FB_USED, gauge, t\n", "f");
    fixture_add_gpu(f, "T4");
    sv_copy(f->entities[0].uuid, sizeof(f->entities[0].uuid), SV("GPU-" U));
    if (instance != UINT32_MAX) {
        uint32_t i = fixture_add_instance(f, 0, instance, "1g.10gb");
        sv_copy(f->entities[i].uuid, sizeof(f->entities[i].uuid), SV(MIG_U));
    }
    fixture_list(f);
    uint32_t entity = f->entity_count - 1;
    fixture_i64(f, entity, 252, 42);
    f->options.flags.virtual_gpus = shared;

    static const char *const pods[] = {"gpu-pod-0", "gpu-pod-1"};
    struct pod_device rows[2];
    f->pods.rows = rows;
    for (f->pods.count = 0; f->pods.count < 2 && ids[f->pods.count]; f->pods.count++)
        rows[f->pods.count] = (struct pod_device){"default", pods[f->pods.count], "default",
                                                  resource,  ids[f->pods.count],  0};
    const struct sv names[] = {SV("nvidia.com/a100")};
    const struct attribute_options o = {by_name, names, 1};
    struct attribute_device devices[2];
    for (uint32_t i = 0; i < f->entity_count; i++) {
        const struct frame_entity *e = &f->entities[i];
        devices[i] = (struct attribute_device){
            .is_instance = e->kind == FRAME_ENTITY_GPU_I,
            .index = e->index,
            .gpu_instance_id = e->gpu_instance_id,
            .uuid = sv_from(e->uuid),
            .parent_uuid = sv_from(f->entities[0].uuid),
        };
    }
    assert_int_equal(attribute(&o, devices, f->entity_count, &f->pods, &f->holders), 0);
    f->owners = (struct render_owners){.version = 1, .rows = &f->pods, .holders = &f->holders};
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    for (size_t i = 0; i < f->pods.count; i++) {
        char want[256];
        const char *vgpu = shared ? vgpus[i] : NULL;
        snprintf(want, sizeof(want),
                 ",container=\"default\",namespace=\"default\",pod=\"%s\"%s%s%s} 42\n", pods[i],
                 vgpu ? ",vgpu=\"" : "", vgpu ? vgpu : "", vgpu ? "\"" : "");
        assert_non_null(strstr(buf_cstr(&f->page), want));
    }
    size_t device, all;
    render_counts(f->render, &device, &all);
    assert_int_equal(device, f->pods.count > 0 ? f->pods.count : 1);
    f->owners = (struct render_owners){0};
    f->pods = (struct pod_devices){0};
    attribute_result_deinit(&f->holders);
    f->holders = (struct attribute_result){0};
}

// What dcgm-exporter's own tests expect of each kind of device id.
static void test_device_ids_end_up_as_owner_labels(void **state)
{
    static const struct {
        bool by_name;
        const char *resource;
        unsigned instance; // UINT32_MAX: whole GPU
        const char *ids[2], *vgpus[2];
        bool exclusive, shared; // modes that have the row
    } cases[] = {
        {false, "nvidia.com/gpu", UINT32_MAX, {"GPU-" U}, {NULL}, true, true},
        {false, "nvidia.com/gpu", 3, {MIG_U}, {NULL}, true, true},
        {true, "nvidia.com/gpu", 3, {MIG_U}, {NULL}, true, true},
        {true, "nvidia.com/gpu", 0, {"nvidia0/gi0"}, {NULL}, true, true},
        {true, "nvidia.com/gpu", UINT32_MAX, {"0/vgpu"}, {NULL}, true, true},
        {false, "nvidia.com/gpu", UINT32_MAX, {"GPU-" U "::"}, {NULL}, true, true},
        {false, "nvidia.com/mig-1g.10gb", 3, {MIG_U}, {NULL}, true, true},
        {false, "nvidia.com/a100", UINT32_MAX, {"GPU-" U}, {NULL}, true, true},
        {true, "nvidia.com/gpu", 1, {"nvidia0/gi1/vgpu0"}, {NULL}, true, false},
        {true, "nvidia.com/gpu", 3, {"nvidia0/gi3/vgpu0"}, {"0"}, false, true},
        {true, "nvidia.com/gpu", UINT32_MAX, {"nvidia0/vgpu1"}, {"1"}, false, true},
        {false, "nvidia.com/gpu", UINT32_MAX, {"GPU-" U "::2"}, {"2"}, false, true},
        {false, "nvidia.com/mig-1g.10gb", 3, {MIG_U "::4"}, {"4"}, false, true},
        {true,
         "nvidia.com/gpu",
         3,
         {"nvidia0/gi3/vgpu0", "nvidia0/gi3/vgpu1"},
         {"0", "1"},
         false,
         true},
        {true,
         "nvidia.com/gpu",
         UINT32_MAX,
         {"nvidia0/vgpu1", "nvidia0/vgpu2"},
         {"1", "2"},
         false,
         true},
        {false,
         "nvidia.com/gpu",
         UINT32_MAX,
         {"GPU-" U "::2", "GPU-" U "::3"},
         {"2", "3"},
         false,
         true},
        {false, "nvidia.com/mig-1g.10gb", 3, {MIG_U "::4", MIG_U "::5"}, {"4", "5"}, false, true},
        {false, "nvidia.com/mig-1g.10gb", 3, {NULL}, {NULL}, true, true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (int shared = 0; shared < 2; shared++)
            if (shared ? cases[i].shared : cases[i].exclusive)
                check_mapping(cases[i].resource, cases[i].by_name, cases[i].instance, cases[i].ids,
                              cases[i].vgpus, shared);
}

// --- Jobs ---

static void test_each_job_has_a_sample(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(3);
    static const char *const first[] = {"job1-0"}, *const second[] = {"job1-1", "job2-1"};
    f->jobs[0] = (struct render_jobs){first, 1};
    f->jobs[1] = (struct render_jobs){second, 2};
    f->owners.jobs = f->jobs;
    f->owners.version++;
    assert_string_equal(temperatures(f),
                        HEAD GPU0 ",hpc_job=\"job1-0\"} 42\n" GPU1 ",hpc_job=\"job1-1\"} 42\n" GPU1
                                  ",hpc_job=\"job2-1\"} 42\n" GPU2 "} 42\n");
    fixture_hold(f, 1, "ns", "p", "c", NULL);
    assert_string_equal(temperatures(f), HEAD GPU0
                        ",hpc_job=\"job1-0\"} 42\n" GPU1
                        ",container=\"c\",hpc_job=\"job1-1\",namespace=\"ns\",pod=\"p\"} 42\n" GPU1
                        ",container=\"c\",hpc_job=\"job2-1\",namespace=\"ns\",pod=\"p\"} 42\n" GPU2
                        "} 42\n");
}

static void test_copies_and_jobs_multiply(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(1);
    static const char *const jobs[] = {"a", "b"};
    f->options.flags.virtual_gpus = true;
    f->jobs[0] = (struct render_jobs){jobs, 2};
    f->owners.jobs = f->jobs;
    fixture_hold(f, 0, "ns", "p", "c", "0");
    fixture_hold(f, 0, "ns", "p", "c", "1");
    const char *family = temperatures(f);
    for (int vgpu = 0; vgpu < 2; vgpu++) {
        for (int job = 0; job < 2; job++) {
            char want[128];
            snprintf(want, sizeof(want),
                     ",container=\"c\",hpc_job=\"%s\",namespace=\"ns\",pod=\"p\",vgpu=\"%d\"} 42\n",
                     jobs[job], vgpu);
            assert_non_null(strstr(family, want));
        }
    }
    size_t device, all;
    render_counts(f->render, &device, &all);
    assert_int_equal(device, 2 * 4);
}

// --- Labels of pods ---

static void test_the_owners_labels_stand_among_the_configured_ones_by_name(void **state)
{
    cleanup(fixture_freep) struct fixture *f =
        fixture_new("DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DRIVER_VERSION, label, v\n", "f");
    static const char *const jobs[] = {"j"};
    fixture_add_gpu(f, "T4");
    fixture_list(f);
    fixture_i64(f, 0, GPU_TEMP, 42);
    fixture_string(f, 0, 1, "535");
    f->jobs[0] = (struct render_jobs){jobs, 1};
    f->owners.jobs = f->jobs;
    fixture_hold(f, 0, "ns", "p", "c", NULL);
    fixture_label(f, "ns/p", "u-1",
                  "\"z\":\"say \\\"z\\\"\",\"A\":\"1\",\"Z/z\":\"2\",\"pod\":\"3\"");
    assert_string_equal(temperatures(f), HEAD GPU0
                        ",A=\"1\",DCGM_FI_DRIVER_VERSION=\"535\",Z_z=\"2\",label_pod=\"3\","
                        "z=\"say \\\"z\\\"\",container=\"c\",hpc_job=\"j\",namespace=\"ns\","
                        "pod=\"p\",pod_uid=\"u-1\"} 42\n");
}

static void test_labels_and_uid_in_the_old_namespace(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(1);
    f->options.flags.use_old_namespace = true;
    fixture_hold(f, 0, "ns", "p", "c", NULL);
    fixture_label(f, "ns/p", "u-1", "\"pod\":\"free\",\"pod_name\":\"taken\"");
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    assert_non_null(strstr(buf_cstr(&f->page),
                           ",hostname=\"testhost\",label_pod_name=\"taken\",pod=\"free\","
                           "container_name=\"c\",pod_name=\"p\",pod_namespace=\"ns\","
                           "pod_uid=\"u-1\"} 42\n"));
}

static void test_only_a_single_owner_lends_its_labels(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(3);
    fixture_hold(f, 0, "ns", "p", "c", NULL); // one of two pods
    fixture_hold(f, 0, "ns", "q", "c", NULL);
    fixture_hold(f, 1, "other", "p", "c", NULL); // the same name elsewhere
    fixture_hold(f, 2, "ns", "p", "a", "0");     // one pod, two containers
    fixture_hold(f, 2, "ns", "p", "b", "1");
    fixture_label(f, "ns/p", "u-1", "\"app\":\"a\"");
    assert_string_equal(
        temperatures(f),
        HEAD GPU0 "} 42\n" GPU1 ",container=\"c\",namespace=\"other\",pod=\"p\"} 42\n" GPU2
                  ",app=\"a\",container=\"\",namespace=\"ns\",pod=\"p\",pod_uid=\"u-1\"} 42\n");
}

static void test_each_copy_has_the_labels_of_its_own_pod(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(1);
    f->options.flags.virtual_gpus = true;
    fixture_hold(f, 0, "ns", "p", "c", "0");
    fixture_hold(f, 0, "ns", "q", "c", "1");
    fixture_hold(f, 0, "ns", "r", "c", "2"); // not known
    fixture_label(f, "ns/p", "u-1", "\"app\":\"a\"");
    fixture_label(f, "ns/q", "u-2", "");
    assert_string_equal(
        temperatures(f), HEAD GPU0
        ",app=\"a\",container=\"c\",namespace=\"ns\",pod=\"p\",pod_uid=\"u-1\",vgpu=\"0\"} "
        "42\n" GPU0
        ",container=\"c\",namespace=\"ns\",pod=\"q\",pod_uid=\"u-2\",vgpu=\"1\"} 42\n" GPU0
        ",container=\"c\",namespace=\"ns\",pod=\"r\",vgpu=\"2\"} 42\n");
}

static void test_a_label_named_like_a_configured_one_makes_way(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(1);
    fixture_hold(f, 0, "ns", "p", "c", NULL);
    fixture_label(f, "ns/p", "u-1", "\"DCGM_FI_DEV_NAME\":\"mine\"");
    assert_non_null(strstr(temperatures(f), ",label_DCGM_FI_DEV_NAME=\"mine\",container="));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_holder_gives_the_device_its_labels),
        cmocka_unit_test(test_a_container_with_two_replicas_is_one_holder),
        cmocka_unit_test(test_two_holders_give_no_labels),
        cmocka_unit_test(test_two_containers_of_a_pod_leave_the_pod_as_the_owner),
        cmocka_unit_test(test_the_last_of_several_holders_counts_on_request),
        cmocka_unit_test(test_empty_owner_labels_stand_where_there_is_no_single_owner),
        cmocka_unit_test(test_empty_owner_labels_in_the_old_namespace),
        cmocka_unit_test(test_other_owners_are_on_the_next_page),
        cmocka_unit_test(test_each_holder_has_a_copy_with_its_replica),
        cmocka_unit_test(test_utilisation_is_copied_like_other_families),
        cmocka_unit_test(test_equal_series_are_printed_once_and_counted),
        cmocka_unit_test(test_copies_of_a_device_end_at_their_ceiling),
        cmocka_unit_test(test_device_ids_end_up_as_owner_labels),
        cmocka_unit_test(test_each_job_has_a_sample),
        cmocka_unit_test(test_copies_and_jobs_multiply),
        cmocka_unit_test(test_the_owners_labels_stand_among_the_configured_ones_by_name),
        cmocka_unit_test(test_labels_and_uid_in_the_old_namespace),
        cmocka_unit_test(test_only_a_single_owner_lends_its_labels),
        cmocka_unit_test(test_each_copy_has_the_labels_of_its_own_pod),
        cmocka_unit_test(test_a_label_named_like_a_configured_one_makes_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
