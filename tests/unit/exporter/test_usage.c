// SPDX-License-Identifier: Apache-2.0
// What the ledger is told. A process line reads "container=MiB", "!" marks one that is not the
// holder's, "-" nobody who is known.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../allocation_sweep.h"
#include "usage_fixture.h"

#define HEX "0123456789abcdef"
#define ID_INIT HEX HEX HEX "0000000000000000"
#define ID_MAIN HEX HEX HEX "1111111111111111"
#define ID_SIDE HEX HEX HEX "2222222222222222"

static uint64_t look_ns; // of the next usage

static int set_up_with(bool pids)
{
    told.len = 0;
    told.error = 0;
    container_count = 0;
    fake_process_count = 0;
    inventory_init(&nvml);
    inventory_init(&dcgm);
    device_view_init(&view);
    struct frame_entity cut = gpu(2, "GPU-2", "00000000:03:00.0");
    sv_copy(cut.name, sizeof(cut.name), SV("NVIDIA A100-SXM4-40GB"));
    cut.mig_enabled = 1;
    cut.total_slices = 7;
    struct frame_entity small = instance(2, 2, 7, "MIG-1", "3g.20gb");
    small.slices = 3;
    LIST(&nvml, 1, gpu(0, "GPU-0", "00000000:01:00.0"), gpu(1, "GPU-1", "00000000:02:00.0"), cut,
         small);
    LIST(&dcgm, 5, gpu(0, "GPU-0", "00000000:01:00.0"), gpu(1, "GPU-1", "00000000:02:00.0"), cut,
         small);
    assert_int_equal(device_view_refresh(&view, &nvml, &dcgm), 0);
    assert_int_equal(pod_metadata_new(&options, &metadata), 0);
    const struct usage_config config = {
        .metadata = metadata,
        .find = pids ? find_process : NULL,
        .look_ns = look_ns,
        .own_namespace = "ns",
        .own_pod = "podgpu",
    };
    assert_int_equal(usage_new(&config, &usage), 0);
    return usage_set_devices(usage, &view, T0);
}

static int set_up(void **state)
{
    (void)state;
    return set_up_with(true);
}

static int set_up_with_few_looks(void **state)
{
    (void)state;
    look_ns = 5 * NS_PER_S;
    int r = set_up_with(true);
    look_ns = 0;
    return r;
}

static int set_up_without_pids(void **state)
{
    (void)state;
    return set_up_with(false);
}

static int tear_down(void **state)
{
    (void)state;
    usage_free(usage);
    pod_metadata_free(metadata);
    device_view_deinit(&view);
    inventory_deinit(&nvml);
    inventory_deinit(&dcgm);
    buf_deinit(&told);
    return 0;
}

// --- Devices and what is measured ---

static void devices_are_boards_and_instances_with_their_slices(void **state)
{
    (void)state;
    TOLD("device", "device 0 GPU-0 board=0 0/0\ndevice 1 GPU-1 board=1 0/0\n"
                   "device 2 GPU-2 board=2 cut 0/0\ndevice 3 MIG-1 board=2 3/7");
}

static void spans_energy_and_memory_reach_the_ledger_as_they_are(void **state)
{
    (void)state;
    frame_start(1000);
    on(0, ALL);
    made.spans[0] = (struct frame_usage_span){T0, T0 + 500 * NS_PER_MS, 250000, 0};
    made.spans[1] =
        (struct frame_usage_span){T0 + 500 * NS_PER_MS, T0 + 800 * NS_PER_MS, 1000000, 1};
    made.devices[0].spans = made.head.spans = 2;
    on(2, FRAME_USAGE_ENERGY | FRAME_USAGE_GAP);
    on(3, NO_BUSY);
    take();
    TOLD("busy", "busy 0 0-500 250000\nbusy 0 500-800 1000000 filled");
    TOLD("energy", "energy 0 1000 5000\nenergy 2 1000 5000");
    TOLD("memory", "memory 0 900/1000\nmemory 3 900/1000");
    TOLD("reach", "reach 0 busy=800 shares=900\nreach 2\nreach 3");
    TOLD("gap", "gap 2 1000");
}

static void a_frame_of_another_list_is_left_alone(void **state)
{
    (void)state;
    frame_start(1000);
    on(0, ALL);
    made.head.generation = 2;
    take();
    TOLD("", "");
    assert_int_equal(stats().frames, 0);
}

// --- Who runs ---

static void shared_gpus_are_split_by_process(void **state)
{
    (void)state;
    name_pod("a", UID_A, "Running");
    name_pod("b", UID_B, "Running");
    OWNERS(HOLD(0, "a", "main", "GPU-0::0"), HOLD(0, "a", "main", "GPU-0::1"),
           HOLD(0, "b", "main", "GPU-0::2"));
    pod_process(10, UID_A, ID_MAIN);
    pod_process(11, UID_A, ID_MAIN);
    pod_process(20, UID_B, ID_MAIN);
    frame_start(1000);
    on(0, ALL);
    runs(20, FRAME_USAGE_COMPUTE, 300);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    runs(11, FRAME_USAGE_GRAPHICS, 50);
    does(10, 30);
    does(20, 60);
    take();
    TOLD("processes", "processes 0 ns/a/main=100 ns/a/main=50 ns/b/main=300 +busy +memory");
    TOLD("share", "share 0 ns/a/main 900-1000 300000\nshare 0 ns/b/main 900-1000 600000");
    assert_int_equal(stats().processes, 3);
    assert_int_equal(stats().disagreements, 0);
    assert_int_equal(stats().undeclared, 0);
}

