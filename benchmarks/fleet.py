"""A simulated fleet: 1,000 devices, each with its own class shares and its own fault, send only counts.

    python benchmarks/fleet.py --data ../data/fashion-mnist --devices 1000

Every device counts a histogram of ten neurons and of its predictions (class x confidence bin), and the sums
of an AccuracyEstimator, over the inputs it sees; `assay merge` adds the histograms up. `estimate_fleet`
estimates every device from a labelled home set (clean and perturbed images, as one would collect before
shipping), also with privacy noise of epsilon 1. With `--reshaped N` the home set is reshaped to the first N
devices, too. The truth is the accuracy on the inputs the devices saw, which only this script knows. Constants
were fixed on the devices of `--first 200000`, and on MNIST; the reported devices are those from 0. A small
run: `--devices 8`.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import assay
from assay import Bins, Histogram, Network
from assay.cli.merge import merge

ROOT = Path(__file__).parents[1]
SEEN, HOME, NEURONS, EPSILON = 300, 1500, 10, 0.05
FAULTS = ("none", "noise", "contrast", "blur")


def network_of(images: Tensor, labels: Tensor, cache: Path) -> Network:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 8, 5, 2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(400, 20),
        nn.ReLU(),
        nn.Linear(20, 10),
    )
    path = cache / "fleet.pt"
    if path.is_file():
        module.load_state_dict(torch.load(path, weights_only=True))
        return Network(module.eval())
    optimiser = torch.optim.Adam(module.parameters(), 2e-3)
    for _ in range(3):
        for rows in torch.split(torch.randperm(len(labels)), 64):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(module(images[rows]), labels[rows])
            loss.backward()
            optimiser.step()
    torch.save(module.state_dict(), path)
    return Network(module.eval())


def perturbed(images: Tensor, fault: str, strength: float, seed: int) -> Tensor:
    """The images under a fault of strength 0 to 1."""
    if fault == "noise":
        noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(seed))
        return (images + 0.3 * strength * noise).clamp(0, 1)
    if fault == "contrast":
        return images * (1 - 0.7 * strength)
    if fault == "blur":
        return (1 - strength) * images + strength * nn.functional.avg_pool2d(images, 5, 1, 2)
    return images


def home_set(network: Network, images: Tensor, labels: Tensor) -> assay.Trace:
    """Clean images, and all of them again under each fault at two strengths."""
    parts = [
        network.observe((perturbed(images, fault, strength, 1), labels))
        for fault, strength in [("none", 0.0), *((f, s) for f in FAULTS[1:] for s in (0.4, 0.8))]
    ]
    return assay.Trace.concatenate(parts)


def device(number: int, network: Network, images: Tensor, labels: Tensor) -> tuple[assay.Trace, str, float]:
    """What one device sees: class shares of its own, one fault of its own strength."""
    rng = np.random.default_rng(number)
    shares = rng.dirichlet(np.full(10, 0.7))
    rows = rng.choice(len(labels), SEEN, p=_weights(labels, shares))
    fault, strength = FAULTS[number % 4], float(rng.random())
    strength = 0.0 if fault == "none" else strength
    trace = network.observe((perturbed(images[rows], fault, strength, number), labels[rows]))
    return trace, fault, strength


def _weights(labels: Tensor, shares: np.ndarray) -> np.ndarray:
    counts = np.bincount(labels.numpy(), minlength=10)
    weights = (shares / counts)[labels.numpy()]
    return weights / weights.sum()


def run(folder: Path, cache: Path, devices: int, first: int, reshaped: int, engine: str) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    train, test = (assay.data.read_idx(folder, split=split) for split in ("train", "test"))
    network = network_of(train[0][:25_000], train[1][:25_000], cache)
    pool = train[0][30_000:], train[1][30_000:]
    home = home_set(network, test[0][:HOME], test[1][:HOME])
    conditions = np.repeat(np.arange(1 + 2 * len(FAULTS[1:])), HOME)
    bins = Bins.from_data(home, width=2.0, neurons=range(NEURONS), per_neuron=True, network=network)
    bins = bins.with_predictions(home)
    clean = network.observe((test[0][:HOME], test[1][:HOME]))
    estimator = assay.AccuracyEstimator(window=SEEN).fit(home)
    print(f"home: {len(home):,} labelled inputs, accuracy {float(home.correct.double().mean()):.3f} "
          f"(clean {float(clean.correct.double().mean()):.3f})")  # fmt: skip
    rows, correct, files, counts, histograms = [], 0, [], [], {}
    start = time.perf_counter()
    for number in range(first, first + devices):
        trace, fault, strength = device(number, network, *pool)
        path = cache / f"device-{number:04}.safetensors"
        histogram = Histogram.of(trace, bins)
        assay.save(histogram, path)
        files.append(path)
        histograms[str(number)] = histogram
        counted = estimator.count(trace)
        counts.append(counted)
        truth = float(trace.correct.double().mean())
        correct += int(trace.correct.sum())
        estimates = {one.method: one.value for one in estimator.estimate(counted).estimates}
        row = {"device": number, "fault": fault, "strength": strength, "truth": truth, **estimates}
        if number - first < reshaped:
            row |= _reshaped(home, histogram)
        rows.append(row)
    print(f"{devices} devices in {time.perf_counter() - start:.0f} s")
    frame = pd.DataFrame(rows)
    private = {name: one.private(1.0, seed=int(name)) for name, one in histograms.items()}
    for name, sent in (("fleet", histograms), ("fleet, epsilon 1", private)):
        frame[name] = _fleet(name, home, conditions, sent, frame["truth"].to_numpy(), cache, engine)
    frame.to_csv(cache / "fleet.csv", index=False)
    start = time.perf_counter()
    merge(files, cache / "fleet.safetensors")
    size = (cache / "fleet.safetensors").stat().st_size
    print(f"merged in {time.perf_counter() - start:.1f} s, {size:,} bytes")
    _print_errors(frame)
    truth = correct / (devices * SEEN)
    start = time.perf_counter()
    result = assay.reshape(home, assay.load(cache / "fleet.safetensors"), 0.01)
    estimate = result.estimate(assay.accuracy)
    print(f"fleet: truth {truth:.4f}; reshaping {estimate.value:.4f} [{estimate.lower:.4f}, "
          f"{estimate.upper:.4f}], kept {result.number_kept:,} of {len(home):,}, "
          f"{time.perf_counter() - start:.0f} s")  # fmt: skip
    table = estimator.estimate(sum(counts[1:], start=counts[0])).to_frame()
    print(table[["method", "value", "lower", "upper"]].to_string(index=False, float_format="{:.4f}".format))


def _fleet(
    name: str,
    home: assay.Trace,
    conditions: np.ndarray,
    histograms: dict[str, Histogram],
    truth: np.ndarray,
    cache: Path,
    engine: str,
) -> np.ndarray:
    """Every device in one call; prints error, coverage, half-width and seconds."""
    start, used = time.perf_counter(), time.process_time()
    found = assay.estimate_fleet(home, histograms, conditions=conditions, target=0.75, engine=engine)
    seconds, processor = time.perf_counter() - start, time.process_time() - used
    devices = found.devices
    held = (devices["lower"] <= truth) & (truth <= devices["upper"])
    error = (devices["value"] - truth).abs()
    low = truth < 0.75
    below = found.to_frame().set_index("device").loc[devices["device"], "below"].to_numpy()
    width = (devices["upper"] - devices["lower"]).mean() / 2
    print(f"{name}: error {error.mean():.4f} (largest {error.max():.4f}), interval held {held.mean():.1%} at "
          f"a half-width of {width:.3f}; {devices['alarm'].mean():.1%} alarms; said to be below 0.75: "
          f"{below.sum()}, which are {(below & low).sum()} of {low.sum()}; {seconds:.1f} s, {processor:.1f} "
          "processor seconds here")  # fmt: skip
    found.plot().savefig(cache / f"{name.replace(', ', '-').replace(' ', '-')}.png", dpi=120)
    return devices["value"].to_numpy()


def _reshaped(home: assay.Trace, histogram: Histogram) -> dict[str, float]:
    try:
        result = assay.reshape(home, histogram, EPSILON, time_limit=300)
    except assay.AssayError:  # no subset matches, or none was found in time
        return {"reshaping": np.nan, "lower": np.nan, "upper": np.nan}
    estimate = result.estimate(assay.accuracy, resamples=200)
    return {"reshaping": estimate.value, "lower": estimate.lower, "upper": estimate.upper}


def _print_errors(frame: pd.DataFrame) -> None:
    """Mean absolute error per device of every way to estimate, by fault."""
    names = [
        name
        for name in frame.columns
        if name not in ("device", "fault", "strength", "truth", "lower", "upper")
    ]
    table = {}
    for fault, part in [("all", frame), *frame.groupby("fault")]:
        table[fault] = {name: float((part[name] - part["truth"]).abs().mean()) for name in names}
    print(pd.DataFrame(table).to_string(float_format="{:.3f}".format))
    if "reshaping" in frame:
        done = frame.dropna(subset=["reshaping"])
        asked = frame["reshaping"].notna().sum()
        within = ((done["lower"] <= done["truth"]) & (done["truth"] <= done["upper"])).mean()
        print(f"reshaping: {asked} devices matched, truth within the interval on {within:.1%} of them; "
              f"correlation with the truth {done['reshaping'].corr(done['truth']):.2f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = Path(os.environ.get("ASSAY_DATA", ROOT.parent / "data")) / "fashion-mnist"
    parser.add_argument("--data", type=Path, default=data, help="folder with the IDX files")
    parser.add_argument(
        "--cache", type=Path, default=ROOT.parent / "cache" / "fleet", help="folder for results"
    )
    parser.add_argument("--devices", type=int, default=1000, help="number of devices")
    parser.add_argument("--first", type=int, default=0, help="number of the first device")
    parser.add_argument("--reshaped", type=int, default=0, help="number of devices reshaped one by one")
    parser.add_argument("--engine", default="here", help="where the fleet is estimated")
    options = parser.parse_args()
    if not options.data.is_dir():
        parser.error(
            f"expected the IDX files of Fashion-MNIST in {options.data}; pass --data, or set ASSAY_DATA"
        )
    run(options.data, options.cache, options.devices, options.first, options.reshaped, options.engine)


if __name__ == "__main__":
    main()
