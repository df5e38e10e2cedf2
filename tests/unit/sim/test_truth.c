// SPDX-License-Identifier: Apache-2.0
#include "node_of.h"

#include <math.h>
#include <stdio.h>

static void a_square_wave_changes_at_its_edges_to_the_nanosecond(void **state)
{
    struct sim_node *n =
        node_of(DRIVER "gpus:\n" GPU "    load: \"square:on=20s,off=20s,high=0.9,low=0.1\"\n");
    const struct {
        int64_t t, ppm;
    } cases[] = {{0, 900000},          {20 * S - 1, 900000},  {20 * S, 100000},
                 {40 * S - 1, 100000}, {40 * S, 900000},      {-1, 100000},
                 {-20 * S, 100000},    {-20 * S - 1, 900000}, {4000000 * S, 900000},
                 {4000020 * S, 100000}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(sim_load_ppm(n, 0, SIM_NONE, cases[i].t), cases[i].ppm);
    free(n);
}

static void a_phase_moves_the_wave(void **state)
{
    struct sim_node *n =
        node_of(DRIVER "gpus:\n" GPU "    load: \"square:on=20s,off=20s,phase=5s\"\n");
    assert_int_equal(sim_load_ppm(n, 0, SIM_NONE, 15 * S - 1), 1000000);
    assert_int_equal(sim_load_ppm(n, 0, SIM_NONE, 15 * S), 0);
    assert_int_equal(sim_load_ppm(n, 0, SIM_NONE, 35 * S), 1000000);
    assert_int_equal(sim_busy_us(n, 0, SIM_NONE, 0, 40 * S), 20000000);
    assert_int_equal(sim_busy_us(n, 0, SIM_NONE, 0, 16 * S), 15000000);
    free(n);
}

// Adds up the load nanosecond-exactly by stepping from change to change of a coarse grid.
static sim_wide stepped(const struct sim_node *n, int64_t from, int64_t to, int64_t grid)
{
    sim_wide sum = 0;
    for (int64_t t = from; t < to; t += grid)
        sum += (sim_wide)sim_load_ppm(n, 0, SIM_NONE, t) * grid;
    return sum;
}

static void integrals_equal_the_sum_of_the_parts(void **state)
{
    static const char *const loads[] = {
        "0.3",
        "\"square:on=7s,off=3s,high=0.8,low=0.2\"",
        "\"square:on=7s,off=3s,phase=2s\"",
        "\"bursts:every=1s,width=50ms,pulses=3,high=0.7\"",
        "\"bursts:every=1s,width=50ms,pulses=10,phase=330ms,low=0.1\"",
        "[{at: 0s, is: 0.1}, {at: 4s, is: \"square:on=1s,off=1s\"}, {at: 9s, is: 0.5}]",
    };
    for (size_t i = 0; i < ARRAY_SIZE(loads); i++) {
        char text[512];
        (void)snprintf(text, sizeof(text), DRIVER "gpus:\n" GPU "    load: %s\n", loads[i]);
        struct sim_node *n = node_of(text);
        const int64_t spans[][2] = {{0, 20 * S},
                                    {0, 10 * MS},
                                    {3 * S + 210 * MS, 17 * S + 940 * MS},
                                    {-5 * S, 5 * S},
                                    {12 * S, 12 * S}};
        for (size_t k = 0; k < ARRAY_SIZE(spans); k++) {
            sim_wide want = stepped(n, spans[k][0], spans[k][1], 10 * MS);
            assert_true(sim_load_integral(n, 0, SIM_NONE, spans[k][0], spans[k][1]) == want);
        }
        free(n);
    }
}

static void integrals_are_exact_after_a_year(void **state)
{
    struct sim_node *n =
        node_of(DRIVER "gpus:\n" GPU "    load: \"square:on=20s,off=20s\"\n"
                       "    signals: {power_mw: 60000 + 240000*load, energy_mj: 5 + power}\n");
    const int64_t year = 365 * 86400 * S;
    assert_int_equal(sim_busy_us(n, 0, SIM_NONE, 0, year), 365LL * 86400 / 2 * 1000000);
    // 60 W always and 240 W half of the time, in mJ
    assert_int_equal(truth(n, SIM_ENERGY, year), 5 + 365LL * 86400 * 180000);
    assert_int_equal(truth(n, SIM_ENERGY, year + 1 * S) - truth(n, SIM_ENERGY, year), 300000);
    free(n);
}

static void energy_is_the_integral_of_power_cut_to_whole_millijoules(void **state)
{
    struct sim_node *n =
        node_of(DRIVER "gpus:\n" GPU "    load: \"square:on=1s,off=1s\"\n"
                       "    signals: {power_mw: 1500 + 1000*load, energy_mj: 100 + power}\n");
    assert_int_equal(truth(n, SIM_ENERGY, 0), 100);
    assert_int_equal(truth(n, SIM_ENERGY, 399999), 100); // 2500 mW * 399.999 us = 0.9999975 mJ
    assert_int_equal(truth(n, SIM_ENERGY, 400000), 101); // 1 mJ
    assert_int_equal(truth(n, SIM_ENERGY, 1 * S), 2600); // 2.5 W for a second
    assert_int_equal(truth(n, SIM_ENERGY, 2 * S), 4100); // then 1.5 W
    assert_int_equal(truth(n, SIM_ENERGY, 1000 * S), 2000100); // 2 W on average
    free(n);
}

static void power_over_a_second_is_a_trailing_mean(void **state)
{
    struct sim_node *n =
        node_of(DRIVER "gpus:\n" GPU "    load: \"square:on=20s,off=20s\"\n    power_window: 1s\n"
                       "    signals: {power_mw: 50000 + 100000*load}\n");
    assert_int_equal(truth(n, SIM_POWER, 10 * S), 150000);
    assert_int_equal(truth(n, SIM_POWER, 20 * S), 150000);
    assert_int_equal(truth(n, SIM_POWER, 20 * S + 250 * MS), 125000);
    assert_int_equal(truth(n, SIM_POWER, 21 * S), 50000);
    sim_wide instant;
    assert_int_equal(sim_integral(n, 0, SIM_POWER, 20 * S, 20 * S + 1, &instant), 0);
    assert_true(instant == (sim_wide)50000 * 1000000);
    free(n);
}

static void utilisation_is_the_mean_of_the_last_complete_window_cut_to_whole_percents(void **state)
{
    struct sim_node *n = node_of(
        DRIVER "gpus:\n" GPU "    load: \"square:on=1s,off=2s\"\n    utilization_window: 300ms\n"
               "    signals: {gpu_percent: 100*load, memory_percent: 50*load}\n");
    assert_int_equal(truth(n, SIM_GPU_UTIL, 300 * MS), 100);
    assert_int_equal(truth(n, SIM_GPU_UTIL, 1200 * MS - 1), 100); // window [600, 900)
    assert_int_equal(truth(n, SIM_GPU_UTIL, 1200 * MS), 33); // window [900, 1200): 100 of 300 ms
    assert_int_equal(truth(n, SIM_MEM_UTIL, 1200 * MS), 16);
    assert_int_equal(truth(n, SIM_GPU_UTIL, 1500 * MS), 0);
    free(n);
}

static void a_gauge_that_is_set_changes_then_and_its_past_stays(void **state)
{
    struct sim_node *n =
        node_of(DRIVER "gpus:\n" GPU
                       "    signals: {temperature_c: [{at: 0s, is: 40}, {at: 60s, is: 80}]}\n");
    verb(n, 30 * S, "set gpu0.temperature_c=55.9", 0);
    assert_int_equal(truth(n, SIM_TEMPERATURE, 30 * S - 1), 40);
    assert_int_equal(truth(n, SIM_TEMPERATURE, 30 * S), 55);
    assert_int_equal(truth(n, SIM_TEMPERATURE, 60 * S - 1), 55);
    assert_int_equal(truth(n, SIM_TEMPERATURE, 60 * S), 80);
    assert_int_equal(truth(n, SIM_TEMPERATURE, -1), 40);
    assert_true(fabs(sim_mean(n, 0, SIM_TEMPERATURE, 0, 120 * S) -
                     (40 * 30 + 55.9 * 30 + 80 * 60) / 120.0) < 1e-9);
    free(n);
}

static void a_counter_grows_by_rate_and_load_and_can_be_set_back(void **state)
{
    struct sim_node *n = node_of(DRIVER "gpus:\n" GPU "    load: \"square:on=1s,off=1s\"\n"
                                        "    signals: {pcie_tx_bytes: 7 + 100/s + 50*load/s}\n");
    assert_int_equal(truth(n, SIM_PCIE_TX, 0), 7);
    assert_int_equal(truth(n, SIM_PCIE_TX, 1 * S), 157);
    assert_int_equal(truth(n, SIM_PCIE_TX, 2 * S), 257);
    assert_int_equal(truth(n, SIM_PCIE_TX, 2 * S + 9999999), 258); // 1.49 cut
    verb(n, 3 * S, "set gpu0.pcie_tx_bytes=1+10/s", 0);
    assert_int_equal(truth(n, SIM_PCIE_TX, 3 * S), 1);
    assert_int_equal(truth(n, SIM_PCIE_TX, 4 * S), 11);
    assert_true(fabs(sim_mean(n, 0, SIM_PCIE_TX, 0, 2 * S) - 125.0) < 1e-9);
    free(n);
}

static void large_whole_numbers_keep_their_last_digit(void **state)
{
    struct sim_node *n =
        node_of(DRIVER "gpus:\n" GPU
                       "    signals: {energy_mj: 9007199254741, memory_total_bytes: 81559MiB}\n");
    assert_int_equal(truth(n, SIM_ENERGY, 5 * S), 9007199254741);
    assert_int_equal(truth(n, SIM_FB_TOTAL, 0), 81559LL << 20);
    free(n);
}

static void absent_and_failing_signals_give_their_code(void **state)
{
    struct sim_node *n = node_of(
        DRIVER "gpus:\n" GPU "    signals: {temperature_c: error 999, pstate: unsupported}\n");
    int64_t value = 77;
    assert_int_equal(sim_truth(n, 0, SIM_TEMPERATURE, 0, &value), 999);
    assert_int_equal(sim_truth(n, 0, SIM_PSTATE, 0, &value), 3);
    assert_int_equal(sim_truth(n, 0, SIM_MEM_TEMPERATURE, 0, &value), 3);
    assert_int_equal(value, 77);
    assert_true(isnan(sim_mean(n, 0, SIM_MEM_TEMPERATURE, 0, S)));
    free(n);
}

static const char sharers[] =
    DRIVER "gpus:\n" GPU "    signals: {memory_total_bytes: 1000MiB, memory_reserved_bytes: "
           "100MiB, memory_base_bytes: 10MiB}\n"
           "pods:\n  - {name: a, containers: [{name: c, processes: [{device: gpu0, pid: 1, memory: "
           "200MiB, load: 0.25}]}]}\n"
           "  - {name: b, start: 10s, end: 30s, containers: [{name: c, processes: [{device: gpu0, "
           "pid: 2, memory: 300MiB,"
           " load: \"square:on=1s,off=1s,high=0.5\"}]}]}\n";

static void a_gpu_does_what_its_processes_do_while_they_live(void **state)
{
    struct sim_node *n = node_of(sharers);
    assert_int_equal(sim_load_ppm(n, 0, SIM_NONE, 5 * S), 250000);
    assert_int_equal(sim_load_ppm(n, 0, SIM_NONE, 10 * S), 750000);
    assert_int_equal(sim_load_ppm(n, 0, SIM_NONE, 11 * S), 250000);
    assert_int_equal(sim_load_ppm(n, 0, SIM_NONE, 30 * S), 250000);
    // 40 s of a quarter, and 20 s of half the time one half
    assert_int_equal(sim_busy_us(n, 0, SIM_NONE, 0, 40 * S), 10000000 + 5000000);
    assert_int_equal(sim_process_busy_us(n, 1, 0, 40 * S), 5000000);
    assert_int_equal(sim_process_busy_us(n, 0, 0, 40 * S), 10000000);
    free(n);
}

static void what_has_no_start_was_always_there(void **state)
{
    struct sim_node *n =
        node_of(DRIVER "gpus:\n" GPU "    signals: {gpu_percent: 100*load}\n"
                       "processes: [{device: gpu0, pid: 1, load: 0.5}, {device: gpu0, "
                       "pid: 2, load: 0.25, start: 0s}]\n");
    assert_int_equal(sim_load_ppm(n, 0, SIM_NONE, -1), 500000);
    assert_int_equal(truth(n, SIM_GPU_UTIL, 0), 50);
    assert_int_equal(truth(n, SIM_GPU_UTIL, 1 * S), 75);
    free(n);
}

static void memory_adds_up(void **state)
{
    struct sim_node *n = node_of(sharers);
    struct sim_memory m;
    assert_int_equal(sim_gpu_memory(n, 0, 5 * S, &m), 0);
    assert_int_equal(m.used, 210LL << 20);
    assert_int_equal(sim_gpu_memory(n, 0, 15 * S, &m), 0);
    assert_int_equal(m.used, 510LL << 20);
    assert_int_equal(m.free, 390LL << 20);
    assert_int_equal(m.total, m.used + m.free + m.reserved);
    verb(n, 16 * S, "process add device=gpu0 pid=3 memory=5000MiB", 0);
    assert_int_equal(sim_gpu_memory(n, 0, 17 * S, &m), 0);
    assert_int_equal(m.free, 0); // never more than there is
    assert_int_equal(m.total, m.used + m.reserved);
    free(n);
}

static void a_load_that_is_set_reaches_the_integral_from_then_on(void **state)
{
    struct sim_node *n = node_of(sharers);
    verb(n, 4 * S, "set process.1.load=0.5", 0);
    assert_int_equal(sim_process_busy_us(n, 0, 0, 8 * S), 1000000 + 2000000);
    verb(n, 6 * S, "set gpu0.load=1", 0); // a load of its own goes before the sum
    assert_int_equal(sim_load_ppm(n, 0, SIM_NONE, 7 * S), 1000000);
    free(n);
}

static const char mig[] =
    DRIVER "gpus:\n" GPU
           "    mig_capable: 1\n    mig_slots: 7\n    total_slices: 7\n    multiprocessors: 132\n"
           "    mig: \"3g.40gb,2g.20gb:1c+1c,1g.10gb\"\n"
           "    signals: {memory_total_bytes: 80000MiB, gpm_sm_percent: 90*load}\n"
           "processes:\n  - {device: gpu0/gi1, pid: 1, memory: 1000MiB, load: 1}\n"
           "  - {device: gpu0/gi3/ci1, pid: 2, memory: 2000MiB, load: 0.5}\n";

static void an_instance_weighs_its_slices(void **state)
{
    struct sim_node *n = node_of(mig);
    assert_int_equal(sim_load_ppm(n, 0, 1, S), 1000000);
    assert_int_equal(sim_load_ppm(n, 0, 3, S), 500000);
    assert_int_equal(sim_load_ppm(n, 0, 7, S), 0);
    assert_int_equal(sim_load_ppm(n, 0, SIM_NONE, S), 3 * 1000000 / 7 + 500000 * 2 / 7);
    assert_int_equal(sim_busy_us(n, 0, 1, 0, 10 * S), 10000000);
    assert_int_equal(sim_busy_us(n, 0, SIM_NONE, 0, 7 * S), 3000000 + 1000000);
    assert_true(fabs(sim_instance_mean(n, 0, 1, SIM_GPM_SM, 0, S) - 90.0) < 1e-9);
    assert_true(fabs(sim_instance_mean(n, 0, 3, SIM_GPM_SM, 0, S) - 45.0) < 1e-9);
    free(n);
}

static void an_instance_has_its_own_memory(void **state)
{
    struct sim_node *n = node_of(mig);
    struct sim_memory m;
    assert_int_equal(sim_instance_memory(n, 2, S, &m),
                     0); // second compute instance of GPU instance 3
    assert_int_equal(m.total, 20LL << 30);
    assert_int_equal(m.used, 2000LL << 20);
    assert_int_equal(sim_instance_memory(n, 3, S, &m), 0);
    assert_int_equal(m.used, 0);
    assert_int_equal(sim_gpu_memory(n, 0, S, &m), 0);
    assert_int_equal(m.used, 3000LL << 20);
    free(n);
}

static void a_loss_sticks_to_those_who_had_the_library_open(void **state)
{
    struct sim_node *n = node_of(DRIVER "gpus:\n" GPU "script:\n  - {at: 5s, do: set gpu0.lost=1}\n"
                                        "  - {at: 10s, do: set gpu0.lost=0}\n");
    n->reinit_after_loss = 1;
    assert_int_equal(sim_gpu_return(n, 0, 0, 5 * S - 1), 0);
    assert_int_equal(sim_gpu_return(n, 0, 0, 5 * S), 15);
    assert_int_equal(sim_gpu_return(n, 0, 6 * S, 7 * S), 15);
    assert_int_equal(sim_gpu_return(n, 0, 0, 12 * S), 15);
    assert_int_equal(sim_gpu_return(n, 0, 10 * S, 12 * S), 0);
    n->reinit_after_loss = 0;
    assert_int_equal(sim_gpu_return(n, 0, 0, 12 * S), 0);
    verb(n, 20 * S, "set gpu0.reset_required=1", 0);
    assert_int_equal(sim_gpu_return(n, 0, 20 * S, 21 * S), 16);
    free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_square_wave_changes_at_its_edges_to_the_nanosecond),
        cmocka_unit_test(a_phase_moves_the_wave),
        cmocka_unit_test(integrals_equal_the_sum_of_the_parts),
        cmocka_unit_test(integrals_are_exact_after_a_year),
        cmocka_unit_test(energy_is_the_integral_of_power_cut_to_whole_millijoules),
        cmocka_unit_test(power_over_a_second_is_a_trailing_mean),
        cmocka_unit_test(utilisation_is_the_mean_of_the_last_complete_window_cut_to_whole_percents),
        cmocka_unit_test(a_gauge_that_is_set_changes_then_and_its_past_stays),
        cmocka_unit_test(a_counter_grows_by_rate_and_load_and_can_be_set_back),
        cmocka_unit_test(large_whole_numbers_keep_their_last_digit),
        cmocka_unit_test(absent_and_failing_signals_give_their_code),
        cmocka_unit_test(a_gpu_does_what_its_processes_do_while_they_live),
        cmocka_unit_test(what_has_no_start_was_always_there),
        cmocka_unit_test(memory_adds_up),
        cmocka_unit_test(a_load_that_is_set_reaches_the_integral_from_then_on),
        cmocka_unit_test(an_instance_weighs_its_slices),
        cmocka_unit_test(an_instance_has_its_own_memory),
        cmocka_unit_test(a_loss_sticks_to_those_who_had_the_library_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
