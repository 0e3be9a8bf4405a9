"""Passes of several threads through one module left in training mode do not disturb one another."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from assay import Guard, Network
from assay.errors import InputError
from assay.monitors import Energy, MonteCarloDropout
from assay.network.taps import PENULTIMATE, hooked, modules_of


class Gate(nn.Module):
    """Calls a function in the middle of a forward pass."""

    def __init__(self):
        super().__init__()
        self.reached = lambda: None

    def forward(self, rows):
        self.reached()
        return rows


def module():
    torch.manual_seed(0)
    layers = [nn.Linear(6, 16), nn.BatchNorm1d(16), Gate(), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)]
    return nn.Sequential(*layers).train()


def rows(seed, count=5):
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


def modes(layers):
    return [part.training for part in layers.modules()]


def buffers(layers):
    return [tensor.clone() for tensor in layers.buffers()]


def unchanged(layers, before):
    return all(torch.equal(one, other) for one, other in zip(layers.buffers(), before, strict=True))


def test_eight_threads_see_what_one_sees_and_leave_every_mode_as_it_was():
    layers = module()
    layers[1].eval()  # somebody froze the batch norm alone
    network = Network(layers)
    before, mode = buffers(layers), modes(layers)
    expected = [network.observe(rows(seed)) for seed in range(8)]

    def differences(seed):
        return [
            not torch.equal(trace.logits, expected[seed].logits)
            or not torch.equal(trace.layer("penultimate"), expected[seed].layer("penultimate"))
            for trace in (network.observe(rows(seed)) for _ in range(200))
        ]

    with ThreadPoolExecutor(8) as pool:
        wrong = list(pool.map(differences, range(8)))
    assert not any(map(any, wrong))
    assert modes(layers) == mode
    assert unchanged(layers, before)


def test_who_leaves_first_does_not_bring_dropout_to_those_inside():
    """The second is held in the middle of its pass until the first, which made the switch, is out."""
    layers = module()
    network = Network(layers)
    expected, before = network.observe(rows(2)).logits, buffers(layers)
    second_inside, first_left = threading.Event(), threading.Event()

    def reached():
        if threading.current_thread().name == "second":
            second_inside.set()
            assert first_left.wait(20)
        else:
            second.start()
            assert second_inside.wait(20)

    found = []
    second = threading.Thread(target=lambda: found.append(network.observe(rows(2))), name="second")
    layers[2].reached = reached
    network.observe(rows(1))
    switched_back = layers.training
    first_left.set()
    second.join()
    assert not switched_back  # the second still needed it so
    assert torch.equal(found[0].logits, expected)
    assert all(modes(layers))
    assert unchanged(layers, before)


def test_a_pass_that_fails_gives_the_mode_back_and_keeps_others_safe():
    layers = module()
    network = Network(layers)
    expected = network.observe(rows(1)).logits
    layers[2].reached = lambda: network.observe(torch.zeros(2, 5))  # a wrong width, inside another pass

    with pytest.raises(InputError, match="forward pass fails"):
        network.observe(rows(1))
    assert all(modes(layers))
    layers[2].reached = lambda: None
    assert torch.equal(network.observe(rows(1)).logits, expected)
    assert all(modes(layers))


def test_a_hook_that_torch_is_just_adding_does_not_disturb_another_thread():
    layers = module()
    parts = modules_of(layers)
    with (
        hooked(layers, [PENULTIMATE], parts, 3, lambda _, output, __: output),
        ThreadPoolExecutor(1) as other,
    ):
        for part in parts:
            part._forward_pre_hooks_with_kwargs.clear()  # torch sets this after it has added the hook
        assert other.submit(layers, rows(1)).result().shape[0] == len(rows(1))


def test_thinned_passes_do_not_thin_those_of_other_threads():
    layers = module()
    network = Network(layers)
    expected = network.observe(rows(2)).logits
    found = []

    def reached():
        if threading.current_thread().name != "plain" and not found:
            plain = threading.Thread(target=lambda: found.append(network.observe(rows(2))), name="plain")
            plain.start()
            plain.join()

    alone = network.dropout_logits(rows(1), passes=3, seed=0)
    layers[2].reached = reached
    assert torch.equal(network.dropout_logits(rows(1), passes=3, seed=0), alone)
    assert torch.equal(found[0].logits, expected)


def test_guards_in_eight_threads_agree_with_one():
    layers = module()
    network = Network(layers)
    trace = network.observe(rows(0, 80), keep_inputs=True)
    guards = [
        Guard(network, monitor.fit(trace), threshold=0.5)
        for monitor in (Energy(), MonteCarloDropout(network))
    ]
    expected = [guard(rows(1)).scores for guard in guards]

    def same(number):
        guard, scores = guards[number % 2], expected[number % 2]
        return all(torch.equal(guard(rows(1)).scores, scores) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(same, range(8)))
    assert all(modes(layers))


def test_an_export_leaves_every_mode_as_it_was(tmp_path):
    layers = module()
    layers[1].eval()
    network = Network(layers)
    mode, trace = modes(layers), network.observe(rows(0, 40))
    Guard(network, Energy().fit(trace), threshold=0.0).export(tmp_path / "guard.onnx")
    assert modes(layers) == mode
