"""assay.toml: a project's options stand for defaults, and the command line wins."""

import json

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.cli.app import COMMANDS, QUESTIONS


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


PROJECT = """
[observe]
network = "assay.demo.networks:small_cnn"
data = "digits"
layer = ["4", "penultimate"]
json = true
keep-inputs = false
output = "mine.safetensors"
"""


def test_options_come_from_the_project_and_the_command_line_wins(run, tmp_path):
    (tmp_path / "assay.toml").write_text(PROJECT)
    result = run("observe")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert list(facts["layers"]) == ["4", "penultimate"]
    assert facts["output"] == "mine.safetensors"
    assert "note: options from [observe] in assay.toml" in result.stderr
    other = json.loads(run("observe", "--layer", "0", "--output", "o.safetensors").stdout)
    assert (list(other["layers"]), other["output"]) == (["0"], "o.safetensors")


def test_a_project_may_be_named_and_a_single_value_stands_for_a_list(run, tmp_path):
    (tmp_path / "other.toml").write_text(PROJECT.replace('["4", "penultimate"]', '"4"'))
    assert list(json.loads(run("--project", "other.toml", "observe").stdout)["layers"]) == ["4"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[observ]\ndata = 'x'", "tables of assay.toml, got 'observ'; did you mean 'observe'"),
        ("[zzz]\n", "got 'zzz'; choose from accuracy, annotate"),
        ("data = 'x'", "got 'data' outside one"),
        ("[observe]\ndat = 'x'", "below [observe] in assay.toml, got 'dat'; did you mean 'data'"),
        ("[check]\nfalse_alarm_rate = 0.1", "did you mean 'false-alarm-rate'"),
        ("[observe]\ndata = ['a', 'b']", "expected one value for data"),
        ("[observe]\ndata = {a = 1}", "expected one value for data"),
        ("[observe", "expected options as TOML in assay.toml"),
        ("\udcff", "expected options as TOML in assay.toml"),
    ],
)
def test_what_is_no_option_is_one_sentence(run, tmp_path, text, words):
    (tmp_path / "assay.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    error = str(run("observe", "a:b", "--data", "digits").exception)
    assert words in error
    assert "\n" not in error.strip()


def test_a_value_of_the_wrong_kind_is_refused_like_one_on_the_command_line(run, tmp_path):
    (tmp_path / "assay.toml").write_text("[check]\nseed = 'x'")
    result = run("check", "a:b", "--data", "digits")
    assert result.exit_code == 2
    assert "--seed" in result.output


def test_a_file_that_was_named_must_be_there(run):
    assert "nowhere.toml" in str(run("--project", "nowhere.toml", "observe").exception)


def test_every_command_stands_below_a_question(run):
    shown = run("--help").output
    places = [shown.index(question) for question in QUESTIONS]
    assert places == sorted(places)
    assert len(COMMANDS) == len(set(COMMANDS)) == len(app.registered_commands)


def test_shells_complete_commands_and_options(monkeypatch):
    def completed(words):
        monkeypatch.setenv("_ASSAY_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        return CliRunner().invoke(app, [], prog_name="assay").output.split()

    assert completed("assay sc") == ["score"]
    assert completed("assay score --most") == ["--most-alarms"]
