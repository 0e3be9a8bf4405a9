"""Results as a run of MLflow: their numbers as metrics, the page as an artifact."""

import math
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.extras import expect_installed
from assay.report.page import write_report


def log_to_mlflow(results: Iterable[Any], *, prefix: str = "assay", title: str = "What assay found") -> None:
    """Log results to the active run of MLflow, or to a new one.

    Every measure that a result stands for (`measures()`: gates, mean MCC, monitorability, accuracy) becomes
    three metrics, its value and the ends of its interval; verdicts (`banner()`) become tags; everything
    becomes one HTML page, `assay/report.html`, among the artifacts.
    """
    expect_installed("mlflow")
    import mlflow

    listed = list(results)
    if not listed:
        raise InputError("expected at least one result to log, got none; pass a list of results")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report(listed, page, title=title)
        for result in listed:
            mlflow.log_metrics(_metrics(result, prefix))
            if hasattr(result, "banner"):
                passed, sentence = result.banner()
                mlflow.set_tags({f"{prefix}.passed": str(passed), f"{prefix}.verdict": sentence[:5000]})
        mlflow.log_artifact(str(page), artifact_path="assay")


def _metrics(result: Any, prefix: str) -> dict[str, float]:
    """The finite numbers of a result, by names that MLflow takes."""
    found: dict[str, float] = {}
    for one in result.measures() if hasattr(result, "measures") else ():
        name = f"{prefix}/{re.sub(r'[^A-Za-z0-9_./ -]', '', one.name).strip().replace(' ', '_')}"
        found |= {name: one.value, f"{name}_lower": one.interval[0], f"{name}_upper": one.interval[1]}
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}
