"""Faults of bytes and of tokens do what they say, row by row, and leave padding and special tokens alone."""

import string
from itertools import pairwise

import pytest
import torch
from torch import nn

import assay
from assay.errors import InputError
from assay.faults import BYTES, TOKENS, byte_faults, token_faults
from assay.faults.tokens import TokenRule

CLS, SEP, PAD = 1, 2, 0
SHARES = (0.05, 0.1, 0.2, 0.4, 0.6)
FIRST = (0.8, 0.6, 0.4, 0.25, 0.1)


def files(count=40, length=97):
    return torch.randint(0, 256, (count, length), generator=torch.Generator().manual_seed(0))


def texts(count=40, length=32, left=False):
    """Rows [CLS] tokens [SEP] padding, of all lengths, as ids and mask."""
    generator = torch.Generator().manual_seed(1)
    ids, mask = torch.full((count, length), PAD), torch.zeros(count, length, dtype=torch.int32)
    for row in range(count):
        size = 1 + row % (length - 2)
        tokens = torch.cat(
            [torch.tensor([CLS]), torch.randint(3, 90, (size,), generator=generator), torch.tensor([SEP])]
        )
        place = slice(length - size - 2, length) if left else slice(0, size + 2)
        ids[row, place], mask[row, place] = tokens, 1
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("name", BYTES)
def test_byte_faults_go_further_with_severity_and_repeat_themselves(name):
    rows, fault = files(), BYTES[name]
    before = rows.clone()
    changed = [(fault(rows, severity, seed=1) != rows) for severity in range(1, 6)]
    if name == "lost_start":  # everything that is left moves up: count the loss instead
        away = [int((fault(rows.clamp(min=1), severity) == 0).sum()) for severity in range(1, 6)]
    else:
        away = [int(places.sum()) for places in changed]
    assert all(low < high for low, high in pairwise(away))
    assert changed[0].any(dim=1).all()  # every row
    assert torch.equal(fault(rows, 3, seed=2), fault(rows, 3, seed=2))
    random = name not in ("truncation", "lost_start", "byte_order", "stripped_bit")
    assert torch.equal(fault(rows, 3, seed=2), fault(rows, 3, seed=3)) != random
    assert torch.equal(rows, before)
    for dtype in (torch.uint8, torch.int32):
        found = fault(rows.to(dtype), 2, seed=1)
        assert found.dtype == dtype
        assert torch.equal(found.long(), fault(rows, 2, seed=1))


