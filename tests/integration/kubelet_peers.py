"""Kubelets for the tests: a real gRPC server, and a scripted HTTP/2 peer that breaks the protocol frame by frame."""
import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import grpc
import hpack
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hyperframe import frame as h2frame

from harness import BUILD, SLOW

V1 = "/v1.PodResourcesLister/List"
V1ALPHA1 = "/v1alpha1.PodResourcesLister/List"
ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"
PROBE = BUILD / "tests" / "tools" / "pod_resources_probe"


# --- Answers, encoded by Google's protobuf from the public kubelet API's messages ---

def _message_classes():
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package="v1", syntax="proto3")

    def message(name, *fields):
        m = file.message_type.add(name=name)
        for number, field_name, kind, repeated in fields:
            label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            if isinstance(kind, str):
                m.field.add(name=field_name, number=number, label=label, type=field.TYPE_MESSAGE,
                            type_name=f".v1.{kind}")
            else:
                m.field.add(name=field_name, number=number, label=label, type=kind)

    string, int64, uint64 = field.TYPE_STRING, field.TYPE_INT64, field.TYPE_UINT64
    message("NUMANode", (1, "ID", int64, False))
    message("TopologyInfo", (1, "nodes", "NUMANode", True))
    message("ContainerDevices", (1, "resource_name", string, False), (2, "device_ids", string, True),
            (3, "topology", "TopologyInfo", False))
    message("ContainerMemory", (1, "memory_type", string, False), (2, "size", uint64, False),
            (3, "topology", "TopologyInfo", False))
    message("CDIDevice", (1, "name", string, False))
    message("ClaimResource", (1, "cdi_devices", "CDIDevice", True), (2, "driver_name", string, False),
            (3, "pool_name", string, False), (4, "device_name", string, False), (5, "share_id", string, False))
    message("DynamicResource", (2, "claim_name", string, False), (3, "claim_namespace", string, False),
            (4, "claim_resources", "ClaimResource", True))
    message("ContainerResources", (1, "name", string, False), (2, "devices", "ContainerDevices", True),
            (3, "cpu_ids", int64, True), (4, "memory", "ContainerMemory", True),
            (5, "dynamic_resources", "DynamicResource", True))
    message("PodResources", (1, "name", string, False), (2, "namespace", string, False),
            (3, "containers", "ContainerResources", True), (4, "cpu_ids", int64, True))
    message("ListPodResourcesResponse", (1, "pod_resources", "PodResources", True))
    message("AllocatableResourcesResponse", (1, "devices", "ContainerDevices", True), (2, "cpu_ids", int64, True),
            (3, "memory", "ContainerMemory", True))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return tuple(factory.GetPrototype(pool.FindMessageTypeByName("v1." + name))
                 for name in ("ListPodResourcesResponse", "AllocatableResourcesResponse"))


Response, AllocatableResponse = _message_classes()


def answer(*rows, plain_pods=0, numa_nodes=(0,)):
    """Bytes of an answer: rows are (namespace, pod, container, resource, id); one entry a device and NUMA node."""
    response = Response()
    for i in range(plain_pods):
        pod = response.pod_resources.add(name=f"plain-{i}", namespace="kube-system")
        pod.containers.add(name="c", cpu_ids=[0, 1, -1]).memory.add(memory_type="memory", size=1 << 40)
    pod = container = None
    for namespace, pod_name, container_name, resource, device_id in rows:
        if pod is None or (pod.namespace, pod.name) != (namespace, pod_name):
            pod = response.pod_resources.add(name=pod_name, namespace=namespace)
            container = None
        if container is None or container.name != container_name:
            container = pod.containers.add(name=container_name)
        for node in numa_nodes:
            devices = container.devices.add(resource_name=resource, device_ids=[device_id])
            devices.topology.nodes.add(ID=node)
    return response.SerializeToString()


def claim_answer(*rows, uid="6d1f0d2c-4f0e-4d53-9b1c-0a4b7a8a2f01", driver="gpu.nvidia.com", pool="node-1"):
    """Likewise of claims: rows are (pod, container, claim, [device, ...]); CDI names add up within a claim."""
    response = Response()
    pod = None
    for pod_name, container, claim, devices in rows:
        if pod is None or pod.name != pod_name:
            pod = response.pod_resources.add(name=pod_name, namespace="default")
        resources = pod.containers.add(name=container).dynamic_resources.add(claim_name=claim, claim_namespace="default")
        for i, device in enumerate(devices):
            resource = resources.claim_resources.add(driver_name=driver, pool_name=pool, device_name=device)
            for name in devices[:i + 1]:
                resource.cdi_devices.add(name=f"k8s.{driver}/claim={uid}-{name}")
    return response.SerializeToString()


