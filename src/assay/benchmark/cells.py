"""Finished cells of a benchmark on disk: one small file per guard and scenario."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from assay.benchmark.oracle import Flags
from assay.benchmark.scenario import Scenario, digest
from assay.errors import MissingExtraError, StorageError
from assay.guard import Guard
from assay.storage import made_folder, write_text_whole, write_whole


class Cells:
    """Reads and writes the cells of one run; without a folder, nothing.

    A cell is known by the guard (its network's weights, its monitor's settings, its threshold, which no two
    fitted states share), the scenario's fingerprint and the settings: what was measured under others is not
    taken over.
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str] | None,
        readouts: str | os.PathLike[str] | None,
        settings: Mapping[str, Any],
    ) -> None:
        self.checkpoint = None if checkpoint is None else made_folder(checkpoint)
        self.readouts = None if readouts is None else made_folder(readouts)
        self.settings = json.dumps(settings, sort_keys=True)
        self._guards: dict[str, str] = {}
        if self.readouts is not None:
            try:
                import pyarrow  # type: ignore[import-untyped]  # noqa: F401
            except ImportError as error:
                raise MissingExtraError("pyarrow", "benchmark") from error

    def read(self, name: str, guard: Guard, scenario: Scenario) -> tuple[dict[str, Any], Flags] | None:
        """A finished cell: its row and its alarms; None where there is none, or its readouts are missing."""
        if self.checkpoint is None:
            return None
        key = self._key(name, guard, scenario)
        path = self.checkpoint / f"{key}.json"
        if not path.is_file() or (self.readouts is not None and not self._parquet(key).is_file()):
            return None
        try:
            cell = json.loads(path.read_text(encoding="utf-8"))
            bits = np.frombuffer(bytes.fromhex(cell["alarm"]), np.uint8)
            return cell["row"], np.unpackbits(bits, count=len(scenario)).astype(np.bool_)
        except (ValueError, KeyError) as error:
            raise StorageError(
                f"{path} is damaged ({error}); delete it, and the cell is run again"
            ) from error

    def write(
        self, name: str, guard: Guard, scenario: Scenario, row: Mapping[str, Any], readout: pd.DataFrame
    ) -> None:
        key = self._key(name, guard, scenario)
        alarm = np.packbits(readout["alarm"].to_numpy()).tobytes().hex()
        if self.readouts is not None:
            readout.insert(0, "scenario", scenario.name)
            readout.insert(0, "guard", name)
            write_whole(self._parquet(key), lambda temporary: readout.to_parquet(temporary, index=False))
        if self.checkpoint is not None:
            write_text_whole(self.checkpoint / f"{key}.json", json.dumps({"row": row, "alarm": alarm}))

    def _key(self, name: str, guard: Guard, scenario: Scenario) -> str:
        if name not in self._guards:
            threshold = None if guard.threshold is None else guard.threshold.tolist()
            self._guards[name] = digest(name, guard.network.fingerprint, repr(guard.monitor), repr(threshold))
        readable = "".join(letter if letter.isalnum() else "-" for letter in f"{scenario.name}--{name}")
        return f"{readable[:80]}--{digest(self._guards[name], scenario.fingerprint, self.settings)}"

    def _parquet(self, key: str) -> Path:
        assert self.readouts is not None
        return self.readouts / f"{key}.parquet"
