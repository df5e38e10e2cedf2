"""Who holds a device: device ids of all plugins, sharing, pods that come, go and complete, odd names."""
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness import SLOW, exporter_at, exporter_on, wait_until
from kubelet_peers import GrpcKubelet, answer, gpu_row, socket_folder
from prometheus_server import prometheus

pytestmark = pytest.mark.faults

USED = "DCGM_FI_DEV_FB_USED"
TEMP = "DCGM_FI_DEV_GPU_TEMP"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
MIG_BOARD = "GPU-8a6f0d9c-5b3e-4d27-a1c4-93f2e07b6d10"
MIG_WHOLE = "GPU-8a6f0d9c-5b3e-4d27-a1c4-93f2e07b6d11"


@pytest.fixture(scope="module")
def mig():
    import run_node
    with run_node.SimNode("mig") as n:
        yield n


@pytest.fixture
def empty(mig):
    """The MIG node without pods."""
    mig.command("pods clear")
    yield mig
    mig.command("pods clear")


@pytest.fixture(scope="module")
def shared_node():
    import run_node
    with run_node.SimNode("timeslice") as n:
        yield n


def owner(labels):
    return labels.get("pod"), labels.get("namespace"), labels.get("container")


def holders(page, family=USED):
    """{(gpu, instance): [(pod, vgpu), ...]} in page order."""
    found = {}
    for labels, _ in page.samples(family):
        found.setdefault((labels["gpu"], labels.get("GPU_I_ID")), []).append((labels.get("pod"), labels.get("vgpu")))
    return found


def pod(node, name, device, resource="nvidia.com/gpu", container="main", namespace="default"):
    node.command(f"pods add {name} namespace={namespace} container={container} resource={resource} device={device}")


# --- Device ids ---

# Each batch holds different devices: id, resource, whose device it is, replica.
def batches(node):
    instance = {i["gi"]: i["uuid"] for i in node.node.instances() if i["ci"] == 0}
    return [
        [(MIG_WHOLE, "nvidia.com/gpu", ("1", None), None), (instance[1], "nvidia.com/mig-3g.40gb", ("0", "1"), None),
         (f"MIG-{MIG_BOARD}/7/0", "nvidia.com/mig-1g.10gb", ("0", "7"), None),
         ("nvidia0/gi3", "nvidia.com/gpu", ("0", "3"), None)],
        [(f"{MIG_WHOLE}::", "nvidia.com/gpu", ("1", None), None), (f"{instance[1]}::4", "nvidia.com/mig-3g.40gb.shared",
                                                                   ("0", "1"), "4"),
         ("nvidia0/gi7/vgpu0", "nvidia.com/gpu", ("0", "7"), "0")],
        [("nvidia1", "nvidia.com/gpu", ("1", None), None), (instance[1].upper(), "nvidia.com/gpu", ("0", "1"), None)],
        [("nvidia1/vgpu1", "nvidia.com/gpu", ("1", None), "1")],
        [("1/vgpu", "nvidia.com/gpu", ("1", None), None)],
        [(f"{MIG_WHOLE}::2", "nvidia.com/gpu.shared", ("1", None), "2")],
    ]


@pytest.mark.parametrize("copies", [False, True], ids=["exclusive", "copies"])
def test_each_form_of_a_device_id_gives_its_device_the_pod(empty, copies):
    flags = ["--kubernetes-gpu-id-type=device-name"] + (["--kubernetes-virtual-gpus"] if copies else [])
    with exporter_at(empty, *flags) as exporter:
        exporter.page_when(lambda p: len(p.samples(USED)) == 5, what="devices")
        for batch in batches(empty):
            empty.command("pods clear")
            for number, (device, resource, _, _) in enumerate(batch):
                pod(empty, f"gpu-pod-{number}", device, resource)
            want = {key: [(None, None)] for key in (("0", "1"), ("0", "3"), ("0", "7"), ("0", "8"), ("1", None))}
            for number, (_, _, key, vgpu) in enumerate(batch):
                want[key] = [(f"gpu-pod-{number}", vgpu if copies else None)]
            page = exporter.page_when(lambda p: holders(p, TEMP) == want, 10, f"owners of {[b[0] for b in batch]}")
            assert page.value("podgpu_exporter_attribution_unknown_ids") == 0
            if copies:  # of these two fields the device's own sample stays, before those of its pods' processes
                want = {key: owners if owners == [(None, None)] else [(None, None), *owners] for key, owners in want.items()}
            assert holders(page) == want


