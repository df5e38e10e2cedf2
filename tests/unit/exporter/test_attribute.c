// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/macros.h"
#include "exporter/attribute.h"

#define U "b8ea3855-276c-c9cb-b366-c6fa655957c5"
#define U_UPPER "B8EA3855-276C-C9CB-B366-C6FA655957C5"
#define V "11111111-2222-3333-4444-555555555555"
#define W "99999999-8888-7777-6666-555555555555"
#define MOST 4

static const struct attribute_options by_uuid = {0};

#define ROW(pod_, container_, resource_, id_)                                                      \
    {                                                                                              \
        .namespace_name = "default", .pod = (pod_), .container = (container_),                     \
        .resource = (resource_), .device_id = (id_)                                                \
    }
#define GPU(index_, uuid_)                                                                         \
    {                                                                                              \
        .index = (index_), .uuid = SV(uuid_)                                                       \
    }
#define INSTANCE(index_, gi_, uuid_, parent_)                                                      \
    {                                                                                              \
        .is_instance = true, .index = (index_), .gpu_instance_id = (gi_), .uuid = SV(uuid_),       \
        .parent_uuid = SV(parent_)                                                                 \
    }

static struct attribute_result run(const struct attribute_options *o,
                                   const struct attribute_device *devices, size_t device_count,
                                   struct pod_device *rows, size_t row_count)
{
    struct attribute_result result;
    struct pod_devices list = {.refs = 1, .count = row_count, .rows = rows};
    assert_int_equal(attribute(o, devices, device_count, &list, &result), 0);
    assert_int_equal(result.device_count, device_count);
    return result;
}

static void assert_sv(struct sv got, const char *want)
{
    if (!want) {
        assert_null(got.ptr);
        return;
    }
    assert_non_null(got.ptr);
    assert_int_equal(got.len, strlen(want));
    assert_memory_equal(got.ptr, want, got.len);
}

// The rows of dcgm-exporter's own mapping test: sample i must carry pod i; vgpu NULL = no label
// (absent or empty).
struct upstream_case {
    const char *what;
    bool by_device_name;
    const char *resource;
    const char *extra_resource;
    size_t count;                          // pods, each with ids[i]
    struct attribute_device devices[MOST]; // of sample i
    const char *ids[MOST];
    bool one_device; // every sample is devices[0]
    const char *vgpu[MOST];
};

