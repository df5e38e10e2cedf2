# SPDX-License-Identifier: Apache-2.0
"""What the kernel and the kubelet write down about the pods of a simulated node: a procfs and a /var/log.

proc/PID/{cgroup,stat,comm}, with the cgroup path of the process's pod and container in the shape that the scenario
chooses (`cgroups:`, shapes below); proc/self, 1 and 2 are what a program in the host's PID namespace sees, or, private,
what one without hostPID does: nobody. log/pods/NAMESPACE_POD_UID/CONTAINER/0.log and
log/containers/POD_NAMESPACE_CONTAINER-ID.log, which outlive their pod by LOG_STAYS_S.
"""
import contextlib
import os
import shutil
import threading
from pathlib import Path

from node import NS, Node

LOG_STAYS_S = 30
INITIAL_PID_NAMESPACE, INITIAL_CGROUP_NAMESPACE = 4026531836, 4026531835
FOREVER = (1 << 63) - 1
CLOCK_TICK_NS = NS // 100


def _slices(prefix, qos, uid):
    """systemd's form: each slice carries the names of those above it."""
    uid = uid.replace("-", "_")
    if qos == "guaranteed":
        return f"/{prefix}kubepods.slice/{prefix}kubepods-pod{uid}.slice"
    return f"/{prefix}kubepods.slice/{prefix}kubepods-{qos}.slice/{prefix}kubepods-{qos}-pod{uid}.slice"


def _plain(qos, uid, container):
    return f"/kubepods/{'' if qos == 'guaranteed' else qos + '/'}pod{uid}/{container}"


def cgroup(shape, qos, uid, container):
    """/proc/PID/cgroup of a container's process."""
    scope = {"crio": "crio", "docker": "docker"}.get(shape, "cri-containerd")
    last = _slices("", qos, uid).rsplit("/", 1)[1]
    if shape == "cgroupfs":
        return f"0::{_plain(qos, uid, container)}\n"
    if shape == "mismatch":  # containerd told of the wrong driver
        return f"0::/system.slice/containerd.service/{last}:cri-containerd:{container}\n"
    if shape == "kind":
        return f"0::/kubelet.slice{_slices('kubelet-', qos, uid)}/cri-containerd-{container}.scope\n"
    if shape == "hybrid":
        path = _plain(qos, uid, container)
        return (f"12:memory:{path}\n11:cpu,cpuacct:{path}\n10:pids:{path}\n1:name=systemd:{path}\n"
                "0::/system.slice/containerd.service\n")
    if shape == "inside":  # from within a cgroup namespace of a burstable pod
        up = {"burstable": "/../..", "guaranteed": "/../../..", "besteffort": "/../../../kubepods-besteffort.slice"}[qos]
        return f"0::{up}/{last}/cri-containerd-{container}.scope\n"
    return f"0::{_slices('', qos, uid)}/{scope}-{container}.scope\n"


def stat(pid, name, ticks):
    """/proc/PID/stat; the start time is field 22."""
    return f"{pid} ({name[:15]}) S 1 {pid} {pid} 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} " + "0 " * 29 + "0\n"


