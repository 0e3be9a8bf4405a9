"""A killed run goes on as if nothing had happened; a run that cannot go on keeps what it has."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from exact import markov_table

import assay
from assay.errors import GradientError, InputError
from assay.omniinput.sampling.problem import SamplingError

SPACE = assay.InputSpace((6,), 3)
EDGES = np.arange(14) - 0.5


def total(inputs):
    return inputs.double().sum(dim=1)


class Killed(Exception):
    """Stands for a kill in the middle of a model call."""


class Dying:
    """An output function whose process dies at a given call."""

    def __init__(self, function, calls):
        self.function, self.left = function, calls

    def __call__(self, *arguments):
        self.left -= 1
        if self.left == 0:
            raise Killed
        return self.function(*arguments)


@pytest.mark.parametrize("sampler", ["tempering", "multicanonical"])
@pytest.mark.parametrize("calls", [40, 120, 220])
def test_a_killed_run_resumes_to_the_identical_result(tmp_path, sampler, calls):
    options = {"bins": EDGES, "budget": 5_000, "seed": 1, "sampler": sampler}
    whole = assay.sample_outputs(total, SPACE, **options)
    path = tmp_path / "run.safetensors"
    with pytest.raises(Killed):
        assay.sample_outputs(Dying(total, calls), SPACE, **options, checkpoint=path, checkpoint_every=0.0)
    assert path.exists()
    resumed = assay.sample_outputs(total, SPACE, **options, checkpoint=path)
    assert_identical(resumed, whole)


@pytest.mark.parametrize("calls", [60, 300])
def test_a_killed_run_with_gradients_resumes_to_the_identical_result(tmp_path, calls):
    """What kernels learned, and whose turn it is, are part of the run."""
    kernel = ["tilted", "hamiltonian"]
    options = {"bins": EDGES, "budget": 8_000, "seed": 1, "kernel": kernel, "squash": (6.0, 4.0)}
    space = assay.InputSpace((6,), 3)

    def curved(inputs):
        return inputs.float().sum(dim=1) + inputs.float().square().sum(dim=1) / 100

    whole = assay.sample_outputs(curved, space, **options)
    path = tmp_path / "run.safetensors"
    with pytest.raises(Killed):
        assay.sample_outputs(Dying(curved, calls), space, **options, checkpoint=path, checkpoint_every=0.0)
    resumed = assay.sample_outputs(curved, space, **options, checkpoint=path)
    assert_identical(resumed, whole)


@pytest.mark.parametrize("calls", [30, 100, 180])
def test_a_killed_language_model_run_resumes_to_the_identical_result(tmp_path, calls):
    steps = torch.from_numpy(markov_table(5, seed=0)).float()
    options = {"bins": np.arange(2.0, 22.0, 2.0), "budget": 3_000, "seed": 1}

    def language_model(function):
        return assay.CausalLM(function, 5, 6, start=steps[-1], cached=lambda t, c: (function(t), t))

    whole = assay.sample_outputs(language_model(lambda tokens: steps[tokens]), **options)
    path = tmp_path / "run.safetensors"
    dying = language_model(Dying(lambda tokens: steps[tokens], calls))
    with pytest.raises(Killed):
        assay.sample_outputs(dying, **options, checkpoint=path, checkpoint_every=0.0)
    resumed = assay.sample_outputs(language_model(lambda tokens: steps[tokens]), **options, checkpoint=path)
    assert_identical(resumed, whole)


def assert_identical(one, other):
    assert np.array_equal(one.log_density, other.log_density, equal_nan=True)
    assert np.array_equal(one.error, other.error, equal_nan=True)
    assert torch.equal(one.kept.inputs, other.kept.inputs)
    assert one.diagnostics["evaluations"] == other.diagnostics["evaluations"]
    assert one.reasons == other.reasons


def test_a_process_killed_by_the_system_leaves_a_checkpoint_that_resumes(tmp_path, eventually):
    path, source = tmp_path / "run.safetensors", Path(assay.__file__).parents[1]
    script = textwrap.dedent(f"""
        import numpy as np, assay
        assay.sample_outputs(lambda x: x.double().sum(dim=1), assay.InputSpace((6,), 3),
            bins=np.arange(14) - 0.5, budget=10_000, seed=1, checkpoint={str(path)!r}, checkpoint_every=0.0)
    """)
    environment = os.environ | {"PYTHONPATH": str(source)}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: path.exists() or process.poll() is not None)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    dist = assay.sample_outputs(total, SPACE, bins=EDGES, budget=10_000, seed=1, checkpoint=path)
    assert_identical(dist, assay.sample_outputs(total, SPACE, bins=EDGES, budget=10_000, seed=1))


def test_a_checkpoint_of_another_question_is_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    assay.sample_outputs(total, SPACE, bins=EDGES, budget=4_000, seed=1, checkpoint=path)
    with pytest.raises(InputError, match="another seed"):
        assay.sample_outputs(total, SPACE, bins=EDGES, budget=4_000, seed=2, checkpoint=path)
    with pytest.raises(InputError, match="another edges and space"):
        assay.sample_outputs(
            total, assay.InputSpace((7,), 3), bins=EDGES + 1, budget=4_000, seed=1, checkpoint=path
        )


def test_nan_in_the_middle_keeps_what_was_sampled():
    calls = [0]

    def turning_bad(inputs):
        calls[0] += len(inputs)
        outputs = total(inputs)
        return outputs if calls[0] < 4_000 else outputs * float("nan")

    with pytest.raises(SamplingError, match="NaN or infinity") as caught:
        assay.sample_outputs(turning_bad, SPACE, bins=EDGES, budget=20_000, seed=0)
    assert caught.value.partial.visited.sum() > 5


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda inputs: inputs.double(), r"shape \(\d+,\)"),
        (lambda inputs: inputs.double().sum(), "shape"),
        (lambda inputs: 3.0, "got float"),
        (lambda inputs: torch.zeros(len(inputs)), "outputs that differ"),
        (lambda inputs: total(inputs).log(), "NaN or infinity"),
    ],
)
def test_outputs_that_are_no_outputs_are_said_to_be_so(function, message):
    with pytest.raises(InputError, match=message):
        assay.sample_outputs(function, assay.InputSpace((3,), 2), bins=[0, 1, 2, 3], budget=2_000)


def test_bins_that_miss_all_outputs_are_said_and_the_rest_is_kept():
    with pytest.raises(SamplingError, match="all outputs lay between") as caught:
        assay.sample_outputs(total, SPACE, bins=[100, 110, 120], budget=4_000)
    assert caught.value.partial is not None


def test_a_budget_too_small_to_burn_in_is_said_and_the_rest_is_kept():
    with pytest.raises(SamplingError, match="past burn-in") as caught:
        assay.sample_outputs(total, SPACE, bins=EDGES, budget=40)
    assert caught.value.partial is None or caught.value.partial.visited.any()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((total, assay.InputSpace((3,), 1)), {}, "one point"),
        ((total, assay.InputSpace((3,), 5, free=torch.zeros(3))), {}, "one point"),
        ((total,), {}, "neither"),
        ((total, SPACE), {"bins": [3, 2, 1]}, "ascending"),
        ((total, SPACE), {"bins": [1.0]}, "ascending"),
        ((total, SPACE), {"bins": 0}, "ascending"),
        ((total, SPACE), {"budget": 0}, "positive budget"),
        ((total, SPACE), {"seconds": -1.0}, "positive budget"),
        ((total, SPACE), {"sampler": "importance"}, "CausalLM only"),
        ((total, SPACE), {"kernel": "magic"}, "single-site"),
        ((total, SPACE), {"replicas": 1}, "replicas"),
    ],
)
def test_questions_that_make_no_sense_are_refused_before_any_work(arguments, options, message):
    with pytest.raises(InputError, match=message):
        assay.sample_outputs(*arguments, **options)


def test_a_kernel_with_gradients_needs_a_model_with_gradients():
    with pytest.raises(GradientError, match="relaxed="):
        assay.sample_outputs(lambda x: total(x).detach(), SPACE, bins=EDGES, budget=2_000, kernel="informed")


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (lambda tokens: torch.zeros(*tokens.shape, 3), "next-token logits of shape"),
        (lambda tokens: torch.zeros(len(tokens), 4), "next-token logits of shape"),
        (lambda tokens: torch.full((*tokens.shape, 4), float("-inf")), "finite next-token logits"),
    ],
)
def test_logits_that_are_no_logits_are_said_to_be_so(logits, message):
    with pytest.raises(InputError, match=message):
        assay.sample_outputs(assay.CausalLM(logits, values=4, length=3), bins=[0, 1, 2], budget=1_000)


def test_language_models_are_checked_when_built():
    with pytest.raises(InputError, match="at least 2"):
        assay.CausalLM(lambda tokens: tokens, values=1, length=3)
    with pytest.raises(InputError, match="start logits"):
        assay.CausalLM(lambda tokens: tokens, values=4, length=3, start=torch.zeros(3))
    with pytest.raises(InputError, match="transformers causal language model"):
        assay.CausalLM.from_huggingface(object(), length=3)
