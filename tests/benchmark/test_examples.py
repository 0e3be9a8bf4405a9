"""Examples are the mistakes that the readouts show, the worst first, whatever way the scenarios were run."""

import io

import numpy as np
import pytest
import torch

import assay
from assay.benchmark.example_figures import examples_figures
from assay.benchmark.examples import CANCELLED_GOOD, EACH, MISSED, SIDE, examples_of
from assay.benchmark.readout import Readout
from assay.benchmark.scenario import Scenario


def readout_of(scores, alarm):
    count = len(scores)
    nothing = np.zeros(count)
    return Readout(
        np.arange(count), nothing, np.array(scores), np.array(alarm), nothing, nothing, np.arange(count) % 3
    )


def scenario_of(inputs, is_fault, name="fog (1)"):
    return Scenario(
        name, "shift", 1, torch.arange(len(is_fault)) % 3, torch.tensor(is_fault), make=lambda: inputs
    )


FAULTS = [True] * 6 + [False] * 6
SCORES = [0.5, 0.1, 0.3, 0.2, 0.4, 9.0, 7.0, 0.1, 8.0, 0.2, 0.3, 0.4]
ALARM = [False] * 5 + [True, True, False, True, False, False, False]


def test_the_worst_mistakes_of_each_kind_are_kept():
    """Wrong answers that passed come before right ones; a right answer that was cancelled before a wrong one;
    then the score decides. Row n says class n, and the label is n modulo 3."""
    texts = [f"text {number}" for number in range(12)]
    found = examples_of("mine", scenario_of(texts, FAULTS), readout_of(SCORES, ALARM))
    assert found.texts == ["text 3", "text 4", "text 1", "text 2", "text 8", "text 6"]
    assert found.table["mistake"].tolist() == [MISSED] * EACH + [CANCELLED_GOOD] * 2
    assert found.table["prediction"].tolist() == [3, 4, 1, 2, 8, 6]
    turned = examples_of("mine", scenario_of(texts, FAULTS[::-1]), readout_of(SCORES, [True] * 12))
    assert turned.texts == ["text 0", "text 2", "text 1", "text 5"]


def test_more_scenarios_keep_the_worst_and_no_good_input_twice():
    texts = [f"text {number}" for number in range(12)]
    first = examples_of("mine", scenario_of(texts, FAULTS), readout_of(SCORES, ALARM))
    lower = [score - 1 if fault else score for score, fault in zip(SCORES, FAULTS, strict=True)]
    both = first.joined(examples_of("mine", scenario_of(texts, FAULTS, "fog (5)"), readout_of(lower, ALARM)))
    missed = both.table[both.table["mistake"] == MISSED]
    assert missed["prediction"].tolist() == [3, 4, 3, 4]  # the wrong answers, the lowest scores first
    assert missed["score"].tolist() == pytest.approx([-0.8, -0.6, 0.2, 0.4])
    assert sorted(both.table.query("mistake == @CANCELLED_GOOD")["score"]) == [7.0, 8.0]
    assert not len(both.of_guards(["other"]).table)


def test_images_are_small_and_in_their_range():
    images = torch.linspace(-3, 3, 12 * 3 * 200 * 100).reshape(12, 3, 200, 100)
    images[0, 0, 0, 0] = torch.nan
    found = examples_of("mine", scenario_of(images, FAULTS), readout_of(SCORES, ALARM))
    assert found.images.dtype == torch.uint8
    assert tuple(found.images.shape[1:]) == (3, SIDE, SIDE // 2)
    # 3 lies at 255 and -3 at 0, so that row 8 of 12 begins at two thirds.
    assert float(found.images[4].float().min()) == pytest.approx(255 * 8 / 12, abs=1)
    assert examples_of("mine", scenario_of(torch.zeros(12, 5), FAULTS), readout_of(SCORES, ALARM)) is None
    (figure,) = examples_figures(found, "mine")
    assert "mine" in figure.get_suptitle()
    assert examples_figures(found, "other") == []


def test_texts_with_signs_of_formulas_can_be_drawn():
    texts = ["$x^ and $\\frac{ " * 20] * 12
    found = examples_of("mine", scenario_of(texts, FAULTS), readout_of(SCORES, ALARM))
    drawn = io.BytesIO()
    examples_figures(found, "mine")[0].savefig(drawn, format="svg")  # an error if it were read as a formula
    assert drawn.getvalue().rstrip().endswith(b"</svg>")


def test_a_result_keeps_them_in_its_file(tmp_path):
    torch.manual_seed(0)
    network = assay.Network(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)), layers=())
    inputs, labels = torch.rand(60, 1, 8, 8), torch.arange(60) % 3
    clean = network.observe((inputs, labels))
    guards = {
        name: assay.Guard(network, monitor.fit(clean)).calibrate(clean, 0.3)
        for name, monitor in {"a": assay.monitors.Energy(), "b": assay.monitors.MaxSoftmax()}.items()
    }
    scenarios = [
        scenario_of(inputs + 0.1 * number, [True, False] * 30, f"fog ({number})") for number in (1, 2)
    ]
    found = assay.run_benchmark(guards, scenarios, resamples=10)
    assay.save(found, tmp_path / "result")
    back = assay.load(tmp_path / "result")
    assert back.examples.table.equals(found.examples.table)
    assert torch.equal(back.examples.images, found.examples.images)
    assert set(found.examples.table["guard"]) <= {found.guards[0], found.best}
    verdict = guards["a"](scenarios[0].inputs)
    right = verdict.predictions == scenarios[0].labels
    shown = found.examples.table.query("guard == 'a' and mistake == @CANCELLED_GOOD")
    cancelled = verdict.scores[verdict.alarm & ~scenarios[0].is_fault & right]
    assert len(cancelled)
    assert shown["score"].max() >= float(cancelled.max()) - 1e-6
