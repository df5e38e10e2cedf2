// SPDX-License-Identifier: Apache-2.0
#include "node_of.h"

#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "session.h"

static const char two_gpus[] =
    DRIVER "gpus:\n" GPU "    mig_capable: 1\n    mig_slots: 7\n    total_slices: 7\n"
           "    signals: {power_mw: 100000, energy_mj: 50 + power, ecc_dbe_volatile: 3,"
           " mig_mode: 0}\n"
           "  - {uuid: GPU-1, bus_id: \"00000000:1C:00.0\"}\n";

static void bad_verbs_are_refused_and_change_nothing(void **state)
{
    static const char *const lines[] = {
        "",
        "dance",
        "set",
        "set gpu0.power_mw",
        "set gpu0.volts=1",
        "set gpu9.power_mw=1",
        "set gpu0.power_mw=",
        "set gpu0.load=2",
        "set process.1.load=1",
        "fault",
        "fault nvmlInit_v2",
        "fault noSuchCall hang",
        "fault nvmlInit_v2 delay=x",
        "fault nvmlInit_v2 hang gpu=2",
        "fault clear noSuchCall",
        "xid gpu=0",
        "xid code=79",
        "xid gpu=0 code=x",
        "pods add",
        "pods end nobody",
        "pods sing",
        "process",
        "process add pid=1",
        "process end pid=1",
        "mig gpu=0",
        "mig gpu=1 layout=1g.10gb",
        "mig gpu=0 layout=1g",
        "reset",
        "reset gpu=5",
        "clock forward",
        "clock freeze=never",
        "clock add=1s",
    };
    struct sim_node *n = node_of(two_gpus);
    uint32_t segments = n->segment_count, events = n->event_count, pods = n->pod_count;
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        struct buf out = BUF_INIT(1 << 20);
        struct error err = ERROR_INIT;
        int rc = sim_command_line(n, 0, sv_from(lines[i]), &out, &err);
        if (rc != -EINVAL || err.text[0] == '\0')
            fail_msg("'%s' gave %d: %s", lines[i], rc, err.text);
        buf_deinit(&out);
        // a refused layout may have switched the mode; nothing else may have changed
        assert_true(n->segment_count <= segments + 2);
    }
    assert_int_equal(n->event_count, events);
    assert_int_equal(n->pod_count, pods);
    free(n);
}

static void faults_fill_their_table_and_used_up_ones_make_room(void **state)
{
    struct sim_node *n = node_of(two_gpus);
    for (unsigned i = 0; i < SIM_MAX_FAULTS; i++)
        verb(n, 0, "fault nvmlDeviceGetPowerUsage return=999 gpu=1 count=2", 0);
    verb(n, 0, "fault * hang", -ENOSPC);
    atomic_store(&n->faults[5].left, 0);
    verb(n, 0, "fault * hang for=2s", 0);
    assert_int_equal(n->faults[5].symbol, SIM_NONE);
    assert_int_equal(n->faults[5].until_ns, 2 * S);
    verb(n, 0, "fault clear nvmlDeviceGetPowerUsage", 0);
    assert_int_equal(atomic_load(&n->faults[0].kind), SIM_FAULT_NONE);
    assert_int_equal(atomic_load(&n->faults[5].kind), SIM_FAULT_HANG);
    verb(n, 0, "fault clear", 0);
    assert_int_equal(atomic_load(&n->faults[5].kind), SIM_FAULT_NONE);
    free(n);
}

static void pods_come_and_go_with_their_processes(void **state)
{
    struct sim_node *n = node_of(two_gpus);
    struct buf out = BUF_INIT(1 << 20);
    verb(
        n, 1 * S,
        "pods add train namespace=ml id=c-1 device=gpu0,gpu1::2 uid=u-1 labels=a:b owner=Job/train",
        0);
    verb(n, 1 * S, "process add device=gpu0 pid=7 memory=10MiB load=0.5 pod=train", 0);
    sim_pods_json(n, 1 * S, false, &out);
    assert_string_equal(
        buf_cstr(&out),
        "{\"pods\":[{\"index\":0,\"first_container\":0,\"name\":\"train\",\"namespace\":\"ml\","
        "\"uid\":\"u-1\",\"config_hash\":\"\",\"phase\":\"Running\",\"start_ns\":1000000000,"
        "\"completed_ns\":9223372036854775807,\"end_ns\":9223372036854775807,\"extra\":{\"labels\":"
        "{\"a\":\"b\"},\"owner\":{\"kind\":"
        "\"Job\",\"name\":\"train\"}},\"containers\":[{\"name\":\"main\",\"id\":\"c-1\",\"init\":0,"
        "\"extra\":{\"claims\":[]},\"devices\":[{\"resource\":\"nvidia.com/gpu\",\"id\":\"GPU-0\","
        "\"numa\":[0]},{\"resource\":\"nvidia.com/gpu\",\"id\":\"GPU-1::2\",\"numa\":[0]}]}]}]}\n");
    assert_int_equal(n->processes[0].container, 0);
    verb(n, 5 * S, "pods end train", 0);
    buf_reset(&out);
    sim_pods_json(n, 5 * S, false, &out);
    assert_string_equal(buf_cstr(&out), "{\"pods\":[]}\n");
    assert_true(sim_process_alive(n, 0, 5 * S - 1));
    assert_false(sim_process_alive(n, 0, 5 * S));
    assert_int_equal(sim_busy_us(n, 0, SIM_NONE, 0, 10 * S), 2000000);
    buf_deinit(&out);
    free(n);
}

