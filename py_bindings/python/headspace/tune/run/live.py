"""Reads a run's records while it runs: its progress, and its mean step so far.

The `summary` record is refreshed less and less often. So the step is computed from the ticks, as
`headspace compare` does it.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from headspace._native import Follower, run_interval

#: Minimum number of steady steps for a mean by which experiments are compared. The verdict of one run needs
#: fewer.
LEAST_STEPS = 30


class StepMean(NamedTuple):
    """The mean step of a loop in steady state."""

    ms: float
    error: float | None
    """Its standard error; None if there are too few ticks."""
    steps: int

    @property
    def seconds(self) -> float:
        """How long these steps took together."""
        return self.ms * self.steps / 1e3

    @property
    def interval_ms(self) -> tuple[float, float] | None:
        """95 % interval."""
        return None if self.error is None else run_interval(self.ms, self.error)


class LiveRun:
    """The newest run in a folder, from rank 0's records.

    Once a run has received a batch, later runs are ignored: a script may train more than once.
    """

    def __init__(self, folder: Path) -> None:
        self._follower = Follower(folder)
        self._forget()

    def _forget(self) -> None:
        self.summary: dict[str, Any] = {}
        self.loader: dict[str, Any] = {}
        """The properties of the main loop's loader."""
        self.step: StepMean | None = None
        """The mean step of the training loop at the last reading; None if there are too few steps."""
        self._steps: Counter[str] = Counter()
        self._samples: Counter[str] = Counter()

    @property
    def run(self) -> Path | None:
        """The run folder."""
        return self._follower.run

    @property
    def steps(self) -> int:
        """Batches that the training loop received."""
        return self._steps[self._main]

    @property
    def what_if_is_running(self) -> bool:
        """Whether a what-if has questions left, according to the last summary."""
        status = self.summary.get("what_if_status")
        return status is not None and not status["finished"]

    @property
    def what_if_has_finished(self) -> bool:
        """Whether a what-if has asked its last question."""
        return self.summary.get("what_if_status") is not None and not self.what_if_is_running

    @property
    def moves(self) -> int:
        """Batches that any loop received. A run that only evaluates has not stalled."""
        return sum(self._steps.values())

    @property
    def _main(self) -> str:
        return self._follower.main_loop or ""

    def read(self) -> None:
        """Reads new records."""
        more, is_new = True, False
        while more:
            try:
                another_run, records, more = self._follower.poll()
            except OSError:
                break
            is_new = is_new or another_run or bool(records)
            if another_run:
                self._forget()
            for rank, record in records:
                if rank == 0:
                    self._read_record(json.loads(record))
            if self.moves:
                self._follower.stay()
        if is_new:
            known = self._follower.steady_step
            self.step = StepMean(*known) if known and known[2] >= LEAST_STEPS else None

    def _read_record(self, record: dict[str, Any]) -> None:
        kind = record.get("kind")
        if kind == "summary":
            self.summary = record
        elif kind == "run":
            self.loader = record.get("loader") or {}
        elif kind == "tick":
            for loop in record.get("loops", ()):
                self._steps[loop["name"]] += int(loop["steps"])
                self._samples[loop["name"]] += int(loop.get("samples") or 0)

    def samples_a_step(self) -> float | None:
        """Mean samples per batch of the training loop; None if they are not counted."""
        samples, steps = self._samples[self._main], self.steps
        return samples / steps if samples and steps else None