static void holders_are_told_with_their_replicas_and_once(void **state)
{
    (void)state;
    const struct hold list[] = {HOLD(0, "a", "main", "GPU-0::0"), HOLD(0, "a", "main", "GPU-0::1"),
                                HOLD(0, "b", "main", "GPU-0::2"), HOLD(3, "c", "main", "MIG-1")};
    const uint32_t offered[] = {4, 1, 1, 1};
    assert_int_equal(try_hold(list, 4, offered), 0);
    TOLD("holders 0", "holders 0 ns/a/main*2 ns/b/main*1 of 4");
    TOLD("holders 3", "holders 3 ns/c/main*1 of 1");
    told.len = 0;
    assert_int_equal(try_hold(list, 4, offered), 0);
    TOLD("holders", "");
}

static void whom_the_ledger_has_no_room_for_holds_without_a_name_and_stops_nothing(void **state)
{
    (void)state;
    name_pod("b", UID_B, "Running");
    name_pod("c", UID_C, "Running");
    OWNERS(HOLD(0, "a", "main", "GPU-0::0"));
    ledger_is_full = true;
    const struct hold list[] = {HOLD(0, "a", "main", "GPU-0::0"), HOLD(0, "b", "main", "GPU-0::1"),
                                HOLD(0, "c", "main", "GPU-0::2"), HOLD(1, "b", "main", "GPU-1")};
    const uint32_t offered[] = {4, 1, 1, 1};
    told.len = 0;
    assert_int_equal(try_hold(list, ARRAY_SIZE(list), offered), 0);
    TOLD("holders 0", "holders 0 ns/a/main*1 -*1 -*1 of 4");
    TOLD("holders 1", "holders 1 -*1 of 1");
    pod_process(20, UID_B, ID_MAIN);
    frame_start(1000);
    on(0, ALL);
    runs(20, FRAME_USAGE_COMPUTE, 300);
    does(20, 60);
    take();
    ledger_is_full = false;
    TOLD("processes", "processes 0 -!=300 +busy +memory");
    TOLD("share", "share 0 - 900-1000 600000");
    told.len = 0;
    take(); // there is room again
    TOLD("holders 0", "holders 0 ns/a/main*1 ns/b/main*1 ns/c/main*1 of 4");
}

static void trap_2_a_new_holder_is_another_container_from_the_time_it_was_seen(void **state)
{
    (void)state;
    OWNERS(HOLD(0, "a", "main", "GPU-0"));
    told.len = 0;
    OWNERS(HOLD(0, "b", "main", "GPU-0"));
    TOLD("holders", "holders 0 ns/b/main*1 of 0");
    assert_int_equal(container_count, 2);
}

static void trap_3_a_pod_made_anew_under_its_name_is_another_container(void **state)
{
    (void)state;
    name_pod("a", UID_A, "Running");
    OWNERS(HOLD(0, "a", "main", "GPU-0"));
    assert_int_equal(container_count, 1);
    told.len = 0;
    name_pod("a", UID_B, "Running");
    frame_start(1000);
    on(0, ALL);
    take();
    TOLD("holders", "holders 0 ns/a/main*1 of 0");
    assert_int_equal(container_count, 2);
}

static void trap_4_an_init_container_that_uses_the_gpu_has_its_own_name(void **state)
{
    (void)state;
    struct pod_record_container list[] = {{SV("prepare"), SV(ID_INIT), true},
                                          {SV("main"), {NULL, 0}, false}};
    name_containers("a", UID_A, list, ARRAY_SIZE(list));
    OWNERS(HOLD(0, "a", "main", "GPU-0"));
    pod_process(10, UID_A, ID_INIT);
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    does(10, 40);
    take();
    TOLD("processes", "processes 0 ns/a/prepare!=100 +busy +memory");
    TOLD("share", "share 0 ns/a/prepare 900-1000 400000");
}

static void trap_5_a_sidecar_with_a_gpu_is_a_container_like_any_other(void **state)
{
    (void)state;
    struct pod_record_container list[] = {{SV("proxy"), SV(ID_SIDE), true},
                                          {SV("main"), SV(ID_MAIN), false}};
    name_containers("a", UID_A, list, ARRAY_SIZE(list));
    OWNERS(HOLD(0, "a", "proxy", "GPU-0"), HOLD(1, "a", "main", "GPU-1"));
    pod_process(10, UID_A, ID_SIDE);
    pod_process(11, UID_A, ID_MAIN);
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    on(1, ALL);
    runs(11, FRAME_USAGE_COMPUTE, 200);
    take();
    TOLD("processes", "processes 0 ns/a/proxy=100 +busy +memory\n"
                      "processes 1 ns/a/main=200 +busy +memory");
}

