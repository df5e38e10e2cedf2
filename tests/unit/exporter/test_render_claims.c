// SPDX-License-Identifier: Apache-2.0
// dcgm-exporter's two layouts for devices with several users: copies for the users of a resource
// claim (--kubernetes-enable-dra), and what each pod's processes use (--kubernetes-virtual-gpus).
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"
#include "exporter/dra.h"
#include "render_fixture.h"

#define GPU_TEMP 150
#define GPU_UTIL 203
#define FB_USED 252
#define CSV                                                                                        \
    "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_GPU_UTIL, gauge, u\nDCGM_FI_DEV_FB_USED, gauge, " \
    "m\n"
#define HEAD(name, help) "# HELP " name " " help "\n# TYPE " name " gauge\n"
#define LABELS(n, bus)                                                                             \
    "{gpu=\"" n "\",UUID=\"GPU-00000000-0000-0000-0000-00000000000" n                              \
    "\",pci_bus_id=\"00000000:" bus ":00.0\",device=\"nvidia" n                                    \
    "\",modelName=\"T4\",hostname=\"testhost\""
#define TEMP "DCGM_FI_DEV_GPU_TEMP"
#define TEMP_HEAD HEAD(TEMP, "t")
#define TEMP0 TEMP LABELS("0", "1B")
#define TEMP1 TEMP LABELS("1", "1C")
#define DRA(container, claim, device, mig)                                                         \
    ",container=\"" container "\",dra_claim_name=\"" claim                                         \
    "\",dra_claim_namespace=\"ns\",dra_device_name=\"" device                                      \
    "\",dra_driver_name=\"gpu.nvidia.com\"" mig ",dra_pool_name=\"node-1\",namespace=\"ns\""

// --- Claims ---

struct claimed {
    struct fixture *f;
    struct dra *dra;
    struct pod_devices rows;
    struct attribute_result holders;
};

static void claimed_deinit(struct claimed *c)
{
    attribute_result_deinit(&c->holders);
    dra_free(c->dra);
    fixture_free(c->f);
}

static struct fixture *node(unsigned gpus)
{
    struct fixture *f = fixture_new(CSV, "f");
    for (unsigned i = 0; i < gpus; i++)
        fixture_add_gpu(f, "T4");
    return f;
}

static void list(struct fixture *f)
{
    fixture_list(f);
    for (uint32_t i = 0; i < f->entity_count; i++)
        fixture_i64(f, i, GPU_TEMP, 42);
}

static void hold(struct claimed *c, struct pod_device *rows, size_t count)
{
    struct attribute_device devices[FIXTURE_ENTITIES_MAX] = {0};
    const struct fixture *f = c->f;
    for (uint32_t i = 0; i < f->entity_count; i++) {
        const struct frame_entity *e = &f->entities[i];
        devices[i] = (struct attribute_device){
            .is_instance = e->kind == FRAME_ENTITY_GPU_I,
            .index = e->index,
            .gpu_instance_id = e->gpu_instance_id,
            .uuid = sv_from(e->uuid),
            .parent_uuid = sv_from(f->entities[e->parent].uuid),
            .profile_id = e->profile_id,
            .placement = e->placement,
        };
    }
    if (!c->dra)
        assert_int_equal(dra_new(&c->dra), 0);
    const struct attribute_options o = {.dra = c->dra};
    c->rows = (struct pod_devices){.refs = 1, .count = count, .rows = rows};
    attribute_result_deinit(&c->holders);
    assert_int_equal(attribute(&o, devices, f->entity_count, &c->rows, &c->holders), 0);
    c->f->owners.rows = &c->rows;
    c->f->owners.holders = &c->holders;
    c->f->owners.version++;
}

#define CLAIM(name_)                                                                               \
    &(const struct pod_device_claim)                                                               \
    {                                                                                              \
        .name = (name_), .namespace_name = "ns", .uid = "", .driver = DRA_DRIVER,                  \
        .pool = "node-1", .share_id = ""                                                           \
    }
#define ROW(pod_, container_, device_, claim_)                                                     \
    {                                                                                              \
        .namespace_name = "ns", .pod = (pod_), .container = (container_), .resource = "",          \
        .device_id = (device_), .claim = (claim_)                                                  \
    }

static const char *temperatures(struct fixture *f)
{
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    return fixture_family(f, TEMP);
}

