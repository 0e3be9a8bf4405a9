"""What does not fit into memory is refused, by its headers, before it is unpacked."""

import gzip
import io
import math
import os
import struct
import zipfile

import numpy as np
import pytest
from PIL import Image

from assay.data import (
    memory,
    read,
    read_csv,
    read_idx,
    read_images,
    read_inputs,
    read_npz,
    read_probabilities,
    read_text,
)
from assay.errors import InputError
from assay.volatility.probability_files import probability_chunks

GB = 10**9
NO_ROOM = r"of free memory, got .* once unpacked"


@pytest.fixture
def free(monkeypatch):
    """Says how much memory there is."""

    def there_is(size):
        for name in ("memory", "delimited"):
            monkeypatch.setattr(f"assay.data.{name}.free_memory", lambda: size)

    return there_is


def header(shape, dtype="<f8"):
    """The beginning of an npy file, without the values it announces."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def packed(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def whole(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_an_npz_is_refused_by_what_its_arrays_announce(tmp_path, free):
    free(10 * GB)
    big, small = header((1_000_000, 1000)), whole(np.zeros(2, int))
    sentence = r"bomb\.npz: expected data that fit into the 10\.0 GB of free memory, got 12\.0 GB once"
    for members in ({"x": big, "y": small}, {"x": whole(np.zeros((2, 3))), "y": header((10**9,))}):
        with pytest.raises(InputError, match=sentence):
            read_npz(packed(tmp_path / "bomb.npz", **members))
    with pytest.raises(InputError, match=sentence):
        read_inputs(packed(tmp_path / "bomb.npz", x=big))
    (tmp_path / "bomb.npy").write_bytes(big)
    with pytest.raises(InputError, match=NO_ROOM):
        read_inputs(tmp_path / "bomb.npy")
    other = packed(tmp_path / "other.npz", x_train=big, x=whole(np.zeros((2, 3))), y=small)
    assert len(read_npz(other)[1]) == 2  # what is not read needs no room


def test_probabilities_are_bounded_like_inputs(tmp_path, free):
    free(10 * GB)
    (tmp_path / "bomb.npy").write_bytes(header((1_000_000, 1000)))
    packed(tmp_path / "bomb.npz", probabilities=header((1_000_000, 1000)))
    packed(tmp_path / "labels.npz", probabilities=whole(np.full((2, 2), 0.5)), labels=header((10**9,)))
    for name in ("bomb.npy", "bomb.npz", "labels.npz"):
        with pytest.raises(InputError, match=NO_ROOM):
            next(probability_chunks(str(tmp_path / name)))
        with pytest.raises(InputError, match=NO_ROOM):
            read_probabilities(tmp_path / name)


def test_an_npz_is_refused_by_what_it_unpacks_to(tmp_path, free):
    path = packed(tmp_path / "long.npz", x=whole(np.zeros((2, 3))) + bytes(10**6), y=whole(np.zeros(2, int)))
    free(10**6)
    with pytest.raises(InputError, match=NO_ROOM):
        read_npz(path)


def test_the_last_byte_decides(tmp_path, free):
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=np.zeros((50, 100)), y=np.zeros(50, int))
    needed = 50 * 100 * (8 + 4) + 50 * (8 + 4)
    free(needed)
    assert len(read_npz(path)[0]) == 50
    free(needed - 1)
    with pytest.raises(InputError, match=NO_ROOM):
        read_npz(path)


def test_an_idx_file_is_refused_by_its_header_and_never_read_beyond_it(tmp_path, free):
    start = struct.pack(">4B3I", 0, 0, 8, 3, 1000, 28, 28)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(start + bytes(784_000)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 1000) + bytes(1000))
    assert len(read_idx(path)[0]) == 1000
    free(1_000_000)
    with pytest.raises(InputError, match=r"the 1\.0 MB of free memory, got 3\.9 MB"):
        read_idx(path)
    path.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 1, 2, 2) + bytes(10**7)))
    with pytest.raises(InputError, match=r"expected 20 bytes .* got more"):
        read_idx(path)
    path.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, *[2**32 - 1] * 3) + bytes(10)))
    with pytest.raises(InputError, match="truncated or damaged"):  # no such file could hold so much
        read_idx(path)


def test_images_are_refused_by_their_headers(tmp_path, free):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("L", (300, 200)).save(tmp_path / name / "one.png")
    assert read_images(tmp_path).inputs.shape == (2, 1, 200, 300)
    free(400_000)
    for options in ({}, {"size": 1000}, {"size": 2, "channels": 1}):  # the result, or the images themselves
        with pytest.raises(InputError, match=NO_ROOM):
            read_images(tmp_path, **options)


def test_tables_are_counted_before_they_are_read(tmp_path, free):
    lines = b"label,a,b\n" + b"0,0,0\n" * 30_000
    texts = b"text,label\n" + b"some words,1\n" * 30_000
    for name, content, reader in (
        ("numbers.csv", lines, read_csv),
        ("numbers.csv.gz", gzip.compress(lines), read_csv),
        ("texts.csv.gz", gzip.compress(texts), read_text),
        ("line.csv.gz", gzip.compress(b"0," * 500_000), read_csv),
        ("any.csv.gz", gzip.compress(lines), read),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        free(1_000_000)
        with pytest.raises(InputError, match=rf"{name}: .*{NO_ROOM}"):
            reader(path)
        if name != "line.csv.gz":
            free(10_000_000)
            assert len(reader(path)[1]) == 30_000


def test_free_memory_is_at_most_what_is_built_in():
    built_in = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < memory.free_memory() <= built_in


def group(folder, limit, used, cached, version=2):
    names = ("memory.max", "memory.current", "inactive_file")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 7\n{names[2]} {cached}\n")


def test_free_memory_is_that_of_the_machine_and_of_every_group_around(tmp_path):
    proc, top = tmp_path / "proc", tmp_path / "sys/fs/cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 8000 kB\nMemFree: 100 kB\nMemAvailable:    5000 kB\n")
    assert memory.free_memory(tmp_path) == 5000 * 1024
    (proc / "self/cgroup").write_text("0::/outer/inner\n")
    assert memory.free_memory(tmp_path) == 5000 * 1024  # a group that cannot be seen
    group(top / "outer/inner", "max", 10, 0)
    assert memory.free_memory(tmp_path) == 5000 * 1024
    group(top / "outer", 3_000_000, 2_000_000, 500_000)
    assert memory.free_memory(tmp_path) == 1_500_000
    group(top / "outer/inner", 1_000_000, 900_000, 0)
    assert memory.free_memory(tmp_path) == 100_000
    group(top / "outer/inner", 1_000_000, 1_100_000, 0)
    assert memory.free_memory(tmp_path) == 0


def test_the_older_groups(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 5000 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("5:devices:/x\n4:cpu,memory:/box/1:2\n0::/\n")
    group(tmp_path / "sys/fs/cgroup/memory", 2**63 - 4096, 1000, 0, version=1)
    group(tmp_path / "sys/fs/cgroup/memory/box/1:2", 4_000_000, 1_000_000, 200_000, version=1)
    assert memory.free_memory(tmp_path) == 3_200_000


def test_where_nothing_is_said_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sysconf")
    assert memory.free_memory(tmp_path) == math.inf