static void trap_6_and_7_a_pod_that_has_ended_holds_nothing(void **state)
{
    (void)state;
    name_pod("done", UID_A, "Succeeded");
    name_pod("next", UID_B, "Running");
    OWNERS(HOLD(0, "done", "main", "GPU-0"), HOLD(0, "next", "main", "GPU-0"),
           HOLD(1, "next", "main", "GPU-1"));
    TOLD("holders", "holders 0 ns/next/main*1 of 0\nholders 1 ns/next/main*1 of 0\n"
                    "holders 3 of 0");
    name_pod("next", UID_B, "Failed"); // between two lists
    frame_start(1000);
    on(0, ALL);
    take();
    TOLD("holders", "holders 0 of 0\nholders 1 of 0");
}

static void trap_8_two_containers_of_a_pod_on_one_device_are_told_apart_by_their_pids(void **state)
{
    (void)state;
    struct pod_record_container list[] = {{SV("one"), SV(ID_MAIN), false},
                                          {SV("two"), SV(ID_SIDE), false}};
    name_containers("a", UID_A, list, ARRAY_SIZE(list));
    OWNERS(HOLD(0, "a", "one", "GPU-0"), HOLD(0, "a", "two", "GPU-0"));
    TOLD("holders 0", "holders 0 ns/a/one*1 ns/a/two*1 of 0");
    pod_process(10, UID_A, ID_MAIN);
    pod_process(11, UID_A, ID_SIDE);
    pod_process(12, UID_A, ""); // of the pod, of which nobody knows
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 1);
    runs(11, FRAME_USAGE_COMPUTE, 2);
    runs(12, FRAME_USAGE_COMPUTE, 3);
    take();
    TOLD("processes", "processes 0 ns/a/one=1 ns/a/two=2 ns/a/!=3 +busy +memory");
}

static void trap_8_without_pids_the_pod_is_the_sole_holder(void **state)
{
    (void)state;
    OWNERS(HOLD(0, "a", "one", "GPU-0"), HOLD(0, "a", "two", "GPU-0"), HOLD(1, "a", "one", "GPU-1"),
           HOLD(1, "b", "two", "GPU-1"));
    TOLD("holders 0", "holders 0 ns/a/*2 of 0");
    TOLD("holders 1", "holders 1 ns/a/one*1 ns/b/two*1 of 0");
}

static void trap_11_a_static_pod_is_known_by_its_hash(void **state)
{
    (void)state;
#define HASH "8f1d2c3b4a5968778695a4b3c2d1e0f9"
    const struct pod_record r = {
        .namespace_name = SV("ns"),
        .name = SV("static-node1"),
        .uid = SV(UID_A),
        .config_hash = SV(HASH),
        .phase = SV("Running"),
    };
    assert_int_equal(pod_metadata_put(metadata, POD_METADATA_API_SERVER, &r), 0);
    OWNERS(HOLD(0, "static-node1", "main", "GPU-0"));
    pod_process(10, HASH, ID_MAIN);
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    take();
    TOLD("processes", "processes 0 ns/static-node1/main=100 +busy +memory");
    assert_int_equal(container_count, 1);
}

static void trap_24_a_force_deleted_pod_that_runs_on_is_nobodys_and_no_holder(void **state)
{
    (void)state;
    name_pod("a", UID_A, "Running");
    OWNERS(HOLD(0, "a", "main", "GPU-0"));
    pod_process(10, UID_A, ID_MAIN);
    pod_metadata_delete(metadata, POD_METADATA_KUBELET, SV("ns/a"));
    pod_metadata_prune(metadata, NULL);
    assert_int_equal(usage_set_owners(usage, &view, NULL, NULL, NULL, T0), 0);
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    does(10, 40);
    take();
    TOLD("processes", "processes 0 -!=100 +busy +memory");
    TOLD("share", "share 0 - 900-1000 400000");
    assert_int_equal(stats().unnamed_pods, 1);
}

static void trap_25_our_own_pod_neither_holds_nor_runs(void **state)
{
    (void)state;
    name_pod("podgpu", UID_M, "Running");
    name_pod("a", UID_A, "Running");
    OWNERS(HOLD(0, "podgpu", "exporter", "GPU-0"), HOLD(0, "a", "main", "GPU-0"));
    TOLD("holders 0", "holders 0 ns/a/main*1 of 0");
    pod_process(10, UID_A, ID_MAIN);
    pod_process(20, UID_M, ID_MAIN); // by its name
    pod_process(21, "", "");
    process(21)->own_pod = true; // by its cgroup
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    runs(20, FRAME_USAGE_COMPUTE, 10);
    runs(21, FRAME_USAGE_COMPUTE, 10);
    does(20, 50);
    take();
    TOLD("processes", "processes 0 ns/a/main=100 +busy +memory");
    TOLD("share", "share 0 - 900-1000 500000");
    assert_int_equal(stats().processes, 1);
    assert_int_equal(stats().disagreements, 0);
}

static void trap_26_a_pod_that_runs_without_asking_has_an_account(void **state)
{
    (void)state;
    name_pod("a", UID_A, "Running");
    name_pod("rogue", UID_B, "Running");
    OWNERS(HOLD(0, "a", "main", "GPU-0"));
    pod_process(10, UID_A, ID_MAIN);
    pod_process(20, UID_B, ID_MAIN);
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    runs(20, FRAME_USAGE_COMPUTE, 200);
    does(20, 50);
    on(1, ALL); // nobody's
    runs(20, FRAME_USAGE_COMPUTE, 300);
    take();
    TOLD("processes", "processes 0 ns/a/main=100 ns/rogue/!=200 +busy +memory\n"
                      "processes 1 ns/rogue/!=300 +busy +memory");
    TOLD("share", "share 0 ns/rogue/ 900-1000 500000");
    assert_int_equal(stats().undeclared, 1);
    assert_int_equal(stats().disagreements, 1);
}

