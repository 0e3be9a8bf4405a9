"""Results in a real MLflow: metrics with intervals, the verdict, and the page."""

import pytest

from assay.accuracy.headline import Headline
from assay.accuracy.result import AccuracyEstimates
from assay.errors import InputError
from assay.report import log_to_mlflow

mlflow = pytest.importorskip("mlflow")


def answer(*numbers):
    headline = Headline.of(*numbers, 0.9, "a reason") if numbers else Headline.unknown("nobody knows")
    return AccuracyEstimates([], 0.9, 500, 0.95, headline)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        yield lambda: mlflow.MlflowClient().get_run(run.info.run_id)
    mlflow.set_tracking_uri(None)


def test_numbers_the_verdict_and_the_page_are_logged(run):
    log_to_mlflow([answer(0.7, 0.65, 0.75)])
    data, info = run().data, run().info
    assert data.metrics == {"assay/accuracy": 0.7, "assay/accuracy_lower": 0.65, "assay/accuracy_upper": 0.75}
    assert data.tags["assay.passed"] == "False"
    assert data.tags["assay.verdict"].startswith("Accuracy has fallen")
    (page,) = mlflow.MlflowClient().list_artifacts(info.run_id, "assay")
    assert page.path == "assay/report.html"


def test_what_cannot_be_told_has_no_metric(run):
    log_to_mlflow([answer()], prefix="mine")
    assert run().data.metrics == {}
    assert run().data.tags["mine.passed"] == "None"
    with pytest.raises(InputError, match="at least one result"):
        log_to_mlflow([])
