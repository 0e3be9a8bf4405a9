"""A network and its monitor as one system, in torch and as one ONNX graph."""

from assay.guard.guard import CANCELLED, Guard, Verdict
from assay.guard.onnx import OnnxGuard

__all__ = ["CANCELLED", "Guard", "OnnxGuard", "Verdict"]
