"""The example of docs/adding-a-monitor.md is all it takes."""

import re
from pathlib import Path

import pytest
import torch

import assay
from assay import Trace
from assay.errors import NotFittedError

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-monitor.md"


def test_the_example_can_be_fitted_scored_and_saved(tmp_path):
    code = re.search(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {"__name__": "somebody.elses"}
    exec(compile(code.group(1), str(PAGE), "exec"), names)
    monitor = names["Loudest"]()
    trace = Trace(torch.zeros(2, 2), {"penultimate": torch.tensor([[1.0, 2.0], [4.0, 3.0]])})
    with pytest.raises(NotFittedError):
        monitor.score(trace)
    assert monitor.fit([trace[0], trace[1]]).score(trace).tolist() == [0.5, 1.0]
    assay.save(monitor, tmp_path / "monitor.safetensors")
    assert assay.load(tmp_path / "monitor.safetensors").score(trace).tolist() == [0.5, 1.0]
