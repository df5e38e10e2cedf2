# SPDX-License-Identifier: Apache-2.0
"""How podgpu is shipped: the image's content, the DaemonSet, and what `meson install` puts where."""
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import tempfile

import pytest
import yaml

from agent_harness import Target, configuration, declaration, scrape_job, write_files
from harness import BUILD, ROOT, Exporter, exporter_on
from test_agent_post import CLONE_NEWNS, MS_PRIVATE, MS_REC, with_mounts
from test_http_server import Authority

MS_BIND = 0x1000

SANITIZED = BUILD.name in ("asan", "tsan", "fuzz")
pytestmark = pytest.mark.skipif(SANITIZED, reason="sanitized programs are not shipped")
CONTAINERFILE = (ROOT / "Containerfile").read_text()
KUBELET = "/var/lib/kubelet/pod-resources"


@pytest.fixture(scope="module")
def manifest():
    daemonset, service = yaml.safe_load_all((ROOT / "deploy" / "daemonset.yaml").read_text())
    return daemonset, service


@pytest.fixture(scope="module")
def pod(manifest):
    return manifest[0]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod):
    [only] = pod["containers"]
    return only


def plain_env(container):
    """The variables of the manifest that have a value of their own."""
    return {e["name"]: e["value"] for e in container["env"] if "value" in e}


# --- The image ---

@pytest.fixture
def image():
    """The image's root folder, made of the build under test; its path is short: a socket's may not be long."""
    with tempfile.TemporaryDirectory(prefix="podgpu-") as folder:
        root = pathlib.Path(folder) / "image"
        subprocess.run([ROOT / "script" / "image", root, BUILD], check=True, stdout=subprocess.DEVNULL)
        yield root


def test_the_image_holds_the_programs_their_libraries_and_no_more(image):
    programs = {"podgpu-exporter", "podgpu-source", "podgpu-agent", "podgpu-burn"}
    assert {p.name for p in (image / "usr" / "bin").iterdir()} == programs
    for program in programs:
        assert (image / "usr" / "bin" / program).read_bytes() == (BUILD / program).read_bytes()
    curl = next(image.rglob("libcurl.so.4"))  # loaded on use
    needed = set()
    for binary in [*(BUILD / program for program in programs), curl]:
        told = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
        needed |= {name for name, _ in re.findall(r"(\S+) => (/\S+)", told)}
    libraries = {p.name for p in image.rglob("*.so*") if not p.name.startswith("ld-")}
    assert libraries == needed | {"libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1", "libcurl.so.4"}
    assert (image / "etc" / "ssl" / "certs" / "ca-certificates.crt").stat().st_size > 100_000
    assert {p.name for p in (image / "etc" / "dcgm-exporter").iterdir()} == {p.name for p in (ROOT / "etc").glob("*.csv")}
    for entry in (image / "var" / "lib" / "dpkg" / "status.d").iterdir():
        assert f"Package: {entry.name}\n" in entry.read_text()
        assert (image / "usr" / "share" / "doc" / entry.name / "copyright").stat().st_size > 0


@pytest.mark.smoke
@pytest.mark.skipif(BUILD.name != "release", reason="only the release build is stripped")
def test_the_image_is_smaller_than_30_mib(image):
    assert sum(p.lstat().st_size for p in image.rglob("*")) < 30 << 20


def test_an_image_that_cannot_be_made_says_what_to_run_and_leaves_nothing(tmp_path):
    def made(*arguments):
        return subprocess.run([ROOT / "script" / "image", *arguments], capture_output=True, text=True, check=False)
    root = tmp_path / "image"
    done = made(root, tmp_path / "nothing-built")
    assert done.returncode == 1 and "run script/build --release first" in done.stderr and not root.exists()
    programs = tmp_path / "programs"
    for name in ("podgpu-agent", "podgpu-burn", "podgpu-exporter", "podgpu-source"):
        (programs / name).mkdir(parents=True)  # what can't be installed
    assert made(root, programs).returncode != 0 and not list(root.iterdir())
    assert made(root, BUILD).returncode == 0


def make_null(image):
    null = image / "dev" / "null"
    null.parent.mkdir()
    try:
        os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        null.write_text("")
    except OSError:
        pytest.skip("no device files here")


