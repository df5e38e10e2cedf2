// SPDX-License-Identifier: Apache-2.0
// The ledger's families, with a ledger whose numbers the test says.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "exporter/render_internal.h"
#include "fake_ledger.h"
#include "render_fixture.h"

// --- A page with it ---

#define U0 "GPU-00000000-0000-0000-0000-000000000000"
#define D0 "{gpu=\"0\",UUID=\"" U0 "\",hostname=\"testhost\""
#define I1 D0 ",GPU_I_ID=\"1\""
#define A ",namespace=\"ns\",pod=\"a\",container=\"main\"}"
#define B ",namespace=\"ns\",pod=\"b\",container=\"main\"}"
#define MIG_1 "MIG-00000000-0001-0000-0000-000000000000"
#define BUSY "podgpu_container_gpu_busy_seconds_total"

static struct ledger ledger;

static const char *page(struct fixture *f, enum text_format format)
{
    struct render_input in = fixture_input(f);
    in.ledger = &ledger;
    buf_reset(&f->page);
    assert_int_equal(render_page(f->render, &in, format, &f->page), 0);
    return buf_cstr(&f->page);
}

static struct ledger_device whole(const char *uuid, uint32_t board)
{
    return (struct ledger_device){.uuid = uuid,
                                  .board = board,
                                  .present = true,
                                  .has_busy = true,
                                  .has_energy = true,
                                  .has_memory = true,
                                  .busy_us = 3000001,
                                  .unattributed_busy_us = 1,
                                  .ended_busy_us = 1000000,
                                  .energy_uj = 18446744073709551615u,
                                  .unattributed_energy_uj = 12,
                                  .ended_energy_uj = 0,
                                  .memory_used = 4096,
                                  .memory_total = 8192,
                                  .unattributed_memory = 96,
                                  .method = LEDGER_METHOD_PROCESS};
}

static struct ledger_account account(uint32_t device, uint32_t container)
{
    return (struct ledger_account){.device = device,
                                   .container = container,
                                   .live = true,
                                   .holds = true,
                                   .has_busy = true,
                                   .has_memory = true,
                                   .has_processes = true,
                                   .has_idle = true,
                                   .share_ppm = 125000,
                                   .allocated_us = 500,
                                   .busy_us = 1000000,
                                   .energy_uj = 7,
                                   .memory_bytes = 2000,
                                   .processes = 3,
                                   .idle_since_ns = FIXTURE_NOW_NS - 1500 * NS_PER_MS};
}

static struct fixture *shared_gpu(void)
{
    struct fixture *f = fixture_new("DCGM_FI_DEV_GPU_TEMP, gauge, t\n", "f");
    fixture_add_gpu(f, "H100");
    fixture_list(f);
    fixture_ready(f, false);
    ledger = (struct ledger){.layout = 1, .device_count = 1, .account_count = 2};
    ledger.devices[0] = whole(U0, 0);
    ledger.containers[0] = (struct ledger_container){"ns", "a", "main", "uid-a"};
    ledger.containers[1] = (struct ledger_container){"ns", "b", "main", ""};
    ledger.accounts[0] = account(0, 0);
    ledger.accounts[1] = account(0, 1);
    return f;
}

