// SPDX-License-Identifier: Apache-2.0
// Real processes in real cgroups of a kubelet's shapes, also as they look from inside another
// cgroup namespace. Needs a cgroup hierarchy in which groups can be made (root); else it is skipped
// and says why.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "kube/process_map.h"

#define UID "0d9c6e2a-4f6b-4b7e-9c51-8a2f0e6d1b34"
#define UID_ "0d9c6e2a_4f6b_4b7e_9c51_8a2f0e6d1b34"
#define OWN "1d9c6e2a-4f6b-4b7e-9c51-8a2f0e6d1b34"
#define OWN_ "1d9c6e2a_4f6b_4b7e_9c51_8a2f0e6d1b34"
#define HEX "0123456789abcdef"
#define ID HEX HEX HEX HEX
#define ID2 HEX HEX HEX "fedcba9876543210"
#define T0 (10000 * NS_PER_S)

// The first hierarchy in which a group can be made, and below which all of ours stand. Never the
// one that counts memory: what a test takes shall stay counted where it was.
static char top[300];

static int find_hierarchy(void **state)
{
    static const char *const mounts[] = {"unified", "pids", "cpu", ""};
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(mounts); i++) {
        char path[128], procs[192];
        (void)snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", mounts[i]);
        (void)snprintf(procs, sizeof(procs), "%s/cgroup.procs", path);
        (void)snprintf(top, sizeof(top), "%s/podgpu-test-%d", path, (int)getpid());
        if (access(procs, W_OK) == 0 && mkdir(top, 0755) == 0)
            return 0;
    }
    top[0] = '\0';
    return 0;
}

static void skip_without_hierarchy(void)
{
    if (!top[0]) {
        print_message("skipped: no cgroup can be made under /sys/fs/cgroup (%s)\n",
                      strerror(errno));
        skip();
    }
}

// Makes what is missing of "a/b/c" below the top.
static void make_group(const char *group)
{
    char path[1024];
    int n = snprintf(path, sizeof(path), "%s/%s", top, group);
    assert_in_range(n, 1, sizeof(path) - 1);
    for (char *at = path + strlen(top) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
        *at = '/';
    }
    assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
}

static void remove_groups(const char *group)
{
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/%s", top, group);
    while (strlen(path) > strlen(top)) {
        (void)rmdir(path);
        *strrchr(path, '/') = '\0';
    }
}

static int remove_hierarchy(void **state)
{
    (void)state;
    return top[0] ? rmdir(top) : 0;
}

static bool join(const char *group)
{
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/%s/cgroup.procs", top, group);
    cleanup(fd_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "0", 1) == 1;
}

// A process in that group, which waits to be killed.
static pid_t start_in(const char *group)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)alarm(60);
        if (!join(group) || write(ready[1], "1", 1) != 1)
            _exit(1);
        for (;;)
            (void)pause();
    }
    (void)close(ready[1]);
    ssize_t got = read(ready[0], &byte, 1);
    (void)close(ready[0]);
    assert_int_equal(got, 1);
    return pid;
}

