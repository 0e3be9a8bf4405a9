"""Results in, one self-contained HTML page out."""

from assay.report.page import write_report
from assay.report.section import Result, Section

__all__ = ["Result", "Section", "write_report"]
