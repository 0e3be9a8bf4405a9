"""Whatever hands out items or batches gives the Trace that the same inputs in one piece give."""

import gc
import weakref

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import assay
from assay import Trace
from assay.errors import InputError


class Items(Dataset):
    """A dataset of whatever items it was given."""

    def __init__(self, items):
        self.items = list(items)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, place):
        return self.items[place]


class Stream(IterableDataset):
    """Elements that can only be iterated, as webdataset and Hugging Face stream them."""

    def __init__(self, elements, column_names=None):
        self.elements = list(elements)
        if column_names:
            self.column_names = column_names

    def __iter__(self):
        return iter(self.elements)


class Columns:
    """The protocol of a Hugging Face Dataset: named columns, and a slice is a dict of lists."""

    def __init__(self, columns):
        self.columns = columns
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, part):
        assert isinstance(part, slice)
        return {name: values[part] for name, values in self.columns.items()}


class Loader:
    """The protocol of a WebLoader: an iterable that is no DataLoader."""

    def __init__(self, elements):
        self.elements = elements

    def __iter__(self):
        return iter(self.elements)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3))
    return assay.Network(module, batch_size=4)


@pytest.fixture(scope="module")
def greys():
    return np.random.default_rng(0).integers(0, 256, (10, 4, 4), dtype=np.uint8)


@pytest.fixture(scope="module")
def inputs(greys):
    return torch.from_numpy(greys.astype(np.float32) / 255)[:, None]


@pytest.fixture(scope="module")
def labels():
    return torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])


@pytest.fixture(scope="module")
def pictures(greys):
    return [Image.fromarray(image) for image in greys]


def forms(inputs, labels, pictures):
    numbers = labels.tolist()
    batches = list(zip(inputs.split(4), labels.split(4), strict=True))
    rows = [
        {"image": picture, "label": number, "id": "a"}
        for picture, number in zip(pictures, numbers, strict=True)
    ]
    pairs = list(zip(inputs, numbers, strict=True))
    return {
        "a generator of batches": (batch for batch in batches),
        "a list of batches": batches,
        "a loader that is no DataLoader": Loader(batches),
        "a DataLoader with ids": DataLoader(
            TensorDataset(inputs, labels, torch.arange(len(labels))), batch_size=3
        ),
        "batches as dicts": [{"image": x, "label": y, "__key__": ["k"] * len(y)} for x, y in batches],
        "columns of labels": ((x, y[:, None].double()) for x, y in batches),
        "a dataset of items": Items(pairs),
        "a dataset with ids": Items((x, y, "id") for x, y in pairs),
        "a dataset of dicts": Items(rows),
        "labels in arrays of one": Items((x, np.array([float(y)])) for x, y in pairs),
        "a list of items": pairs,
        "a list of dicts": rows,
        "a stream of items": Stream(pairs),
        "a stream of dicts": Stream(rows, ["image", "label", "id"]),
        "a stream of batches": Stream(batches),
        "samples of webdataset": Stream(
            {"__key__": f"{n}", "png": x, "cls": str(y).encode(), "json": {}}
            for n, (x, y) in enumerate(pairs)
        ),
        "columns of Hugging Face": Columns({"id": numbers, "img": pictures, "label": numbers}),
        "columns of numbers": Columns({"x": inputs.tolist(), "y": numbers}),
        "images and labels": (pictures, labels),
        "a stream of batches of images, the last of one": Stream(
            (
                {"image": pictures[start : start + 3], "label": numbers[start : start + 3]}
                for start in range(0, len(numbers), 3)
            ),
            ["image", "label"],
        ),
        "a stream of batches of numbers, the last of one": Stream(
            (inputs[start : start + 3].tolist(), numbers[start : start + 3])
            for start in range(0, len(numbers), 3)
        ),
    }


FORMS = list(forms(torch.zeros(2, 1), torch.zeros(2), [None, None]))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data_gives_the_same_trace(network, inputs, labels, pictures, form):
    expected = network.observe((inputs, labels), keep_inputs=True)
    for observe in (
        network.observe,
        lambda data, **options: Trace.concatenate(network.stream(data, **options)),
    ):
        trace = observe(forms(inputs, labels, pictures)[form], keep_inputs=True)
        assert torch.equal(trace.labels, labels)
        # Rounding: matrix products of other sizes add up in another order.
        assert torch.allclose(trace.logits, expected.logits, atol=1e-6)
        assert torch.allclose(trace.inputs, inputs)


def test_what_has_no_labels_is_observed_without(network, inputs, pictures):
    expected = network.observe(inputs).logits
    data = {
        "tensors": iter(inputs.split(3)),
        "a list of tensors": list(inputs.split(5)),  # two of them: a second batch, and no labels
        "pictures": pictures,
        "a stream of pictures": iter(pictures),
        "a dataset": Items(inputs),
        "arrays": [row.numpy() for row in inputs],
        "a column": Columns({"image": pictures}),
    }
    for name, form in data.items():
        trace = network.observe(form)
        assert trace.labels is None, name
        assert torch.allclose(trace.logits, expected, atol=1e-6), name


