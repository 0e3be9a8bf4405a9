"""Continuations at low loss: all of them, each once, as enumeration finds them."""

import pytest
import torch
from exact import TinyTransformer

import assay
from assay.errors import InputError

MODEL = TinyTransformer(values=6, length=8, seed=3)
EVERY = torch.cartesian_prod(*[torch.arange(6)] * 4)


@pytest.mark.parametrize("options", [{}, {"allowed": [0, 1, 4]}, {"end": 0}])
def test_the_list_is_that_of_enumeration(options):
    lm = assay.CausalLM(MODEL, 6, 4, prompt=[2, 1], **options)
    inputs = EVERY
    if "allowed" in options:
        inputs = inputs[torch.isin(inputs, torch.tensor(options["allowed"])).all(dim=1)]
    if "end" in options:
        inputs = inputs[((inputs == 0) == ((inputs == 0).cumsum(dim=1) > 0)).all(dim=1)]
    outputs = lm.negative_log_likelihood(inputs)
    ranked, middle = outputs.sort().values, len(outputs) // 20
    below = float(ranked[middle] + ranked[middle + 1]) / 2 / 4  # between two outputs, clear of rounding
    found = assay.memorised(lm, below)
    expected = {tuple(row.tolist()) for row in inputs[outputs <= below * 4]}
    assert found.complete
    assert {tuple(row.tolist()) for row in found.inputs} == expected
    assert len(found) == len(expected) > 1
    assert torch.equal(found.losses, found.losses.sort().values)
    assert torch.allclose(found.losses, lm.negative_log_likelihood(found.inputs), atol=1e-5)
    assert found.evaluations < 6**4 / 2
    assert str(len(expected)) in found.summary()
    assert list(found.to_frame().columns) == ["nats_per_token", "probability", "text"]


def test_a_budget_that_ends_first_is_said_to():
    lm = assay.CausalLM(MODEL, 6, 4, prompt=[2, 1])
    everything, part = (assay.memorised(lm, 3.0, budget=budget) for budget in (10_000, 12))
    assert everything.complete
    assert not part.complete
    assert part.evaluations <= 12 + 4
    assert len(part) < len(everything)
    kept = {tuple(row.tolist()) for row in everything.inputs}
    assert {tuple(row.tolist()) for row in part.inputs} <= kept
    missing = float((-everything.losses).exp().sum() - (-part.losses).exp().sum())
    assert missing <= part.left_over + 1e-6
    assert "At least" in part.summary()


def test_memorised_goes_through_a_file(tmp_path):
    found = assay.memorised(assay.CausalLM(MODEL, 6, 4, prompt=[2, 1]), 1.0)
    assay.save(found, tmp_path / "memorised.safetensors")
    back = assay.load(tmp_path / "memorised.safetensors")
    assert torch.equal(back.inputs, found.inputs)
    assert back.summary() == found.summary()
    assert len(found.plot().axes) == 1


def test_what_cannot_be_searched_is_refused():
    with pytest.raises(InputError, match="nats per token"):
        assay.memorised(assay.CausalLM(MODEL, 6, 4, prompt=[2]), 0.0)
    with pytest.raises(InputError, match="first token is free"):
        assay.memorised(assay.CausalLM(MODEL, 6, 4), 0.5)
