"""The command as a person or a pipeline meets it."""

import inspect
import json
import subprocess
import sys
from typing import get_args

import pytest
from typer.models import ArgumentInfo
from typer.testing import CliRunner

import assay
from assay.cli import app, main
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


def test_a_network_is_found_in_the_current_folder(run, tmp_path):
    (tmp_path / "mine.py").write_text("from assay.demo.networks import wide_mlp\nnetwork = wide_mlp()\n")
    assert run("observe", "mine:network", "--data", "digits").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["observe", "nonsense", "--data", "digits"], "package.module:name"),
        (["observe", "no.such.module:x", "--data", "digits"], "found none"),
        (["observe", "assay.demo.networks:nothing", "--data", "digits"], "check the name"),
        (["observe", "math:pi", "--data", "digits"], "got float"),
        (["observe", "assay.demo.networks:small_cnn", "--data", "nowhere.npz"], "nowhere.npz"),
        (["observe", "assay.demo.networks:small_cnn", "--data", "digits", "--layer", "x"], "choose from"),
    ],
)
def test_errors_are_one_line_and_status_2(arguments, message, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["assay", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("assay: ")
    assert error.count("\n") == 1
    assert message in error


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


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--output", "none/report.html"],
        ["observe", "no:network", "--data", "digits", "--output", "none/trace"],
        ["check", "no:network", "--data", "digits", "--junit", "none/check.xml"],
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_any_work(monkeypatch, capsys, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["assay", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"assay: cannot write {arguments[-1]}: no such folder; choose")
    assert said.out == ""


@pytest.mark.parametrize("name", [command.callback.__name__ for command in app.registered_commands])
def test_every_command_speaks_to_machines(name):
    wanted = inspect.signature(
        next(c.callback for c in app.registered_commands if c.callback.__name__ == name)
    )
    assert "as_json" in wanted.parameters or name in SERVERS


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