static void each_user_of_a_claim_has_a_copy_in_the_devices_place(void **state)
{
    cleanup(claimed_deinit) struct claimed c = {.f = node(2)};
    list(c.f);
    c.f->options.flags.enable_dra = true;
    struct pod_device rows[] = {
        ROW("p", "main", "gpu-0", CLAIM("shared")),
        ROW("p", "main", "gpu-0", CLAIM("again")), // one copy for a container
        ROW("p", "side", "gpu-0", CLAIM("shared")),
        ROW("q", "main", "gpu-0", CLAIM("shared")),
    };
    hold(&c, rows, ARRAY_SIZE(rows));
    assert_string_equal(
        temperatures(c.f),
        TEMP_HEAD TEMP0 DRA("main", "shared", "gpu-0", "") ",pod=\"p\"} 42\n" TEMP0 DRA(
            "side", "shared", "gpu-0", "") ",pod=\"p\"} 42\n" TEMP0 DRA("main", "shared", "gpu-0",
                                                                        "") ",pod=\"q\"} 42\n" TEMP1
                                                                            "} 42\n");
    // In the old namespace's names.
    c.f->options.flags.use_old_namespace = true;
    hold(&c, rows, 1);
    assert_non_null(strstr(temperatures(c.f),
                           ",container_name=\"main\",dra_claim_name=\"shared\",dra_claim_namespace="
                           "\"ns\",dra_device_name=\"gpu-0\",dra_driver_name=\"gpu.nvidia.com\","
                           "dra_pool_name=\"node-1\",pod_name=\"p\",pod_namespace=\"ns\"} 42\n"));
}

static void without_the_flag_a_claims_holder_is_shown_as_a_plugins(void **state)
{
    cleanup(claimed_deinit) struct claimed c = {.f = node(2)};
    list(c.f);
    struct pod_device rows[] = {
        ROW("p", "main", "gpu-0", CLAIM("a")),
        ROW("q", "main", "gpu-1", CLAIM("b")),
        ROW("r", "main", "gpu-1", CLAIM("b")),
    };
    hold(&c, rows, ARRAY_SIZE(rows));
    assert_string_equal(temperatures(c.f), TEMP_HEAD TEMP0
                        ",container=\"main\",namespace=\"ns\",pod=\"p\"} 42\n" TEMP1 "} 42\n");
    // Copies for virtual GPUs come first, as there.
    c.f->options.flags.enable_dra = c.f->options.flags.virtual_gpus = true;
    c.f->owners.version++;
    assert_string_equal(temperatures(c.f),
                        TEMP_HEAD TEMP0 ",container=\"main\",namespace=\"ns\",pod=\"p\"} 42\n" TEMP1
                                        ",container=\"main\",namespace=\"ns\",pod=\"q\"} 42\n" TEMP1
                                        ",container=\"main\",namespace=\"ns\",pod=\"r\"} 42\n");
}

static void a_pods_uid_and_labels_are_on_its_copy_when_asked_for(void **state)
{
    cleanup(claimed_deinit) struct claimed c = {.f = node(1)};
    list(c.f);
    c.f->options.flags.enable_dra = true;
    struct pod_device rows[] = {ROW("p", "main", "gpu-0", CLAIM("a"))};
    fixture_label(c.f, "ns/p", "u-1", "\"app\":\"x\",\"dra_pool_name\":\"mine\"");
    hold(&c, rows, 1);
    assert_string_equal(temperatures(c.f), TEMP_HEAD TEMP0
                        ",app=\"x\",label_dra_pool_name=\"mine\",container=\"main\",dra_claim_name="
                        "\"a\",dra_claim_namespace="
                        "\"ns\",dra_device_name=\"gpu-0\",dra_driver_name=\"gpu.nvidia.com\",dra_"
                        "pool_name=\"node-1\",namespace=\"ns\",pod=\"p\",pod_uid=\"u-1\"} 42\n");
}