@pytest.mark.smoke
@pytest.mark.skipif(os.geteuid() != 0, reason="needs chroot")
def test_the_image_runs_with_nothing_around_it(image):
    """The driver is found where the container runtime puts it, the counters where the image has them."""
    import run_node
    make_null(image)
    library_folder = next(image.rglob("libc.so.6")).parent
    with run_node.SimNode("post", directory=image / "node") as node:
        shutil.copy(node.nvml_library, library_folder)

        def enter():
            os.chroot(image)
            os.chdir("/")
        exporter = Exporter(["-a", "127.0.0.1:0", "-k", "--pod-resources-kubelet-socket",
                             "/node/pod-resources/kubelet.sock"],
                            {"SIM_NODE": "/node/node", "NODE_NAME": node.node_name},
                            executable="/usr/bin/podgpu-exporter", preexec_fn=enter)
        try:
            page = exporter.page_when(lambda p: p.samples("DCGM_FI_DEV_FB_USED"))
            [(labels, _)] = page.samples("DCGM_FI_DEV_FB_USED")
            assert labels["pod"].startswith("gpu-burn-") and labels["hostname"] == node.node_name
        finally:
            status, _ = exporter.stop()
        assert status == 0


@pytest.mark.smoke
@with_mounts
def test_the_image_can_ask_the_api_server(image, tmp_path):
    """libcurl and all that it loads are there; the service account is where a pod has it."""
    import run_node
    from apiserver import ApiServer
    authority = Authority(tmp_path)
    account = image / "var" / "run" / "secrets" / "kubernetes.io" / "serviceaccount"
    account.mkdir(parents=True)
    shutil.copy(authority.pem, account / "ca.crt")
    (account / "token").write_text("the-token")
    library_folder = next(image.rglob("libc.so.6")).parent
    null = image / "dev" / "null"
    null.parent.mkdir()
    null.touch()
    libc = ctypes.CDLL(None, use_errno=True)

    def enter():
        if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) or \
                libc.mount(b"/dev/null", os.fsencode(null), None, MS_BIND, None):
            raise OSError(ctypes.get_errno(), "mount namespace")
        os.chroot(image)
        os.chdir("/")
    api = ApiServer(certificate=authority.server(), token="the-token")
    try:
        with run_node.SimNode("post", directory=image / "node") as node:
            shutil.copy(node.nvml_library, library_folder)
            held = next(p for p in node.node.pods() if p["containers"])
            api.put({"kind": "Pod", "metadata": {"name": held["name"], "namespace": held["namespace"],
                                                 "labels": {"from": "the-server"}},
                     "spec": {"nodeName": node.node_name}})
            exporter = Exporter(["-a", "127.0.0.1:0", "-k", "--kubernetes-enable-pod-labels", "--kmsg-path", "",
                                 "--pod-resources-kubelet-socket", "/node/pod-resources/kubelet.sock"],
                                {"SIM_NODE": "/node/node", "NODE_NAME": node.node_name,
                                 "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)},
                                executable="/usr/bin/podgpu-exporter", preexec_fn=enter)
            try:
                exporter.page_when(lambda p: any(l.get("from") == "the-server"
                                                 for l, _ in p.samples("DCGM_FI_DEV_FB_USED")), what="labels")
            finally:
                status, _ = exporter.stop()
            assert status == 0
    finally:
        api.stop()


@pytest.mark.smoke
@pytest.mark.skipif(os.geteuid() != 0, reason="needs chroot")
def test_the_agent_runs_in_the_image_with_nothing_around_it(image):
    with Target("# TYPE temp gauge\ntemp 42\n") as target:
        (image / "config").mkdir()
        write_files(image / "config", configuration(declaration(["^temp$"], [["job"]]), cluster_name="c",
                                                    prometheus_config_path="/config/prometheus.yaml"),
                    [scrape_job(target.address)])

        def enter():
            os.chroot(image)
            os.chdir("/")
        done = subprocess.run(["/usr/bin/podgpu-agent", "--config", "/config/cwagentconfig.json", "--output",
                               "file:/config/events", "--once"], preexec_fn=enter, env={}, capture_output=True, text=True,
                              check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert json.loads((image / "config" / "events").read_text())["temp"] == 42


def test_the_containerfile_ships_that_folder():
    assert re.search(r"^RUN .*script/build --release && script/image /image$", CONTAINERFILE, re.M)
    assert re.search(r"^FROM scratch\nCOPY --from=build /image/ /$", CONTAINERFILE, re.M)
    assert 'ENTRYPOINT ["/usr/bin/podgpu-exporter"]' in CONTAINERFILE
    assert "EXPOSE 9400" in CONTAINERFILE


def test_script_image_does_not_write_into_a_folder_that_holds_something(tmp_path):
    (tmp_path / "mine").write_text("")
    done = subprocess.run([ROOT / "script" / "image", tmp_path, BUILD], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"script/image: '{tmp_path}' is not empty\n")
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


# --- DCGM's library ---

DCGM = BUILD / "sim" / "dcgm4"


def run_patch(way, image):
    """Puts DCGM's library where the patch for the DaemonSet has it in the pod; the variables it sets."""
    patch = yaml.safe_load((ROOT / "deploy" / "dcgm" / f"{way}.yaml").read_text())["spec"]["template"]["spec"]
    [container] = patch["containers"]
    [mount] = container["volumeMounts"]
    folder = image / mount["mountPath"].lstrip("/")
    folder.mkdir(parents=True)
    assert [v["name"] for v in patch["volumes"]] == [mount["name"]]
    if way == "host-path":
        assert patch["volumes"][0]["hostPath"]["type"] == "Directory"
        shutil.copy(DCGM / "libdcgm.so.4", folder)
    else:
        [init] = patch["initContainers"]
        [target] = init["volumeMounts"]
        theirs = image / "theirs" / "x86_64-linux-gnu"
        theirs.mkdir(parents=True)
        shutil.copy(DCGM / "libdcgm.so.4", theirs)
        (theirs / "libnvperf_dcgm_host.so").write_text("")
        command = init["args"][0].replace("/usr/lib/", f"{image}/theirs/").replace(f" {target['mountPath']}/", f" {folder}/")
        subprocess.run([*init["command"], command], check=True)
    return {e["name"]: e["value"] for e in container["env"]}


@pytest.mark.smoke
@pytest.mark.skipif(os.geteuid() != 0, reason="needs chroot")
@pytest.mark.parametrize("way", ["image", "host-path", "init-container"])
def test_dcgm_is_found_where_each_way_puts_it(way):
    import run_node
    with tempfile.TemporaryDirectory(prefix="podgpu-") as folder:
        image = pathlib.Path(folder) / "image"
        subprocess.run([ROOT / "script" / "image", *(["--with-dcgm", DCGM] if way == "image" else []), image, BUILD],
                       check=True, stdout=subprocess.DEVNULL)
        make_null(image)
        env = {} if way == "image" else run_patch(way, image)
        with run_node.SimNode("post-dcgm", directory=image / "node") as node:
            shutil.copy(node.nvml_library, next(image.rglob("libc.so.6")).parent)

            def enter():
                os.chroot(image)
                os.chdir("/")
            exporter = Exporter(["-a", "127.0.0.1:0"], {"SIM_NODE": "/node/node", **env},
                                executable="/usr/bin/podgpu-exporter", preexec_fn=enter)
            try:
                page = exporter.page_when(lambda p: p.samples("DCGM_FI_PROF_GR_ENGINE_ACTIVE"))
                assert [v for _, v in page.samples("DCGM_FI_PROF_GR_ENGINE_ACTIVE")] == ["0.808369"]
            finally:
                exporter.stop()


def test_script_image_says_when_there_is_no_dcgm_in_the_folder(tmp_path):
    done = subprocess.run([ROOT / "script" / "image", "--with-dcgm", tmp_path, tmp_path / "image", BUILD],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1, f"script/image: '{tmp_path}': no libdcgm.so.4 or libdcgm.so.3 in it\n")
    assert not (tmp_path / "image").exists()


@pytest.mark.parametrize("way", ["host-path", "init-container"])
def test_the_patches_for_dcgm_fit_the_manifest(pod, way):
    patch = yaml.safe_load((ROOT / "deploy" / "dcgm" / f"{way}.yaml").read_text())["spec"]["template"]["spec"]
    assert [c["name"] for c in patch["containers"]] == [c["name"] for c in pod["containers"]]
    [container] = patch["containers"]
    [mount] = container["volumeMounts"]
    assert mount["readOnly"] is True
    assert {e["name"]: e["value"] for e in container["env"]} == {"LD_LIBRARY_PATH": mount["mountPath"]}
    assert container["securityContext"] == {"capabilities": {"add": ["SYS_ADMIN"]}}


# --- The manifests ---

@pytest.mark.parametrize("file, group, resource, variables", [
    ("pod-labels.yaml", "", "pods", {"DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"}),
    ("dra.yaml", "resource.k8s.io", "resourceslices", {"KUBERNETES_ENABLE_DRA"})])
def test_the_api_access_is_to_read_that_and_nothing_else(pod, file, group, resource, variables):
    text = (ROOT / "deploy" / file).read_text()
    account, role, binding = yaml.safe_load_all(text)
    assert [account["kind"], role["kind"], binding["kind"]] == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"]
    assert role["rules"] == [{"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    subject = {"kind": "ServiceAccount", **{k: account["metadata"][k] for k in ("name", "namespace")}}
    assert binding["subjects"] == [subject]
    patch = re.search(r"--patch '\n((?:# .*\n)+)", text)[1].replace("'\n", "\n")
    changed = yaml.safe_load(re.sub(r"^# {3}", "", patch, flags=re.M))["spec"]["template"]["spec"]
    assert changed["serviceAccountName"] == account["metadata"]["name"] and changed["automountServiceAccountToken"]
    assert [c["name"] for c in changed["containers"]] == [c["name"] for c in pod["containers"]]
    assert {e["name"] for e in changed["containers"][0]["env"]} == variables


# --- The agent's manifest ---

def test_the_agents_manifest_mounts_what_its_configuration_names_and_asks_for_no_privilege():
    folder = ROOT / "deploy" / "cloudwatch"
    account, role, binding, deployment = yaml.safe_load_all((folder / "agent.yaml").read_text())
    assert [d["kind"] for d in (account, role, binding, deployment)] == [
        "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Deployment"]
    assert deployment["spec"]["replicas"] == 1 and deployment["spec"]["strategy"] == {"type": "Recreate"}
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
    named = json.loads((folder / "cwagentconfig.json").read_text())["logs"]["metrics_collected"]["prometheus"]
    assert os.path.dirname(named["prometheus_config_path"]) in mounts and "/etc/cwagentconfig" in mounts
    assert mounts["/var/lib/podgpu"] == "spool"
    jobs = yaml.safe_load((folder / "prometheus.yaml").read_text())["scrape_configs"]
    allowed = {r for rule in role["rules"] for r in rule["resources"]}
    assert {s["role"] + "s" for j in jobs for s in j["kubernetes_sd_configs"]} <= allowed >= {"services", "pods"}
    assert pod["serviceAccountName"] == account["metadata"]["name"] == binding["subjects"][0]["name"]
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True and security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False and security["runAsUser"] != 0


# --- The manifest ---

def test_the_manifest_is_a_daemonset_and_its_service(manifest):
    daemonset, service = manifest
    assert (daemonset["apiVersion"], daemonset["kind"]) == ("apps/v1", "DaemonSet")
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    assert daemonset["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert daemonset["metadata"]["namespace"] == service["metadata"]["namespace"]


def test_it_asks_for_no_privilege(pod, container):
    assert not {"hostNetwork", "hostIPC", "serviceAccountName"} & pod.keys()
    assert pod["hostPID"] is True  # whose processes run on a shared GPU
    assert pod["automountServiceAccountToken"] is False
    security = container["securityContext"]
    assert "privileged" not in security
    assert security["allowPrivilegeEscalation"] is False and security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}


def test_it_knows_its_own_pod_and_node(container):
    fields = {e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"] for e in container["env"] if "valueFrom" in e}
    assert fields == {"NODE_NAME": "spec.nodeName", "POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}


def test_it_mounts_the_kubelets_folder_and_the_log_and_nothing_else(pod, container):
    folders = {"pod-resources": KUBELET, "log": "/var/log"}
    assert pod["volumes"] == [{"name": n, "hostPath": {"path": p, "type": "Directory"}} for n, p in folders.items()]
    assert container["volumeMounts"] == [{"name": n, "mountPath": p, "readOnly": True} for n, p in folders.items()]
    help_text = subprocess.run([BUILD / "podgpu-exporter", "--help"], capture_output=True, text=True, check=True).stdout
    assert KUBELET + "/kubelet.sock" in re.sub(r"\s+", " ", help_text)


def test_ports_probes_and_annotations_agree(manifest, container):
    [port] = container["ports"]
    listen = plain_env(container)["DCGM_EXPORTER_LISTEN"]
    annotations = manifest[0]["spec"]["template"]["metadata"]["annotations"]
    [service_port] = manifest[1]["spec"]["ports"]
    assert listen == f":{port['containerPort']}"
    assert annotations["prometheus.io/port"] == str(port["containerPort"])
    assert service_port["targetPort"] == port["name"]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]


def test_the_image_of_the_manifest_is_this_version(container):
    assert container["image"] == "podgpu:" + (ROOT / "VERSION").read_text().strip()


@pytest.mark.smoke
def test_the_exporter_takes_the_manifests_arguments_and_answers_its_probes(container):
    env = {k: v for k, v in plain_env(container).items() if k != "DCGM_EXPORTER_LISTEN"}
    with exporter_on("timeslice", *container["args"], kubernetes=False, env=env) as (_, exporter):
        page = exporter.page_when(lambda p: p.samples("DCGM_FI_DEV_FB_USED"))
        for probe in ("livenessProbe", "readinessProbe"):
            assert exporter.get(container[probe]["httpGet"]["path"])[0] == 200
        [(labels, _)] = page.samples("DCGM_FI_DEV_FB_USED")
        assert (labels["namespace"], labels["pod"], labels["container"]) == ("", "", "")
        assert "unknown" not in exporter.log


def test_it_uses_less_memory_than_the_manifest_allows(container):
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi"))
    requested = int(container["resources"]["requests"]["memory"].removesuffix("Mi"))
    with exporter_on("h100x8") as (_, exporter):
        exporter.page_when(lambda p: len(p.samples("DCGM_FI_DEV_FB_USED")) == 8)
        used = 0
        for pid in (exporter.pid, exporter.helper_pid()):
            text = open(f"/proc/{pid}/status").read()
            used += int(re.search(r"VmRSS:\s+(\d+) kB", text)[1])
        assert used / 1024 < requested < limit


# --- The burn pod ---

def test_the_burn_pod_asks_for_one_gpu_and_no_privilege():
    deployment = yaml.safe_load((ROOT / "deploy" / "gpu-burn.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    [container] = pod["containers"]
    assert (deployment["metadata"]["name"], container["name"]) == ("gpu-burn", "main")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert container["image"] == "podgpu:" + (ROOT / "VERSION").read_text().strip()
    security = container["securityContext"]
    assert security["runAsNonRoot"] is True and security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False and security["readOnlyRootFilesystem"] is True


@pytest.mark.smoke
def test_the_burn_pods_arguments_make_load_and_end_with_the_pod():
    import run_node
    [container] = yaml.safe_load((ROOT / "deploy" / "gpu-burn.yaml").read_text())["spec"]["template"]["spec"]["containers"]
    assert os.path.basename(container["command"][0]) == "podgpu-burn"
    arguments = [":0" if a == ":9500" else a for a in container["args"]]
    with run_node.SimNode("burn") as node:
        burn = subprocess.Popen([BUILD / "podgpu-burn", *arguments], stdout=subprocess.PIPE, text=True,
                                env={**os.environ, **node.env, "CUDA_VISIBLE_DEVICES": "0"})
        try:
            for line in burn.stdout:
                if " on " in line or "phase=on" in line:
                    break
            else:
                pytest.fail("no line of an on phase")
        finally:
            burn.send_signal(signal.SIGTERM)
        assert burn.wait(20) == 0


# --- Installing ---

def test_meson_install_puts_programs_and_counters_where_they_are_looked_for(tmp_path):
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", tmp_path], check=True,
                   stdout=subprocess.DEVNULL)
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if not p.is_dir())
    assert files == sorted([f"usr/local/bin/podgpu-{name}" for name in ("agent", "burn", "exporter", "source")]
                           + [f"etc/dcgm-exporter/{p.name}" for p in (ROOT / "etc").glob("*.csv")])
    program = tmp_path / "usr" / "local" / "bin" / "podgpu-exporter"
    process = subprocess.Popen([program, "-a", "127.0.0.1:0", "-f", tmp_path / "etc" / "dcgm-exporter" / "default-counters.csv",
                                "--kmsg-path", ""], stderr=subprocess.PIPE, text=True)
    try:
        log = ""
        for line in process.stderr:
            log += line
            if "gpu driver is ready" in line or "no gpu metrics for now" in line:
                break  # its helper was found and has spoken
        else:
            pytest.fail(log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    assert process.returncode == 0