def test_by_uuid_a_bare_number_is_no_device_and_is_counted(empty):
    pod(empty, "a", "1")
    pod(empty, "b", "GPU-00000000-0000-0000-0000-000000000000")
    pod(empty, "c", MIG_BOARD.replace("GPU-", "MIG-"))  # the board's hex part is no instance
    with exporter_at(empty) as exporter:
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_attribution_unknown_ids") == 3 and p.samples(USED),
                                  10, "counted")
        assert {o for v in holders(page).values() for o, _ in v} == {None}


@pytest.mark.parametrize("flags, env, counts", [
    ([], {}, False),
    (["--nvidia-resource-names=nvidia.com/a100"], {}, True),
    (["--nvidia-resource-names=nvidia.com/a10", "--nvidia-resource-names", "x.com/y, nvidia.com/a100"], {}, True),
    ([], {"NVIDIA_RESOURCE_NAMES": " x.com/y , nvidia.com/a100 "}, True),
    ([], {"NVIDIA_RESOURCE_NAMES": "nvidia.com/a"}, False),
])
def test_further_resource_names_are_exact(empty, flags, env, counts):
    pod(empty, "named", "nvidia1", "nvidia.com/a100")
    with exporter_at(empty, "--kubernetes-gpu-id-type=device-name", *flags, env=env) as exporter:
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_attribution_up") == 1 and p.samples(USED), what="asked")
        assert holders(page)[("1", None)] == [("named" if counts else None, None)]


# --- Sharing ---

def test_a_shared_device_has_no_owner_unless_asked_for(shared_node):
    pods = ["idle-d", "infer-a", "infer-b", "infer-c"]
    cases = [([], [(None, None, None)]), (["--empty-owner-labels"], [("", "", "")]),
             (["--shared-owner=last"], [("infer-c", "default", "main")]),
             (["--shared-owner=last", "--empty-owner-labels"], [("infer-c", "default", "main")]),
             (["--kubernetes-virtual-gpus"], [(p, "default", "main") for p in pods]),
             (["--kubernetes-virtual-gpus", "-o"], None)]
    for flags, want in cases:
        with exporter_at(shared_node, *flags) as exporter:
            page = exporter.page_when(lambda p: p.value("podgpu_exporter_attribution_up") == 1 and p.samples(USED),
                                      what="asked")
        copies = "--kubernetes-virtual-gpus" in flags
        for family in (TEMP, USED, UTIL):
            samples = page.samples(family)
            if copies and family != TEMP:  # the device itself, then what the processes of each pod use
                assert not {"pod", "pod_name", "vgpu"} & samples.pop(0)[0].keys()
            if want:
                assert [owner(l) for l, _ in samples] == want, (flags, family)
            else:
                assert [(l["pod_name"], l["vgpu"]) for l, _ in samples] == list(zip(pods, "3012"))
        vgpus = [l.get("vgpu") for l, _ in page.samples(TEMP)]
        assert vgpus == (list("3012") if copies else [None])
        assert len({v for _, v in page.samples(TEMP)}) == 1  # copies of one number


def test_a_container_with_two_replicas_is_a_sole_owner():
    with exporter_on("timeslice", text=TWO_REPLICAS) as (node, exporter):
        page = exporter.page_when(lambda p: p.samples(USED) and p.samples(USED)[0][0].get("pod"), what="the owner")
        assert [owner(l) for l, _ in page.samples(USED)] == [("both", "default", "main"), (None, None, None)]
    with exporter_on("timeslice", "--kubernetes-virtual-gpus", text=TWO_REPLICAS) as (node, exporter):
        page = exporter.page_when(lambda p: p.samples(TEMP) and p.samples(TEMP)[0][0].get("pod"), what="copies")
        assert [(l.get("pod"), l.get("vgpu")) for l, _ in page.samples(TEMP)] == [("both", "0"), ("both", "1"), (None, None)]
        assert [(l.get("pod"), l.get("vgpu")) for l, _ in page.samples(USED)] == [
            (None, None), ("both", "0"), ("both", "1"), (None, None)]


