"""InputStatistics: its statistics by hand, its distance by brute force, and what it owes: streams, merges."""

import numpy as np
import pytest
import torch
from scipy import ndimage

import assay
from assay import Trace
from assay.errors import InputError
from assay.monitors import InputStatistics
from assay.monitors.parts.image_statistics import image_statistics
from assay.monitors.parts.token_statistics import PADDING, token_facts


def trace_of(inputs):
    rows = next(iter(inputs.values())) if isinstance(inputs, dict) else inputs
    return Trace(torch.zeros(len(rows), 2), inputs=inputs)


def table(rows, seed=0, columns=4):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def images(rows, seed=0, channels=1, size=8):
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(rows, channels, size // 2, size // 2, generator=generator)
    return torch.nn.functional.interpolate(coarse, scale_factor=2, mode="bilinear")


@pytest.mark.parametrize("channels", [1, 3])
def test_statistics_of_images_are_what_scipy_and_numpy_say(channels):
    asked = images(5, channels=channels)
    found = image_statistics(asked).numpy()
    for row, image in zip(found, asked.double().numpy(), strict=True):
        inside = np.stack([ndimage.laplace(plane)[1:-1, 1:-1] for plane in image])
        expected = [
            image.mean(),
            image.std(),
            np.abs(inside).mean(),
            np.sqrt((inside**2).mean()),
            np.abs(inside).max(),
            np.abs(np.diff(image, axis=2)).mean(),
            np.abs(np.diff(image, axis=1)).mean(),
            image.min(),
            image.max(),
            np.abs(inside.reshape(channels, 3, 2, 3, 2).mean(axis=(2, 4))).mean(),
            np.log(image.std()),
            np.log(np.abs(inside).mean()),
        ]
        if channels > 1:
            apart = (np.abs(np.diff(part, axis=0)).mean() for part in (image, inside))
            expected += [*apart, *image.mean(axis=(1, 2))]
        np.testing.assert_allclose(row, expected, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (2, 2), (2, 9), (3, 3), (40, 24)])
def test_images_of_any_size_have_finite_statistics(shape):
    for channels in ((), (1,), (3,), (2, 5)):
        asked = torch.rand(4, *channels, *shape)
        assert torch.isfinite(image_statistics(asked)).all()
        assert torch.equal(
            image_statistics((asked * 255).byte())[:, 8],
            (asked * 255).byte().amax(dim=tuple(range(1, asked.ndim))).double(),
        )


def test_the_distance_is_that_to_the_kth_nearest_row_in_whitened_statistics():
    known, asked = table(60), table(7, seed=1)
    monitor = InputStatistics(k=3).fit(trace_of(known))
    low, centre, high = np.quantile(known.double().numpy(), [0.25, 0.5, 0.75], axis=0)

    def scaled(rows):
        values = np.arcsinh((rows.double().numpy() - centre) / ((high - low) / 1.349))
        return np.concatenate([values, np.zeros((len(rows), 1))], axis=1)  # no value is missing

    values = scaled(known)
    covariance = np.cov(values.T, bias=True) + np.eye(5) / 60
    apart = scaled(asked)[:, None] - values
    squares = np.einsum("abi,ij,abj->ab", apart, np.linalg.inv(covariance), apart)
    # Rows are kept in single precision, 6e-8 of their size.
    np.testing.assert_allclose(monitor.score(trace_of(asked)), np.sqrt(np.sort(squares)[:, 2]), rtol=1e-5)


def test_faults_of_each_kind_are_farther_than_anything_known():
    known = images(400, channels=3)
    monitor = InputStatistics().fit(trace_of(known))
    fresh = images(200, seed=1, channels=3)
    usual = monitor.score(trace_of(fresh)).quantile(0.95)
    dead = fresh.clone()
    dead[:, :, 3] = 0
    grey = fresh.mean(dim=1, keepdim=True).repeat(1, 3, 1, 1)
    noisy = fresh + 0.1 * torch.randn(fresh.shape, generator=torch.Generator().manual_seed(2))
    for faulty in (dead, grey, noisy, fresh * 0.2, fresh + 0.5, torch.zeros_like(fresh)):
        assert (monitor.score(trace_of(faulty)) > usual).double().mean() > 0.9


