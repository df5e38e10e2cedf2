// SPDX-License-Identifier: Apache-2.0
// Devices of resource claims (DRA) and what the plugins offer, as rows.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "kube/pod_devices.h"
#include "wire.h"

#define UID "6d1f0d2c-4f0e-4d53-9b1c-0a4b7a8a2f01"
#define OTHER_UID "00000000-4f0e-4d53-9b1c-0a4b7a8a2f01"
#define DRIVER "gpu.nvidia.com"
#define BUFFERS 6
#define ROOM (4u << 20)

// The answer under construction, outermost first.
struct answer {
    struct buf message, pod, container, claim, device, cdi;
};

static struct answer answer_new(void)
{
    return (struct answer){BUF_INIT(ROOM), BUF_INIT(ROOM), BUF_INIT(ROOM),
                           BUF_INIT(ROOM), BUF_INIT(ROOM), BUF_INIT(ROOM)};
}

static void answer_free(struct answer *a)
{
    struct buf *const all[BUFFERS] = {&a->message, &a->pod,    &a->container,
                                      &a->claim,   &a->device, &a->cdi};
    for (size_t i = 0; i < BUFFERS; i++) {
        assert_int_equal(all[i]->error, 0);
        buf_deinit(all[i]);
    }
}

static void begin(struct answer *a, const char *pod, const char *container)
{
    wire_str(&a->pod, 1, pod);
    wire_str(&a->pod, 2, "default");
    wire_str(&a->container, 1, container);
}

static void end_container(struct answer *a)
{
    wire_message(&a->pod, 3, &a->container);
}

static void end_pod(struct answer *a)
{
    end_container(a);
    wire_message(&a->message, 1, &a->pod);
}

static void begin_claim(struct answer *a, const char *name)
{
    wire_str(&a->claim, 1, "gone"); // class_name of Kubernetes before 1.31
    wire_str(&a->claim, 2, name);
    wire_str(&a->claim, 3, "default");
}

static void end_claim(struct answer *a)
{
    wire_message(&a->container, 5, &a->claim);
}

static void add_cdi(struct answer *a, const char *name)
{
    wire_str(&a->cdi, 1, name);
    wire_message(&a->device, 1, &a->cdi);
}

static void add_device(struct answer *a, const char *driver, const char *device, const char *share)
{
    wire_str(&a->device, 2, driver);
    wire_str(&a->device, 3, "node-1");
    wire_str(&a->device, 4, device);
    if (share)
        wire_str(&a->device, 5, share);
    wire_message(&a->claim, 4, &a->device);
}

typedef bool wanted_fn(void *user, struct sv resource, struct sv device_id);

static struct pod_devices *decode_as(struct sv message, bool allocatable, wanted_fn *wanted)
{
    struct pod_resources_decoder *d;
    struct pod_devices *list;
    int r = allocatable ? pod_resources_decoder_new_allocatable(wanted, NULL, &d)
                        : pod_resources_decoder_new(wanted, NULL, &d);
    assert_int_equal(r, 0);
    for (size_t at = 0; at < message.len; at++)
        assert_int_equal(pod_resources_decoder_feed(d, sv_sub(message, at, 1)), 0);
    assert_int_equal(pod_resources_decoder_finish(d, &list), 0);
    pod_resources_decoder_free(d);
    return list;
}

static struct pod_devices *decode(struct answer *a)
{
    struct pod_devices *list = decode_as(buf_sv(&a->message), false, NULL);
    answer_free(a);
    return list;
}

static void assert_claim(const struct pod_device *row, const char *device, const char *claim,
                         const char *uid, const char *share)
{
    assert_string_equal(row->resource, "");
    assert_string_equal(row->device_id, device);
    assert_non_null(row->claim);
    assert_string_equal(row->claim->name, claim);
    assert_string_equal(row->claim->namespace_name, "default");
    assert_string_equal(row->claim->uid, uid);
    assert_string_equal(row->claim->driver, DRIVER);
    assert_string_equal(row->claim->pool, "node-1");
    assert_string_equal(row->claim->share_id, share);
}

