// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macros.h"
#include "kube/process_cgroup.h"

#define UID "0d9c6e2a-4f6b-4b7e-9c51-8a2f0e6d1b34"
#define UID_ "0d9c6e2a_4f6b_4b7e_9c51_8a2f0e6d1b34"
#define UPPER_ "0D9C6E2A_4F6B_4B7E_9C51_8A2F0E6D1B34"
#define INNER "ffffffff-4f6b-4b7e-9c51-8a2f0e6d1b34"
#define HASH "8f1d2c3b4a5968778695a4b3c2d1e0f9"
#define HEX "0123456789abcdef"
#define ID HEX HEX HEX HEX
#define ID2 "f" HEX HEX HEX "0123456789abcde"
#define SLICE "kubepods-burstable-pod" UID_ ".slice"
#define SLICES "/kubepods.slice/kubepods-burstable.slice/" SLICE

struct shape {
    const char *name, *file, *uid, *id;
    bool own_pod;
};

static void check(const struct shape *shapes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct shape *s = &shapes[i];
        struct process_cgroup out;
        bool found = process_cgroup_parse(sv_from(s->file), &out);
        if (found != (s->uid[0] || s->own_pod))
            fail_msg("%s", s->name);
        assert_string_equal(out.pod_uid, s->uid);
        assert_string_equal(out.container_id, s->id);
        assert_int_equal(out.own_pod, s->own_pod);
    }
}

static void every_shape_of_a_pods_path_is_known(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {"cgroupfs, burstable", "0::/kubepods/burstable/pod" UID "/" ID "\n", UID, ID, false},
        {"cgroupfs, best effort", "0::/kubepods/besteffort/pod" UID "/" ID, UID, ID, false},
        {"cgroupfs, guaranteed", "0::/kubepods/pod" UID "/" ID, UID, ID, false},
        {"systemd, containerd", "0::" SLICES "/cri-containerd-" ID ".scope", UID, ID, false},
        {"systemd, guaranteed",
         "0::/kubepods.slice/kubepods-pod" UID_ ".slice/cri-containerd-" ID ".scope", UID, ID,
         false},
        {"systemd, CRI-O", "0::" SLICES "/crio-" ID ".scope", UID, ID, false},
        {"systemd, CRI-O with a container group", "0::" SLICES "/crio-" ID ".scope/container", UID,
         ID, false},
        {"systemd, conmon watches a container and is none",
         "0::" SLICES "/crio-conmon-" ID ".scope", UID, "", false},
        {"systemd, docker", "0::" SLICES "/docker-" ID ".scope", UID, ID, false},
        {"podman's kubelet", "0::" SLICES "/libpod-" ID ".scope", UID, ID, false},
        {"containerd with the other driver's paths",
         "0::/system.slice/containerd.service/" SLICE ":cri-containerd:" ID, UID, ID, false},
        {"kind, systemd",
         "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
         "kubelet-kubepods-burstable-pod" UID_ ".slice/cri-containerd-" ID ".scope",
         UID, ID, false},
        {"kind, cgroupfs", "0::/docker/" ID2 "/kubelet/kubepods/burstable/pod" UID "/" ID, UID, ID,
         false},
        {"--cgroup-root", "0::/machines/kubepods/pod" UID "/" ID, UID, ID, false},
        {"an init system in the container", "0::/kubepods/pod" UID "/" ID "/init.scope", UID, ID,
         false},
        {"docker in the container", "0::/kubepods/pod" UID "/" ID "/docker/" ID2, UID, ID, false},
        {"a service in the container", "0::" SLICES "/crio-" ID ".scope/system.slice/x.service",
         UID, ID, false},
        {"the sandbox", "0::/kubepods/burstable/pod" UID "/" ID2, UID, ID2, false},
        {"the pod's own level", "0::/kubepods/burstable/pod" UID, UID, "", false},
        {"a static pod, cgroupfs", "0::/kubepods/burstable/pod" HASH "/" ID, HASH, ID, false},
        {"a static pod, systemd",
         "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" HASH
         ".slice/cri-containerd-" ID ".scope",
         HASH, ID, false},
        {"a pod in a pod: the outermost counts",
         "0::/kubepods/pod" UID "/" ID "/kubelet/kubepods/pod" INNER "/" ID2, UID, ID, false},
        {"capitals",
         "0::/kubepods.slice/kubepods-pod" UPPER_ ".slice/cri-containerd-"
         "ABCDEF0123456789" HEX HEX HEX ".scope",
         UID, "abcdef0123456789" HEX HEX HEX, false},
        {"the group is gone (trap 29)", "0::/kubepods/burstable/pod" UID "/" ID " (deleted)\n", UID,
         ID, false},
        {"Kata: the VMM stands at the pod's level (trap 39)",
         "0::/kubepods.slice/kubepods-pod" UID_ ".slice/kata_overhead", UID, "", false},
    };
    check(shapes, ARRAY_SIZE(shapes));
}

static void paths_from_inside_another_cgroup_namespace_are_known(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {"same QoS, systemd", "0::/../../" SLICE "/cri-containerd-" ID ".scope", UID, ID, false},
        {"other QoS, systemd",
         "0::/../../../kubepods-pod" UID_ ".slice/cri-containerd-" ID ".scope", UID, ID, false},
        {"same QoS, cgroupfs", "0::/../../pod" UID "/" ID, UID, ID, false},
        {"other QoS, cgroupfs", "0::/../../../burstable/pod" UID "/" ID, UID, ID, false},
        {"own pod, cgroupfs", "0::/../" ID, "", ID, true},
        {"own pod, systemd", "0::/../cri-containerd-" ID ".scope", "", ID, true},
        {"own pod, a level in the container", "0::/../../crio-" ID ".scope/container", "", ID,
         true},
        {"own pod, over several lines", "4:memory:/../" ID "\n0::/../" ID2 "\n", "", ID, true},
        {"a line with a UID is better", "4:pids:/../" ID "\n0::/../../pod" UID "/" ID2, UID, ID2,
         false},
        {"the first process", "0::/../../../..", "", "", false},
        {"ourselves", "0::/", "", "", false},
        {"a docker container beside the kubelet's", "0::/../../../docker/" ID, "", "", false},
        {"a host's docker container, far up", "0::/../../../" ID, "", "", false},
        {"a sibling that is no container", "0::/../init.scope", "", "", false},
    };
    check(shapes, ARRAY_SIZE(shapes));
}

