"""observe piece by piece gives the rows of one run, wherever the data is and whatever happens on the way."""

import io
import os
import signal
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from assay import Network, data
from assay.errors import InputError
from assay.network.sharded_observation import Piece, _Observer, _pieces
from rows_of_shards import labelled_rows, small_network


class Fatal(nn.Module):
    """A network whose process is killed the first time it runs elsewhere."""

    def __init__(self, mark):
        super().__init__()
        self.last = nn.Linear(6, 3)
        self.mark, self.home = mark, os.getpid()

    def forward(self, rows):
        if os.getpid() != self.home and not os.path.exists(self.mark):
            with open(self.mark, "w"):
                os.kill(os.getpid(), signal.SIGKILL)
        return self.last(rows)


@pytest.fixture(scope="module")
def network():
    return small_network()


@pytest.fixture(scope="module")
def rows():
    return labelled_rows(100)


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    place = tmp_path_factory.mktemp("data")
    for number, (inputs, labels) in enumerate(zip(rows[0].split(32), rows[1].split(32), strict=True)):
        np.savez(place / f"{number}.npz", inputs=inputs.numpy(), labels=labels.numpy())
    return place


def test_files_are_read_in_the_order_of_their_names(network, rows, folder, tmp_path):
    whole = network.observe(rows)
    for found in (network.observe(folder), network.observe(sorted(folder.iterdir()))):
        # Batches of other lengths may round unlike these.
        assert torch.allclose(found.logits, whole.logits, atol=1e-6)
        assert torch.equal(found.labels, whole.labels)
    sharded = network.observe_to(tmp_path / "trace", folder)
    assert [len(shard) for shard in sharded.shards] == [32, 32, 32, 4]
    np.save(tmp_path / "more.npy", rows[0].numpy())
    assert network.observe(tmp_path / "more.npy").labels is None
    with pytest.raises(InputError, match="found none"):
        network.observe(tmp_path / "nothing")


def test_pieces_that_travel_take_only_themselves_along(network, rows):
    pieces = list(_pieces(network, rows, 40, copied=True))
    assert [piece.number for piece in pieces] == [0, 1, 2]
    inputs = pieces[0].batches[0][0]
    assert inputs.untyped_storage().nbytes() == inputs.nbytes


def test_ignored_rows_are_counted_once(network, rows):
    labels = rows[1].clone()
    labels[:7] = network.ignore_index
    observer = _Observer(network, False, None)
    found = [observer(piece)[0] for piece in _pieces(network, (rows[0], labels), 40, copied=False)]
    assert sum(trace.ignored for trace in found) == 7
    assert sum(map(len, found)) == 93


def test_a_killed_worker_costs_its_piece_and_the_order_stays(rows, tmp_path):
    network = Network(Fatal(str(tmp_path / "killed")), batch_size=16)
    whole = network.observe(rows)
    found = network.observe_to(tmp_path / "trace", rows, engine="processes", workers=2, shard_rows=32)
    assert (tmp_path / "killed").exists()
    assert torch.equal(found.logits, whole.logits)
    assert torch.equal(found.labels, whole.labels)
    found.verify()


def test_samples_of_webdataset(network, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (5, 4, 4), np.uint8)

    def add(archive, name, content):
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))

    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number, image in enumerate(pixels):
            png = io.BytesIO()
            Image.fromarray(image).save(png, "PNG")
            add(archive, f"{number}.png", png.getvalue())
            add(archive, f"{number}.cls", str(number % 3).encode())
            add(archive, f"{number}.json", b"{}")
    inputs, labels = data.read(tmp_path / "a.tar")
    assert np.allclose(inputs.numpy()[:, 0], pixels / 255)
    assert labels.tolist() == [0, 1, 2, 0, 1]
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for number in range(3):
            array = io.BytesIO()
            np.save(array, np.full(6, number, np.float32))
            add(archive, f"{number}.npy", array.getvalue())
    assert network.observe(tmp_path / "b.tar").logits.shape == (3, 3)
    (tmp_path / "c.tar").write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot be read as a tar"):
        data.read_inputs(tmp_path / "c.tar")


def test_a_piece_is_known_by_what_it_contains(rows):
    first, other = Piece(0, ((rows[0], rows[1]),)), Piece(0, ((rows[0], rows[1].roll(1)),))
    assert first.identity() == Piece(5, ((rows[0].clone(), rows[1]),)).identity()
    assert first.identity() != other.identity()
