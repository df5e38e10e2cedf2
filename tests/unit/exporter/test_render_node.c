// SPDX-License-Identifier: Apache-2.0
// What a node has to give, has given and lies idle. Rows are the kubelet's, who used what is said
// by a ledger that the test writes.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "exporter/render_internal.h"
#include "fake_ledger.h"
#include "render_fixture.h"

#define GPU "nvidia.com/gpu"
#define SHARED "nvidia.com/gpu.shared"
#define MIG "nvidia.com/mig-1g.10gb"
#define U0 "GPU-00000000-0000-0000-0000-000000000000"
#define U1 "GPU-00000000-0000-0000-0000-000000000001"
#define MIG_1 "MIG-00000000-0001-0000-0000-000000000000"
#define MOST 8

static struct ledger ledger;
static struct pod_device offers[MOST];
static struct pod_devices offered;

static struct fixture *node(void)
{
    struct fixture *f = fixture_new("DCGM_FI_DEV_GPU_TEMP, gauge, t\n", "f");
    f->options.flags.idle_after_ns = 300 * NS_PER_S;
    ledger = (struct ledger){.layout = 1};
    offered = (struct pod_devices){.rows = offers};
    return f;
}

static void ready(struct fixture *f)
{
    fixture_list(f);
    fixture_ready(f, false);
}

static void add_device(const char *uuid, uint32_t board)
{
    ledger.devices[ledger.device_count++] =
        (struct ledger_device){.uuid = uuid, .board = board, .present = true};
}

static void offer(const char *resource, const char *id)
{
    offers[offered.count++] = (struct pod_device){"", "", "", resource, id, 0, NULL};
}

// The pod's container holds the id and has its account, which last did something so long ago.
static void hold(struct fixture *f, uint32_t entity, const char *pod, const char *resource,
                 const char *id)
{
    fixture_hold(f, entity, "ns", pod, "main", NULL);
    struct pod_device *row = &f->pods.rows[f->pods.count - 1];
    struct fixture_holding *h = &f->holdings[f->holding_count - 1];
    row->resource = h->row.resource = resource;
    row->device_id = h->row.device_id = id;
}

static struct ledger_account *account(uint32_t device, const char *pod, uint64_t idle_s)
{
    uint32_t number = (uint32_t)ledger.account_count;
    struct ledger_account *a = &ledger.accounts[ledger.account_count++];
    ledger.containers[number] = (struct ledger_container){"ns", pod, "main", ""};
    *a = (struct ledger_account){.device = device,
                                 .container = number,
                                 .live = true,
                                 .holds = true,
                                 .has_busy = true,
                                 .has_idle = true,
                                 .idle_since_ns = FIXTURE_NOW_NS - idle_s * NS_PER_S};
    return a;
}

static void page_with(struct fixture *f, const struct pod_devices *allocatable)
{
    struct render_input in = fixture_input(f);
    in.ledger = &ledger;
    in.allocatable = allocatable;
    buf_reset(&f->page);
    assert_int_equal(render_page(f->render, &in, TEXT_FORMAT_PROMETHEUS, &f->page), 0);
    (void)buf_cstr(&f->page);
}

static void assert_numbers(struct fixture *f, const char *resource, const int numbers[3])
{
    static const char *const names[] = {"allocatable", "allocated", "idle_allocated"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char line[160];
        (void)snprintf(line, sizeof(line),
                       "podgpu_node_gpu_%s{hostname=\"testhost\",resource=\"%s\"} %d", names[i],
                       resource, numbers[i]);
        if (numbers[i] >= 0 && !fixture_has_line(f, line))
            fail_msg("no line %s in\n%s", line, f->page.data);
        (void)snprintf(line, sizeof(line), "podgpu_node_gpu_%s", names[i]);
        if (numbers[i] < 0)
            assert_null(strstr(fixture_family(f, line), resource));
    }
}
// allocatable, allocated, idle; -1: not said
#define ASSERT_NUMBERS(f, resource, ...) assert_numbers(f, resource, (const int[]){__VA_ARGS__})

static struct fixture *two_gpus(void)
{
    struct fixture *f = node();
    fixture_add_gpu(f, "H100");
    fixture_add_gpu(f, "H100");
    ready(f);
    add_device(U0, 0);
    add_device(U1, 1);
    offer(GPU, U0);
    offer(GPU, U1);
    return f;
}

static void test_a_gpu_is_idle_once_its_holder_did_nothing_for_so_long(void **state)
{
    (void)state;
    static const struct {
        uint64_t idle_s;
        int idle;
    } rows[] = {{0, 0}, {299, 0}, {300, 1}, {900, 1}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        cleanup(fixture_freep) struct fixture *f = two_gpus();
        hold(f, 0, "a", GPU, U0);
        account(0, "a", rows[i].idle_s);
        page_with(f, &offered);
        ASSERT_NUMBERS(f, GPU, 2, 1, rows[i].idle);
    }
}

// The moment comes without any change of the lists.
static void test_a_gpu_becomes_idle_and_is_used_again_on_the_same_layout(void **state)
{
    (void)state;
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    hold(f, 0, "a", GPU, U0);
    struct ledger_account *a = account(0, "a", 10);
    page_with(f, &offered);
    ASSERT_NUMBERS(f, GPU, 2, 1, 0);
    f->now_ns += 290 * NS_PER_S;
    page_with(f, &offered);
    ASSERT_NUMBERS(f, GPU, 2, 1, 1);
    a->idle_since_ns = f->now_ns;
    page_with(f, &offered);
    ASSERT_NUMBERS(f, GPU, 2, 1, 0);
}

