// SPDX-License-Identifier: Apache-2.0
#include "node_of.h"

#include <errno.h>
#include <stdio.h>

#include "base/file.h"
#include "base/limits.h"

static const char *const shipped[] = {
    "bad-text",        "demo",     "h100x8",     "hang",     "kubelet-big", "kubelet-limited",
    "kubelet-restart", "lost",     "mig",        "mps",      "old-driver",  "post",
    "timeslice",       "dra",      "job-7s",     "mig-a100", "mig-gpm",     "mps-hidden",
    "node-110",        "shared-8", "undeclared", "wave",
};

static int compile_file(const char *name, struct sim_node *n, struct error *err)
{
    char path[512];
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    (void)snprintf(path, sizeof(path), "%s/%s.yaml", SCENARIOS, name);
    int rc = file_read(path, &text, err);
    if (rc == 0)
        rc = sim_compile(n, buf_sv(&text), path, err);
    buf_deinit(&text);
    return rc;
}

static void every_shipped_scenario_compiles(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(shipped); i++) {
        struct sim_node *n = calloc(1, sizeof(*n));
        struct error err = ERROR_INIT;
        char why[1024];
        assert_non_null(n);
        if (compile_file(shipped[i], n, &err) != 0)
            fail_msg("%s", error_text(&err, why, sizeof(why)));
        assert_true(n->gpu_count >= 1 && n->pod_count >= 1);
        free(n);
    }
}

static void the_posts_values_stand_still(void **state)
{
    struct sim_node *n = calloc(1, sizeof(*n));
    assert_non_null(n);
    assert_int_equal(compile_file("post", n, NULL), 0);
    for (int64_t t = 0; t < 3600 * S; t += 599 * S) {
        assert_int_equal(truth(n, SIM_SM_CLOCK, t), 1455);
        assert_int_equal(truth(n, SIM_MEM_CLOCK, t), 6250);
        assert_int_equal(truth(n, SIM_POWER, t), 299437);
        assert_int_equal(truth(n, SIM_ENERGY, t), 15782796862);
        assert_int_equal(truth(n, SIM_GPU_UTIL, t), 100);
        assert_int_equal(truth(n, SIM_MEM_UTIL, t), 38);
        struct sim_memory m;
        assert_int_equal(sim_gpu_memory(n, 0, t, &m), 0);
        assert_int_equal((m.used + m.reserved) >> 20, 20501);
        assert_int_equal(m.free >> 20, 2230);
    }
    free(n);
}

// A bad scenario, where its error stands and a piece of what it says.
struct bad {
    const char *text;
    unsigned line;
    const char *says;
};

static const struct bad bad[] = {
    {"", 1, "driver"},
    {"driver: {version: x}\n", 1, "driver version"},
    {"driver: {verzion: 550.1}\n", 1, "driver"},
    {DRIVER "gpuz: []\n", 2, "gpuz"},
    {DRIVER "gpus:\n  - {uuid: GPU-0}\n", 3, "bus_id"},
    {DRIVER "gpus:\n  - {uuid: GPU-0, bus_id: \"0:zz:0\"}\n", 3, "bus_id"},
    {DRIVER "gpus:\n" GPU "    modell: a\n", 5, "no such key"},
    {DRIVER "gpus:\n" GPU "    model: nix\n", 5, "no such model"},
    {DRIVER "gpus:\n" GPU "    signals: {watts: 1}\n", 5, "no such signal"},
    {DRIVER "gpus:\n" GPU "    signals: {power_mw: 10 watts}\n", 5, "expected a number"},
    {DRIVER "gpus:\n" GPU "    signals: {power_mw: 5/s}\n", 5, "only counters"},
    {DRIVER "gpus:\n" GPU "    signals: {energy_mj: 5*load}\n", 5, "ends in /s"},
    {DRIVER "gpus:\n" GPU "    signals: {temperature_c: [{at: 0s}]}\n", 5, "is: VALUE"},
    {DRIVER "gpus:\n" GPU "    load: 1.5\n", 5, "from 0 to 1"},
    {DRIVER "gpus:\n" GPU "    load: \"square:on=1s\"\n", 5, "on and off"},
    {DRIVER "gpus:\n" GPU "    load: \"bursts:every=100ms,width=50ms,pulses=3\"\n", 5, "don't fit"},
    {DRIVER "gpus:\n" GPU "    load: \"saw:on=1s\"\n", 5, "from 0 to 1"},
    {DRIVER "gpus:\n" GPU "    utilization_window: 10us\n", 5, "too short"},
    {DRIVER "gpus:\n" GPU "    mig: 1g.10gb\n", 5, "no MIG"},
    {DRIVER "gpus:\n" GPU
            "    mig_capable: 1\n    mig_slots: 7\n    total_slices: 7\n    mig: 9g.90gb\n",
     8, "MIG profile"},
    {DRIVER
     "gpus:\n" GPU
     "    mig_capable: 1\n    mig_slots: 7\n    total_slices: 7\n    mig: \"7g.80gb,2g.20gb\"\n",
     8, "doesn't fit"},
    {DRIVER "gpus:\n" GPU
            "    mig_capable: 1\n    mig_slots: 7\n    total_slices: 7\n    mig: \"1g.10gb:2c\"\n",
     8, "more compute slices"},
    {DRIVER "gpus:\n" GPU "processes: [{device: gpu1, pid: 1}]\n", 5, "no GPU"},
    {DRIVER "gpus:\n" GPU "processes: [{device: gpu0/gi1, pid: 1}]\n", 5, "no GPU instance"},
    {DRIVER "gpus:\n" GPU "processes: [{device: gpu0}]\n", 5, "a pid"},
    {DRIVER "gpus:\n" GPU "processes: [{device: gpu0, pid: 1, type: cuda}]\n", 5,
     "expected compute"},
    {DRIVER "pods: [{namespace: a}]\n", 2, "a pod has a name"},
    {DRIVER "pods: [{name: a, start: soon}]\n", 2, "expected a time"},
    {DRIVER "pods: [{name: a, containers: [{devices: []}]}]\n", 2, "a container has a name"},
    {DRIVER "kubelet: {up: 1}\n", 2, "no such signal"},
    {DRIVER "script: [{at: 1s, do: dance}]\n", 2, "unknown verb"},
    {DRIVER "script: [{at: 1s}]\n", 2, "do: VERB"},
    {DRIVER "models: not-there.yaml\n", 2, "not-there.yaml"},
    {DRIVER "gpus:\n" GPU
            "processes: [{device: gpu0, pid: 1, load: 0.6}, {device: gpu0, pid: 2, load: 0.6}]\n",
     0, "add up to 1.2"},
};