// dcgm-exporter looks for a MIG claim's pod on samples of the parent, where there are none.
static void a_mig_claim_is_on_its_instance_and_one_that_is_not_known_on_no_instance(void **state)
{
    cleanup(claimed_deinit) struct claimed c = {.f = node(1)};
    uint32_t first = fixture_add_instance(c.f, 0, 1, "1g.12gb");
    uint32_t second = fixture_add_instance(c.f, 0, 2, "1g.12gb");
    for (uint32_t i = 0; i < c.f->entity_count; i++)
        c.f->entities[i].profile_id = c.f->entities[i].placement = UINT32_MAX;
    c.f->entities[first].profile_id = c.f->entities[second].profile_id = 19;
    c.f->entities[first].placement = 0;
    c.f->entities[second].placement = 1;
    list(c.f);
    c.f->options.flags.enable_dra = true;
    struct pod_device rows[] = {
        ROW("p", "main", "gpu-0-mig-1g12gb-19-1", CLAIM("a")),
        ROW("q", "main", "gpu-0-mig-1g12gb-19-5", CLAIM("b")),
    };
    hold(&c, rows, ARRAY_SIZE(rows));
    const char *page = temperatures(c.f);
    char line[1024];
    snprintf(line, sizeof(line),
             ",GPU_I_ID=\"2\",hostname=\"testhost\",container=\"main\",dra_claim_name=\"a\","
             "dra_claim_namespace=\"ns\",dra_device_name=\"gpu-0-mig-1g12gb-19-1\",dra_driver_name="
             "\"gpu.nvidia.com\",dra_mig_device_uuid=\"%s\",dra_mig_profile=\"1g.12gb\","
             "dra_pool_name=\"node-1\",namespace=\"ns\",pod=\"p\"} 42\n",
             c.f->entities[second].uuid);
    assert_non_null(strstr(page, line));
    assert_non_null(strstr(page, ",GPU_I_ID=\"1\",hostname=\"testhost\"} 42\n"));
    assert_null(strstr(page, "pod=\"q\""));
    assert_int_equal(c.holders.part_count, 1);

    // Where the GPU itself has samples they tell of the claim, as there.
    assert_int_equal(selection_parse(SV("g"), &c.f->options.gpus, NULL), 0);
    c.f->owners.version++;
    page = temperatures(c.f);
    assert_non_null(strstr(page, DRA("main", "b", "gpu-0-mig-1g12gb-19-5",
                                     ",dra_mig_profile=\"1g.12gb\"") ",pod=\"q\"} 42\n"));
}

// --- Processes ---

struct pod_use {
    size_t entity;
    const char *uid;
    struct usage_pod_value value;
};
static const struct pod_use uses[] = {
    {0, "u-1", {50, 1024, true, true}},
    {0, "u-2", {25, 0, true, false}},
    {1, "u-1", {75, 800, true, true}},
    {2, "u-1", {0, 500, false, true}}, // an instance: nobody tells a process's share of it
};

// Stands for the usage engine, of which the page knows no more than this.
static bool pod_value(const struct usage *u, size_t entity, const char *pod_uid,
                      struct usage_pod_value *out)
{
    const struct pod_use *all = (const void *)u;
    for (size_t i = 0; i < ARRAY_SIZE(uses); i++) {
        if (all[i].entity != entity || strcmp(all[i].uid, pod_uid) != 0)
            continue;
        *out = all[i].value;
        return true;
    }
    return false;
}

static const char *family(struct fixture *f, const char *name)
{
    static struct buf page = BUF_INIT(1u << 20);
    static char found[8192];
    struct render_input in = fixture_input(f);
    in.usage = (const void *)uses;
    in.pod_value = pod_value;
    buf_reset(&page);
    assert_int_equal(render_page(f->render, &in, TEXT_FORMAT_PROMETHEUS, &page), 0);
    char head[128];
    snprintf(head, sizeof(head), "# HELP %s ", name);
    const char *at = strstr(buf_cstr(&page), head);
    found[0] = '\0';
    if (at) {
        const char *end = strstr(at + 1, "# HELP ");
        sv_copy(found, sizeof(found), (struct sv){at, (size_t)(end - at)});
    }
    return found;
}

#define OWNED(pod, uid, vgpu)                                                                      \
    ",container=\"c\",namespace=\"ns\",pod=\"" pod "\",pod_uid=\"" uid "\"" vgpu "} "

static struct fixture *shared_node(void)
{
    struct fixture *f = node(2);
    list(f);
    f->options.flags.virtual_gpus = true;
    for (uint32_t i = 0; i < 2; i++) {
        fixture_i64(f, i, GPU_UTIL, 99);
        fixture_i64(f, i, FB_USED, 4000);
    }
    fixture_label(f, "ns/p", "u-1", "");
    fixture_label(f, "ns/q", "u-2", "");
    fixture_label(f, "ns/idle", "u-3", "");
    fixture_hold(f, 0, "ns", "p", "c", "0");
    fixture_hold(f, 0, "ns", "q", "c", "1");
    fixture_hold(f, 0, "ns", "idle", "c", "2");
    fixture_hold(f, 0, "ns", "unknown", "c", "3");
    return f;
}

