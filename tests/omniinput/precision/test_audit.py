"""A judge corrected by people: exact where the judge is right, unbiased and covered where it is not."""

import numpy as np
import pandas as pd
import pytest
from exact_precision import enumerated, weighted_sum

import assay
from assay.errors import InputError
from assay.omniinput.annotation.audit import Audit, audit_of
from assay.omniinput.annotation.scores import Scores
from assay.omniinput.precision.bin_bootstrap import audited_precision_resamples

EDGES = np.arange(-0.5, 48.0, 6.0)


def rule(inputs):
    return (inputs.sum(dim=1) % 3 == 0).double()


def lenient(inputs):
    """Right about all right inputs, and about half of the wrong ones."""
    return ((inputs.sum(dim=1) % 3 == 0) | (inputs[:, 0] >= 2)).double()


@pytest.fixture(scope="module")
def dist():
    return enumerated(weighted_sum, 5, 4, EDGES)


def labelled(dist, judge, per_bin, seed=0):
    items = assay.choose_items(dist, per_bin=per_bin, seed=seed)
    scores = judge(dist.kept.inputs[items.rows]).numpy()
    columns = {"bin": items.bins, "weight": items.counts, "row": items.rows, "item": items.rows}
    return pd.DataFrame(columns | {"score": scores, "annotator": "ann"})


def test_a_perfect_judge_gives_the_precision_of_every_input_it_scored(dist):
    audited = assay.precision_recall(dist, rule, audit=labelled(dist, rule, 24))
    alone = assay.precision_recall(dist, rule)
    assert audited.audit.share == 1.0
    assert audited.audit.bias == 0.0
    assert np.allclose(audited.precision, alone.precision)
    people = assay.precision_recall(dist, labelled(dist, rule, 24)).to_frame()
    frame = audited.to_frame()
    width, theirs = ((one["r_upper"] - one["r_lower"]).mean() for one in (frame, people))
    assert width < 0.7 * theirs


def test_a_useless_judge_is_not_trusted(dist):
    noise = np.random.default_rng(0).random(len(dist.kept.bins))
    frame = pd.DataFrame({"bin": dist.kept.bins, "score": noise, "row": np.arange(len(noise))})
    labels = labelled(dist, rule, 30)
    curve = assay.precision_recall(dist, frame, audit=labels)
    # 240 audited inputs: the slope of a coin on a uniform number has a standard error of 0.1.
    assert curve.audit.share < 0.3
    assert np.abs(curve.bin_precision - assay.precision_recall(dist, labels).bin_precision).max() < 0.1


def drawn(generator, judged, audited):
    """One bin: people say yes with probability 0.6; the judge always does where they do, else in 40 %."""
    people = (generator.random(judged) < 0.6).astype(float)
    guesses = np.maximum(people, generator.random(judged) < 0.4).astype(float)
    nothing, count = np.zeros(judged, dtype=np.int64), np.arange(judged)
    whole = Scores(nothing, np.ones(judged), count, count, nothing, guesses, ("judge",))
    some = count[:audited]
    part = Scores(nothing[some], np.ones(audited), some, some, nothing[some], people[some], ("ann",))
    return Audit(whole, part, guesses[some])


def test_it_is_the_closed_form_of_power_tuned_prediction_powered_inference():
    """PPI++ for a mean has other inputs than the audited ones for the judge; the estimator is the same."""
    judged, audited = 500, 80
    audit = drawn(np.random.default_rng(3), judged, audited)
    people, guesses = audit.people.label_scores, audit.guesses
    others = audit.judged.label_scores[audited:]
    covariance = np.cov(people, guesses)
    tuning = covariance[0, 1] / ((1 + audited / len(others)) * covariance[1, 1])
    mean = people.mean() + tuning * (others.mean() - guesses.mean())
    assert audit.bin_precision(1)[0] == pytest.approx(mean, abs=1e-12)
    variance = (people - tuning * guesses).var() / audited + tuning**2 * others.var() / len(others)
    resamples = audited_precision_resamples(audit, 1, 2000, np.random.default_rng(0))
    # The unseen half item adds up to 1 / (2 x 80) of the spread; 2000 resamples know it to 2 %.
    assert resamples[0].std() == pytest.approx(np.sqrt(variance), rel=0.1)


def test_intervals_hold_the_truth_at_the_stated_rate_where_the_judge_is_biased():
    generator = np.random.default_rng(0)
    within, means = [], []
    for _ in range(120):
        audit = drawn(generator, 400, 40)
        lower, upper = audited_precision_resamples(audit, 1, 100, generator)
        within.append(np.quantile(lower, 0.025) <= 0.6 <= np.quantile(upper, 0.975))
        means.append((audit.bin_precision(1)[0], audit.judged.bin_precision(1)[0]))
    mine, judge = np.array(means).T
    assert abs(judge.mean() - 0.76) < 0.01  # the judge alone says 0.6 + 0.4 x 0.4
    assert abs(mine.mean() - 0.6) < 3 * mine.std() / np.sqrt(120) + 0.002
    # 95 % is promised: of 120, fewer than 108 hold in one case of a hundred.
    assert np.mean(within) >= 0.9


def test_what_does_not_fit_together_is_refused(dist):
    labels = labelled(dist, rule, 5)
    with pytest.raises(InputError, match="DataFrame of people's labels"):
        assay.precision_recall(dist, rule, audit=rule)
    with pytest.raises(InputError, match="among those that the judge scored"):
        assay.precision_recall(dist, rule, audit=labels.drop(columns="row"))
    some = pd.DataFrame({"bin": dist.kept.bins, "score": 0.0, "row": np.arange(len(dist.kept.bins))})
    with pytest.raises(InputError, match="among those that the judge scored"):
        audit_of(dist, some[some["row"] != labels["row"][3]], labels)


def test_the_summary_says_how_the_judge_did_and_files_keep_it(dist, tmp_path):
    curve = assay.precision_recall(dist, lenient, audit=labelled(dist, rule, 10))
    assert "corrected by one annotator (ann)" in curve.summary()
    assert "too high on average" in curve.summary()
    assay.save(curve, tmp_path / "curve.safetensors")
    assert assay.load(tmp_path / "curve.safetensors").audit == curve.audit


def test_the_command_line_corrects_a_judge(dist, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from assay.cli.app import app

    (tmp_path / "mine.py").write_text("def judge(inputs):\n    return (inputs[:, 0] >= 2).double()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assay.save(dist, "outputs.safetensors")
    labelled(dist, rule, 8).to_csv("labels.csv", index=False)
    asked = ["precision", "outputs.safetensors", "mine:judge", "--audit", "labels.csv"]
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 0, found.output
    assert "A judge scored" in found.output
