"""Normalisation by row, attention, products of two intervals: sound, and close where a closed form says."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from soundness import assert_sound, seeded
from torch import nn

from assay import Network, neuron_bounds
from assay.reshaping.bounds.interval import Interval
from assay.reshaping.bounds.products import varying_masks
from assay.reshaping.bounds.standardisation import _least_variance


def interval(low, high):
    return Interval(*(torch.tensor(end, dtype=torch.float64) for end in (low, high)))


def inside(value, bounds):
    return bool(((value >= bounds.low) & (value <= bounds.high)).all())


def drawn(bounds, count, seed=0):
    """Random rows of a box, and corners, in single precision."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.rand(count, *bounds.shape, generator=generator, dtype=torch.float64)
    shares[::2] = shares[::2].round()
    low, high = bounds.low.float(), bounds.high.float()
    return torch.clamp((bounds.low + shares * (bounds.high - bounds.low)).float(), low, high)


def test_a_softmax_of_two_is_a_sigmoid_of_their_difference():
    shares = torch.softmax(interval([-1.0, 0.5], [0.0, 2.0]), dim=0)
    least, most = torch.sigmoid(torch.tensor([-3.0, 0.5])), torch.sigmoid(torch.tensor([-0.5, 3.0]))
    assert torch.allclose(shares.low, least.double(), atol=1e-5)
    assert torch.allclose(shares.high, most.double(), atol=1e-5)
    logs = torch.log_softmax(interval([-1.0, 0.5], [0.0, 2.0]), dim=0)
    assert torch.allclose(logs.low.exp(), least.double(), atol=1e-5)
    assert torch.allclose(logs.high.exp(), most.double(), atol=1e-5)


BOX = st.tuples(*[st.floats(-4, 4)] * 2).map(sorted)


@given(st.lists(BOX, min_size=4, max_size=4))
def test_a_product_of_two_intervals_holds_every_corner_and_little_more(ends):
    low, high = (torch.tensor([end[place] for end in ends], dtype=torch.float64) for place in (0, 1))
    left, right = Interval(low[:2][None], high[:2][None]), Interval(low[2:][:, None], high[2:][:, None])
    found = left @ right
    # A bilinear function has its extremes at corners, of which there are sixteen.
    corners = [
        float(torch.tensor(pick[:2]) @ torch.tensor(pick[2:]))
        for pick in itertools.product(*((a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)))
    ]
    assert float(found.low) <= min(corners)
    assert float(found.high) >= max(corners)
    # Rump 1999: at most half as wide again; 1e-4 for rounding.
    assert float(found.high - found.low) <= 1.5 * (max(corners) - min(corners)) + 1e-4


@given(st.lists(BOX, min_size=3, max_size=3))
def test_the_least_variance_is_that_of_the_best_row(ends):
    rows = interval([end[0] for end in ends], [end[1] for end in ends])
    least = float(_least_variance(rows))
    # The best row is as near as can be to one number, which an end of some interval brackets.
    grid = torch.linspace(-4, 4, 4001, dtype=torch.float64)[:, None]
    best = float((torch.clamp(grid, rows.low, rows.high) - grid).square().mean(dim=1).min())
    assert least == pytest.approx(best, abs=1e-4)
    assert least <= best + 1e-12


def test_a_layer_norm_of_two_values_is_one_or_minus_one():
    wide = F.layer_norm(interval([-1.0, -1.0], [1.0, 1.0]), (2,), eps=0.0)
    assert torch.allclose(wide.high, torch.ones(2, dtype=torch.float64), atol=0.01)
    apart = F.layer_norm(interval([1.0, -2.0], [2.0, -1.0]), (2,), eps=0.0)
    assert torch.allclose(apart.low, torch.tensor([1.0, -1.0], dtype=torch.float64), atol=0.7)
    assert (apart.low[0] > 0) & (apart.high[1] < 0)  # the sign of the difference is known