static void trap_27_a_share_of_a_pid_that_changed_hands_is_nobodys(void **state)
{
    (void)state;
    name_pod("a", UID_A, "Running");
    name_pod("b", UID_B, "Running");
    OWNERS(HOLD(0, "a", "main", "GPU-0::0"), HOLD(0, "b", "main", "GPU-0::1"));
    pod_process(10, UID_A, ID_MAIN);
    for (unsigned n = 1; n <= 3; n++) {
        if (n == 2) {
            pod_process(10, UID_B, ID_MAIN);
            process(10)->start_ticks = 777;
        }
        frame_start(n * 1000);
        on(0, ALL);
        runs(10, FRAME_USAGE_COMPUTE, 100);
        does(10, 50);
        take();
        TOLD("share", n == 1   ? "share 0 ns/a/main 900-1000 500000"
                      : n == 2 ? "share 0 - 1900-2000 500000"
                               : "share 0 ns/b/main 2900-3000 500000");
    }
}

// Pid 10 is listed all the time, 20 in the frames 1, 3 and 4, 30 has shares alone, 40 is gone.
static void a_process_that_stays_listed_is_looked_at_now_and_then(void **state)
{
    (void)state;
    static const unsigned expected[] = {4, 3, 3, 2, 2, 3, 2}; // of each frame
    name_pod("a", UID_A, "Running");
    OWNERS(HOLD(0, "a", "main", "GPU-0::0"));
    pod_process(10, UID_A, ID_MAIN);
    pod_process(20, UID_A, ID_MAIN);
    pod_process(30, UID_A, ID_MAIN);
    for (unsigned n = 1; n <= ARRAY_SIZE(expected); n++) {
        looks = 0;
        frame_start(n * 1000);
        on(0, ALL);
        runs(10, FRAME_USAGE_COMPUTE, 100);
        if (n != 2 && n < 7)
            runs(20, FRAME_USAGE_COMPUTE, 100);
        runs(40, FRAME_USAGE_COMPUTE, 100);
        does(10, 50);
        if (n == 2)
            does(20, 10);
        does(30, 20);
        take();
        assert_int_equal(looks, expected[n - 1]);
        if (n == 2)
            TOLD("share", "share 0 ns/a/main 1900-2000 500000\n"
                          "share 0 ns/a/main 1900-2000 100000\n"
                          "share 0 ns/a/main 1900-2000 200000");
    }
}

static void trap_28_one_that_ended_has_its_late_shares_and_no_memory(void **state)
{
    (void)state;
    name_pod("a", UID_A, "Running");
    name_pod("b", UID_B, "Running");
    OWNERS(HOLD(0, "a", "main", "GPU-0::0"), HOLD(0, "b", "main", "GPU-0::1"));
    pod_process(10, UID_A, ID_MAIN); // known still, listed no more
    pod_process(20, UID_B, ID_MAIN);
    frame_start(1000);
    on(0, ALL);
    runs(20, FRAME_USAGE_COMPUTE, 100);
    runs(30, FRAME_USAGE_COMPUTE, 700); // gone before it was looked at
    does(10, 50);
    does(30, 20);
    take();
    TOLD("processes", "processes 0 ns/b/main=100 -=700 +busy +memory");
    TOLD("share", "share 0 ns/a/main 900-1000 500000\nshare 0 - 900-1000 200000");
}

static void trap_39_a_vmm_at_the_pods_level_is_the_sole_containers(void **state)
{
    (void)state;
    struct pod_record_container list[] = {{SV("main"), SV(ID_MAIN), false}};
    name_containers("a", UID_A, list, ARRAY_SIZE(list));
    OWNERS(HOLD(0, "a", "main", "GPU-0"));
    pod_process(10, UID_A, "");
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    take();
    TOLD("processes", "processes 0 ns/a/main=100 +busy +memory");
}

static void a_host_process_is_a_stranger_to_the_sole_holder(void **state)
{
    (void)state;
    name_pod("a", UID_A, "Running");
    OWNERS(HOLD(0, "a", "main", "GPU-0"));
    pod_process(10, UID_A, ID_MAIN);
    process(11)->kind = PROCESS_HOST;
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    runs(11, FRAME_USAGE_GRAPHICS, 5);
    take();
    TOLD("processes", "processes 0 ns/a/main=100 -!=5 +busy +memory");
    assert_int_equal(stats().host_processes, 1);
    assert_int_equal(stats().disagreements, 0);
}

static void what_procfs_hides_is_no_evidence(void **state)
{
    (void)state;
    OWNERS(HOLD(0, "a", "main", "GPU-0"));
    process(10)->kind = PROCESS_UNREADABLE;
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    does(10, 50);
    take();
    TOLD("processes", "processes 0 -=100");
    TOLD("share", "");
}

