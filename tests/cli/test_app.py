"""The command as a person or a pipeline meets it."""

import errno
import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from exact_precision import enumerated, weighted_sum
from typer.models import ArgumentInfo
from typer.testing import CliRunner

import assay
import assay.cli
from assay.cli import app, main
from assay.cli.app import COMMANDS
from assay.cli.json_output import print_json
from assay.errors import UndecidedError

SERVERS = {"annotate", "serve"}
"""Commands that talk to people and machines while they run, not when they end."""


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_version(run):
    assert run("--version").output.strip() == f"assay {assay.__version__}"


def test_help_answers_without_torch():
    code = "import sys, assay.cli.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_observe_counts_the_rows_that_it_leaves_out(run, tmp_path):
    train = assay.data.digits()[0]
    labels = train.labels.clone()
    labels[:7] = -100
    np.savez(tmp_path / "digits.npz", x=train.inputs, y=labels)
    result = run("observe", "assay.demo.networks:small_cnn", "--data", "digits.npz", "--json")
    assert "note: digits.npz: 7 rows were left out, since their label is -100" in result.output
    assert json.loads(result.output.splitlines()[-1])["inputs"] == len(labels) - 7


def test_observe_saves_a_trace_and_says_what_it_saw(run, tmp_path):
    result = run(
        "observe",
        "assay.demo.networks:small_cnn",
        "--data",
        "digits",
        "--layer",
        "4",
        "--layer",
        "penultimate",
    )
    assert result.exit_code == 0, result.output
    assert "450 inputs, 10 classes; layers: 4 (32 values), penultimate (64 values)" in result.output
    assert len(assay.load(tmp_path / "trace.safetensors", kind="Trace")) == 450
    facts = json.loads(
        run("observe", "assay.demo.networks:small_cnn", "--data", "digits", "--json", "--output", "t").output
    )
    assert facts["layers"] == {"penultimate": 64}
    assert facts["inputs"] == 450
    sharded = run("observe", "assay.demo.networks:small_cnn", "--data", "digits", "--shards", "f", "--json")
    assert json.loads(sharded.output).keys() == facts.keys()
    assert len(assay.load(tmp_path / "f")) == 450


TUMOURS = """
import torch

def network():
    \"\"\"Class 0, malignant, where the first value is above 0.\"\"\"
    module = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(2, 2, bias=False))
    module[1].weight = torch.nn.Parameter(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    return module
"""


@pytest.fixture
def tumours(tmp_path):
    (tmp_path / "tumours.py").write_text(TUMOURS)
    rows = np.random.default_rng(0).normal(size=(600, 2))
    for name, part in (("a", rows[:300]), ("b", rows[300:])):
        lines = [f"{x},{y},{'malignant' if x > 0 else 'benign'}" for x, y in part]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y,diagnosis", *lines]))


def test_names_of_classes_are_numbered_aloud_and_another_order_that_fits_is_named(run, tumours):
    observed = ("observe", "tumours:network", "--data")
    guessed = run(*observed, "a.csv?label=diagnosis", "--json")
    assert json.loads(guessed.stdout)["accuracy"] == 0
    assert "benign = 0, malignant = 1" in guessed.stderr
    assert "in another order of the classes 100.0% instead of 0.0%" in guessed.stderr
    told = run(*observed, "a.csv?label=diagnosis&classes=malignant,benign", "--json")
    assert json.loads(told.stdout)["accuracy"] == 1
    assert told.stderr == ""
    wrong = run(*observed, "a.csv?label=diagnosis&classes=malignant,other")
    assert "got 'benign'" in str(wrong.exception)
    benchmark = run(
        *(
            "benchmark",
            "tumours:network",
            "--train",
            "a.csv?label=diagnosis",
            "--test",
            "b.csv?label=diagnosis",
        ),
        *("--monitor", "MaxSoftmax", "--fault", "stuck_sensor", "--novelty", "more=b.csv?label=diagnosis"),
    )
    assert benchmark.stderr.count("benign = 0, malignant = 1") == 2  # for --train and --test
    assert benchmark.stderr.count("in another order of the classes") == 1


def parameters(command):
    """(name, type, argument or option, whether it must be given) of every parameter of a command."""
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        kind, said = get_args(parameter.annotation)[:2]
        yield name, kind, said, parameter.default is inspect.Parameter.empty