def test_a_transform_is_called_on_the_input_of_every_item(network, inputs, labels, pictures):
    expected = network.observe((1 - inputs, labels)).logits

    def negative(picture):
        return 1 - torch.from_numpy(np.array(picture, dtype=np.float32)) / 255

    rows = [{"image": one, "label": int(label)} for one, label in zip(pictures, labels, strict=True)]
    for data in (
        Items(rows),
        rows,
        iter(rows),
        (pictures, labels),
        Columns({"image": pictures, "label": labels}),
    ):
        assert torch.allclose(network.observe(data, transform=negative).logits, expected, atol=1e-6)
    whole = network.observe((inputs, labels), transform=lambda image: 1 - image)
    assert torch.allclose(whole.logits, expected, atol=1e-6)


def test_columns_can_be_named(network, inputs, labels):
    columns = Columns({"photo": inputs, "fine": labels, "coarse": labels * 0})
    trace = network.observe(columns, columns=("photo", "fine"))
    assert torch.equal(trace.labels, labels)
    assert network.observe(columns, columns=("photo", None)).labels is None
    with pytest.raises(
        InputError, match=r"expected columns \['picture'\], got \['coarse', 'fine', 'photo'\]"
    ):
        network.observe(columns, columns=("picture", "fine"))
    with pytest.raises(InputError, match="leave columns= out"):
        network.observe(iter([(inputs, labels)]), columns=("photo", "fine"))


def test_a_stream_reads_a_batch_when_it_is_asked_and_forgets_it(network):
    alive = weakref.WeakSet()
    read = []

    class Batch(torch.Tensor):
        pass

    def endless():
        while True:
            batch = torch.rand(8, 1, 4, 4).as_subclass(Batch)
            alive.add(batch)
            read.append(len(alive))
            yield batch, torch.zeros(8, dtype=torch.long)

    stream = network.stream(endless())
    assert not read
    for _ in range(20):
        assert len(next(stream)) == 8
    gc.collect()
    assert len(read) == 20
    assert max(read) <= 3


def test_rows_to_be_ignored_are_left_out_and_counted(network, inputs, labels):
    marked = labels.clone()
    marked[[1, 2, 8]] = -100
    kept = marked != -100
    expected = network.observe((inputs[kept], labels[kept]), keep_inputs=True)
    for data in ((inputs, marked), iter([(inputs[:3], marked[:3]), (inputs[3:], marked[3:, None].float())])):
        trace = network.observe(data, keep_inputs=True)
        assert trace.ignored == 3
        assert torch.allclose(trace.logits, expected.logits, atol=1e-6)
        assert torch.equal(trace.labels, expected.labels)
        assert torch.equal(trace.inputs, expected.inputs)
    parts = list(network.stream((inputs, marked)))
    assert sum(part.ignored for part in parts) == 3
    assert network.observe((inputs, labels)).ignored == 0
    other = assay.Network(network.module, ignore_index=2)
    assert other.observe((inputs, labels)).ignored == 3
    with pytest.raises(InputError, match="a label that counts, got 10 times -100"):
        network.observe((inputs, torch.full((10,), -100)))
    with pytest.raises(InputError, match="expected labels from 0 to 2"):
        network.observe((inputs, marked.where(marked != -100, -1)))


def test_several_monitors_are_fitted_on_one_stream(network, inputs, labels):
    from assay.monitors import KNN, Energy, KLMatching, Mahalanobis, fit_together

    trace = network.observe((inputs, labels))
    read = []

    def batches():
        for part in zip(inputs.split(3), labels.split(3), strict=True):
            read.append(len(part[0]))
            yield part

    monitors = [Energy(), Mahalanobis(), KNN(k=2), KLMatching()]
    assert fit_together(monitors, network.stream(batches())) is monitors
    assert read == [3, 3, 3, 1]
    for monitor in monitors:
        alone = type(monitor)(**monitor.state()["parameters"]).fit(
            network.stream((inputs, labels), batch_size=3)
        )
        assert torch.equal(monitor.score(trace), alone.score(trace))
    assert torch.isfinite(fit_together((Energy(),), trace)[0].score(trace)).all()