NODE = """
driver: {version: 535.183.01, cuda: 12020}
models: models.yaml
gpus:
  - {model: t4, uuid: GPU-e3b0c442-98fc-4c14-9afb-f4c8996fb924, bus_id: "00000000:00:1E.0"}
  - {model: t4, uuid: GPU-e3b0c442-98fc-4c14-9afb-f4c8996fb925, bus_id: "00000000:00:1F.0"}
"""
TWO_REPLICAS = NODE + """
pods:
  - {name: both, containers: [{name: main, devices: [{resource: nvidia.com/gpu.shared, ids: ["gpu0::0", "gpu0::1"]}]}]}
"""
CONTAINERS = NODE + """
pods:
  - name: two-containers
    containers:
      - {name: sidecar, devices: [{ids: [gpu1], numa: [0, 1]}]}
      - {name: main, devices: [{ids: [gpu0], numa: [0, 1]}]}
"""
ONE_DEVICE = NODE + """
pods:
  - name: p
    containers:
      - {name: a, devices: [{resource: nvidia.com/gpu.shared, ids: ["gpu0::0"]}]}
      - {name: b, devices: [{resource: nvidia.com/gpu.shared, ids: ["gpu0::1"]}]}
"""


def test_each_container_of_a_pod_has_its_own_gpu_also_across_numa_nodes():
    for flags in ([], ["--kubernetes-virtual-gpus"]):
        with exporter_on("x", *flags, text=CONTAINERS) as (node, exporter):
            page = exporter.page_when(lambda p: p.value("podgpu_exporter_attribution_up") == 1 and p.samples(USED), what="asked")
            assert [(l["gpu"], *owner(l)) for l, _ in page.samples(TEMP)] == [
                ("0", "two-containers", "default", "main"), ("1", "two-containers", "default", "sidecar")]
            assert page.value("podgpu_exporter_attribution_rows") == 2


def test_a_device_of_two_containers_of_one_pod_is_the_pods():
    for flags, container in ([], ""), (["--shared-owner=last"], "b"):
        with exporter_on("x", *flags, text=ONE_DEVICE) as (node, exporter):
            page = exporter.page_when(lambda p: p.value("podgpu_exporter_attribution_up") == 1 and p.samples(USED), what="asked")
            assert [owner(l) for l, _ in page.samples(USED)] == [("p", "default", container), (None, None, None)]


# --- Pods come and go ---

def owners_seen(exporter, until, seconds=10):
    """Owners of the device (1, None) on every page until the condition holds, without repetitions."""
    seen = []

    def check(page):
        now = [o for o, _ in holders(page)[("1", None)]]
        assert len(now) == 1
        if not seen or seen[-1] != now[0]:
            seen.append(now[0])
        return until(now[0])
    exporter.page_when(check, seconds, "the owner")
    return seen


def test_the_owner_changes_within_two_seconds_and_nobody_elses_name_is_shown(empty):
    with exporter_at(empty, "-c", "60000") as exporter:  # however rarely the GPUs are sampled
        exporter.page_when(lambda p: len(p.samples(USED)) == 5, what="devices")
        for step, (change, want) in enumerate([
                (lambda: pod(empty, "job-1", MIG_WHOLE), "job-1"), (lambda: empty.command("pods end job-1"), None),
                (lambda: pod(empty, "job-2", MIG_WHOLE), "job-2"),
                (lambda: (empty.command("pods end job-2"), pod(empty, "job-3", MIG_WHOLE)), "job-3"),
                # The same name again, now on another device.
                (lambda: (empty.command("pods end job-3"), pod(empty, "job-3", "nvidia0/gi3")), None)]):
            begun = time.monotonic()
            change()
            seen = owners_seen(exporter, lambda o: o == want)
            assert time.monotonic() - begun < 2.5 * SLOW
            assert len(seen) <= 2 and seen[-1] == want, (step, seen)
        assert holders(exporter.page())[("0", "3")] == [("job-3", None)]


def test_a_completed_pod_that_is_still_listed_gives_way_to_the_next_one(empty):
    with exporter_at(empty) as exporter:
        exporter.page_when(lambda p: len(p.samples(USED)) == 5, what="devices")
        pod(empty, "zz-done", MIG_WHOLE)
        owners_seen(exporter, lambda o: o == "zz-done")
        pod(empty, "aa-next", MIG_WHOLE)
        assert owners_seen(exporter, lambda o: o == "aa-next") in (["zz-done", "aa-next"], ["aa-next"])
        time.sleep(1.5)
        page = exporter.page()
        assert holders(page)[("1", None)] == [("aa-next", None)]
        assert page.value("podgpu_exporter_attribution_superseded_ids") == 1
        empty.command("pods end zz-done")
        exporter.page_when(lambda p: p.value("podgpu_exporter_attribution_superseded_ids") == 0, 5, "not listed any more")
        assert holders(exporter.page())[("1", None)] == [("aa-next", None)]


