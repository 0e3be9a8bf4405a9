"""Labels through csv, Label Studio and the store come back as they were."""

import csv
import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from exact_precision import enumerated, weighted_sum, without
from hypothesis import example, given, settings
from hypothesis import strategies as st

import assay
from assay.errors import InputError
from assay.omniinput.annotation.formats import label_studio_config, label_studio_tasks, labels_of, reviews_of
from assay.omniinput.annotation.order import Turn
from assay.omniinput.annotation.store import AnnotationStore, Label, Review
from assay.omniinput.sampling.distribution import Samples

EDGES = np.arange(-0.5, 48.0, 6.0)


@pytest.fixture(scope="module")
def dist():
    return enumerated(weighted_sum, 5, 4, EDGES)


@pytest.fixture(scope="module")
def items(dist):
    return assay.choose_items(dist, 4)


@pytest.fixture(scope="module")
def labels(items):
    frame = items.to_frame().drop(columns="text")
    rows = [
        frame.assign(annotator=name, score=np.arange(len(frame)) % 5 / 4, repeat=0, seconds=2.5)
        for name in ("ann@example.org", "Zoë")
    ]
    both = pd.concat(rows, ignore_index=True).assign(row=lambda found: found["item"])
    both.loc[3, "score"] = np.nan  # skipped
    return both


def comparable(frame):
    wanted = ["item", "annotator", "bin", "weight", "score"]
    return frame.sort_values(["item", "annotator"], ignore_index=True)[wanted].astype({"weight": int})


def test_through_csv(labels, tmp_path):
    assay.write_annotations(labels, tmp_path / "labels.csv")
    assert comparable(assay.read_annotations(tmp_path / "labels.csv")).equals(comparable(labels))