static void two_families_show_what_each_pods_processes_use(void **state)
{
    cleanup(fixture_freep) struct fixture *f = shared_node();
#define UTIL(n, bus) "DCGM_FI_DEV_GPU_UTIL" LABELS(n, bus)
#define USED(n, bus) "DCGM_FI_DEV_FB_USED" LABELS(n, bus)
    assert_string_equal(
        family(f, "DCGM_FI_DEV_GPU_UTIL"),
        HEAD("DCGM_FI_DEV_GPU_UTIL", "u") UTIL("0", "1B") "} 99\n" UTIL("0", "1B")
            OWNED("p", "u-1", ",vgpu=\"0\"") "50\n" UTIL("0", "1B")
                OWNED("q", "u-2", ",vgpu=\"1\"") "25\n" UTIL("0", "1B")
                    OWNED("idle", "u-3", ",vgpu=\"2\"") "0\n" UTIL("0", "1B")
                        OWNED("unknown", "", ",vgpu=\"3\"") "0\n" UTIL("1", "1C") "} 99\n");
    assert_string_equal(
        family(f, "DCGM_FI_DEV_FB_USED"),
        HEAD("DCGM_FI_DEV_FB_USED", "m") USED("0", "1B") "} 4000\n" USED("0", "1B")
            OWNED("p", "u-1", ",vgpu=\"0\"") "1024\n" USED("0", "1B")
                OWNED("q", "u-2", ",vgpu=\"1\"") "0\n" USED("0", "1B")
                    OWNED("idle", "u-3", ",vgpu=\"2\"") "0\n" USED("0", "1B")
                        OWNED("unknown", "", ",vgpu=\"3\"") "0\n" USED("1", "1C") "} 4000\n");
}

static void all_other_families_are_copied(void **state)
{
    cleanup(fixture_freep) struct fixture *f = shared_node();
    const char *page = family(f, TEMP);
    size_t lines = 0;
    for (const char *at = page; (at = strstr(at, "} 42\n")); at++)
        lines++;
    assert_int_equal(lines, 5); // four holders and a free GPU
    assert_null(strstr(page, TEMP0 "} 42\n"));
    assert_null(strstr(page, "pod=\"unknown\",pod_uid")); // where it is no value's key
}

static void without_numbers_per_process_the_two_are_copied_as_well(void **state)
{
    cleanup(fixture_freep) struct fixture *f = shared_node();
    (void)family(f, "DCGM_FI_DEV_GPU_UTIL");
    fixture_page(f, TEXT_FORMAT_PROMETHEUS);
    const char *page = fixture_family(f, "DCGM_FI_DEV_GPU_UTIL");
    assert_null(strstr(page, "UTIL" LABELS("0", "1B") "} 99\n"));
    assert_non_null(strstr(page, OWNED("p", "u-1", ",vgpu=\"0\"") "99\n"));
}

static void a_device_that_nobody_holds_has_its_own_sample_alone(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(1);
    list(f);
    f->options.flags.virtual_gpus = true;
    fixture_i64(f, 0, GPU_UTIL, 99);
    assert_string_equal(family(f, "DCGM_FI_DEV_GPU_UTIL"),
                        HEAD("DCGM_FI_DEV_GPU_UTIL", "u") UTIL("0", "1B") "} 99\n");
    fixture_status(f, 0, GPU_UTIL, FRAME_NOT_SUPPORTED);
    assert_string_equal(family(f, "DCGM_FI_DEV_GPU_UTIL"), "");
}

static void an_instance_has_memory_and_no_utilisation_of_a_pod(void **state)
{
    cleanup(fixture_freep) struct fixture *f = node(1);
    (void)fixture_add_instance(f, 0, 1, "1g.10gb");
    uint32_t second = fixture_add_instance(f, 0, 2, "1g.10gb");
    assert_int_equal(second, 2);
    list(f);
    f->options.flags.virtual_gpus = true;
    fixture_i64(f, 0, GPU_UTIL, 99);
    for (uint32_t i = 0; i < 3; i++)
        fixture_i64(f, i, FB_USED, 600);
    fixture_label(f, "ns/p", "u-1", "");
    fixture_hold(f, second, "ns", "p", "c", NULL);
    assert_non_null(strstr(family(f, "DCGM_FI_DEV_FB_USED"), OWNED("p", "u-1", "") "500\n"));
    assert_non_null(strstr(family(f, "DCGM_FI_DEV_GPU_UTIL"), OWNED("p", "u-1", "") "0\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_user_of_a_claim_has_a_copy_in_the_devices_place),
        cmocka_unit_test(without_the_flag_a_claims_holder_is_shown_as_a_plugins),
        cmocka_unit_test(a_pods_uid_and_labels_are_on_its_copy_when_asked_for),
        cmocka_unit_test(a_mig_claim_is_on_its_instance_and_one_that_is_not_known_on_no_instance),
        cmocka_unit_test(two_families_show_what_each_pods_processes_use),
        cmocka_unit_test(all_other_families_are_copied),
        cmocka_unit_test(without_numbers_per_process_the_two_are_copied_as_well),
        cmocka_unit_test(a_device_that_nobody_holds_has_its_own_sample_alone),
        cmocka_unit_test(an_instance_has_memory_and_no_utilisation_of_a_pod),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
