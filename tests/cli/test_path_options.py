"""Options after a path on the command line are those of the readers, each of its own type."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import assay
from assay.cli.network_reference import data_at, data_or_inputs_at, named_data
from assay.cli.path_options import OPTIONS, path_and_options
from assay.data.source import _LABELLED
from assay.errors import InputError

ON_PATHS = {name: reader for name, reader in _LABELLED.items() if name != "huggingface"}
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def sources(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = np.full((2, 3, 4, 4), 127.5)
    np.savez(
        "a.npz", x=images / 255, y=[0, 1], x_test=images / 510, y_test=[1, 1], big=images, tags=[[1.0], [0.0]]
    )
    Path("plain.csv").write_text("1,2,0\n3,4,1\n")
    Path("named.csv").write_text("a,fault,b\n1,0,2\n3,1,4\n")
    Path("words.csv").write_text("a,label\n1,malignant\n2,benign\n")
    Path("semi.csv").write_text("a;label\n1;0\n")
    Path("tabs.csv").write_text("a\tlabel\n1\t0\n")
    Path("texts.csv").write_text("id,opinion,stars\n7,good,1\n8,bad,0\n")
    Path("quoted.tsv").write_text('sentence\tlabel\n"fine\tday"\t0\n')
    Path("odd?name=x.csv").write_text("a,label\n5,0\n")
    Path("amp.csv").write_text("a,b&c\n5,1\n")
    for kind, shade in (("cat", 255), ("dog", 0)):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        Image.new("L", (6, 4), shade).save(tmp_path / "photos" / kind / "1.png")
    (tmp_path / "idx").mkdir()
    for part, white in (("train", "ff"), ("t10k", "00")):
        place = tmp_path / "idx" / part
        place.with_name(f"{part}-images-idx3-ubyte").write_bytes(
            bytes.fromhex(f"00000803 00000001 00000001 00000001 {white}")
        )
        place.with_name(f"{part}-labels-idx1-ubyte").write_bytes(bytes.fromhex("00000801 00000001 03"))
    (tmp_path / "idx" / "other-labels").write_bytes(bytes.fromhex("00000801 00000001 05"))


@pytest.mark.parametrize(
    ("source", "inputs", "labels"),
    [
        ("a.npz", 0.5, [0, 1]),
        ("a.npz?split=test", 0.25, [1, 1]),
        ("a.npz?scale=0.5", 1.0, [0, 1]),
        ("a.npz?scale=2", 0.25, [0, 1]),
        ("a.npz?inputs=big&scale=255", 0.5, [0, 1]),
        ("a.npz?labels=tags", 0.5, [1, 0]),
        ("plain.csv?header=False&label=-1", [[1, 2], [3, 4]], [0, 1]),
        ("plain.csv?header=no&label=2", [[1, 2], [3, 4]], [0, 1]),
        ("named.csv?label=fault", [[1, 2], [3, 4]], [0, 1]),
        ("named.csv?label=1&header=TRUE", [[1, 2], [3, 4]], [0, 1]),
        ("words.csv", [[1], [2]], [1, 0]),
        ("words.csv?classes=malignant,benign", [[1], [2]], [0, 1]),
        ("semi.csv?separator=;", [[1]], [0]),
        ("semi.csv?separator=%3B", [[1]], [0]),
        ("tabs.csv?separator=tab", [[1]], [0]),
        ("tabs.csv?separator=\\t", [[1]], [0]),
        ("texts.csv?text=opinion&label=-1", ["good", "bad"], [1, 0]),
        ("texts.csv?text=1&label=stars", ["good", "bad"], [1, 0]),
        ("quoted.tsv?quoted=true", ["fine\tday"], [0]),
        ("amp.csv?label=b%26c", [[5]], [1]),
        ("odd?name=x.csv", [[5]], [0]),
        ("idx?split=train", 1.0, [3]),
        ("idx?split=test", 0.0, [3]),
        ("idx?split=train&labels=idx/other-labels", 1.0, [5]),
        ("idx?split=train&scale=510", 0.5, [3]),
    ],
)
def test_every_option_reaches_its_reader(source, inputs, labels):
    found = data_at(source)
    expected = found.inputs if isinstance(inputs, list) else torch.full_like(found.inputs, inputs)
    seen = found.inputs.tolist() if isinstance(found.inputs, torch.Tensor) else found.inputs
    assert seen == (inputs if isinstance(inputs, list) else expected.tolist())
    assert found.labels.tolist() == labels


@pytest.mark.parametrize(
    ("source", "shape"),
    [
        ("photos", (2, 1, 4, 6)),
        ("photos?size=3", (2, 1, 3, 3)),
        ("photos?size=2x5", (2, 1, 2, 5)),
        ("photos?size=2&channels=3", (2, 3, 2, 2)),
    ],
)
def test_options_of_images(source, shape):
    assert data_at(source).inputs.shape == shape
    assert data_at("photos?classes=dog,cat").labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("a.npz?splitt=test", r"a.npz: .* its reader \(inputs, .*, scale, integers\), got 'splitt'"),
        ("photos?scale=2", r"photos: .* options of its reader \(size, channels, classes\), got 'scale'"),
        ("a.npz?scale=big", r"number to divide by after scale=, got 'big'; .* a.npz\?scale=255"),
        ("a.npz?scale=", r"after scale=, got ''"),
        ("a.npz?split", r"a.npz\?name=value&name=value, got 'split' in a.npz\?split"),
        ("a.npz?", r"got '' in a.npz\?"),
        ("a.npz?split=test&split=train", "got split twice"),
        ("a.npz?scale=nan", "scale above 0, got nan"),
        ("a.npz?scale=-1", "scale above 0, got -1"),
        ("plain.csv?header=maybe", r"true or false after header=, got 'maybe'; .*plain.csv\?header=false"),
        ("photos?size=big", r"after size=, got 'big'"),
        ("photos?size=0", "at least one pixel"),
        ("photos?channels=2", r"\?channels=1 \(grey\) or \?channels=3"),
        ("words.csv?classes=malignant,", "names separated by commas"),
        ("a.npz?inputs=big", r"pass \?scale=255 to .* \(options follow the path: a.npz\?scale=255\)"),
        ("a.npz?split=validation", r"pass \?inputs= with .* \?split=train for .* a.npz\?inputs=x_test\)"),
        ("plain.csv", r"pass \?label= with a name .*\(options follow the path: plain.csv\?label=-1\)"),
        ("words.csv?classes=a,b", r"pass \?classes= with .*words.csv\?classes=cat,dog"),
        ("nowhere?split=test", "nowhere: expected a file or a folder, found none"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_as_it_is_written(source, words):
    with pytest.raises(InputError, match=words) as caught:
        data_at(source)
    assert "read_" not in str(caught.value)


def test_data_without_labels_take_the_options_of_their_inputs():
    np.savez("only.npz", big=np.full((2, 3, 4, 4), 51.0))
    assert data_or_inputs_at("only.npz?inputs=big&scale=255").unique().tolist() == [pytest.approx(0.2)]
    assert data_or_inputs_at("plain.csv?header=false&classes=a,b").shape == (2, 3)
    name, inputs = named_data("odd=a.npz?split=test")
    assert (name, inputs.unique().tolist()) == ("odd", [0.25])
    with pytest.raises(InputError, match="--novelty name=data"):
        named_data("a.npz?split=test")


def test_every_option_of_a_reader_can_be_written_after_a_path():
    taken = {name for reader in ON_PATHS.values() for name in list(inspect.signature(reader).parameters)[1:]}
    assert taken == set(OPTIONS)
    for name, option in OPTIONS.items():
        assert path_and_options(f"x?{name}={option.example}")[1][name] is not None


def test_the_documented_table_is_the_real_one():
    rows = re.findall(r"^\| `(\w+)=(\S*)` \|[^|]*\| ([^|]*) \|", (DOCS / "data.md").read_text(), re.M)
    takers = {
        name: [kind for kind, reader in ON_PATHS.items() if name in inspect.signature(reader).parameters]
        for name in OPTIONS
    }
    assert {name: kinds.split(", ") for name, _, kinds in rows} == takers
    assert {name: example for name, example, _ in rows} == {
        name: option.example for name, option in OPTIONS.items()
    }


def test_the_command_takes_them(tmp_path):
    from typer.testing import CliRunner

    from assay.cli import app

    Path("mine_for_options.py").write_text(
        "import torch\nnetwork = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 2))\n"
    )
    result = CliRunner().invoke(
        app, ["observe", "mine_for_options:network", "--data", "a.npz?split=test&scale=0.5", "--keep-inputs"]
    )
    assert result.exit_code == 0, result.output
    assert assay.load("trace.safetensors").inputs.unique().tolist() == [0.5]
