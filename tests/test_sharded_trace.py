"""A folder of shards reads like the Trace it was written from, and a run that was stopped goes on."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay import Network, ShardedTrace, Trace
from assay.errors import InputError, StorageError
from assay.monitors import KNN, AnyOf, Energy, Mahalanobis, Reconstruction, ViM
from assay.monitors.parts.shard_fit import _groups, collect_on
from rows_of_shards import labelled_rows, same_rows, small_network

ROWS = 400


@pytest.fixture(scope="module")
def network():
    return small_network(batch_size=32)


@pytest.fixture(scope="module")
def data():
    return labelled_rows(ROWS)


@pytest.fixture(scope="module")
def whole(network, data):
    return network.observe(data, keep_inputs=True)


@pytest.fixture(scope="module")
def sharded(network, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards") / "trace"
    network.observe_to(folder, data, keep_inputs=True, shard_rows=100)
    return assay.load(folder)


def test_it_has_the_rows_of_one_run(sharded, whole, network):
    assert len(sharded) == ROWS
    assert [len(shard) for shard in sharded.shards] == [128, 128, 128, 16]  # whole batches of 32
    assert same_rows(sharded.trace(), whole)
    assert sharded.network == network.fingerprint
    for name in ("logits", "labels", "predictions", "correct", "probabilities"):
        assert torch.equal(getattr(sharded, name), getattr(whole, name))
    assert sharded.to_frame().equals(whole.to_frame())
    assert sharded.outputs().features == {}
    sharded.verify()


@pytest.mark.parametrize(
    "rows",
    [slice(100, 300), slice(None, 5), slice(130, 131), slice(50, 50), slice(300, 100, -3), slice(0, 400, 7)],
)
def test_slices_are_those_of_the_trace(sharded, whole, rows):
    part = sharded[rows]
    numbers = torch.tensor(range(ROWS)[rows], dtype=torch.long)
    assert same_rows(part.trace() if isinstance(part, ShardedTrace) else part, whole[numbers])


def test_masks_numbers_and_single_rows_are_those_of_the_trace(sharded, whole):
    mask = whole.predictions == 1
    numbers = torch.tensor([399, 0, 130, -1, 130])
    assert same_rows(sharded[mask], whole[mask])
    assert same_rows(sharded[numbers], whole[numbers])
    assert same_rows(sharded[-1], whole[-1])
    assert len(sharded[torch.zeros(ROWS, dtype=torch.bool)]) == 0
    for wrong in (torch.tensor([400]), mask[:10]):
        with pytest.raises(InputError, match="expected"):
            sharded[wrong]


def test_concatenation_copies_nothing(sharded, whole):
    twice = sharded[:150] + sharded[150:]
    assert same_rows(twice.trace(), whole)
    assert twice.shards[0].file == sharded.shards[0].file
    with pytest.raises(InputError, match="one network"):
        sharded + ShardedTrace(sharded.shards, "another")


BUILDERS = [Energy, Mahalanobis, ViM, KNN, lambda: AnyOf([Energy(), Mahalanobis()])]


@pytest.mark.parametrize("build", BUILDERS)
def test_fits_and_scores_shard_by_shard_are_those_of_the_trace(sharded, whole, build):
    expected = build().fit(whole).score(whole)
    merged = build()
    collect_on(merged, sharded, "here", None)  # as on any engine: what each shard has, joined
    merged._conclude()
    for monitor in (build().fit(sharded), merged):
        # As in the protocol of monitors: sums to rounding.
        assert torch.allclose(monitor.score(whole), expected, rtol=2e-5, atol=2e-5)
        assert torch.allclose(monitor.score(sharded), expected, rtol=2e-5, atol=2e-5)


def test_processes_give_the_same(sharded, whole):
    members = [Energy(), KNN(k=3)]
    monitor = AnyOf(members).fit(sharded, engine="processes", workers=2)
    expected = AnyOf([Energy(), KNN(k=3)]).fit(whole)
    assert monitor.members is not members
    assert monitor.members[1] is members[1]  # fitted in place, as on one machine
    assert torch.equal(monitor.members[1].bank_, expected.members[1].bank_)
    assert torch.allclose(monitor.score(whole), expected.score(whole), rtol=2e-5, atol=2e-5)


def test_jobs_of_a_fit_are_groups_of_shards_that_end_with_single_ones(sharded):
    many = ShardedTrace.concatenate([sharded] * 20)
    groups = list(_groups(many, 2))
    assert [shard for group in groups for shard in group] == list(many.shards)
    sizes = [len(group) for group in groups]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (8, 1)
    assert all(len(group) == 1 for group in _groups(many, None))  # only the cluster knows its workers


def test_what_cannot_merge_is_not_fitted_on_an_engine(sharded):
    with pytest.raises(InputError, match="fit it with engine='here'"):
        Reconstruction().fit(sharded, engine="processes")
    with pytest.raises(InputError, match="at least 1 worker"):
        Energy().fit(sharded, engine="processes", workers=0)


def test_histograms_of_shards_add_up(sharded, whole):
    bins = assay.Bins(layer="penultimate", origin=0.0, width=0.5, last=20)
    assert np.array_equal(assay.Histogram.of(sharded, bins).counts, assay.Histogram.of(whole, bins).counts)


def test_accuracy_of_shards_is_that_of_their_counts(sharded, whole):
    found = assay.estimate_accuracy(whole, sharded)
    rows = found.to_frame().set_index("method")
    estimator = assay.AccuracyEstimator().fit(whole)
    counted = estimator.estimate(estimator.count(whole)).to_frame().set_index("method")
    known = rows["value"].dropna().index  # not those that need all rows at once
    assert len(known) > 9
    for column in counted.select_dtypes("number"):
        assert np.allclose(rows.loc[known, column], counted.loc[known, column], equal_nan=True, rtol=1e-6)
    with pytest.raises(InputError, match="pass sharded"):
        assay.estimate_accuracy(whole, sharded, labels=[0], drawn=[0])


def test_a_run_that_was_stopped_goes_on(network, data, whole, tmp_path):
    folder = tmp_path / "trace"

    def stopping():
        for start in range(0, ROWS, 50):
            if start == 250:
                raise KeyboardInterrupt
            yield data[0][start : start + 50], data[1][start : start + 50]

    with pytest.raises(KeyboardInterrupt):
        network.observe_to(folder, stopping(), keep_inputs=True, shard_rows=100)
    with pytest.raises(StorageError, match="2 shards of a run that was stopped"):
        assay.load(folder)
    before = (folder / "000000.safetensors").stat().st_mtime_ns
    with (folder / "manifest.jsonl").open("a") as manifest:
        manifest.write('{"file": "000002.safe')  # killed in the middle of a line
    batches = [(data[0][start : start + 50], data[1][start : start + 50]) for start in range(0, ROWS, 50)]
    again = network.observe_to(folder, batches, keep_inputs=True, shard_rows=100)
    assert same_rows(again.trace(), whole)
    assert (folder / "000000.safetensors").stat().st_mtime_ns == before
    assert len(network.observe_to(folder, batches, keep_inputs=True, shard_rows=100)) == ROWS  # finished


def test_a_run_goes_on_with_the_same_data_and_network_only(network, data, tmp_path):
    folder = tmp_path / "trace"
    network.observe_to(folder, data, shard_rows=100)
    other = Network(nn.Linear(6, 3), batch_size=32)
    with pytest.raises(StorageError, match="network differ"):
        other.observe_to(folder, data, shard_rows=100)
    for wrong in ((data[0] + 1, data[1]), (data[0], (data[1] + 1) % 3), (data[0][:200], data[1][:200])):
        with pytest.raises(StorageError, match="other data"):
            network.observe_to(folder, wrong, shard_rows=100)
    with pytest.raises(StorageError, match="shard_rows differ"):
        network.observe_to(folder, data, shard_rows=50)
    with pytest.raises(StorageError, match="with some"):
        ShardedTrace.write([network.observe(data)], folder, network=network.fingerprint)


def test_damage_is_found(network, data, tmp_path):
    folder = tmp_path / "trace"
    sharded = network.observe_to(folder, data, shard_rows=100)
    assay.save(sharded[5], folder / "000001.safetensors")
    with pytest.raises(StorageError, match="manifest lists"):
        sharded.verify()
    with pytest.raises(StorageError, match="manifest lists"):
        sharded.trace()
    (folder / "000001.safetensors").unlink()
    with pytest.raises(StorageError, match="found none"):
        sharded.trace()
    (folder / "manifest.jsonl").write_text("nothing\n")
    with pytest.raises(StorageError, match="damaged"):
        assay.load(folder)
    with pytest.raises(StorageError, match="in a folder already"):
        assay.save(sharded, tmp_path / "file")


def test_a_table_for_other_tools(sharded, whole, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    sharded.to_parquet(tmp_path / "rows.parquet")
    table = parquet.read_table(tmp_path / "rows.parquet").to_pandas()
    assert table["prediction"].tolist() == whole.predictions.tolist()
    assert np.array_equal(np.stack(table["penultimate"]), whole.layer("penultimate").numpy())
    assert np.array_equal(np.stack(table["logits"]), whole.logits.numpy())


def test_an_empty_stream_is_refused(tmp_path):
    with pytest.raises(InputError, match="at least one Trace"):
        ShardedTrace.write([], tmp_path / "trace")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(StorageError, match="empty folder"):
        ShardedTrace.write([Trace(torch.zeros(1, 2))], tmp_path / "full")
    lines = (tmp_path / "trace" / "manifest.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["kind"] == "ShardedTrace"