static const struct upstream_case upstream_cases[] = {
    {"uid, U, U", false, "nvidia.com/gpu", NULL, 1, {GPU(0, U)}, {U}},
    {"uid, MIG-U, MIG-U", false, "nvidia.com/gpu", NULL, 1, {GPU(0, "MIG-" U)}, {"MIG-" U}},
    {"uid, U with GI 3, MIG-U", false, "nvidia.com/gpu", NULL, 1, {GPU(0, U)}, {"MIG-" U}},
    {"device-name, mig GI 3, MIG-U",
     true,
     "nvidia.com/gpu",
     NULL,
     1,
     {INSTANCE(0, 3, "MIG-" U, "GPU-" V)},
     {"MIG-" U}},
    {"device-name, mig GI 0, nvidia0/gi0",
     true,
     "nvidia.com/gpu",
     NULL,
     1,
     {INSTANCE(0, 0, "MIG-" U, "GPU-" V)},
     {"nvidia0/gi0"}},
    {"device-name, device 0, 0/vgpu",
     true,
     "nvidia.com/gpu",
     NULL,
     1,
     {GPU(0, "GPU-" V)},
     {"0/vgpu"}},
    {"uid, U, U::", false, "nvidia.com/gpu", NULL, 1, {GPU(0, U)}, {U "::"}},
    {"uid, mig resource, MIG-U",
     false,
     "nvidia.com/mig-1g.10gb",
     NULL,
     1,
     {INSTANCE(0, 3, "MIG-" U, "GPU-" V)},
     {"MIG-" U}},
    {"uid, named resource, U", false, "nvidia.com/a100", "nvidia.com/a100", 1, {GPU(0, U)}, {U}},
    {"device-name, two instances",
     true,
     "nvidia.com/gpu",
     NULL,
     2,
     {INSTANCE(0, 0, "MIG-" U, "GPU-" V), INSTANCE(0, 1, "MIG-" W, "GPU-" V)},
     {"nvidia0/gi0/vgpu0", "nvidia0/gi1/vgpu0"},
     false,
     {"0", "0"}},
    {"device-name, mig GI 3, one vgpu",
     true,
     "nvidia.com/gpu",
     NULL,
     1,
     {INSTANCE(0, 3, "MIG-" U, "GPU-" V)},
     {"nvidia0/gi3/vgpu0"},
     false,
     {"0"}},
    {"device-name, nvidia0, vgpu1",
     true,
     "nvidia.com/gpu",
     NULL,
     1,
     {GPU(0, "GPU-" V)},
     {"nvidia0/vgpu1"},
     false,
     {"1"}},
    {"uid, U::2", false, "nvidia.com/gpu", NULL, 1, {GPU(0, U)}, {U "::2"}, false, {"2"}},
    {"uid, mig resource, MIG-U::4",
     false,
     "nvidia.com/mig-1g.10gb",
     NULL,
     1,
     {INSTANCE(0, 3, "MIG-" U, "GPU-" V)},
     {"MIG-" U "::4"},
     false,
     {"4"}},
    {"device-name, mig GI 3, two vgpus",
     true,
     "nvidia.com/gpu",
     NULL,
     2,
     {INSTANCE(0, 3, "MIG-" U, "GPU-" V)},
     {"nvidia0/gi3/vgpu0", "nvidia0/gi3/vgpu1"},
     true,
     {"0", "1"}},
    {"device-name, nvidia0, two vgpus",
     true,
     "nvidia.com/gpu",
     NULL,
     2,
     {GPU(0, "GPU-" V)},
     {"nvidia0/vgpu1", "nvidia0/vgpu2"},
     true,
     {"1", "2"}},
    {"uid, U::2 and U::3",
     false,
     "nvidia.com/gpu",
     NULL,
     2,
     {GPU(0, U)},
     {U "::2", U "::3"},
     true,
     {"2", "3"}},
    {"uid, mig resource, MIG-U::4 and ::5",
     false,
     "nvidia.com/mig-1g.10gb",
     NULL,
     2,
     {INSTANCE(0, 3, "MIG-" U, "GPU-" V)},
     {"MIG-" U "::4", "MIG-" U "::5"},
     true,
     {"4", "5"}},
};

static void check_upstream_case(const struct upstream_case *c)
{
    static const char *const pods[MOST] = {"gpu-pod-0", "gpu-pod-1", "gpu-pod-2", "gpu-pod-3"};
    struct sv extra = sv_from(c->extra_resource);
    struct attribute_options o = {.by_device_name = c->by_device_name,
                                  .resource_names = &extra,
                                  .resource_name_count = c->extra_resource ? 1 : 0};
    struct pod_device rows[MOST];
    size_t device_count = c->one_device ? 1 : c->count;
    for (size_t i = 0; i < c->count; i++)
        rows[i] = (struct pod_device)ROW(pods[i], "default", c->resource, c->ids[i]);
    print_message("    %s\n", c->what);
    struct attribute_result r = run(&o, c->devices, device_count, rows, c->count);
    assert_int_equal(r.unknown_ids, 0);
    assert_int_equal(r.holder_count, c->count);
    assert_int_equal(r.shared_seen, c->one_device);
    // Shared mode: sample i is the i-th copy. Exclusive mode: the one holder, or the last.
    for (size_t i = 0; i < c->count; i++) {
        const struct attribute_device_holders *d = &r.devices[c->one_device ? 0 : i];
        const struct attribute_holder *h = &r.holders[d->first + (c->one_device ? i : 0)];
        assert_int_equal(d->count, c->one_device ? c->count : 1);
        assert_string_equal(rows[h->row].pod, pods[i]);
        assert_sv(h->vgpu.len ? h->vgpu : (struct sv){NULL, 0}, c->vgpu[i]);
    }
    const struct attribute_device_holders *last = &r.devices[device_count - 1];
    assert_string_equal(rows[r.holders[last->first + last->count - 1].row].pod, pods[c->count - 1]);
    attribute_result_deinit(&r);
}

static void every_row_of_the_upstream_table_maps(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(upstream_cases); i++)
        check_upstream_case(&upstream_cases[i]);
}

