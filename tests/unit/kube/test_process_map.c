// SPDX-License-Identifier: Apache-2.0
// On a procfs made of plain files, where a test says what stands in it and when it changes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "kube/process_map.h"

#define UID "0d9c6e2a-4f6b-4b7e-9c51-8a2f0e6d1b34"
#define OTHER "ffffffff-4f6b-4b7e-9c51-8a2f0e6d1b34"
#define HEX "0123456789abcdef"
#define ID HEX HEX HEX HEX
#define POD "0::/kubepods/burstable/pod" UID "/" ID "\n"
#define POD2 "0::/kubepods/burstable/pod" OTHER "/" ID "\n"
#define HOST "0::/system.slice/x.service\n"
#define T0 (10000 * NS_PER_S)

// --- A procfs of plain files ---

static char root[64];

// Called before each read; a test changes the files here.
static void (*before_read)(const char *path);
static unsigned reads;
static int refuse; // errno of each read

int __real_file_read_at(int directory, const char *name, struct buf *out, struct error *err);
int __wrap_file_read_at(int directory, const char *name, struct buf *out, struct error *err);
int __wrap_file_read_at(int directory, const char *name, struct buf *out, struct error *err)
{
    reads++;
    if (before_read)
        before_read(name);
    return refuse ? -refuse : __real_file_read_at(directory, name, out, err);
}

static void put(const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void put_stat(uint32_t pid, const char *name, char state, uint32_t parent, uint64_t start)
{
    char file[32], text[256];
    (void)snprintf(file, sizeof(file), "%u/stat", pid);
    (void)snprintf(text, sizeof(text),
                   "%u (%s) %c %u 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 %llu 9 10\n", pid, name,
                   state, parent, (unsigned long long)start);
    put(file, text);
}

static void remove_process(uint32_t pid)
{
    char path[128];
    static const char *const files[] = {"/stat", "/cgroup", ""};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        (void)snprintf(path, sizeof(path), "%s/%u%s", root, pid, files[i]);
        (void)remove(path);
    }
}

// Another directory each time, as procfs has another inode for another process.
static void put_process(uint32_t pid, const char *name, uint64_t start, const char *cgroup)
{
    char path[128];
    remove_process(pid);
    (void)snprintf(path, sizeof(path), "%s/%u", root, pid);
    assert_int_equal(mkdir(path, 0755), 0);
    put_stat(pid, name, 'S', 1, start);
    (void)snprintf(path, sizeof(path), "%u/cgroup", pid);
    put(path, cgroup);
}

static void link_to(const char *target, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    (void)remove(path);
    assert_int_equal(symlink(target, path), 0);
}

static void make_dir(const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    assert_int_equal(mkdir(path, 0755), 0);
}

// The host's procfs, in which this program is process 77 with the given group.
static int set_up(void **state)
{
    (void)state;
    before_read = NULL;
    refuse = 0;
    (void)snprintf(root, sizeof(root), "/tmp/podgpu-proc-XXXXXX");
    assert_non_null(mkdtemp(root));
    put_process(1, "systemd", 1, "0::/init.scope\n");
    put_process(2, "kthreadd", 1, "0::/\n");
    put("2/comm", "kthreadd\n");
    put_process(77, "podgpu-exporter", 50, HOST);
    link_to("77", "self");
    make_dir("77/ns");
    link_to("pid:[4026532999]", "77/ns/pid");
    link_to("cgroup:[4026531835]", "77/ns/cgroup");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    static const char *const files[] = {"2/comm", "self", "77/ns/pid", "77/ns/cgroup", "77/ns"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        (void)snprintf(command, sizeof(command), "%s/%s", root, files[i]);
        (void)remove(command);
    }
    for (uint32_t pid = 1; pid < 200; pid++)
        remove_process(pid);
    return rmdir(root);
}

static struct process_map *new_map(void)
{
    struct process_map *m;
    assert_int_equal(process_map_new(root, &m), 0);
    return m;
}

