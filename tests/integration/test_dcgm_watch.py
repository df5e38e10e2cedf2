# SPDX-License-Identifier: Apache-2.0
"""What podgpu-source dcgm samples, value by value, on the simulated node's libdcgm."""
import contextlib
import csv
import io
import sys

import pytest

from harness import BUILD, ROOT, SLOW
from source_client import S, Source

sys.path.insert(0, str(ROOT / "sim"))
import run_node  # noqa: E402

LIBRARY = {4: BUILD / "sim/dcgm4/libdcgm.so.4", 3: BUILD / "sim/dcgm3/libdcgm.so.3"}
GPU, GPU_I, GPU_CI, SWITCH, LINK, CPU, CORE = range(1, 8)
QUICK = (S // 5, S // 5, S // 5, S // 5)


@contextlib.contextmanager
def source_on(scenario, *arguments, major=4, engine=True, **options):
    """A node with an engine (or one to embed) and a source at it: yields (node, source)."""
    with run_node.SimNode(scenario, kubelet=False, **options) as node:
        where = ["--connect", node.start_engine(major=major).address] if engine else ["--embed", "yes"]
        with Source("--library", LIBRARY[major], *where, *arguments, vendor="dcgm",
                    env={"SIM_NODE": str(node.file)}) as source:
            source.state("ready", 15 * SLOW)
            yield node, source


class Page:
    """What the exporter would know: the list, and the last record of each field of each entity."""

    def __init__(self, source):
        self.source = source
        self.entities = source.entities(15 * SLOW)
        self.records = {}

    def take(self, sample):
        for r in sample.records:
            self.records[r.entity, r.field] = r

    def read_until(self, done, seconds=20):
        """Samples are taken until the page is as it should be."""

        def take(sample):
            self.take(sample)
            return done(self)

        self.source.sample(seconds * SLOW, take)
        return self

    def value(self, entity, field):
        r = self.records.get((entity, field))
        return None if r is None else r.value if r.status == "ok" else r.status

    def of_kind(self, kind):
        return [i for i, e in enumerate(self.entities) if e.kind == kind]

    def fields_of(self, entity):
        return {field for at, field in self.records if at == entity}


def watch(source, fields, **options):
    source.watch(fields, QUICK, **options)
    return Page(source)


def post_fields():
    """{field name: number} of the post's counters file, and what its page shows of each."""
    names = [row[0] for row in csv.reader(io.StringIO((ROOT / "etc/dcp-metrics-included.csv").read_text()),
                                          skipinitialspace=True) if row and not row[0].startswith("#")]
    ids = {}
    for row in csv.DictReader(io.StringIO((ROOT / "data/dcgm-fields.tsv").read_text()), delimiter="\t"):
        for name in [row[c] for c in row if c and ("name" in c or "canonical" in c)]:
            for spelling in (name or "").split(","):
                ids.setdefault(spelling.strip(), int(row["id"]))
    return {name: ids[name] for name in names}


def shown():
    """{name: value} of the page in the post."""
    found = {}
    for line in (ROOT / "tests/blog/metrics.txt").read_text().splitlines():
        if line.startswith("DCGM_"):
            found[line.split("{", 1)[0]] = line.rsplit(" ", 1)[1]
    return found


# What the engine also says of the three that the post's page has not.
NOT_SHOWN = {"DCGM_FI_DRIVER_VERSION": "470.182.03", "DCGM_FI_DEV_MEMORY_TEMP": "not_supported",
             "DCGM_FI_DEV_FB_RESERVED": "not_supported"}


@pytest.mark.smoke
@pytest.mark.parametrize("major", [4, 3])
def test_the_posts_counters_have_the_posts_values(major):
    fields, want = post_fields(), shown()
    assert len(fields) == 26
    with source_on("post-dcgm", major=major) as (_node, source):
        page = watch(source, fields.values())
        page.read_until(lambda p: p.value(0, 1005) == 0.315787 and len(p.fields_of(0)) == 26)
        got = {name: page.value(0, field) for name, field in fields.items()}
        assert {name: f"{got[name]:.6f}" if isinstance(got[name], float) else str(got[name]) for name in want} == want
        assert len(want) == 23
        assert {name: got[name] for name in got.keys() - want.keys()} == NOT_SHOWN


@pytest.mark.faults
@pytest.mark.parametrize("major", [4, 3])
def test_blanks_of_all_kinds_are_statuses_and_no_number(major):
    cases = {150: ("blank", "no_data"), 203: ("not_supported", "not_supported"), 204: ("no_permission", "no_permission"),
             155: ("blank", "no_data"), 156: ("not_supported", "not_supported"), 53: ("not_supported", "not_supported"),
             1005: ("nan", "no_data"), 140: ("not_found", "no_data"), 252: ("status -18", "lost"),
             251: ("status -3", "vendor_error"), 100: ("1455", 1455)}
    with source_on("post-dcgm", major=major) as (node, source):
        for field, (value, _status) in cases.items():
            node.command(f"dcgm set gpu0.{field}={value}")
        page = watch(source, cases)
        page.read_until(lambda p: p.fields_of(0) == set(cases) and p.value(0, 1005) is not None)
        for field, (value, status) in cases.items():
            got = page.value(0, field)
            assert got == status or (status == "vendor_error" and page.records[0, field].status == status), (field, got)
        node.command("dcgm set gpu0.150=66")
        page.read_until(lambda p: p.value(0, 150) == 66)


def test_instances_have_their_own_values_and_what_cannot_be_measured_is_said():
    with source_on("dcgm-mig") as (_node, source):
        page = watch(source, [150, 252, 1001, 1004, 1005])
        instances = page.of_kind(GPU_I)
        assert len(instances) == 4
        page.read_until(lambda p: all(isinstance(p.value(i, 1001), float) for i in instances))
        for i in instances:
            assert page.fields_of(i) == {252, 1001, 1004, 1005}  # power, temperature and such are the board's
        for i in page.of_kind(GPU_CI):
            assert page.fields_of(i) == {252, 1001, 1004}
        for i in page.of_kind(GPU):
            assert page.fields_of(i) == {150, 252, 1001, 1004, 1005}


def test_links_switches_cpus_and_cores_have_the_values_of_the_scenario():
    with source_on("dcgm-fabric") as (_node, source):
        page = watch(source, [150, 701, 705, 780, 783])
        switches, links = page.of_kind(SWITCH), page.of_kind(LINK)
        page.read_until(lambda p: all(isinstance(p.value(i, 705), int) for i in switches) and
                        all(p.value(i, 780) is not None for i in links))
        assert [(page.value(i, 701), page.value(i, 705)) for i in switches] == [(700, 80), (703, 83)]
        of_switches = [i for i in links if page.entities[page.entities[i].parent].kind == SWITCH]
        assert [(page.value(i, 780), page.value(i, 783)) for i in of_switches] == [
            (1000, 1), (1001, 2), (1017, 3), (3000, 4)]
        assert all(150 not in page.fields_of(i) for i in switches + links)
    with source_on("dcgm-grace") as (_node, source):
        page = watch(source, [1100, 1110, 1130, 1140])
        cpus, cores = page.of_kind(CPU), page.of_kind(CORE)
        assert (len(cpus), len(cores)) == (2, 8)
        page.read_until(lambda p: all(p.value(i, 1110) is not None for i in cpus) and
                        all(p.value(i, 1100) is not None for i in cores))
        assert [[page.value(i, f) for f in (1100, 1110, 1130, 1140)] for i in cpus] == [
            [0.25, 47.5, 61.25, "NVIDIA"], [0.75, 51.25, 73.5, "NVIDIA"]]
        assert [page.value(i, 1100) for i in cores] == [0.5] * 4 + [0.875] * 4
        assert all(page.fields_of(i) == {1100} for i in cores)


def test_each_model_has_its_own_profiling_fields():
    with source_on("dcgm-mixed") as (_node, source):
        page = watch(source, [150, 1001, 1004, 1006, 1008])
        names = [page.entities[i].name for i in (0, 1)]
        t4, h100 = (0, 1) if "T4" in names[0] else (1, 0)
        page.read_until(lambda p: isinstance(p.value(t4, 1004), float) and isinstance(p.value(h100, 1006), float))
        assert page.value(t4, 1006) == "not_supported"
        assert isinstance(page.value(t4, 1008), float) and isinstance(page.value(h100, 1001), float)
        assert all(isinstance(page.value(i, 150), int) for i in (t4, h100))


def test_gpus_that_are_not_asked_for_are_left_out():
    with source_on("dcgm-mixed") as (_node, source):
        page = watch(source, [150, 1001], gpus=0b10)
        page.read_until(lambda p: any(f == 150 for _, f in p.records))
        asked = {page.entities[at].index for at, _ in page.records}
        assert asked == {1}


@pytest.mark.faults
@pytest.mark.parametrize("scenario", ["post-dcgm", "dcgm-fabric", "dcgm-mig", "dcgm-grace"])
def test_all_fields_of_the_catalogue_can_be_watched_at_once(scenario):
    ids = [int(row["id"]) for row in csv.DictReader(io.StringIO((ROOT / "data/dcgm-fields.tsv").read_text()),
                                                    delimiter="\t")]
    assert len(ids) == 657
    with source_on(scenario) as (_node, source):
        page = watch(source, ids)
        page.read_until(lambda p: len(p.fields_of(0)) > 500)
        assert page.value(0, 60) == "not_supported"
        assert isinstance(page.value(0, 150), int) and isinstance(page.value(0, 155), float)
        few = len(page.fields_of(0))
        page.read_until(lambda p: isinstance(p.value(0, 150), int))
        assert len(page.fields_of(0)) == few  # all is told with the first sample


@pytest.mark.parametrize("engine", [True, False])
def test_calls_of_a_sample_do_not_grow_with_the_fields(engine):
    """The double counts them, and so does the frame."""
    few = [100, 150, 1001, 310, 391]  # of three cost classes
    rows = csv.DictReader(io.StringIO((ROOT / "data/dcgm-fields.tsv").read_text()), delimiter="\t")
    many = [int(r["id"]) for r in rows if r["entity_level"] == "GPU" and 300 <= int(r["id"]) < 500]
    many = sorted({*few, *many[:85], 101, 155, 203, 204, 206, 207, 251, 252, 1004, 1005})
    seen = []  # calls told by all samples
    with source_on("post-dcgm", engine=engine) as (node, source):
        for fields in (few, many):
            source.watch(fields, QUICK)

            def count(sample):
                seen.append(sample.vendor_calls)
                return sample.watch_id == source.watches

            for _ in range(4):
                assert source.sample(20 * SLOW, count).vendor_calls == 3
            calls = node.node.calls("dcgmGetLatestValues_v2")
            while sum(seen) < calls:
                source.sample(20 * SLOW, count)
            assert sum(seen) - calls in range(3)
        assert len(many) > 90


@pytest.mark.faults
def test_an_engine_that_was_started_anew_is_watched_again():
    with source_on("post-dcgm") as (node, source):
        page = watch(source, [150, 1001])
        page.read_until(lambda p: isinstance(p.value(0, 150), int))
        for _ in range(3):
            node.restart_engine()
            source.state("failed", 20 * SLOW)
            source.state("ready", 20 * SLOW)
            page = Page(source)
            page.read_until(lambda p: isinstance(p.value(0, 150), int) and isinstance(p.value(0, 1001), float))


def test_values_are_as_old_as_the_engines_samples():
    with source_on("post-dcgm") as (_node, source):
        source.watch([150], (S // 5, S, S, S))
        for _ in range(10):
            sample = source.sample(20 * SLOW, lambda s: s.has(150) and isinstance(s.get(150), int))
            record = next(r for r in sample.records if r.field == 150)
            assert record.taken_ns <= sample.ended_ns
            assert sample.ended_ns - record.taken_ns < 5 * S * SLOW