static void a_device_nobody_holds_has_no_holder(void **state)
{
    const struct attribute_device devices[] = {INSTANCE(0, 3, "MIG-" U, "GPU-" V),
                                               GPU(1, "GPU-" W)};
    struct pod_device rows[] = {ROW("p", "c", "nvidia.com/gpu", "GPU-" W)};
    struct attribute_result r = run(&by_uuid, devices, 2, rows, 0);
    assert_int_equal(r.devices[0].count, 0);
    assert_int_equal(r.devices[1].count, 0);
    assert_int_equal(r.holder_count, 0);
    attribute_result_deinit(&r);
    r = run(&by_uuid, devices, 2, rows, 1);
    assert_int_equal(r.devices[0].count, 0);
    assert_int_equal(r.devices[0].containers, 0);
    assert_int_equal(r.devices[1].count, 1);
    attribute_result_deinit(&r);
}

static void no_devices_at_all_is_fine(void **state)
{
    struct pod_device rows[] = {ROW("p", "c", "nvidia.com/gpu", "GPU-" W)};
    struct attribute_result r = run(&by_uuid, NULL, 0, rows, 1);
    assert_int_equal(r.unknown_ids, 1);
    attribute_result_deinit(&r);
    r = run(&by_uuid, NULL, 0, NULL, 0);
    assert_int_equal(r.unknown_ids, 0);
    attribute_result_deinit(&r);
}

