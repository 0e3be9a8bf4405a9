"""What the default guard promises beyond detection: rates over tracks, alarms over time, and its cost.

    python benchmarks/guard_promises.py groups    # false alarms on new tracks of GTSRB, rows against groups
    python benchmarks/guard_promises.py stream    # stuck and gradual faults: false alarms, and delay
    python benchmarks/guard_promises.py cost      # seconds beside ResNet-20's own, bytes, and ONNX

GTSRB's frames come in tracks: in the training set of `subjects.py`, ten consecutive frames each. `groups`
trains the LeNet without a fifth of the tracks, so that there are tracks it has not seen.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from default_guard import RATE, training_rows
from networks import lenet
from subjects import chosen, images, subject, trained
from torch import Tensor

import assay
from assay import Guard, OnnxGuard
from assay.guard import AlarmStream, Verdict

TRACK = 10
"""Frames of a track."""
SEVERITIES = (1, 2, 3, 4, 5)


def groups(options: argparse.Namespace) -> None:
    """Random halves of the held tracks set the threshold and test it."""
    whole = images("gtsrb", "train")
    tracks = torch.arange(len(whole[1])) // TRACK
    order = torch.randperm(int(tracks.max()) + 1, generator=torch.Generator().manual_seed(0))
    held = torch.isin(tracks, order[: len(order) // 5])
    module = trained("lenet-gtsrb-tracks", lambda: lenet(43), _part(whole, ~held), 20, moved=2, rate=4e-3)
    network = assay.Network(module, batch_size=500)
    learned = _part(whole, ~held)
    monitor = assay.default_guard(network, _part(whole, held), RATE, train=learned).monitor
    trace, numbers = network.observe(_part(whole, held), keep_inputs=True), tracks[held]
    seen = network.observe(chosen(learned, torch.randperm(len(learned[1]))[:2000]), keep_inputs=True)
    rates = {"rows of tracks it learned": [], "rows": [], "groups": [], "groups, level 0.9": []}
    generator = np.random.default_rng(0)
    for _ in range(options.splits):
        names = generator.permutation(numbers.unique().numpy())
        first = torch.isin(numbers, torch.from_numpy(names[: len(names) // 2]))
        for kind, guard in {
            "rows of tracks it learned": Guard(network, monitor).calibrate(seen, RATE),
            "rows": Guard(network, monitor).calibrate(trace[first], RATE),
            "groups": Guard(network, monitor).calibrate(trace[first], RATE, groups=numbers[first]),
            "groups, level 0.9": Guard(network, monitor).calibrate(
                trace[first], RATE, groups=numbers[first], level=0.9
            ),
        }.items():
            rates[kind].append(_share_by_track(guard.judge(trace[~first]).alarm, numbers[~first]))
    print(f"False alarms on new tracks at a promised {RATE:.0%}, over {options.splits} splits")
    for kind, found in rates.items():
        kept = np.mean(np.array(found) <= RATE)
        print(f"calibrated on {kind}: {np.mean(found):.1%} on average, within the promise in {kept:.0%}")


def _part(rows: Any, mask: Tensor) -> Any:
    return rows[0][mask], rows[1][mask]


def _share_by_track(alarm: Tensor, tracks: Tensor) -> float:
    numbers = tracks.unique(return_inverse=True)[1]
    return float((torch.bincount(numbers, alarm.double()) / torch.bincount(numbers)).mean())


def stream(options: argparse.Namespace) -> None:
    """Streams of clean rows, then of a fault: stuck from its first row, or growing over `--growth` rows."""
    found = subject(options.subject, options.rows)
    guard = assay.default_guard(found.network, found.reference, RATE, train=training_rows(found))
    policies = {
        "every alarm": lambda: guard.stream(k=1, of=1, quiet=1),
        "3 of 5": lambda: guard.stream(k=3, of=5),
        "sequential": lambda: guard.stream(rows_per_hour=3600, false_alarms_per_hour=1),
    }
    trial = Trial(guard, _scores(guard, found.live[0]), options)
    print(f"{options.subject}: {options.streams} streams of {options.clean} clean rows, then faults")
    for policy, build in policies.items():
        hours = options.streams * options.clean / 3600
        starts = sum(trial.false_starts(build(), seed) for seed in range(options.streams))
        print(f"{policy}: {starts / hours:.2f} false alarms an hour, at a row a second", flush=True)
        for name, severity in (("stuck", 1), ("stuck", 3), ("gradual", 0)):
            delays = [trial.delay(build(), name, severity, seed) for seed in range(options.streams)]
            caught = [delay for delay in delays if delay is not None]
            kind = name + (f" at severity {severity}" if severity else "")
            after = f"after {np.median(caught):.0f} rows" if caught else "never"
            print(f"    {kind}: found in {len(caught) / len(delays):.0%} of streams, {after}", flush=True)


def _scores(guard: Guard, inputs: Tensor) -> dict[Any, Tensor]:
    """Of every row, clean and at every severity of two faults."""
    faults = {"stuck": assay.faults.ANOMALY["dead_rows"], "gradual": assay.faults.NOISE["gaussian"]}
    return {0: guard(inputs).scores} | {
        (name, severity): guard(template(inputs, severity)).scores
        for name, template in faults.items()
        for severity in SEVERITIES
    }


class Trial:
    """Streams drawn from scored rows."""

    def __init__(self, guard: Guard, scores: dict[Any, Tensor], options: argparse.Namespace) -> None:
        self.guard, self.scores, self.options = guard, scores, options

    def false_starts(self, policy: AlarmStream, seed: int) -> int:
        """On clean rows."""
        return int(policy.update(self._clean(seed)).started.sum())

    def delay(self, policy: AlarmStream, name: str, severity: int, seed: int) -> int | None:
        """Rows from the fault's first to the alarm; severity 0 stands for one that grows."""
        growth = self.options.growth
        rows = np.random.default_rng([seed, 1]).integers(0, len(self.scores[0]), growth)
        steps = np.full(growth, severity) if severity else np.arange(growth) * 6 // growth
        drawn = [
            self.scores[(name, int(step)) if step else 0][row] for step, row in zip(steps, rows, strict=True)
        ]
        raised = policy.update(_verdict(self.guard, torch.stack(drawn))).alarm
        return int(raised.double().argmax()) if raised.any() else None

    def _clean(self, seed: int) -> Verdict:
        rows = np.random.default_rng(seed).integers(0, len(self.scores[0]), self.options.clean)
        return _verdict(self.guard, self.scores[0][torch.from_numpy(rows)])


