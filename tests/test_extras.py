"""Without extras the core works, and whoever needs one hears so in the first moment."""

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import assay
import assay.demo.networks
from assay.cli import app
from assay.errors import MissingExtraError
from assay.extras import EXTRAS, expect_installed

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORTED_AS = {
    "scikit-learn": "sklearn", "pillow": "PIL", "faiss-cpu": "faiss", "ray[serve]": "fastapi",
    "mlflow-skinny": "mlflow", "opentelemetry-sdk": "opentelemetry",
}  # fmt: skip


def imported_names(requirements):
    names = [requirement.partition(">")[0] for requirement in requirements]
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}


def test_every_package_of_an_extra_is_known_by_it():
    extras = {name: packages for name, packages in PROJECT["optional-dependencies"].items() if name != "dev"}
    brought = {package: name for name, packages in extras.items() for package in imported_names(packages)}
    del brought["faiss"]  # used where it is, never asked for
    assert brought == EXTRAS


@pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")
def test_the_demo_installs_the_core_alone():
    """What developers need takes three minutes to install; `make demo` is for who has two."""
    planned = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "assay demo" in planned
    assert "--editable ." in planned
    assert not [name for name in PROJECT["optional-dependencies"] if f"[{name}" in planned]


def imports(path):
    """(package, whether a function holds the line) of every import in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    within = {id(line) for function in functions for line in ast.walk(function)}
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        for name in names:
            yield name.partition(".")[0], id(node) in within


def test_the_core_imports_nothing_that_only_an_extra_brings():
    """Some come with others: `google` (protobuf) with onnx, `huggingface_hub` with transformers, `IPython`
    with the notebook that it is imported in, `markupsafe` with jinja2."""
    core = imported_names(PROJECT["dependencies"]) | sys.stdlib_module_names | {"assay", "markupsafe"}
    source = ROOT / "src" / "assay"
    for path in source.rglob("*.py"):
        for package, in_function in imports(path):
            if package in {*EXTRAS, "google", "huggingface_hub", "IPython"}:
                assert in_function or path.is_relative_to(source / "web"), (path, package)
            else:
                assert package in core, (path, package)


@pytest.mark.parametrize("package", sorted(EXTRAS))
def test_a_missing_package_is_said_with_the_line_that_installs_it(package, monkeypatch):
    expect_installed(package)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'assay\[{EXTRAS[package]}\]'"):
        expect_installed(package)


NOTHING = "no_such_module:network"  # whoever looks before asking says that it is not there
DATA = ["--train", "no.npz", "--test", "no.npz"]
NEEDS = [
    ("starlette", ["serve", "no.safetensors", NOTHING]),
    ("uvicorn", ["serve", "no.safetensors", NOTHING]),
    ("prometheus_client", ["serve", "no.safetensors", NOTHING]),
    ("onnx", ["serve", "no.onnx"]),
    ("onnxruntime", ["serve", "no.safetensors", "no.onnx"]),
    ("starlette", ["annotate", "no.safetensors", "--store", "labels.db"]),
    ("starlette", ["annotate", "no.safetensors", "--store", "labels.db", "--add"]),
    ("transformers", ["sample", "no-model", "--kind", "language-model"]),
    ("onnxruntime", ["sample", "no.onnx", "--kind", "logit", "--shape", "x"]),
    ("ray", ["sample", NOTHING, "--shape", "x", "--engine", "ray"]),
    ("ray", ["benchmark", NOTHING, *DATA, "--engine", "ray"]),
    ("pyarrow", ["benchmark", NOTHING, *DATA, "--readouts", "folder"]),
    ("onnx", ["benchmark", "no.onnx", *DATA]),
    ("onnx", ["mira", NOTHING, "no.onnx", *DATA]),
    ("onnx", ["observe", "no.onnx", "--data", "no.npz"]),
    ("onnxruntime", ["check", "no.onnx", "--data", "no.npz"]),
    ("onnx", ["report", "no.safetensors", "--network", "no.onnx"]),
]


@pytest.mark.parametrize(("package", "arguments"), NEEDS)
def test_a_command_asks_before_it_looks_at_anything(package, arguments, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, MissingExtraError), result.output or result.exception
    assert package.replace("_", "-") in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_labels_go_in_and_out_without_the_page(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "starlette", None)
    store = ["annotate", str(tmp_path / "no.safetensors"), "--store", str(tmp_path / "labels.db")]
    result = CliRunner().invoke(app, [*store, "--export", str(tmp_path / "labels.csv")])
    assert isinstance(result.exception, assay.AssayError)
    assert not isinstance(result.exception, MissingExtraError)  # what is missing is the distribution


def test_a_guard_is_not_traced_before_the_packages_are_there(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    bare = assay.Guard(assay.Network(assay.demo.networks.small_cnn()), assay.monitors.MaxLogit())
    with pytest.raises(MissingExtraError, match="onnxruntime"):
        bare.export(tmp_path / "guard.onnx")  # it has no threshold either, which would be said next