static void memory_that_the_driver_does_not_tell_is_no_evidence(void **state)
{
    (void)state;
    name_pod("a", UID_A, "Running");
    OWNERS(HOLD(0, "a", "main", "GPU-0::0"), HOLD(0, "b", "main", "GPU-0::1"));
    pod_process(10, UID_A, ID_MAIN);
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, UNKNOWN);
    take();
    TOLD("processes", "processes 0 ns/a/main +busy");
}

static void without_pids_nobody_is_known_to_run(void **state)
{
    (void)state;
    OWNERS(HOLD(0, "a", "main", "GPU-0::0"), HOLD(0, "b", "main", "GPU-0::1"));
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    does(10, 50);
    take();
    TOLD("processes", "processes 0 unknown");
    TOLD("share", "");
    TOLD("reach", "reach 0 busy=800");
}

static void without_the_drivers_lists_nobody_is_known_to_run(void **state)
{
    (void)state;
    frame_start(1000);
    on(0, FRAME_USAGE_BUSY | FRAME_USAGE_SHARES);
    take();
    TOLD("processes", "processes 0 unknown");
}

// --- Elimination ---

static void a_uid_that_nobody_knows_is_the_one_holder_without_a_uid(void **state)
{
    (void)state;
    OWNERS(HOLD(0, "a", "main", "GPU-0"));
    pod_process(10, UID_A, ID_MAIN);
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    does(10, 50);
    take();
    TOLD("processes", "processes 0 ns/a/main=100 +busy +memory");
    TOLD("share", "share 0 ns/a/main 900-1000 500000");
    assert_string_equal(containers[0].pod_uid, UID_A);
    assert_int_equal(stats().unnamed_pods, 0);
}

// Each row: who runs on GPU 0 and 1, which hold "a" and "b" as said; what the processes become.
static void elimination_breaks_where_more_than_one_is_possible(void **state)
{
    (void)state;
    OWNERS(HOLD(0, "a", "main", "GPU-0::0"), HOLD(0, "b", "main", "GPU-0::1"));
    pod_process(10, UID_A, ID_MAIN);
    pod_process(20, UID_B, ID_MAIN);
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 1); // either holder's
    take();
    TOLD("processes", "processes 0 -=1 +busy +memory");
    OWNERS(HOLD(0, "a", "main", "GPU-0"));
    frame_start(2000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 1); // one of the two is the holder's
    runs(20, FRAME_USAGE_COMPUTE, 2);
    take();
    TOLD("processes", "processes 0 -!=1 -!=2 +busy +memory");
    assert_int_equal(stats().unnamed_pods, 2);
    frame_start(3000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 1); // runs on what "a" does not hold, too
    on(1, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 1);
    take();
    TOLD("processes", "processes 0 -=1 +busy +memory\nprocesses 1 -!=1 +busy +memory");
}

static void one_name_leads_to_the_next(void **state)
{
    (void)state;
    OWNERS(HOLD(0, "a", "main", "GPU-0::0"), HOLD(0, "b", "main", "GPU-0::1"),
           HOLD(1, "a", "main", "GPU-1"));
    pod_process(10, UID_A, ID_MAIN);
    pod_process(20, UID_B, ID_MAIN);
    for (unsigned n = 1; n <= 2; n++) {
        frame_start(n * 1000);
        on(0, ALL);
        runs(10, FRAME_USAGE_COMPUTE, 1);
        runs(20, FRAME_USAGE_COMPUTE, 2);
        on(1, ALL);
        runs(10, FRAME_USAGE_COMPUTE, 3); // here "a" stands alone
        take();
    }
    TOLD("processes", "processes 0 ns/a/main=1 ns/b/main=2 +busy +memory\n"
                      "processes 1 ns/a/main=3 +busy +memory");
}

static void a_name_stands_while_its_pod_is_listed_and_no_longer(void **state)
{
    (void)state;
    OWNERS(HOLD(0, "a", "main", "GPU-0"));
    pod_process(10, UID_A, ID_MAIN);
    pod_process(20, UID_B, ID_MAIN);
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 1);
    take();
    frame_start(30000); // idle, and a stranger comes
    on(0, ALL);
    runs(20, FRAME_USAGE_COMPUTE, 2);
    take();
    TOLD("processes", "processes 0 -!=2 +busy +memory");
    frame_start(31000); // it is back
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 1);
    take();
    TOLD("processes", "processes 0 ns/a/main=1 +busy +memory");
    OWNERS({0, "ns", "a", "main", "GPU-0", 2}); // gone, and one of that name came
    frame_start(32000);
    on(0, ALL);
    runs(20, FRAME_USAGE_COMPUTE, 2);
    take();
    TOLD("processes", "processes 0 ns/a/main=2 +busy +memory");
    assert_int_equal(container_count, 2);
}

static void trap_3_without_metadata_a_uid_that_ran_no_more_for_a_minute_gives_way(void **state)
{
    (void)state;
    OWNERS(HOLD(0, "a", "main", "GPU-0"));
    pod_process(10, UID_A, ID_MAIN);
    pod_process(20, UID_B, ID_MAIN);
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 1);
    take();
    static const uint64_t times[] = {60999, 61000, 62000};
    for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
        frame_start(times[i]);
        on(0, ALL);
        runs(20, FRAME_USAGE_COMPUTE, 2);
        take();
        TOLD("processes",
             i == 0 ? "processes 0 -!=2 +busy +memory" : "processes 0 ns/a/main=2 +busy +memory");
    }
}