@settings(max_examples=30)
@given(st.lists(st.text(max_size=6) | st.text("=+-@\t\r\n'＝＠1 ", max_size=4), min_size=1, max_size=5))
@example(["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "'=x", "''", "'", "007", "NA", "", 'a,"b"'])
def test_no_name_is_a_formula_and_all_come_back_as_they_were(tmp_path_factory, names):
    names = [name for name in names if not re.search("[\0\ud800-\udfff]", name)]
    labels = pd.DataFrame({"bin": 0, "item": range(len(names)), "score": 0.5, "annotator": names})
    path = tmp_path_factory.mktemp("names") / "labels.csv"
    assay.write_annotations(labels, path)
    with path.open(newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(tuple("=+-@\t\r\n＝＋－＠"))]
    assert assay.read_annotations(path)["annotator"].tolist() == names


def test_what_is_not_finite_never_becomes_json(labels, items, tmp_path):
    with pytest.raises(InputError, match="finite seconds"):
        assay.write_annotations(labels.assign(seconds=np.inf), tmp_path / "tasks.json", items)
    assert not (tmp_path / "tasks.json").exists()


def test_through_label_studio(labels, items, tmp_path):
    assay.write_annotations(labels, tmp_path / "tasks.json", items)
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert all(set(task["data"]) == {"item", "run", "text"} for task in tasks)  # blind: no bin, no output
    back = assay.read_annotations(tmp_path / "tasks.json", items)
    assert comparable(back).equals(comparable(labels))
    assert back["seconds"].tolist() == [2.5] * len(back)


def test_through_the_store(labels, items, tmp_path, dist):
    path = tmp_path / "labels.db"
    AnnotationStore.create(path, items)
    with AnnotationStore(path) as store:
        store.add_labels(labels_of(labels))
    back = assay.read_annotations(path)
    assert comparable(back).equals(comparable(labels))
    item = int(labels["item"][0])
    with AnnotationStore(path, writing=True) as store:
        store.label(Label(Turn(item), "Eve", 0.0, comment="=1+1"))
        store.add_reviews([Review(item, 1.0, "007")])
        assay.write_annotations(store.labels(), tmp_path / "labels.csv")
        told = assay.read_annotations(tmp_path / "labels.csv")
        assert labels_of(told)[-1].comment == "=1+1"
        assert reviews_of(told) == [Review(item, 1.0, "007")]
        assay.write_annotations(store.labels(), tmp_path / "tasks.json", items)
        assert not assay.read_annotations(tmp_path / "tasks.json", items)["annotator"].eq("review").any()
    curve = assay.precision_recall(dist, back)
    assert curve.to_frame()["precision"].equals(assay.precision_recall(dist, labels).to_frame()["precision"])
    assert len(curve.examples.bins)  # the report can show what was judged


@pytest.fixture(scope="module")
def other():
    """A distribution with the same bins, over other inputs."""
    return enumerated(weighted_sum, 4, 4, EDGES)


@pytest.mark.parametrize("name", ["labels.csv", "tasks.json"])
def test_labels_of_another_run_are_refused_whatever_way_they_came(labels, items, dist, other, name, tmp_path):
    AnnotationStore.create(tmp_path / "labels.db", items)
    with AnnotationStore(tmp_path / "labels.db") as store:
        store.add_labels(labels_of(labels))
        assay.write_annotations(store.labels(), tmp_path / name, items)
    back = assay.read_annotations(tmp_path / name, items)
    assert assay.precision_recall(dist, back).aupr == assay.precision_recall(dist, labels).aupr
    with pytest.raises(InputError, match="labels of another run"):
        assay.precision_recall(other, back)
    with pytest.raises(InputError, match="labels of another run"):
        assay.choose_items(other, total=5, annotations=back)
    with pytest.raises(InputError, match="another run in"):
        assay.read_annotations(tmp_path / name, assay.choose_items(other, 4))


def test_labels_that_do_not_name_their_run_are_known_by_the_bins_of_their_inputs(labels, dist, other):
    assert "run" not in labels
    assay.precision_recall(dist, labels)
    with pytest.raises(InputError, match="labels of another run"):
        assay.precision_recall(other, labels)
    assay.precision_recall(other, labels.drop(columns=["row", "item"]))  # bins and scores alone say nothing


def test_an_export_made_by_label_studio_itself(items, tmp_path):
    """As its JSON export looks: users by number, choices, a number or stars, cancelled and empty ones."""
    first, second = (int(row) for row in items.rows[:2])
    export = [
        {
            "id": 7,
            "data": {"item": first, "text": "…"},
            "annotations": [
                {
                    "id": 1,
                    "completed_by": 3,
                    "was_cancelled": False,
                    "lead_time": 4.5,
                    "result": [
                        {
                            "id": "x",
                            "from_name": "score",
                            "to_name": "shown",
                            "type": "choices",
                            "value": {"choices": ["0.75"]},
                        }
                    ],
                },
                {"completed_by": {"id": 4, "email": "bob@example.org"}, "was_cancelled": True, "result": []},
            ],
            "predictions": [],
        },
        {
            "data": {"item": second},
            "annotations": [
                {"completed_by": 3, "result": [{"type": "number", "value": {"number": 0.3}}]},
                {"completed_by": 5, "result": [{"type": "rating", "value": {"rating": 2}}]},
            ],
        },
        {"data": {"item": second}, "annotations": []},
    ]
    (tmp_path / "export.json").write_text(json.dumps(export))
    found = assay.read_annotations(tmp_path / "export.json", items)
    assert found["annotator"].tolist() == ["3", "bob@example.org", "3", "5"]
    assert found["score"].tolist() == pytest.approx([0.75, np.nan, 0.3, 0.25], nan_ok=True)
    assert found["bin"].tolist() == [items.bins[0], items.bins[0], items.bins[1], items.bins[1]]


def test_tasks_for_images_carry_the_picture(dist):
    images = torch.randint(4, (6, 5, 5), generator=torch.Generator().manual_seed(0))
    zeros = np.zeros(6)
    kept = Samples(images, zeros, zeros.astype(np.int64), zeros)
    items = assay.choose_items(without(dist, kept=kept, space=assay.InputSpace((5, 5), 4)), 3)
    assert all(task["data"]["image"].startswith("data:image/png") for task in label_studio_tasks(items))
    assert '<Image name="shown" value="$image"/>' in label_studio_config(items)


def test_the_interface_has_the_five_scores(items):
    config = label_studio_config(items)
    assert config.count("<Choice value") == 5
    assert '<Text name="shown" value="$text"/>' in config


def test_files_that_are_no_annotations_are_said_to_be_so(items, labels, tmp_path):
    for name, content, message in (
        ("a.json", "{", "Label Studio JSON export"),
        ("b.json", '[{"data": {}, "annotations": [{"result": []}]}]', "Label Studio JSON export"),
        ("c.json", '{"annotations": 3}', "Label Studio JSON export"),
        ("d.csv", "", "expected a csv"),
        ("e.csv", "item,score\n1,0.5\n", "pass the items"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError, match=message):
            assay.read_annotations(tmp_path / name)
    (tmp_path / "f.csv").write_text("item,score\n999999,0.5\n")
    with pytest.raises(InputError, match="one of 999999"):
        assay.read_annotations(tmp_path / "f.csv", items)
    with pytest.raises(InputError, match="found none"):
        assay.read_annotations(tmp_path / "none.csv")
    with pytest.raises(InputError, match="expected items"):
        assay.write_annotations(labels, tmp_path / "x.json")
    with pytest.raises(InputError, match="from 0"):
        labels_of(labels.assign(score=3.0))
