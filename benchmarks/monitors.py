"""What monitors cost: fitting, scoring and bytes beside pytorch-ood; a guarded network beside a plain one.

    pip install --no-deps --target ../ood pytorch-ood
    python benchmarks/monitors.py --peer ../ood

50,000 rows fitted, 10,000 scored, d = 512, 10 classes, two threads. Both sides run in one process, turn by
turn; figures are medians, and ratios are medians of the ratios of neighbouring runs. The difference is the
largest one between the scores of both, as a share of scores above 1. Without --peer only assay runs; with
--monitors only those. pytorch-ood is handed the last layer, which assay recovers from the Trace; its ViM, SHE
and NNGuide compute the logits from the features, which a Trace has already.

On a machine that does other things, too: --threads 1 --clock cpu, or --fastest, which takes the fastest runs
instead of medians and their ratio.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from networks import resnet20
from peer import Pair, observed, pairs, passes, peer_detectors, rectified
from published import corp_by_its_authors, corp_with
from torch import Tensor, nn

import assay
from assay import Guard, Network, Trace, monitors
from assay.monitors.parts import nearest as search

FITTED, SCORED, SIZE, CLASSES = 50_000, 10_000, 512, 10
IMAGES = 1024
SECTIONS = ("beside", "narrow", "alone", "searches", "guard")
NARROW = ("Mahalanobis", "RelativeMahalanobis", "ViM", "ReAct")
COLUMNS = (
    *("monitor", "difference", "fit ms", "pytorch-ood ms", "faster"),
    *("score ms", "pytorch-ood ms", "faster", "bytes"),
)


class Data:
    """Gaussian classes, the linear layer that tells them apart, and the Traces of both.

    Standard deviations fall from 1 to `decay`, as those of real features do; with `cut`, features go through
    a ReLU. Every class is predicted; a seventh of the predictions is wrong.
    """

    def __init__(self, decay: float = 1.0, cut: bool = True) -> None:
        centres = torch.randn(CLASSES, SIZE, generator=torch.Generator().manual_seed(0))
        deviations = torch.logspace(0, torch.tensor(decay).log10(), SIZE)
        trace_of = rectified if cut else observed

        def rows(count: int, seed: int) -> Tensor:
            noise = torch.randn(count, SIZE, generator=torch.Generator().manual_seed(seed))
            return (centres[torch.arange(count) % CLASSES] + noise) * deviations

        self.head = nn.Linear(SIZE, CLASSES)
        with torch.no_grad():
            self.head.weight.copy_(centres / deviations / SIZE**0.5)
            self.head.bias.zero_()
            self.head.bias.sub_(trace_of(rows(1000, seed=1), self.head).logits.mean(dim=0))
        features = rows(FITTED, seed=2)
        labels = trace_of(features, self.head).predictions
        labels[::7] = (labels[::7] + 1) % CLASSES
        self.training = trace_of(features, self.head, labels)
        self.unseen = trace_of(rows(SCORED, seed=3), self.head)


Chosen = Callable[[str], bool]
"""Whether to measure the monitor with this title."""

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
clock = CLOCKS["wall"]
fastest = False


def seconds(run: Callable[[], Any]) -> float:
    start = clock()
    run()
    return clock() - start


def in_turn(
    ours: Callable[[], Any], theirs: Callable[[], Any] | None, repeats: int
) -> tuple[float, float, float]:
    """Median seconds of each, and the median of theirs / ours; both warmed up. Or the fastest of each."""
    runs = [ours] + ([theirs] if theirs else [])
    for run in runs:
        run()
    times = [[seconds(run) for run in runs] for _ in range(repeats)]
    if fastest:
        best = [min(pair[side] for pair in times) for side in range(len(runs))]
        return best[0], best[-1] if theirs else float("nan"), best[-1] / best[0] if theirs else float("nan")
    first = statistics.median(pair[0] for pair in times)
    if theirs is None:
        return first, float("nan"), float("nan")
    return (
        first,
        statistics.median(pair[1] for pair in times),
        statistics.median(pair[1] / pair[0] for pair in times),
    )


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def header(title: str, *cells: str) -> None:
    print(f"\n## {title}\n")
    row(*cells)
    row(*["---"] * len(cells))


def millis(value: float) -> str:
    return "-" if value != value else f"{1000 * value:,.0f}" if value > 0.1 else f"{1000 * value:.2g}"


def times(value: float) -> str:
    return "-" if value != value else f"{value:,.0f}" if value > 10 else f"{value:.2f}"


def _cells(measured: tuple[float, float, float]) -> tuple[str, str, str]:
    return millis(measured[0]), millis(measured[1]), times(measured[2])


def compare_all(peer: Any, repeats: int, chosen: Chosen) -> None:
    """Every monitor that both have, in one table."""
    header("Beside pytorch-ood", *COLUMNS)
    data = Data()
    for title, pair in pairs(peer, data.head, FITTED).items():
        if chosen(title):
            row(title, *compared(pair, data.training, data.unseen, repeats))
    module = small_network()
    images = torch.rand(IMAGES, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    trace = Network(module).observe(images, keep_inputs=True)
    trace = Trace(trace.logits, trace.features, torch.arange(IMAGES) % CLASSES, trace.inputs)
    for title, pair in passes(peer, module).items():
        if chosen(title):
            row(f"{title} ({IMAGES:,} images)", *compared(pair, trace, trace, repeats))
    plain = in_turn(partial(forward, module, images), None, repeats)[0]
    print(f"\nThe network alone takes {millis(plain)} ms for {IMAGES:,} images.")


def compared(pair: Pair, training: Trace, unseen: Trace, repeats: int) -> tuple[object, ...]:
    """Difference, times and bytes, as in COLUMNS."""
    ours, rounds = pair.ours, max(1, repeats // 5) if pair.slow else repeats
    given = pair.training(training)
    fitting = partial(pair.fit, training) if pair.fit else None
    fit = in_turn(partial(ours.fit, given), fitting, max(1, rounds // 3))
    scoring = partial(pair.predict, unseen) if pair.predict else None
    # The quickest take tenths of a millisecond, and a few runs of those say little.
    quick = scoring is not None and not pair.slow and not ours.layers
    score = in_turn(partial(ours.score, unseen), scoring, 20 * rounds if quick else rounds)
    if pair.refit:
        pair.refit(training)
    answers = (pair.exact.fit(given) if pair.exact else ours).score(unseen)
    alike = scoring is not None and not isinstance(ours, monitors.MonteCarloDropout)  # its masks are random
    difference = apart(answers, scoring()) if alike else "-"
    learns = _cells(fit) if ours.metadata.fit else ("-", "-", "-")
    return difference, *learns, *_cells(score), f"{ours.nbytes:,}"


def apart(ours: Tensor, theirs: Tensor) -> str:
    """The largest difference, as a share of scores above 1."""
    return f"{((ours - theirs.double()).abs() / theirs.double().abs().clamp(min=1)).max():.0e}"


def compare_narrow(peer: Any, repeats: int) -> None:
    header("Features with standard deviations from 1 to 0.001", *COLUMNS)
    data = Data(decay=0.001, cut=False)
    for title, pair in pairs(peer, data.head, FITTED).items():
        if title in NARROW:
            row(title, *compared(pair, data.training, data.unseen, repeats))


def measure_alone(repeats: int, corp: Path | None, chosen: Chosen) -> None:
    header("Monitors that pytorch-ood does not have", "monitor", "fit ms", "score ms", "bytes")
    data = Data()
    own = {
        "ActivationBox": monitors.ActivationBox(),
        "ActivationPattern": monitors.ActivationPattern(),
        "GaussianInterval": monitors.GaussianInterval(),
        "NuSA": monitors.NuSA(),
        "CoRP, 1,024 frequencies": monitors.CoRP(frequencies=1024),
    }
    for title, ours in ((title, ours) for title, ours in own.items() if chosen(title)):
        fit = in_turn(partial(ours.fit, data.training), None, max(1, repeats // 3))
        score = in_turn(partial(ours.score, data.unseen), None, repeats)
        row(title, millis(fit[0]), millis(score[0]), f"{ours.nbytes:,}")
    if corp is not None:
        rows = data.training[:SCORED]
        answer = corp_by_its_authors(corp, rows, data.unseen, 1024)
        scores = corp_with(answer["frequencies"], answer["phases"]).fit(rows).score(data.unseen)
        print(f"\nCoRP and its authors' script differ by at most {apart(scores, answer['scores'])}")


def compare_searches(repeats: int, scored: int) -> None:
    header(f"Exact searches, {scored:,} rows scored", "monitor", "with faiss ms", "without ms", "faster")
    data = Data()
    unseen, found = data.unseen[:scored], search._faiss
    if found() is None:
        print("\nfaiss is not installed")
        return
    for cls in (monitors.KNN, monitors.NNGuide, monitors.ActivationPattern):
        ours = cls().fit(data.training)

        def scoring(library: Callable[[], Any], ours: monitors.Monitor = ours) -> None:
            search._faiss = library
            ours.score(unseen)

        measured = in_turn(partial(scoring, found), partial(scoring, lambda: None), max(1, repeats // 5))
        row(cls.__name__, *_cells(measured))
    search._faiss = found


class SmallNetwork(nn.Sequential):
    """Two convolutions and dropout; `features` is all but the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4)),
            *(nn.Flatten(), nn.Dropout(0.3)),
        )
        self.head = nn.Linear(512, CLASSES)