def test_a_stream_that_breaks_off_leaves_no_monitor_fitted(network, inputs):
    from assay.errors import NotFittedError
    from assay.monitors import KNN, Energy, MaxLogit, fit_together

    def broken():
        yield network.observe(inputs)
        raise RuntimeError("the disk is gone")

    monitors = [Energy(), MaxLogit()]
    with pytest.raises(RuntimeError, match="the disk is gone"):
        fit_together(monitors, broken())
    mixed = [Energy(), KNN(k=2)]
    bad = Trace(torch.zeros(3, 3), {"penultimate": torch.full((3, 5), torch.nan)})
    with pytest.raises(InputError, match="NaN or infinity"):
        fit_together(mixed, [network.observe(inputs), bad, network.observe(inputs)])
    for monitor in (*monitors, *mixed):
        with pytest.raises(NotFittedError):
            monitor.score(network.observe(inputs))
    for wrong in ([], [Energy(), "knn"]):
        with pytest.raises(InputError, match="at least one monitor"):
            fit_together(wrong, broken())
    one = Energy()
    with pytest.raises(InputError, match="same object twice"):
        fit_together([one, one], broken())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (iter([]), "at least one input, got none"),
        ({"train": Columns({"x": [1]})}, 'a split such as data\\["test"\\]'),
        (Items([(torch.zeros(1, 4, 4), 1), (torch.zeros(1, 3, 3), 1)]), "inputs of one shape"),
        (
            Items([(torch.zeros(1, 4, 4), 1), (torch.zeros(1, 4, 4), None)]),
            "a label in every item or in none",
        ),
        (iter([(torch.zeros(2, 1, 4, 4), torch.zeros(3))]), "2 inputs and 3 labels"),
        (Items([object()]), "pass transform="),
        (iter([()]), "pass at least inputs"),
        (iter([None]), "expected batches or items of a dataset, got NoneType"),
        (iter([1.0, 2.0]), "expected batches or items of a dataset, got float"),
        ((torch.zeros(3, 1, 4, 4), torch.full((3,), -100)), "a label that counts, got 3 times -100"),
        ((torch.zeros(3, 1, 4, 4), torch.zeros(3, 4, 4)), "a network for maps of labels has rows="),
        (
            iter([(torch.zeros(2, 1, 4, 4), torch.tensor([0.5, 1.0]))]),
            "whole class numbers, got 0.5; .* not regression",
        ),
    ],
)
def test_data_that_cannot_be_read_gets_one_sentence(network, data, words):
    with pytest.raises(InputError, match=words):
        network.observe(data)


def test_maps_of_labels_come_as_pictures_too(pictures, greys):
    class Maps(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Conv2d(1, 4, 1)

        def forward(self, images):
            return self.head(images)

    maps = [Image.fromarray((image // 64).astype(np.uint8)) for image in greys]
    network = assay.Network(Maps(), layers=(), rows="pixels", batch_size=4)
    expected = torch.from_numpy(greys // 64).flatten().long()
    for data in (
        Columns({"image": pictures, "annotation": maps}),
        Items({"image": one, "annotation": other} for one, other in zip(pictures, maps, strict=True)),
        Stream(
            [{"image": pictures[:9], "annotation": maps[:9]}, {"image": pictures[9:], "annotation": maps[9:]}]
        ),
    ):
        trace = network.observe(data, columns=("image", "annotation"))
        assert torch.equal(trace.labels, expected)
        assert trace.input_count == 10
    for batches in (
        DataLoader(
            TensorDataset(torch.zeros(4, 1, 4, 4), torch.zeros(4, 4, 4, dtype=torch.long)), batch_size=2
        ),
        iter([(torch.zeros(4, 1, 4, 4), torch.zeros(4, 4, 4))]),
    ):
        assert len(network.observe(batches)) == 4 * 16


def test_hugging_face_hands_out_what_the_stand_ins_do(network, inputs, labels, pictures):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(image=datasets.Image(), label=datasets.Value("int64"))
    dataset = datasets.Dataset.from_dict({"image": pictures, "label": labels.tolist()}, features=features)
    expected = network.observe((inputs, labels)).logits
    for data in (dataset, dataset.to_iterable_dataset(), dataset.to_iterable_dataset().batch(3)):
        trace = network.observe(data)
        assert torch.allclose(trace.logits, expected, atol=1e-6)
        assert torch.equal(trace.labels, labels)


# webdataset leaves the shards it has read to the garbage collector, which closes and mentions them.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_hands_out_what_the_stand_ins_do(network, inputs, labels, pictures, tmp_path):
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter(str(tmp_path / "digits.tar")) as shard:
        for number, (picture, label) in enumerate(zip(pictures, labels.tolist(), strict=True)):
            shard.write({"__key__": f"{number:03d}", "png": picture, "cls": label})
    expected = network.observe((inputs, labels)).logits

    def tensor(picture):
        return torch.from_numpy(np.array(picture.convert("L"), dtype=np.float32) / 255)[None]

    samples = webdataset.WebDataset(str(tmp_path / "digits.tar"), shardshuffle=False).decode("pil")
    tensors = samples.to_tuple("png", "cls").map_tuple(tensor, int)
    loader = webdataset.WebLoader(tensors.batched(4), batch_size=None)
    for data, transform in ((samples, tensor), (tensors, None), (tensors.batched(3), None), (loader, None)):
        trace = Trace.concatenate(network.stream(data, transform=transform))
        assert torch.allclose(trace.logits, expected, atol=1e-6)
        assert torch.equal(trace.labels, labels)


def test_token_ids_without_an_embedding_get_one_sentence():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(24, 3))

        def forward(self, input_ids):
            return self.body(input_ids)

    ids = torch.arange(60).view(10, 6)
    network = assay.Network(Named())
    for data in (ids, {"input_ids": ids}):
        with pytest.raises(InputError, match=r"token ids from 0 to 49, .* got 0 to 59; use the tokenizer"):
            network.observe(data)
