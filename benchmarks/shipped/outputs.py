"""Classifiers whose outputs are probabilities: magika, scikit-learn, XGBoost, LightGBM, skl2onnx."""

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import assay
from assay.errors import AssayWarning

Row = tuple[str, float, float]
NOTHING = float("nan")

OF_OUTPUTS = ("MaxSoftmax", "Entropy", "GEN", "KLMatching", "MaxLogit", "OpenMax")
"""Monitors that read outputs alone."""


def digits() -> tuple[Any, Any, Any, Any]:
    """(rows, labels) to train on, and to test on, as scikit-learn has them: 64 numbers, 10 classes."""
    train, test = assay.data.digits()
    return (
        train.inputs.flatten(1).numpy(),
        train.labels.numpy(),
        test.inputs.flatten(1).numpy(),
        test.labels.numpy(),
    )


def compared(name: str, network: assay.Network, probabilities: Any, rows: Any, labels: Any) -> Iterator[Row]:
    """Confidence, accuracy and every number of a Trace beside the package's own probabilities."""
    trace = network.observe((rows, labels))
    yield (
        f"{name}: mean confidence",
        float(trace.probabilities.amax(1).mean()),
        float(np.mean(probabilities.max(1))),
    )
    yield (
        f"{name}: accuracy",
        float(trace.correct.double().mean()),
        float(np.mean(probabilities.argmax(1) == labels)),
    )
    yield (
        f"{name}: largest difference of a probability",
        float((trace.probabilities - torch.as_tensor(probabilities)).abs().max()),
        0.0,
    )


def watched(name: str, network: assay.Network, rows: Any, labels: Any) -> Iterator[Row]:
    """Guards with every monitor of outputs: the false-alarm rate, and that of the saved predictions alone."""
    half = len(rows) // 2
    seen = network.observe((rows, labels))
    saved = assay.Trace.from_probabilities(seen.probabilities, seen.labels)
    for monitor in OF_OUTPUTS:
        build = getattr(assay.monitors, monitor)
        guard = assay.Guard(network, build().fit(seen[:half])).calibrate(seen[half:], 0.1)
        scores = build().fit(saved[:half]).score(saved[half:])
        alarms = (scores > guard.decided_threshold() + 1e-6).double().mean()
        yield (
            f"{name}: alarms of {monitor}, calibrated at 10 %",
            float(guard.judge(seen[half:]).alarm.double().mean()),
            float(alarms),
        )


def estimated(name: str, probabilities: Any, labels: Any) -> Iterator[Row]:
    """The accuracy of the second half from the labels of the first: calibrated confidence, and the truth."""
    half = len(labels) // 2
    frame = assay.estimate_accuracy(
        (probabilities[:half], labels[:half]), probabilities[half:], window=half
    ).to_frame()
    value = frame.set_index("method").loc["calibrated confidence (CBPE)", "value"]
    truth = float((probabilities[half:].argmax(1) == labels[half:]).mean())
    yield (f"{name}: accuracy without labels (CBPE); the truth is {truth:.3f}", float(value), NOTHING)


def scikit_learn() -> Iterator[Row]:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    rows, labels, unseen, truth = digits()
    models = [
        LogisticRegression(max_iter=500),
        RandomForestClassifier(100, random_state=0),
        HistGradientBoostingClassifier(max_iter=30, random_state=0),
        MLPClassifier(max_iter=100, random_state=0, early_stopping=True),
    ]
    for model in models:
        name = type(model).__name__
        model.fit(rows, labels)
        network = assay.Network.from_function(model.predict_proba, identity=name)
        yield from compared(name, network, model.predict_proba(unseen), unseen, truth)
        yield from estimated(name, model.predict_proba(unseen), truth)
    yield from watched(name, network, unseen, truth)


def xgboost() -> Iterator[Row]:
    import xgboost as package

    rows, labels, unseen, truth = digits()
    model = package.XGBClassifier(n_estimators=30, n_jobs=1).fit(rows, labels)
    network = assay.Network.from_function(model.predict_proba, identity="xgboost")
    yield from compared("XGBClassifier", network, model.predict_proba(unseen), unseen, truth)
    yield from estimated("XGBClassifier", model.predict_proba(unseen), truth)
    yield from watched("XGBClassifier", network, unseen, truth)
    even = package.train(
        {"objective": "binary:logistic", "nthread": 1}, package.DMatrix(rows, labels % 2), num_boost_round=20
    )

    def one_column(table: Any) -> Any:
        return even.predict(package.DMatrix(table))

    single = assay.Network.from_function(one_column, identity="xgboost-even")
    both = np.stack([1 - one_column(unseen), one_column(unseen)], axis=1)
    yield from compared("Booster, one column", single, both, unseen, truth % 2)


