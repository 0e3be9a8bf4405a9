"""The annotation server under load: annotators at once, the server killed and started again in between.

    python benchmarks/annotation.py --annotators 20 --labels 5000 --kills 3

Every annotator works as a browser does: it posts an answer, follows to the next item, and after a failure
posts the same answer again. In the end the store must hold every confirmed label once, with its score.
"""

import argparse
import hashlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

import assay
from assay.omniinput.annotation.store import AnnotationStore

FIELDS = re.compile(r'name="(item|repeat)" value="(\d+)"')


class Server:
    """`assay annotate` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.token = ""

    def start(self) -> None:
        command = [
            sys.executable,
            "-c",
            "from assay.cli import main; main()",
            "annotate",
            "outputs.safetensors",
        ]
        options = ["--store", "labels.db", "--port", str(self.port)]
        self.process = subprocess.Popen(command + options, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if "token=" in line:
                self.token = line.strip().rpartition("token=")[2]
                return
        raise SystemExit("the server did not start")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


class Annotator(threading.Thread):
    """Judges until nothing is left; remembers what was confirmed and how long each answer took."""

    def __init__(self, name: str, server: Server, pause: float) -> None:
        super().__init__()
        self.person, self.server, self.pause = name, server, pause
        self.confirmed: dict[tuple[int, int], float] = {}
        self.seconds: list[float] = []
        self.retries = 0

    def run(self) -> None:
        page = self.asked("GET", None)
        while "Nothing left" not in page:
            item, repeat = (int(value) for _, value in FIELDS.findall(page)[:2])
            score = int(hashlib.sha256(f"{self.person} {item} {repeat}".encode()).hexdigest(), 16) % 5 / 4
            body = urlencode({"item": item, "repeat": repeat, "score": score, "seconds": 1})
            began = time.perf_counter()
            page = self.asked("POST", body)
            self.seconds.append(time.perf_counter() - began)
            self.confirmed[item, repeat] = score
            time.sleep(self.pause)

    def asked(self, method: str, body: str | None) -> str:
        """The page after this request, however often it has to be sent."""
        while True:
            try:
                return self.exchanged(method, body)
            except (OSError, http.client.HTTPException):
                self.retries += 1
                self.link = None
                time.sleep(0.2)

    def exchanged(self, method: str, body: str | None) -> str:
        link = getattr(self, "link", None) or http.client.HTTPConnection(
            "127.0.0.1", self.server.port, timeout=30
        )
        self.link = link
        headers = {"Authorization": f"Bearer {self.server.token}"}
        link.request(method, f"/by/{self.person}", body, headers)
        response = link.getresponse()
        text = response.read().decode()
        if response.status == 303:
            link.request("GET", response.headers["location"], headers=headers)
            response = link.getresponse()
            text = response.read().decode()
        if response.status != 200:
            raise http.client.HTTPException(text)
        return text


def prepared(folder: Path, items: int) -> None:
    """A store in which every annotator judges every item, a text of eight digits."""
    space = assay.InputSpace((8,), 10)
    dist = assay.sample_outputs(
        lambda x: x.double().sum(dim=1), space, bins=np.arange(-0.5, 73, 8), budget=20_000, seed=0, keep=items
    )
    assay.save(dist, folder / "outputs.safetensors")
    chosen = assay.choose_items(dist, items, seed=0)
    kept = np.sort(np.random.default_rng(0).permutation(len(chosen))[:items])
    part = assay.AnnotationItems(
        chosen.rows[kept], chosen.bins[kept], chosen.counts[kept], chosen.inputs[kept], None, 10, chosen.run
    )
    AnnotationStore.create(folder / "labels.db", part, overlap=1.0, repeats=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--annotators", type=int, default=20)
    parser.add_argument("--labels", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between answers of one annotator")
    asked = parser.parse_args()
    os.environ["PYTHONPATH"] = str(Path(assay.__file__).parents[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared(folder, asked.labels // asked.annotators)
        server = Server(folder)
        server.start()
        people = [Annotator(f"person{number}", server, asked.pause) for number in range(asked.annotators)]
        began = time.monotonic()
        for person in people:
            person.start()
        for kill in range(asked.kills):
            while sum(len(person.confirmed) for person in people) < asked.labels * (kill + 1) / (
                asked.kills + 1
            ):
                time.sleep(0.01)
            server.kill()
            server.start()
        for person in people:
            person.join()
        elapsed = time.monotonic() - began
        server.kill()
        report(people, folder, elapsed, asked)


def report(people: list[Annotator], folder: Path, elapsed: float, asked: argparse.Namespace) -> None:
    with AnnotationStore(folder / "labels.db") as store:
        rows = store.labels()
    stored = {(row.annotator, row.item, row.repeat): row.score for row in rows.itertuples()}
    confirmed = {(p.person, *turn): score for p in people for turn, score in p.confirmed.items()}
    lost = [key for key, score in confirmed.items() if stored.get(key) != score]
    doubled = len(rows) - len(stored)
    strangers = [key for key in stored if key not in confirmed]
    times = np.concatenate([person.seconds for person in people])
    calm = np.sort(times)[: len(times) - asked.kills * asked.annotators]
    print(f"{len(people)} annotators, {asked.kills} kills: {len(rows)} labels, {len(confirmed)} confirmed")
    print(f"lost {len(lost)}, doubled {doubled}, never confirmed {len(strangers)}")
    retries = sum(person.retries for person in people)
    print(f"{retries} requests sent again; {len(rows) / elapsed:.0f} labels per second")
    for name, part in (("all", times), ("without those that met a kill", calm)):
        middle, high, top = np.quantile(part, [0.5, 0.95, 1.0]) * 1000
        print(f"round trip in ms, {name}: median {middle:.0f}, 95th percentile {high:.0f}, longest {top:.0f}")
    raise SystemExit(1 if lost or doubled or strangers else 0)


if __name__ == "__main__":
    main()
