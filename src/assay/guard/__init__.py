"""A network and its monitor as one system, in torch and as one ONNX graph."""

from assay.guard.any_guard import AnyGuard
from assay.guard.guard import Guard
from assay.guard.input_verdict import InputVerdict
from assay.guard.onnx import OnnxGuard
from assay.guard.verdict import CANCELLED, Answer, Verdict

__all__ = ["CANCELLED", "Answer", "AnyGuard", "Guard", "InputVerdict", "OnnxGuard", "Verdict"]
