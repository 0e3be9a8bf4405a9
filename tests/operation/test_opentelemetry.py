"""The watch through the real SDK of OpenTelemetry."""

import pytest
import torch
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import assay
from assay.errors import InputError
from assay.operation import watch_with_opentelemetry


@pytest.fixture
def watch():
    torch.manual_seed(0)
    network = assay.Network(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    )
    clean = network.observe((torch.randn(200, 4), torch.arange(200) % 3))
    guard = assay.Guard(network, assay.monitors.Energy().fit(clean)).calibrate(clean, 0.1)
    drift = assay.DriftWatch(false_alarm_rate=0.01).calibrate(guard.judge(clean).alarm)
    estimator = assay.AccuracyEstimator(window=50).fit(clean)
    return assay.Watch(guard, drift=drift, estimator=estimator, window=50)


def exported(reader):
    return {
        metric.name: metric.data.data_points[0]
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.data.data_points
    }


def test_a_meter_reads_what_the_watch_knows(watch):
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    watch_with_opentelemetry(watch, provider.get_meter("test"), model="signs")
    verdict = watch(torch.randn(30, 4))
    found = exported(reader)
    assert found["assay.predictions"].value == 30
    assert found["assay.predictions.cancelled"].value == int(verdict.alarm.sum())
    assert found["assay.drift.alarm"].value == 0
    assert found["assay.predictions"].attributes == {"model": "signs"}
    assert "assay.accuracy" not in found  # no window is full yet
    assert "assay.volatility.alarm" not in found
    watch(torch.randn(30, 4))
    found = exported(reader)
    assert found["assay.predictions"].value == 60
    latest = watch.state_now().history.latest
    assert found["assay.accuracy.fallen"].value == float(latest.verdict == "has fallen")
    if latest.value == latest.value:
        assert found["assay.accuracy"].value == pytest.approx(latest.value)
    provider.shutdown()


def test_only_a_watch_can_be_exported(watch):
    with pytest.raises(InputError, match=r"expected an assay\.Watch to export, got Guard"):
        watch_with_opentelemetry(watch.guard)