def small_network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return SmallNetwork().eval()


def forward(module: nn.Module, images: Tensor) -> None:
    with torch.no_grad():
        for part in torch.split(images, 256):
            module(part)


def guard_overhead(repeats: int, weights: Path | None) -> None:
    module = resnet20(weights if weights is not None and weights.exists() else None)
    network = Network(module)
    images = torch.rand(2048, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    training = network.observe(images)
    title = f"Guard over a plain forward pass, ResNet-20 ({'trained' if weights else 'random'} weights)"
    header(title, "monitor", "batch", "plain ms", "guarded ms", "ratio", "bytes")
    for cls in (monitors.MaxSoftmax, monitors.Energy, monitors.Mahalanobis, monitors.ActivationBox):
        monitor = cls().fit(training[:1024])
        guard = Guard(network, monitor).calibrate(training[1024:])
        for batch, rounds in ((256, repeats), (1, 60 * repeats)):
            inputs = images[:batch]
            first, second, ratio = in_turn(partial(forward, module, inputs), partial(guard, inputs), rounds)
            cells = f"{1000 * first:.2f}", f"{1000 * second:.2f}", f"{ratio:.3f}"
            row(cls.__name__, batch, *cells, f"{monitor.nbytes:,}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peer", type=Path, help="folder with pytorch-ood, installed by pip --no-deps --target"
    )
    parser.add_argument("--only", choices=SECTIONS, nargs="+", default=SECTIONS)
    parser.add_argument("--monitors", nargs="+", metavar="NAME", help="only these, in beside and alone")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scored", type=int, default=SCORED, help="rows whose neighbours are searched")
    parser.add_argument("--corp", type=Path, help="CoP_CoRP_c10.py of fanghenshaometeor/ood-kernel-pca")
    parser.add_argument("--weights", type=Path, help="trained ResNet-20 weights (resnet20-12fca82f.th)")
    parser.add_argument("--fastest", action="store_true", help="the fastest runs instead of medians")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: for a machine that is not idle")
    arguments = parser.parse_args()
    if arguments.corp is not None and not arguments.corp.exists():
        parser.error(f"expected the authors' script at {arguments.corp}, got nothing there; fetch it first")
    global clock, fastest
    clock, fastest = CLOCKS[arguments.clock], arguments.fastest
    torch.set_num_threads(arguments.threads)
    peer = peer_detectors(arguments.peer)
    print(
        f"assay {assay.__version__}, torch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), "
        f"{platform.machine()}, {arguments.threads} thread(s), {arguments.clock} time, "
        f"pytorch-ood {'beside' if peer else 'absent'}"
    )
    print(f"{FITTED:,} fitted, {SCORED:,} scored, d = {SIZE}, {CLASSES} classes")

    def chosen(title: str) -> bool:
        return arguments.monitors is None or title in arguments.monitors

    runs: dict[str, Callable[[], None]] = {
        "beside": lambda: compare_all(peer, arguments.repeats, chosen),
        "narrow": lambda: compare_narrow(peer, arguments.repeats),
        "alone": lambda: measure_alone(arguments.repeats, arguments.corp, chosen),
        "searches": lambda: compare_searches(arguments.repeats, arguments.scored),
        "guard": lambda: guard_overhead(arguments.repeats, arguments.weights),
    }
    for section in arguments.only:
        runs[section]()


if __name__ == "__main__":
    main()