static struct process_identity find(struct process_map *m, uint32_t pid, uint64_t now_ns)
{
    struct process_identity out;
    assert_true(process_map_find(m, pid, now_ns, &out));
    return out;
}

static void assert_uid(struct process_map *m, uint32_t pid, uint64_t now_ns, const char *uid)
{
    struct process_identity p = find(m, pid, now_ns);
    assert_int_equal(p.kind, PROCESS_POD);
    assert_string_equal(p.pod_uid, uid);
}

// --- Tests ---

static void a_process_has_its_pod_container_name_and_start(void **state)
{
    (void)state;
    struct process_map *m = new_map();
    put_process(100, "a) S 9 (b", 4242, POD);
    struct process_identity p = find(m, 100, T0);
    assert_int_equal(p.kind, PROCESS_POD);
    assert_string_equal(p.pod_uid, UID);
    assert_string_equal(p.container_id, ID);
    assert_string_equal(p.name, "a) S 9 (b");
    assert_int_equal(p.start_ticks, 4242);
    assert_false(p.own_pod);
    put_process(101, "sshd", 7, HOST);
    assert_int_equal(find(m, 101, T0).kind, PROCESS_HOST);
    process_map_free(m);
}

static void what_is_known_is_read_again_each_minute_and_of_the_host_each_10_s(void **state)
{
    (void)state;
    struct process_map *m = new_map();
    put_process(100, "train", 5, POD);
    put_process(101, "x", 5, HOST);
    assert_uid(m, 100, T0, UID);
    assert_int_equal(find(m, 101, T0).kind, PROCESS_HOST);
    put("100/cgroup", POD2); // moved
    put("101/cgroup", POD2);
    unsigned before = reads;
    for (uint64_t s = 1; s < 10; s++)
        assert_int_equal(find(m, 101, T0 + s * NS_PER_S).kind, PROCESS_HOST);
    assert_int_equal(reads, before);
    assert_uid(m, 101, T0 + 10 * NS_PER_S, OTHER);
    for (uint64_t s = 10; s < 60; s += 10)
        assert_uid(m, 100, T0 + s * NS_PER_S, UID);
    assert_uid(m, 100, T0 + 60 * NS_PER_S, OTHER);
    process_map_free(m);
}

static void trap_27_a_pid_used_again_is_another_process(void **state)
{
    (void)state;
    struct process_map *m = new_map();
    put_process(100, "train", 5, POD);
    assert_uid(m, 100, T0, UID);
    put_process(100, "serve", 6, POD2);
    assert_uid(m, 100, T0 + NS_PER_S, OTHER);
    assert_int_equal(find(m, 100, T0 + NS_PER_S).start_ticks, 6);
    process_map_free(m);
}

static void take_the_pid(const char *path)
{
    if (strcmp(path, "100/cgroup") != 0)
        return;
    before_read = NULL;
    put_process(100, "serve", 6, POD2);
}

static void trap_27_a_pid_used_again_between_start_time_and_cgroup_is_read_anew(void **state)
{
    (void)state;
    struct process_map *m = new_map();
    put_process(100, "train", 5, POD);
    before_read = take_the_pid;
    struct process_identity p = find(m, 100, T0);
    assert_string_equal(p.pod_uid, OTHER);
    assert_string_equal(p.name, "serve");
    assert_int_equal(p.start_ticks, 6);
    process_map_free(m);
}

static void restless_pid(const char *path)
{
    static uint64_t start = 100;
    if (strcmp(path, "100/cgroup") == 0)
        put_stat(100, "train", 'S', 1, ++start);
}

static void trap_27_a_pid_that_changes_hands_all_the_time_is_nobodys(void **state)
{
    (void)state;
    struct process_map *m = new_map();
    put_process(100, "train", 5, POD);
    before_read = restless_pid;
    unsigned first = reads;
    assert_int_equal(find(m, 100, T0).kind, PROCESS_GONE);
    assert_int_equal(reads - first, 9);
    process_map_free(m);
}