def test_of_two_pods_that_were_there_before_us_nobody_knows_which_one_holds_the_device(empty):
    pod(empty, "zz-done", MIG_WHOLE)
    pod(empty, "aa-next", MIG_WHOLE)
    with exporter_at(empty) as exporter:
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_attribution_up") == 1 and p.samples(USED), what="asked")
        assert holders(page)[("1", None)] == [(None, None)]
        pod(empty, "third", MIG_WHOLE)
        owners_seen(exporter, lambda o: o == "third")


# --- What a scraper makes of it ---

def scraped(exporter, folder, honor_labels, family=USED):
    """{gpu: pod} as a real Prometheus has it whose target is itself a pod, called exporter-0."""
    with prometheus(folder, [f"127.0.0.1:{exporter.port}"], "1s", honor_labels, "pod: exporter-0, namespace: monitoring") as server:
        found = wait_until(lambda: server.query(family), 20, "samples in Prometheus")
    return {(s["metric"]["gpu"], s["metric"].get("GPU_I_ID")): (s["metric"].get("pod"), s["metric"].get("exported_pod"))
            for s in found}


def test_with_honor_labels_nobody_is_taken_for_the_exporters_own_pod(empty, tmp_path):
    pod(empty, "job", MIG_WHOLE)
    ready = lambda p: len(p.samples(USED)) == 5 and holders(p)[("1", None)] == [("job", None)]
    with exporter_at(empty, "--empty-owner-labels") as exporter:
        exporter.page_when(ready, what="owner")
        found = scraped(exporter, tmp_path, True)
    assert found == {("1", None): ("job", None), **{("0", gi): (None, None) for gi in "1378"}}
    with exporter_at(empty) as exporter:
        exporter.page_when(ready, what="owner")
        (tmp_path / "plain").mkdir()
        found = scraped(exporter, tmp_path / "plain", False)
    # As every exporter: without honor_labels the target's own labels win and ours are renamed.
    assert found == {("1", None): ("exporter-0", "job"), **{("0", gi): ("exporter-0", None) for gi in "1378"}}


# --- Odd names ---

@pytest.mark.parametrize("name, label", [
    (b"x" * 65536, "x" * 65536), (b"x" * 65537, "x" * 65536), (b"x" * 200000, "x" * 65536),
    ("é".encode() * 40000, "é" * 32768), (b"x" + "é".encode() * 40000, "x" + "é" * 32767),
    (b"p\xff\x80od", "p\ufffd\ufffdod"), ('a"b\\c\nd'.encode(), 'a"b\\c\nd'), (b"cut\0here", "cut"), (b"", ""),
], ids=["64KiB", "64KiB+1", "200kB", "cut-2", "cut-1", "not-utf8", "escapes", "nul", "empty"])
def test_names_from_the_kubelet_are_escaped_repaired_and_cut(empty, name, label):
    body = answer(gpu_row("POD-NAME", MIG_WHOLE))
    # Google's encoder refuses what is no UTF-8, so the name is put into its bytes afterwards.
    body = with_pod_name(body, name)
    with socket_folder() as folder, GrpcKubelet(folder / "kubelet.sock", lambda method, context: body):
        with exporter_at(empty, "--pod-resources-kubelet-socket", folder / "kubelet.sock") as exporter:
            page = exporter.page_when(lambda p: p.value("podgpu_exporter_attribution_up") == 1 and p.samples(USED), what="asked")
    series = [s for f in text_string_to_metric_families(page.text) for s in f.samples if s.name == USED]
    whole = next(s for s in series if s.labels["gpu"] == "1")
    assert whole.labels["pod"] == label
    assert (whole.labels["namespace"], whole.labels["container"]) == ("default", "main")


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def with_pod_name(body, name):
    """The answer, whose one pod is called POD-NAME, with another name: field 1 of the message in field 1."""
    assert body[0] == 0x0A
    inner = body[1 + len(varint(len(body) - 2)):] if len(body) > 129 else body[2:]
    old = b"\x0a\x08POD-NAME"
    assert old in inner
    inner = inner.replace(old, b"\x0a" + varint(len(name)) + name)
    return b"\x0a" + varint(len(inner)) + inner
