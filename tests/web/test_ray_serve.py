"""On Ray Serve one actor counts for all replicas.

`benchmarks/service.py ray` runs it on a cluster and kills a replica; starting one takes a minute of CPU, so
that here the parts are tried without it.
"""

import pytest
import torch
from torch import nn

import assay
from assay import Guard, Network, Watch
from assay.monitors import MaxLogit
from assay.web.ray_serve import TallyActor, guard_application
from assay.web.tally import Seen

pytest.importorskip("fastapi")


def images(count, seed=0):
    return torch.rand(count, 3, 3, generator=torch.Generator().manual_seed(seed))


def watched():
    torch.manual_seed(0)
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(9, 6), nn.ReLU(), nn.Linear(6, 3)))
    trace = network.observe(images(400, 1))
    guard = Guard(network, MaxLogit().fit(trace)).calibrate(trace, 0.2)
    return Watch(guard, assay.Bins.from_data(trace, width=0.2))


def test_the_actor_counts_for_all_replicas_and_forgets_the_gauges_of_those_that_end(tmp_path):
    actor, guard = TallyActor(watched, str(tmp_path / "counts"), 3600.0), watched().guard
    for replica, rows in (("one", 3), ("two", 4)):
        actor.add(Seen.of(guard.answer(images(rows)), actor.layers()))
        actor.add_request(replica, (2, 1), 200, 0.1)
    text = actor.text().decode()
    assert "assay_requests_waiting 4.0" in text
    assert 'assay_requests_total{status="200"} 2.0' in text
    assert "assay_workers 2.0" in text
    actor.leave("one")
    assert "assay_requests_waiting 2.0" in actor.text().decode()
    actor.keep()
    assert assay.load(tmp_path / "counts").histogram.total == 7
    again = TallyActor(watched, str(tmp_path / "counts"), 3600.0)
    assert again.tally.watch.state_now().predictions == 7


@pytest.mark.filterwarnings("ignore")  # of pydantic, where Ray Serve is imported
def test_the_application_is_built_without_a_cluster_and_loads_nothing():
    def fails():
        raise AssertionError

    options = {"max_ongoing_requests": 7, "ray_actor_options": {"num_cpus": 0.5}}
    application = guard_application(fails, name="model", replicas=3, options=options)
    deployment = application._bound_deployment
    assert (deployment.name, deployment.num_replicas, deployment.max_ongoing_requests) == ("model", 3, 7)
