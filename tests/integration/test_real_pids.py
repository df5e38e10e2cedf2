# SPDX-License-Identifier: Apache-2.0
"""Real processes in real cgroups of a kubelet's shape: the simulated driver lists their pids, the exporter finds their
pods through /proc."""
import contextlib
import os
import pathlib
import subprocess
import uuid

import pytest

from containerd_node import Absent, containerd
from harness import exporter_on
from kubelet_peers import GrpcKubelet, socket_folder

import pods_proto  # noqa: E402  (sim/ is on the path by harness)

LIST_PODS = "/v1alpha1.Pods/ListPods"
OWN_PIDS = pytest.mark.skipif(os.readlink("/proc/self/ns/pid") != "pid:[4026531836]",
                              reason="pids of this machine are private")

HIERARCHIES = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"]


@contextlib.contextmanager
def pod_process(uid, container_id):
    """A process that sleeps in a group of that pod, as the cgroupfs driver names it."""
    for hierarchy in map(pathlib.Path, HIERARCHIES):
        top = hierarchy / f"podgpu-it-{os.getpid()}-{uid[:8]}"
        group = top / "kubepods" / f"pod{uid}" / container_id
        try:
            group.mkdir(parents=True)
            break
        except OSError:
            continue
    else:
        pytest.skip("no cgroup can be made here")
    process = subprocess.Popen(["sleep", "120"])
    try:
        (group / "cgroup.procs").write_text(str(process.pid))
        yield process
    finally:
        process.kill()
        process.wait()
        for folder in (group, group.parent, group.parent.parent, top):
            folder.rmdir()


def value(page, family, want):
    """Of the container; -1: it has none such."""
    found = [float(v) for have, v in page.samples(f"podgpu_container_gpu_{family}") if want.items() <= have.items()]
    return found[0] if len(found) == 1 else -1


def pods_answer(pods):
    """The kubelet's: pods are {name: (uid, {container: its runtime's id})}."""
    def body(name, uid, containers):
        return {"metadata": {"name": name, "namespace": "team", "uid": uid},
                "spec": {"nodeName": "node", "containers": [{"name": c, "image": "i"} for c in containers]},
                "status": {"phase": "Running", "containerStatuses": [
                    {"name": c, "ready": True, "containerID": f"containerd://{i}"} for c, i in containers.items()]}}
    messages = [pods_proto.pod_bytes(body(name, uid, containers)) for name, (uid, containers) in pods.items()]
    return pods_proto.MESSAGES["ListPodsResponse"](pods=messages).SerializeToString()


@contextlib.contextmanager
def shared_gpu(pods):
    """The exporter on a time-sliced GPU that nobody works on yet, with a replica for each container of these pods."""
    with socket_folder() as folder, GrpcKubelet(folder / "pods.sock", lambda *_: pods_answer(pods), methods=(LIST_PODS,)), \
            exporter_on("timeslice", "--proc-path=/proc", "--collect-interval=1000",
                        f"--pods-api-socket={folder}/pods.sock") as (node, exporter):
        node.command("pods clear")
        for pid in (6101, 6102, 6103, 6999):
            with contextlib.suppress(Exception):
                node.command(f"process end pid={pid}")
        held = [(pod, uid, c) for pod, (uid, containers) in pods.items() for c in containers]
        for replica, (pod, uid, name) in enumerate(held):
            node.command(f"pods add {pod} namespace=team container={name} device=gpu0::{replica} uid={uid}")
        yield node, exporter


def shares_are(exporter, wanted):
    """wanted: {(pod, container): (memory in MiB, load)}: each has its own memory and process, and busy time as its load."""
    def of(page, key, family):
        return value(page, family, {"namespace": "team", "pod": key[0], "container": key[1]})
    page = exporter.page_when(
        lambda p: all(of(p, key, "busy_seconds_total") > 1 and of(p, key, "memory_used_bytes") == mib << 20
                      for key, (mib, _) in wanted.items()), 30, "busy time and memory of each")
    busy = {key: of(page, key, "busy_seconds_total") for key in wanted}
    whole, load = sum(busy.values()), sum(load for _, load in wanted.values())
    for key, (_, own) in wanted.items():
        assert of(page, key, "processes") == 1, key
        assert busy[key] / whole == pytest.approx(own / load, abs=0.05), busy


