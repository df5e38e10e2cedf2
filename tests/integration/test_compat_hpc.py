"""HPC job mapping: files that name the jobs on each GPU become hpc_job labels, and are followed while running."""
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness import SLOW, exporter_at, wait_until

pytestmark = pytest.mark.faults

TEMP = "DCGM_FI_DEV_GPU_TEMP"
USED = "DCGM_FI_DEV_FB_USED"


@pytest.fixture(scope="module")
def node():
    import run_node
    with run_node.SimNode("demo", freeze=5) as n:
        yield n


@pytest.fixture(scope="module")
def mig():
    import run_node
    with run_node.SimNode("mig", freeze=5, kubelet=False) as n:
        yield n


@pytest.fixture
def jobs(tmp_path):
    folder = tmp_path / "jobs"
    folder.mkdir()
    return folder


def on(page, family=TEMP):
    """[(gpu, instance, job), ...] in page order."""
    return [(l["gpu"], l.get("GPU_I_ID"), l.get("hpc_job")) for l, _ in page.samples(family)]


def test_each_job_of_a_gpu_has_a_sample_of_each_family(node, jobs):
    (jobs / "0").write_text("job1-0\n")
    (jobs / "1").write_text("job1-1\njob2-1")
    (jobs / "2").write_text("")
    (jobs / "7").write_text("of a GPU that is not there\n")
    (jobs / "3").mkdir()
    for name in ("foo", "bar.txt", ".gitkeep", "1e5", "NaN", "Inf", "+3", "-2", ".5", "1.2.3", "03"):
        (jobs / name).write_text("no job\n")
    with exporter_at(node, f"--hpc-job-mapping-dir={jobs}", kubernetes=False) as exporter:
        page = exporter.page_when(lambda p: p.samples(TEMP), what="devices")
    want = [("0", None, "job1-0"), ("1", None, "job1-1"), ("1", None, "job2-1"), ("2", None, None), ("3", None, None)]
    for family in page.device_families():
        assert on(page, family) == want, family
    values = [v for _, v in page.samples(USED)]
    assert values[1] == values[2] != values[0]
    assert "no job" not in page.text
    series = [(s.name, tuple(sorted(s.labels.items()))) for f in text_string_to_metric_families(page.text) for s in f.samples]
    assert len(series) == len(set(series))


def test_the_job_stands_among_the_owners_labels(node, jobs):
    (jobs / "0").write_text('job "a"\\b\n')
    with exporter_at(node, env={"DCGM_HPC_JOB_MAPPING_DIR": str(jobs)}) as exporter:
        page = exporter.page_when(lambda p: p.samples(TEMP), what="devices")
    labels, _ = page.samples(TEMP)[0]
    assert list(labels)[-4:] == ["container", "hpc_job", "namespace", "pod"]
    assert labels["hpc_job"] == 'job "a"\\b' and labels["pod"] == "gpu-burn-c68d8c774-ltg9s"
    assert "hpc_job" not in page.samples(TEMP)[1][0]


def test_jobs_of_an_instance_are_not_those_of_its_board(mig, jobs):
    (jobs / "0.3").write_text("of the instance\n")
    (jobs / "0").write_text("of the board\n")
    (jobs / "1").write_text("of the whole GPU\n")
    with exporter_at(mig, f"--hpc-job-mapping-dir={jobs}", "-d", "g+i", kubernetes=False) as exporter:
        page = exporter.page_when(lambda p: len(p.samples(USED)) == 6, what="devices")
    want = [("0", None, "of the board"), ("1", None, "of the whole GPU"), ("0", "1", None),
            ("0", "3", "of the instance"), ("0", "7", None), ("0", "8", None)]
    assert on(page, USED) == on(page) == want


def test_jobs_come_change_and_go_while_running(node, jobs):
    with exporter_at(node, f"--hpc-job-mapping-dir={jobs}", kubernetes=False) as exporter:
        first = lambda p: [job for gpu, _, job in on(p) if gpu == "0"]
        exporter.page_when(lambda p: first(p) == [None], what="no job")
        (jobs / "0").write_text("one\n")
        exporter.page_when(lambda p: first(p) == ["one"], 5, "a job")
        (jobs / "new").write_text("two\nthree\n")
        (jobs / "new").rename(jobs / "0")
        exporter.page_when(lambda p: first(p) == ["two", "three"], 5, "two jobs")
        (jobs / "0").write_text("four\n")
        exporter.page_when(lambda p: first(p) == ["four"], 5, "another")
        (jobs / "0").unlink()
        page = exporter.page_when(lambda p: first(p) == [None], 5, "none again")
        assert "hpc_job" not in page.text


def test_jobs_change_at_once_however_rarely_the_gpus_are_sampled(node, jobs):
    with exporter_at(node, f"--hpc-job-mapping-dir={jobs}", "-c", "60000", kubernetes=False) as exporter:
        exporter.page_when(lambda p: p.samples(TEMP), what="devices")
        (jobs / "2").write_text("late\n")
        exporter.page_when(lambda p: ("2", None, "late") in on(p), 3, "the job")


def test_a_directory_that_is_not_there_is_told_and_looked_for(node, tmp_path):
    folder = tmp_path / "later"
    with exporter_at(node, f"--hpc-job-mapping-dir={folder}", kubernetes=False) as exporter:
        page = exporter.page_when(lambda p: len(p.samples(TEMP)) == 4, what="devices")
        assert "hpc_job" not in page.text
        wait_until(lambda: str(folder) in exporter.log, 3, "told")
        time.sleep(1.2)
        assert exporter.log.count(str(folder)) == 1
        folder.mkdir()
        (folder / "1").write_text("j\n")
        exporter.page_when(lambda p: ("1", None, "j") in on(p), 5, "the job")