def lightgbm() -> Iterator[Row]:
    import lightgbm as package

    rows, labels, unseen, truth = digits()
    model = package.LGBMClassifier(n_estimators=30, n_jobs=1, verbose=-1).fit(rows, labels)
    predict = model.booster_.predict  # predict_proba would warn that arrays have no names of features
    network = assay.Network.from_function(predict, identity="lightgbm")
    yield from compared("LGBMClassifier", network, predict(unseen), unseen, truth)
    yield from estimated("LGBMClassifier", predict(unseen), truth)
    yield from watched("LGBMClassifier", network, unseen, truth)
    even = package.train(
        {"objective": "binary", "num_threads": 1, "verbose": -1},
        package.Dataset(rows, labels % 2),
        num_boost_round=20,
    )
    single = assay.Network.from_function(even.predict, identity="lightgbm-even")
    both = np.stack([1 - even.predict(unseen), even.predict(unseen)], axis=1)
    yield from compared("Booster, one column", single, both, unseen, truth % 2)


def skl2onnx() -> Iterator[Row]:
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    rows, labels, unseen, truth = digits()
    models = [
        (LogisticRegression(max_iter=500), False),
        (LogisticRegression(max_iter=500), True),
        (RandomForestClassifier(20, random_state=0), True),
        (MLPClassifier((32,), max_iter=60, random_state=0, early_stopping=True), False),
    ]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", AssayWarning)
        for model, as_dicts in models:
            name = f"{type(model).__name__}, {'ZipMap' if as_dicts else 'array'}"
            model.fit(rows, labels)
            path = Path(folder) / f"{type(model).__name__}-{as_dicts}.onnx"
            content = to_onnx(model, rows[:1], options={"zipmap": as_dicts}).SerializeToString()
            path.write_bytes(content)
            network = assay.Network.from_onnx(path, layers=())
            yield from compared(name, network, model.predict_proba(unseen), unseen, truth)
            seen = network.observe(unseen)
            guard = assay.Guard(network, assay.monitors.MaxSoftmax().fit(seen)).calibrate(seen, 0.1)
            yield exported(name, guard, unseen)


def exported(name: str, guard: assay.Guard, rows: Any) -> Row:
    """How far the scores of a guard are from those of the same guard as an ONNX graph."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "guard.onnx"
        guard.export(path, example=rows[:2])
        off = (assay.OnnxGuard(path)(rows).scores - guard(rows).scores).abs()
    size = guard(rows).scores.abs().clamp(min=1)
    return f"{name}: scores of {guard.monitor_name}, exported", float((off / size).max()), 0.0


def magika(folder: Path = Path(np.__file__).parent, most: int = 400) -> Iterator[Row]:
    """The files of a folder (by default NumPy's), named by Google's magika: 214 kinds of content."""
    from magika import Magika

    model = Magika()
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 64)
    files = files[:: max(1, len(files) // most)]
    found = [(path, model._get_result_or_features_from_path(path)[1]) for path in files]
    read = [(path, features) for path, features in found if features is not None]
    octets = np.array([features.beg + features.end for _, features in read], np.int32)
    raw = np.asarray(model._get_raw_predictions(read))
    path = model._model_path
    network = assay.Network.from_onnx(path)
    yield from compared(f"magika, {len(octets)} files", network, raw, octets, raw.argmax(1))
    mistaken = assay.Network.from_onnx(path, output="target_label", outputs="logits", layers=())
    confidence = mistaken.observe(octets).probabilities.amax(1).mean()
    yield "magika: mean confidence, if its output were logits", float(confidence), NOTHING
    seen = network.observe(octets)
    for monitor in (assay.monitors.Energy(), assay.monitors.Mahalanobis()):
        guard = assay.Guard(network, monitor.fit(seen)).calibrate(seen, 0.1)
        yield exported("magika", guard, octets)