static void a_layout_replaces_the_one_before(void **state)
{
    struct sim_node *n = node_of(two_gpus);
    verb(n, 1 * S, "mig gpu=0 layout=3g.40gb,1g.10gb", 0);
    verb(n, 1 * S, "process add device=gpu0/gi1 pid=7", 0);
    verb(n, 2 * S, "mig gpu=0 layout=7g.80gb", 0);
    assert_int_equal(n->instance_count, 3);
    assert_true(sim_instance_alive(n, 0, 2 * S - 1));
    assert_false(sim_instance_alive(n, 0, 2 * S));
    assert_false(sim_process_alive(n, 0, 2 * S));
    assert_int_equal(n->instances[2].gi, 0);
    assert_int_equal(truth(n, SIM_MIG_MODE, 1 * S), 1);
    verb(n, 3 * S, "mig gpu=0 layout=off", 0);
    assert_int_equal(truth(n, SIM_MIG_MODE, 3 * S), 0);
    assert_int_equal(n->events[n->event_count - 1].type, 0x100);
    // the same layout at another time has other UUIDs
    verb(n, 4 * S, "mig gpu=0 layout=7g.80gb", 0);
    assert_string_not_equal(sim_string(n, n->instances[2].uuid),
                            sim_string(n, n->instances[3].uuid));
    free(n);
}

static void a_reset_is_refused_while_a_living_process_has_a_handle(void **state)
{
    struct sim_node *n = node_of(two_gpus);
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    // The node is shared with a child that opens the library and is killed without closing it.
    char path[] = "/tmp/podgpu-sim-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, n, sizeof(*n)), (ssize_t)sizeof(*n));
    struct sim_node *shared = sim_map(path);
    assert_non_null(shared);
    pid_t child = fork();
    if (child == 0) {
        (void)sim_client_open(shared);
        sim_client_attach(shared, 0);
        (void)!write(ready[1], "x", 1);
        (void)pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(sim_client_holding(shared, 0), child);
    verb(shared, 10 * S, "reset gpu=0", -EBUSY);
    verb(shared, 10 * S, "mig gpu=0 layout=1g.10gb", -EBUSY);
    verb(shared, 10 * S, "reset gpu=1", 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(sim_client_holding(shared, 0), 0);
    verb(shared, 10 * S, "reset gpu=0", 0);
    assert_int_equal(truth(shared, SIM_ECC_DBE_VOL, 10 * S), 0);
    assert_int_equal(truth(shared, SIM_ENERGY, 10 * S), 0);
    assert_int_equal(truth(shared, SIM_ENERGY, 11 * S), 100000);
    assert_int_equal(truth(shared, SIM_ENERGY, 10 * S - 1), 50 + 999999);
    sim_unmap(shared);
    (void)close(fd);
    (void)unlink(path);
    free(n);
}

static void a_frozen_clock_moves_only_when_told_and_runs_on_from_there(void **state)
{
    struct sim_node *n = node_of(two_gpus);
    verb(n, 0, "clock freeze=90s", 0);
    assert_int_equal(sim_now(n), 90 * S);
    verb(n, 0, "clock add=1500ms", 0);
    assert_int_equal(sim_now(n), 91 * S + 500 * MS);
    n->rate_ppm = 2000000;
    verb(n, 0, "clock run", 0);
    int64_t now = sim_now(n);
    assert_true(now >= 91 * S + 500 * MS && now < 120 * S);
    assert_int_equal(sim_wall_us(n, 10 * S) - sim_wall_us(n, 0),
                     5000000); // half as long in real time
    free(n);
}

static void counts_are_told_and_reset(void **state)
{
    struct sim_node *n = node_of(two_gpus);
    struct buf out = BUF_INIT(1 << 20);
    struct sv line = SV("counts");
    uint32_t symbol = sim_symbol_find(n, "nvmlDeviceGetPowerUsage");
    sim_count_begin(n, symbol);
    sim_count_end(n, symbol, 1500);
    sim_count_begin(n, symbol); // still under way
    assert_int_equal(sim_command(n, 0, 1, &line, &out, NULL), 0);
    assert_string_equal(buf_cstr(&out), "nvmlDeviceGetPowerUsage 2 1500\n");
    verb(n, 0, "counts reset", 0);
    buf_reset(&out);
    assert_int_equal(sim_command(n, 0, 1, &line, &out, NULL), 0);
    assert_string_equal(buf_cstr(&out), "");
    buf_deinit(&out);
    free(n);
}

static void only_a_whole_file_of_this_layout_is_a_node(void **state)
{
    struct sim_node *n = node_of(two_gpus);
    char path[] = "/tmp/podgpu-sim-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, n, sizeof(*n) - 1), (ssize_t)sizeof(*n) - 1);
    assert_null(sim_map(path));
    n->layout++;
    assert_int_equal(pwrite(fd, n, sizeof(*n), 0), (ssize_t)sizeof(*n));
    assert_null(sim_map(path));
    assert_int_equal(errno, EINVAL);
    assert_null(sim_session_open("/nonexistent/node"));
    assert_int_equal(errno, ENOENT);
    (void)close(fd);
    (void)unlink(path);
    free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_verbs_are_refused_and_change_nothing),
        cmocka_unit_test(faults_fill_their_table_and_used_up_ones_make_room),
        cmocka_unit_test(pods_come_and_go_with_their_processes),
        cmocka_unit_test(a_layout_replaces_the_one_before),
        cmocka_unit_test(a_reset_is_refused_while_a_living_process_has_a_handle),
        cmocka_unit_test(a_frozen_clock_moves_only_when_told_and_runs_on_from_there),
        cmocka_unit_test(counts_are_told_and_reset),
        cmocka_unit_test(only_a_whole_file_of_this_layout_is_a_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
