"""Finished cells of a benchmark on disk: one small file per guard and scenario."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from assay.benchmark.measures import Sources
from assay.benchmark.oracle import Flags
from assay.benchmark.scenario import Scenario
from assay.errors import InputError, StorageError
from assay.extras import expect_installed
from assay.guard import Guard
from assay.identity import digest
from assay.storage import expect_writable, made_folder, write_text_whole, write_whole

FinishedCell: TypeAlias = tuple[dict[str, Any], Flags, Sources | None]
"""What was measured, the alarms, and the input of each where inputs have several rows."""


class FinishedCells:
    """Reads and writes the finished cells of one run; does nothing without a folder.

    A cell is identified by the fingerprints of guard and scenario and by the settings: results measured under
    others are never reused.
    """

    def __init__(
        self,
        guards: Mapping[str, Guard],
        checkpoint: str | os.PathLike[str] | None,
        readouts: str | os.PathLike[str] | None,
        settings: Mapping[str, Any],
    ) -> None:
        if readouts is not None:
            expect_installed("pyarrow")
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self.readouts = None if readouts is None else Path(readouts)
        for folder in (self.checkpoint, self.readouts):
            if folder is not None:
                expect_writable(folder, folder=True)
        self.settings = json.dumps(settings, sort_keys=True)
        wanted = self.checkpoint is not None or self.readouts is not None
        self.guards = {name: guard.fingerprint for name, guard in guards.items()} if wanted else {}

    def read(self, name: str, scenario: Scenario) -> FinishedCell | None:
        """A finished cell; None if there is none, or if its readouts are missing."""
        if self.checkpoint is None:
            return None
        key = self._key(name, scenario)
        path = self.checkpoint / f"{key}.json"
        if not path.is_file() or (self.readouts is not None and not self._parquet(key).is_file()):
            return None
        try:
            cell = json.loads(path.read_text(encoding="utf-8"))
            bits = np.frombuffer(bytes.fromhex(cell["alarm"]), np.uint8)
            rows = cell.get("rows_of_inputs")
            sources = None if rows is None else np.repeat(np.arange(len(rows)), rows)
            count = len(scenario) if sources is None else len(sources)
            return cell["row"], np.unpackbits(bits, count=count).astype(np.bool_), sources
        except (ValueError, KeyError) as error:
            raise StorageError(
                f"{path} is damaged ({error}); delete it, and the cell is run again"
            ) from error

    def write(
        self,
        name: str,
        scenario: Scenario,
        row: Mapping[str, Any],
        readout: pd.DataFrame,
        sources: Sources | None,
    ) -> None:
        if self.checkpoint is None and self.readouts is None:
            return
        key = self._key(name, scenario)
        alarm = np.packbits(readout["alarm"].to_numpy()).tobytes().hex()
        if self.readouts is not None:
            readout.insert(0, "scenario", scenario.name)
            readout.insert(0, "guard", name)
            made_folder(self.readouts)
            write_whole(self._parquet(key), lambda temporary: readout.to_parquet(temporary, index=False))
        if self.checkpoint is not None:
            cell = {"row": row, "alarm": alarm}
            if sources is not None:
                cell["rows_of_inputs"] = np.bincount(sources, minlength=len(scenario)).tolist()
            write_text_whole(made_folder(self.checkpoint) / f"{key}.json", json.dumps(cell))

    def _key(self, name: str, scenario: Scenario) -> str:
        if not scenario.fingerprint:
            raise InputError(
                f"expected scenario {scenario.name!r} with a fingerprint, to keep its results by, got "
                "none; make it with Scenario.of or build_scenarios"
            )
        readable = "".join(letter if letter.isalnum() else "-" for letter in f"{scenario.name}--{name}")
        return f"{readable[:80]}--{digest(name, self.guards[name], scenario.fingerprint, self.settings)}"

    def _parquet(self, key: str) -> Path:
        assert self.readouts is not None
        return self.readouts / f"{key}.parquet"