static void a_claims_devices_are_rows_with_its_uid_though_cdi_names_add_up(void **state)
{
    struct answer a = answer_new();
    begin(&a, "p", "main");
    begin_claim(&a, "two-gpus");
    add_cdi(&a, "example.com/nic=" UID "-eth0");
    add_cdi(&a, "k8s.gpu.nvidia.com/claim=" UID "-gpu-0");
    add_device(&a, DRIVER, "gpu-0", NULL);
    add_cdi(&a, "k8s.gpu.nvidia.com/claim=" UID "-gpu-0");
    add_cdi(&a, "k8s.gpu.nvidia.com/claim=" UID "-gpu-1-mig-1g12gb-19-4");
    add_device(&a, DRIVER, "gpu-1-mig-1g12gb-19-4", "s-1");
    end_claim(&a);
    end_pod(&a);
    struct pod_devices *list = decode(&a);
    assert_int_equal(list->count, 2);
    assert_int_equal(list->pods, 1);
    assert_claim(&list->rows[0], "gpu-0", "two-gpus", UID, "");
    assert_claim(&list->rows[1], "gpu-1-mig-1g12gb-19-4", "two-gpus", UID, "s-1");
    assert_string_equal(list->rows[1].container, "main");
    pod_devices_unref(list);
}

static void a_uid_is_taken_from_names_of_claims_alone(void **state)
{
    static const char *const cdi[] = {
        "k8s.gpu.nvidia.com/device=gpu-0",       "k8s.gpu.nvidia.com/claim=",
        "k8s.gpu.nvidia.com/claim=short-gpu-0",  "k8s.gpu.nvidia.com/claim=" UID,
        "k8s.gpu.nvidia.com/claim=" UID "gpu-0",
    };
    for (size_t i = 0; i < ARRAY_SIZE(cdi); i++) {
        struct answer a = answer_new();
        begin(&a, "p", "main");
        begin_claim(&a, "c");
        add_cdi(&a, cdi[i]);
        add_device(&a, DRIVER, "gpu-0", NULL);
        end_claim(&a);
        end_pod(&a);
        struct pod_devices *list = decode(&a);
        assert_int_equal(list->count, 1);
        assert_claim(&list->rows[0], "gpu-0", "c", "", "");
        pod_devices_unref(list);
    }
}

static void a_container_has_a_device_once_and_each_share_of_it(void **state)
{
    struct answer a = answer_new();
    begin(&a, "p", "main");
    begin_claim(&a, "first");
    add_device(&a, DRIVER, "gpu-0", NULL);
    add_device(&a, DRIVER, "gpu-0", NULL);
    add_device(&a, DRIVER, "gpu-0", "s-1");
    end_claim(&a);
    begin_claim(&a, "second");
    add_device(&a, DRIVER, "gpu-0", NULL);
    add_device(&a, DRIVER, "gpu-0", "s-2");
    end_claim(&a);
    end_container(&a);
    wire_str(&a.container, 1, "sidecar");
    begin_claim(&a, "first");
    add_device(&a, DRIVER, "gpu-0", NULL);
    end_claim(&a);
    end_pod(&a);
    struct pod_devices *list = decode(&a);
    assert_int_equal(list->count, 4);
    assert_claim(&list->rows[0], "gpu-0", "first", "", "");
    assert_claim(&list->rows[1], "gpu-0", "first", "", "s-1");
    assert_claim(&list->rows[2], "gpu-0", "second", "", "s-2");
    assert_string_equal(list->rows[3].container, "sidecar");
    pod_devices_unref(list);
}

static bool of_nvidia(void *user, struct sv resource, struct sv device_id)
{
    (void)user;
    (void)device_id;
    return sv_equals(resource, SV(DRIVER)) || sv_equals(resource, SV("nvidia.com/gpu"));
}

static void the_driver_stands_for_the_resource_when_rows_are_filtered(void **state)
{
    struct answer a = answer_new();
    begin(&a, "p", "main");
    begin_claim(&a, "c");
    add_device(&a, "compute-domain.nvidia.com", "channel-0", NULL);
    add_device(&a, DRIVER, "gpu-0", NULL);
    end_claim(&a);
    end_pod(&a);
    struct pod_devices *list = decode_as(buf_sv(&a.message), false, of_nvidia);
    answer_free(&a);
    assert_int_equal(list->count, 1);
    assert_int_equal(list->skipped, 0);
    assert_claim(&list->rows[0], "gpu-0", "c", "", "");
    pod_devices_unref(list);
}

