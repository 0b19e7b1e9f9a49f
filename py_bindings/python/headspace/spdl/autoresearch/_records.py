"""Reads a job's records: its progress while it runs, and its results after it has ended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headspace._native import Follower

Record = dict[str, Any]

#: Maximum time of a report in seconds. It usually takes less than one, and for a long run with many ranks
#: a few.
_REPORT_S = 120.0


class Progress:
    """The progress of a job, by new records since the last call.

    Records also grow without progress. A job makes progress when its loops take batches.
    """

    def __init__(self, records: Path) -> None:
        self._records = records
        #: By run folder: a job may have several runs at the same time.
        self._runs: dict[Path, Follower] = {}
        self._ranks: set[tuple[Path, int]] = set()
        self._probed: set[tuple[Path, int]] = set()
        #: Batches that all loops of all ranks took.
        self.steps = 0

    @property
    def text(self) -> str | None:
        """None before the first batch."""
        return f"{self.steps} batches" if self.steps else None

    @property
    def is_probed(self) -> bool:
        """Whether every rank's probe is done."""
        return bool(self._ranks) and self._probed == self._ranks

    def read(self) -> None:
        """Reads new records."""
        for run in self._records.glob("*/"):
            if run not in self._runs and any(run.glob("rank*.jsonl")):
                self._runs[run] = Follower(run)
        for run, follower in self._runs.items():
            for rank, record in _new(follower):
                self._ranks.add((run, rank))
                if record["kind"] == "tick":
                    self.steps += sum(loop["steps"] for loop in record["loops"])
                elif record["kind"] == "probe":
                    self._probed.add((run, rank))


@dataclass(frozen=True)
class Measured:
    """The contents of a job's records after its end."""

    summary: Record
    """The last ``summary`` record; empty if nothing was measured."""
    verdict: str
    """The verdict, as ``headspace report`` prints it."""
    run: Record
    """The ``run`` record of the first rank."""
    sm: list[float] = field(default_factory=list)
    """SM utilisation at each tick, of all GPUs and ranks, in percent."""

    @property
    def steps(self) -> int:
        """Batches that the training loop took."""
        return int(self.summary.get("steps") or 0)

    @property
    def ranks(self) -> int:
        """Processes that trained together."""
        together = self.summary.get("ranks") or {}
        return max(1, int(together.get("read") or 1))


def measured(records: Path) -> Measured:
    """Reads the records of a job. If its command left several runs, the longest one counts."""
    found: list[tuple[int, Path, Record]] = []
    for folder in sorted(path for path in records.glob("*") if path.is_dir()):
        try:
            summary = json.loads(_report("--json", str(folder)))
        except ValueError:
            continue
        found.append((int(summary.get("steps") or 0), folder, summary))
    if not found:
        return Measured({}, "", {})
    _, folder, summary = max(found, key=lambda run: run[0])
    run: Record = {}
    sm: list[float] = []
    for _, record in _new(Follower(folder)):
        if record["kind"] == "run" and not run:
            run = record
        elif record["kind"] == "tick":
            sm.extend(_sm(record))
    return Measured(summary, _report(str(folder)), run, sm)


def _sm(tick: Record) -> Iterator[float]:
    for scope, readings in tick.get("readings", {}).items():
        if not scope.startswith("gpu:"):
            continue
        for name, value in readings.items():
            if name.partition("{")[0] == "headspace.gpu.sm.utilization" and value is not None:
                yield 100.0 * value


def _new(follower: Follower) -> Iterator[tuple[int, Record]]:
    """Ranks and records that were written since the last call; nothing if they cannot be read."""
    more = True
    while more:
        try:
            _, records, more = follower.poll()
        except OSError:
            return
        for rank, record in records:
            yield rank, json.loads(record)


def _report(*args: str) -> str:
    """The output of ``headspace report``; empty if it finds nothing."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "headspace", "report", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_REPORT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout
