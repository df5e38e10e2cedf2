# SPDX-License-Identifier: Apache-2.0
"""The agent's numbers. Its targets are one server on as many loopback addresses, so that each has a connection of its own."""
import contextlib
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import tempfile
import time

from common import BUILD, ROOT, bare_server, process_cpu_us, row
from agent_harness import Agent, Target
from measure import memory_kib, pss_kib

ROUNDS = 5
TARGETS, SERIES = 1000, 200
CHURN_SERIES = 50
SECONDS = 8  # that CPU time is taken over, each time
FIELDS = ("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_GPU_TEMP",
          "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
          "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL",
          "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
          "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_FAILURE",
          "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
          "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES", "DCGM_FI_PROF_SM_ACTIVE")
COUNTERS = ("TOTAL_ENERGY_CONSUMPTION", "REPLAY_COUNTER", "BANDWIDTH_TOTAL", "REMAPPED_ROWS", "PCIE_TX_BYTES", "PCIE_RX_BYTES")


# --- Targets and configuration ---

def page(series, field_count=len(FIELDS)):
    """As dcgm-exporter's of a node with pods: so many series, of 8 GPUs or more."""
    gpus = -(-series // field_count)
    lines = []
    for f, field in enumerate(FIELDS[:field_count]):
        lines.append(f"# HELP {field} What it is.\n# TYPE {field} {'counter' if field.endswith(COUNTERS) else 'gauge'}\n")
        for gpu in range(min(gpus, series)):
            value = f"{0.125 * (gpu + 1):.6f}" if "PROF" in field else str(1000 * f + 37 * gpu)
            lines.append(f'{field}{{gpu="{gpu}",UUID="GPU-00000000-0000-0000-0000-{gpu:012}",pci_bus_id="00000000:{gpu:02X}:00.0",'
                         f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="node-1",'
                         f'DCGM_FI_DRIVER_VERSION="535.129.03",container="main",namespace="training",pod="llm-{gpu}"}} {value}\n')
    return "".join(lines).encode()


def addresses(count, port):
    return [f"127.1.{i // 250}.{i % 250 + 1}:{port}" for i in range(count)]


def job(targets, tls=False, interval="1s"):
    """The job of deploy/cloudwatch/prometheus.yaml with static targets."""
    return {"job_name": "gpu-pod-metrics", "scrape_interval": interval, "scrape_timeout": interval, "honor_labels": True,
            "static_configs": [{"targets": targets, "labels": {"Service": "dcgm-exporter"}}],
            "relabel_configs": [{"source_labels": ["__address__"], "target_label": "NodeName"}],
            "metric_relabel_configs": [{"source_labels": ["namespace"], "target_label": "Namespace"}],
            **({"scheme": "https", "tls_config": {"insecure_skip_verify": True}} if tls else {})}


def write_configuration(folder, *jobs):
    """That of deploy/cloudwatch, with these jobs. JSON is YAML."""
    folder = pathlib.Path(folder)
    config = json.loads((ROOT / "deploy" / "cloudwatch" / "cwagentconfig.json").read_text())
    config["agent"] = {"region": "us-west-2"}
    prometheus = config["logs"]["metrics_collected"]["prometheus"]
    prometheus["prometheus_config_path"] = str(folder / "prometheus.yaml")
    prometheus["cluster_name"] = "bench"
    (folder / "cwagentconfig.json").write_text(json.dumps(config))
    (folder / "prometheus.yaml").write_text(json.dumps({"scrape_configs": jobs}))


@contextlib.contextmanager
def agent_with(folder, *jobs, output="file:/dev/null", **more):
    write_configuration(folder, *jobs)
    agent = Agent(["--config", pathlib.Path(folder, "cwagentconfig.json"), "--listen", "127.0.0.1:0", "--output", output],
                  {"RUN_IN_CONTAINER": "True"}, folder=folder, **more)
    try:
        yield agent
    finally:
        agent.stop(seconds=20)


# --- Other scrapers of the same targets ---

@contextlib.contextmanager
def program(*arguments, folder):
    process = subprocess.Popen(arguments, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def prometheus_with(folder, job, _):
    pathlib.Path(folder, "p.yaml").write_text(json.dumps({"scrape_configs": [job]}))
    return program("prometheus", f"--config.file={folder}/p.yaml", f"--storage.tsdb.path={folder}/data",
                   "--web.listen-address=127.0.0.1:0", "--log.level=error", folder=folder)


def vmagent_with(folder, job, port):
    pathlib.Path(folder, "p.yaml").write_text(json.dumps({"scrape_configs": [job]}))
    return program("vmagent", f"-promscrape.config={folder}/p.yaml", f"-remoteWrite.url=http://127.0.0.1:{port}/write",
                   f"-remoteWrite.tmpDataPath={folder}/data", "-httpListenAddr=127.0.0.1:0", "-loggerLevel=ERROR", folder=folder)


OTHERS = {"Prometheus (stores)": ("prometheus", prometheus_with), "vmagent (remote write)": ("vmagent", vmagent_with)}


# --- Measuring ---

def cpu_share(pid, seconds=SECONDS):
    """Of a core."""
    cpu, start = process_cpu_us(pid), time.monotonic()
    time.sleep(seconds)
    return (process_cpu_us(pid) - cpu) / 1e6 / (time.monotonic() - start)


def state(agent, name):
    return agent.page().value("podgpu_agent_targets", state=name)


def wait_for_targets(agent, count):
    """Until all of them answer; on a machine that others keep busy, where a second may be too short for some, only most."""
    deadline = time.monotonic() + 20
    while state(agent, "up") < (count if time.monotonic() < deadline else 0.8 * count):
        if time.monotonic() > deadline + 40:
            break
        time.sleep(0.2)


# --- Rows ---

def bench_emf():
    rates = []
    for _ in range(ROUNDS):
        rate, size, _ = subprocess.run([BUILD / "bench" / "bench_emf"], check=True, capture_output=True, text=True).stdout.split()
        rates.append(int(rate))
    row("agent: exposition → relabelled → EMF, of one core", f"{statistics.median(rates) / 1e6:.2f} M samples/s ({size} B each)", ">= 2.5 M")


def bench_agent_series():
    text = subprocess.run([BUILD / "bench" / "bench_series", ROOT / "tests" / "blog" / "metrics.txt"],
                          capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        n = {k: float(v) for k, v in re.findall(r"(\w+)=([\d.]+)", line)}
        name = f"{n['gpus']:.0f} GPUs of the post's page, {n['samples']:.0f} samples, {n['page_bytes'] / 1024:.0f} KiB"
        row(f"agent: text to series to a sink, {name}",
            f"{1e9 / n['known_ns']:,.0f} samples/s (the parser alone {1e9 / n['parser_ns']:,.0f}; all new {1e9 / n['new_ns']:,.0f})",
            ">= 5,000,000")
        row("... memory of the table", f"{n['series_bytes']:.0f} B a series")


def bench_load():
    """The program itself with the deployed declarations, its events into /dev/null, beside other scrapers of the same targets."""
    with bare_server(page(SERIES)) as (port, _), contextlib.ExitStack() as stack:
        folder = lambda: stack.enter_context(tempfile.TemporaryDirectory(prefix="podgpu-bench-"))
        targets = job(addresses(TARGETS, port))
        agent = stack.enter_context(agent_with(folder(), targets))
        wait_for_targets(agent, TARGETS)
        time.sleep(SECONDS)
        counts = lambda: [agent.page().value(f"podgpu_agent_{n}_total") for n in ("scrapes", "scrape_failures", "emf_event_samples")]
        before, start, shares = counts(), time.monotonic(), []
        for _ in range(ROUNDS):
            shares.append(cpu_share(agent.pid))
        scrapes, failures, sent = [(a - b) / (time.monotonic() - start) for a, b in zip(counts(), before)]
        lost = agent.page().value("podgpu_agent_output_lost_events_total", output="file", to="/dev/null")
        share, pss = statistics.median(shares), pss_kib(agent.pid)
        row(f"agent: {TARGETS:,} targets x {SERIES} series each second, into events",
            f"{share:.2f} core ({min(shares):.2f} to {max(shares):.2f}), {1e6 * share / scrapes:.0f} us a scrape, "
            f"{scrapes:,.0f} scrapes/s ({failures:.0f} fail), "
            f"{sent:,.0f} samples/s in events, {lost:.0f} lost", "<= 0.25 core")
        most = 14 + TARGETS * 12 / 1024 + TARGETS * SERIES * 300 / 2**20
        row("... Pss", f"{pss / 1024:.0f} MiB", f"<= {most:.0f} MiB")
        for name, (binary, start_it) in OTHERS.items():
            bench_beside(name, binary, start_it, targets, port, agent)


def bench_beside(name, binary, start, targets, port, agent):
    """Both run at the same time, so that both have the machine as it then is."""
    if not shutil.which(binary):
        return row(f"... beside {name}", f"{binary} is not installed")
    with tempfile.TemporaryDirectory(prefix="podgpu-bench-") as folder, start(folder, targets, port) as other:
        time.sleep(4 * SECONDS)  # all its series are new once
        ours, theirs = [], []
        for _ in range(ROUNDS):
            before, begun = [process_cpu_us(p) for p in (agent.pid, other.pid)], time.monotonic()
            time.sleep(SECONDS)
            took = (time.monotonic() - begun) * 1e6
            own, its = [(process_cpu_us(p) - b) / took for p, b in zip((agent.pid, other.pid), before)]
            ours.append(own)
            theirs.append(its)
        its, ratio = statistics.median(theirs), statistics.median(t / o for t, o in zip(theirs, ours))
        row(f"... beside {name}", f"it {its:.2f} core, {ratio:.1f} times ours; Pss {pss_kib(other.pid) / 1024:.0f} MiB, "
            f"{pss_kib(other.pid) / pss_kib(agent.pid):.1f} times ours")


def settled(targets, series, *certificate):
    """Pss in KiB of an agent that has scraped all its targets some times."""
    with bare_server(page(series), *certificate) as (port, _), tempfile.TemporaryDirectory(prefix="podgpu-bench-") as folder:
        with agent_with(folder, job(addresses(targets, port), bool(certificate))) as agent:
            wait_for_targets(agent, targets)
            time.sleep(4)
            return pss_kib(agent.pid)


def slope(points):
    return statistics.linear_regression(*zip(*points)).slope


def certificate(folder):
    files = [f"{folder}/certificate.pem", f"{folder}/key.pem"]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=bench", "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


def bench_memory():
    row("agent: Pss with one target, 200 series", f"{settled(1, SERIES) / 1024:.1f} MiB", "<= 14 MiB")
    plain = [(n, settled(n, 1)) for n in (1, 250, 500, 1000)]
    row("... a plain target, of 1 to 1,000 with a series each", f"{slope(plain):.1f} KiB", "<= 12 KiB")
    with tempfile.TemporaryDirectory(prefix="podgpu-bench-") as folder:
        tls = [(n, settled(n, 1, *certificate(folder))) for n in (1, 50, 100, 200)]
    row("... a TLS target, of 1 to 200 with a series each", f"{slope(tls):.1f} KiB", "<= 64 KiB")
    full = [(100 * n, settled(100, n)) for n in (1, 200, 500, 1000)]
    row("... a series, of 100 targets with 1 to 1,000 each", f"{slope(full) * 1024:.0f} B", "<= 300 B")


def first_event_ms(port):
    with tempfile.TemporaryDirectory(prefix="podgpu-bench-") as folder:
        write_configuration(folder, job(addresses(1, port)))
        start = time.monotonic()
        done = subprocess.run([BUILD / "podgpu-agent", "--config", f"{folder}/cwagentconfig.json", "--listen", "", "--once",
                               "--output", "stdout"], capture_output=True, env={**os.environ, "RUN_IN_CONTAINER": "True"})
        assert done.returncode == 0 and done.stdout.startswith(b"{"), done.stderr
        return (time.monotonic() - start) * 1000


def bench_start():
    with bare_server(page(SERIES)) as (port, _):
        times = [first_event_ms(port) for _ in range(2 * ROUNDS)]
    row("agent: --once, from start through a scrape of 200 series to its events and the end", f"{statistics.median(times):.0f} ms")


def bench_churn(seconds=570, forgotten=330):
    """Each scrape brings other series, each second others of the targets; what is gone is kept for five minutes."""
    scrapes = [0]

    def text():
        scrapes[0] += 1
        return page(CHURN_SERIES).replace(b'pod="llm', b'pod="job-%d' % scrapes[0])

    with Target(text) as target, tempfile.TemporaryDirectory(prefix="podgpu-bench-") as folder:
        found = {**job([]), "static_configs": [], "file_sd_configs": [{"files": [f"{folder}/targets.json"]}]}

        def give(n):
            groups = [{"targets": [target.address], "labels": {"Service": "dcgm-exporter", "n": str(i if i < 5 else 10 * n + i)}}
                      for i in range(10)]
            pathlib.Path(folder, "new").write_text(json.dumps(groups))
            os.replace(f"{folder}/new", f"{folder}/targets.json")

        give(0)
        with agent_with(folder, found) as agent:
            sizes = []
            for n in range(seconds):
                give(n)
                time.sleep(1)
                sizes.append(memory_kib(agent.pid, "Anonymous"))
            series = agent.page().value("podgpu_agent_series")
        row(f"agent: memory of its own under churn, {scrapes[0]:,} scrapes with {CHURN_SERIES} new series each",
            f"{max(sizes[:forgotten]) / 1024:.1f} MiB when the first were forgotten after {forgotten} s, "
            f"{sizes[-1] / 1024:.1f} after {seconds} s ({series:,.0f} series)", "flat")


def targets_page(series):
    return "".join(f'DCGM_FI_DEV_METRIC_{i % 20}{{gpu="{i // 20}",UUID="GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52",'
                   f'device="nvidia{i // 20}",modelName="NVIDIA A10G",Hostname="ip-10-0-0-{i}"}} {i * 1.5}\n'
                   for i in range(series)).encode()


def scraping(targets, series, seconds=10):
    """(CPU seconds a second, Pss KiB, targets up, scrapes a second, CPU us a scrape) of a scraper with an interval of 1 s."""
    with bare_server(targets_page(series)) as (port, _), tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "prometheus.yaml")
        groups = json.dumps([{"targets": [f"127.0.0.1:{port}"], "labels": {"__param_n": str(i), "n": str(i)}}
                             for i in range(targets)])
        config.write_text(f"scrape_configs: [{{job_name: bench, scrape_interval: 1s, static_configs: {groups}}}]")
        scraper = subprocess.Popen([BUILD / "bench" / "bench_targets", config], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)

        def stats():
            print("view", file=scraper.stdin, flush=True)
            return json.loads(scraper.stdout.readline())["stats"]

        time.sleep(3)
        before, cpu, start = stats(), process_cpu_us(scraper.pid), time.monotonic()
        time.sleep(seconds)
        cpu, took, after = process_cpu_us(scraper.pid) - cpu, time.monotonic() - start, stats()
        pss = pss_kib(scraper.pid)
        scraper.stdin.close()
        scraper.wait(10)
        scrapes = after["scrapes"] - before["scrapes"]
        return cpu / 1e6 / took, pss, after["up"], scrapes / took, (cpu / scrapes if scrapes else 0)


def bench_agent_targets():
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    _, one, _, _, _ = scraping(1, 1, 3)
    _, empty, _, _, _ = scraping(1000, 1, 3)
    cpu, full, up, rate, _ = scraping(1000, 200)
    row("agent: 1,000 targets x 200 series each second, scraped and looked up",
        f"{cpu:.2f} core at {rate:,.0f} scrapes/s, {up} up", "<= 0.25 core (with its sinks)")
    row("... memory", f"{one / 1024:.1f} MiB with one target, {(empty - one) / 999:.1f} KiB a target, "
        f"{(full - empty) * 1024 / 199000:.0f} B a series, {full / 1024:.0f} MiB in all", "14 MiB + 12 KiB a target + 300 B a series")
    cpu, _, _, _, each = scraping(1, 36000, 5)
    row(f"... one page of {len(targets_page(36000)) / 1e6:.1f} MB, all of it on the loop", f"{each / 1000:.1f} ms a scrape")


BENCHES = {"emf": bench_emf, "agent_series": bench_agent_series, "agent_targets": bench_agent_targets,
           "agent_load": bench_load, "agent_memory": bench_memory, "agent_start": bench_start, "agent_churn": bench_churn}
