// SPDX-License-Identifier: Apache-2.0
// How many ids there are: replicas of a device, and what a node's resources have to give.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../allocation_sweep.h"
#include "exporter/attribute_counts.h"
#include "exporter/dra.h"

#define OFFER(resource_, id_)                                                                      \
    {                                                                                              \
        .namespace_name = "", .pod = "", .container = "", .resource = (resource_),                 \
        .device_id = (id_)                                                                         \
    }
#define HELD(pod_, resource_, id_)                                                                 \
    {                                                                                              \
        .namespace_name = "ns", .pod = (pod_), .container = "c", .resource = (resource_),          \
        .device_id = (id_)                                                                         \
    }
static const struct pod_device_claim claim = {.name = "c",
                                              .namespace_name = "ns",
                                              .uid = "",
                                              .driver = DRA_DRIVER,
                                              .pool = "n",
                                              .share_id = ""};
#define CLAIMED(pod_, device_)                                                                     \
    {                                                                                              \
        .namespace_name = "ns", .pod = (pod_), .container = "c", .resource = "",                   \
        .device_id = (device_), .claim = &claim                                                    \
    }

static struct pod_device offered_rows[] = {
    OFFER("nvidia.com/gpu", "GPU-a::0"), OFFER("nvidia.com/gpu", "GPU-a::1"),
    OFFER("nvidia.com/gpu", "GPU-a::2"), OFFER("nvidia.com/mig-1g.5gb", "MIG-b"),
    OFFER("nvidia.com/gpu", "GPU-gone"),
};
static const struct pod_devices offers = {
    .refs = 1, .count = ARRAY_SIZE(offered_rows), .rows = offered_rows};

static struct pod_device held_rows[] = {
    HELD("p", "nvidia.com/gpu", "GPU-a::1"),
    HELD("old", "nvidia.com/mig-1g.5gb", "MIG-b"),
    HELD("new", "nvidia.com/mig-1g.5gb", "MIG-b"),
    CLAIMED("p", "gpu-0"),
    CLAIMED("q", "gpu-0"),
    CLAIMED("exporter", "gpu-1"),
};
static const struct pod_devices held = {
    .refs = 1, .count = ARRAY_SIZE(held_rows), .rows = held_rows};

static const struct attribute_options options = {.own_namespace = SV("ns"),
                                                 .own_pod = SV("exporter")};

static void a_device_is_offered_in_as_many_replicas_as_it_has_ids(void **state)
{
    const struct attribute_device devices[] = {
        {.uuid = SV("GPU-a")},
        {.is_instance = true, .uuid = SV("MIG-b"), .parent_uuid = SV("GPU-a")},
        {.index = 2, .uuid = SV("GPU-c")},
    };
    uint32_t out[3] = {9, 9, 9};
    assert_int_equal(attribute_offered(&options, devices, 3, &offers, out), 0);
    assert_int_equal(out[0], 3);
    assert_int_equal(out[1], 1);
    assert_int_equal(out[2], 0);
    assert_int_equal(attribute_offered(&options, devices, 3, NULL, out), 0);
    assert_int_equal(out[0], 0);
}

static void assert_resource(const struct attribute_resource *r, const char *name,
                            size_t allocatable, size_t allocated, size_t holders)
{
    assert_string_equal(r->name, name);
    assert_int_equal(r->allocatable, allocatable);
    assert_int_equal(r->allocated, allocated);
    assert_int_equal(r->count, holders);
}

static void ids_are_counted_once_by_resource_with_all_who_hold_them(void **state)
{
    struct attribute_resources r;
    assert_int_equal(attribute_resources(&options, &offers, &held, &r), 0);
    assert_int_equal(r.count, 3);
    assert_resource(&r.list[0], "gpu.nvidia.com", 0, 1, 2); // our own pod's is left out
    assert_false(r.list[0].offer_known);
    assert_resource(&r.list[1], "nvidia.com/gpu", 4, 1, 1);
    assert_true(r.list[1].offer_known);
    assert_resource(&r.list[2], "nvidia.com/mig-1g.5gb", 1, 1, 2);
    static const struct attribute_resource_holder want[] = {
        {3, true}, {4, false}, {0, false}, {1, true}, {2, false}};
    assert_int_equal(r.holder_count, ARRAY_SIZE(want));
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        assert_int_equal(r.holders[i].row, want[i].row);
        assert_int_equal(r.holders[i].more, want[i].more);
    }
    attribute_resources_deinit(&r);
}

static void without_an_answer_what_is_offered_is_not_known(void **state)
{
    struct attribute_resources r;
    assert_int_equal(attribute_resources(&options, NULL, &held, &r), 0);
    assert_int_equal(r.count, 3);
    for (size_t i = 0; i < r.count; i++) {
        assert_false(r.list[i].offer_known);
        assert_int_equal(r.list[i].allocatable, 0);
    }
    attribute_resources_deinit(&r);
    assert_int_equal(attribute_resources(&options, NULL, NULL, &r), 0);
    assert_int_equal(r.count, 0);
    attribute_resources_deinit(&r);
}

static void count_all(void)
{
    struct attribute_resources r = {0};
    int error = attribute_resources(&options, &offers, &held, &r);
    assert_int_equal(error, allocation_failed ? -ENOMEM : 0);
    attribute_resources_deinit(&r);
}

static void an_allocation_that_fails_leaves_nothing(void **state)
{
    assert_true(allocation_sweep(count_all) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_is_offered_in_as_many_replicas_as_it_has_ids),
        cmocka_unit_test(ids_are_counted_once_by_resource_with_all_who_hold_them),
        cmocka_unit_test(without_an_answer_what_is_offered_is_not_known),
        cmocka_unit_test(an_allocation_that_fails_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