static void trap_28_one_that_ended_keeps_its_identity_for_30_s(void **state)
{
    (void)state;
    struct process_map *m = new_map();
    put_process(100, "train", 5, POD);
    assert_uid(m, 100, T0, UID);
    remove_process(100);
    for (uint64_t s = 1; s <= 31; s++)
        assert_uid(m, 100, T0 + s * NS_PER_S, UID); // found gone at 1 s
    assert_int_equal(find(m, 100, T0 + 32 * NS_PER_S).kind, PROCESS_GONE);
    assert_int_equal(find(m, 101, T0).kind, PROCESS_GONE); // never seen
    struct process_map_stats stats;
    process_map_get_stats(m, &stats);
    assert_int_equal(stats.known, 0);
    process_map_free(m);
}

static void leave(const char *path)
{
    if (strcmp(path, "100/cgroup") == 0)
        remove_process(100);
}

static void trap_28_one_that_exits_while_it_is_read_is_gone(void **state)
{
    (void)state;
    struct process_map *m = new_map();
    put_process(100, "train", 5, POD);
    before_read = leave;
    assert_int_equal(find(m, 100, T0).kind, PROCESS_GONE);
    process_map_free(m);
}

static void trap_29_a_zombie_keeps_what_was_known_of_it(void **state)
{
    (void)state;
    struct process_map *m = new_map();
    put_process(100, "train", 5, POD);
    put_process(101, "train", 5, POD);
    put_process(102, "train", 5, "0::/kubepods/pod" UID "/" ID " (deleted)\n");
    assert_uid(m, 100, T0, UID);
    assert_uid(m, 102, T0, UID);
    put("100/cgroup", "0::/\n");
    put("101/cgroup", "0::/\n");
    put_stat(100, "train", 'Z', 1, 5);
    put_stat(101, "train", 'Z', 1, 5);
    assert_uid(m, 100, T0 + 60 * NS_PER_S, UID);
    assert_uid(m, 100, T0 + 600 * NS_PER_S, UID);
    assert_int_equal(find(m, 101, T0).kind, PROCESS_GONE); // nobody can say whose it was
    process_map_free(m);
}

static void trap_25_our_own_pod_and_helper_are_told(void **state)
{
    (void)state;
    put("77/cgroup", POD);
    struct process_map *m = new_map();
    put_process(100, "podgpu-agent", 5, POD);
    put_process(101, "train", 5, POD2);
    put_process(102, "podgpu-source", 5, HOST);
    put_stat(102, "podgpu-source", 'S', 77, 5);
    assert_true(find(m, 100, T0).own_pod);
    assert_false(find(m, 101, T0).own_pod);
    assert_true(find(m, 102, T0).own_pod);
    assert_true(find(m, 77, T0).own_pod);
    process_map_free(m);
}

static void trap_25_in_a_cgroup_namespace_siblings_and_our_own_group_are_of_our_pod(void **state)
{
    (void)state;
    put("77/cgroup", "0::/\n");
    link_to("cgroup:[4026532888]", "77/ns/cgroup");
    struct process_map *m = new_map();
    put_process(100, "pause", 5, "0::/../" ID "\n");
    put_process(101, "podgpu-source", 5, "0::/\n");
    put_process(102, "train", 5, "0::/../../pod" UID "/" ID "\n");
    put_process(103, "kubelet", 5, "0::/../../../../system.slice/kubelet.service\n");
    assert_true(find(m, 100, T0).own_pod);
    assert_true(find(m, 101, T0).own_pod);
    assert_uid(m, 102, T0, UID);
    assert_false(find(m, 102, T0).own_pod);
    assert_int_equal(find(m, 103, T0).kind, PROCESS_HOST);
    process_map_free(m);
}

static void without_a_namespace_the_root_group_is_nobodys_own(void **state)
{
    (void)state;
    put("77/cgroup", "0::/\n");
    struct process_map *m = new_map();
    put_process(101, "cuda", 5, "0::/\n");
    assert_false(find(m, 101, T0).own_pod);
    process_map_free(m);
}

