"""Which faults belong to which inputs."""

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay.errors import InputError
from assay.faults import ANOMALY, BYTES, NOISE, SHIFT, TABULAR, TEXT, TOKENS, kind_of, templates_for

IDS = torch.randint(1, 90, (6, 12), generator=torch.Generator().manual_seed(0))
INPUTS = {
    "image": torch.rand(6, 3, 8, 8),
    "tabular": torch.randn(6, 4),
    "text": ["a text", "and another"],
    "tokens": {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)},
    "bytes": IDS.to(torch.uint8),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_every_fault_of_a_kind_takes_its_inputs(kind):
    inputs = INPUTS[kind]
    assert kind_of(inputs) == kind
    for name, template in templates_for(inputs).items():
        assert (template.name, template.kind) == (name, kind)
        assert len(template(inputs, 1)) == len(inputs)


def test_the_families_are_complete():
    assert set(templates_for(INPUTS["image"])) == {*NOISE, *SHIFT, *ANOMALY}
    assert templates_for(INPUTS["tabular"]) == TABULAR
    assert templates_for(INPUTS["text"]) == TEXT
    assert templates_for(INPUTS["tokens"]) == templates_for(IDS) == TOKENS
    assert templates_for(INPUTS["bytes"]) == BYTES


def test_whole_numbers_are_tokens_unless_a_fault_of_bytes_is_named():
    for asked in (["bit_flips"], ["truncation", BYTES["byte_noise"]]):
        assert kind_of(IDS, asked) == "bytes"
        assert templates_for(IDS, asked=asked) == BYTES
    for asked in ((), ["truncation"], ["lost_tokens"], [TOKENS["truncation"]]):
        assert kind_of(IDS, asked) == "tokens"


def test_the_padding_is_the_network_s():
    module = nn.Sequential(nn.Embedding(90, 4, padding_idx=7), nn.Flatten(), nn.Linear(48, 2))
    template = templates_for(IDS, assay.Network(module))["token_noise"]
    assert template.rule.padding == 7


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (np.zeros((3, 4)), "got ndarray; convert arrays with torch.as_tensor"),
        ([], "got list"),
        (["text", 1], "got list"),
        (None, "got NoneType"),
        ({"x": IDS}, r"got a dict of \['x'\]; tokens in a dict are called 'input_ids'"),
        (torch.rand(3, 1, 8, 8) * 2, "values in"),
    ],
)
def test_what_has_no_faults_gets_one_sentence(inputs, words):
    with pytest.raises(InputError, match=words):
        kind_of(inputs)