def _verdict(guard: Guard, scores: Tensor) -> Verdict:
    return Verdict(torch.zeros(len(scores), dtype=torch.long), scores, scores > guard.decided_threshold())


def cost(options: argparse.Namespace) -> None:
    """The guarded forward pass over the plain one, turn by turn, in CPU time: others may use the machine."""
    found = subject(options.subject, options.rows)
    guard = assay.default_guard(found.network, found.reference, RATE, train=training_rows(found))
    print(f"{options.subject}: the guard keeps {guard.monitor.nbytes / 1e6:.2f} MB")
    inputs = found.live[0]
    with tempfile.TemporaryDirectory() as folder:
        guard.export(Path(folder) / "guard.onnx", example=inputs[:1])
        exported = OnnxGuard(Path(folder) / "guard.onnx")
        runtimes = {
            "torch": (guard, _plain(found.network.module.eval())),
            "onnxruntime": (exported, _plain_graph(found.network.module, inputs[:1], Path(folder))),
        }
        for batch, rounds in ((256, options.rounds), (1, 20 * options.rounds)):
            for name, (guarded, plain) in runtimes.items():
                ratios = [
                    _seconds(guarded, inputs[:batch]) / _seconds(plain, inputs[:batch]) for _ in range(rounds)
                ]
                middle = statistics.median(ratios)
                print(f"batch {batch}, {name}: {middle:.2f} of the plain forward pass, median of {rounds}")
        same = float((guard(inputs).alarm == exported(inputs).alarm).double().mean())
    print(f"ONNX: {same:.2%} of {len(inputs)} alarms the same")


def _plain(module: torch.nn.Module) -> Callable[[Tensor], Any]:
    def call(inputs: Tensor) -> Any:
        with torch.no_grad():
            return module(inputs)

    return call


def _plain_graph(module: torch.nn.Module, example: Tensor, folder: Path) -> Callable[[Tensor], Any]:
    """The network alone in onnxruntime."""
    import onnxruntime

    path = folder / "plain.onnx"
    rows = {0: torch.export.Dim("rows")}
    torch.onnx.export(module, (example,), path, dynamo=True, dynamic_shapes=(rows,), verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda inputs: session.run(None, {name: inputs.numpy()})


def _seconds(call: Callable[[Tensor], Any], inputs: Tensor) -> float:
    start = time.process_time()
    call(inputs)
    return time.process_time() - start


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("command", choices=("groups", "stream", "cost"))
    parser.add_argument("--subject", help="default: cnn-mnist for stream, resnet20-cifar10 for cost")
    parser.add_argument("--rows", type=int, default=600, help="reference rows, and as many operational ones")
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--streams", type=int, default=40)
    parser.add_argument("--clean", type=int, default=3600, help="clean rows of a stream")
    parser.add_argument("--growth", type=int, default=300, help="faulty rows of a stream")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    options.subject = options.subject or {"stream": "cnn-mnist"}.get(options.command, "resnet20-cifar10")
    {"groups": groups, "stream": stream, "cost": cost}[options.command](options)


if __name__ == "__main__":
    main()
