"""`assay sample` as a person or a pipeline meets it."""

import json
import socket

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

import assay
from assay.cli.sample import sample
from assay.errors import InputError

MODULE = """
import torch, assay

def total(inputs):
    return inputs.double().sum(dim=1)

def broken(inputs):
    return total(inputs) * float("nan")

def network():
    torch.manual_seed(0)
    first, last = torch.nn.Linear(9, 4), torch.nn.Linear(4, 2)
    return torch.nn.Sequential(torch.nn.Flatten(), first, torch.nn.ReLU(), last)

def convolutional():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 3))

def language_model():
    table = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    return assay.CausalLM(lambda tokens: table[tokens], values=4, length=4)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "models_to_sample.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    app = typer.Typer()
    app.command()(sample)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_a_function_is_sampled_and_saved(run, tmp_path):
    result = run(
        "models_to_sample:total",
        "--shape",
        "6",
        "--values",
        "2",
        "--bins=-0.5:6.5:7",
        "--budget",
        "6000",
        "--json",
    )
    assert result.exit_code in (0, 3), result.output
    facts = json.loads(result.output)
    dist = assay.load(tmp_path / "outputs.safetensors")
    assert facts["converged"] == dist.converged == (result.exit_code == 0)
    assert [row["log_density"] for row in facts["bins"]] == pytest.approx(dist.log_density.tolist())
    # Binomial: the middle bin holds 20 of 64 inputs; a tenth is over five of the errors such a run states.
    assert dist.log_density[3] == pytest.approx(np.log(20 / 64), abs=0.15)


def test_a_logit_is_sampled_with_a_report(run, tmp_path):
    result = run(
        "models_to_sample:network",
        *("--kind", "logit", "--class", "1", "--shape", "3x3", "--values", "4", "--scale", "3"),
        *("--bins", "12", "--budget", "4000", "--output", "logit.safetensors", "--report", "logit.html"),
    )
    assert result.exit_code in (0, 3), result.output
    assert "saved to logit.safetensors" in result.output
    assert (tmp_path / "logit.html").stat().st_size > 1000


def test_a_language_model_is_sampled(run):
    result = run(
        "models_to_sample:language_model", "--kind", "language-model", "--bins", "8", "--budget", "2000"
    )
    assert result.exit_code in (0, 3), result.output
    assert "possible inputs" in result.output


def test_what_makes_no_sense_is_an_error_of_assay(run):
    for arguments, message in (
        (("models_to_sample:total", "--shape", "a"), "28x28"),
        (("models_to_sample:total", "--shape", "3", "--bins", "1:2"), "low:high:number"),
        (("models_to_sample:broken", "--shape", "3"), "NaN"),
    ):
        result = run(*arguments)
        assert isinstance(result.exception, InputError)
        assert message in str(result.exception)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("convolutional", ("--shape", "4x4"), "got 4x4; give --shape 1x4x4"),
        ("convolutional", ("--shape", "16"), "on which its forward pass fails"),
        ("convolutional", ("--shape", "1x4x4", "--class", "3"), "--class of 0 to 2, got 3"),
        ("convolutional", ("--shape", "1x4x4", "--class", "-1"), "--class of 0 to 2, got -1"),
        ("convolutional", ("--shape", "1x4x4", "--scale", "0"), "--scale above 0, got 0"),
        ("convolutional", ("--shape", "1x4x4", "--scale", "nan"), "--scale above 0, got nan"),
        ("network", ("--shape", "1x1x9x2"), "on which its forward pass fails"),
    ],
)
def test_a_network_and_a_shape_that_do_not_fit_are_one_sentence(run, tmp_path, model, options, words):
    result = run(f"models_to_sample:{model}", "--kind", "logit", *options)
    assert isinstance(result.exception, InputError)
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)


@pytest.fixture
def offline(monkeypatch):
    """Every attempt to reach another machine is noted and fails."""
    asked = []

    def refuse(*place, **_):
        asked.append(place)
        raise OSError("no network in tests")

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return asked


def test_a_language_model_is_not_fetched_unless_that_is_allowed(run, offline):
    result = run("nobody/such-a-model", "--kind", "language-model")
    assert isinstance(result.exception, InputError)
    assert "--allow-download" in str(result.exception)
    assert offline == []
    with pytest.raises(InputError, match="allow_download=True"):
        assay.CausalLM.from_huggingface("nobody/such-a-model", 4)
    assert offline == []


def test_a_language_model_that_was_downloaded_before_is_found_by_its_name(tmp_path, monkeypatch, offline):
    from huggingface_hub import constants
    from transformers import GPT2Config, GPT2LMHeadModel

    # As the hub's own library lays its downloads out.
    stored = tmp_path / "models--nobody--such-a-model"
    config = GPT2Config(vocab_size=4, n_positions=8, n_embd=4, n_layer=1, n_head=1)
    GPT2LMHeadModel(config).save_pretrained(stored / "snapshots" / ("0" * 40))
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert assay.CausalLM.from_huggingface("nobody/such-a-model", 4).values == 4
    assert offline == []


def test_a_language_model_may_be_asked_for_by_name(run, monkeypatch):
    import transformers

    asked = []

    def from_pretrained(name, **options):
        asked.append((name, options))
        raise OSError("no network in tests")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", from_pretrained)
    result = run("nobody/such-a-model", "--kind", "language-model", "--allow-download")
    assert "check the name and the connection" in str(result.exception)
    assert asked == [("nobody/such-a-model", {"local_files_only": False})]


def test_a_language_model_in_a_folder_needs_no_network(run, tmp_path, offline):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate("abcd")}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, "a"))).save_pretrained(
        tmp_path / "lm"
    )
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=4, n_positions=8, n_embd=4, n_layer=1, n_head=1, initializer_range=1.0)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "lm")
    result = run("lm", "--kind", "language-model", "--length", "3", "--bins", "0:12:6", "--budget", "1500")
    assert result.exit_code in (0, 3), result.output
    assert "evaluations in " in result.stderr
    listed = run("lm", "--prompt", "b", "--below", "1.2", "--length", "3", "--json")
    assert listed.exit_code == 0, listed.output
    found = json.loads(listed.stdout)
    # The same by enumeration of all 64 continuations.
    lm = assay.CausalLM.from_huggingface(str(tmp_path / "lm"), 3, prompt=[1])
    inputs = torch.cartesian_prod(*[torch.arange(4)] * 3)
    outputs = lm.negative_log_likelihood(inputs)
    assert found["complete"]
    assert len(found["continuations"]) == int((outputs <= 3.6).sum()) > 0
    assert sum(one["probability"] for one in found["continuations"]) == pytest.approx(
        float((-outputs[outputs <= 3.6]).exp().sum()), rel=1e-4
    )
    assert isinstance(assay.load(tmp_path / "outputs.safetensors"), assay.Memorised)
    cut_short = run("lm", "--prompt", "b", "--below", "1.2", "--length", "3", "--budget", "1")
    assert cut_short.exit_code == 3
    assert "At least" in cut_short.stdout
    wrong = run("models_to_sample:language_model", "--prompt", "b")
    assert "Hugging Face model with --prompt" in str(wrong.exception)
    assert offline == []


def test_what_is_no_language_model_is_an_error_of_assay(run, tmp_path):
    (tmp_path / "folder").mkdir()
    for model in ("folder", "models_to_sample:network"):
        result = run(model, "--kind", "language-model")
        assert isinstance(result.exception, InputError)