static void what_is_no_pod_does_not_match(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {"nothing", "", "", "", false},
        {"root", "0::/\n", "", "", false},
        {"a user", "0::/user.slice/user-1000.slice/session-3.scope", "", "", false},
        {"a service", "0::/system.slice/sshd.service", "", "", false},
        {"docker", "0::/docker/" ID, "", "", false},
        {"docker, systemd", "0::/system.slice/docker-" ID ".scope", "", "", false},
        {"Slurm", "0::/slurm/uid_1000/job_7/step_0", "", "", false},
        {"Slurm, v2", "0::/system.slice/slurmstepd.scope/job_7/step_0/user", "", "", false},
        {"podman", "0::/machine.slice/podman-" UID ".scope", "", "", false},
        {"a word that ends in pod", "0::/tripod" UID "/" ID, "", "", false},
        {"a UID without pod", "0::/kubepods/" UID "/" ID, "", "", false},
        {"a short UID", "0::/kubepods/pod0d9c6e2a-4f6b-4b7e-9c51-8a2f0e6d1b3/" ID, "", "", false},
        {"a long UID", "0::/kubepods/pod" UID "0/" ID, "", "", false},
        {"dashes elsewhere", "0::/kubepods/pod0d9c6e2-a4f6b-4b7e-9c51-8a2f0e6d1b34/", "", "",
         false},
        {"no hex", "0::/kubepods/podgd9c6e2a-4f6b-4b7e-9c51-8a2f0e6d1b34", "", "", false},
        {"31 digits", "0::/kubepods/pod8f1d2c3b4a5968778695a4b3c2d1e0f", "", "", false},
        {"33 digits", "0::/kubepods/pod" HASH "0", "", "", false},
        {"no line", "kubepods/pod" UID "/" ID, "", "", false},
        {"one colon", "0:/kubepods", "", "", false},
    };
    check(shapes, ARRAY_SIZE(shapes));
}

static void what_follows_the_pod_is_a_container_only_with_exactly_64_digits(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {"63", "0::/kubepods/pod" UID "/" HEX HEX HEX "0123456789abcde", UID, "", false},
        {"65", "0::/kubepods/pod" UID "/" ID "0", UID, "", false},
        {"an unknown prefix", "0::/kubepods/pod" UID "/x-" ID, UID, "", false},
        {"in a later part", "0::/kubepods/pod" UID "/x/docker-" ID ".scope", UID, ID, false},
        {"the first of two", "0::/kubepods/pod" UID "/" ID "/" ID2, UID, ID, false},
    };
    check(shapes, ARRAY_SIZE(shapes));
}

static void memorys_line_is_better_than_cpus_and_cpus_than_others(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {"memory last",
         "9:pids:/kubepods/pod" INNER "/" ID2 "\n3:cpu,cpuacct:/kubepods/pod" INNER "/" ID2
         "\n2:memory:/kubepods/pod" UID "/" ID "\n",
         UID, ID, false},
        {"memory leads nowhere",
         "9:pids:/kubepods/pod" INNER "/" ID2 "\n3:cpu,cpuacct:/kubepods/pod" UID "/" ID
         "\n2:memory:/system.slice/x\n",
         UID, ID, false},
        {"cpuset and cpuacct are others",
         "9:cpuacct:/kubepods/pod" UID "/" ID "\n8:cpuset:/kubepods/pod" INNER "/" ID2 "\n", UID,
         ID, false},
        {"the hybrid's own line leads to the runtime",
         "12:memory:/kubepods/besteffort/pod" UID "/" ID "\n1:name=systemd:/kubepods/pod" UID "/" ID
         "\n0::/system.slice/containerd.service\n",
         UID, ID, false},
        {"a name with a comma in a path", "5:net_cls,net_prio:/\n0::/kubepods/pod" UID "/" ID "\n",
         UID, ID, false},
    };
    check(shapes, ARRAY_SIZE(shapes));
}

// Cut at any byte it names this pod, or none; never another.
static void a_file_cut_short_names_the_same_pod_or_none(void **state)
{
    (void)state;
    static const char file[] = "12:memory:" SLICES "/cri-containerd-" ID ".scope\n0::/\n";
    for (size_t n = 0; n < sizeof(file); n++) {
        struct process_cgroup out;
        bool found = process_cgroup_parse((struct sv){file, n}, &out);
        assert_string_equal(out.pod_uid, found ? UID : "");
        assert_true(out.container_id[0] == '\0' || strcmp(out.container_id, ID) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_of_a_pods_path_is_known),
        cmocka_unit_test(paths_from_inside_another_cgroup_namespace_are_known),
        cmocka_unit_test(what_is_no_pod_does_not_match),
        cmocka_unit_test(what_follows_the_pod_is_a_container_only_with_exactly_64_digits),
        cmocka_unit_test(memorys_line_is_better_than_cpus_and_cpus_than_others),
        cmocka_unit_test(a_file_cut_short_names_the_same_pod_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
