"""The protocol gives what its monitors give by hand, tunes on noise alone, and says what came out."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.utils.data import DataLoader, TensorDataset

import assay
from assay.demo.networks import ARCHITECTURES, trained, without
from assay.errors import InputError
from assay.mira import Tuning
from assay.mira.detection import _input_sample, random_noise
from assay.mira.settings import MiraSettings

OPTIONS = {"steps": 4, "resamples": 50, "low": 0.0, "high": 1.0}
TUNING = Tuning(temperatures=[1000.0], magnitudes=[0.0, 0.01], inputs=60)


@pytest.fixture(scope="module")
def digits():
    seen, test = assay.data.digits()
    unknown = {"nine": seen[0][seen[1] == 9], "upside down": test[0].flip(2)}
    return without(seen, [9]), without(test, [9]), unknown


@pytest.fixture(scope="module")
def networks(digits):
    return {
        name: assay.Network(trained(architecture, digits[0], epochs=8))
        for name, architecture in ARCHITECTURES.items()
    }


@pytest.fixture(scope="module")
def validation(networks, digits):
    return assay.validate_monitorability(networks, *digits, tuning=TUNING, **OPTIONS)


def test_every_auroc_is_what_the_tuned_monitor_gives_by_hand(validation, networks, digits):
    train, test, unknown = digits
    for row in validation.detections.itertuples():
        network = networks[row.network]
        monitor = {
            "ODIN": lambda n=network, r=row: assay.monitors.ODIN(
                n, temperature=r.temperature, magnitude=r.magnitude
            ),
            "Mahalanobis": lambda n=network, r=row: assay.monitors.Mahalanobis(
                network=n, magnitude=r.magnitude
            ),
            "Energy": lambda: assay.monitors.Energy(),
        }[row.monitor]()
        monitor.fit(network.observe(train))
        known, strange = (
            monitor.score(network.observe(inputs, keep_inputs=True)).numpy()
            for inputs in (test[0], unknown[row.unknown])
        )
        truth = np.repeat([0, 1], [len(known), len(strange)])
        assert row.auroc == pytest.approx(roc_auc_score(truth, np.concatenate([known, strange])), abs=1e-4)


def test_the_table_holds_the_best_of_each_set_and_their_mean(validation, networks, digits):
    frame = validation.to_frame()
    assert set(frame["network"]) == set(networks)
    for row in frame.to_dict("records"):
        own = validation.detections[validation.detections["network"] == row["network"]]
        best = own.groupby("unknown")["auroc"].max()
        assert row["nine"] == best["nine"]
        assert row["best_auroc"] == pytest.approx(best.mean())
    assert "too few for a rank correlation" in validation.summary()


def test_a_validation_is_saved_and_drawn(validation, tmp_path):
    assay.save(validation, tmp_path / "v")
    assert (
        assay.load(tmp_path / "v", kind="MonitorabilityValidation").to_frame().equals(validation.to_frame())
    )
    assert "AUROC" in validation.plot().axes[0].get_ylabel()


def test_noise_looks_like_the_inputs_in_mean_spread_and_bounds(networks, digits):
    network = networks["wide MLP"]
    sample = digits[0][0][:200]
    free = random_noise(network, sample, MiraSettings())
    # 12,800 values: the standard errors of mean and spread are below 0.004.
    assert float(free.mean()) == pytest.approx(float(sample.mean()), abs=0.015)
    assert float(free.std()) == pytest.approx(float(sample.std()), abs=0.015)
    bounded = random_noise(network, sample, MiraSettings(low=0.0, high=1.0))
    assert bounded.min() >= 0
    assert bounded.max() <= 1


def test_samples_of_loaders_are_bounded_and_come_from_the_data(networks, digits):
    inputs, labels = digits[0]
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=50, generator=torch.Generator())
    drawn = _input_sample(networks["wide MLP"], loader, 70, seed=0)
    assert len(drawn) == 70
    assert all((inputs == row).flatten(1).all(1).any() for row in drawn)


def test_the_summary_follows_the_evidence(validation):
    from dataclasses import replace

    results = validation.comparison.results
    names = tuple("abcdefgh")
    many = assay.MonitorabilityComparison(
        names, tuple(replace(results[0], score=float(8 - rank)) for rank in range(8))
    )
    import pandas as pd

    def words(aurocs):
        table = pd.DataFrame({"network": names, "monitor": "Energy", "unknown": "x", "auroc": aurocs})
        return assay.MonitorabilityValidation(many, table).summary()

    assert "orders these networks as detection does" in words(np.linspace(0.9, 0.6, 8))
    assert "against detection: do not choose by it" in words(np.linspace(0.6, 0.9, 8))
    assert "do not show that the score tracks" in words([0.7, 0.6, 0.9, 0.8, 0.65, 0.85, 0.75, 0.72])


def test_bad_input_gets_one_clear_sentence(networks, digits):
    with pytest.raises(InputError, match="at least one unknown set"):
        assay.validate_monitorability(networks, *digits[:2], {})
    with pytest.raises(InputError, match="expected one layer to validate"):
        assay.validate_monitorability(networks, *digits, layer=("1", "3"))
    with pytest.raises(InputError, match="at least one temperature"):
        Tuning(temperatures=[])