static void test_who_cannot_be_known_to_be_idle_is_not(void **state)
{
    (void)state;
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    hold(f, 0, "a", GPU, U0);
    hold(f, 1, "b", GPU, U1);
    struct ledger_account *a = account(0, "a", 900), *b = account(1, "b", 900);
    a->has_busy = a->has_idle = false; // nobody knows what it did
    b->live = b->has_idle = false;     // no account yet that is its own
    page_with(f, &offered);
    ASSERT_NUMBERS(f, GPU, 2, 2, 0);
}

static void test_ids_of_several_resources_are_counted_apart(void **state)
{
    (void)state;
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    offered.count = 1; // the second GPU is offered in three replicas
    offer(SHARED, U1 "::0");
    offer(SHARED, U1 "::1");
    offer(SHARED, U1 "::2");
    hold(f, 0, "a", GPU, U0);
    hold(f, 1, "b", SHARED, U1 "::0");
    hold(f, 1, "b", SHARED, U1 "::2");
    hold(f, 1, "c", SHARED, U1 "::1");
    account(0, "a", 0);
    account(1, "b", 600);
    account(1, "c", 0);
    page_with(f, &offered);
    ASSERT_NUMBERS(f, GPU, 1, 1, 0);
    ASSERT_NUMBERS(f, SHARED, 3, 3, 2); // b's two
}

static void test_an_id_of_two_containers_is_one_and_idle_when_both_are(void **state)
{
    (void)state;
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    hold(f, 0, "a", GPU, U0);
    hold(f, 0, "b", GPU, U0);
    account(0, "a", 900);
    struct ledger_account *b = account(0, "b", 5);
    page_with(f, &offered);
    ASSERT_NUMBERS(f, GPU, 2, 1, 0);
    b->idle_since_ns -= 900 * NS_PER_S;
    page_with(f, &offered);
    ASSERT_NUMBERS(f, GPU, 2, 1, 1);
}

static void test_instances_are_counted_by_their_resource(void **state)
{
    (void)state;
    cleanup(fixture_freep) struct fixture *f = node();
    uint32_t gpu = fixture_add_gpu(f, "H100");
    uint32_t instance = fixture_add_instance(f, gpu, 1, "1g.10gb");
    ready(f);
    add_device(U0, 0);
    add_device(MIG_1, 0);
    offer(MIG, MIG_1);
    hold(f, instance, "a", MIG, MIG_1);
    account(1, "a", 301);
    page_with(f, &offered);
    ASSERT_NUMBERS(f, MIG, 1, 1, 1);
    ASSERT_NUMBERS(f, GPU, -1, -1, -1);
}

static void test_without_offers_only_what_is_held_is_said(void **state)
{
    (void)state;
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    hold(f, 0, "a", GPU, U0);
    account(0, "a", 900);
    page_with(f, NULL);
    ASSERT_NUMBERS(f, GPU, -1, 1, 1);
    assert_string_equal(fixture_family(f, "podgpu_node_gpu_allocatable"), "");
}

// A row whose pod ended is of no device; the id is that of the pod which has it now.
static void test_a_row_that_is_left_over_does_not_keep_its_id_busy(void **state)
{
    (void)state;
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    hold(f, FIXTURE_ENTITIES_MAX, "old", GPU, U0);
    hold(f, 0, "new", GPU, U0);
    account(0, "new", 900);
    page_with(f, &offered);
    ASSERT_NUMBERS(f, GPU, 2, 1, 1);
}

static void test_a_held_gpu_that_the_driver_lost_is_allocated(void **state)
{
    (void)state;
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    offered.count = 1;
    hold(f, FIXTURE_ENTITIES_MAX, "a", GPU, "GPU-gone");
    page_with(f, &offered);
    ASSERT_NUMBERS(f, GPU, 1, 1, 0);
}

static void test_lists_that_change_are_counted_anew(void **state)
{
    (void)state;
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    page_with(f, &offered);
    ASSERT_NUMBERS(f, GPU, 2, 0, 0);
    hold(f, 0, "a", GPU, U0);
    page_with(f, &offered);
    ASSERT_NUMBERS(f, GPU, 2, 1, 0);
    account(0, "a", 900);
    ledger.layout++;
    page_with(f, &offered);
    ASSERT_NUMBERS(f, GPU, 2, 1, 1);
}

static void test_our_own_pod_holds_nothing(void **state)
{
    (void)state;
    cleanup(fixture_freep) struct fixture *f = two_gpus();
    sv_copy(f->options.own_namespace, sizeof(f->options.own_namespace), SV("ns"));
    sv_copy(f->options.own_pod, sizeof(f->options.own_pod), SV("exporter"));
    hold(f, 0, "a", GPU, U0);
    hold(f, FIXTURE_ENTITIES_MAX, "exporter", GPU, U1);
    page_with(f, &offered);
    ASSERT_NUMBERS(f, GPU, 2, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_gpu_is_idle_once_its_holder_did_nothing_for_so_long),
        cmocka_unit_test(test_a_gpu_becomes_idle_and_is_used_again_on_the_same_layout),
        cmocka_unit_test(test_who_cannot_be_known_to_be_idle_is_not),
        cmocka_unit_test(test_ids_of_several_resources_are_counted_apart),
        cmocka_unit_test(test_an_id_of_two_containers_is_one_and_idle_when_both_are),
        cmocka_unit_test(test_instances_are_counted_by_their_resource),
        cmocka_unit_test(test_without_offers_only_what_is_held_is_said),
        cmocka_unit_test(test_a_row_that_is_left_over_does_not_keep_its_id_busy),
        cmocka_unit_test(test_a_held_gpu_that_the_driver_lost_is_allocated),
        cmocka_unit_test(test_lists_that_change_are_counted_anew),
        cmocka_unit_test(test_our_own_pod_holds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