static void test_numbers_are_those_of_the_ledger_to_the_last_digit(void **state)
{
    cleanup(fixture_freep) struct fixture *f = shared_gpu();
    page(f, TEXT_FORMAT_PROMETHEUS);
    static const char *const lines[] = {
        "podgpu_gpu_busy_seconds_total" D0 "} 3.000001",
        "podgpu_gpu_energy_joules_total" D0 "} 18446744073709.551615",
        "podgpu_gpu_memory_used_bytes" D0 "} 4096",
        "podgpu_gpu_memory_total_bytes" D0 "} 8192",
        "podgpu_gpu_unattributed_busy_seconds_total" D0 "} 0.000001",
        "podgpu_gpu_unattributed_energy_joules_total" D0 "} 0.000012",
        "podgpu_gpu_unattributed_memory_bytes" D0 "} 96",
        "podgpu_gpu_ended_busy_seconds_total" D0 "} 1.000000",
        "podgpu_gpu_ended_energy_joules_total" D0 "} 0.000000",
        "podgpu_exporter_attribution_info" D0 ",method=\"process\"} 1",
        "podgpu_container_gpu_share_ratio" D0 A " 0.125000",
        "podgpu_container_gpu_allocated_seconds_total" D0 A " 0.000500",
        BUSY D0 A " 1.000000",
        "podgpu_container_gpu_energy_joules_total" D0 A " 0.000007",
        "podgpu_container_gpu_memory_used_bytes" D0 A " 2000",
        "podgpu_container_gpu_processes" D0 A " 3",
        "podgpu_container_gpu_idle_seconds" D0 A " 1.500",
        BUSY D0 B " 1.000000",
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        if (!fixture_has_line(f, lines[i]))
            fail_msg("no line %s in\n%s", lines[i], f->page.data);
    assert_string_equal(fixture_family(f, "podgpu_gpu_utilization_ratio"), "");
    // Numbers change, the text before them does not.
    ledger.accounts[0].busy_us = 2;
    page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, BUSY D0 A " 0.000002"));
}

static void test_what_is_not_known_has_no_series(void **state)
{
    cleanup(fixture_freep) struct fixture *f = shared_gpu();
    ledger.accounts[1].has_busy = ledger.accounts[1].has_memory = false;
    ledger.accounts[1].has_processes = ledger.accounts[1].has_idle = false;
    page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, BUSY D0 A " 1.000000"));
    assert_null(strstr(fixture_family(f, BUSY), "pod=\"b\""));
    assert_null(strstr(fixture_family(f, "podgpu_container_gpu_memory_used_bytes"), "pod=\"b\""));
    assert_null(strstr(fixture_family(f, "podgpu_container_gpu_processes"), "pod=\"b\""));
    assert_null(strstr(fixture_family(f, "podgpu_container_gpu_idle_seconds"), "pod=\"b\""));
    assert_true(fixture_has_line(f, "podgpu_container_gpu_share_ratio" D0 B " 0.125000"));
    ledger.devices[0].has_busy = ledger.devices[0].has_energy = ledger.devices[0].has_memory =
        false;
    page(f, TEXT_FORMAT_PROMETHEUS);
    static const char *const gone[] = {
        "podgpu_gpu_busy_seconds_total",
        "podgpu_gpu_energy_joules_total",
        "podgpu_gpu_memory_used_bytes",
        "podgpu_gpu_memory_total_bytes",
        "podgpu_gpu_unattributed_busy_seconds_total",
        "podgpu_gpu_unattributed_energy_joules_total",
        "podgpu_gpu_unattributed_memory_bytes",
        "podgpu_gpu_ended_busy_seconds_total",
        "podgpu_gpu_ended_energy_joules_total",
        BUSY,
        "podgpu_container_gpu_energy_joules_total",
    };
    for (size_t i = 0; i < ARRAY_SIZE(gone); i++)
        assert_string_equal(fixture_family(f, gone[i]), "");
}

static void test_an_ended_container_keeps_its_counters_alone(void **state)
{
    cleanup(fixture_freep) struct fixture *f = shared_gpu();
    ledger.accounts[0].live = ledger.accounts[0].has_idle = false;
    page(f, TEXT_FORMAT_PROMETHEUS);
    static const char *const gauges[] = {
        "podgpu_container_gpu_share_ratio", "podgpu_container_gpu_memory_used_bytes",
        "podgpu_container_gpu_processes", "podgpu_container_gpu_idle_seconds"};
    for (size_t i = 0; i < ARRAY_SIZE(gauges); i++) {
        assert_null(strstr(fixture_family(f, gauges[i]), "pod=\"a\""));
        assert_non_null(strstr(fixture_family(f, gauges[i]), "pod=\"b\""));
    }
    assert_true(fixture_has_line(f, BUSY D0 A " 1.000000"));
    assert_true(
        fixture_has_line(f, "podgpu_container_gpu_allocated_seconds_total" D0 A " 0.000500"));
    assert_true(fixture_has_line(f, "podgpu_container_gpu_energy_joules_total" D0 A " 0.000007"));
}

