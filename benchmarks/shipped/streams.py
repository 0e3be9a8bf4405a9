"""Datasets as people have them, passed as they are: Hugging Face and webdataset beside a plain loop."""

import resource
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import assay
from assay.demo.networks import small_cnn, trained
from assay.monitors import KNN, Energy, Mahalanobis, MaxSoftmax, fit_together

Row = tuple[str, float, float]
NOTHING = float("nan")


def datasets() -> Iterator[Row]:
    """A Dataset, the same as a stream, in batches and with a transform of its own."""
    import datasets as huggingface

    network, pictures, labels, logits = _digits()
    features = huggingface.Features(
        image=huggingface.Image(),
        label=huggingface.ClassLabel(num_classes=10),
        id=huggingface.Value("string"),
    )
    columns = {"image": pictures, "label": labels.tolist(), "id": [f"row {n}" for n in range(len(labels))]}
    dataset = huggingface.Dataset.from_dict(columns, features=features)
    stream = dataset.to_iterable_dataset()

    def to_tensors(rows: dict[str, Any]) -> dict[str, Any]:
        return {"image": [_tensor(picture) for picture in rows["image"]], "label": rows["label"]}

    forms = {
        "Dataset": dataset,
        "Dataset.with_transform": dataset.with_transform(to_tensors),
        "IterableDataset": stream,
        "IterableDataset.batch": stream.batch(batch_size=50),
    }
    for name, data in forms.items():
        yield from _compared(name, network.observe(data), logits, labels)
    renamed = dataset.rename_columns({"image": "photo", "label": "digit"})
    trace = network.observe(renamed, columns=("photo", "digit"), transform=_tensor)
    yield from _compared("columns= and transform=", trace, logits, labels)


def webdataset() -> Iterator[Row]:
    """Shards of pictures: samples, tuples with keys, batches, and both kinds of WebLoader."""
    import webdataset as wds

    network, pictures, labels, logits = _digits()
    with tempfile.TemporaryDirectory() as folder:
        with wds.ShardWriter(f"{folder}/digits-%03d.tar", maxcount=200, verbose=0) as shards:
            for number, (picture, label) in enumerate(zip(pictures, labels.tolist(), strict=True)):
                shards.write(
                    {"__key__": f"{number:05d}", "png": picture, "cls": label, "json": {"row": number}}
                )
        files = sorted(str(path) for path in Path(folder).iterdir())

        def pipeline() -> Any:
            return wds.WebDataset(files, shardshuffle=False).decode("pill")

        tensors = pipeline().to_tuple("png", "cls").map_tuple(_tensor, int)
        forms: dict[str, tuple[Any, Any]] = {
            "samples": (pipeline(), lambda picture: picture.convert("L")),
            "tuples with a key": (pipeline().to_tuple("png", "cls", "__key__"), lambda one: one.convert("L")),
            "batched": (tensors.batched(64), None),
            "WebLoader of batches": (wds.WebLoader(tensors.batched(64), batch_size=None), None),
            "WebLoader with a batch size": (wds.WebLoader(tensors, batch_size=50), None),
        }
        for name, (data, transform) in forms.items():
            yield from _compared(name, network.observe(data, transform=transform), logits, labels)


def one_pass() -> Iterator[Row]:
    """Two million rows through four monitors in one pass: memory does not grow, and the fits are the same."""
    torch.manual_seed(0)
    network = assay.Network(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)))
    monitors = [MaxSoftmax(), Energy(), Mahalanobis(), KNN(limit=5000)]
    peaks: list[float] = []

    def batches(count: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(1)
        for number in range(count):
            if number % (count // 4) == 0:
                peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
            yield (
                torch.randn(4000, 16, generator=generator),
                torch.randint(0, 4, (4000,), generator=generator),
            )

    fit_together(monitors, network.stream(batches(500)))
    quarters = [later - earlier for earlier, later in pairwise(peaks)]
    yield "peak memory before the first batch (MB)", peaks[0], NOTHING
    yield "growth in the second half of 2,000,000 rows (MB)", sum(quarters[1:]), NOTHING
    alone = Mahalanobis().fit(network.stream(batches(20)))
    fit_together(monitors, network.stream(batches(20)))
    rows = network.observe(next(batches(4)))
    together = monitors[2].score(rows)
    yield "largest difference to a fit alone", float((together - alone.score(rows)).abs().max()), 0.0


def _digits() -> tuple[assay.Network, list[Image.Image], Tensor, Tensor]:
    """A trained network, test digits as pictures, their labels, and the module's own logits of them."""
    train, test = assay.data.digits()
    module = trained(small_cnn, train, epochs=10)
    pictures = [Image.fromarray((255 * image[0]).round().byte().numpy()) for image in test.inputs]
    with torch.no_grad():
        logits = module(torch.stack([_tensor(picture) for picture in pictures]))
    return assay.Network(module), pictures, test.labels, logits


def _tensor(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(picture.convert("L"), dtype=np.float32) / 255)[None]


def _compared(name: str, trace: assay.Trace, logits: Tensor, labels: Tensor) -> Iterator[Row]:
    yield f"{name}: largest difference of a logit", float((trace.logits - logits).abs().max()), 0.0
    yield (
        f"{name}: accuracy",
        float(trace.correct.double().mean()),
        float((logits.argmax(1) == labels).double().mean()),
    )
