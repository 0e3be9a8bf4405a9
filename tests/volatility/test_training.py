"""The record of a training, by itself and inside other people's loops."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay.errors import InputError, MissingExtraError
from assay.volatility import lightning_callback, trainer_callback


def trace(sharpness, seed=0, count=300):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (count,), generator=generator)
    logits = sharpness * torch.eye(3)[labels] + torch.randn(count, 3, generator=generator)
    return assay.Trace(logits, labels=labels)


def test_each_epoch_is_measured_on_sets_of_the_validation_rows(tmp_path):
    record = assay.TrainingRecord(sets=4, size=300)
    record.record(1, trace(1.0))
    last = record.record(2, trace(3.0))
    frame = record.to_frame()
    assert len(frame) == 8
    # A set as large as the validation data is the validation data.
    np.testing.assert_allclose(frame["accuracy"][4:], trace(3.0).correct.double().mean())
    assert last == pytest.approx(np.log(assay.volatility_in_certainty(trace(3.0))))
    assay.save(record, tmp_path / "record")
    assert assay.load(tmp_path / "record").to_frame().equals(frame)
    assert record.plot().axes[0].get_ylabel() == "log VC"


def test_the_correlation_is_that_of_the_points_above():
    record = assay.TrainingRecord(sets=5, size=100)
    for epoch, sharpness in enumerate((0.0, 1.0, 2.0, 4.0)):
        record.record(epoch, trace(sharpness))
    frame = record.to_frame()
    above = frame[frame["accuracy"] > 0.5]
    assert record.correlation(0.5) == pytest.approx(above["accuracy"].corr(above["log_vc"]))
    assert "correlation" in record.summary()
    assert np.isnan(record.correlation(above=1.0))


def test_training_stalls_when_log_vc_reaches_no_new_low():
    record = assay.TrainingRecord()
    for epoch, log_vc in enumerate((-5.0, -7.0, -6.5, -6.8)):
        record.points.append([epoch, 0, 0.5, log_vc])
    assert record.stalled(2)
    assert not record.stalled(3)
    assert not assay.TrainingRecord().stalled(2)


def test_the_plain_callback_observes_records_and_stops():
    module = nn.Linear(4, 3)
    data = (
        torch.randn(200, 4, generator=torch.Generator().manual_seed(0)),
        torch.zeros(200, dtype=torch.long),
    )
    record = assay.TrainingRecord(sets=2, size=100)
    after_epoch = record.callback(assay.Network(module), data, patience=2)
    assert [after_epoch(epoch) for epoch in range(3)] == [False, False, True]
    assert len(record.to_frame()) == 6


def test_labels_are_not_needed():
    record = assay.TrainingRecord(sets=2, size=100)
    record.record(0, assay.Trace(trace(1.0).logits))
    assert record.to_frame()["accuracy"].isna().all()
    with pytest.raises(InputError, match="validation rows"):
        assay.TrainingRecord(size=1000).record(0, trace(1.0))


def test_the_hugging_face_adapter_is_a_trainer_callback():
    transformers = pytest.importorskip("transformers")
    module = nn.Linear(4, 3)
    record = assay.TrainingRecord(sets=2, size=50)
    callback = trainer_callback(record, torch.randn(100, 4), patience=1)
    assert isinstance(callback, transformers.TrainerCallback)
    control = transformers.TrainerControl()
    for epoch in (1.0, 2.0):
        control = callback.on_epoch_end(None, SimpleNamespace(epoch=epoch), control, model=module)
    assert control.should_training_stop
    assert record.to_frame()["epoch"].tolist() == [1, 1, 2, 2]


def test_a_missing_package_names_the_line_that_installs_it(monkeypatch):
    for package, callback, extra in (
        ("lightning", lightning_callback, "lightning"),
        ("transformers", trainer_callback, "hf"),
    ):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingExtraError, match=rf"{package}.*pip install 'assay\[{extra}\]'"):
            callback(assay.TrainingRecord(), None)


def test_the_lightning_adapter_is_a_callback(monkeypatch):
    stand_in = SimpleNamespace(Callback=object, __spec__=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "lightning", stand_in)  # importing the real one takes seconds
    monkeypatch.setitem(sys.modules, "lightning.pytorch", stand_in)
    record = assay.TrainingRecord(sets=1, size=50)
    callback = lightning_callback(record, torch.randn(100, 4), patience=1)
    trainer = SimpleNamespace(should_stop=False, current_epoch=0)
    for trainer.current_epoch in (0, 1):
        callback.on_train_epoch_end(trainer, nn.Linear(4, 3))
    assert len(record.to_frame()) == 2
