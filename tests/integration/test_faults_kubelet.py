# SPDX-License-Identifier: Apache-2.0
"""A kubelet that answers anything, and a socket that is none: pages go on, owners stay, nobody else's are shown."""
import pathlib
import random
import shutil
import time

import pytest

from harness import SLOW, exporter_on
from kubelet_peers import RawKubelet, answer, gpu_row
from test_faults_helper import Scraper, size_of

pytestmark = pytest.mark.faults

UTIL = "DCGM_FI_DEV_GPU_UTIL"


def owners(page):
    """{UUID: pod} of the devices that have one; no device stands twice."""
    rows = [(l["UUID"], l.get("pod")) for l, _ in page.samples(UTIL)]
    assert len(dict(rows)) == len(rows)
    return {uuid: pod for uuid, pod in rows if pod}


class Moody(RawKubelet):
    """Answers with the pods it is given, in the mood it is in."""

    def __init__(self, path):
        self.mood, self.pods, self.random = "well", {}, random.Random(7)
        super().__init__(path, self.serve)

    def serve(self, stream):
        stream.begin()
        data = answer(*[gpu_row(pod, uuid) for uuid, pod in self.pods.items()])
        getattr(self, self.mood)(stream, data)

    def well(self, stream, data):
        stream.reply(data)

    def noise(self, stream, data):
        stream.reply(self.random.randbytes(self.random.randrange(1, 5000)))

    def cut(self, stream, data):
        stream.reply(data[:self.random.randrange(1, len(data))])

    def huge(self, stream, data):
        stream.send(stream.head(), *stream.data(b"\0" + (1 << 30).to_bytes(4, "big")))
        stream.wait_for_end()

    def gone(self, stream, data):
        pass

    def refusing(self, stream, data):
        stream.send(stream.trailers_only(self.random.choice(["1", "2", "7", "13", "14", "16"]), "no\n\x01"))


def test_no_answer_of_a_mad_kubelet_costs_an_owner_or_a_scrape():
    with exporter_on("demo", kubelet=False) as (node, exporter):
        uuids = [node.node.uuid(i) for i in range(4)]
        with Moody(node.socket) as kubelet:
            kubelet.pods = {uuid: f"pod-{i}" for i, uuid in enumerate(uuids)}
            exporter.page_when(lambda p: owners(p) == kubelet.pods, what="owners")
            before = size_of(exporter.pid)
            scraper = Scraper(exporter)
            for mood in ("noise", "cut", "huge", "gone", "refusing"):
                kubelet.mood = mood
                for _ in range(24):
                    assert owners(exporter.page()) == kubelet.pods, mood
                    time.sleep(0.05)
            kubelet.mood = "well"
            for turn in range(3):  # they follow their pods, and never has a GPU two
                kubelet.pods = {uuid: f"pod-{(i + turn) % 4}-of-{turn}" for i, uuid in enumerate(uuids)}
                exporter.page_when(lambda p: owners(p) == kubelet.pods, 8 if turn == 0 else 2.5, f"turn {turn}")
            assert scraper.stop() < 0.5 * SLOW
            after = size_of(exporter.pid)
            assert after[0] <= before[0] + 3 and (SLOW > 1 or after[1] < before[1] + 1000), (before, after)


def test_whatever_stands_in_the_sockets_place_is_survived_and_the_next_kubelet_found():
    with exporter_on("demo", kubelet=False) as (node, exporter):
        path = pathlib.Path(node.socket)
        uuid = node.node.uuid(0)
        places = [lambda: path.write_text("x"), path.mkdir, lambda: path.symlink_to("/nonexistent"),
                  lambda: path.symlink_to(path)]
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        for turn, make in enumerate(places):
            make()
            time.sleep(0.6)
            page = exporter.page()
            assert len(page.samples(UTIL)) == 4 and page.value("podgpu_exporter_attribution_up") == 0
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        with Moody(path) as kubelet:
            kubelet.pods = {uuid: "pod"}
            exporter.page_when(lambda p: owners(p) == {uuid: "pod"}, 15, "the kubelet")