def allocatable_answer(*rows):
    """What plugins offer: rows are (resource, id)."""
    response = AllocatableResponse(cpu_ids=[0, 1])
    for resource, device_id in rows:
        response.devices.add(resource_name=resource, device_ids=[device_id]).topology.nodes.add(ID=0)
    return response.SerializeToString()


def gpu_row(pod, device_id, container="main", namespace="default", resource="nvidia.com/gpu"):
    return namespace, pod, container, resource, device_id


def big_answer(megabytes):
    """8 pods that hold thousands of units each, as plugins that slice memory have it."""
    per_pod = megabytes * 1000 * 1000 // 8 // 70
    return answer(*(gpu_row(f"p{p}", f"GPU-b8ea3855-276c-c9cb-b366-c6fa655957c5-{p * per_pod + i}",
                            resource="volcano.sh/vgpu-memory") for p in range(8) for i in range(per_pod)))


@contextlib.contextmanager
def socket_folder():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="podgpu-kubelet-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- A real server ---

class GrpcKubelet:
    """grpcio behind the kubelet's socket. answer(method, context) gives the bytes; methods it lacks are unimplemented.
    Like the kubelet it listens under another name and renames that into place."""

    def __init__(self, path, answer, methods=(V1, V1ALPHA1)):
        self.path = path
        self.answer = answer
        self.methods = methods
        self.calls = []  # (monotonic, method)
        self.metadata = None
        self.start()

    def start(self):
        kubelet = self

        class Handler(grpc.GenericRpcHandler):
            def service(self, details):
                kubelet.calls.append((time.monotonic(), details.method))
                kubelet.metadata = dict(details.invocation_metadata)
                if details.method not in kubelet.methods:
                    return None
                return grpc.unary_unary_rpc_method_handler(
                    lambda request, context: kubelet.answer(details.method, context))

        self.pool = concurrent.futures.ThreadPoolExecutor(4)
        self.server = grpc.server(self.pool, handlers=[Handler()],
                                  options=[("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)])
        temporary = f"{self.path}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        assert self.server.add_insecure_port(f"unix:{temporary}") == 1
        self.server.start()
        os.rename(temporary, self.path)

    def stop(self):
        self.server.stop(None).wait()
        self.pool.shutdown()

    def restart(self):
        self.stop()
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


# --- A scripted peer ---

class Stream:
    """The server's end of one connection, below any library's idea of order."""

    def __init__(self, sock):
        self.socket = sock
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self.request_headers = []
        self.request_body = b""
        self.settings = {}
        self.frames = []  # everything received

    def receive_exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def receive_frame(self):
        frame, length = h2frame.Frame.parse_frame_header(memoryview(self.receive_exactly(9)))
        frame.parse_body(memoryview(self.receive_exactly(length)))
        self.frames.append(frame)
        return frame

    def receive_request(self):
        """Preface, SETTINGS and the whole request of stream 1."""
        assert self.receive_exactly(24) == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        while True:
            frame = self.receive_frame()
            if isinstance(frame, h2frame.SettingsFrame):
                self.settings.update(frame.settings)
            elif isinstance(frame, h2frame.HeadersFrame):
                self.request_headers = self.decoder.decode(frame.data)
            elif isinstance(frame, h2frame.DataFrame):
                self.request_body += frame.data
                if "END_STREAM" in frame.flags:
                    return

    def greet(self, settings=None):
        self.send(h2frame.SettingsFrame(0, settings=settings or {}), h2frame.SettingsFrame(0, flags=["ACK"]))

    def begin(self, settings=None):
        self.receive_request()
        self.greet(settings)

    def send(self, *frames):
        self.socket.sendall(b"".join(f.serialize() for f in frames))

    def headers(self, *pairs, end=False, **kwargs):
        flags = ["END_HEADERS"] + (["END_STREAM"] if end else [])
        return h2frame.HeadersFrame(1, data=self.encoder.encode(pairs), flags=flags, **kwargs)

    def head(self, **kwargs):
        return self.headers((":status", "200"), ("content-type", "application/grpc"), **kwargs)

    def trailers(self, status="0", message=""):
        return self.headers(("grpc-status", status), ("grpc-message", message), end=True)

    def trailers_only(self, status, message=""):
        return self.headers((":status", "200"), ("content-type", "application/grpc"), ("grpc-status", status),
                            ("grpc-message", message), end=True)

    @staticmethod
    def message(data, compressed=0):
        return bytes([compressed]) + len(data).to_bytes(4, "big") + data

    @staticmethod
    def data(data, size=16384, end=False):
        pieces = [data[i:i + size] for i in range(0, len(data), size)]
        return [h2frame.DataFrame(1, piece, flags=["END_STREAM"] if end and i == len(pieces) - 1 else [])
                for i, piece in enumerate(pieces)]

    def reply(self, data):
        self.send(self.head(), *self.data(self.message(data)), self.trailers())

    def wait_for_end(self):
        """What still comes until the client closes."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.receive_frame()


class RawKubelet:
    """Runs script(stream) for each connection, one after the other."""

    def __init__(self, path, script):
        self.script = script
        self.streams = []
        self.errors = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(16)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(30)
                stream = Stream(connection)
                self.streams.append(stream)
                try:
                    self.script(stream)
                except (EOFError, ConnectionError):
                    pass
                except Exception as error:  # told by the test, not lost in a thread
                    self.errors.append(error)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(30)
        assert not self.errors, self.errors


# --- The client under test ---

class Poll:
    def __init__(self, fields, text):
        self.result, self.status, self.polls, self.failures, self.rate_limited, self.shorts, self.seen, self.us = fields
        self.text = text
        self.at = time.monotonic()

    def __repr__(self):
        return str(vars(self))


class Probe:
    """One running pod_resources_probe. events: ("list", rows), ("none",), ("poll", Poll) in order."""

    def __init__(self, path, interval=50, deadline=5000, max_age=60000, grace=30000, resource="", **popen):
        self.process = subprocess.Popen(
            [str(popen.pop("program", PROBE)), str(path), *map(str, (interval, deadline, max_age, grace)), resource],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **popen)
        self.events = []
        self.log = ""
        self.changed = threading.Condition()
        self.threads = [threading.Thread(target=t, daemon=True) for t in (self.read_events, self.read_log)]
        for thread in self.threads:
            thread.start()

    def read_events(self):
        rows = None
        for line in self.process.stdout:
            line = line.rstrip("\n")
            if line.startswith("row\t"):
                rows.append(tuple(line.split("\t")[1:]))
                continue
            if line.startswith("list "):
                rows = []
                counts = tuple(map(int, line.split()[1:]))
                continue
            if line == "end":
                event = ("list", rows, counts)
            elif line == "none":
                event = ("none",)
            elif line.startswith("offered"):
                event = ("offered", line.split("\t")[1:])
            else:
                words = line.split(" ", 9)
                event = ("poll", Poll(map(int, words[1:9]), words[9]))
            with self.changed:
                self.events.append(event)
                self.changed.notify_all()

    def read_log(self):
        for line in self.process.stderr:
            with self.changed:
                self.log += line
                self.changed.notify_all()

    def wait(self, condition, seconds=10, what="event"):
        """condition(self) until it is truthy; returns that."""
        deadline = time.monotonic() + seconds * SLOW
        with self.changed:
            while True:
                value = condition(self)
                if value:
                    return value
                left = deadline - time.monotonic()
                if left <= 0 or self.process.poll() is not None:
                    raise AssertionError(f"no {what}; events: {self.events[-10:]}\nlog: {self.log[-2000:]}")
                self.changed.wait(left)

    def of(self, kind):
        return [e for e in self.events if e[0] == kind]

    @property
    def polls(self):
        return [e[1] for e in self.of("poll")]

    def poll(self, index=0, seconds=10):
        """The index-th ended poll (from 0)."""
        return self.wait(lambda p: p.polls[index] if len(p.polls) > index else None, seconds, f"poll {index}")

    def rows(self, index=0, seconds=10):
        """Rows of the index-th list (from 0)."""
        return self.wait(lambda p: p.of("list")[index:index + 1], seconds, f"list {index}")[0][1]

    def peak_kib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(l for l in status.splitlines() if l.startswith("VmHWM")).split()[1])

    def open_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def command(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.process.stdin.close()
        try:
            status = self.process.wait(10 * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        for thread in self.threads:
            thread.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
        assert failure[0] or status == 0, f"ended with {status}: {self.log[-4000:]}"