class Files:
    """Keeps both in step with a node. sync() does nothing while nothing has changed."""

    def __init__(self, path, *, proc=None, logs=None, private=False):
        self.node = Node(path)
        self.proc, self.logs, self.private = proc and Path(proc), logs and Path(logs), private
        self.lock = threading.Lock()
        self.seen = None  # generation
        self.until = 0    # until then nothing begins or ends by itself
        self.written = {}  # pid: index in the node
        self.logged = {}   # pod index: when it ended, None: it is there
        if self.proc:
            self._write_system()
        if self.logs:
            (self.logs / "pods").mkdir(parents=True)
            (self.logs / "containers").mkdir()

    def close(self):
        with self.lock:
            self.node.close()
            self.node = None

    def sync(self):
        with self.lock:
            now, generation = (self.node.now(), self.node.generation) if self.node else (0, self.seen)
            if generation == self.seen and now < self.until:
                return
            pods = {p["index"]: p for p in self.node.all_pods()}
            times = []
            if self.proc:
                times += self._sync_processes(pods, now)
            if self.logs:
                times += self._sync_logs(pods, now)
            self.seen, self.until = generation, min((t for t in times if t > now), default=FOREVER)

    # --- procfs ---

    def _write_system(self):
        namespace = 4026532201 if self.private else INITIAL_PID_NAMESPACE
        inside = self.node.cgroups == "inside"
        own = "0::/\n" if inside else "0::/system.slice/podgpu-exporter.service\n"
        for pid, name, group in (("self", "podgpu-exporter", own), ("1", "podgpu-exporter" if self.private else "systemd",
                                                                    own if self.private else "0::/init.scope\n")):
            self._write(self.proc / pid, 1 if self.private else os.getpid(), name, group, 1)
        if not self.private:
            self._write(self.proc / "2", 2, "kthreadd", "0::/\n", 1)
        (self.proc / "self" / "ns").mkdir()
        os.symlink(f"pid:[{namespace}]", self.proc / "self" / "ns" / "pid")
        group_namespace = 4026532202 if inside else INITIAL_CGROUP_NAMESPACE
        os.symlink(f"cgroup:[{group_namespace}]", self.proc / "self" / "ns" / "cgroup")

    @staticmethod
    def _write(folder, pid, name, group, ticks):
        """The whole directory at once, as a process appears."""
        new = folder.with_name(f".{folder.name}")
        new.mkdir(parents=True)
        (new / "comm").write_text(f"{name[:15]}\n", encoding="utf-8", errors="replace")
        (new / "cgroup").write_text(group, encoding="utf-8")
        (new / "stat").write_text(stat(pid, name, ticks), encoding="utf-8", errors="replace")
        new.rename(folder)

    def _remove(self, pid):
        folder = self.proc / str(pid)
        gone = self.proc / f".{pid}"
        folder.rename(gone)
        shutil.rmtree(gone)

    def _group_of(self, process, pods):
        pod = pods.get(process["pod"])
        if pod is None:
            return f"0::/system.slice/{process['name']}.service\n"
        container = pod["containers"][process["container"] - pod["first_container"]]
        qos = pod["extra"].get("qos", "burstable")
        return cgroup(self.node.cgroups, qos, pod["config_hash"] or pod["uid"], container["id"])

    def _sync_processes(self, pods, now):
        rows = self.node.all_processes()
        alive = {} if self.private else {p["pid"]: p for p in rows if p["start_ns"] <= now < p["end_ns"]}
        for pid, index in list(self.written.items()):
            if pid not in alive or alive[pid]["index"] != index:
                self._remove(pid)
                del self.written[pid]
        for pid, process in alive.items():
            if pid not in self.written and self._add(process, pods):
                self.written[pid] = process["index"]
        if any(p["real"] for p in alive.values()):
            return [now + 1]  # whose end nobody announces
        return [t for p in rows for t in (p["start_ns"], p["end_ns"])]

    def _add(self, process, pods):
        pid, folder = process["pid"], self.proc / str(process["pid"])
        if not process["real"]:
            ticks = 1000 + process["index"] + max(0, process["start_ns"]) // CLOCK_TICK_NS
            self._write(folder, pid, process["name"], self._group_of(process, pods), ticks)
            return True
        new = folder.with_name(f".{pid}")
        try:
            new.mkdir()
            for name in ("comm", "cgroup", "stat"):
                (new / name).write_bytes(Path(f"/proc/{pid}/{name}").read_bytes())
            new.rename(folder)
        except OSError:  # it has ended
            shutil.rmtree(new, ignore_errors=True)
            return False
        return True

    # --- /var/log ---

    def _log_names(self, pod):
        """The pod's directory, and (container, link) of each."""
        uid = pod["config_hash"] or pod["uid"]
        folder = self.logs / "pods" / f"{pod['namespace']}_{pod['name']}_{uid}"
        return folder, [(c["name"], self.logs / "containers" / f"{pod['name']}_{pod['namespace']}_{c['name']}-{c['id']}.log")
                        for c in pod["containers"]]

    def _sync_logs(self, pods, now):
        times = []
        for index, pod in pods.items():
            times += [pod["start_ns"], pod["end_ns"]]
            there = pod["start_ns"] <= now < pod["end_ns"] and pod["phase"] != "Pending"
            if there and index not in self.logged:
                self._add_logs(pod)
                self.logged[index] = None
            elif not there and self.logged.get(index, 0) is None:
                self.logged[index] = now
            ended = self.logged.get(index)
            if ended is not None and now >= ended + LOG_STAYS_S * NS:
                self._remove_logs(pod)
                del self.logged[index]
            elif ended is not None:
                times.append(ended + LOG_STAYS_S * NS)
        return times

    def _add_logs(self, pod):
        folder, links = self._log_names(pod)
        for container, link in links:
            (folder / container).mkdir(parents=True, exist_ok=True)
            log = folder / container / "0.log"
            log.touch()
            with contextlib.suppress(FileExistsError):
                link.symlink_to(log.resolve())

    def _remove_logs(self, pod):
        folder, links = self._log_names(pod)
        for _, link in links:
            link.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
