"""From in-distribution test data to benchmark scenarios (the paper's data profile, Section III.A)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.benchmark.material import Material
from assay.benchmark.scenario import Scenario, tensor_or_texts
from assay.errors import InputError
from assay.faults import ADVERSARIAL, ANOMALY, NOISE, SHIFT, TABULAR, TEXT, Attack, Template
from assay.faults.template import check_images, check_severity
from assay.labels import class_numbers
from assay.network import Network, length, rows

PAPER = (
    *("pixel_trap", "row_add_logic", "shifted_pixel"),
    *("snow", "fog", "brightness", "contrast", "saturate", "rotated"),
    *("spatter", "gaussian", "shot", "speckle", "impulse"),
    *("defocus_blur", "glass_blur", "zoom_blur", "gaussian_blur", "elastic_transform"),
)
"""The paper's 19 transformations of images; FGSM comes with a network."""

IMAGES: Mapping[str, Template] = {**NOISE, **SHIFT, **ANOMALY}
TEMPLATES: Mapping[str, Mapping[str, Template]] = {"image": IMAGES, "tabular": TABULAR, "text": TEXT}


def build_scenarios(
    inputs: Any,
    labels: Any,
    *,
    network: Network | None = None,
    severities: Sequence[int] = (1, 5),
    novelty: Mapping[str, Any] | None = None,
    seed: int = 0,
    faults: Iterable[str] | None = None,
    clean_share: float = 0.2,
) -> list[Scenario]:
    """A scenario per fault and severity, and one per novelty, each mixed with untouched rows.

    `inputs` are images (N, C, H, W) in [0, 1], rows (N, features) or a list of texts that neither the network
    nor a monitor has learned from. By default images get the 19 faults of the paper, tables and texts all
    faults that `assay.faults` has for them, and images and tables also FGSM if a network with gradients is
    given; `faults` chooses others by name. `novelty` names inputs of unknown classes, in the same shape
    (`assay.faults.matched`). A share `clean_share` of every scenario is untouched. Inputs are made when they
    are read, and only those of the last scenario are kept.
    """
    inputs, labels = _images_table_or_texts(inputs), class_numbers(labels)
    kind = _kind(inputs)
    _check(inputs, labels, network, severities, clean_share)
    chosen = [_template(name, kind, network) for name in _names(faults, kind, network)]
    material = Material(inputs, labels, network, clean_share, seed)
    scenarios = [material.faulty(template, severity) for template in chosen for severity in severities]
    taken = {scenario.name for scenario in scenarios}
    for name, others in (novelty or {}).items():
        others = _images_table_or_texts(others)
        _check_novelty(name, others, inputs, taken)
        scenarios.append(material.novel(name, others))
    if not scenarios:
        raise InputError("expected faults or novelty to build scenarios of, got none; name at least one")
    return scenarios


def _names(faults: Iterable[str] | None, kind: str, network: Network | None) -> list[str]:
    if faults is not None:
        return list(dict.fromkeys(faults))
    plain = PAPER if kind == "image" else tuple(TEMPLATES[kind])
    attacks = network is not None and kind != "text" and getattr(network.module, "differentiable", True)
    return [*plain, *(["fgsm"] if attacks else [])]


def _template(name: str, kind: str, network: Network | None) -> Template | Attack:
    if name in ADVERSARIAL and kind != "text":
        if network is None:
            raise InputError(f"expected network= for the attack {name!r}, got none; pass the one to attack")
        return ADVERSARIAL[name]
    if name not in TEMPLATES[kind]:
        known = sorted([*TEMPLATES[kind], *(ADVERSARIAL if kind != "text" else [])])
        raise InputError(f"expected a fault of {kind} data, got {name!r}; choose from {known}")
    return TEMPLATES[kind][name]


def _images_table_or_texts(inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        raise InputError("expected images, rows or texts, got a dict; pass texts as they are, not token ids")
    return tensor_or_texts(inputs)


def _kind(inputs: Any) -> str:
    if not isinstance(inputs, Tensor):
        return "text"
    if inputs.ndim == 2:
        return "tabular"
    check_images(inputs)
    return "image"


def _check(
    inputs: Any, labels: Tensor, network: Network | None, severities: Sequence[int], clean_share: float
) -> None:
    for severity in severities:
        check_severity(severity)
    if not 0 < clean_share < 1:
        raise InputError(f"expected a clean_share between 0 and 1, got {clean_share}")
    count = length(inputs)
    if len(labels) != count or count < 2:
        raise InputError(
            f"expected one label per input and at least two inputs, got {count} inputs and {len(labels)} "
            "labels; pass inputs and labels of the same rows"
        )
    classes = None if network is None else network.observe(rows(inputs, torch.arange(1))).logits.shape[1]
    if labels.min() < 0 or (classes is not None and labels.max() >= classes):
        raise InputError(
            f"expected labels from 0 {'on' if classes is None else f'to {classes - 1}'}, got "
            f"{int(labels.min())} to {int(labels.max())}; pass inputs of unknown classes as novelty"
        )


def _check_novelty(name: str, others: Any, inputs: Any, taken: set[str]) -> None:
    if name in taken:
        raise InputError(f"expected a name for the novelty that no fault has, got {name!r}; choose another")
    if not length(others):
        raise InputError(f"expected at least one input of the novelty {name!r}, got none")
    if isinstance(inputs, Tensor) != isinstance(others, Tensor):
        raise InputError(f"expected the novelty {name!r} like the inputs: both tensors or both texts")
    if isinstance(inputs, Tensor):
        if others.shape[1:] != inputs.shape[1:]:
            raise InputError(
                f"expected the novelty {name!r} in the shape {tuple(inputs.shape[1:])} of the inputs, got "
                f"{tuple(others.shape[1:])}; convert it with assay.faults.matched(others, inputs)"
            )
        if inputs.ndim > 2:
            check_images(others)
