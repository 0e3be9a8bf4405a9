"""An exported guard says in onnxruntime what the torch guard says: on every monitor, on three networks."""

import inspect
import json
import subprocess
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import assay
from assay import Guard, Network, OnnxGuard, monitors
from assay.errors import InputError, NotFittedError, UndecidedError
from assay.monitors import Energy, Mahalanobis, Monitor

CLASSES = 3


def balanced(module, inputs):
    """Weights large enough to tell inputs apart, every class predicted."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=1.5 / parameter[0].numel() ** 0.5)
        module.eval()
        list(module.modules())[-1].bias.sub_(module(inputs).mean(dim=0))
    return module


def images(count, seed=0):
    return torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(seed))


def sequences(count, seed=0):
    return torch.rand(count, 5, 8, generator=torch.Generator().manual_seed(seed))


def cnn():
    torch.manual_seed(0)  # for the biases
    layers = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 12), nn.Tanh()]
    return balanced(nn.Sequential(*layers, nn.Linear(12, CLASSES)), images(50))


def mlp():
    torch.manual_seed(1)  # of 0, the two neurons of a box are dead
    layers = [nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 10), nn.ReLU()]
    return balanced(nn.Sequential(*layers, nn.Linear(10, CLASSES)), images(50))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.encoder(x).mean(dim=1))


NETWORKS = {
    "cnn": (cnn, images),
    "mlp": (mlp, images),
    "transformer": (lambda: balanced(Transformer(), sequences(50)), sequences),
}

EXPORTED = {
    "ASH": monitors.ASH,
    "ASH-B": lambda: monitors.ASH(variant="B", percentile=60),
    "ASH-P": lambda: monitors.ASH(variant="P", percentile=60),
    "DICE": lambda: monitors.DICE(percentile=50),
    "FDBD": monitors.FDBD,
    "GEN": monitors.GEN,
    "GEN-top": lambda: monitors.GEN(top=2),
    "KNN": lambda: monitors.KNN(k=5),
    "NCI": monitors.NCI,
    "ODIN-still": lambda: monitors.ODIN(SOME, temperature=2.0, magnitude=0.0),
    "SCALE": monitors.SCALE,
    "SHE": monitors.SHE,
    "ActivationBox": monitors.ActivationBox,
    "ActivationBox-simple": lambda: monitors.ActivationBox(projection="simple", neurons=(0, 3)),
    "ActivationBox-pca": lambda: monitors.ActivationBox(projection="pca"),
    "ActivationBox-isomap": lambda: monitors.ActivationBox(projection="isomap", landmarks=40),
    "ActivationPattern": lambda: monitors.ActivationPattern(limit=3),
    "AllOf": lambda: monitors.AllOf([Energy(), monitors.GaussianInterval()]),
    "AllowedClasses": lambda: monitors.AllowedClasses([0, 1]),
    "AnyOf": lambda: monitors.AnyOf([Energy(), Mahalanobis()]),
    "CoRP": lambda: monitors.CoRP(frequencies=60),
    "Energy": lambda: Energy(temperature=2.0),
    "Entropy": monitors.Entropy,
    "GaussianInterval": monitors.GaussianInterval,
    "GaussianInterval-excess": lambda: monitors.GaussianInterval(measure="excess"),
    "GradNorm": monitors.GradNorm,
    "InputStatistics": monitors.InputStatistics,
    "InputRange": lambda: monitors.InputRange(low=0.0, high=0.9),
    "KLMatching": monitors.KLMatching,
    "Mahalanobis": Mahalanobis,
    "Mahalanobis-per-class": lambda: Mahalanobis(covariance="per_class"),
    "LikelihoodRatio": lambda: monitors.LikelihoodRatio(
        [Energy(), Mahalanobis(), monitors.InputStatistics()]
    ),
    "MaxLogit": monitors.MaxLogit,
    "MaxSoftmax": monitors.MaxSoftmax,
    "MultiLayerMahalanobis": lambda: monitors.MultiLayerMahalanobis(layers=["penultimate"]),
    "NNGuide": monitors.NNGuide,
    "NuSA": monitors.NuSA,
    "OpenMax": monitors.OpenMax,
    "OpenMax-two": lambda: monitors.OpenMax(top=2),
    "ReAct": monitors.ReAct,
    "ReAct-KLMatching": lambda: monitors.ReAct(monitors.KLMatching()),
    "Reconstruction": lambda: monitors.Reconstruction(epochs=1, limit=40),
    "Reconstruction-per-class": lambda: monitors.Reconstruction(
        per_class=True, measure="discriminator", epochs=1, limit=20
    ),
    "RelativeMahalanobis": monitors.RelativeMahalanobis,
    "Standardised": lambda: monitors.Standardised([Energy(), Mahalanobis(), monitors.MaxLogit()]),
    "Standardised-mean": lambda: monitors.Standardised([Energy(), Mahalanobis()], combine="mean"),
    **{
        f"Standardised-{combine}": lambda combine=combine: monitors.Standardised(
            [Energy(), Mahalanobis(), monitors.InputStatistics()], combine=combine
        )
        for combine in ("brown", "cauchy", "harmonic", "root")
    },
    "TemperatureScaled": monitors.TemperatureScaled,
    "ViM": monitors.ViM,
}
SOME = Network(cnn())
REFUSED = {
    "EnsembleDisagreement": (lambda: monitors.EnsembleDisagreement([SOME, SOME]), "runs a network again"),
    "Mahalanobis": (lambda: Mahalanobis(network=SOME, magnitude=0.01), "gradient"),
    "MonteCarloDropout": (lambda: monitors.MonteCarloDropout(SOME), "runs a network again"),
    "ODIN": (lambda: monitors.ODIN(SOME), "gradient"),
    "Rule": (lambda: monitors.Rule(lambda trace: trace.logits[:, 0] > 0), "user code"),
    "AnyOf": (lambda: monitors.AnyOf([Energy(), monitors.ODIN(SOME)]), "gradient"),
    "TemperatureScaled": (lambda: monitors.TemperatureScaled(monitors.ODIN(SOME)), "gradient"),
}


def close(ours, theirs):
    """1e-4, relative above 1: squared distances are large, and both sides run in single precision."""
    return np.allclose(theirs, ours, rtol=1e-4, atol=1e-4, equal_nan=True)


def in_onnxruntime(path, inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = inputs if isinstance(inputs, dict) else {session.get_inputs()[0].name: inputs.numpy()}
    return session.run(["logits", "score", "alarm"], feeds)


@pytest.fixture(scope="module", params=NETWORKS)
def setting(request):
    build, draw = NETWORKS[request.param]
    network = Network(build())
    inputs = draw(160, seed=1)
    labels = network.observe(inputs).predictions
    labels[::10] = (labels[::10] + 1) % CLASSES
    trace, kept = network.graph, {}
    # The same graph for every monitor: tracing the network anew each time would take most of the time.
    network.graph = lambda example, layers: (
        kept.setdefault(layers, None) or kept.update({layers: trace(example, layers)}) or kept[layers]
    )
    return network, network.observe((inputs, labels), keep_inputs=True), draw


@pytest.fixture
def guard():
    trace = SOME.observe(images(100, seed=1))
    return Guard(SOME, Energy().fit(trace)).calibrate(trace, 0.1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "guard.onnx"


def test_every_public_monitor_is_exported_or_refused_here():
    tested = {name.split("-")[0] for name in (*EXPORTED, *REFUSED)}
    for name in monitors.__all__:
        cls = getattr(monitors, name)
        if inspect.isclass(cls) and cls is not Monitor:
            assert name in tested, f"add a line for {name} above"


@pytest.mark.parametrize("name", EXPORTED)
def test_scores_and_alarms_are_those_of_torch(name, setting, path):
    network, training, draw = setting
    if "-" in name and draw is sequences:
        pytest.skip("settings of one monitor differ alike on every network; the CNN and the MLP show them")
    guard = Guard(network, EXPORTED[name]().fit(training)).calibrate(training, 0.2)
    guard.export(path)
    inputs = draw(37, seed=2) * 1.1
    inputs[3], inputs[5].flatten()[0], inputs[7].flatten()[1] = torch.nan, torch.inf, -torch.inf
    expected = guard(inputs)
    logits, score, alarm = in_onnxruntime(path, inputs)
    finite = np.delete(np.arange(37), [3, 5, 7])
    assert np.allclose(logits[finite], network.observe(inputs[finite]).logits, atol=1e-4)
    assert close(expected.scores, score)
    assert alarm[[3, 5, 7]].all()
    away = (expected.scores - guard.threshold).abs().numpy() > 1e-4 * np.maximum(
        1, abs(expected.scores.numpy())
    )
    assert away.any()
    assert (alarm == expected.alarm.numpy())[away].all()
    assert close(expected.scores[:1], in_onnxruntime(path, inputs[:1])[1])  # any number of rows


@pytest.mark.parametrize("name", REFUSED)
def test_monitors_that_need_more_than_a_graph_has_say_so(name, path):
    build, reason = REFUSED[name]
    guard = Guard(SOME, build(), threshold=0.0)
    with pytest.raises(InputError, match=f"got {name}: .*{reason}"):
        guard.export(path)
    assert not path.exists()


def test_the_file_runs_where_there_is_no_torch(guard, path):
    guard.export(path)
    script = """
