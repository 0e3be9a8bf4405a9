"""Results in, one self-contained HTML page out."""

from assay.report.changes import Changes, changes
from assay.report.mlflow import log_to_mlflow
from assay.report.page import write_report
from assay.report.section import Result, Section

__all__ = ["Changes", "Result", "Section", "changes", "log_to_mlflow", "write_report"]