static void metadata_overrules_a_guess_and_is_waited_for(void **state)
{
    (void)state;
    name_pod("other", UID_M, "Running"); // a source is at work
    OWNERS(HOLD(0, "a", "main", "GPU-0"));
    pod_process(10, UID_B, ID_MAIN);
    for (unsigned n = 1; n <= 6; n++) {
        frame_start(n * 1000);
        on(0, ALL);
        runs(10, FRAME_USAGE_COMPUTE, 1);
        take();
        TOLD("processes",
             n < 6 ? "processes 0 -=1 +busy +memory" : "processes 0 ns/a/main=1 +busy +memory");
    }
    name_pod("a", UID_A, "Running");
    name_pod("rogue", UID_B, "Running");
    frame_start(7000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 1);
    take();
    TOLD("processes", "processes 0 ns/rogue/!=1 +busy +memory");
}

// --- MPS ---

static void mps(uint32_t server)
{
    *process(server) = (struct process_identity){
        .kind = PROCESS_HOST, .name = "nvidia-cuda-mps", .start_ticks = 1};
    name_pod("a", UID_A, "Running");
    name_pod("b", UID_B, "Running");
    OWNERS(HOLD(0, "a", "main", "GPU-0::0"), HOLD(0, "b", "main", "GPU-0::1"));
    pod_process(10, UID_A, ID_MAIN);
    pod_process(20, UID_B, ID_MAIN);
}

static void under_mps_memory_is_the_clients_and_the_servers_is_nobodys(void **state)
{
    (void)state;
    mps(5);
    frame_start(1000);
    on(0, ALL);
    runs(5, FRAME_USAGE_COMPUTE, 30);
    runs(10, FRAME_USAGE_MPS, 100);
    runs(20, FRAME_USAGE_MPS, 200);
    does(5, 90);
    take();
    TOLD("processes", "processes 0 -=30 ns/a/main=100 ns/b/main=200 +memory");
    TOLD("share", "");
    assert_false(stats().mps_hidden);
}

static void under_mps_shares_of_clients_are_evidence_until_the_servers_come(void **state)
{
    (void)state;
    static const struct {
        uint32_t sharer; // 0: nobody was busy
        bool evidence;
    } frames[] = {{0, false}, {10, true}, {0, true}, {5, false}, {0, false}, {20, true}};
    mps(5);
    for (unsigned n = 0; n < ARRAY_SIZE(frames); n++) {
        frame_start(n * 1000 + 1000);
        on(0, ALL);
        runs(5, FRAME_USAGE_COMPUTE, 30);
        runs(10, FRAME_USAGE_MPS, 100);
        runs(20, FRAME_USAGE_MPS, 200);
        if (frames[n].sharer)
            does(frames[n].sharer, 90);
        take();
        TOLD("processes", frames[n].evidence
                              ? "processes 0 -=30 ns/a/main=100 ns/b/main=200 +busy +memory"
                              : "processes 0 -=30 ns/a/main=100 ns/b/main=200 +memory");
    }
}

static void under_mps_without_a_client_listed_there_is_no_evidence(void **state)
{
    (void)state;
    mps(5);
    frame_start(1000);
    on(0, ALL);
    runs(5, FRAME_USAGE_COMPUTE, 900);
    does(5, 90);
    take();
    TOLD("processes", "processes 0 -=900");
    assert_true(stats().mps_hidden);
    frame_start(2000);
    on(0, ALL);
    take();
    TOLD("processes", "processes 0 +busy +memory");
    assert_false(stats().mps_hidden);
}

static void an_mps_server_in_a_named_pod_is_that_pods_and_no_stranger(void **state)
{
    (void)state;
    mps(5);
    name_pod("mps-daemon", UID_M, "Running");
    process(5)->kind = PROCESS_POD;
    sv_copy(process(5)->pod_uid, POD_UID_BYTES, SV(UID_M));
    OWNERS(HOLD(0, "a", "main", "GPU-0::0"));
    frame_start(1000);
    on(0, ALL);
    runs(5, FRAME_USAGE_COMPUTE, 30);
    runs(10, FRAME_USAGE_MPS, 100);
    take();
    TOLD("processes", "processes 0 ns/mps-daemon/=30 ns/a/main=100 +memory");
    assert_int_equal(stats().disagreements, 0);
    assert_int_equal(stats().undeclared, 0);
}

// --- DCGM's activity ---

static void on_ampere_an_instances_activity_is_a_part_of_its_slices(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *expected;
    } rows[] = {
        {0.2, ""}, // the first has no beginning
        {3.0 / 7, "busy 3 1000-2000 1000000"},
        {1.5 / 7, "busy 3 2000-3000 500000"},
        {0.9, "busy 3 3000-4000 1000000"},
        {0.0, "busy 3 4000-5000 0"},
        {-1.0, "busy 3 5000-6000 0"},
    };
    for (unsigned n = 0; n < ARRAY_SIZE(rows); n++) {
        take_activity(n * 1000 + 1000, 3, rows[n].value);
        TOLD("busy", rows[n].expected);
    }
    frame_start(6500);
    on(3, NO_BUSY);
    take();
    TOLD("reach", "reach 3 busy=6000");
}

