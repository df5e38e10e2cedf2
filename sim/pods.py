# SPDX-License-Identifier: Apache-2.0
"""The pods, claims and ResourceSlices of a simulated node as objects of Kubernetes.

k8s.io/api core/v1 Pod and resource.k8s.io ResourceSlice, as the API server gives them; for the kubelet's Pods API a
static pod has the UID that its cgroup has, at the API server its mirror has another.
"""
import re
import uuid
import zlib
from datetime import datetime, timezone

DRIVER = "gpu.nvidia.com"
FINISHED = ("Succeeded", "Failed")
CREATED = "2026-01-02T03:04:05Z"
SCHEMES = {"crio": "cri-o", "docker": "docker"}
SAFE = "bcdfghjklmnpqrstvwxz2456789"
APP, INIT, SIDECAR = range(3)


def stable_uid(*words):
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(words)))


def short_hash(text, length=9):
    """What controllers put behind names: a few harmless letters."""
    number, out = zlib.crc32(text.encode()) * 2654435761, ""
    for _ in range(length):
        number, digit = divmod(number, len(SAFE))
        out += SAFE[digit]
    return out


# --- Claims ---

def claims(node):
    """{(namespace, name): claim}; a claim has uid and devices (driver, pool, device, share_id)."""
    found = {}
    for claim in node.extra.get("claims", []):
        namespace = claim.get("namespace", "default")
        devices = [{"driver": d.get("driver", DRIVER), "pool": d.get("pool", node.name), "device": d["device"],
                    "share_id": d.get("share_id", "")} for d in claim.get("devices", [])]
        found[namespace, claim["name"]] = {
            "name": claim["name"], "namespace": namespace, "devices": devices,
            "uid": claim.get("uid") or stable_uid("claim", namespace, claim["name"])}
    return found


def claims_of(pod, container, known):
    """The claims that a container refers to. One that isn't known is left out without a word, as the kubelet does."""
    names = pod["extra"].get("claims", {})
    keys = [(pod["namespace"], names.get(name)) for name in container["extra"].get("claims", [])]
    return [known[key] for key in keys if key in known]


# --- Pods ---

def _controller(pod):
    """(ownerReferences, labels) that the controllers give a pod."""
    owner = pod["extra"].get("owner")
    if not owner:
        return [], {}
    kind, name, labels = owner["kind"], owner["name"], {}
    version = owner.get("api_version") or {"Job": "batch/v1", "CronJob": "batch/v1"}.get(kind, "apps/v1")
    if kind == "Deployment":
        rest = re.match(re.escape(name) + r"-([a-z0-9]+)-", pod["name"])
        labels["pod-template-hash"] = rest[1] if rest else short_hash(name)
        kind, name = "ReplicaSet", f"{name}-{labels['pod-template-hash']}"
    elif kind == "CronJob":
        rest = re.match(re.escape(name) + r"-(\d+)-", pod["name"])
        kind, name = "Job", f"{name}-{rest[1] if rest else '29412345'}"
    if kind == "Job":
        labels |= {"batch.kubernetes.io/job-name": name, "job-name": name}
    elif kind == "StatefulSet":
        labels["statefulset.kubernetes.io/pod-name"] = pod["name"]
    uid = stable_uid(kind, pod["namespace"], name)
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True,
             "blockOwnerDeletion": True}], labels


def _status(container, pod, scheme):
    out = {"name": container["name"], "ready": pod["phase"] == "Running", "restartCount": 0, "image": "sim/image:1",
           "imageID": ""}
    if pod["phase"] == "Pending":
        return out | {"state": {"waiting": {"reason": "ContainerCreating"}}}
    out["containerID"] = f"{scheme}://{container['id']}"
    over = pod["phase"] in FINISHED or container["init"] == INIT
    state = {"terminated": {"exitCode": int(pod["phase"] == "Failed"), "containerID": out["containerID"]}} if over \
        else {"running": {"startedAt": CREATED}}
    return out | {"state": state}


def _metadata(node, pod, api):
    owners, labels = _controller(pod)
    annotations = dict(pod["extra"].get("annotations", {}))
    uid = pod["uid"]
    if pod["config_hash"]:
        annotations |= {"kubernetes.io/config.hash": pod["config_hash"], "kubernetes.io/config.source": "file",
                        "kubernetes.io/config.seen": "2026-01-02T03:04:05.000000000Z"}
        if api:
            annotations["kubernetes.io/config.mirror"] = pod["config_hash"]
            owners = owners or [{"apiVersion": "v1", "kind": "Node", "name": node.name, "controller": True,
                                 "uid": stable_uid("Node", node.name)}]
        else:
            uid = pod["config_hash"]
    meta = {"name": pod["name"], "namespace": pod["namespace"], "uid": uid, "creationTimestamp": CREATED,
            "labels": labels | pod["extra"].get("labels", {}), "annotations": annotations, "ownerReferences": owners}
    return {k: v for k, v in meta.items() if v}


