"""Images per second of every fault template, beside the `imagecorruptions` package.

    python benchmarks/faults.py --peer-python /path/to/venv-with-imagecorruptions/bin/python

The peer needs its own environment (`pip install "setuptools<70" imagecorruptions`); without --peer-python
only assay is measured. Both run on one thread, and what counts is CPU time, which other programs on the
machine disturb less than wall time; the best of several repeats is taken, with --rounds 5 of five times as
many, both sides in turn. --faults jpeg measures only that. The peer gets one 8-bit image after the other, as
it must; assay gets them as one batch.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

SIZES = {32: 256, 224: 6}
SEVERITY = 3
REPEATS = 6

# assay's name -> the peer's.
PEER = {
    "gaussian": "gaussian_noise",
    "shot": "shot_noise",
    "impulse": "impulse_noise",
    "speckle": "speckle_noise",
    "spatter": "spatter",
    "defocus_blur": "defocus_blur",
    "glass_blur": "glass_blur",
    "zoom_blur": "zoom_blur",
    "gaussian_blur": "gaussian_blur",
    "elastic_transform": "elastic_transform",
    "snow": "snow",
    "fog": "fog",
    "frost": "frost",
    "brightness": "brightness",
    "contrast": "contrast",
    "saturate": "saturate",
    "motion_blur": "motion_blur",
    "pixelate": "pixelate",
    "jpeg": "jpeg_compression",
}


def measured(run, count):
    """Images per second of CPU time: the best of the repeats, after one to warm up."""
    run()
    best = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return count / best


def scenes(side, count):
    """Smooth coloured images, the same for both sides (noise would make JPEG's work harder than it is)."""
    import numpy as np

    generator = np.random.default_rng(0)
    coarse = generator.random((count, 3, side // 8, side // 8))
    rows = np.linspace(0, side // 8 - 1, side)
    low, share = np.floor(rows).astype(int), rows % 1
    high = np.minimum(low + 1, side // 8 - 1)
    down = coarse[:, :, low] * (1 - share[:, None]) + coarse[:, :, high] * share[:, None]
    smooth = down[..., low] * (1 - share) + down[..., high] * share
    return np.clip(smooth + 0.02 * generator.normal(size=smooth.shape), 0, 1).astype(np.float32)


def ours(chosen):
    import torch

    from assay.faults import ANOMALY, NOISE, SHIFT

    torch.set_num_threads(1)
    speeds = {}
    for side, count in SIZES.items():
        images = torch.from_numpy(scenes(side, count))
        for name, template in {**NOISE, **SHIFT, **ANOMALY}.items():
            if chosen and name not in chosen:
                continue
            speeds[f"{name} {side}"] = measured(lambda t=template, x=images: t(x, SEVERITY), count)
    return speeds


def theirs(chosen):
    """Runs in the peer's environment, which has no assay and no torch."""
    import warnings

    warnings.filterwarnings("ignore")
    import cv2
    from imagecorruptions import corrupt

    cv2.setNumThreads(1)
    speeds = {}
    for side, most in SIZES.items():
        count = min(24, most)
        images = (scenes(side, count) * 255).round().astype("uint8").transpose(0, 2, 3, 1).copy()
        for name, peer in PEER.items():
            if chosen and name not in chosen:
                continue

            def run(name=peer, images=images):
                for image in images:
                    corrupt(image, corruption_name=name, severity=SEVERITY)

            try:
                speeds[f"{name} {side}"] = measured(run, count)
            except (TypeError, AttributeError) as error:
                speeds[f"{name} {side}"] = f"fails: {type(error).__name__}"
    return speeds


def asked(python, chosen):
    """`theirs` in the peer's environment."""
    command = [python, str(Path(__file__).resolve()), "--as-peer"]
    command += ["--faults", *chosen] if chosen else []
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def best(rounds):
    """The fastest of several rounds; a fault that fails does so in all of them."""
    return {
        name: first if isinstance(first, str) else max(round_[name] for round_ in rounds)
        for name, first in rounds[0].items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peer-python", help="python of an environment with imagecorruptions")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--faults", nargs="+", default=[], help="only these, such as jpeg")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    if options.as_peer:
        print(json.dumps(theirs(options.faults)))
        return 0
    mine, others = [], []
    for _ in range(options.rounds):
        others.append(asked(options.peer_python, options.faults) if options.peer_python else {})
        mine.append(ours(options.faults))
    speeds, peer, slower = best(mine), best(others), []
    if not speeds:
        parser.error(f"expected names of faults, got {options.faults}, none of which there is")
    print("| fault | 32x32 assay | imagecorruptions | 224x224 assay | imagecorruptions |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in dict.fromkeys(key.split()[0] for key in speeds):
        cells = []
        for side in SIZES:
            own, other = speeds[f"{name} {side}"], peer.get(f"{name} {side}", "-")
            shown = other if isinstance(other, str) else f"{other:,.0f}"
            cells += [f"{own:,.0f}", shown]
            if not isinstance(other, str) and own < other:
                slower.append(f"{name} at {side}x{side}")
        print(f"| {name} | {' | '.join(cells)} |")
    compared = sum(not isinstance(value, str) for value in peer.values()) // len(SIZES)
    print(f"\n{compared} faults compared; slower than the peer: {', '.join(slower) or 'none'}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
