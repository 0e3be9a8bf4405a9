"""Several workers: one port, one set of counters, nothing answered and not counted."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from torch import nn

import assay
from assay import AccuracyEstimator, Bins, DriftWatch, Guard, Network, VolatilityWatch, Watch
from assay.errors import InputError
from assay.monitors import MaxLogit
from assay.web.limits import Limits
from assay.web.listening import Drain, listening_socket
from assay.web.service import build_facts
from assay.web.supervisor import Supervisor
from assay.web.tally import Tally
from assay.web.worker_process import WorkerPlan

PATIENCE = 300.0
"""Seconds that no answer takes, however busy the machine is."""
INFER = "/v2/models/guard/infer"
MODELS = """
import torch
from torch import nn


def factory():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(9, 6), nn.ReLU(), nn.Linear(6, 3))


def guard(path):
    import assay

    return assay.load(path, network=assay.Network(factory()))


def no_guard():
    from assay.errors import InputError

    raise InputError("expected a guard, got none")


def crash():
    raise SystemExit(1)
"""


def images(count, seed=0):
    return torch.rand(count, 3, 3, generator=torch.Generator().manual_seed(seed))


def body(rows):
    entry = {"name": "x", "shape": list(rows.shape), "datatype": "FP32", "data": rows.flatten().tolist()}
    return json.dumps({"inputs": [entry]})


@pytest.fixture(scope="module")
def guard():
    torch.manual_seed(0)
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(9, 6), nn.ReLU(), nn.Linear(6, 3)))
    trace = network.observe(images(400, 1))
    return Guard(network, MaxLogit().fit(trace)).calibrate(trace, 0.2)


@pytest.fixture(scope="module")
def clean(guard):
    rows = images(300, 2)
    return guard.network.observe((rows, guard.network.observe(rows).predictions))


@pytest.fixture(scope="module")
def models(guard, tmp_path_factory):
    """A module that workers can import, with the guard beside it."""
    folder = tmp_path_factory.mktemp("models")
    assay.save(guard, folder / "guard.safetensors")
    (folder / "models_of_workers.py").write_text(MODELS)
    sys.path.insert(0, str(folder))
    import models_of_workers

    yield models_of_workers
    sys.path.remove(str(folder))


class Address:
    """What clients see of a service."""

    def __init__(self, place):
        self.place = place

    def ask(self, method, path, content=None):
        """Status and body; no status if the connection broke. Each request has a connection of its own."""
        connection = http.client.HTTPConnection(self.place, timeout=PATIENCE)
        try:
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            return None, b""
        finally:
            connection.close()

    def metrics(self):
        status, text = self.ask("GET", "/metrics")
        return {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text.decode() if status else "")
            for sample in family.samples
        }


@pytest.fixture
def supervised(guard, clean, models, tmp_path):
    """Two workers under a supervisor in a thread of this process."""
    running = []

    def start(load=None, **options):
        watch = Watch(
            guard,
            Bins.from_data(clean, width=0.2),
            VolatilityWatch(20).calibrate(clean, resamples=50),
            drift=DriftWatch().calibrate(guard.judge(clean).alarm),
            estimator=AccuracyEstimator(window=20).fit(clean),
        )
        tally = Tally(watch, build_facts(guard), tmp_path / "counts", every=3600.0)
        load = load or partial(models.guard, Path(models.__file__).with_name("guard.safetensors"))
        limits = Limits(**options)
        plan = WorkerPlan.of(watch, load, "guard", limits, None, (), workers=2)
        listener = listening_socket("127.0.0.1", 0)
        supervisor = Supervisor(tally, plan, listener, 2, Drain(3600.0))
        thread = threading.Thread(target=supervisor.run)
        thread.start()
        host, port = listener.getsockname()
        running.append((supervisor, thread, listener))
        return supervisor, thread, Address(f"{host}:{port}")

    yield start
    for supervisor, thread, listener in running:
        supervisor.drain.signal(signal.SIGINT)
        thread.join()
        listener.close()


def test_no_answer_is_missing_from_the_counts_whichever_worker_is_killed(
    supervised, guard, tmp_path, eventually
):
    """Clients ask without a pause while every worker is killed once; then all counts agree."""
    supervisor, thread, service = supervised()
    eventually(lambda: service.metrics().get(("assay_workers",)) == 2)
    answered, broken, stop = [], [], threading.Event()

    def client(seed):
        while not stop.is_set():
            rows = images(1 + len(answered) % 3, seed)
            status, content = service.ask("POST", INFER, body(rows))
            if status == 200:
                answered.append((rows, json.loads(content)))
            else:
                broken.append(status)

    clients = [threading.Thread(target=client, args=(seed,)) for seed in range(3)]
    for one in clients:
        one.start()
    for victim in [worker.process.pid for worker in supervisor.workers]:
        seen = len(answered)
        eventually(lambda seen=seen: len(answered) > seen + 20)
        os.kill(victim, signal.SIGKILL)
    eventually(lambda: supervisor.tally.metrics.restarts._value.get() == 2)
    eventually(lambda: service.metrics().get(("assay_workers",)) == 2)
    stop.set()
    for one in clients:
        one.join()

    rows = sum(len(sent) for sent, _ in answered)
    assert set(broken) <= {None}  # a killed worker breaks its connections; nobody gets a wrong answer
    for _ in range(4):  # whichever worker answers
        found = service.metrics()
        counted = sum(found["assay_predictions_total", name] for name in ("accepted", "cancelled"))
        assert rows <= counted <= rows + 3 * len(broken)  # a request may break after it was counted
        assert len(answered) <= found["assay_requests_total", "200"] <= len(answered) + len(broken)
        assert found["assay_requests_waiting",] == found["assay_requests_reading",] == 0
    for sent, answer in answered[::10]:
        assert answer["outputs"][1]["data"] == guard(sent).scores.tolist()

    supervisor.drain.signal(signal.SIGTERM)
    eventually(lambda: service.ask("GET", "/readyz") == (503, b"draining\n"))
    assert service.ask("GET", "/healthz")[0] == 200
    assert service.ask("POST", INFER, body(images(2)))[0] == 200  # whoever has not noticed is answered
    supervisor.drain.signal(signal.SIGTERM)  # the second ends the wait
    thread.join()
    record = assay.load(tmp_path / "counts")
    assert record.predictions == counted + 2 == record.histogram.total == record.drift.rows_
    assert record.history.windows == record.predictions // 20


def test_a_worker_that_cannot_start_ends_the_service_and_says_why(guard, models):
    other = partial(models.guard, Path(models.__file__).with_name("guard.safetensors"))
    reasons = {
        models.no_guard: "did not: expected a guard, got none",
        models.crash: "did not: it ended with status 1",
        other: "its file has changed, so start the service again",
    }
    for load, reason in reasons.items():
        plan = WorkerPlan(load, "another", (), "guard", Limits(), None, ())
        with listening_socket("127.0.0.1", 0) as listener:
            tally = Tally(Watch(guard), build_facts(guard))
            with pytest.raises(InputError, match=reason):
                Supervisor(tally, plan, listener, 1, Drain()).run()


def test_the_command_starts_workers_that_end_with_it(models, eventually):
    folder = Path(models.__file__).parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    options = ["guard.safetensors", "models_of_workers:factory", "--workers", "2", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from assay.cli import main; main()", "serve", *options],
        cwd=folder, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        found = re.match(r"assay: http://(127\.0\.0\.1:\d+)/", process.stdout.readline())
        service = Address(found.group(1))
        eventually(lambda: service.metrics().get(("assay_workers",)) == 2)
        assert service.ask("POST", INFER, body(images(2)))[0] == 200
        started = _descendants(process.pid)
        assert len(started) >= 3  # two workers, and the process that they were forked from
    finally:
        process.kill()
        process.communicate()
    eventually(lambda: not any(Path(f"/proc/{one}").exists() for one in started))


def _descendants(process):
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in children] + [one for child in children for one in _descendants(child)]
