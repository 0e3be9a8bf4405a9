"""Saved predictions give the same probabilities and labels from every file that people keep them in."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch

import assay
from assay.data import read_probabilities
from assay.errors import InputError, MissingExtraError

CLASSES = ("cat", "dog", "eel")


@pytest.fixture(scope="module")
def predictions():
    generator = np.random.default_rng(0)
    return generator.dirichlet(np.ones(3), 50), generator.integers(0, 3, 50)


def frame_of(predictions, **others):
    rows, labels = predictions
    names = [CLASSES[label] for label in labels]
    return pd.DataFrame(rows, columns=list(CLASSES)).assign(label=names, **others)


def csv(frame, path, **options):
    frame.to_csv(path, **options)
    return path


WRITERS = {
    "csv, names": lambda p, f: csv(frame_of(p), f / "a.csv", index=False),
    "csv, index": lambda p, f: csv(frame_of(p), f / "a.csv"),
    "tsv, gzip": lambda p, f: csv(frame_of(p), f / "a.tsv.gz", index=False, sep="\t"),
    "csv, ids and features": lambda p, f: csv(
        frame_of(p, id=range(50), x=3.5).rename(columns={name: f"p_{name}" for name in CLASSES}),
        f / "a.csv",
        index=False,
    ),
    "csv, predictions": lambda p, f: csv(
        frame_of(p, prediction="cat", confidence=0.5), f / "a.csv", index=False
    ),
    "parquet": lambda p, f: frame_of(p).to_parquet(f / "a.parquet") or f / "a.parquet",
    "parquet, lists": lambda p, f: (
        pd.DataFrame({"probabilities": list(p[0]), "target": p[1]}).to_parquet(f / "a.parquet")
        or f / "a.parquet"
    ),
    "npz": lambda p, f: np.savez(f / "a.npz", probabilities=p[0], labels=p[1]) or f / "a.npz",
    "npz, other name": lambda p, f: np.savez(f / "a.npz", out=p[0], y=p[1]) or f / "a.npz",
}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_file_gives_the_same(predictions, tmp_path, writer):
    saved = read_probabilities(WRITERS[writer](predictions, tmp_path))
    np.testing.assert_allclose(saved.probabilities, predictions[0], rtol=1e-14)
    assert saved.labels.tolist() == predictions[1].tolist()
    if "csv" in writer or writer == "parquet":
        assert saved.classes == CLASSES
    trace = assay.Trace.from_probabilities(*saved)
    assert trace.correct.double().mean() == (predictions[0].argmax(axis=1) == predictions[1]).mean()


def test_without_labels_there_are_none(predictions, tmp_path):
    frame = pd.DataFrame(predictions[0])  # pandas names the columns 0, 1, 2
    np.save(tmp_path / "a.npy", predictions[0])
    frame.to_parquet(tmp_path / "a.parquet")
    places = [
        csv(frame, tmp_path / "named.csv", index=False),
        csv(frame, tmp_path / "bare.csv", index=False, header=False),
        tmp_path / "a.npy",
        tmp_path / "a.parquet",
    ]
    for place in places:
        saved = read_probabilities(place)
        np.testing.assert_allclose(saved.probabilities, predictions[0], rtol=1e-14)
        assert saved.labels is None


def test_columns_without_names_are_chosen_by_position(predictions, tmp_path):
    path = tmp_path / "a.csv"
    np.savetxt(path, np.c_[predictions[0], predictions[1]], delimiter=",")
    with pytest.raises(InputError, match=r"a\.csv: .*without their last number.*label; pass label=-1"):
        read_probabilities(path)
    saved = read_probabilities(path, label=-1)
    assert saved.labels.tolist() == predictions[1].tolist()
    assert saved.classes is None


def test_one_column_is_the_second_of_two_classes(tmp_path):
    path = csv(pd.DataFrame({"p": [0.2, 0.9], "y": [0, 1]}), tmp_path / "a.csv", index=False)
    saved = read_probabilities(path)
    np.testing.assert_allclose(saved.probabilities, [[0.8, 0.2], [0.1, 0.9]])
    assert saved.labels.tolist() == [0, 1]


def test_labels_are_numbers_names_or_names_in_a_stated_order(predictions, tmp_path):
    rows, numbers = predictions
    words = pd.Series(["eins", "zwei", "drei"])[numbers].tolist()
    path = csv(pd.DataFrame(rows).assign(label=words), tmp_path / "a.csv", index=False)
    with pytest.raises(InputError, match=r"expected the classes \['0', '1', '2'\], got '(eins|zwei|drei)'"):
        read_probabilities(path)
    saved = read_probabilities(path, classes=("eins", "zwei", "drei"))
    assert saved.labels.tolist() == numbers.tolist()
    from_one = pd.DataFrame(rows, columns=["1", "2", "3"]).assign(label=numbers + 1)
    assert read_probabilities(csv(from_one, path, index=False)).labels.tolist() == numbers.tolist()


def test_what_is_wrong_is_said_with_the_file(predictions, tmp_path, monkeypatch):
    features = pd.DataFrame(predictions[0]).assign(a=2.5)
    path = csv(features.rename(columns=str), tmp_path / "a.csv", index=False)
    with pytest.raises(InputError, match=r"a\.csv: .*row 0 sums to 3.5 \(50 such rows\).*columns="):
        read_probabilities(path)
    assert read_probabilities(path, columns=("0", "1", "2")).probabilities.shape == (50, 3)
    with pytest.raises(InputError, match=r"a\.csv: expected a column 'dog', got the columns"):
        read_probabilities(path, columns=("0", "dog"))
    with pytest.raises(InputError, match=r"a\.csv: expected columns of probabilities besides the labels"):
        read_probabilities(path, columns=("0", "1"), label="1")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match=r"a\.txt: expected saved predictions as csv"):
        read_probabilities(tmp_path / "a.txt")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(InputError, match=r"a\.parquet: cannot be read as parquet"):
        read_probabilities(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pyarrow.*pip install"):
        read_probabilities(tmp_path / "a.parquet")


def test_a_table_that_does_not_fit_is_refused_by_its_end(predictions, tmp_path, monkeypatch):
    frame_of(predictions).to_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr("assay.data.memory.free_memory", lambda: 100.0)
    with pytest.raises(InputError, match=r"a\.parquet: expected data that fit"):
        read_probabilities(tmp_path / "a.parquet")


def test_labels_are_a_tensor_of_class_numbers(predictions, tmp_path):
    saved = read_probabilities(WRITERS["npz"](predictions, tmp_path))
    assert saved.labels.dtype == torch.int64
    rows, labels = saved
    assert rows is saved.probabilities
    assert labels is saved.labels