def test_byte_faults_do_what_they_say_in_every_row():
    rows = files()
    for severity, share in enumerate((0.01, 0.02, 0.05, 0.1, 0.2), 1):
        flipped = BYTES["bit_flips"](rows, severity) ^ rows
        assert ((flipped & (flipped - 1)) == 0).all()  # at most one bit
        expected = -(-round(share * 97 * 100) // 100)
        assert ((flipped > 0).sum(dim=1) == expected).all()
        lost = BYTES["lost_bytes"](rows, severity)
        assert (lost[:, 97 - expected :] == 0).all()
        for row, left in zip(rows.tolist(), lost[:, : 97 - expected].tolist(), strict=True):
            places = iter(row)
            assert all(value in places for value in left)  # in order
    assert ((BYTES["byte_noise"](rows, 5) != rows).sum(dim=1) == 39).all()
    for severity in range(1, 6):
        cut = BYTES["truncation"](rows, severity)
        kept = -(-round(FIRST[severity - 1] * 9700) // 100)
        assert torch.equal(cut[:, :kept], rows[:, :kept])
        assert (cut[:, kept:] == 0).all()
    swapped = BYTES["byte_order"](rows, 5)
    assert torch.equal(swapped[:, 0:96:2], rows[:, 1:97:2])
    assert torch.equal(swapped[:, 1:97:2], rows[:, 0:96:2])
    assert torch.equal(swapped[:, 96], rows[:, 96])
    bright = rows.clamp(min=1)
    struck = (BYTES["zero_block"](bright, 3) == 0).int()
    assert (struck.sum(dim=1) == 20).all()
    assert ((struck[:, 1:] - struck[:, :-1]).clamp(min=0).sum(dim=1) + struck[:, 0] == 1).all()  # one run
    assert (BYTES["zero_block"](bright, 4, seed=9)[BYTES["zero_block"](bright, 3, seed=9) == 0] == 0).all()


def test_bytes_are_coded_otherwise_as_they_say():
    rows = files()
    for severity in range(1, 6):
        half = -(-97 * severity // 5)
        seven = BYTES["stripped_bit"](rows, severity)
        assert torch.equal(seven[:, :half], rows[:, :half] % 128)
        assert torch.equal(seven[:, half:], rows[:, half:])
        swapped = BYTES["letter_case"](rows, severity)
        for before, after in zip(rows.tolist(), swapped.tolist(), strict=True):
            letters = [place for place, value in enumerate(before) if chr(value) in string.ascii_letters]
            changed = [place for place in range(97) if before[place] != after[place]]
            assert len(changed) == -(-len(letters) * severity // 5)
            assert all(chr(after[place]) == chr(before[place]).swapcase() for place in changed)


def test_a_lost_start_is_a_truncation_from_the_other_end():
    rows = files().clamp(min=1)
    for severity in range(1, 6):
        end = BYTES["lost_start"](rows, severity)
        kept = -(-round(FIRST[severity - 1] * 9700) // 100)
        assert torch.equal(end[:, :kept], rows[:, 97 - kept :])
        assert (end[:, kept:] == 0).all()


@pytest.mark.parametrize("severity", range(1, 6))
def test_a_shuffled_run_is_one_run_of_which_nothing_stays_in_place(severity):
    rows = torch.arange(40).expand(30, 40)  # all different
    found = BYTES["shuffled_run"](rows, severity)
    moved = found != rows
    length = {1: 4, 2: 8, 3: 16, 4: 28, 5: 40}[severity]
    for row, places in zip(found, moved, strict=True):
        struck = places.nonzero().flatten()
        assert struck.tolist() == list(range(int(struck[0]), int(struck[0]) + length))
        assert sorted(row.tolist()) == list(range(40))
    assert torch.equal(BYTES["shuffled_run"](rows[:, :2], 1), rows[:, [1, 0]])  # two are the fewest
    assert torch.equal(BYTES["shuffled_run"](rows[:, :1], 5), rows[:, :1])


@pytest.mark.parametrize(("fault", "shares"), [
    (BYTES["inserted_bytes"], (0.01, 0.02, 0.05, 0.1, 0.2)), (TOKENS["inserted_tokens"], SHARES)
])  # fmt: skip
def test_inserted_symbols_push_the_others_on_and_the_last_out(fault, shares):
    rows = torch.arange(100, 200).expand(20, 100)
    rows = torch.cat([rows, torch.full((20, 5), 300 if fault.kind == "bytes" else 0)], dim=1)  # padding
    for severity, share in enumerate(shares, 1):
        found = fault(rows, severity)
        assert torch.equal(found[:, 100:], rows[:, 100:])
        strays = round(share * 100)
        for row in found[:, :100].tolist():
            # What was pushed on is there in order; a stray may be equal to the one that is awaited.
            awaited = 100
            for symbol in row:
                awaited += symbol == awaited
            assert awaited >= 200 - strays
        assert (found != rows).any(dim=1).all()


@pytest.mark.parametrize("padding", [256, 0])
def test_padding_of_bytes_is_left_alone(padding):
    rows = files().clamp(min=1)
    rows[:, 60:] = padding
    family = byte_faults(padding=padding)
    for name, fault in family.items():
        for severity in (1, 5):
            found = fault(rows, severity)
            assert (found[:, 60:] == padding).all(), name
            assert ((found >= 0) & (found < 256) | (found == padding)).all(), name
    assert (family["truncation"](rows, 1)[:, 48:] == padding).all()
    assert (BYTES["bit_flips"](torch.full((3, 9), 256), 5) == 256).all()  # nothing to change


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", TOKENS)
def test_token_faults_leave_padding_and_special_tokens_alone(name, left):
    inputs = texts(left=left)
    fault = token_faults(padding=PAD, special=(CLS, SEP))[name]
    known = set(inputs["input_ids"].unique().tolist())
    away = []
    for severity in range(1, 6):
        found = fault(inputs, severity, seed=1)
        ids, mask = found["input_ids"], found["attention_mask"]
        assert set(ids.unique().tolist()) <= known
        assert ids.dtype == torch.int64
        assert mask.dtype == torch.int32
        for row, (tokens, own) in enumerate(zip(ids, mask.bool(), strict=True)):
            text = tokens[own].tolist()
            assert text[0] == CLS, (name, row)
            assert text[-1] == SEP
            assert len(text) >= 3  # at least one token of its own
            assert (tokens[~own] == PAD).all()
            assert int((own[1:] != own[:-1]).sum()) <= 1  # padding on one side only
            assert own.all() or bool(own[-1]) == left
        # What moves up differs from what was there, however little was lost: count the loss instead.
        lost = int((inputs["attention_mask"] - mask).sum())
        away.append(lost or int((ids != inputs["input_ids"]).sum()))
    assert all(low < high for low, high in pairwise(away))
    assert torch.equal(fault(inputs, 3, seed=2)["input_ids"], fault(inputs, 3, seed=2)["input_ids"])


def test_token_faults_do_what_they_say_in_every_row():
    inputs = texts()
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    own = mask.sum(dim=1) - 2
    family = token_faults(special=(CLS, SEP))
    for severity in range(1, 6):
        lost = own - (family["lost_tokens"](inputs, severity)["attention_mask"].sum(dim=1) - 2)
        expected = torch.tensor(
            [min(n - 1, -(-round(SHARES[severity - 1] * n * 100) // 100)) for n in own.tolist()]
        )
        assert torch.equal(lost, expected)
        cut = family["truncation"](inputs, severity)
        for row, size in enumerate(own.tolist()):
            kept = max(1, -(-round(FIRST[severity - 1] * size * 100) // 100))
            assert cut["input_ids"][row, : kept + 2].tolist() == [*ids[row, : kept + 1].tolist(), SEP]
        stuck = family["repeated_tokens"](inputs, severity)["input_ids"]
        changed = stuck != ids
        assert (stuck[changed] == ids.roll(1, dims=1)[changed]).all()
    turned = family["token_order"](inputs, 5)["input_ids"]
    assert torch.equal(turned.sort(dim=1).values, ids.sort(dim=1).values)
    row = int(own.argmax())
    assert turned[row, 2:4].tolist() == ids[row, [3, 2]].tolist()


def test_another_vocabulary_changes_a_token_everywhere_or_nowhere():
    ids = texts()["input_ids"]
    own = ids[ids > SEP].unique()
    fault = token_faults(special=(CLS, SEP))["changed_vocabulary"]
    for severity in range(1, 6):
        found = fault(ids, severity)
        new = {int(token): found[ids == token].unique().tolist() for token in own}
        assert all(len(tokens) == 1 for tokens in new.values())
        changed = [token for token, (other,) in new.items() if token != other]
        assert len(changed) == -(-round(SHARES[severity - 1] * len(own) * 100) // 100)
        assert {other for (other,) in new.values()} <= set(own.tolist())
    assert torch.equal(TOKENS["changed_vocabulary"](torch.full((3, 4), 5), 5), torch.full((3, 4), 5))


def test_unknown_tokens_are_the_tokenizer_s_or_else_the_rarest():
    inputs = texts()
    ids, own = inputs["input_ids"], inputs["attention_mask"].sum(dim=1) - 2
    for severity, share in enumerate(SHARES, 1):
        found = token_faults(special=(CLS, SEP), unknown=99)["unknown_tokens"](inputs, severity)["input_ids"]
        assert (found == 99).sum(dim=1).tolist() == [-(-round(share * n * 100) // 100) for n in own.tolist()]
        assert torch.equal(found[found != 99], ids[found != 99])
    rarely = torch.tensor([[4, 4, 5, 5, 6, 4]] * 3)
    assert set(TOKENS["unknown_tokens"](rarely, 5)[rarely != 6].tolist()) == {4, 5, 6}
    assert (TOKENS["unknown_tokens"](rarely, 5) == 6).sum(dim=1).min() >= 4


def test_tokens_in_one_tensor_are_padded_where_they_say():
    ids = texts()["input_ids"]
    family = token_faults(padding=PAD, special=(CLS, SEP))
    for fault in family.values():
        found = fault(ids, 4)
        assert torch.equal(found, fault(texts(), 4)["input_ids"])
    assert torch.equal(
        TOKENS["truncation"](torch.zeros(3, 5, dtype=torch.long), 5), torch.zeros(3, 5, dtype=torch.long)
    )
    assert torch.equal(
        TOKENS["token_noise"](torch.zeros(3, 5, dtype=torch.long), 5), torch.zeros(3, 5, dtype=torch.long)
    )


def test_other_columns_move_with_their_tokens():
    inputs = texts() | {"token_type_ids": torch.arange(32).expand(40, 32), "weight": torch.ones(40)}
    found = token_faults(special=(CLS, SEP))["lost_tokens"](inputs, 4)
    for row in range(40):
        own = found["attention_mask"][row].bool()
        places = found["token_type_ids"][row][own]
        assert torch.equal(found["input_ids"][row][own], inputs["input_ids"][row][places])
    assert torch.equal(found["weight"], inputs["weight"])


def test_the_rule_of_a_network_is_that_of_its_embedding_or_tokenizer():
    assert TokenRule.of(None) == TokenRule(0)
    module = nn.Sequential(nn.Embedding(9, 4, padding_idx=7), nn.Flatten(), nn.Linear(8, 2))
    assert TokenRule.of(assay.Network(module)) == TokenRule(7)

    class Tokenizer:
        all_special_ids = (5, 1)
        unk_token_id = 3

    network = assay.Network(module)
    network.tokenizer, network.padding = Tokenizer(), 5
    assert TokenRule.of(network) == TokenRule(5, frozenset({1, 5}), 3)


@pytest.mark.parametrize("fault", [BYTES["bit_flips"], TOKENS["token_noise"]])
@pytest.mark.parametrize(
    "inputs",
    [
        torch.rand(3, 4),
        torch.zeros(3, dtype=torch.long),
        torch.zeros(0, 4, dtype=torch.long),
        ["text"],
        {"x": 1},
    ],
)
def test_what_is_no_row_of_symbols_is_refused(fault, inputs):
    with pytest.raises(InputError, match="of shape \\(N, L\\)"):
        fault(inputs, 1)