import json, sys
sys.modules["torch"] = None
import numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
facts = json.loads(session.get_modelmeta().custom_metadata_map["assay"])
logits, score, alarm = session.run(None, {"inputs": numpy.full((2, 1, 6, 6), 0.5, numpy.float32)})
print(json.dumps([facts["threshold"], score.tolist(), alarm.tolist()]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    threshold, score, alarm = json.loads(done.stdout)
    verdict = guard(torch.full((2, 1, 6, 6), 0.5))
    assert threshold == guard.threshold
    assert close(verdict.scores, score)
    assert alarm == verdict.alarm.tolist()


def test_metadata_say_what_the_guard_was(guard, path):
    guard.export(path)
    facts = OnnxGuard(path).metadata
    assert facts["threshold"] == float(guard.threshold)
    assert facts["calibration"] == guard.calibration
    assert facts["layers"] == []
    assert facts["network"] == SOME.fingerprint
    assert facts["assay_version"] == assay.__version__
    assert facts["monitor"] == "Energy(temperature=1.0)"


def test_thresholds_per_class_and_infinite_ones(path):
    trace = SOME.observe(images(100, seed=1))
    monitor = Energy().fit(trace)
    inputs = images(30, seed=5)
    for threshold in ([-1.0, -2.0, 100.0], [float("inf")] * 3, float("inf"), -float("inf")):
        guard = Guard(SOME, monitor, threshold)
        guard.export(path)
        assert OnnxGuard(path)(inputs).alarm.tolist() == guard(inputs).alarm.tolist()
        assert OnnxGuard(path)(inputs * torch.nan).alarm.all()


class Infinite(Monitor):
    def _score(self, trace):
        return trace.logits[:, 0].abs().double() * torch.inf


def test_a_score_that_is_not_finite_is_an_alarm_whatever_the_threshold(path):
    monitor = Infinite().fit(SOME.observe(images(2)))
    Guard(SOME, monitor, float("inf")).export(path, images(1))
    assert in_onnxruntime(path, images(4))[2].all()


def test_features_are_given_where_they_are_asked_for(guard, path):
    guard.export(path, features=True)
    answer = OnnxGuard(path).answer(images(9))
    trace, verdict = answer.trace, answer.verdict
    expected = SOME.observe(images(9))
    assert torch.allclose(trace.layer("penultimate"), expected.layer("penultimate"), atol=1e-5)
    assert torch.equal(verdict.predictions, expected.predictions)


def test_the_exported_guard_follows_the_same_protocol(guard, path):
    guard.export(path, features=True)
    exported, trace = OnnxGuard(path), SOME.observe(images(9), keep_inputs=True)
    for one in (guard, exported):
        assert one.layers == SOME.layers
        assert one.monitor_name == type(guard.monitor).__name__
        assert one.network_fingerprint == SOME.fingerprint
        assert one.fingerprint == guard.fingerprint
        assert torch.equal(one.decided_threshold(), guard.threshold)
        assert torch.equal(one.judge(trace).alarm, guard(images(9)).alarm)
        assert torch.equal(one.answer(images(9)).verdict.alarm, one(images(9)).alarm)
        assert one.watching(SOME.layers).layers == SOME.layers
    assert guard.separable
    assert not exported.separable
    with pytest.raises(UndecidedError, match="keep_inputs=True"):
        exported.judge(SOME.observe(images(9)))
    with pytest.raises(InputError, match="timed apart, as 'exported', got OnnxGuard"):
        assay.run_benchmark({"exported": exported}, [])


def test_a_guard_watches_further_layers_and_stays_the_same_guard(guard):
    wider = guard.watching(["0"])
    assert wider.layers == (*guard.layers, "0")
    assert set(wider.answer(images(3)).trace.features) == set(wider.layers)
    assert wider.fingerprint == guard.fingerprint
    assert wider.calibration == guard.calibration
    assert "0" not in guard.layers


def test_a_guard_over_an_onnx_file_is_exported_with_its_own_graph(path, tmp_path):
    plain = tmp_path / "plain.onnx"
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            (images(2),),
            str(plain),
            dynamo=False,
            opset_version=13,  # older than the guard's own graph
            input_names=["photo"],
            output_names=["score"],  # a name that the guard needs
            dynamic_axes={"photo": {0: "n"}, "score": {0: "n"}},
        )
    network = Network.from_onnx(plain, layers=("/0/Conv_output_0", "penultimate"))
    training = network.observe(images(120, seed=1))
    for layer in network.layers:  # the first is a map, pooled on the way
        guard = Guard(network, Mahalanobis(layer=layer).fit(training)).calibrate(training, 0.1)
        guard.export(path)
        inputs = images(20, seed=4)
        logits, score, alarm = in_onnxruntime(path, {"photo": inputs.numpy()})
        expected = guard(inputs)
        assert close(expected.scores, score)
        assert alarm.tolist() == expected.alarm.tolist()
        assert np.allclose(logits, network.observe(inputs).logits, atol=1e-5)


def test_text_classifiers_take_token_ids_and_mask(path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.BertConfig(
        vocab_size=30,
        num_labels=3,
        max_position_embeddings=12,
        initializer_range=0.5,
        pad_token_id=0,
        **sizes,
    )

    class Words:
        """Stands for a tokenizer: words are numbers."""

        pad_token_id, model_max_length = 0, 12

        def num_special_tokens_to_add(self):
            return 0

        def get_vocab(self):
            return {str(number): number for number in range(30)}

        def __call__(self, texts, truncation, max_length):
            vocabulary = self.get_vocab()
            ids = [[vocabulary.get(word, 0) for word in text.split()][:max_length] for text in texts]
            return {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]}

    torch.manual_seed(0)
    network = Network.from_huggingface(
        transformers.BertForSequenceClassification(config), Words(), max_length=12
    )
    random = np.random.default_rng(0)
    texts = [" ".join(map(str, random.integers(1, 30, random.integers(1, 12)))) for _ in range(60)]
    training = network.observe(texts)
    guard = Guard(network, Mahalanobis(estimator="oas").fit(training)).calibrate(training, 0.1)
    guard.export(path)
    expected = guard(texts[:7])
    encoded = network.encode(texts[:7])
    found = OnnxGuard(path)(encoded)
    assert close(expected.scores, found.scores)
    assert torch.equal(expected.alarm, found.alarm)


class Branching(Monitor):
    """Looks at values while it scores, which no tracer can follow."""

    def _score(self, trace):
        return trace.logits[:, 0] if float(trace.logits.sum()) > 1e3 else trace.logits[:, 1]


def test_a_graph_that_would_say_something_else_is_not_written(path):
    monitor = Branching().fit(SOME.observe(images(2)))
    loud = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    with torch.no_grad():
        loud[1].weight.fill_(0.0)
        loud[1].bias.copy_(torch.tensor([150.0, 200.0]))  # three rows exceed the limit, two do not
    network = Network(loud)
    monitor = Branching().fit(network.observe(images(2)))
    with pytest.raises(
        InputError, match="expected the graph to score as Branching does, got 200 instead of 150"
    ):
        Guard(network, monitor, 0.0).export(path)
    assert not path.exists()


def test_what_is_missing_is_said_before_any_work(path, guard):
    fresh = Network(cnn())
    monitor = Energy().fit(SOME.observe(images(2)))
    with pytest.raises(NotFittedError, match="calibrate"):
        Guard(fresh, monitor).export(path)
    with pytest.raises(InputError, match=r"pass export\(path, example=inputs\[:1\]\)"):
        Guard(fresh, monitor, 0.0).export(path)
    with pytest.raises(InputError, match="at least one row as the example"):
        Guard(fresh, monitor, 0.0).export(path, images(0))
    Guard(fresh, monitor, 0.0).export(path, images(1))
    with pytest.raises(assay.AssayError, match="folder that exists"):
        guard.export(path.parent / "nowhere" / "guard.onnx")


def test_other_files_are_refused(path, guard):
    guard.export(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"guard\.onnx: cannot be read as ONNX|cannot be run"):
        OnnxGuard(path)
    path.write_bytes(whole)
    model = onnx.load(str(path))
    del model.metadata_props[:]
    onnx.save(model, str(path))
    with pytest.raises(InputError, match=r"expected a guard written by Guard\.export"):
        OnnxGuard(path)
    onnx.helper.set_model_props(model, {"assay": json.dumps({"version": 99})})
    onnx.save(model, str(path))
    with pytest.raises(InputError, match="version 99, this assay reads up to 1; upgrade"):
        OnnxGuard(path)


def test_a_wrong_shape_is_said(path, guard):
    guard.export(path)
    with pytest.raises(InputError, match=r"expected inputs .*6, 6.*got"):
        OnnxGuard(path)(torch.rand(2, 1, 5, 6))
