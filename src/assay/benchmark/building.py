"""From in-distribution test data to benchmark scenarios (the paper's data profile, Section III.A)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.benchmark.material import Material
from assay.benchmark.scenario import Labels, Scenario, input_labels, tensor_or_texts
from assay.errors import InputError
from assay.faults import ADVERSARIAL, Attack, Template, kind_of
from assay.faults.kinds import templates_of
from assay.faults.template import check_severity
from assay.labels import IGNORED
from assay.network import Network, length, rows

PAPER = (
    *("pixel_trap", "row_add_logic", "shifted_pixel"),
    *("snow", "fog", "brightness", "contrast", "saturate", "rotated"),
    *("spatter", "gaussian", "shot", "speckle", "impulse"),
    *("defocus_blur", "glass_blur", "zoom_blur", "gaussian_blur", "elastic_transform"),
)
"""The paper's 19 transformations of images; FGSM comes with a network."""

ATTACKED = ("image", "tabular")
"""Kinds of inputs that an attack can move."""


def build_scenarios(
    inputs: Any,
    labels: Any,
    *,
    network: Network | None = None,
    severities: Sequence[int] = (1, 5),
    novelty: Mapping[str, Any] | None = None,
    seed: int = 0,
    faults: Iterable[str | Template | Attack] | None = None,
    clean_share: float = 0.2,
) -> list[Scenario]:
    """A scenario per fault and severity, and one per novelty, each mixed with untouched rows.

    `inputs` are images (N, C, H, W) in [0, 1], rows (N, features), a list of texts, token ids (whole numbers
    (N, L), or a dict with `input_ids`) or bytes (uint8 (N, L)) that neither the network nor a monitor has
    learned from. By default images get the 19 faults of the paper, all others every fault that `assay.faults`
    has for them, and images and tables also FGSM if a network with gradients is given; `faults` chooses
    others, by name or as they are. `novelty` names inputs of unknown classes, in the same shape
    (`assay.faults.matched`). A share `clean_share` of every scenario is untouched. Inputs are made when they
    are read, and only those of the last scenario are kept.
    """
    inputs, labels = _known_rows(tensor_or_texts(inputs), labels, network)
    asked = None if faults is None else list(dict.fromkeys(faults))
    kind = kind_of(inputs, asked or ())
    _check(inputs, labels, network, severities, clean_share)
    chosen = _chosen(asked, kind, network)
    material = Material(inputs, labels, network, clean_share, seed)
    scenarios = [material.faulty(template, severity) for template in chosen for severity in severities]
    taken = {scenario.name for scenario in scenarios}
    for name, others in (novelty or {}).items():
        others = tensor_or_texts(others)
        _check_novelty(name, others, inputs, taken)
        scenarios.append(material.novel(name, others))
    if not scenarios:
        raise InputError("expected faults or novelty to build scenarios of, got none; name at least one")
    return scenarios


def _known_rows(inputs: Any, labels: Any, network: Network | None) -> tuple[Any, Labels]:
    """Inputs and labels, without the inputs whose label is to be ignored."""
    known = input_labels(labels, None if network is None else network.rows is not None)
    if not isinstance(known, Tensor) or known.ndim > 1 or len(known) != length(inputs):
        return inputs, known
    kept = known != (ignored := IGNORED if network is None else network.ignore_index)
    if len(kept) and not kept.any():
        raise InputError(f"expected labels that count, got only {ignored}, which is ignored; pass others")
    return (inputs, known) if kept.all() else (rows(inputs, kept), known[kept])


def _chosen(
    asked: Sequence[str | Template | Attack] | None, kind: str, network: Network | None
) -> list[Template | Attack]:
    """The faults asked for, or all that are usual for this kind of inputs."""
    templates = templates_of(kind, network)
    if asked is None:
        names = PAPER if kind == "image" else tuple(templates)
        attack = network is not None and getattr(network.module, "differentiable", True)
        asked = [*names, *(["fgsm"] if attack and kind in ATTACKED else [])]
    return [_template(fault, kind, templates, network) for fault in asked]


def _template(
    fault: str | Template | Attack, kind: str, templates: Mapping[str, Template], network: Network | None
) -> Template | Attack:
    if not isinstance(fault, str):
        return fault
    attacks = ADVERSARIAL if kind in ATTACKED else {}
    if fault in attacks:
        if network is None:
            raise InputError(f"expected network= for the attack {fault!r}, got none; pass the one to attack")
        return attacks[fault]
    if fault not in templates:
        known = sorted([*templates, *attacks])
        raise InputError(f"expected a fault of {kind} data, got {fault!r}; choose from {known}")
    return templates[fault]


def _check(
    inputs: Any, labels: Labels, network: Network | None, severities: Sequence[int], clean_share: float
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
    if not isinstance(labels, Tensor):
        return
    known = labels[labels != (IGNORED if network is None else network.ignore_index)]
    if known.min() < 0 or (classes is not None and known.max() >= classes):
        raise InputError(
            f"expected labels from 0 to {'classes' if classes is None else classes} - 1, got "
            f"{int(known.min())} to {int(known.max())}; pass inputs of unknown classes as novelty"
        )


def _check_novelty(name: str, others: Any, inputs: Any, taken: set[str]) -> None:
    if name in taken:
        raise InputError(f"expected a name for the novelty that no fault has, got {name!r}; choose another")
    if not length(others):
        raise InputError(f"expected at least one input of the novelty {name!r}, got none")
    if any(isinstance(inputs, form) != isinstance(others, form) for form in (Tensor, Mapping)):
        raise InputError(f"expected the novelty {name!r} like the inputs: both tensors, dicts or texts")
    if isinstance(inputs, Tensor) and others.shape[1:] != inputs.shape[1:]:
        raise InputError(
            f"expected the novelty {name!r} in the shape {tuple(inputs.shape[1:])} of the inputs, got "
            f"{tuple(others.shape[1:])}; convert it with assay.faults.matched(others, inputs)"
        )
    kind_of(others)  # refuses images out of their range and dicts without tokens