static void the_replica_is_what_follows_its_separator(void **state)
{
    static const struct {
        const char *id, *replica;
    } cases[] = {
        {"nvidia0/vgpu0", "0"},  {"nvidia0", NULL},        {"nvidia0/gi0/vgpu1", "1"},
        {"nvidia0/gi0", NULL},   {"GPU-x::3", "3"},        {"GPU-x", NULL},
        {"MIG-x::0", "0"},       {"MIG-x", NULL},          {"GPU-x::", ""},
        {"0/vgpu", ""},          {"GPU-x:3", NULL},        {"", NULL},
        {"GPU-x::2::3", "2::3"}, {"nvidia0/vgpu12", "12"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_sv(attribute_replica(sv_from(cases[i].id)), cases[i].replica);
}

static void stripping_leaves_the_device(void **state)
{
    static const struct {
        const char *id, *device;
    } cases[] = {
        {"MIG-x::7", "MIG-x"},
        {"MIG-x", "MIG-x"},
        {"GPU-x", "GPU-x"},
        {U "::2", U},
        {"", ""},
        {"MIG-x::", "MIG-x"},
        {"nvidia0/vgpu3", "nvidia0"},
        {"nvidia0/gi3/vgpu0", "nvidia0/gi3"},
        {"0/vgpu", "0"},
        {"::", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_sv(attribute_strip_replica(sv_from(cases[i].id)), cases[i].device);
}

static void a_resource_counts_by_name_prefix_or_list(void **state)
{
    static const struct sv names[] = {SV("nvidia.com/a100"), SV("nvidia.com/gpu.shared")};
    const struct attribute_options with_list = {.resource_names = names, .resource_name_count = 2};
    static const struct {
        const char *resource;
        bool plain, listed;
    } cases[] = {
        {"nvidia.com/gpu", true, true},
        {"nvidia.com/gpu.shared", false, true},
        {"nvidia.com/mig-1g.10gb", true, true},
        {"nvidia.com/mig-3g.20gb.shared", true, true},
        {"nvidia.com/mig", false, false},
        {"nvidia.com/a100", false, true},
        {"nvidia.com/a100.shared", false, false},
        {"nvidia.com/GPU", false, false},
        {"amd.com/gpu", false, false},
        {"", false, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct sv resource = sv_from(cases[i].resource);
        assert_int_equal(attribute_resource_is_gpu(&by_uuid, resource), cases[i].plain);
        assert_int_equal(attribute_resource_is_gpu(&with_list, resource), cases[i].listed);
    }
}

static void a_row_is_wanted_for_its_resource_or_its_id(void **state)
{
    static const struct {
        const char *resource, *id;
        bool wanted;
    } cases[] = {
        {"nvidia.com/gpu", "anything", true},
        {"nvidia.com/mig-1g.5gb", "", true},
        {"example.com/renamed", "GPU-" U, true},
        {"example.com/renamed", "GPU-" U_UPPER "::12", true},
        {"example.com/renamed", "MIG-" U, true},
        {"example.com/renamed", "MIG-GPU-" U "/1/0", true},
        {"example.com/renamed", "MIG-GPU-" U "/1", false},
        {"example.com/renamed", "MIG-GPU-" U, false},
        {"example.com/renamed", U, false},
        {"volcano.sh/vgpu-memory", "GPU-" U "-memory-17", false},
        {"example.com/renamed", "GPU-b8ea3855", false},
        {"example.com/renamed", "GPU-b8ea3855-276c-c9cb-b366-c6fa655957cg", false},
        {"example.com/renamed", "GPU-b8ea3855x276c-c9cb-b366-c6fa655957c5", false},
        {"example.com/nic", "0000:1b:00.0", false},
        {"example.com/nic", "nvidia0", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(
            attribute_row_is_wanted(&by_uuid, sv_from(cases[i].resource), sv_from(cases[i].id)),
            cases[i].wanted);
}

struct find_case {
    const char *resource, *id;
    int device; // -1: none
    size_t unknown;
};

static void check_find_cases(const struct attribute_options *o,
                             const struct attribute_device *devices, size_t device_count,
                             const struct find_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct pod_device row = ROW("p", "c", cases[i].resource, cases[i].id);
        struct attribute_result r = run(o, devices, device_count, &row, 1);
        int found = -1;
        for (size_t d = 0; d < device_count; d++) {
            if (r.devices[d].count)
                found = (int)d;
        }
        if (found != cases[i].device)
            fail_msg("%s: device %d, not %d", cases[i].id, found, cases[i].device);
        assert_int_equal(r.holder_count, cases[i].device >= 0);
        assert_int_equal(r.unknown_ids, cases[i].unknown);
        attribute_result_deinit(&r);
    }
}

static void ids_of_all_plugins_find_their_device(void **state)
{
    const struct attribute_device devices[] = {
        GPU(0, "GPU-" U),
        INSTANCE(0, 3, "MIG-" V, "GPU-" U),
        INSTANCE(0, 11, "MIG-" W, "GPU-" U),
        {.index = 1, .uuid = SV("GPU-" W), .minor_known = true, .minor = 5},
        {.is_instance = true,
         .index = 1,
         .gpu_instance_id = 2,
         .uuid = SV("MIG-" U),
         .parent_uuid = SV("GPU-" W),
         .minor_known = true,
         .minor = 5},
        {.is_instance = true,
         .index = 2,
         .gpu_instance_id = 7,
         .legacy_uuid = SV("MIG-GPU-" V "/7/0")},
    };
    static const struct find_case cases[] = {
        {"nvidia.com/gpu", "GPU-" U, 0, 0},
        {"nvidia.com/gpu", "GPU-" U_UPPER, 0, 0},
        {"nvidia.com/gpu", "gpu-" U, -1, 1},
        {"nvidia.com/gpu", "MIG-" V, 1, 0},
        {"nvidia.com/gpu", "MIG-" V "::1", 1, 0},
        {"nvidia.com/mig-1g.5gb", "MIG-" U_UPPER "::1", 4, 0},
        {"nvidia.com/gpu", "MIG-GPU-" U "/3/0", 1, 0},
        {"nvidia.com/gpu", "MIG-GPU-" U_UPPER "/11/4", 2, 0},
        {"nvidia.com/gpu", "MIG-GPU-" U "/11/4::3", 2, 0},
        {"nvidia.com/gpu", "MIG-GPU-" V "/7/0", 5, 0},
        {"nvidia.com/gpu", "MIG-GPU-" V "/7/1", 5,
         0}, // another compute instance of the same GPU instance
        {"nvidia.com/gpu", "MIG-GPU-" U "/4/0", -1, 1},
        {"nvidia.com/gpu", "MIG-GPU-" U "/xx/0", -1, 1},
        {"nvidia.com/gpu", "MIG-GPU-" U "/3/xx", -1, 1},
        {"nvidia.com/gpu", "MIG-GPU-" U "/3", -1, 1},
        {"nvidia.com/gpu", "MIG-GPU-" U, -1, 1},
        {"nvidia.com/gpu", "MIG-" U "/3/0", -1, 1},
        {"nvidia.com/gpu", "GPU-" U "/3/0", -1, 1},
        {"nvidia.com/gpu", "GPU-" V, -1, 1}, // the hex part of an instance is no GPU
        {"nvidia.com/gpu", "nvidia0", 0, 0},
        {"nvidia.com/gpu", "nvidia0/vgpu2", 0, 0},
        {"nvidia.com/gpu", "nvidia0/gi3", 1, 0},
        {"nvidia.com/gpu", "nvidia0/gi11/vgpu9", 2, 0},
        {"nvidia.com/gpu", "nvidia0/gi4", -1, 1},
        {"nvidia.com/gpu", "nvidia1", -1, 1}, // the driver calls that GPU 5
        {"nvidia.com/gpu", "nvidia5", 3, 0},
        {"nvidia.com/gpu", "nvidia5/gi2", 4, 0},
        {"nvidia.com/gpu", "nvidia1/gi2", -1, 1},
        {"nvidia.com/gpu", "nvidia", -1, 1},
        {"nvidia.com/gpu", "nvidiactl", -1, 1},
        {"nvidia.com/gpu", "nvidia0/", -1, 1},
        {"nvidia.com/gpu", "nvidia0/gi", -1, 1},
        {"nvidia.com/gpu", "nvidia0/gi3/x", -1, 1},
        {"nvidia.com/gpu", "nvidia99999999999", -1, 1},
        {"nvidia.com/gpu", "0", -1, 1},
        {"nvidia.com/gpu", "", -1, 1},
        // Whatever the resource is called, a UUID of ours counts; a device name does not.
        {"example.com/renamed", "GPU-" U, 0, 0},
        {"example.com/renamed", "GPU-" U "::1", 0, 0},
        {"example.com/renamed", "MIG-GPU-" U "/3/0", 1, 0},
        {"example.com/renamed", "GPU-" V, -1, 0},
        {"example.com/renamed", "nvidia0", -1, 0},
    };
    check_find_cases(&by_uuid, devices, ARRAY_SIZE(devices), cases, ARRAY_SIZE(cases));
}

static void by_device_name_a_bare_number_is_a_device(void **state)
{
    const struct attribute_options by_name = {.by_device_name = true};
    const struct attribute_device devices[] = {GPU(0, "GPU-" U), GPU(1, "GPU-" V),
                                               INSTANCE(1, 3, "MIG-" W, "GPU-" V)};
    static const struct find_case cases[] = {
        {"nvidia.com/gpu", "0", 0, 0},       {"nvidia.com/gpu", "1/vgpu7", 1, 0},
        {"nvidia.com/gpu", "nvidia1", 1, 0}, {"nvidia.com/gpu", "nvidia1/gi3", 2, 0},
        {"nvidia.com/gpu", "1/gi3", -1, 1},  {"nvidia.com/gpu", "2", -1, 1},
        {"nvidia.com/gpu", "GPU-" V, 1, 0},  {"example.com/other", "0", -1, 0},
    };
    check_find_cases(&by_name, devices, ARRAY_SIZE(devices), cases, ARRAY_SIZE(cases));
}

static void an_overlong_id_is_nobodys(void **state)
{
    char id[2 * 160 + 1];
    const struct attribute_device devices[] = {GPU(0, "GPU-" U)};
    for (size_t len = 150; len <= 170; len++) {
        memset(id, 'a', len);
        memcpy(id, "GPU-", 4);
        id[len] = '\0';
        const struct find_case c = {"nvidia.com/gpu", id, -1, 1};
        check_find_cases(&by_uuid, devices, 1, &c, 1);
    }
}

static void a_replica_sticks_within_its_container(void **state)
{
    const struct attribute_device devices[] = {GPU(0, "GPU-" U), GPU(1, "GPU-" V)};
    struct pod_device rows[] = {
        ROW("a", "one", "nvidia.com/gpu", "GPU-" U "::2"),
        ROW("a", "one", "nvidia.com/gpu", "GPU-" V),
        ROW("a", "two", "nvidia.com/gpu", "GPU-" V),
        ROW("b", "one", "nvidia.com/gpu", "GPU-" U "::7"),
        ROW("b", "one", "nvidia.com/gpu", "GPU-" W "::9"),
        ROW("b", "one", "nvidia.com/gpu", "GPU-" U),
        ROW("b", "one", "nvidia.com/gpu", "GPU-" V "::"),
        ROW("b", "one", "nvidia.com/gpu", "GPU-" U),
        ROW("a", "one", "other.com/x", "y::5"),
        ROW("a", "one", "nvidia.com/gpu", "GPU-" U),
    };
    static const struct {
        size_t device, row;
        const char *vgpu;
    } want[] = {
        {0, 0, "2"}, {0, 3, "7"}, {0, 5, "9"},  {0, 7, ""},
        {0, 9, "2"}, {1, 1, "2"}, {1, 2, NULL}, {1, 6, ""},
    };
    struct attribute_result r = run(&by_uuid, devices, 2, rows, ARRAY_SIZE(rows));
    assert_int_equal(r.holder_count, ARRAY_SIZE(want));
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        const struct attribute_device_holders *d = &r.devices[want[i].device];
        assert_true(i >= d->first && i < d->first + d->count);
        assert_int_equal(r.holders[i].row, want[i].row);
        assert_sv(r.holders[i].vgpu, want[i].vgpu);
    }
    assert_int_equal(r.unknown_ids, 1);
    attribute_result_deinit(&r);
}

static void a_completed_pod_listed_beside_its_successor_holds_nothing(void **state)
{
    const struct attribute_device devices[] = {GPU(0, "GPU-" U), GPU(1, "GPU-" V)};
    struct pod_device rows[] = {
        ROW("done", "c", "nvidia.com/gpu", "GPU-" U), ROW("done", "c", "nvidia.com/gpu", "GPU-" V),
        ROW("older", "c", "nvidia.com/gpu", "GPU-" U), ROW("next", "c", "nvidia.com/gpu", "GPU-" U),
        ROW("next", "d", "nvidia.com/gpu", "GPU-" U)};
    rows[0].since = rows[1].since = 2;
    rows[2].since = 1;
    rows[3].since = rows[4].since = 7;
    struct attribute_result r = run(&by_uuid, devices, 2, rows, ARRAY_SIZE(rows));
    assert_int_equal(r.superseded, 2);
    assert_int_equal(r.devices[0].count, 2);
    assert_int_equal(r.devices[0].pods, 1);
    assert_string_equal(rows[r.holders[r.devices[0].first].row].pod, "next");
    assert_int_equal(r.devices[1].count, 1); // nobody else was given this one yet
    assert_string_equal(rows[r.holders[r.devices[1].first].row].pod, "done");
    attribute_result_deinit(&r);
}

static void pods_first_seen_together_with_one_id_all_hold_it(void **state)
{
    const struct attribute_device devices[] = {GPU(0, "GPU-" U)};
    struct pod_device rows[] = {ROW("job-done", "c", "nvidia.com/gpu", "GPU-" U),
                                ROW("job-next", "c", "nvidia.com/gpu", "GPU-" U)};
    rows[0].since = rows[1].since = 1;
    struct attribute_result r = run(&by_uuid, devices, 1, rows, 2);
    assert_int_equal(r.superseded, 0);
    assert_int_equal(r.devices[0].count, 2);
    assert_int_equal(r.devices[0].pods, 2);
    assert_int_equal(r.devices[0].containers, 2);
    assert_string_equal(rows[r.holders[1].row].pod, "job-next");
    assert_true(r.shared_seen);
    attribute_result_deinit(&r);
}

static void only_the_same_whole_id_supersedes(void **state)
{
    const struct attribute_device devices[] = {GPU(0, "GPU-" U),
                                               INSTANCE(0, 3, "MIG-" V, "GPU-" U)};
    static const struct {
        const char *first_resource, *first, *second_resource, *second;
        int device;
        size_t superseded;
    } cases[] = {
        {"nvidia.com/gpu", "GPU-" U, "nvidia.com/gpu", "GPU-" U, 0, 1},
        {"nvidia.com/gpu.shared", "GPU-" U "::0", "nvidia.com/gpu.shared", "GPU-" U "::1", 0, 0},
        {"nvidia.com/gpu.shared", "GPU-" U "::0", "nvidia.com/gpu.shared", "GPU-" U "::0", 0, 0},
        {"nvidia.com/gpu", "GPU-" U, "nvidia.com/gpu", "GPU-" U "::1", 0, 0},
        {"nvidia.com/gpu", "GPU-" U, "example.com/gpu", "GPU-" U, 0, 0}, // of two plugins
        {"nvidia.com/gpu", "nvidia0", "nvidia.com/gpu", "nvidia0", 0, 1},
        {"nvidia.com/gpu", "nvidia0/vgpu0", "nvidia.com/gpu", "nvidia0/vgpu0", 0, 0},
        {"nvidia.com/mig-1g.10gb", "MIG-" V, "nvidia.com/mig-1g.10gb", "MIG-" V, 1, 1},
        // Two compute instances of one GPU instance.
        {"nvidia.com/gpu", "MIG-GPU-" U "/3/0", "nvidia.com/gpu", "MIG-GPU-" U "/3/1", 1, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct pod_device rows[] = {ROW("a", "c", cases[i].first_resource, cases[i].first),
                                    ROW("b", "c", cases[i].second_resource, cases[i].second)};
        rows[0].since = 1;
        rows[1].since = 2;
        struct attribute_options o = {.by_device_name = true};
        struct attribute_result r = run(&o, devices, 2, rows, 2);
        assert_int_equal(r.superseded, cases[i].superseded);
        assert_int_equal(r.devices[cases[i].device].count, 2 - cases[i].superseded);
        attribute_result_deinit(&r);
    }
}

static void two_containers_of_a_pod_with_one_id_are_two_holders_of_one_pod(void **state)
{
    const struct attribute_device devices[] = {GPU(0, "GPU-" U)};
    struct pod_device rows[] = {ROW("p", "main", "nvidia.com/gpu", "GPU-" U),
                                ROW("p", "sidecar", "nvidia.com/gpu", "GPU-" U)};
    struct attribute_result r = run(&by_uuid, devices, 1, rows, 2);
    assert_int_equal(r.devices[0].count, 2);
    assert_int_equal(r.devices[0].containers, 2);
    assert_int_equal(r.devices[0].pods, 1);
    assert_true(r.shared_seen);
    attribute_result_deinit(&r);
}

static void two_replicas_of_a_container_are_no_sharing(void **state)
{
    const struct attribute_device devices[] = {GPU(0, "GPU-" U), GPU(1, "GPU-" V)};
    struct pod_device rows[] = {ROW("p", "c", "nvidia.com/gpu.shared", "GPU-" U "::0"),
                                ROW("p", "c", "nvidia.com/gpu.shared", "GPU-" U "::1"),
                                ROW("p", "c", "nvidia.com/gpu.shared", "GPU-" V "::0")};
    struct attribute_result r = run(&by_uuid, devices, 2, rows, 3);
    assert_int_equal(r.devices[0].count, 2);
    assert_int_equal(r.devices[0].containers, 1);
    assert_int_equal(r.devices[1].count, 1);
    assert_int_equal(r.devices[1].containers, 1);
    assert_false(r.shared_seen);
    attribute_result_deinit(&r);
}

static void equal_names_in_two_namespaces_are_two_pods(void **state)
{
    const struct attribute_device devices[] = {GPU(0, "GPU-" U)};
    struct pod_device rows[] = {
        ROW("p", "c", "nvidia.com/gpu", "GPU-" U "::0"),
        {.namespace_name = "other",
         .pod = "p",
         .container = "c",
         .resource = "nvidia.com/gpu",
         .device_id = "GPU-" U "::1"},
        ROW("p", "c", "nvidia.com/gpu",
            "GPU-" U "::2"), // apart from its first row, still the same container
    };
    struct attribute_result r = run(&by_uuid, devices, 1, rows, 3);
    assert_int_equal(r.devices[0].count, 3);
    assert_int_equal(r.devices[0].containers, 2);
    assert_int_equal(r.devices[0].pods, 2);
    attribute_result_deinit(&r);
}

static void names_do_not_run_into_each_other(void **state)
{
    const struct attribute_device devices[] = {GPU(0, "GPU-" U)};
    struct pod_device rows[] = {
        ROW("a", "bc", "nvidia.com/gpu", "GPU-" U "::0"),
        ROW("ab", "c", "nvidia.com/gpu", "GPU-" U "::1"),
        ROW("abc", "", "nvidia.com/gpu", "GPU-" U "::2"),
        ROW("", "abc", "nvidia.com/gpu", "GPU-" U "::3"),
    };
    struct attribute_result r = run(&by_uuid, devices, 1, rows, 4);
    assert_int_equal(r.devices[0].containers, 4);
    assert_int_equal(r.devices[0].pods, 4);
    attribute_result_deinit(&r);
}

static void unknown_ids_are_counted_a_row_each(void **state)
{
    const struct attribute_device devices[] = {GPU(0, "GPU-" U)};
    struct pod_device rows[] = {
        ROW("p", "c", "nvidia.com/gpu", "GPU-" V),
        ROW("q", "c", "nvidia.com/gpu", "GPU-" V),
        ROW("q", "c", "nvidia.com/mig-1g.5gb", "MIG-" W),
        ROW("q", "c", "nvidia.com/gpu", "GPU-" U),
        ROW("q", "c", "example.com/x", "GPU-" V),
        // A vGPU and a GPU that is passed through, as KubeVirt's plugin names them.
        ROW("vm", "compute", "nvidia.com/NVIDIA_A10-8C", "c2177f1f-6f4a-4b52-9c3e-0a4f6d8b1e01"),
        ROW("vm", "compute", "nvidia.com/GA102GL_A10", "0000:3b:00.0"),
    };
    struct attribute_result r = run(&by_uuid, devices, 1, rows, ARRAY_SIZE(rows));
    assert_int_equal(r.unknown_ids, 3);
    assert_int_equal(r.holder_count, 1);
    attribute_result_deinit(&r);
}

static void the_holder_of_a_slice_does_not_hold_the_board(void **state)
{
    const struct attribute_device devices[] = {GPU(0, "GPU-" U), INSTANCE(0, 1, "MIG-" V, "GPU-" U),
                                               INSTANCE(0, 2, "MIG-" W, "GPU-" U)};
    struct pod_device rows[] = {ROW("p", "c", "nvidia.com/mig-1g.5gb", "MIG-" V)};
    struct attribute_result r = run(&by_uuid, devices, 3, rows, 1);
    assert_int_equal(r.devices[0].count, 0);
    assert_int_equal(r.devices[1].count, 1);
    assert_int_equal(r.devices[2].count, 0);
    attribute_result_deinit(&r);
}

// 64,000 replicas of one device in 8 pods: the time grows with the rows, not with their square.
static void many_replicas_take_little_time(void **state)
{
    enum { COUNT = 64000 };
    const struct attribute_device devices[] = {GPU(0, "GPU-" U)};
    struct pod_device *rows = calloc(COUNT, sizeof(*rows));
    char(*ids)[64] = calloc(COUNT, sizeof(*ids));
    static const char *const pods[] = {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"};
    assert_non_null(rows);
    assert_non_null(ids);
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(ids[i], sizeof(ids[i]), "GPU-" U "::%zu", i);
        // Pods take turns, so that no two rows of a container stand together.
        rows[i] = (struct pod_device)ROW(pods[i % 8], "c", "nvidia.com/gpu.shared", ids[i]);
    }
    uint64_t start = clock_mono_ns();
    struct attribute_result r = run(&by_uuid, devices, 1, rows, COUNT);
    uint64_t took = clock_mono_ns() - start;
    assert_int_equal(r.devices[0].count, COUNT);
    assert_int_equal(r.devices[0].containers, 8);
    assert_true(took < 2 * NS_PER_S);
    attribute_result_deinit(&r);
    free(rows);
    free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_the_upstream_table_maps),
        cmocka_unit_test(a_device_nobody_holds_has_no_holder),
        cmocka_unit_test(no_devices_at_all_is_fine),
        cmocka_unit_test(the_replica_is_what_follows_its_separator),
        cmocka_unit_test(stripping_leaves_the_device),
        cmocka_unit_test(a_resource_counts_by_name_prefix_or_list),
        cmocka_unit_test(a_row_is_wanted_for_its_resource_or_its_id),
        cmocka_unit_test(ids_of_all_plugins_find_their_device),
        cmocka_unit_test(by_device_name_a_bare_number_is_a_device),
        cmocka_unit_test(an_overlong_id_is_nobodys),
        cmocka_unit_test(a_replica_sticks_within_its_container),
        cmocka_unit_test(a_completed_pod_listed_beside_its_successor_holds_nothing),
        cmocka_unit_test(pods_first_seen_together_with_one_id_all_hold_it),
        cmocka_unit_test(only_the_same_whole_id_supersedes),
        cmocka_unit_test(two_containers_of_a_pod_with_one_id_are_two_holders_of_one_pod),
        cmocka_unit_test(two_replicas_of_a_container_are_no_sharing),
        cmocka_unit_test(equal_names_in_two_namespaces_are_two_pods),
        cmocka_unit_test(names_do_not_run_into_each_other),
        cmocka_unit_test(unknown_ids_are_counted_a_row_each),
        cmocka_unit_test(the_holder_of_a_slice_does_not_hold_the_board),
        cmocka_unit_test(many_replicas_take_little_time),
    };
    return cmocka_run_group_tests_name("attribute", tests, NULL, NULL);
}