static void what_procfs_refuses_is_unreadable_and_what_it_hides_too(void **state)
{
    (void)state;
    struct process_map *m = new_map();
    put_process(100, "train", 5, POD);
    refuse = EACCES;
    assert_int_equal(find(m, 100, T0).kind, PROCESS_UNREADABLE);
    refuse = 0;
    assert_uid(m, 100, T0 + 60 * NS_PER_S, UID);
    refuse = EACCES; // of one that is known it forgets nothing
    assert_uid(m, 100, T0 + 120 * NS_PER_S, UID);
    refuse = 0;
    remove_process(1); // mounted with hidepid=2: not even the first is to be seen
    assert_int_equal(find(m, 101, T0).kind, PROCESS_UNREADABLE);
    put("100/stat", "100 (train S 1");
    assert_uid(m, 100, T0 + 180 * NS_PER_S, UID);
    process_map_free(m);
}

static void a_line_of_stat_that_makes_no_sense_is_unreadable(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        "100",
        "100 (",
        "100 )(",
        "100 (a)",
        "100 (a) S",
        "100 (a) S 1 1 1",
        "100 (a) S x 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 5 9",
        "100 (a) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 -5 9",
        "100 (a) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99999999999999999999 9",
    };
    struct process_map *m = new_map();
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        put_process(100, "a", 5, POD);
        put("100/stat", lines[i]);
        assert_int_equal(find(m, 100, T0 + i * 60 * NS_PER_S).kind, PROCESS_UNREADABLE);
    }
    process_map_free(m);
}

static void more_pids_than_the_limit_evict_the_longest_unseen(void **state)
{
    (void)state;
    struct process_map *m = new_map();
    struct process_map_stats stats;
    refuse = EACCES; // each is kept as one that can't be read
    put_process(100, "a", 5, POD);
    char path[128];
    // All pids lead to one directory: what counts here is the number of them.
    (void)snprintf(path, sizeof(path), "%s/100", root);
    for (uint32_t i = 0; i < LIMIT_PROCESS_MAP + 10; i++) {
        char name[128];
        (void)snprintf(name, sizeof(name), "%s/%u", root, 1000 + i);
        assert_int_equal(symlink("100", name), 0);
        (void)find(m, 1000 + i, T0 + i);
        process_map_get_stats(m, &stats);
        assert_int_equal(stats.known, i < LIMIT_PROCESS_MAP ? i + 1 : LIMIT_PROCESS_MAP);
        assert_int_equal(unlink(name), 0);
    }
    // The first ten are forgotten, the eleventh is known to have been there.
    assert_int_equal(find(m, 1009, T0 + NS_PER_S).kind, PROCESS_GONE);
    assert_int_equal(find(m, 1010, T0 + NS_PER_S).kind, PROCESS_UNREADABLE);
    process_map_sweep(m, T0 + 32 * NS_PER_S);
    process_map_get_stats(m, &stats);
    assert_int_equal(stats.known, 0);
    process_map_free(m);
}

// Every third of many goes; what stays is found, what went is read anew.
static void a_sweep_drops_what_was_not_asked_for_and_nothing_else(void **state)
{
    (void)state;
    struct process_map *m = new_map();
    struct process_map_stats stats;
    for (uint32_t pid = 100; pid < 190; pid++) {
        put_process(pid, "a", pid, POD);
        assert_uid(m, pid, T0, UID);
    }
    for (uint32_t pid = 100; pid < 190; pid++)
        if (pid % 3)
            assert_uid(m, pid, T0 + 20 * NS_PER_S, UID);
    process_map_sweep(m, T0 + 31 * NS_PER_S);
    process_map_get_stats(m, &stats);
    assert_int_equal(stats.known, 60);
    unsigned before = reads;
    for (uint32_t pid = 100; pid < 190; pid++)
        if (pid % 3)
            assert_int_equal(find(m, pid, T0 + 31 * NS_PER_S).start_ticks, pid);
    assert_int_equal(reads, before);
    process_map_free(m);
}

