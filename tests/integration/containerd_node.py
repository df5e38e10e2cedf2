# SPDX-License-Identifier: Apache-2.0
"""Debian's containerd for a test: its own root, state and socket, an image made by hand, pods through the CRI
(runtime.v1 of k8s.io/cri-api)."""
import contextlib
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

import grpc

from harness import wait_until

IMAGE = "podgpu.test/pause:1"
CONFIG = """version = 2
root = "{0}/root"
state = "{0}/state"
disabled_plugins = []
[grpc]
  address = "{0}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{0}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{1}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
"""


class Absent(Exception):
    """It does not run on this machine, and why."""


# --- Protobuf by hand ---

def number(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def field(tag, value):
    if isinstance(value, int):
        return number(tag << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(tag << 3 | 2) + number(len(data)) + data


def fields(data):
    """{tag: last value} of a message of strings, messages and numbers."""
    found, at = {}, 0

    def take():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(data):
        key = take()
        value = take()
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        found[key >> 3] = value
    return found


# --- The image ---

def blob(files, data):
    digest = hashlib.sha256(data).hexdigest()
    files[f"blobs/sha256/{digest}"] = data
    return f"sha256:{digest}"


def tar_of(files, mode=0o644):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def image_tar(folder):
    """One static program that sleeps for ever, as an OCI layout."""
    program = folder / "pause"
    subprocess.run(["gcc", "-static", "-O1", "-s", "-x", "c", "-", "-o", program], check=True,
                   input=b"#include <unistd.h>\nint main(void) { for (;;) pause(); }\n")
    files = {}
    layer = tar_of({"pause": program.read_bytes()}, 0o755)
    base = "application/vnd.oci.image."

    def descriptor(kind, data, **more):
        return {"mediaType": base + kind, "digest": blob(files, data), "size": len(data), **more}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/pause"]},
                         "rootfs": {"type": "layers", "diff_ids": [blob(files, layer)]}, "history": []}).encode()
    manifest = json.dumps({"schemaVersion": 2, "mediaType": base + "manifest.v1+json",
                           "config": descriptor("config.v1+json", config),
                           "layers": [descriptor("layer.v1.tar", layer)]}).encode()
    index = {"schemaVersion": 2, "manifests": [descriptor(
        "manifest.v1+json", manifest, annotations={"io.containerd.image.name": IMAGE})]}
    files["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
    files["index.json"] = json.dumps(index).encode()
    path = folder / "pause.tar"
    path.write_bytes(tar_of(files))
    return path


# --- The daemon ---

class Containerd:
    def __init__(self, folder):
        self.folder = folder
        self.socket = folder / "containerd.sock"
        self.log_path = folder / "log"
        (folder / "config.toml").write_text(CONFIG.format(folder, IMAGE))
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(["containerd", "--config", folder / "config.toml"], stdout=log, stderr=log)
        self.channel = grpc.insecure_channel(f"unix:{self.socket}")
        self.sandboxes = []

    def call(self, method, request, seconds=20):
        try:
            return self.channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")(request, timeout=seconds)
        except grpc.RpcError as error:
            raise Absent(f"{method}: {error.details()}") from error

    def start(self):
        wait_until(lambda: self.process.poll() is not None or self.socket.exists(), 20, "containerd listens")
        if self.process.poll() is not None:
            raise Absent("containerd ended: " + self.log_path.read_text()[-300:])
        loaded = subprocess.run(["ctr", "-a", self.socket, "-n", "k8s.io", "images", "import", "--snapshotter", "native",
                                 image_tar(self.folder)], capture_output=True, text=True, timeout=60)
        if loaded.returncode:
            raise Absent(f"no image: {loaded.stderr[-300:]}")

    def run_pod(self, name, namespace, uid, parent, containers=("main",)):
        """A pod on the host's network, as the kubelet asks for one: {container: (id, pid)}."""
        metadata = field(1, name) + field(2, uid) + field(3, namespace)
        on_host = field(1, 2)  # NamespaceOption.network: NODE
        linux = field(1, parent) + field(2, field(1, on_host))
        config = field(1, metadata) + field(3, str(self.folder)) + field(8, linux)
        sandbox = fields(self.call("RunPodSandbox", field(1, config)))[1].decode()
        self.sandboxes.append(sandbox)
        return {c: self.run_container(c, sandbox, config, on_host) for c in containers}

    def run_container(self, name, sandbox, sandbox_config, namespaces):
        config = field(1, field(1, name)) + field(2, field(1, IMAGE)) + field(15, field(2, field(3, namespaces)))
        request = field(1, sandbox) + field(2, config) + field(3, sandbox_config)
        container_id = fields(self.call("CreateContainer", request))[1].decode()
        self.call("StartContainer", field(1, container_id))
        status = fields(self.call("ContainerStatus", field(1, container_id) + field(2, 1)))  # verbose: info has the pid
        return container_id, json.loads(fields(status[2])[2])["pid"]

    def stop(self):
        for sandbox in self.sandboxes:
            with contextlib.suppress(Absent):
                self.call("StopPodSandbox", field(1, sandbox))
                self.call("RemovePodSandbox", field(1, sandbox))
        self.channel.close()
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def containerd():
    """One that runs; Absent where it can't."""
    if os.geteuid() != 0 or not shutil.which("containerd") or not shutil.which("runc"):
        raise Absent("no containerd, or no right to run it")
    with tempfile.TemporaryDirectory(prefix="podgpu-ctr-", ignore_cleanup_errors=True) as name:
        daemon = Containerd(pathlib.Path(name))
        try:
            daemon.start()
            yield daemon
        finally:
            daemon.stop()