NORMS = {
    "layer": lambda x: F.layer_norm(x, (6,), torch.linspace(-1, 2, 6), torch.linspace(1, -1, 6)),
    "two axes": lambda x: F.layer_norm(x, (4, 6), eps=1e-6),
    "group": lambda x: F.group_norm(x, 2, torch.linspace(-1, 2, 4), torch.ones(4)),
    "instance": lambda x: F.instance_norm(x),
    "rms": lambda x: F.rms_norm(x, (6,), torch.linspace(-1, 2, 6)),
    "unit length": lambda x: F.normalize(x, dim=2),
    "linear after layer": lambda x: F.linear(F.layer_norm(x, (6,)), torch.linspace(-1, 1, 12).view(2, 6)),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("width", [1e-3, 1.0, 100.0])
def test_no_row_leaves_the_bounds_of_a_normalisation(name, width):
    middle = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    bounds = Interval(middle - width, middle + width)
    found = NORMS[name](bounds)
    values = NORMS[name](drawn(bounds, 2000).flatten(0, 1))
    assert inside(values.unflatten(0, (-1, 1)), found)


def test_bounds_of_a_narrow_box_are_close_to_what_is_reached():
    middle = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    bounds = Interval(middle - 1e-3, middle + 1e-3)
    for name in ("layer", "group", "rms", "unit length"):
        found = NORMS[name](bounds)
        values = NORMS[name](drawn(bounds, 2000).flatten(0, 1)).unflatten(0, (-1, 1))
        reached = values.amax(dim=0) - values.amin(dim=0)
        # Mean and deviation move by less than the values do: bounds are a few times as wide, not more.
        assert ((found.high - found.low) < 6 * reached + 1e-4).all(), name


def test_a_linear_after_a_layer_norm_is_bounded_by_the_length_of_its_weights():
    weight = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    wide = Interval(torch.full((1, 64), -1e6).double(), torch.full((1, 64), 1e6).double())
    found = F.linear(F.layer_norm(wide, (64,)), weight)
    # Cauchy-Schwarz: ||w|| sqrt(d), reached where the row is parallel to w but for its mean.
    expected = math.sqrt(64) * weight.double().norm(dim=1)
    assert torch.allclose(found.high[0], expected, rtol=0.01)
    along = F.linear(F.layer_norm(weight[:1], (64,)), weight[:1])
    assert float(along) > 0.95 * float(expected[0])


def test_attention_to_nothing_in_particular_is_the_mean_and_any_attention_stays_in_the_hull():
    values = interval([[0.0, 1.0], [2.0, 5.0], [4.0, 3.0]], [[1.0, 2.0], [3.0, 6.0], [5.0, 3.0]])
    still = interval([[0.0]], [[0.0]])
    keys = interval([[-9.0], [-9.0], [-9.0]], [[9.0], [9.0], [9.0]])
    mean = F.scaled_dot_product_attention(still, keys, values)
    assert torch.allclose(mean.low, values.low.mean(dim=0), atol=1e-4)
    assert torch.allclose(mean.high, values.high.mean(dim=0), atol=1e-4)
    hull = F.scaled_dot_product_attention(keys[:1], keys, values)
    assert torch.allclose(hull.low, values.low.amin(dim=0), atol=1e-4)
    assert torch.allclose(hull.high, values.high.amax(dim=0), atol=1e-4)
    seen = torch.tensor([[True, True, False]])
    masked = F.scaled_dot_product_attention(keys[:1], keys, values, attn_mask=seen)
    assert torch.allclose(masked.high, values.high[:2].amax(dim=0), atol=1e-4)


class Attention(nn.Module):
    """Written out, as code without fused kernels does it, or fused."""

    def __init__(self, width, heads, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        rows, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(rows, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed = ((q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)).softmax(dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(rows, tokens, width))


class Vision(nn.Module):
    """A small vision transformer: patches, a class token, positions, blocks before which rows are normed."""

    def __init__(self, fused=True, width=8):
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 5, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.mixing = nn.ModuleList(Attention(width, 2, fused) for _ in range(2))
        self.widening = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(2)
        )
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        for place, (mix, widen) in enumerate(zip(self.mixing, self.widening, strict=True)):
            x = x + mix(self.norms[2 * place](x))
            x = x + widen(self.norms[2 * place + 1](x))
        return self.head(self.norms[4](x)[:, 0])


@pytest.mark.parametrize("high", [0.05, 1.0])
def test_no_image_leaves_the_bounds_of_a_vision_transformer(high):
    fused, plain = (
        assert_sound(Network(seeded(lambda: Vision(fused)), batch_size=512), (1, 8, 8), high=high)  # noqa: B023
        for fused in (True, False)
    )
    for one, other in zip(fused["penultimate"], plain["penultimate"], strict=True):
        assert torch.allclose(one, other, rtol=0.05)


class Convolutional(nn.Module):
    """A block of ConvNeXt, with squeeze and excitation: permuted, normed, widened, scaled, added."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 6, 2, stride=2)
        self.spread = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.norm = nn.LayerNorm(6)
        self.widen, self.narrow = nn.Linear(6, 12), nn.Linear(12, 6)
        self.gamma = nn.Parameter(torch.rand(6))
        self.squeeze, self.excite = nn.Conv2d(6, 2, 1), nn.Conv2d(2, 6, 1)
        self.groups = nn.GroupNorm(2, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = F.silu(self.stem(x))
        rows = self.norm(self.spread(x).permute(0, 2, 3, 1))
        x = x + (self.gamma * self.narrow(F.gelu(self.widen(rows)))).permute(0, 3, 1, 2)
        x = x * self.excite(F.silu(self.squeeze(x.mean((2, 3), keepdim=True)))).sigmoid()
        return self.head(self.groups(x).mean([-2, -1]))


def test_no_image_leaves_the_bounds_of_a_modern_convolutional_network():
    assert_sound(Network(seeded(Convolutional), batch_size=512), (1, 8, 8), low=-1.0)


@pytest.mark.parametrize("first", [True, False])
def test_no_sequence_leaves_the_bounds_of_torchs_own_transformer_layer(first):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(
                8, 2, 16, batch_first=True, norm_first=first, activation="gelu"
            )
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.layer(x).mean(dim=1))

    assert_sound(Network(seeded(Encoder), batch_size=512), (4, 8), low=-1.0)


def test_bounds_of_a_bert_hold_for_every_text():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, num_labels=3, pad_token_id=0,
    )  # fmt: skip

    class Words:
        """Texts are numbers of tokens, written out."""

        model_max_length, pad_token_id = 12, 0

        def __call__(self, texts, truncation, max_length):
            return {"input_ids": [[int(word) for word in text.split()][:max_length] for text in texts]}

        def num_special_tokens_to_add(self):
            return 0

    model = seeded(lambda: transformers.BertForSequenceClassification(config))
    # Every position is another interval, so that it matters which tokens a text has.
    model.bert.embeddings.position_embeddings.weight.data *= 50
    layers = ("penultimate", "bert.encoder.layer.0", "bert.encoder.layer.1.attention")
    network = Network.from_huggingface(model, Words(), layers=layers, max_length=12)
    generator = torch.Generator().manual_seed(0)
    texts = [
        " ".join(map(str, torch.randint(1, 50, (length,), generator=generator).tolist()))
        for length in torch.randint(1, 13, (400,), generator=generator).tolist()
    ]
    for pool in (None, "mean", "last"):
        network.pool = pool
        bounds, trace = neuron_bounds(network, layers), network.observe(texts)
        for name in layers:
            assert (trace.features[name] >= bounds[name][0]).all(), (pool, name)
            assert (trace.features[name] <= bounds[name][1]).all(), (pool, name)
        assert not bounds.vacuous


def test_attention_that_may_leave_out_any_token_stays_in_the_hull():
    values = interval([[0.0], [2.0], [4.0]], [[1.0], [3.0], [5.0]])
    still, keys = interval([[0.0]], [[0.0]]), interval([[1.0]] * 3, [[1.0]] * 3)
    with varying_masks():
        found = F.scaled_dot_product_attention(still, keys, values)
    # Padding may leave any one of the three.
    assert float(found.low) == pytest.approx(0.0, abs=1e-4)
    assert float(found.high) == pytest.approx(5.0, abs=1e-4)
