"""Runs of language models end on time, stay small, and say beforehand what they will take."""

import numpy as np
import pytest
import torch
from exact import markov_table

import assay
from assay.omniinput.sampling.plan import Budget
from assay.omniinput.sampling.samplers.importance import BATCHES

STEPS = torch.from_numpy(markov_table(12, seed=0)).float()
EDGES = np.arange(12.0, 44.0, 4.0)


def language_model(cached):
    return assay.CausalLM(lambda t: STEPS[t], 12, 10, start=STEPS[-1], cached=cached)


@pytest.mark.parametrize("seconds", [1.5, 6.0])
def test_batches_are_scaled_to_the_time(monkeypatch, seconds):
    """By a clock on which a token takes 0.1 ms: a batch of 256 would take a quarter of a second."""
    clock, batches = [0.0], []

    def cached(tokens, cache):
        clock[0] += 1e-4 * len(tokens)
        batches.append(len(tokens))
        return STEPS[tokens], tokens

    monkeypatch.setattr(Budget, "elapsed", property(lambda self: clock[0]))
    dist = assay.sample_outputs(
        language_model(cached), bins=EDGES, seconds=seconds, seed=0, sampler="importance"
    )
    assert seconds * 0.95 < dist.diagnostics["seconds"] < seconds * 1.05
    assert dist.diagnostics["time_blocks"] >= 20
    # The first of ten tokens is free of charge, so that a run has a ninth more sequences.
    assert max(batches) <= max(seconds * 1000 / BATCHES * 10 / 9, 24)


def test_memory_does_not_grow_with_the_number_of_evaluations(tmp_path):
    """Everything a run keeps is in its checkpoint: with four times the evaluations it has the same size."""
    sizes = []
    for budget in (6_000, 24_000):
        place = tmp_path / f"{budget}.safetensors"
        lm = language_model(lambda tokens, cache: (STEPS[tokens], tokens))
        assay.sample_outputs(
            lm, bins=EDGES, budget=budget, sampler="importance", keep=8, checkpoint=place, seed=0
        )
        sizes.append(place.stat().st_size)
    # Between 20 and 40 blocks of time are kept.
    assert sizes[1] < 1.5 * sizes[0]


def test_a_forecast_comes_before_the_work():
    said, calls = [], []

    def cached(tokens, cache):
        calls.append(len(tokens))
        return STEPS[tokens], tokens

    def heard(sentence):
        said.append((sentence, len(calls)))

    assay.sample_outputs(language_model(cached), bins=EDGES, budget=3_000, seed=0, forecast=heard)
    (sentence, before), *others = said
    assert not others
    assert sentence.startswith("about 3,000 evaluations in ")
    assert "MB beside the model" in sentence
    assert before < 5 < len(calls)