def test_missing_and_constant_values_of_tables():
    known = table(300)
    known[:, 2] = 7.0
    monitor = InputStatistics().fit(trace_of(known))
    asked = table(4, seed=1) * 0.5
    asked[:, 2] = 7.0
    asked[1, 2] = 7.1  # a feature that never varied
    asked[2, 0] = torch.nan  # a value that was never missing
    asked[3, 0] = torch.inf
    scores = monitor.score(trace_of(asked))
    usual = monitor.score(trace_of(known)).max()
    assert scores[0] < usual < scores[1]
    assert usual < scores[2] < torch.inf
    assert scores[3] > 10 * usual
    known[::5, 0] = torch.nan
    often = InputStatistics().fit(trace_of(known))
    assert torch.isfinite(often.score(trace_of(known))).all()
    assert often.score(trace_of(asked))[2] < often.score(trace_of(asked))[1]
    known[:, 1] = torch.nan
    assert torch.isfinite(InputStatistics().fit(trace_of(known)).score(trace_of(known))).all()


def test_statistics_of_tokens_by_hand():
    facts = token_facts(["[PAD]", "[UNK]", "good", "##ly", "☃"], unknown="[UNK]")
    known = torch.tensor([[2, 2, 3], [2, 3, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    inputs = {"input_ids": known, "attention_mask": mask, "token_type_ids": torch.zeros_like(known)}
    monitor = InputStatistics(facts=facts, k=1).fit(trace_of(inputs))
    asked = {"input_ids": torch.tensor([[2, 9, 4, 1]]), "attention_mask": torch.tensor([[1, 1, 1, 1]])}
    # Ids 0 to 3 have counts 0, 0, 3, 2: 5 in all; one is added to each, and for all others together.
    surprise = np.mean([np.log(10 / 4), *[np.log(10)] * 3])
    expected = [np.log(4), 0, surprise, 3 / 4, 5 / 4, 1 / 5, 1 / 4]
    np.testing.assert_allclose(monitor.statistics(trace_of(asked))[0], expected)
    # A row seen in fit is compared with the other: [2, 2, 3] with counts 0, 0, 1, 1 of 2 tokens.
    own = monitor._own_statistics("input_ids", monitor.kept_["input_ids"])[0]
    np.testing.assert_allclose(own, [np.log(3), 1 / 3, np.log(7 / 2), 0, 10 / 3, 0, 0])
    assert monitor.kept_["input_ids"].tolist() == [[2, 2, 3], [2, 3, PADDING]]


def texts(rows, seed, highest=40, width=12):
    generator = torch.Generator().manual_seed(seed)
    ids = (torch.rand(rows, width, generator=generator) ** 2 * highest).int()
    lengths = torch.randint(3, width + 1, (rows, 1), generator=generator)
    return {"input_ids": ids, "attention_mask": (torch.arange(width) < lengths).int()}


def test_texts_of_unseen_or_repeated_tokens_are_far():
    monitor = InputStatistics().fit(trace_of(texts(500, 0)))
    fresh, unseen, repeated = texts(200, 1), texts(200, 1), texts(200, 1)
    unseen["input_ids"] = unseen["input_ids"] + 1000
    repeated["input_ids"] = repeated["input_ids"] * 0 + 3
    usual = monitor.score(trace_of(fresh)).quantile(0.95)
    for faulty in (unseen, repeated):
        assert (monitor.score(trace_of(faulty)) > usual).double().mean() > 0.9
    embedded = {**fresh, "inputs_embeds": torch.rand(200, 12, 4)}
    assert torch.equal(monitor.score(trace_of(embedded)), monitor.score(trace_of(fresh)))


def test_what_tokens_say_comes_from_the_tokenizer():
    class Tokenizer:
        unk_token = "?"

        def __len__(self):
            return 3

        def convert_ids_to_tokens(self, ids):
            return [["?", "Ġfilm", "▁a"][number] for number in ids]

    class Network:
        tokenizer = Tokenizer()

    monitor = InputStatistics.of(Network())
    assert monitor.facts.tolist() == [[0, 0, 1], [4, 0, 0], [1, 0, 0]]
    assert InputStatistics.of(object()).facts is None


@pytest.mark.parametrize("inputs", [table(300), images(300, channels=3), texts(300, 0)])
def test_merged_fits_are_fits_of_all_rows(inputs):
    whole = trace_of(inputs)
    # Nothing is left out: the merged state is the state of all rows, whatever their order.
    everything = InputStatistics(limit=None).fit(whole)
    parts = [InputStatistics(limit=None).fit(whole[part]) for part in (slice(0, 90), slice(90, 300))]
    merged = parts[0].merge(parts[1])
    assert len(merged.bank_) == 300
    torch.testing.assert_close(merged.score(whole), everything.score(whole))
    # A uniform sample of both: each row of 90 and 210 stays with the same chance.
    few = [InputStatistics(limit=60).fit(whole[part]) for part in (slice(0, 90), slice(90, 300))]
    sampled = few[0].merge(few[1])
    assert len(sampled.bank_) == 60
    assert torch.equal(sampled.score(whole), InputStatistics(limit=60).fit(whole).score(whole))


def test_merging_samples_both_sides_by_their_size():
    shares = []
    for seed in range(40):
        marked = [torch.zeros(90, 1), torch.ones(210, 1)]
        first, second = (InputStatistics(limit=50, seed=seed).fit(trace_of(rows)) for rows in marked)
        shares.append(float(first.merge(second).kept_[""].mean()))
    # 40 samples of 50 rows, 0.7 of them from the second: a standard error below 0.01.
    assert np.mean(shares) == pytest.approx(0.7, abs=0.04)


def test_merge_refuses_what_does_not_belong_together():
    monitor = InputStatistics().fit(trace_of(table(30)))
    with pytest.raises(InputError, match="fit both alike"):
        monitor.merge(InputStatistics(limit=9).fit(trace_of(table(30))))
    with pytest.raises(InputError, match="fit both on inputs of the same form"):
        monitor.merge(InputStatistics().fit(trace_of(table(30, columns=5))))
    with pytest.raises(assay.errors.NotFittedError):
        monitor.merge(InputStatistics())


def test_wide_tables_are_compared_value_by_value():
    known = table(400, columns=300)
    monitor = InputStatistics().fit(trace_of(known))
    assert monitor.axes_.shape == (301,)
    far = known[:5].clone()
    far[:, :60] += 5
    assert (monitor.score(trace_of(far)) > monitor.score(trace_of(known)).max()).all()


def test_a_dict_of_inputs_has_the_statistics_of_every_part():
    inputs = {"photo": images(50), "facts": table(50)}
    monitor = InputStatistics().fit(trace_of(inputs))
    assert monitor.statistics(trace_of(inputs)).shape == (50, 12 + 5)
    with pytest.raises(InputError, match=r"\['facts', 'photo'\].*\['photo'\]"):
        monitor.score(trace_of({"photo": images(3)}))


def test_bad_inputs_and_arguments_are_refused():
    monitor = InputStatistics().fit(trace_of(table(30)))
    with pytest.raises(InputError, match="4 statistics as in fit, got 5"):
        monitor.score(trace_of(table(30, columns=5)))
    broken = images(30)
    broken[3, 0, 0, 0] = torch.nan
    with pytest.raises(InputError, match="finite inputs"):
        InputStatistics().fit(trace_of(broken))
    assert InputStatistics().fit(trace_of(images(30))).score(trace_of(broken)).isnan().nonzero().tolist() == [
        [3]
    ]
    with pytest.raises(InputError, match="k of at least 1"):
        InputStatistics(k=0)
    with pytest.raises(InputError, match="facts"):
        InputStatistics(facts=torch.zeros(3))
    assert "lower k" in InputStatistics(k=50).fit(trace_of(table(30))).remedy_