// A pass is given the time at which it began; its looks may have come later.
static void a_sweep_of_an_earlier_time_drops_nothing(void **state)
{
    (void)state;
    struct process_map *m = new_map();
    put_process(100, "a", 100, POD);
    assert_uid(m, 100, T0 + 1000, UID);
    unsigned before = reads;
    process_map_sweep(m, T0);
    assert_uid(m, 100, T0 + NS_PER_S, UID);
    assert_int_equal(reads, before);
    process_map_free(m);
}

struct view_case {
    const char *pid_namespace, *second, *first_group, *own_group;
    enum process_view expected;
};

static void the_hosts_pids_are_told_from_private_and_nested_ones(void **state)
{
    (void)state;
    static const struct view_case cases[] = {
        {"pid:[4026531836]", "x\n", HOST, POD, PROCESS_VIEW_HOST},
        {"pid:[4026532999]", "kthreadd\n", HOST, POD, PROCESS_VIEW_HOST}, // the host's, mounted
        {"pid:[4026532999]", "kthreadd2\n", POD, POD, PROCESS_VIEW_PRIVATE},
        {"pid:[4026532999]", "x\n", "0::/../" ID "\n", "0::/\n", PROCESS_VIEW_PRIVATE},
        {"pid:[4026532999]", "x\n", HOST, HOST, PROCESS_VIEW_PRIVATE},
        {"pid:[4026532999]", "x\n", "0::/init.scope\n", POD, PROCESS_VIEW_UNKNOWN}, // kind
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        link_to(cases[i].pid_namespace, "77/ns/pid");
        put("2/comm", cases[i].second);
        put("1/cgroup", cases[i].first_group);
        put("77/cgroup", cases[i].own_group);
        put_process(100, "train", 5, POD2);
        struct process_map *m = new_map();
        assert_int_equal(process_map_view(m), cases[i].expected);
        // Where pids are private a number of the driver's would be somebody else's.
        assert_int_equal(find(m, 100, T0).kind, cases[i].expected == PROCESS_VIEW_PRIVATE
                                                    ? PROCESS_UNREADABLE
                                                    : PROCESS_POD);
        process_map_free(m);
    }
    assert_string_equal(process_view_text(PROCESS_VIEW_HOST), "host");
    assert_string_equal(process_view_text(PROCESS_VIEW_PRIVATE), "private");
    assert_string_equal(process_view_text(PROCESS_VIEW_UNKNOWN), "unknown");
}

static void a_procfs_that_is_not_there_hides_all(void **state)
{
    (void)state;
    struct process_map *m;
    assert_int_equal(process_map_new("/nonexistent/proc", &m), 0);
    assert_int_equal(process_map_view(m), PROCESS_VIEW_PRIVATE);
    assert_int_equal(find(m, 1, T0).kind, PROCESS_UNREADABLE);
    process_map_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(a_process_has_its_pod_container_name_and_start),
        TEST(what_is_known_is_read_again_each_minute_and_of_the_host_each_10_s),
        TEST(trap_27_a_pid_used_again_is_another_process),
        TEST(trap_27_a_pid_used_again_between_start_time_and_cgroup_is_read_anew),
        TEST(trap_27_a_pid_that_changes_hands_all_the_time_is_nobodys),
        TEST(trap_28_one_that_ended_keeps_its_identity_for_30_s),
        TEST(trap_28_one_that_exits_while_it_is_read_is_gone),
        TEST(trap_29_a_zombie_keeps_what_was_known_of_it),
        TEST(trap_25_our_own_pod_and_helper_are_told),
        TEST(trap_25_in_a_cgroup_namespace_siblings_and_our_own_group_are_of_our_pod),
        TEST(without_a_namespace_the_root_group_is_nobodys_own),
        TEST(what_procfs_refuses_is_unreadable_and_what_it_hides_too),
        TEST(a_line_of_stat_that_makes_no_sense_is_unreadable),
        TEST(more_pids_than_the_limit_evict_the_longest_unseen),
        TEST(a_sweep_drops_what_was_not_asked_for_and_nothing_else),
        TEST(a_sweep_of_an_earlier_time_drops_nothing),
        TEST(the_hosts_pids_are_told_from_private_and_nested_ones),
        TEST(a_procfs_that_is_not_there_hides_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