static void test_the_uid_is_a_label_where_it_is_asked_for_and_known(void **state)
{
    cleanup(fixture_freep) struct fixture *f = shared_gpu();
    f->options.flags.pod_uid = true;
    page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(
        f, BUSY D0 ",namespace=\"ns\",pod=\"a\",container=\"main\",pod_uid=\"uid-a\"} 1.000000"));
    assert_true(fixture_has_line(f, BUSY D0 B " 1.000000"));
}

static void test_names_of_containers_are_escaped(void **state)
{
    cleanup(fixture_freep) struct fixture *f = shared_gpu();
    ledger.containers[0] = (struct ledger_container){"a\"b", "c\\d", "e\nf\xff", ""};
    page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(
        f, BUSY D0 ",namespace=\"a\\\"b\",pod=\"c\\\\d\",container=\"e\\nf\xef\xbf\xbd\"} "
                   "1.000000"));
}

static void test_the_histogram_is_there_with_all(void **state)
{
    cleanup(fixture_freep) struct fixture *f = shared_gpu();
    f->options.podgpu_families = PODGPU_FAMILIES_ALL;
    ledger.devices[0].samples[0] = 2;
    ledger.devices[0].samples[5] = 1;
    ledger.devices[0].samples[12] = 1; // none should be: the last bound is 1
    ledger.devices[0].samples_ppm = 450000;
    page(f, TEXT_FORMAT_PROMETHEUS);
#define H "podgpu_gpu_utilization_ratio"
    assert_true(fixture_has_line(f, "# TYPE " H " histogram"));
    assert_true(fixture_has_line(f, H "_bucket" D0 ",le=\"0\"} 2"));
    assert_true(fixture_has_line(f, H "_bucket" D0 ",le=\"0.4\"} 2"));
    assert_true(fixture_has_line(f, H "_bucket" D0 ",le=\"0.5\"} 3"));
    assert_true(fixture_has_line(f, H "_bucket" D0 ",le=\"+Inf\"} 4"));
    assert_true(fixture_has_line(f, H "_sum" D0 "} 0.450000"));
    assert_true(fixture_has_line(f, H "_count" D0 "} 4"));
    page(f, TEXT_FORMAT_OPENMETRICS);
    assert_true(fixture_has_line(f, H "_bucket" D0 ",le=\"1.0\"} 3"));
}

// --- MIG ---

static struct fixture *mig(void)
{
    struct fixture *f = fixture_new("DCGM_FI_DEV_GPU_TEMP, gauge, t\n", "f");
    uint32_t gpu = fixture_add_gpu(f, "H100");
    fixture_add_instance(f, gpu, 1, "1g.10gb");
    fixture_list(f);
    fixture_ready(f, false);
    ledger = (struct ledger){.layout = 1, .device_count = 2, .account_count = 1};
    ledger.devices[0] = whole(U0, 0);
    ledger.devices[0].has_busy = ledger.devices[0].has_memory = false;
    ledger.devices[1] = whole(MIG_1, 0);
    ledger.devices[1].has_energy = false;
    ledger.containers[0] = (struct ledger_container){"ns", "a", "main", ""};
    ledger.containers[1] = (struct ledger_container){"ns", "b", "main", ""};
    ledger.accounts[0] = account(1, 0);
    return f;
}

static void test_an_instance_has_busy_time_and_the_board_energy(void **state)
{
    cleanup(fixture_freep) struct fixture *f = mig();
    page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "podgpu_gpu_busy_seconds_total" I1 "} 3.000001"));
    assert_false(fixture_has_line(f, "podgpu_gpu_busy_seconds_total" D0 "} 3.000001"));
    assert_true(fixture_has_line(f, "podgpu_gpu_energy_joules_total" D0 "} 18446744073709.551615"));
    assert_true(fixture_has_line(f, "podgpu_container_gpu_energy_joules_total" I1 A " 0.000007"));
    assert_true(fixture_has_line(f, "podgpu_exporter_attribution_info" I1 ",method=\"process\"} "
                                    "1"));
    assert_null(strstr(fixture_family(f, "podgpu_exporter_attribution_info"), D0 ",method"));
}