static void elsewhere_an_instances_activity_is_its_own(void **state)
{
    (void)state;
    usage_free(usage);
    struct frame_entity cut = gpu(2, "GPU-2", "00000000:03:00.0");
    sv_copy(cut.name, sizeof(cut.name), SV("NVIDIA A3000 of another kind"));
    cut.mig_enabled = 1;
    cut.total_slices = 7;
    struct frame_entity small = instance(0, 2, 7, "MIG-1", "3g.20gb");
    small.slices = 3;
    LIST(&nvml, 2, cut, small);
    LIST(&dcgm, 6, cut, small);
    inventory_forget_absent(&nvml);
    LIST(&nvml, 3, cut, small);
    LIST(&dcgm, 7, cut, small);
    assert_int_equal(device_view_refresh(&view, &nvml, &dcgm), 0);
    const struct usage_config config = {.find = find_process};
    assert_int_equal(usage_new(&config, &usage), 0);
    assert_int_equal(usage_set_devices(usage, &view, T0), 0);
    take_activity(1000, 1, 0.5);
    take_activity(2000, 1, 0.5);
    TOLD("busy", "busy 1 1000-2000 500000");
}

static void a_pause_of_dcgms_is_no_activity(void **state)
{
    (void)state;
    take_activity(1000, 3, 0.1);
    take_activity(2000, 3, 0.1);
    take_activity(2000, 3, 0.1);
    TOLD("busy", "");
    take_activity(9000, 3, 0.1);
    TOLD("busy", "");
    take_activity(10000, 3, 0.0);
    TOLD("busy", "busy 3 9000-10000 0");
    frame_start(26000);
    on(3, NO_BUSY);
    take();
    TOLD("reach", "reach 3");
}

static void where_the_driver_tells_activity_dcgms_is_left_alone(void **state)
{
    (void)state;
    frame_start(500);
    on(0, ALL);
    on(3, NO_BUSY | FRAME_USAGE_BUSY);
    take();
    take_activity(1000, 3, 0.1);
    take_activity(2000, 3, 0.1);
    TOLD("busy", "");
    take_activity(2000, 0, 0.1); // a whole GPU
    take_activity(3000, 0, 0.1);
    TOLD("busy", "");
}

// --- dcgm-exporter's numbers per process ---

static void a_pods_values_are_the_sums_of_its_processes(void **state)
{
    (void)state;
    struct usage_pod_value v;
    assert_false(usage_pod_value(usage, 0, UID_A, &v)); // no frame yet
    pod_process(10, UID_A, ID_MAIN);
    pod_process(11, UID_A, ID_MAIN);
    pod_process(20, UID_B, ID_MAIN);
    frame_start(1000);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    runs(11, FRAME_USAGE_COMPUTE, 28);
    runs(20, FRAME_USAGE_COMPUTE, 7);
    made.processes[0].memory_bytes += MIB - 1; // each is cut by itself
    made.processes[1].memory_bytes += MIB - 1;
    does(10, 90);
    does(11, 25);
    made.shares[0].to_ns -= 1;
    does(10, 50); // the last one counts
    take();
    assert_true(usage_pod_value(usage, 0, UID_A, &v));
    assert_true(v.sm_known && v.memory_known);
    assert_int_equal(v.sm_percent, 75);
    assert_int_equal(v.memory_mib, 128);
    assert_true(usage_pod_value(usage, 0, UID_C, &v)); // runs nothing
    assert_true(v.sm_known && v.memory_known);
    assert_int_equal(v.sm_percent, 0);
    assert_int_equal(v.memory_mib, 0);
    assert_false(usage_pod_value(usage, 1, UID_A, &v));
    assert_false(usage_pod_value(usage, 99, UID_A, &v));
}

static void a_new_list_keeps_what_is_known_of_a_device(void **state)
{
    (void)state;
    OWNERS(HOLD(0, "a", "main", "GPU-0"), HOLD(1, "b", "main", "GPU-1"));
    LIST(&nvml, 2, gpu(1, "GPU-1", "00000000:02:00.0"));
    inventory_forget_absent(&nvml);
    LIST(&nvml, 3, gpu(1, "GPU-1", "00000000:02:00.0"));
    assert_int_equal(device_view_refresh(&view, &nvml, &dcgm), 0);
    told.len = 0;
    assert_int_equal(usage_set_devices(usage, &view, T0), 0);
    TOLD("", "device 0 GPU-1 board=0 0/0");
    pod_process(20, UID_B, ID_MAIN);
    frame_start(1000);
    on(0, ALL);
    runs(20, FRAME_USAGE_COMPUTE, 1);
    take();
    TOLD("processes", "processes 0 ns/b/main=1 +busy +memory");
    TOLD("holders", "");
}

// --- Memory ---

static void small_frame(uint64_t at_ms)
{
    frame_start(at_ms);
    on(0, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 100);
    runs(20, FRAME_USAGE_COMPUTE, 200);
    does(10, 50);
    on(1, ALL);
    runs(10, FRAME_USAGE_COMPUTE, 3);
}