def pod_object(node, pod, api=True):
    """api: as the API server has it; else as the kubelet does."""
    scheme = SCHEMES.get(node.cgroups, "containerd")
    inits, apps = ([c for c in pod["containers"] if (c["init"] != APP) == init] for init in (True, False))
    names = pod["extra"].get("claims", {})
    spec = {"nodeName": node.name, "containers": [_spec(c) for c in apps]}
    status = {"phase": pod["phase"], "qosClass": {"besteffort": "BestEffort", "guaranteed": "Guaranteed"}.get(
        pod["extra"].get("qos"), "Burstable"), "containerStatuses": [_status(c, pod, scheme) for c in apps]}
    if inits:
        spec["initContainers"] = [_spec(c) for c in inits]
        status["initContainerStatuses"] = [_status(c, pod, scheme) for c in inits]
    if names:
        spec["resourceClaims"] = [{"name": n, "resourceClaimTemplateName": n} for n in names]
        status["resourceClaimStatuses"] = [{"name": n, "resourceClaimName": c} for n, c in names.items()]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(node, pod, api), "spec": spec, "status": status}


def _spec(container):
    out = {"name": container["name"], "image": "sim/image:1"}
    limits = {}
    for device in container["devices"]:
        limits[device["resource"]] = str(int(limits.get(device["resource"], 0)) + 1)
    resources = {"limits": limits, "requests": limits} if limits else {}
    if container["extra"].get("claims"):
        resources["claims"] = [{"name": n} for n in container["extra"]["claims"]]
    if resources:
        out["resources"] = resources
    if container["init"] == SIDECAR:
        out["restartPolicy"] = "Always"
    return out


# --- ResourceSlices ---

def _uuid(node, text):
    """gpu0, gpu0/gi1[/ci0] or the UUID itself."""
    m = re.fullmatch(r"gpu(\d+)(?:/gi(\d+)(?:/ci(\d+))?)?", text or "")
    if not m:
        return text
    if m[2] is None:
        return node.uuid(int(m[1]))
    return next(x["uuid"] for x in node.instances()
                if (x["gpu"], x["gi"], x["ci"]) == (int(m[1]), int(m[2]), int(m[3] or 0)))


def _gpu_of(node, text):
    m = re.match(r"gpu(\d+)", text or "")
    return int(m[1]) if m else None


def _device(node, device):
    def text(value):
        return {"string": value}
    kind = device.get("type", "gpu")
    attributes = {"type": text(kind), "driverVersion": {"version": node.driver_version}, "brand": text("Nvidia")}
    gpu = _gpu_of(node, device.get("parent") or device.get("uuid"))
    if gpu is not None:
        attributes["productName"] = text(node.gpu_text(gpu, "name").decode(errors="replace"))
        attributes["resource.kubernetes.io/pciBusID"] = text(node.gpu_text(gpu, "bus_id").decode())
    if "uuid" in device:  # dynamic MIG has none
        attributes["uuid"] = text(_uuid(node, device["uuid"]))
    if kind == "mig":
        attributes |= {"parentUUID": text(_uuid(node, device.get("parent"))), "profile": text(device.get("profile", ""))}
    return {"name": device["name"], "attributes": attributes, "capacity": {"memory": {"value": "0"}}}


def slice_objects(node):
    """As resource.k8s.io/v1 has them."""
    rows = node.extra.get("slices", [])

    def pool(row):
        return row.get("driver", DRIVER), row.get("pool", node.name), int(row.get("generation", 1))
    out = []
    for row in rows:
        driver, name, generation = pool(row)
        count = int(row.get("count", sum(pool(other) == pool(row) for other in rows)))
        out.append({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": row["name"]},
                    "spec": {"driver": driver, "nodeName": row.get("node", node.name),
                             "pool": {"name": name, "generation": generation, "resourceSliceCount": count},
                             "devices": [_device(node, d) for d in row.get("devices", [])]}})
    return out


class Mirror:
    """Keeps an API server's pods and slices those of a node. What tests put there themselves stays."""

    def __init__(self, node, server):
        self.node, self.server = node, server
        self.told = {}
        self.seen, self.until = None, 0  # generation; until then nothing changes by itself

    def sync(self):
        at, generation = self.node.now(), self.node.generation
        if generation == self.seen and at < self.until:
            return
        self._sync()
        times = [p[k] for p in self.node.all_pods() for k in ("start_ns", "completed_ns", "end_ns")]
        self.seen, self.until = generation, min((t for t in times if t > at), default=at + 3_600_000_000_000)

    def _sync(self):
        now = {("Pod", p["namespace"], p["name"]): pod_object(self.node, p) for p in self.node.pods()}
        now |= {("ResourceSlice", "", s["metadata"]["name"]): s for s in slice_objects(self.node)}
        for kind, namespace, name in self.told.keys() - now.keys():
            self.server.delete(kind, name, namespace)
        for key, body in now.items():
            before = self.told.get(key)
            if before and before["metadata"].get("uid") != body["metadata"].get("uid"):
                self.server.delete(key[0], key[2], key[1])
            if body != before:
                self.server.put(body)
        self.told = now


def created_seconds():
    return int(datetime.strptime(CREATED, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp())