static void a_bad_scenario_is_refused_with_its_place(void **state)
{
    struct sim_node *n = calloc(1, sizeof(*n));
    assert_non_null(n);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct error err = ERROR_INIT;
        memset(n, 0, sizeof(*n));
        int rc = sim_compile(n, sv_from(bad[i].text), "test.yaml", &err);
        if (rc >= 0 || err.line != bad[i].line || !strstr(err.text, bad[i].says))
            fail_msg("case %zu: %d, line %u: %s", i, rc, err.line, err.text);
    }
    free(n);
}

static void a_scenario_cut_anywhere_is_compiled_or_refused(void **state)
{
    char path[512];
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    struct sim_node *n = calloc(1, sizeof(*n));
    assert_non_null(n);
    (void)snprintf(path, sizeof(path), "%s/timeslice.yaml", SCENARIOS);
    assert_int_equal(file_read(path, &text, NULL), 0);
    for (size_t len = 0; len < text.len; len += 7) {
        memset(n, 0, sizeof(*n));
        int rc = sim_compile(n, (struct sv){text.data, len}, path, NULL);
        assert_true(rc == 0 || rc == -EINVAL || rc == -ENOENT); // no such models file
    }
    buf_deinit(&text);
    free(n);
}

static void the_tables_hold_what_they_say_and_no_more(void **state)
{
    struct buf text = BUF_INIT(1 << 20);
    struct sim_node *n = calloc(1, sizeof(*n));
    assert_non_null(n);
    for (unsigned gpus = SIM_MAX_GPUS; gpus <= SIM_MAX_GPUS + 1; gpus++) {
        buf_reset(&text);
        buf_add_str(&text, DRIVER "gpus:\n");
        for (unsigned i = 0; i < gpus; i++)
            buf_add_fmt(&text, "  - {uuid: GPU-%u, bus_id: \"00000000:%02X:00.0\"}\n", i, i + 1);
        memset(n, 0, sizeof(*n));
        assert_int_equal(sim_compile(n, buf_sv(&text), "test.yaml", NULL),
                         gpus > SIM_MAX_GPUS ? -EINVAL : 0);
    }
    memset(n, 0, sizeof(*n));
    assert_int_equal(sim_compile(n, sv_from(DRIVER "gpus:\n" GPU), "test.yaml", NULL), 0);
    for (unsigned i = n->process_count; i < SIM_MAX_PROCESSES; i++)
        verb(n, 0, "process add device=gpu0 pid=5", 0);
    verb(n, 0, "process add device=gpu0 pid=5", -ENOSPC);
    for (unsigned i = n->event_count; i < SIM_MAX_EVENTS; i++)
        verb(n, 0, "xid gpu=0 code=31", 0);
    verb(n, 0, "xid gpu=0 code=31", -ENOSPC);
    buf_deinit(&text);
    free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shipped_scenario_compiles),
        cmocka_unit_test(the_posts_values_stand_still),
        cmocka_unit_test(a_bad_scenario_is_refused_with_its_place),
        cmocka_unit_test(a_scenario_cut_anywhere_is_compiled_or_refused),
        cmocka_unit_test(the_tables_hold_what_they_say_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