// Whatever fails is said, and once there is memory again all is as if nothing had been.
static void run_dry(void)
{
    const struct hold list[] = {HOLD(0, "a", "main", "GPU-0::0"), HOLD(0, "b", "main", "GPU-0::1"),
                                HOLD(1, "a", "main", "GPU-1")};
    const struct usage_config config = {.find = find_process};
    struct usage *u = NULL;
    told.len = 0;
    container_count = 0;
    if (usage_new(&config, &u) < 0)
        return;
    struct usage *before = usage;
    usage = u;
    bool failed = usage_set_devices(u, &view, T0) < 0;
    failed = try_hold(list, ARRAY_SIZE(list), NULL) < 0 || failed;
    small_frame(1000);
    failed = try_take() < 0 || failed;
    assert_int_equal(failed, allocation_failed);
    allocation_until_failure = 0;
    assert_int_equal(usage_set_devices(u, &view, T0), 0);
    assert_int_equal(try_hold(list, ARRAY_SIZE(list), NULL), 0);
    for (unsigned n = 2; n <= 3; n++) {
        small_frame(n * 1000);
        take();
    }
    TOLD("processes", "processes 0 ns/a/main=100 ns/b/main=200 +busy +memory\n"
                      "processes 1 ns/a/main=3 +busy +memory");
    usage_free(u);
    usage = before;
}

static void no_failing_allocation_costs_more_than_its_frame(void **state)
{
    (void)state;
    buf_add_str(&told, "x");
    assert_int_equal(buf_reserve(&told, 65536), 0); // what writes down shall not fail
    pod_process(10, UID_A, ID_MAIN);
    pod_process(20, UID_B, ID_MAIN);
    assert_in_range(allocation_sweep(run_dry), 10, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define BLIND(name) cmocka_unit_test_setup_teardown(name, set_up_without_pids, tear_down)
        TEST(devices_are_boards_and_instances_with_their_slices),
        TEST(spans_energy_and_memory_reach_the_ledger_as_they_are),
        TEST(a_frame_of_another_list_is_left_alone),
        TEST(shared_gpus_are_split_by_process),
        TEST(holders_are_told_with_their_replicas_and_once),
        TEST(whom_the_ledger_has_no_room_for_holds_without_a_name_and_stops_nothing),
        TEST(trap_2_a_new_holder_is_another_container_from_the_time_it_was_seen),
        TEST(trap_3_a_pod_made_anew_under_its_name_is_another_container),
        TEST(trap_4_an_init_container_that_uses_the_gpu_has_its_own_name),
        TEST(trap_5_a_sidecar_with_a_gpu_is_a_container_like_any_other),
        TEST(trap_6_and_7_a_pod_that_has_ended_holds_nothing),
        TEST(trap_8_two_containers_of_a_pod_on_one_device_are_told_apart_by_their_pids),
        BLIND(trap_8_without_pids_the_pod_is_the_sole_holder),
        TEST(trap_11_a_static_pod_is_known_by_its_hash),
        TEST(trap_24_a_force_deleted_pod_that_runs_on_is_nobodys_and_no_holder),
        TEST(trap_25_our_own_pod_neither_holds_nor_runs),
        TEST(trap_26_a_pod_that_runs_without_asking_has_an_account),
        TEST(trap_27_a_share_of_a_pid_that_changed_hands_is_nobodys),
        cmocka_unit_test_setup_teardown(a_process_that_stays_listed_is_looked_at_now_and_then,
                                        set_up_with_few_looks, tear_down),
        TEST(trap_28_one_that_ended_has_its_late_shares_and_no_memory),
        TEST(trap_39_a_vmm_at_the_pods_level_is_the_sole_containers),
        TEST(a_host_process_is_a_stranger_to_the_sole_holder),
        TEST(what_procfs_hides_is_no_evidence),
        TEST(memory_that_the_driver_does_not_tell_is_no_evidence),
        BLIND(without_pids_nobody_is_known_to_run),
        TEST(without_the_drivers_lists_nobody_is_known_to_run),
        TEST(a_uid_that_nobody_knows_is_the_one_holder_without_a_uid),
        TEST(elimination_breaks_where_more_than_one_is_possible),
        TEST(one_name_leads_to_the_next),
        TEST(a_name_stands_while_its_pod_is_listed_and_no_longer),
        TEST(trap_3_without_metadata_a_uid_that_ran_no_more_for_a_minute_gives_way),
        TEST(metadata_overrules_a_guess_and_is_waited_for),
        TEST(under_mps_memory_is_the_clients_and_the_servers_is_nobodys),
        TEST(under_mps_shares_of_clients_are_evidence_until_the_servers_come),
        TEST(under_mps_without_a_client_listed_there_is_no_evidence),
        TEST(an_mps_server_in_a_named_pod_is_that_pods_and_no_stranger),
        TEST(on_ampere_an_instances_activity_is_a_part_of_its_slices),
        TEST(elsewhere_an_instances_activity_is_its_own),
        TEST(a_pause_of_dcgms_is_no_activity),
        TEST(where_the_driver_tells_activity_dcgms_is_left_alone),
        TEST(a_pods_values_are_the_sums_of_its_processes),
        TEST(a_new_list_keeps_what_is_known_of_a_device),
        TEST(no_failing_allocation_costs_more_than_its_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