static void end(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static struct process_map *new_map(void)
{
    struct process_map *m;
    assert_int_equal(process_map_new("/proc", &m), 0);
    return m;
}

static struct process_identity find(struct process_map *m, pid_t pid, uint64_t now_ns)
{
    struct process_identity out;
    assert_true(process_map_find(m, (uint32_t)pid, now_ns, &out));
    return out;
}

static const char *const shapes[] = {
    "kubepods/burstable/pod" UID "/" ID,
    "kubepods/pod" UID "/" ID,
    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_
    ".slice/cri-containerd-" ID ".scope",
    "kubepods.slice/kubepods-pod" UID_ ".slice/crio-" ID ".scope/container",
    "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
    "kubelet-kubepods-besteffort-pod" UID_ ".slice/docker-" ID ".scope",
    "system.slice/containerd.service/kubepods-burstable-pod" UID_ ".slice:cri-containerd:" ID,
};

static bool skips_private_pids(struct process_map *m)
{
    if (process_map_view(m) != PROCESS_VIEW_PRIVATE)
        return false;
    print_message("skipped: this machine's PID namespace is a private one\n");
    return true;
}

static void real_processes_in_every_shape_have_their_pod_and_container(void **state)
{
    (void)state;
    skip_without_hierarchy();
    struct process_map *m = new_map();
    bool private = skips_private_pids(m);
    for (size_t i = 0; i < ARRAY_SIZE(shapes) && !private; i++) {
        make_group(shapes[i]);
        pid_t pid = start_in(shapes[i]);
        // A child of this program: it would be taken for a helper of its own.
        struct process_identity p = find(m, pid, T0 + i);
        end(pid);
        remove_groups(shapes[i]);
        assert_int_equal(p.kind, PROCESS_POD);
        assert_string_equal(p.pod_uid, UID);
        assert_string_equal(p.container_id, ID);
        assert_string_equal(p.name, "test_process_re");
    }
    process_map_free(m);
    if (private)
        skip();
}

static void trap_28_a_real_process_that_ended_is_known_for_30_s(void **state)
{
    (void)state;
    skip_without_hierarchy();
    struct process_map *m = new_map();
    bool private = skips_private_pids(m);
    make_group(shapes[0]);
    pid_t pid = start_in(shapes[0]);
    struct process_identity alive = find(m, pid, T0);
    (void)kill(pid, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    remove_groups(shapes[0]);
    struct process_identity zombie = find(m, pid, T0 + 61 * NS_PER_S);
    end(pid);
    struct process_identity gone = find(m, pid, T0 + 62 * NS_PER_S);
    struct process_identity late = find(m, pid, T0 + 93 * NS_PER_S);
    process_map_free(m);
    if (private)
        skip();
    assert_string_equal(alive.pod_uid, UID);
    assert_string_equal(zombie.pod_uid, UID);
    assert_string_equal(gone.pod_uid, UID);
    assert_int_equal(gone.start_ticks, alive.start_ticks);
    assert_int_equal(late.kind, PROCESS_GONE);
}

// The exit status says what went wrong; 77: there are no cgroup namespaces.
static int look_from_inside(const char *own, pid_t other, pid_t sibling)
{
    struct process_map *m;
    struct process_identity p;
    if (!join(own) || unshare(CLONE_NEWCGROUP) < 0)
        return 77;
    if (process_map_new("/proc", &m) < 0)
        return 2;
    int r = 0;
    if (process_map_view(m) == PROCESS_VIEW_PRIVATE)
        r = 77;
    else if (!process_map_find(m, (uint32_t)other, T0, &p) || p.kind != PROCESS_POD ||
             strcmp(p.pod_uid, UID) != 0 || strcmp(p.container_id, ID) != 0 || p.own_pod)
        r = 3;
    else if (!process_map_find(m, (uint32_t)sibling, T0, &p) || !p.own_pod)
        r = 4;
    else if (!process_map_find(m, (uint32_t)getpid(), T0, &p) || !p.own_pod)
        r = 5;
    process_map_free(m);
    return r;
}

static int run_inside(const char *own, const char *other, const char *beside)
{
    int status = 0;
    make_group(own);
    make_group(other);
    make_group(beside);
    pid_t stranger = start_in(other), sibling = start_in(beside);
    pid_t reader = fork();
    assert_true(reader >= 0);
    if (reader == 0) {
        (void)alarm(60);
        _exit(look_from_inside(own, stranger, sibling));
    }
    (void)waitpid(reader, &status, 0);
    end(stranger);
    end(sibling);
    remove_groups(own);
    remove_groups(other);
    remove_groups(beside);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void paths_from_inside_a_cgroup_namespace_name_pods_and_our_own(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"kubepods/burstable/pod" OWN "/" ID2, "kubepods/burstable/pod" UID "/" ID,
         "kubepods/burstable/pod" OWN "/" ID},
        {"kubepods/burstable/pod" OWN "/" ID2, "kubepods/pod" UID "/" ID,
         "kubepods/burstable/pod" OWN "/" ID},
        {"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" OWN_
         ".slice/cri-containerd-" ID2 ".scope",
         "kubepods.slice/kubepods-pod" UID_ ".slice/cri-containerd-" ID ".scope",
         "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" OWN_
         ".slice/cri-containerd-" ID ".scope"},
    };
    skip_without_hierarchy();
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int r = run_inside(rows[i][0], rows[i][1], rows[i][2]);
        if (r == 77) {
            print_message("skipped: no cgroup namespace can be had, or pids are private\n");
            skip();
        }
        assert_int_equal(r, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_processes_in_every_shape_have_their_pod_and_container),
        cmocka_unit_test(trap_28_a_real_process_that_ended_is_known_for_30_s),
        cmocka_unit_test(paths_from_inside_a_cgroup_namespace_name_pods_and_our_own),
    };
    return cmocka_run_group_tests(tests, find_hierarchy, remove_hierarchy);
}