// A pod with one claim of gpu-0.
static struct pod_devices *one_claim(const char *pod, const char *claim, const char *uid)
{
    struct answer a = answer_new();
    char cdi[160];
    snprintf(cdi, sizeof(cdi), "k8s.gpu.nvidia.com/claim=%s-gpu-0", uid);
    begin(&a, pod, "main");
    begin_claim(&a, claim);
    add_cdi(&a, cdi);
    add_device(&a, DRIVER, "gpu-0", NULL);
    end_claim(&a);
    end_pod(&a);
    return decode(&a);
}

static void a_new_claim_under_an_old_name_is_another_list(void **state)
{
    struct pod_devices *before = one_claim("p", "c", UID);
    struct pod_devices *same = one_claim("p", "c", UID);
    struct pod_devices *after = one_claim("p", "c", OTHER_UID);
    assert_true(pod_devices_same_set(before, same));
    assert_false(pod_devices_same_set(before, after));
    pod_devices_unref(before);
    pod_devices_unref(same);
    pod_devices_unref(after);
}

// Over a kubelet's restart: the list is short, and another pod of the same claim is in it already.
static void
a_vanished_row_stays_beside_another_user_of_its_claim_and_goes_for_another_claim(void **state)
{
    static const struct {
        const char *claim, *uid;
        size_t kept;
    } cases[] = {{"shared", UID, 1}, {"shared", OTHER_UID, 0}, {"other", OTHER_UID, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct pod_devices *before = one_claim("p", "shared", UID);
        struct pod_devices *fresh = one_claim("q", cases[i].claim, cases[i].uid);
        size_t kept;
        assert_int_equal(pod_devices_follow(fresh, before, true, &kept), 0);
        assert_int_equal(kept, cases[i].kept);
        assert_int_equal(fresh->count, 1 + cases[i].kept);
        pod_devices_unref(before); // what is kept is a copy
        if (kept > 0)
            assert_claim(&fresh->rows[0], "gpu-0", "shared", UID, "");
        pod_devices_unref(fresh);
    }
}

static void what_is_offered_is_rows_of_nobody_each_id_once(void **state)
{
    struct buf message = BUF_INIT(ROOM), devices = BUF_INIT(ROOM);
    static const char *const ids[] = {"GPU-a::0", "GPU-a::1", "GPU-a::1"}; // on two NUMA nodes
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        wire_str(&devices, 1, "nvidia.com/gpu");
        wire_str(&devices, 2, ids[i]);
        wire_message(&message, 1, &devices);
    }
    wire_str(&devices, 1, "example.com/nic");
    wire_str(&devices, 2, "eth0");
    wire_message(&message, 1, &devices);
    wire_bytes(&message, 2, SV("\x00\x01\x02")); // cpu_ids
    struct pod_devices *list = decode_as(buf_sv(&message), true, of_nvidia);
    buf_deinit(&message);
    buf_deinit(&devices);
    assert_int_equal(list->count, 2);
    assert_int_equal(list->pods, 0);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(list->rows[i].pod, "");
        assert_string_equal(list->rows[i].namespace_name, "");
        assert_string_equal(list->rows[i].container, "");
        assert_string_equal(list->rows[i].resource, "nvidia.com/gpu");
        assert_string_equal(list->rows[i].device_id, ids[i]);
        assert_null(list->rows[i].claim);
    }
    pod_devices_unref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claims_devices_are_rows_with_its_uid_though_cdi_names_add_up),
        cmocka_unit_test(a_uid_is_taken_from_names_of_claims_alone),
        cmocka_unit_test(a_container_has_a_device_once_and_each_share_of_it),
        cmocka_unit_test(the_driver_stands_for_the_resource_when_rows_are_filtered),
        cmocka_unit_test(a_new_claim_under_an_old_name_is_another_list),
        cmocka_unit_test(
            a_vanished_row_stays_beside_another_user_of_its_claim_and_goes_for_another_claim),
        cmocka_unit_test(what_is_offered_is_rows_of_nobody_each_id_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