def numbers():
    """(command, option) for every option that takes a number with a point."""
    for command in (registered.callback for registered in app.registered_commands):
        for name, kind, _, _ in parameters(command):
            if float in (kind, *get_args(kind)):
                yield pytest.param(command, f"--{name.replace('_', '-')}", id=f"{command.__name__} {name}")


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(("command", "option"), list(numbers()))
def test_an_option_that_is_no_number_is_refused_by_its_name(run, command, option, value):
    given = []
    for name, _, said, needed in parameters(command):
        if needed:
            given += ["some"] if isinstance(said, ArgumentInfo) else [f"--{name.replace('_', '-')}", "some"]
    result = run(command.__name__, *given, option, value)
    assert result.exit_code == 2, result.output
    assert option in result.output
    assert f"got {value}" in " ".join(result.output.replace("│", " ").split())


def test_a_network_is_found_in_the_current_folder(run, tmp_path):
    (tmp_path / "mine.py").write_text("from assay.demo.networks import wide_mlp\nnetwork = wide_mlp()\n")
    assert run("observe", "mine:network", "--data", "digits").exit_code == 0


def test_a_network_watches_its_own_layers_unless_others_are_asked_for(run, tmp_path):
    """A factory may return a Network, whose layers must not stand in for those of --layer."""
    words = "import assay\nfrom assay.demo.networks import small_cnn\n"
    (tmp_path / "watching.py").write_text(words + 'network = assay.Network(small_cnn(), layers="4")\n')
    observed = ("observe", "watching:network", "--data", "digits", "--json")
    assert list(json.loads(run(*observed).stdout)["layers"]) == ["4"]
    assert list(json.loads(run(*observed, "--layer", "0").stdout)["layers"]) == ["0"]
    checked = run("check", "watching:network", "--data", "digits", "--layer", "nowhere")
    assert "expected layers of Sequential, got ['nowhere']" in str(checked.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["observe", "nonsense", "--data", "digits"], "package.module:name"),
        (["observe", "no.such.module:x", "--data", "digits"], "found none"),
        (["observe", "assay.demo.networks:nothing", "--data", "digits"], "check the name"),
        (["observe", "math:pi", "--data", "digits"], "got float"),
        (["observe", "math:gcd_of", "--data", "digits"], "expected 'gcd_of' in module 'math'"),
        (["observe", ":x", "--data", "digits"], "package.module:name"),
        (["observe", ".:x", "--data", "digits"], "package.module:name"),
        (["observe", "os.path:join", "--data", "digits"], "callable without arguments"),
        (["observe", "faulty:network", "--data", "digits"], "mistake in line 1"),
        (["observe", "assay.demo.networks:small_cnn", "--data", "flat.npz"], "its forward pass fails"),
        (["observe", "assay.demo.networks:small_cnn", "--data", "noise.npz"], "expected an npz or npy file"),
        (["observe", "assay.demo.networks:small_cnn", "--data", "empty.npz"], "got an empty file"),
        (["observe", "assay.demo.networks:small_cnn", "--data", "folder"], "expected images"),
        (["volatility", "noise.npz", "--reference", "noise.npz"], "expected an npz or npy file"),
        (["volatility", "cut.npz", "--reference", "cut.npz"], "cannot be read"),
        (["volatility", "empty.npz", "--reference", "empty.npz"], "got an empty file"),
        (["report", "folder"], "expected a file at folder, found a folder"),
        (["report", "empty.npz"], "damaged"),
        (["merge", "noise.npz"], "damaged"),
        (["reshape", "flat.npz", "flat.npz"], "damaged"),
        (["precision", "noise.npz", "labels.csv"], "damaged"),
        (["sample", "math:pi", "--shape", "3"], "function of a batch of inputs, got float"),
        (["sample", "math:gcd", "--shape", "3", "--bins", "nan:1:4"], "low below high"),
        (["sample", "math:gcd", "--shape", "3", "--bins", "2:1:4"], "low below high"),
        (["sample", "math:gcd", "--shape", "3", "--bins", "0"], "low:high:number"),
        (["sample", "math:gcd", "--shape", "3", "--seconds", "nan"], "a finite number for --seconds"),
        (["sample", "math:gcd", "--shape", "3", "--values", "9" * 20], "from 1 to 2^63 - 1 values"),
        (["sample", "os.path:join", "--kind", "language-model"], "callable without arguments"),
        (["annotate", "dist", "--store", "flat.npz"], "got another kind of file"),
        (["serve", "folder"], "pass module:factory"),
        (["mira", "assay.demo.networks:small_cnn", "--train", "flat.npz", "--test", "digits"], "forward"),
        (["check", "assay.demo.networks:small_cnn", "--data", "flat.npz"], "its forward pass fails"),
        (
            ["benchmark", "assay.demo.networks:small_cnn", "--train", "digits", "--test", "flat.npz"],
            "its forward pass fails",
        ),
        (["observe", "assay.demo.networks:small_cnn", "--data", "nowhere.npz"], "nowhere.npz"),
        (["observe", "assay.demo.networks:small_cnn", "--data", "digits", "--layer", "x"], "choose from"),
    ],
)
def test_errors_are_one_line_and_status_2(arguments, message, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    np.savez("flat.npz", x=np.zeros((300, 64), np.float32), y=np.arange(300) % 10)
    Path("cut.npz").write_bytes(Path("flat.npz").read_bytes()[:500])
    Path("noise.npz").write_bytes(bytes(range(128, 256)) * 8)
    Path("empty.npz").touch()
    Path("folder").mkdir()
    Path("faulty.py").write_text("def network(:\n")
    monkeypatch.setattr(sys, "argv", ["assay", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("assay: ")
    assert error.count("\n") == 1
    assert message in error


NET = "assay.demo.networks:small_cnn"


@pytest.mark.parametrize(
    "arguments",
    [
        ["observe", NET, "--data", "secret.npz"],
        ["observe", NET, "--data", "secret.csv"],
        ["observe", NET, "--data", "secret"],
        ["observe", "secret.onnx", "--data", "digits"],
        ["volatility", "secret.npz", "--reference", "secret.npz"],
        ["volatility", "secret.csv", "--reference", "secret.csv"],
        ["report", "secret.csv"],
        ["merge", "secret.npz"],
        ["precision", "outputs", "secret.csv"],
    ],
)
def test_a_file_that_may_not_be_read_is_named_in_a_sentence(arguments, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("secret.npz", "secret.csv", "secret.onnx"):
        Path(name).write_text("a,b\n1,2\n")
    Path("secret").mkdir()
    assay.save(enumerated(weighted_sum, 3, 3, np.arange(-0.5, 20.0, 4.0)), "outputs")
    allowed = os.access
    # Whoever runs the tests may be allowed everything.
    monkeypatch.setattr(os, "access", lambda path, mode: "secret" not in str(path) and allowed(path, mode))
    monkeypatch.setattr(sys, "argv", ["assay", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "secret" in error
    assert "this user may not" in error or "is not readable" in error
    assert error.count("\n") == 1


def test_a_module_that_may_not_be_read_is_named_in_a_sentence(monkeypatch, run):
    def refused(name):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"{name}.py")

    monkeypatch.setattr(importlib, "import_module", refused)
    said = str(run("observe", "secret_models:network", "--data", "digits").exception)
    assert "a module named 'secret_models' that can be read" in said
    assert "secret_models.py" in said


def test_an_error_in_the_users_own_code_is_one_line_and_no_alarm(monkeypatch, capsys, tmp_path):
    (tmp_path / "broken_models.py").write_text("def network():\n    raise RuntimeError('no\\nweights')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["assay", "observe", "broken_models:network", "--data", "digits"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2  # 1 would say that a gate failed
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "RuntimeError in network" in error
    assert "broken_models.py, line 2): no weights" in error


def test_ctrl_c_is_no_error(monkeypatch, capsys):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["assay.cli.app"], "app", interrupted)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err == ""


def test_debug_shows_the_traceback_and_keeps_the_status(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["assay", "--debug", "observe", "nonsense", "--data", "digits"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("Traceback (most recent call last)")


PRINTING = """
import sys, assay.cli
sys.modules["assay.cli.app"].app = lambda **_: print("x" * {size}) or {status}
assay.cli.main()
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "assay", "--version"],
        ["-m", "assay", "observe", "--help"],
        ["-m", "assay", "nosuch"],
        ["-c", PRINTING.format(size=10, status=1)],
        ["-c", PRINTING.format(size=1_000_000, status=0)],
    ],
)
def test_a_reader_who_leaves_is_neither_an_alarm_nor_an_error(arguments, unbuffered):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as nobody:
        ended = subprocess.run(
            [sys.executable, *arguments],
            stdout=nobody,
            stderr=nobody if "nosuch" in arguments else subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    assert ended.returncode == 141
    assert not ended.stderr


def test_a_verdict_is_written_before_it_is_printed(run, monkeypatch, tmp_path):
    def nobody_reads(*_):
        raise BrokenPipeError

    np.savetxt(tmp_path / "rows.csv", np.full((40, 2), 0.5), delimiter=",")
    monkeypatch.setattr(sys.modules["assay.cli.volatility"], "_print_result", nobody_reads)
    places = ("--plot", "p.svg", "--report", "r.html", "--watch", "w")
    run("volatility", "rows.csv", "--reference", "rows.csv", "--window", "10", *places)
    assert all((tmp_path / name).stat().st_size for name in ("p.svg", "r.html", "w"))


def test_a_pipe_to_somebody_else_that_broke_is_an_error(monkeypatch, capsys):
    def broken(standalone_mode):
        try:
            raise BrokenPipeError("the worker is gone")
        except OSError:
            sys.exit(1)  # as Typer does

    monkeypatch.setattr(sys.modules[main.__module__], "app", broken)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "the worker is gone" in capsys.readouterr().err


def test_help_shows_a_flag_without_a_type(run):
    """On every page: of assay itself, which also answers to nothing at all, and of each command."""
    pages = {"": run("--help"), "nothing": run()}
    pages |= {name: run(name, "--help") for name in (command.__name__ for command in COMMANDS)}
    for name, page in pages.items():
        assert ("--debug" if name in ("", "nothing") else "--help") in page.output, name
        assert "bool" not in page.output, name
    assert "--json" in pages["check"].output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete_commands_and_options(shell):
    def completed(words, count):
        told = {"COMP_WORDS": words, "COMP_CWORD": str(count), "_TYPER_COMPLETE_ARGS": words}
        wanted = {"_ASSAY_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        program = "import sys; sys.argv[0] = 'assay'; import assay.cli; assay.cli.main()"
        return subprocess.run(
            [sys.executable, "-c", program], env=os.environ | told | wanted, capture_output=True, text=True
        ).stdout

    assert "observe" in completed("assay obs", 1)
    assert "--reference" in completed("assay volatility --ref", 2)


def test_completion_is_offered(run):
    shown = run("--help").output
    assert "--install-completion" in shown
    assert "--show-completion" in shown


@pytest.mark.parametrize("name", [command.callback.__name__ for command in app.registered_commands])
def test_every_command_speaks_to_machines(name):
    wanted = inspect.signature(
        next(c.callback for c in app.registered_commands if c.callback.__name__ == name)
    )
    assert "as_json" in wanted.parameters or name in SERVERS


def test_what_json_cannot_say_is_null(capsys):
    """As where a network without any right answer has no relative change of its MCC."""
    print_json({"change": float("nan"), "rows": [{"evidence": float("inf")}, (1, 0.5, "NaN", None, True)]})
    printed = capsys.readouterr().out
    assert json.loads(printed, parse_constant=pytest.fail) == {
        "change": None,
        "rows": [{"evidence": None}, [1, 0.5, "NaN", None, True]],
    }


@pytest.mark.parametrize(
    "path", sorted(Path(assay.cli.__file__).parent.glob("*.py")), ids=lambda path: path.stem
)
def test_every_command_prints_its_json_in_the_same_way(path):
    assert "json.dumps" not in path.read_text() or path.stem == "json_output"


def test_what_cannot_be_decided_has_a_status_of_its_own(monkeypatch, capsys):
    def undecided(standalone_mode):
        raise UndecidedError("expected more, got little; gather more")

    monkeypatch.setattr(sys.modules[main.__module__], "app", undecided)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 3
    assert capsys.readouterr().err == "assay: expected more, got little; gather more\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "--nonsense"], "No such option: --nonsense"),
        (["nosuch"], "No such command 'nosuch'"),
        (["demo", "--seed", "abc"], "Invalid value for '--seed'"),
        (["check", "mine:network"], "Missing option '--data'"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_the_help(monkeypatch, capsys, arguments, said):
    monkeypatch.setattr(sys, "argv", ["assay", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"assay: {said}")
    assert line.endswith("--help")
