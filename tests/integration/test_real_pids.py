# SPDX-License-Identifier: Apache-2.0
"""Real processes in real cgroups of a kubelet's shape: the simulated driver lists their pids, the exporter finds their
pods through /proc."""
import contextlib
import os
import pathlib
import subprocess
import uuid

import pytest

from harness import exporter_on

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


@pytest.mark.skipif(os.readlink("/proc/self/ns/pid") != "pid:[4026531836]", reason="pids of this machine are private")
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
