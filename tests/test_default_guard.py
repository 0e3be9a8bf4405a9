"""The guard to start with: fits, keeps its promise, says why, and ships."""

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay import Network, OnnxGuard, default_guard
from assay.errors import InputError, UndecidedError
from assay.guard import Verdict
from assay.guard.default import default_monitor


def images(count, seed=0):
    """Two classes, by the brighter half, over a smooth background."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 1, 3, 3, generator=generator)
    pictures = nn.functional.interpolate(coarse, size=8, mode="bilinear") * 0.5
    labels = torch.randint(0, 2, (count,), generator=generator)
    pictures[labels == 0, :, :4] += 0.3
    pictures[labels == 1, :, 4:] += 0.3
    return pictures, labels


def trained(module, data, steps=60):
    torch.manual_seed(0)
    optimiser = torch.optim.Adam(module.parameters(), 0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(data[0]), data[1]).backward()
        optimiser.step()
    return module.eval()


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2))
    return Network(trained(module, images(400)))


@pytest.fixture(scope="module")
def guard(network):
    return default_guard(network, images(1200, seed=1))


def test_it_keeps_its_promise_and_catches_faults_of_the_input(guard):
    fresh, _ = images(2000, seed=2)
    # 300 rows set the threshold: the rate is Beta distributed about 0.05 with a deviation of 0.0125.
    assert guard(fresh).alarm.double().mean() < 0.05 + 4 * 0.0125
    noisy = fresh + 0.2 * torch.randn(fresh.shape, generator=torch.Generator().manual_seed(3))
    assert guard(noisy).alarm.double().mean() > 0.95
    assert guard(torch.zeros_like(fresh)).alarm.all()
    assert guard.calibration["promise"].startswith("of inputs like the 300 calibrated on, at most 0.05")


def test_reasons_name_the_members_that_object(guard):
    fresh, _ = images(300, seed=2)
    noisy = fresh + 0.3 * torch.randn(fresh.shape, generator=torch.Generator().manual_seed(3))
    verdict = guard(noisy)
    assert verdict.members == ("input", "neighbours", "classes", "output")
    assert verdict.evidence.shape == (300, 4)
    assert np.mean([reason.startswith("input") for reason in verdict.reasons]) > 0.9
    quiet = guard(fresh)
    assert [bool(reason) for reason in quiet.reasons] == quiet.alarm.tolist()
    assert quiet.to_frame()["reasons"].tolist() == list(quiet.reasons)
    broken = fresh[:2].clone()
    broken[0, 0, 0, 0] = torch.nan
    assert guard(broken).reasons[0] == "not finite"
    assert torch.equal(guard(broken).scores[1:], guard(fresh[1:2]).scores)


def test_reasons_by_hand():
    evidence = torch.tensor([[5.0, 1.0, 2.4], [1.0, 8.0, 4.0], [9.0, 9.0, 0.0], [torch.nan, 1.0, 1.0]])
    alarm = torch.tensor([True, True, False, True])
    verdict = Verdict(torch.zeros(4), evidence.sum(dim=1), alarm, evidence=evidence, members=("a", "b", "c"))
    assert verdict.reasons == ("a", "b, c", "", "not finite")
    alone = Verdict(torch.zeros(2), torch.zeros(2), torch.tensor([True, False]), members=("Energy",))
    assert alone.reasons == ("Energy", "")


def test_it_ships_as_a_file_and_as_onnx(guard, network, tmp_path):
    fresh, _ = images(200, seed=2)
    asked = torch.cat([fresh, fresh + 0.3 * torch.rand(fresh.shape)])
    assay.save(guard, tmp_path / "guard")
    loaded = assay.load(tmp_path / "guard", network=network)
    assert torch.equal(loaded(asked).scores, guard(asked).scores)
    assert loaded(asked).reasons == guard(asked).reasons
    guard.export(tmp_path / "guard.onnx", example=asked[:1])
    exported = OnnxGuard(tmp_path / "guard.onnx")
    ours, theirs = guard(asked), exported(asked)
    assert torch.equal(ours.alarm, theirs.alarm)
    # Ranks are steps: where rounding moves a score across a reference score, evidence changes by one.
    alike = torch.isclose(theirs.evidence, ours.evidence, rtol=1e-4, atol=1e-4)
    assert alike.double().mean() > 0.99
    assert theirs.members == ours.members
    assert np.mean([one == other for one, other in zip(ours.reasons, theirs.reasons, strict=True)]) > 0.99
    assert exported.stream(k=1, of=1)(asked).alarm.any()
    assert exported.calibration["promise"] == guard.calibration["promise"]
    assert guard.monitor.nbytes < 2_000_000


def test_training_data_fit_the_members_and_leave_all_other_rows_for_the_promise(network):
    guard = default_guard(network, images(400, seed=1), train=images(500))
    assert len(guard.monitor.reference_[0]) == 200
    assert guard.calibration["rows"] == 200
    assert guard.monitor.members[0].bank_.shape[0] == 500
    assert guard(images(500, seed=2)[0]).alarm.double().mean() < 0.12


def test_groups_are_never_torn_apart(network):
    inputs, labels = images(1200, seed=1)
    tracks = np.arange(1200) // 8
    guard = default_guard(network, (inputs, labels), 0.1, groups=tracks)
    assert guard.calibration["groups"] == 38
    assert guard.calibration["rows"] == 38 * 8
    assert "new group" in guard.calibration["promise"]


def test_the_same_seed_gives_the_same_guard(network):
    first, again, other = (default_guard(network, images(400, seed=1), seed=seed) for seed in (3, 3, 4))
    assert first.fingerprint == again.fingerprint != other.fingerprint


def test_a_black_box_of_a_table_has_input_and_output():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(800, 5)).astype(np.float32)

    def predict_proba(rows):
        odds = 1 / (1 + np.exp(-3 * rows[:, 0]))
        return np.stack([1 - odds, odds], axis=1)

    guard = default_guard(Network.from_function(predict_proba, "odds"), torch.from_numpy(rows))
    assert guard.members == ("input", "output")
    far = torch.from_numpy(rows[:50]) + 8
    assert guard(far).alarm.all()
    assert set(guard(far).reasons) == {"input"}


def test_members_weigh_what_they_see_of_faint_faults_of_this_network(guard, network):
    taught, alternatives = guard.monitor.shares_, guard.monitor.alternatives_
    assert alternatives.shape == (4 + 18, 4)  # each member alone; nine mixtures at two strengths
    # The output of a network that looks at halves sees little of what the input's own statistics see.
    assert taught[0] > taught[3]
    blind = Network(nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2)).eval())
    for parameter in blind.module[1].parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        blind.module[1].bias.fill_(1.0)
    alone = default_guard(blind, images(400, seed=1)).monitor.shares_
    assert alone[0] > 0.5 * 0.9  # of the half that is for members alone


def test_a_network_that_refuses_pseudo_faults_gets_a_guard_that_says_so():
    generator = np.random.default_rng(0)
    rows = generator.integers(0, 3, size=(400, 4)).astype(np.float32)

    def predict_proba(rows):
        if (np.asarray(rows) % 1).any():
            raise ValueError("found unknown categories")
        odds = (1 + np.asarray(rows)[:, 0]) / 5
        return np.stack([1 - odds, odds], axis=1)

    guard = default_guard(Network.from_function(predict_proba, "categories"), torch.from_numpy(rows))
    assert "weighs its members equally" in guard.monitor.remedy_
    assert guard.monitor.shares_.tolist() == [0.5, 0.5]


def test_texts_are_watched_by_their_tokens(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=60,
        num_labels=2,
        max_position_embeddings=12,
        pad_token_id=0,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
    )

    class Words:
        """Stands for a tokenizer: words are numbers."""

        pad_token_id, model_max_length, unk_token = 0, 12, "1"

        def num_special_tokens_to_add(self):
            return 0

        def __len__(self):
            return 60

        def get_vocab(self):
            return {str(number): number for number in range(60)}

        def convert_ids_to_tokens(self, ids):
            return [str(number) for number in ids]

        def __call__(self, texts, truncation, max_length):
            ids = [
                [int(word) if word.isdigit() else 1 for word in text.split()][:max_length] for text in texts
            ]
            return {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]}

    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config)
    network = Network.from_huggingface(model, Words(), max_length=12)
    generator = np.random.default_rng(0)

    def texts(count, low, high):
        return [
            " ".join(map(str, generator.integers(low, high, generator.integers(4, 12)))) for _ in range(count)
        ]

    guard = default_guard(network, texts(500, 2, 30))
    assert guard.members == ("input", "neighbours", "classes", "output")
    assert "inputs_embeds" not in guard.observe(texts(3, 2, 30)).inputs
    assert guard(texts(100, 2, 30)).alarm.double().mean() < 0.2
    unseen = guard(texts(100, 30, 60))
    assert unseen.alarm.double().mean() > 0.9
    assert all("input" in reason for reason, alarm in zip(unseen.reasons, unseen.alarm, strict=True) if alarm)
    guard.export(tmp_path / "guard.onnx")
    asked = texts(20, 2, 60)
    found = OnnxGuard(tmp_path / "guard.onnx")(network.encode(asked))
    assert torch.equal(found.alarm, guard(asked).alarm)
    assert torch.isclose(found.scores, guard(asked).scores, rtol=1e-4, atol=1e-4).double().mean() > 0.9


def test_wide_features_are_watched_by_vim_where_it_can_be():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 800), nn.ReLU(), nn.Linear(800, 2))
    network = Network(module.eval(), outputs="logits")
    many, few = (network.observe(images(count)[0], keep_inputs=True) for count in (1000, 300))
    assert default_monitor(network, many).member_names == ("input", "residual", "classes", "output")
    # Too few rows to recover the last layer from.
    assert default_monitor(network, few).member_names == ("input", "neighbours", "classes", "output")


def test_too_little_data_is_said_before_anything_is_fitted(network):
    with pytest.raises(InputError, match="at least 100 inputs"):
        default_guard(network, images(99)[0])
    with pytest.raises(UndecidedError, match="calibrate on more data"):
        default_guard(network, images(100)[0], 0.001)
