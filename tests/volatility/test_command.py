"""`assay volatility` as a pipeline meets it."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import assay
from assay.cli import app
from assay.errors import InputError
from assay.volatility import probability_files as records
from assay.volatility.probability_files import probability_chunks


def clean(count, seed):
    return np.random.default_rng(seed).dirichlet((9.0, 0.5, 0.3), size=count)


def changed(count, seed):
    rows = clean(count, seed)
    rows[::5] = np.random.default_rng(seed).dirichlet((1.0, 1.0, 1.0), size=len(rows[::5]))
    return rows


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    np.savetxt(tmp_path / "clean.csv", clean(2000, 0), delimiter=",", header="a,b,c", comments="")
    return lambda *arguments, **options: CliRunner().invoke(
        app, ["volatility", *map(str, arguments)], **options
    )


def written(path, rows):
    if path.suffix == ".npz":
        np.savez(path, probabilities=rows)
    elif path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"probabilities": row}) + "\n" for row in rows.tolist()))
    elif path.suffix == ".safetensors":
        assay.save(assay.Trace(torch.from_numpy(np.log(np.maximum(rows, 1e-12)))), path)
    else:
        np.savetxt(path, rows, delimiter="\t" if path.suffix == ".tsv" else ",")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".npz", ".npy", ".jsonl", ".safetensors"])
def test_every_format_gives_the_same_verdict(run, tmp_path, suffix):
    quiet = run(
        written(tmp_path / f"quiet{suffix}", clean(600, 1)), "--reference", "clean.csv", "--window", 200
    )
    loud = run(
        written(tmp_path / f"loud{suffix}", changed(600, 2)), "--reference", "clean.csv", "--window", 200
    )
    assert quiet.exit_code == 0, quiet.output
    assert loud.exit_code == 1, loud.output
    assert "Alarm: less certain than the reference: accuracy may have fallen" in loud.output


def test_standard_input_takes_csv_and_json_lines(run):
    rows = changed(600, 3).tolist()
    csv = "\n".join(",".join(map(str, row)) for row in rows)
    lines = "\n".join(map(json.dumps, rows))
    for text in (csv, lines):
        result = run("-", "--reference", "clean.csv", "--window", 200, "--json", input=text)
        assert result.exit_code == 1
        facts = json.loads(result.output)
        assert facts["rows"] == 600
        assert len(facts["windows"]) == 3


def test_too_few_rows_or_no_reference_is_undecided(run, tmp_path):
    few = written(tmp_path / "few.csv", clean(150, 4))
    result = run(few, "--reference", "clean.csv", "--window", 200)
    assert result.exit_code == 3
    assert "cannot decide" in result.output
    alone = run(few, "--json")
    assert alone.exit_code == 3
    expected = np.log(assay.volatility_in_certainty(clean(150, 4)))
    assert json.loads(alone.output)["log_vc"] == pytest.approx(expected, rel=1e-9)
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    assert run(empty, "--reference", "clean.csv", "--window", 200).exit_code == 3


def test_a_bad_row_is_an_alarm_and_the_rest_is_still_read(run, tmp_path):
    lines = [",".join(map(str, row)) for row in clean(400, 5).tolist()]
    lines[7:7] = ["0.2,0.3", "oops,0.5,0.5", "nan,0.5,0.5", "4.1,-2.0,0.3"]
    (tmp_path / "bad.csv").write_text("\n".join(lines))
    result = run("bad.csv", "--reference", "clean.csv", "--window", 200, "--json")
    facts = json.loads(result.output)
    assert result.exit_code == 1
    assert (facts["rows"], facts["bad_rows"]) == (400, 4)
    assert facts["alarms"] == ["rows that are not probabilities"]


def test_a_watch_goes_on_from_file_to_file(run, tmp_path):
    rows = clean(500, 6)
    for part in (rows[:130], rows[130:]):
        result = run(
            written(tmp_path / "part.csv", part),
            "--reference", "clean.csv", "--window", 200, "--watch", "state", "--json",
        )  # fmt: skip
    whole = run(written(tmp_path / "all.csv", rows), "--reference", "clean.csv", "--window", 200, "--json")
    assert json.loads(result.output) == json.loads(whole.output)


BEGUN = ("--reference", "clean.csv", "--window", 200, "--watch", "state")


@pytest.mark.parametrize(
    "options",
    [
        ("--window", 100),
        ("--false-alarm-rate", 0.05),
        ("--block", 2),
        ("--reference", "other.csv"),
        ("--reference", "shorter.csv"),
        ("--seed", 7),
        ("--reference", "clean.csv", "--seed", 7),
    ],
)
def test_what_a_watch_that_exists_would_not_heed_is_refused(run, tmp_path, options):
    live = written(tmp_path / "live.csv", clean(300, 6))
    written(tmp_path / "other.csv", clean(2000, 99))
    written(tmp_path / "shorter.csv", clean(2000, 0)[:1999])
    assert run(live, *BEGUN).exit_code == 0
    before = (tmp_path / "state").read_bytes()
    result = run(live, "--watch", "state", *options)
    assert isinstance(result.exception, InputError)
    assert options[0] in str(result.exception)
    assert (tmp_path / "state").read_bytes() == before
    for agreeing in ((), BEGUN, (*BEGUN, "--seed", 0, "--block", 1)):
        assert run(live, "--watch", "state", *agreeing).exit_code == 0


def test_predictions_over_other_classes_are_wrong_use(run, tmp_path):
    written(tmp_path / "four.npz", np.full((400, 4), 0.25))
    result = run("four.npz", *BEGUN)
    assert isinstance(result.exception, InputError)
    words = "expected probabilities of 3 classes as in the reference, got 4 in four.npz"
    assert words in str(result.exception)
    assert not (tmp_path / "state").exists()


def test_the_output_agrees_with_itself(run, tmp_path):
    rows = clean(600, 1)
    rows[:, :] = [0.98, 0.01, 0.01]
    live = written(tmp_path / "live.npz", rows)
    facts = json.loads(run(live, "--reference", "clean.csv", "--window", 200, "--json").output)
    assert facts["direction"] == "more certain"
    assert facts["alarms"] == ["more certain than the reference: easier inputs, or confident attacks"]
    assert facts["p_value"] == facts["windows"][-1]["p_value"]
    assert facts["windows"][-1]["certainty"] == pytest.approx(0.97)
    assert {window["direction"] for window in facts["windows"]} == {"more certain"}
    text = run(live, "--reference", "clean.csv", "--window", 200).output
    assert text.count("more certain") == 4  # in each of three windows and in the verdict


def test_bad_rows_of_this_run_are_in_its_verdict_and_those_of_an_earlier_one_are_not(run, tmp_path):
    rows = clean(400, 5)
    rows[3] = np.nan
    first = run(written(tmp_path / "bad.npz", rows), *BEGUN)
    assert first.exit_code == 1
    assert "Alarm: rows that are not probabilities" in first.output
    second = run(written(tmp_path / "good.npz", clean(400, 6)), *BEGUN)
    assert second.exit_code == 0
    assert "No alarm." in second.output
    assert "1 rows were not probabilities" in second.output


def test_a_plot_is_written(run, tmp_path):
    result = run(
        written(tmp_path / "live.csv", clean(600, 7)),
        "--reference", "clean.csv", "--window", 200, "--plot", "plot.png",
    )  # fmt: skip
    assert result.exit_code == 0
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_stopping_at_the_first_alarm_leaves_the_rest_unread(run):
    text = "\n".join(",".join(map(str, row)) for row in changed(9000, 8).tolist())
    result = run("-", "--reference", "clean.csv", "--window", 200, "--stop", "--json", input=text)
    assert result.exit_code == 1
    assert json.loads(result.output)["rows"] < 9000


def test_a_pipe_is_heard_while_it_is_still_open(run, monkeypatch):
    def lines():
        for row in changed(3000, 9).tolist():
            yield json.dumps(row) + "\n"
        raise AssertionError("the whole pipe was read before the alarm")

    monkeypatch.setattr(records.sys, "stdin", lines())
    given = 0
    watch = assay.VolatilityWatch(200).calibrate(clean(2000, 0))
    for chunk in probability_chunks("-"):
        given += len(chunk)
        if watch.update(chunk).alarm:
            break
    assert given < 3000


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.csv", None, "found none"),
        ("words.csv", b"these are\nwords only\n", "expected rows of probabilities"),
        ("broken.npz", b"PK nonsense", "cannot be read"),
        ("other.npz", b"nonsense", "expected an npz or npy file"),
    ],
)
def test_wrong_use_is_one_sentence(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(assay.AssayError, match=words):
        list(probability_chunks(str(tmp_path / name)))


def test_an_npz_of_several_arrays_must_name_the_probabilities(tmp_path):
    np.savez(tmp_path / "two.npz", a=np.eye(2), b=np.eye(2))
    with pytest.raises(assay.AssayError, match="one named"):
        list(probability_chunks(str(tmp_path / "two.npz")))


def labelled(path, rows, seed=0):
    """Saved predictions as people keep them: a column per class, the label, a number of the row."""
    labels = np.random.default_rng(seed).integers(0, 3, len(rows))
    frame = pd.DataFrame(rows, columns=["cat", "dog", "eel"]).assign(
        label=np.array(["cat", "dog", "eel"])[labels]
    )
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".npz":
        np.savez(path, probabilities=rows, labels=labels)
    else:
        frame.to_csv(path, index_label="id")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_labels_beside_probabilities_are_left_out(run, tmp_path, suffix):
    reference = labelled(tmp_path / f"reference{suffix}", clean(2000, 0))
    plain = run(
        written(tmp_path / "live.csv", changed(600, 2)), "--reference", "clean.csv", "--window", 200, "--json"
    )
    live = labelled(tmp_path / f"live{suffix}", changed(600, 2))
    result = run(live, "--reference", reference, "--window", 200, "--json")
    assert result.exit_code == 1, result.output
    found, expected = json.loads(result.output), json.loads(plain.output)
    assert found["bad_rows"] == 0
    assert found["windows"][-1]["log_vc"] == pytest.approx(expected["windows"][-1]["log_vc"], rel=1e-9)


def test_a_labelled_reference_gives_the_accuracy_of_the_last_window(run, tmp_path):
    rows = clean(2000, 0)
    right = pd.DataFrame(rows, columns=["cat", "dog", "eel"]).assign(label=rows.argmax(axis=1))
    right.loc[::10, "label"] = (right["label"][::10] + 1) % 3
    right.to_csv(tmp_path / "labelled.csv", index=False)
    live = written(tmp_path / "live.csv", np.concatenate([clean(500, 8), np.full((3, 3), np.nan)]))
    options = ("--window", 200, "--report", tmp_path / "report.html")
    found = run(live, "--reference", "labelled.csv", *options)
    assert "The last window: " in found.output
    assert "on the reference it was 90.0%" in found.output
    assert "Accuracy over time" in (tmp_path / "report.html").read_text()
    facts = json.loads(run(live, "--reference", "labelled.csv", "--window", 200, "--json").output)
    expected = assay.AccuracyEstimator(window=200).fit(
        assay.data.read_probabilities(tmp_path / "labelled.csv")
    )
    alone = expected.estimate(expected.count(clean(500, 8)[200:400])).headline
    assert facts["accuracy"]["verdict"] == alone.verdict
    assert facts["accuracy"]["value"] == (None if np.isnan(alone.value) else pytest.approx(alone.value))
    bare = json.loads(run(live, "--reference", "clean.csv", "--window", 200, "--json").output)
    assert bare["accuracy"] is None
    right.assign(label="horse").to_csv(tmp_path / "strange.csv", index=False)
    strange = run(live, "--reference", "strange.csv", "--window", 200)
    assert "accuracy is not estimated" in strange.output


def test_columns_without_names_are_told_apart_by_options(run, tmp_path):
    rows = clean(400, 5)
    np.savetxt(tmp_path / "bare.csv", np.c_[rows, np.arange(400) % 3], delimiter=",")
    alone = run("bare.csv")
    assert isinstance(alone.exception, InputError)
    assert "pass ?label=-1 (options follow the path: bare.csv?label=-1)" in str(alone.exception)
    told = run("bare.csv?label=-1", "--reference", "clean.csv", "--window", 200, "--json")
    assert json.loads(told.output)["rows"] == 400
    wide = pd.DataFrame(rows, columns=["a", "b", "c"]).assign(speed=3.5)
    wide.to_csv(tmp_path / "wide.csv", index=False)
    chosen = run("wide.csv?columns=a,b,c", "--reference", "clean.csv", "--window", 200, "--json")
    assert json.loads(chosen.output)["bad_rows"] == 0
    wrong = run("wide.csv?lable=c")
    assert "expected options of saved predictions (columns, header, label, separator)" in str(wrong.exception)


def test_a_header_of_numbers_and_a_column_of_one_probability_are_read(run, tmp_path):
    rows = clean(400, 5)
    pd.DataFrame(rows).to_csv(tmp_path / "numbered.csv", index=False)
    result = run("numbered.csv", "--reference", "clean.csv", "--window", 200, "--json")
    assert (json.loads(result.output)["rows"], json.loads(result.output)["bad_rows"]) == (400, 0)
    pd.DataFrame({"p": rows[:, 0]}).to_csv(tmp_path / "single.csv", index=False)
    np.savez(tmp_path / "single.npz", probabilities=rows[:, 0])
    both = np.log(assay.volatility_in_certainty(np.stack([1 - rows[:, 0], rows[:, 0]], axis=1)))
    for place in ("single.csv", "single.npz"):
        facts = json.loads(run(place, "--json").output)
        assert facts["log_vc"] == pytest.approx(both, rel=1e-9)


def test_a_broken_line_of_a_table_with_names_is_a_bad_row(run, tmp_path):
    path = labelled(tmp_path / "live.csv", clean(400, 5))
    lines = path.read_text().splitlines()
    lines[3:3] = ["7,0.2,0.3", "8,x,0.5,0.5,cat", '9,0.2,0.3,0.5,"cat, black"']
    path.write_text("\n".join(lines))
    facts = json.loads(run(path, "--reference", "clean.csv", "--window", 200, "--json").output)
    assert (facts["rows"], facts["bad_rows"]) == (401, 2)
