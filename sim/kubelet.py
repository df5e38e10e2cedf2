#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The simulated kubelet: the pod-resources API (public proto k8s.io/kubelet/pkg/apis/podresources) on a Unix socket,
and the Pods API (k8s.io/kubelet/pkg/apis/pods) on another.

usage: kubelet.py NODE_FILE SOCKET [PODS_API_SOCKET]

A real gRPC server (grpcio) with messages of google.protobuf; what it lists and how it misbehaves is the node's:
kubelet.down (the server is gone and its socket with it), kubelet.short (only static pods yet, as just after a start),
kubelet.rate_limited, kubelet.burst and kubelet.calls_per_second (the bucket of all clients together),
kubelet.delay_ms, kubelet.silent (never answers), kubelet.v1, kubelet.v1alpha1 (0: UNIMPLEMENTED), kubelet.pad_bytes
(the answer is at least that long), kubelet.allocatable (0: no plugin has registered), kubelet.dra (0: claims are not
listed, as before 1.34), kubelet.completed (pods that are over: 0 not listed, as from 1.34, 1 without their devices,
2 with them), kubelet.pods_api (1: the second socket is there). Prints "ready" when it listens for the first time.
"""
import os
import signal
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

sys.path.insert(0, str(Path(__file__).resolve().parent))
import pods  # noqa: E402
from node import Node  # noqa: E402
from pods_proto import ADDED, DELETED, MESSAGES, MODIFIED, pod_bytes  # noqa: E402

TICK_S = 0.02
PAD_PODS = 8

FIELD = descriptor_pb2.FieldDescriptorProto


def _field(message, number, name, kind, repeated=False, type_name=None):
    field = message.field.add(name=name, number=number, type=kind,
                              label=FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL)
    if type_name:
        field.type_name = type_name


def messages(package):
    """The API's message classes, by name, from descriptors written here after the public proto."""
    f = descriptor_pb2.FileDescriptorProto(name=f"sim/{package}.proto", package=package, syntax="proto3")

    def message(name):
        return f.message_type.add(name=name)

    def ref(name):
        return f".{package}.{name}"

    node = message("NUMANode")
    _field(node, 1, "ID", FIELD.TYPE_INT64)
    topology = message("TopologyInfo")
    _field(topology, 1, "nodes", FIELD.TYPE_MESSAGE, True, ref("NUMANode"))
    devices = message("ContainerDevices")
    _field(devices, 1, "resource_name", FIELD.TYPE_STRING)
    _field(devices, 2, "device_ids", FIELD.TYPE_STRING, True)
    _field(devices, 3, "topology", FIELD.TYPE_MESSAGE, False, ref("TopologyInfo"))
    cdi = message("CDIDevice")
    _field(cdi, 1, "name", FIELD.TYPE_STRING)
    claim = message("ClaimResource")
    _field(claim, 1, "cdi_devices", FIELD.TYPE_MESSAGE, True, ref("CDIDevice"))
    _field(claim, 2, "driver_name", FIELD.TYPE_STRING)
    _field(claim, 3, "pool_name", FIELD.TYPE_STRING)
    _field(claim, 4, "device_name", FIELD.TYPE_STRING)
    _field(claim, 5, "share_id", FIELD.TYPE_STRING)
    dynamic = message("DynamicResource")
    _field(dynamic, 2, "claim_name", FIELD.TYPE_STRING)
    _field(dynamic, 3, "claim_namespace", FIELD.TYPE_STRING)
    _field(dynamic, 4, "claim_resources", FIELD.TYPE_MESSAGE, True, ref("ClaimResource"))
    container = message("ContainerResources")
    _field(container, 1, "name", FIELD.TYPE_STRING)
    _field(container, 2, "devices", FIELD.TYPE_MESSAGE, True, ref("ContainerDevices"))
    _field(container, 3, "cpu_ids", FIELD.TYPE_INT64, True)
    _field(container, 5, "dynamic_resources", FIELD.TYPE_MESSAGE, True, ref("DynamicResource"))
    pod = message("PodResources")
    _field(pod, 1, "name", FIELD.TYPE_STRING)
    _field(pod, 2, "namespace", FIELD.TYPE_STRING)
    _field(pod, 3, "containers", FIELD.TYPE_MESSAGE, True, ref("ContainerResources"))
    answer = message("ListPodResourcesResponse")
    _field(answer, 1, "pod_resources", FIELD.TYPE_MESSAGE, True, ref("PodResources"))
    allocatable = message("AllocatableResourcesResponse")
    _field(allocatable, 1, "devices", FIELD.TYPE_MESSAGE, True, ref("ContainerDevices"))
    _field(allocatable, 2, "cpu_ids", FIELD.TYPE_INT64, True)
    request = message("GetPodResourcesRequest")
    _field(request, 1, "pod_name", FIELD.TYPE_STRING)
    _field(request, 2, "pod_namespace", FIELD.TYPE_STRING)
    got = message("GetPodResourcesResponse")
    _field(got, 1, "pod_resources", FIELD.TYPE_MESSAGE, False, ref("PodResources"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(f)
    factory = message_factory.MessageFactory(pool)
    return {m.name: factory.GetPrototype(pool.FindMessageTypeByName(f"{package}.{m.name}")) for m in f.message_type}


class Bucket:
    """golang.org/x/time/rate as the kubelet uses it: one bucket for all clients and methods."""

    def __init__(self):
        self.tokens = None
        self.at = time.monotonic()
        self.lock = threading.Lock()

    def take(self, rate, burst):
        with self.lock:
            now = time.monotonic()
            if self.tokens is None:
                self.tokens = burst
            self.tokens = min(burst, self.tokens + (now - self.at) * rate)
            self.at = now
            if self.tokens < 1:
                return False
            self.tokens -= 1
            return True


def mig_resource(instance):
    """The mixed strategy's name of an instance's resource."""
    part = "" if instance["ci_slices"] == instance["slices"] else f"{instance['ci_slices']}c."
    return f"nvidia.com/mig-{part}{instance['profile'].replace('+', '.')}"


class Api(grpc.GenericRpcHandler):
    def __init__(self, node):
        self.node = node
        self.bucket = Bucket()
        self.kinds = {"v1": messages("v1"), "v1alpha1": messages("v1alpha1")}
        self.methods = {
            "/v1.PodResourcesLister/List": ("kubelet.v1.List", "kubelet.v1", self.list_v1),
            "/v1.PodResourcesLister/GetAllocatableResources": ("kubelet.v1.GetAllocatableResources", "kubelet.v1",
                                                               self.allocatable),
            "/v1.PodResourcesLister/Get": ("kubelet.v1.Get", "kubelet.v1", self.get),
            "/v1alpha1.PodResourcesLister/List": ("kubelet.v1alpha1.List", "kubelet.v1alpha1", self.list_v1alpha1),
        }

    def is_served(self, method):
        return self.node.node_truth(method[1]) != 0

    def service(self, details):
        method = self.methods.get(details.method)
        if not method or not self.is_served(method):
            return None  # UNIMPLEMENTED
        symbol, _, answer = method

        def handle(request, context):
            started = time.monotonic_ns()
            self.admit(context)
            out = answer(request, context)
            self.node.count_call(symbol, time.monotonic_ns() - started)
            return out

        return grpc.unary_unary_rpc_method_handler(handle)  # bytes in, bytes out

    def admit(self, context):
        n = self.node
        limited = n.node_truth("kubelet.rate_limited")
        if limited or not self.bucket.take(n.node_truth("kubelet.calls_per_second"), n.node_truth("kubelet.burst")):
            n.count_call("kubelet.rejected")
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        time.sleep(n.node_truth("kubelet.delay_ms") / 1000)
        while n.node_truth("kubelet.silent") and context.is_active():
            time.sleep(TICK_S)

    def pods(self):
        """Those that are listed, their containers as they are: restartable init containers, then the others."""
        completed = self.node.node_truth("kubelet.completed")
        found = []
        for pod in self.node.pods():
            over = pod["phase"] in pods.FINISHED
            # Just after a start the kubelet knows static pods only, and of others those without devices here.
            early = self.node.node_truth("kubelet.short") and not pod["config_hash"] and \
                any(c["devices"] or c["extra"].get("claims") for c in pod["containers"])
            if early or (over and completed == 0):
                continue
            listed = [c for c in pod["containers"] if c["init"] == pods.SIDECAR] + \
                [c for c in pod["containers"] if c["init"] == pods.APP]
            if over and completed == 1:
                listed = [c | {"devices": [], "extra": {}} for c in listed]
            found.append(pod | {"containers": listed})
        return found

    @staticmethod
    def fill_devices(out, device, topology):
        out.resource_name = device["resource"]
        out.device_ids.append(device["id"])
        if topology is not None:
            out.topology.nodes.add(ID=topology)

    @staticmethod
    def fill_claim(out, claim):
        """As the kubelet does: a device's entry carries the CDI names of those of its driver before it, too."""
        out.claim_name, out.claim_namespace = claim["name"], claim["namespace"]
        cdi = {}
        for device in claim["devices"]:
            names = cdi.setdefault(device["driver"], [])
            names.append(f"k8s.{device['driver']}/claim={claim['uid']}-{device['device']}")
            entry = out.claim_resources.add(driver_name=device["driver"], pool_name=device["pool"],
                                            device_name=device["device"], share_id=device["share_id"])
            for name in names:
                entry.cdi_devices.add(name=name)

    def claims(self):
        return pods.claims(self.node) if self.node.node_truth("kubelet.dra") else {}

    def fill_pod(self, out, pod, claims):
        """v1: one entry per device and NUMA node."""
        out.name, out.namespace = pod["name"], pod["namespace"]
        for c in pod["containers"]:
            container = out.containers.add(name=c["name"])
            for device in c["devices"]:
                for numa in device["numa"] or [None]:
                    self.fill_devices(container.devices.add(), device, numa)
            for claim in pods.claims_of(pod, c, claims):
                self.fill_claim(container.dynamic_resources.add(), claim)

    def pad(self, out):
        """Plugins that hand out memory in units make answers of megabytes."""
        wanted = self.node.node_truth("kubelet.pad_bytes")
        missing = wanted - out.ByteSize()
        if missing <= 0:
            return

        def add_unit(container, unit):
            entry = container.devices.add()
            self.fill_devices(entry, {"resource": "vendor.example/vgpu-memory", "id": f"unit-{unit:026d}"}, 0)
            return entry.ByteSize() + 2

        unit = 0
        for p in range(PAD_PODS):
            container = out.pod_resources.add(name=f"vgpu-{p}", namespace="padding").containers.add(name="main")
            filled = 0
            while filled < missing // PAD_PODS + 1:
                filled += add_unit(container, unit)
                unit += 1

    def list_v1(self, _request, _context):
        out = self.kinds["v1"]["ListPodResourcesResponse"]()
        claims = self.claims()
        for pod in self.pods():
            self.fill_pod(out.pod_resources.add(), pod, claims)
        self.pad(out)
        return out.SerializeToString()

    def list_v1alpha1(self, _request, _context):
        """One entry per resource with all its ids, no topology."""
        out = self.kinds["v1alpha1"]["ListPodResourcesResponse"]()
        for pod in self.pods():
            p = out.pod_resources.add(name=pod["name"], namespace=pod["namespace"])
            for c in pod["containers"]:
                container = p.containers.add(name=c["name"])
                entries = {}
                for device in c["devices"]:
                    name = device["resource"]
                    if name not in entries:
                        entries[name] = container.devices.add(resource_name=name)
                    entries[name].device_ids.append(device["id"])
        self.pad(out)
        return out.SerializeToString()

    def allocatable(self, _request, _context):
        """What the device plugin offers and finds healthy: GPUs, instances, or replicas of them."""
        n = self.node
        out = self.kinds["v1"]["AllocatableResourcesResponse"]()
        mig = n.instances()
        for gpu in range(n.gpu_count):
            if n.truth(gpu, "lost") or n.truth(gpu, "unhealthy") or not n.node_truth("kubelet.allocatable"):
                continue
            own = [x for x in mig if x["gpu"] == gpu]
            for resource, ident in [(mig_resource(x), x["uuid"]) for x in own] or [("nvidia.com/gpu", n.uuid(gpu))]:
                resource = n.gpu_text(gpu, "resource").decode() or resource
                replicas = n.replicas(gpu)
                for name in [f"{ident}::{r}" for r in range(replicas)] or [ident]:
                    self.fill_devices(out.devices.add(), {"resource": resource, "id": name}, 0)
        return out.SerializeToString()

    def get(self, request, context):
        wanted = self.kinds["v1"]["GetPodResourcesRequest"].FromString(request)
        out = self.kinds["v1"]["GetPodResourcesResponse"]()
        for pod in self.pods():
            if (pod["name"], pod["namespace"]) == (wanted.pod_name, wanted.pod_namespace):
                self.fill_pod(out.pod_resources, pod, self.claims())
                return out.SerializeToString()
        context.abort(grpc.StatusCode.UNKNOWN, f"pod {wanted.pod_name} in namespace {wanted.pod_namespace} not found")


class PodsApi(Api):
    """ListPods, GetPod and WatchPods. Pods are as the kubelet knows them, those that are over, too."""

    def __init__(self, node):
        super().__init__(node)
        self.methods = {
            "/v1alpha1.Pods/ListPods": ("kubelet.pods.List", "kubelet.pods_api", self.list_pods),
            "/v1alpha1.Pods/GetPod": ("kubelet.pods.Get", "kubelet.pods_api", self.get_pod),
        }

    def service(self, details):
        if details.method != "/v1alpha1.Pods/WatchPods":
            return super().service(details)
        return grpc.unary_stream_rpc_method_handler(self.watch_pods)

    def known(self):
        """{UID: bytes} in the order of the node."""
        short = self.node.node_truth("kubelet.short")
        bodies = [pods.pod_object(self.node, p, api=False) for p in self.node.pods() if p["config_hash"] or not short]
        return {b["metadata"]["uid"]: (b, pod_bytes(b)) for b in bodies}

    def list_pods(self, _request, _context):
        return MESSAGES["ListPodsResponse"](pods=[data for _, data in self.known().values()]).SerializeToString()

    def get_pod(self, request, context):
        wanted = MESSAGES["GetPodRequest"].FromString(request).podUID
        known = self.known()
        if wanted not in known:
            context.abort(grpc.StatusCode.NOT_FOUND, f"pod with UID {wanted} not found")
        return MESSAGES["GetPodResponse"](pod=known[wanted][1]).SerializeToString()

    def watch_pods(self, _request, context):
        """What is there as ADDED, then changes; never a word that this was all, as in the first releases."""
        self.admit(context)
        self.node.count_call("kubelet.pods.Watch")

        def event(kind, data):
            return MESSAGES["WatchPodsEvent"](type=kind, pod=data).SerializeToString()
        told = {}
        while context.is_active():
            now = self.known()
            for uid, (body, data) in now.items():
                if uid not in told or told[uid][1] != data:
                    yield event(MODIFIED if uid in told else ADDED, data)
            for uid in told.keys() - now.keys():
                meta = told[uid][0]["metadata"]
                yield event(DELETED, pod_bytes({"metadata": {k: meta[k] for k in ("name", "namespace", "uid")}}))
            told = now
            time.sleep(TICK_S)


class Kubelet:
    """Starts and stops a server as the node says; each start listens on a new socket renamed into place."""

    def __init__(self, api, socket, wanted):
        self.api = api
        self.socket = Path(socket)
        self.wanted = wanted
        self.server = None
        self.starts = 0

    def start(self):
        self.starts += 1
        self.socket.parent.mkdir(exist_ok=True)
        temporary = self.socket.with_name(f"{self.socket.name}.{os.getpid()}.{self.starts}")
        options = [("grpc.so_reuseport", 0)]
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=16), handlers=[self.api], options=options)
        if self.server.add_insecure_port(f"unix:{temporary}") == 0:
            raise OSError(f"cannot listen on {temporary}")
        self.server.start()
        os.rename(temporary, self.socket)

    def stop(self):
        if not self.server:
            return
        self.socket.unlink(missing_ok=True)
        self.server.stop(0).wait(2)
        self.server = None

    def tick(self):
        wanted = self.wanted()
        if not wanted and self.server:
            self.stop()
        elif wanted and not self.server:
            self.start()


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    node = Node(sys.argv[1])
    servers = [Kubelet(Api(node), sys.argv[2], lambda: not node.node_truth("kubelet.down"))]
    if len(sys.argv) == 4:
        servers.append(Kubelet(PodsApi(node), sys.argv[3],
                               lambda: node.node_truth("kubelet.pods_api") and not node.node_truth("kubelet.down")))
    for server in servers:
        server.tick()
    print("ready", flush=True)
    while not ending.wait(TICK_S):
        for server in servers:
            server.tick()
    for server in servers:
        server.stop()


if __name__ == "__main__":
    main()
