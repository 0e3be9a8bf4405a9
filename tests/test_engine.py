"""The same seed gives the same result on every engine, also where workers die."""

import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay.engine import checked_engine, mapped, mapping
from assay.errors import InputError, MissingExtraError
from assay.omniinput.sampling.joined_ladders import pooled

# Workers import functions by the name of their module, as they do for anybody's.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]


def doubled(job):
    return 2 * job


def dying(folder, times, job):
    """Kills its own process the first so many times it is asked for job 3."""
    marks = Path(folder)
    if job == 3 and len(list(marks.iterdir())) < times:
        (marks / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def failing(job):
    raise InputError(f"expected another job, got {job}")


def doubled_and_threads(job):
    return 2 * job, torch.get_num_threads()


def test_results_come_in_the_order_of_the_jobs_from_workers_with_as_many_threads():
    assert list(mapped(doubled, range(20), "here")) == list(range(0, 40, 2))
    found = list(mapped(doubled_and_threads, iter(range(20)), "processes"))
    assert [job for job, _ in found] == list(range(0, 40, 2))
    assert {threads for _, threads in found} == {torch.get_num_threads()}
    assert list(mapped(doubled, [], "processes")) == []


def test_a_job_whose_worker_was_killed_is_run_again(tmp_path):
    assert list(mapped(partial(dying, str(tmp_path), 1), range(8), "processes")) == list(range(8))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_job_that_always_kills_its_worker_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(mapping, "RETRIES", 1)
    with pytest.raises(InputError, match="died 2 times"):
        list(mapped(partial(dying, str(tmp_path), math.inf), range(5), "processes"))


@pytest.mark.parametrize("engine", ["here", "processes"])
def test_the_functions_own_error_comes_through(engine):
    with pytest.raises(InputError, match="expected another job, got 7"):
        list(mapped(failing, [7], engine))


def test_bad_input_is_said(monkeypatch):
    with pytest.raises(InputError, match=r"one of \['here', 'processes', 'ray'\], got 'dask'"):
        checked_engine("dask")
    with pytest.raises(InputError, match="at the top level of a module"):
        list(mapped(lambda job: job, [1], "processes"))
    with pytest.raises(InputError, match="at least 2 ladders"):
        assay.sample_outputs(total, assay.InputSpace((6,), 2), bins=np.arange(8) - 0.5, engine="processes")
    with pytest.raises(InputError, match="expected edges of bins for 2"):
        assay.sample_outputs(total, assay.InputSpace((6,), 2), bins=7, ladders=2)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'assay\[ray\]'"):
        checked_engine("ray")


def total(inputs):
    return inputs.float().sum(dim=1)


def blobs(count, seed):
    """Three classes of points around corners."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    return 3 * torch.eye(4)[labels] + torch.randn(count, 4, generator=generator), labels


def trained(width):
    torch.manual_seed(width)
    module = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))
    inputs, labels = blobs(300, 0)
    for _ in range(60):  # by hand: an optimiser of torch takes seconds to import
        loss = nn.functional.cross_entropy(module(inputs), labels)
        slopes = torch.autograd.grad(loss, list(module.parameters()))
        with torch.no_grad():
            for weights, slope in zip(module.parameters(), slopes, strict=True):
                weights -= 0.3 * slope
    return assay.Network(module.eval(), batch_size=50)


def everything(engine, folder):
    """A benchmark, a comparison, a sampling run, a bootstrap, and all that is done with shards, as plain
    numbers."""
    train, test = blobs(300, 1), blobs(200, 2)
    network = trained(8)
    fitted, held = network.observe(train), network.observe(blobs(200, 3))
    monitors = {"energy": assay.monitors.Energy(), "box": assay.monitors.ActivationBox()}
    guards = {
        name: assay.Guard(network, monitor.fit(fitted)).calibrate(held) for name, monitor in monitors.items()
    }
    faulty = torch.arange(200) % 2
    moved = [
        assay.benchmark.Scenario.of(
            f"shift {size}", "shift", test[0] + size * faulty[:, None], test[1], faulty
        )
        for size in (0.5, 4.0)
    ]
    sharded = network.observe_to(folder, train, engine=engine, workers=2, shard_rows=100)
    recorded = assay.benchmark.Scenario.of("recorded", "shift", sharded, train[1], torch.arange(300) % 2)
    table = assay.run_benchmark(guards, [*moved, recorded], resamples=20, engine=engine).table
    networks = {"narrow": trained(5), "wide": network}
    compared = assay.compare_monitorability(
        networks, train, test, steps=4, resamples=20, epsilon_range=(0.1, 0.4), engine=engine
    )
    space, edges = assay.InputSpace((8,), 2), np.arange(10) - 0.5
    dist = assay.sample_outputs(total, space, bins=edges, budget=8_000, ladders=2, seed=3, engine=engine)
    bins = assay.Bins.from_data(held, width=2.0, neurons=(0, 1))
    reshaped = assay.reshape(network.observe(test), assay.Histogram.of(held, bins), 0.1)
    estimate = reshaped.estimate(resamples=120, engine=engine)
    own = reshaped.estimate(_first_label, resamples=60, engine=engine)
    neighbours = assay.monitors.KNN(k=3).fit(sharded, engine=engine)
    columns = [name for name in table if "seconds" not in name]
    return {
        "benchmark": table[columns].to_json(),
        "comparison": compared.to_frame().to_json(),
        "density": dist.log_density.tolist(),
        "error": dist.error.tolist(),
        "kept": dist.kept.inputs.tolist(),
        "estimate": [estimate.lower, estimate.upper, own.lower, own.upper],
        "observed": network.observe(train, engine=engine).logits.tolist(),
        "shards": sharded.logits.tolist(),
        "neighbours": neighbours.score(sharded, engine=engine).tolist(),
        "counts": assay.Histogram.of(sharded, bins, engine=engine).counts.tolist(),
        "accuracy": assay.estimate_accuracy(held, sharded, engine=engine).to_frame().to_json(),
    }


def _first_label(labels, predictions):
    return float((labels == 0).float().mean())


@pytest.fixture(scope="module", autouse=True)
def here(tmp_path_factory):
    """Before any worker starts, so that all of them find imported what they need."""
    return everything("here", tmp_path_factory.mktemp("here") / "shards")


def test_local_processes_give_the_same_results(here, tmp_path):
    assert everything("processes", tmp_path / "shards") == here


def test_shards_are_those_of_the_rows(here):
    assert here["shards"] == here["observed"]


RAY = """
import json, logging, sys, warnings
warnings.simplefilter("ignore")
import ray, ray.data, torch
from ray.cluster_utils import Cluster

# A node that is gone is missed after a second and a half, one that is only slow after a minute.
missed_soon = {"health_check_period_ms": 300, "health_check_initial_delay_ms": 0}
cluster = Cluster(
    initialize_head=True,
    head_node_args={
        "num_cpus": 1,
        "node_ip_address": "127.0.0.1",
        "include_dashboard": False,
        "_system_config": missed_soon,
    },
)
second = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
ray.init(
    address=cluster.address, _node_ip_address="127.0.0.1", log_to_driver=False, logging_level=logging.ERROR
)
ray.data.DataContext.get_current().enable_progress_bars = False
sys.path.insert(0, sys.argv[1])
import test_engine
from assay.engine import mapped

def slow(job):
    import time
    time.sleep(0.3)
    return job, ray.get_runtime_context().get_node_id()

results = mapped(slow, range(8), "ray")
seen = [next(results), next(results)]
cluster.remove_node(second, allow_graceful=False)  # with jobs on it
seen += list(results)
answers = test_engine.everything("ray", sys.argv[2])
alive = sum(node["Alive"] for node in ray.nodes())
network, (inputs, labels) = test_engine.trained(8), test_engine.blobs(300, 1)
rows = [{"x": inputs[row].numpy(), "label": int(labels[row])} for row in range(300)]
named = ray.data.from_items(rows, override_num_blocks=3)
arrays = ray.data.from_numpy([part.numpy() for part in inputs.split(100)])
blocks = [
    network.observe(named, engine="ray", columns=("x", "label")),
    network.observe(arrays, engine="ray"),
]
found = [block.logits.tolist() for block in blocks], blocks[0].labels.tolist()
try:
    network.observe(arrays, engine="processes")
except Exception as error:
    refused = str(error)
with open(sys.argv[3], "w") as file:
    json.dump([[job for job, _ in seen], alive, answers, found, refused], file)
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_a_ray_cluster_that_loses_a_node_gives_the_same_results(here, tmp_path):
    """Two nodes on this machine, one of which is removed while jobs run on it; and datasets of Ray."""
    folder = str(Path(__file__).parent)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([*sys.path, folder]),
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # addresses of this machine are loopback addresses
        "RAY_TMPDIR": "/tmp",  # names of sockets have at most 107 letters
    }
    script = tmp_path / "cluster.py"
    script.write_text(RAY)
    answers = tmp_path / "answers.json"
    done = subprocess.run(
        [sys.executable, str(script), folder, str(tmp_path / "shards"), str(answers)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    order, alive, results, (blocks, labels), refused = json.loads(answers.read_text())
    assert order == list(range(8))
    assert alive == 1
    assert results == here
    for logits in blocks:
        # Batches end with a block, and those of other lengths may round unlike these.
        assert np.allclose(logits, here["observed"], atol=1e-6)
    assert labels == blobs(300, 1)[1].tolist()
    assert "pass engine='ray'" in refused


@pytest.mark.filterwarnings("ignore")  # of what Ray imports
def test_a_job_that_always_kills_its_worker_is_given_up_by_ray(monkeypatch):
    ray = pytest.importorskip("ray")

    def crash(reference):
        raise ray.exceptions.WorkerCrashedError

    monkeypatch.setattr(ray, "get", crash)
    with pytest.raises(InputError, match="died 4 times"):
        mapping._ray_result(None)


def test_ladders_are_weighted_by_their_precision(here):
    space = assay.InputSpace((8,), 2)
    options = {"bins": np.arange(10) - 0.5, "budget": 5_000}
    parts = [assay.sample_outputs(total, space, seed=seed, **options) for seed in (0, 1)]
    joint = pooled(parts)
    weights = 1 / np.stack([part.error for part in parts]) ** 2
    mean = (weights * np.stack([part.log_density for part in parts])).sum(axis=0) / weights.sum(axis=0)
    assert np.allclose(joint.log_density, mean)
    plain = 1 / np.sqrt(weights.sum(axis=0))
    assert np.allclose(joint.error, plain * joint.diagnostics["error_inflation"])
    assert joint.diagnostics["evaluations"] == sum(part.diagnostics["evaluations"] for part in parts)
    exact = np.array([math.log(math.comb(8, k)) - 8 * math.log(2) for k in range(9)])
    assert (np.abs(joint.log_density - exact) < 4 * joint.error).all()
    assert np.abs(np.array(here["density"]) - exact).max() < 0.8
    for bin in range(9):
        assert joint.weights(bin).sum() == pytest.approx(1)
        assert (total(joint.samples(bin)) == bin).all()
    assert np.isfinite(joint.resamples).all()