@OWN_PIDS
def test_two_pods_of_one_gpu_have_what_their_real_processes_used():
    pods = {"heavy": (str(uuid.uuid4()), {"main": "a1" * 32}), "light": (str(uuid.uuid4()), {"main": "b2" * 32})}
    with contextlib.ExitStack() as stack:
        real = {name: stack.enter_context(pod_process(uid, ids["main"])) for name, (uid, ids) in pods.items()}
        node, exporter = stack.enter_context(shared_gpu(pods))
        node.command(f"process add device=gpu0 pid={real['heavy'].pid} memory=300MiB load=0.6")
        node.command(f"process add device=gpu0 pid={real['light'].pid} memory=200MiB load=0.2")
        shares_are(exporter, {("heavy", "main"): (300, 0.6), ("light", "main"): (200, 0.2)})


def remove_groups(top):
    for hierarchy in {pathlib.Path("/sys/fs/cgroup"), *pathlib.Path("/sys/fs/cgroup").iterdir()}:
        for folder, _, _ in os.walk(hierarchy / top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


@contextlib.contextmanager
def containerd_pods(pods):
    """Pods that containerd runs; pods are {name: (uid, containers)}. Yields {name: {container: (id, pid)}}."""
    top = f"podgpu-it-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        stack.callback(remove_groups, top)
        try:
            runtime = stack.enter_context(containerd())
            running = {name: runtime.run_pod(name, "team", uid, f"/{top}/kubepods/besteffort/pod{uid}", containers)
                       for name, (uid, containers) in pods.items()}
        except Absent as reason:
            pytest.skip(f"containerd does not run pods here: {reason}")
        yield running


@OWN_PIDS
def test_containers_that_containerd_runs_are_known_by_their_processes():
    uids = {"trainer": str(uuid.uuid4()), "web": str(uuid.uuid4())}
    wanted = {"trainer": (uids["trainer"], ("main", "side")), "web": (uids["web"], ("main",))}
    with containerd_pods(wanted) as running:
        pods = {name: (uids[name], {c: i for c, (i, _) in containers.items()}) for name, containers in running.items()}
        with shared_gpu(pods) as (node, exporter):
            loads = {("trainer", "main"): (300, 0.4), ("trainer", "side"): (100, 0.1), ("web", "main"): (200, 0.3)}
            for (pod, container), (mib, load) in loads.items():
                node.command(f"process add device=gpu0 pid={running[pod][container][1]} memory={mib}MiB load={load}")
            shares_are(exporter, loads)


@OWN_PIDS
def test_real_pids_in_real_cgroups_are_their_pods():
    uid = str(uuid.uuid4())
    with pod_process(uid, "0123456789abcdef" * 4) as real, \
            exporter_on("timeslice", "--proc-path=/proc", "--collect-interval=1000") as (node, exporter):
        node.command("pods clear")
        for pid in (6101, 6102, 6103, 6999):
            with contextlib.suppress(Exception):
                node.command(f"process end pid={pid}")
        node.command(f"pods add trainer namespace=team container=main device=gpu0::0 uid={uid}")
        node.command(f"process add device=gpu0 pid={real.pid} memory=300MiB load=0.5")
        want = {"namespace": "team", "pod": "trainer", "container": "main"}
        page = exporter.page_when(
            lambda p: value(p, "busy_seconds_total", want) > 1 and value(p, "memory_used_bytes", want) == 300 << 20,
            seconds=20,
            what="the pod's busy time and memory")
        assert value(page, "processes", want) == 1
