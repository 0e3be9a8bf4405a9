"""The service says what the guard says, refuses what is wrong in one sentence, and loses no counts."""

import json
import logging
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from torch import nn

import assay
from assay import Bins, DriftWatch, Guard, Network, VolatilityWatch, Watch
from assay.errors import InputError
from assay.monitors import MaxLogit
from assay.web.listening import listening_socket
from assay.web.service import Limits, Service

PATIENCE = 300.0
"""Seconds that no answer takes, however busy the machine is."""

INFER = "/v2/models/guard/infer"
JSON = {"Content-Type": "application/json"}


def factory():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(9, 6), nn.ReLU(), nn.Linear(6, 3))


def images(count, seed=0):
    return torch.rand(count, 3, 3, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def guard():
    network = Network(factory())
    trace = network.observe(images(400, 1))
    return Guard(network, MaxLogit().fit(trace)).calibrate(trace, 0.2)


@pytest.fixture(scope="module")
def clean(guard):
    rows = images(300, 2)
    return guard.network.observe((rows, guard.network.observe(rows).predictions))


@pytest.fixture
def watch(guard, clean):
    return Watch(
        guard,
        Bins.from_data(clean, width=0.2),
        VolatilityWatch(20).calibrate(clean, resamples=50),
        drift=DriftWatch().calibrate(guard.judge(clean).alarm),
        estimator=assay.AccuracyEstimator(window=20).fit(clean),
    )


@pytest.fixture
def client(watch):
    with TestClient(Service(watch).app, raise_server_exceptions=False) as client:
        yield client


def body(rows, **more):
    entry = {"name": "x", "shape": list(rows.shape), "datatype": "FP32", "data": rows.flatten().tolist()}
    return {"inputs": [entry], **more}


def outputs(response):
    return {entry["name"]: entry for entry in response.json()["outputs"]}


def metrics(text):
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_answers_are_the_guards(client, guard):
    rows = images(5, 3)
    response = client.post(INFER, json=body(rows, id="seven"))
    assert response.status_code == 200
    assert response.json()["model_name"] == "guard"
    assert response.json()["id"] == "seven"
    expected, found = guard(rows), outputs(response)
    assert list(found) == ["prediction", "score", "alarm"]
    assert found["prediction"]["data"] == expected.predictions.tolist()
    assert found["score"]["data"] == expected.scores.tolist()
    assert found["alarm"] == {
        "name": "alarm",
        "datatype": "BOOL",
        "shape": [5],
        "data": expected.alarm.tolist(),
    }
    nested = {**body(rows)["inputs"][0], "data": rows.tolist()}
    again = client.post(INFER, json={"inputs": [nested], "outputs": [{"name": "logits"}]})
    assert outputs(again)["logits"]["shape"] == [5, 3]
    assert torch.allclose(
        torch.tensor(outputs(again)["logits"]["data"]), guard.network.observe(rows).logits.flatten()
    )


def test_reasons_name_the_members_of_a_combination():
    network = Network(factory())
    guard = assay.default_guard(network, images(400, 1), 0.1)
    rows = torch.cat([images(20, 5), images(20, 5) * 9])
    with TestClient(Service(Watch(guard)).app) as client:
        outputs = {part["name"]: part for part in client.post(INFER, json=body(rows)).json()["outputs"]}
        verdict = guard(rows)
        assert outputs["reasons"]["data"] == list(verdict.reasons)
        assert (outputs["reasons"]["datatype"], outputs["reasons"]["shape"]) == ("BYTES", [40])
        counted = {
            sample.labels["reason"]: sample.value
            for family in text_string_to_metric_families(client.get("/metrics").text)
            for sample in family.samples
            if sample.name == "assay_alarms_total"
        }
    assert set(counted) == set(guard.members)
    assert sum(counted.values()) == int(verdict.alarm.sum())


def test_reasons_of_a_single_monitor_come_when_asked_for(client, guard):
    rows = images(30, 5)
    asked = client.post(INFER, json=body(rows, outputs=[{"name": "reasons"}])).json()["outputs"]
    assert asked[0]["data"] == list(guard(rows).reasons)
    assert set(asked[0]["data"]) <= {"", "MaxLogit"}


def test_metrics_count_and_show_the_watch(client, guard, watch):
    rows = images(50, 3)
    client.post(INFER, json=body(rows))
    client.post(INFER, content=b"{", headers=JSON)
    found = metrics(client.get("/metrics").text)
    cancelled = int(guard(rows).alarm.sum())
    assert found["assay_predictions_total", "cancelled"] == cancelled
    assert found["assay_predictions_total", "accepted"] == 50 - cancelled
    assert found["assay_requests_total", "200"] == found["assay_requests_total", "400"] == 1
    assert found["assay_model_seconds_count",] == found["assay_monitor_seconds_count",] == 1
    assert found["assay_request_seconds_count",] == 2
    assert found["assay_requests_waiting",] == 0
    state = watch.state_now()
    assert found["assay_log_vc",] == pytest.approx(state.volatility.log_vc)
    assert found["assay_volatility_alarm",] == state.volatility.alarm
    assert math.isnan(found["assay_alarm_ratio",])
    assert found["assay_drift_alarm",] == 0
    methods = {name[1] for name in found if name[0] == "assay_estimated_accuracy_ratio"}
    assert methods == {estimate.method for estimate in state.estimates.estimates}
    assert found["assay_accuracy_windows",] == state.history.windows == 2
    assert found["assay_reference_accuracy_ratio",] == 1
    assert math.isnan(found["assay_accuracy_ratio",])  # windows of 20 rows are too short for an answer
    verdicts = {name[1]: value for name, value in found.items() if name[0] == "assay_accuracy_verdict"}
    assert verdicts == {"holds": 0, "has fallen": 0, "cannot tell": 1}
    info = next(name for name in found if name[0] == "assay_build_info")
    assert {assay.__version__, guard.fingerprint, "MaxLogit"} <= set(info)
    assert not any("neuron" in part for name in found for part in name)


def test_metrics_show_the_answer_with_its_interval_also_after_a_restart(guard, clean, tmp_path):
    def watch():
        estimator = assay.AccuracyEstimator(window=60).fit(clean)
        return Watch(guard, estimator=estimator, window=60)

    with TestClient(Service(watch(), state=tmp_path / "counts").app) as client:
        before = metrics(client.get("/metrics").text)
        client.post(INFER, json=body(images(70, 3)))
        found = metrics(client.get("/metrics").text)
    assert math.isnan(before["assay_accuracy_ratio",])
    assert not any(value for name, value in before.items() if name[0] == "assay_accuracy_verdict")
    lower, value, upper = (found[f"assay_accuracy{part}_ratio",] for part in ("_lower", "", "_upper"))
    assert 0 <= lower <= value <= upper <= 1
    assert found["assay_accuracy_verdict", "holds"] == 1
    with TestClient(Service(watch(), state=tmp_path / "counts").app) as client:
        again = metrics(client.get("/metrics").text)
    assert again["assay_accuracy_ratio",] == value
    assert again["assay_accuracy_windows",] == 1


def test_the_dashboard_asks_for_metrics_that_there_are(client):
    client.post(INFER, json=body(images(50, 3)))
    there = {name[0] for name in metrics(client.get("/metrics").text)}
    dashboard = json.loads((Path(__file__).parents[2] / "docs" / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked = {name for query in queries for name in re.findall(r"assay_\w+", query)}
    assert len(asked) > 12
    assert asked <= there


def test_health_and_facts(client):
    assert client.get("/healthz").text == "ok\n"
    assert client.get("/readyz").status_code == client.get("/v2/health/ready").status_code == 200
    assert client.get("/v2").json()["name"] == "assay"
    assert client.get("/v2/models/guard").json()["name"] == "guard"


GOOD = {"name": "x", "shape": [2, 3, 3], "datatype": "FP32", "data": [0.5] * 18}
WRONG = {
    "no JSON": (b"not json", "expected a JSON object"),
    "cut off": (json.dumps({"inputs": [GOOD]}).encode()[:-9], "expected a JSON object"),
    "no object": (b"[1, 2]", "expected a JSON object, got list"),
    "deep": (b"[" * 100_000, "expected a JSON object"),
    "not UTF-8": (b'{"inputs": "\xff"}', "expected a JSON object"),
    "no inputs": ({}, '"inputs" as a list'),
    "empty inputs": ({"inputs": []}, '"inputs" as a list'),
    "inputs of strings": ({"inputs": ["x"]}, '"inputs" as a list'),
    "no name": ({"inputs": [GOOD | {"name": 3}]}, "to have a name"),
    "twice": ({"inputs": [GOOD, GOOD]}, "every input once"),
    "no shape": ({"inputs": [GOOD | {"shape": None}]}, "whole numbers"),
    "negative": ({"inputs": [GOOD | {"shape": [-2, 3, 3]}]}, "whole numbers"),
    "huge shape": ({"inputs": [GOOD | {"shape": [2, 10**30]}]}, "whole numbers up to 2147483648"),
    "many axes": ({"inputs": [GOOD | {"shape": [1] * 33}]}, "a shape of 1 to 32 whole numbers"),
    "long name": ({"inputs": [GOOD | {"name": "x" * 201}]}, "a name of at most 200 characters, got 'xxx"),
    "long id": ({"inputs": [GOOD], "id": "x" * 201}, "an id of at most 200 characters"),
    "deep name": (b'{"inputs": [{"name": ' + b"[" * 900 + b"]" * 900 + b"}]}", "to have a name"),
    "half a letter": (
        {"inputs": [GOOD | {"datatype": "BYTES", "shape": [1], "data": ["\ud800"]}]},
        "whole Unicode letters",
    ),
    "type": ({"inputs": [GOOD | {"datatype": "COMPLEX"}]}, "datatype of 'x' among"),
    "no data": ({"inputs": [{key: GOOD[key] for key in ("name", "shape", "datatype")}]}, "as numbers"),
    "ragged": ({"inputs": [GOOD | {"data": [[1, 2], [3]]}]}, "as numbers"),
    "words": ({"inputs": [GOOD | {"data": ["a"] * 18}]}, "as numbers"),
    "fractions": ({"inputs": [GOOD | {"datatype": "INT64"}]}, "as numbers of type INT64"),
    "too few": ({"inputs": [GOOD | {"data": [0.5] * 17}]}, r"expected [2, 3, 3] numbers"),
    "NaN": (json.dumps({"inputs": [GOOD | {"data": [math.nan] * 18}]}).encode(), "finite numbers, got NaN"),
    "infinite": (
        b'{"inputs": [' + json.dumps(GOOD).replace("0.5", "1e999").encode() + b"]}",
        "finite numbers",
    ),
    "too large for its type": ({"inputs": [GOOD | {"data": [1e300] * 18}]}, "finite numbers"),
    "wrong shape": (
        {"inputs": [GOOD | {"shape": [3, 6]}]},
        "such as float32 (rows, 3, 3), got float32 (rows, 6)",
    ),
    "whole numbers": (
        {"inputs": [GOOD | {"datatype": "INT64", "data": [1] * 18}]},
        "expected floating-point inputs",
    ),
    "many rows": ({"inputs": [GOOD | {"shape": [600, 3, 3], "data": [0] * 5400}]}, "expected 1 to 256 rows"),
    "no rows": ({"inputs": [GOOD | {"shape": [0, 3, 3], "data": []}]}, "expected 1 to 256 rows"),
    "outputs": ({"inputs": [GOOD], "outputs": [{"name": "neurons"}]}, '"outputs" by name among'),
    "text": ({"inputs": [GOOD | {"datatype": "BYTES", "shape": [1], "data": ["hello"]}]}, "expected"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_gets_one_sentence_and_the_service_goes_on(client, watch, name, caplog):
    content, sentence = WRONG[name]
    before = watch.state_now().predictions
    with caplog.at_level(logging.WARNING, "assay.service"):
        sent = content if isinstance(content, bytes) else json.dumps(content)
        response = client.post(INFER, content=sent, headers=JSON)
    assert response.status_code == 400
    assert sentence in response.json()["error"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "\n" not in caplog.records[0].getMessage()
    assert watch.state_now().predictions == before
    assert client.post(INFER, json={"inputs": [GOOD]}).status_code == 200


def test_a_shape_the_network_cannot_take_is_the_clients_mistake_also_at_first(guard):
    fresh = Guard(Network(factory()), guard.monitor, 0.0)
    with TestClient(Service(Watch(fresh)).app) as client:
        response = client.post(INFER, json={"inputs": [GOOD | {"shape": [3, 6]}]})
        assert response.status_code == 400
        assert "got float32 (rows, 6)" in response.json()["error"]
        assert client.post(INFER, json={"inputs": [GOOD]}).status_code == 200


def test_unknown_routes_and_methods(client):
    for method, path, status in [
        ("GET", "/nowhere", 404),
        ("POST", "/v2/models/other/infer", 404),
        ("GET", INFER, 405),
    ]:
        response = client.request(method, path)
        assert response.status_code == status
        assert path in response.json()["error"]


def test_a_body_beyond_the_limit_is_refused_before_it_is_held(watch):
    with TestClient(Service(watch, limits=Limits(body=1000)).app) as client:
        assert client.post(INFER, content=b"x" * 2000, headers=JSON).status_code == 413
        pieces = (b"x" * 400 for _ in range(10))  # no length in the header
        assert client.post(INFER, content=pieces, headers=JSON).status_code == 413
        assert client.post(INFER, json=body(images(1))).status_code == 200


class Slow(MaxLogit):
    """Waits until it is let go."""

    def _score(self, trace):
        self.go.wait(PATIENCE)
        return super()._score(trace)


@pytest.fixture
def slow(guard):
    Slow.go = threading.Event()
    monitor = Slow().fit(guard.network.observe(images(3)))
    yield Guard(guard.network, monitor, 0.0)
    Slow.go.set()


def test_more_requests_than_can_wait_are_told_to_retry_later(slow, eventually):
    service = Service(Watch(slow), limits=Limits(waiting=2, seconds=PATIENCE))
    with TestClient(service.app) as client:
        statuses = []
        threads = [
            threading.Thread(
                target=lambda: statuses.append(client.post(INFER, json=body(images(1))).status_code)
            )
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        eventually(lambda: service.waiting == 2)
        refused = client.post(INFER, json=body(images(1)))
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert client.get("/healthz").status_code == 200
        Slow.go.set()
        for thread in threads:
            thread.join()
        assert statuses == [200, 200]
        assert service.waiting == 0
        assert client.post(INFER, json=body(images(1))).status_code == 200


def test_a_request_that_takes_too_long_is_given_up_and_keeps_its_place(slow, eventually):
    service = Service(Watch(slow), limits=Limits(seconds=0.1, waiting=1))
    with TestClient(service.app) as client:
        assert client.post(INFER, json=body(images(1))).status_code == 504
        assert client.post(INFER, json=body(images(1))).status_code == 503  # it is still being computed
        Slow.go.set()
        eventually(lambda: service.waiting == 0)
        service.limits = Limits(seconds=PATIENCE)
        assert client.post(INFER, json=body(images(1))).status_code == 200


class Broken(MaxLogit):
    def _score(self, trace):
        raise ZeroDivisionError


def test_a_fault_of_ours_is_a_500_and_the_service_goes_on(guard):
    broken = Guard(guard.network, Broken().fit(guard.network.observe(images(3))), 0.0)
    with TestClient(Service(Watch(broken)).app, raise_server_exceptions=False) as client:
        assert client.post(INFER, json=body(images(1))).status_code == 500
        found = metrics(client.get("/metrics").text)
        assert found["assay_requests_total", "500"] == 1
        assert found["assay_requests_waiting",] == 0


def test_a_token_is_asked_where_one_was_given(watch):
    with TestClient(Service(watch, token="secret").app) as client:
        assert client.post(INFER, json=body(images(1))).status_code == 401
        assert client.get("/metrics").status_code == 401
        assert client.get("/healthz").status_code == 200
        header = {"Authorization": "Bearer secret"}
        assert client.post(INFER, json=body(images(1)), headers=header).status_code == 200


def test_scores_that_json_cannot_say_are_null(guard):
    class Endless(MaxLogit):
        def _score(self, trace):
            return trace.logits[:, 0] * math.inf

    endless = Guard(guard.network, Endless().fit(guard.network.observe(images(3))), 0.0)
    with TestClient(Service(Watch(endless)).app) as client:
        found = outputs(client.post(INFER, json=body(images(2))))
        assert found["score"]["data"] == [None, None]
        assert found["alarm"]["data"] == [True, True]


def test_texts_are_taken_as_they_are(guard):
    class Letters(Network):
        def encode(self, data):
            return (
                data
                if isinstance(data, torch.Tensor)
                else torch.tensor([[len(text)] * 9 for text in data]).float()
            )

    network = Letters(factory())
    texts = Guard(network, MaxLogit().fit(guard.network.observe(images(3))), 0.0)
    with TestClient(Service(Watch(texts)).app) as client:
        sent = {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["a", "film"]}
        found = outputs(client.post(INFER, json={"inputs": [sent]}))
        assert found["prediction"]["data"] == network.observe(["a", "film"]).predictions.tolist()
        assert client.post(INFER, json={"inputs": [sent | {"shape": [3]}]}).status_code == 400


def test_counts_are_kept_at_intervals_and_at_the_end_and_taken_up_again(guard, clean, tmp_path, eventually):
    path = tmp_path / "counts"
    bins = Bins.from_data(clean, width=0.2)
    with TestClient(Service(Watch(guard, bins), state=path, every=0.05).app) as client:
        client.post(INFER, json=body(images(7)))
        eventually(lambda: path.exists() and assay.load(path).predictions == 7)
        client.post(INFER, json=body(images(4)))
    assert assay.load(path).histogram.total == 11
    service = Service(Watch(guard, bins), state=path)
    assert service.watch.state_now().predictions == 11
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(assay.AssayError, match="truncated or damaged"):
        Service(Watch(guard, bins), state=path)


def test_a_disk_that_is_full_does_not_stop_predictions(guard, tmp_path, caplog, eventually):
    service = Service(Watch(guard), state=tmp_path / "gone" / "counts", every=0.02)
    with TestClient(service.app) as client:
        eventually(lambda: "cannot write" in caplog.text)
        assert client.post(INFER, json=body(images(1))).status_code == 200


def test_wrong_limits_are_said(watch):
    with pytest.raises(InputError, match="limits of at least 1"):
        Limits(rows=0)
    with pytest.raises(InputError, match="positive number of seconds"):
        Service(watch, every=0)


def started(folder, *options):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", "from assay.cli import main; main()", "serve", *options, "--port", "0"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    line = process.stdout.readline()
    found = re.match(r"assay: (http://127\.0\.0\.1:\d+)/", line)
    return process, found.group(1) if found else line


def asked(address, rows):
    request = urllib.request.Request(f"{address}{INFER}", json.dumps(body(rows)).encode(), JSON)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return json.load(response)


def readiness(address):
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=PATIENCE) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_command_serves_survives_kill_and_goes_on(guard, clean, tmp_path, eventually):
    """Killed under load: at most one interval of counts is lost, and the file is whole."""
    assay.save(guard, tmp_path / "guard.safetensors")
    assay.save(clean, tmp_path / "clean.safetensors")
    (tmp_path / "models.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef factory():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(9, 6), nn.ReLU(), nn.Linear(6, 3))\n"
    )
    options = ["guard.safetensors", "models:factory", "--reference", "clean.safetensors", "--window", "20"]
    options += ["--width", "0.2", "--state", "counts", "--every", "0.2"]
    process, address = started(tmp_path, *options)
    times = []
    try:
        while len(times) < 60 or not (tmp_path / "counts").exists():
            answer = asked(address, images(2, len(times)))
            times.append(time.time())
        assert answer["outputs"][1]["data"] == guard(images(2, len(times) - 1)).scores.tolist()
    finally:
        process.kill()
        process.communicate()
    record = assay.load(tmp_path / "counts")
    assert record.histogram.total == record.predictions
    # Everything answered before the file was begun is in it; it is at most an interval and a writing old.
    assert record.predictions >= 2 * int(np.sum(np.array(times) < record.written))
    process, address = started(tmp_path, *options, "--drain", "3600")
    try:
        asked(address, images(3))
        process.send_signal(signal.SIGTERM)
        eventually(lambda: readiness(address) == 503)  # nobody sends it more, but who does is answered
        asked(address, images(2))
    finally:
        process.send_signal(signal.SIGTERM)  # the second ends the wait
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert assay.load(tmp_path / "counts").predictions == record.predictions + 5


def test_answers_do_not_wait_for_acknowledgements_and_a_taken_port_is_said():
    with listening_socket("127.0.0.1", 0) as place:
        port = place.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), place.accept()[0] as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        with pytest.raises(InputError, match=rf"expected a free address, got 127\.0\.0\.1:{port} \("):
            listening_socket("127.0.0.1", port)
        with pytest.raises(InputError, match="a port from 0 to 65535, got 70000"):
            listening_socket("127.0.0.1", 70000)


def test_the_command_says_what_is_wrong_at_start(guard, tmp_path):
    from typer.testing import CliRunner

    from assay.cli import app

    assay.save(guard, tmp_path / "guard.safetensors")
    whole = (tmp_path / "guard.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[:-30])
    (tmp_path / "cut.onnx").write_bytes(b"nothing")

    def error(*arguments):
        result = CliRunner().invoke(app, ["serve", *map(str, arguments)])
        assert isinstance(result.exception, assay.AssayError), result.output
        return str(result.exception)

    network = f"{__name__}:factory"
    sys.modules[__name__] = sys.modules.get(__name__) or type(sys)(__name__)
    vars(sys.modules[__name__]).setdefault("factory", factory)
    assert "truncated or damaged" in error(tmp_path / "cut.safetensors", network)
    assert "cannot be read as ONNX" in error(tmp_path / "cut.onnx")
    assert "found none; check the path" in error(tmp_path / "none.safetensors", network)
    assert "pass module:factory" in error(tmp_path / "guard.safetensors")
    assert "contains its own" in error(tmp_path / "cut.onnx", network)
    assert "expected a module named" in error(tmp_path / "guard.safetensors", "no_such:module")
