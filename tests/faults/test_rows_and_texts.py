"""Faults of tables and texts, attacks as templates, and novelty."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import assay
from assay.errors import InputError
from assay.faults import ADVERSARIAL, TABULAR, TEXT, leave_out, matched
from assay.faults.norms import norms

TABLE = torch.randn(300, 12, generator=torch.Generator().manual_seed(0)) * torch.logspace(-2, 2, 12) + 5

TEXTS = [
    "the quick brown fox jumps over the lazy dog and runs far away into the dark wood",
    "monitors should raise an alarm when the input is unlike anything seen in training",
    "Größe matters: naïve façades, 東京 and 🙂 are characters like any others, too",
    "one",
    "",
    "a film of rare beauty that never finds a reason to exist beyond its own pretty frames",
] * 5


def rising(values):
    return all(low < high for low, high in pairwise(values))


def edit_distance(left, right):
    previous = list(range(len(right) + 1))
    for row, a in enumerate(left, 1):
        current = [row]
        for column, b in enumerate(right, 1):
            current.append(min(previous[column] + 1, current[-1] + 1, previous[column - 1] + (a != b)))
        previous = current
    return previous[-1]


@pytest.mark.parametrize("name", TABULAR)
def test_table_faults_go_further_with_severity_and_repeat_themselves(name):
    fault, before, scale = TABULAR[name], TABLE.clone(), TABLE.std(dim=0)
    away = [float(((fault(TABLE, s, seed=1) - TABLE) / scale).norm(dim=1).mean()) for s in range(1, 6)]
    assert away[0] > 0
    assert rising(away)
    assert torch.equal(fault(TABLE, 3, seed=2), fault(TABLE, 3, seed=2))
    random = name not in ("rounding", "saturated_sensor")
    assert torch.equal(fault(TABLE, 3, seed=2), fault(TABLE, 3, seed=3)) != random
    assert torch.equal(TABLE, before)
    assert fault(TABLE.double(), 2).dtype == torch.float64


@pytest.mark.parametrize("name", TABULAR)
def test_table_faults_take_one_feature_and_features_that_never_vary(name):
    alone, constant = TABLE[:, :1], torch.full((20, 5), 3.0)
    assert torch.isfinite(TABULAR[name](alone, 5)).all()
    assert torch.equal(TABULAR[name](alone, 5), alone) == (name == "swapped_columns")
    assert torch.equal(TABULAR[name](constant, 5), constant) == (name not in ("unit_change", "scaling_drift"))


def test_table_faults_do_what_they_say():
    noise = (TABULAR["gaussian_noise"](TABLE, 4) - TABLE).std(dim=0) / TABLE.std(dim=0)
    # 300 draws per feature: a standard error of 4 %.
    assert torch.allclose(noise, torch.ones(12), atol=0.17)
    missing = TABULAR["feature_dropout"](TABLE, 3) != TABLE
    assert (missing.sum(dim=1) == 3).all()
    stuck = TABULAR["stuck_sensor"](TABLE, 3).std(dim=0) < 1e-4 * TABLE.std(dim=0)
    assert int(stuck.sum()) == 5
    drift = TABULAR["scaling_drift"](TABLE, 5)
    gain = drift.std(dim=0) / TABLE.std(dim=0)
    assert gain.min() >= 0.2 - 1e-4
    assert gain.max() <= 1.8 + 1e-4


def test_noise_and_shift_of_tables_are_as_large_as_they_say():
    mean, scale = TABLE.mean(dim=0), TABLE.std(dim=0)
    for severity, share in enumerate((0.02, 0.05, 0.1, 0.2, 0.4), 1):
        spikes = (TABULAR["outliers"](TABLE, severity) - TABLE) / scale
        # Rounding in float32, at values of thousands of standard deviations from zero.
        assert torch.allclose(spikes.abs(), torch.where(spikes.abs() > 2, 5.0, 0.0), atol=0.01)
        assert ((spikes.abs() > 2).sum(dim=1) == max(severity, round(share * 12))).all()
    steps = (TABULAR["rounding"](TABLE, 3) - mean) / scale
    assert torch.allclose(steps, steps.round(), atol=0.01)
    assert ((TABULAR["rounding"](TABLE, 3) - TABLE).abs() <= 0.5 * scale + 0.01 * scale).all()
    moved = (TABULAR["offset"](TABLE, 4) - TABLE) / scale
    assert torch.allclose(moved.abs(), torch.ones(300, 12), atol=0.01)
    assert torch.allclose(moved, moved[:1].expand(300, 12), atol=0.01)
    factor = TABULAR["unit_change"](TABLE, 4) / TABLE
    assert torch.allclose(factor, torch.where(factor[:1] > 5, 10.0, 1.0).expand(300, 12))
    assert int((factor[0] > 5).sum()) == 7
    reached = (TABULAR["saturated_sensor"](TABLE, 4) - mean) / scale
    inside = ((TABLE - mean) / scale).abs() < 0.49
    assert reached.abs().max() <= 0.51
    assert torch.equal(TABULAR["saturated_sensor"](TABLE, 4)[inside], TABLE[inside])


def test_mixed_up_columns_hold_the_same_values_in_other_places():
    for severity in range(1, 6):
        swapped = TABULAR["swapped_columns"](TABLE, severity)
        assert torch.equal(swapped.sort(dim=1).values, TABLE.sort(dim=1).values)
        assert int((swapped != TABLE).all(dim=0).sum()) == 2 * severity
    moved = TABULAR["misaligned_columns"](TABLE, 3)
    assert torch.equal(moved.sort(dim=0).values, TABLE.sort(dim=0).values)
    elsewhere = (moved != TABLE).all(dim=0)  # in no row its own value
    assert int(elsewhere.sum()) == 5
    assert torch.equal(moved[:, ~elsewhere], TABLE[:, ~elsewhere])
    # All features of a row come from one and the same other row.
    source = [int((TABLE[:, elsewhere] == row).all(dim=1).nonzero()) for row in moved[:, elsewhere]]
    assert sorted(source) == list(range(300))


@pytest.mark.parametrize("name", TEXT)
def test_text_faults_go_further_with_severity_and_repeat_themselves(name):
    fault = TEXT[name]
    away = []
    for severity in range(1, 6):
        result = fault(TEXTS, severity, seed=1)
        assert len(result) == len(TEXTS)
        assert result[4] == ""
        away.append(sum(edit_distance(a, b) for a, b in zip(TEXTS, result, strict=True)))
    assert away[0] > 0
    assert rising(away)
    assert fault(TEXTS, 3, seed=2) == fault(TEXTS, 3, seed=2)
    assert (fault(TEXTS, 3, seed=2) == fault(TEXTS, 3, seed=3)) == (name in ("truncation", "lost_start"))


def test_character_noise_changes_the_share_it_says_and_keeps_any_alphabet():
    text = "東京タワー" * 200
    (result,) = TEXT["character_noise"]([text], 3)
    # 100 of 1,000 characters: about a third each replaced, left out, doubled.
    assert edit_distance(text, result) == pytest.approx(100, abs=3)
    assert abs(len(result) - len(text)) < 40


def test_truncation_keeps_the_beginning_and_a_lost_start_the_end():
    assert TEXT["truncation"](["a b c d e f g h i j"], 3) == ["a b c d"]
    assert TEXT["lost_start"](["a b c d e f g h i j", "k", ""], 3) == ["g h i j", "k", ""]


def test_words_are_lost_swapped_and_repeated_within_their_text():
    texts = ["", "a b c d e f g", "one", "u v w x", ""]
    assert TEXT["word_order"](texts, 5) == ["", "b a d c f e g", "one", "v u x w", ""]
    assert TEXT["lost_spaces"](texts, 5) == ["", "abcdefg", "one", "uvwx", ""]
    for severity, lost in enumerate((1, 1, 2, 3, 5), 1):
        left = TEXT["lost_words"](texts, severity)
        assert len(left[1].split()) == 7 - lost
        assert [left[0], left[2], left[4]] == ["", "one", ""]
        for before, after in zip(texts, left, strict=True):
            places = iter(before.split())
            assert all(word in places for word in after.split())  # in order
        stuck = TEXT["repeated_words"](texts, severity)
        changed = [at for at in range(7) if stuck[1].split()[at] != texts[1].split()[at]]
        assert len(changed) == -(-round((0.05, 0.1, 0.2, 0.4, 0.6)[severity - 1] * 600) // 100)
        assert all(stuck[1].split()[at] == texts[1].split()[at - 1] for at in changed)
        assert [stuck[0], stuck[2], stuck[4]] == ["", "one", ""]


def test_letters_are_misread_and_written_in_the_other_case():
    assert TEXT["misread_letters"](["Look, 100 bees", "", "xyz"], 5) == ["L00k, 100 6cc5", "", "xy2"]
    assert TEXT["letter_case"](["Der kleine Fuß, 100 m", ""], 5) == ["dER KLEINE fUSS, 100 M", ""]
    (half,) = TEXT["letter_case"](["a b c d e f g h i j"], 3)
    assert sum(word.isupper() for word in half.split()) == 6


def test_bad_tables_and_texts_get_one_clear_sentence():
    with pytest.raises(InputError, match="expected a list of at least one text"):
        TEXT["word_noise"]("just one", 1)
    with pytest.raises(InputError, match="severity from 1 to 5, got 0"):
        TEXT["word_noise"](TEXTS, 0)
    with pytest.raises(InputError, match=r"shape \(N, features\)"):
        TABULAR["gaussian_noise"](torch.zeros(3), 1)
    with pytest.raises(InputError, match="finite rows"):
        TABULAR["gaussian_noise"](torch.full((3, 2), torch.nan), 1)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return assay.Network(nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.Tanh(), nn.Linear(32, 5)))


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_attacks_as_templates_double_with_every_severity(name, network):
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(2)) * 0.5 + 0.25
    attack = ADVERSARIAL[name]
    found = [norms(attack(images, s, network=network) - images, attack.norm).mean() for s in range(1, 6)]
    assert rising(found)
    for severity, away in enumerate(found, 1):
        assert away <= attack.epsilon(severity, 192) * (1 + 1e-4)
    assert attack.category == "adversarial"
    with pytest.raises(InputError, match="severity"):
        attack(images, 6, network=network)


def test_attacks_on_rows_move_every_feature_by_its_own_scale(network):
    table = torch.randn(40, 192, generator=torch.Generator().manual_seed(0)) * torch.logspace(-1, 1, 192)
    moved = ADVERSARIAL["fgsm"](table, 4, network=network)
    steps = (moved - table).abs() / table.std(dim=0)
    assert torch.allclose(steps, torch.full_like(steps, 0.4), atol=1e-3)
    labels = network.observe(table).predictions
    assert (network.observe(moved).predictions == labels).double().mean() < 0.5


def test_classes_left_out_are_novel_and_the_others_are_numbered_anew():
    inputs, labels = torch.arange(20.0)[:, None], torch.arange(20) % 5
    known, numbered, novel = leave_out(inputs, labels, [1, 3])
    assert novel.flatten().tolist() == [float(i) for i in range(20) if i % 5 in (1, 3)]
    assert numbered.tolist() == [{0: 0, 2: 1, 4: 2}[i % 5] for i in range(20) if i % 5 not in (1, 3)]
    assert len(known) == 12
    for classes in ([], [0, 1, 2, 3, 4], [9]):
        with pytest.raises(InputError, match="expected to leave out some of the classes"):
            leave_out(inputs, labels, classes)


def test_images_of_another_dataset_are_brought_to_the_same_shape():
    small, colour = torch.rand(3, 28, 28), torch.rand(5, 3, 32, 32)
    assert matched(small, colour).shape == (3, 3, 32, 32)
    assert matched(colour, small).shape == (5, 28, 28)
    flat = torch.full((2, 3, 64, 64), 0.3)
    assert torch.allclose(matched(flat, small), torch.tensor(0.3), atol=1e-6)
    with pytest.raises(InputError, match="1 or 3 channels"):
        matched(torch.rand(2, 4, 8, 8), colour)
