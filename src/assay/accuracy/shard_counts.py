"""Counts over the shards of a Trace, each made where a worker reads it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.accuracy.counts import PredictionCounts
from assay.engine import mapped
from assay.sharded_trace import Shard, ShardedTrace

if TYPE_CHECKING:
    from assay.accuracy.estimator import AccuracyEstimator


@dataclass(frozen=True)
class _Counter:
    estimator: "AccuracyEstimator"

    def __call__(self, shard: Shard) -> PredictionCounts:
        return self.estimator.count(shard.trace())


def counts_of_shards(
    estimator: "AccuracyEstimator", sharded: ShardedTrace, engine: str, workers: int | None
) -> PredictionCounts:
    """What `estimator.count` says of all rows; they add up."""
    counted = mapped(_Counter(estimator), sharded.shards, engine, workers=workers, description="counting")
    return sum(counted, start=next(counted))