static void test_an_instance_that_is_gone_keeps_its_series(void **state)
{
    cleanup(fixture_freep) struct fixture *f = mig();
    page(f, TEXT_FORMAT_PROMETHEUS);
    f->entity_count = 1;
    fixture_list(f);
    ledger.layout++;
    ledger.devices[1].present = false;
    ledger.accounts[0].live = ledger.accounts[0].has_idle = false;
    page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "podgpu_gpu_busy_seconds_total" I1 "} 3.000001"));
    assert_true(fixture_has_line(f, BUSY I1 A " 1.000000"));
    assert_string_equal(fixture_family(f, "podgpu_gpu_memory_used_bytes"), "");
}

// The driver gives the number of an instance that is gone to the next one.
static void test_a_new_instance_of_an_old_number_is_one_series_with_it(void **state)
{
    cleanup(fixture_freep) struct fixture *f = mig();
    page(f, TEXT_FORMAT_PROMETHEUS);
    sv_copy(f->entities[1].uuid, sizeof(f->entities[1].uuid), SV("MIG-new"));
    fixture_list(f);
    ledger.layout++;
    ledger.device_count = 3;
    ledger.account_count = 3;
    ledger.devices[2] = ledger.devices[1];
    ledger.devices[2].present = false;
    ledger.devices[1].uuid = "MIG-new";
    ledger.accounts[0] = account(1, 1);
    ledger.accounts[1] = account(2, 0);
    ledger.accounts[1].live = ledger.accounts[1].has_idle = false;
    ledger.accounts[2] = account(2, 1);
    ledger.accounts[2].live = ledger.accounts[2].has_idle = false;
    page(f, TEXT_FORMAT_PROMETHEUS);
    assert_true(fixture_has_line(f, "podgpu_gpu_busy_seconds_total" I1 "} 6.000002"));
    assert_true(fixture_has_line(f, "podgpu_gpu_memory_used_bytes" I1 "} 4096"));
    assert_true(fixture_has_line(f, BUSY I1 A " 1.000000"));
    assert_true(fixture_has_line(f, BUSY I1 B " 2.000000"));
    assert_true(fixture_has_line(f, "podgpu_container_gpu_processes" I1 B " 3"));
}

static void test_devices_that_were_not_chosen_are_left_out(void **state)
{
    cleanup(fixture_freep) struct fixture *f = shared_gpu();
    fixture_add_gpu(f, "H100");
    fixture_list(f);
    ledger.device_count = 2;
    ledger.devices[1] = whole("GPU-00000000-0000-0000-0000-000000000001", 1);
    selection_deinit(&f->options.gpus);
    struct error err = ERROR_INIT;
    assert_int_equal(selection_parse(SV("g:1"), &f->options.gpus, &err), 0);
    page(f, TEXT_FORMAT_PROMETHEUS);
    assert_null(strstr(fixture_family(f, "podgpu_gpu_busy_seconds_total"), "gpu=\"0\""));
    assert_non_null(strstr(fixture_family(f, "podgpu_gpu_busy_seconds_total"), "gpu=\"1\""));
    assert_string_equal(fixture_family(f, BUSY), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_those_of_the_ledger_to_the_last_digit),
        cmocka_unit_test(test_what_is_not_known_has_no_series),
        cmocka_unit_test(test_an_ended_container_keeps_its_counters_alone),
        cmocka_unit_test(test_the_uid_is_a_label_where_it_is_asked_for_and_known),
        cmocka_unit_test(test_names_of_containers_are_escaped),
        cmocka_unit_test(test_the_histogram_is_there_with_all),
        cmocka_unit_test(test_an_instance_has_busy_time_and_the_board_energy),
        cmocka_unit_test(test_an_instance_that_is_gone_keeps_its_series),
        cmocka_unit_test(test_a_new_instance_of_an_old_number_is_one_series_with_it),
        cmocka_unit_test(test_devices_that_were_not_chosen_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
