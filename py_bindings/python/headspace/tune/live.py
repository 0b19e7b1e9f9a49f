"""Reads a run's records while it runs: its progress, and its mean step so far.

The `summary` record is refreshed less and less often. So the step is computed from the ticks, one per
interval. Its error is estimated by batch means, plus an allowance for the variation between runs.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from headspace._native import (
    FREEDOM,
    LEAST_WARMUP,
    RUN_TO_RUN,
    Follower,
    mean_and_error,
    t_quantile,
)
from headspace.tune.objective import run_half

#: Fewest steady steps for a mean that two experiments are compared by. The verdict of one run needs fewer.
LEAST_STEPS = 30

#: Fewest ticks for an error estimate. Fewer hardly show how much ticks differ.
LEAST_TICKS = 8

#: Probability that a run as fast as the best is judged slower, over all checks of it.
WRONGLY = 0.05


class StepMean(NamedTuple):
    """A mean step."""

    ms: float
    interval_ms: tuple[float, float] | None
    """95 % interval; None if there are too few ticks."""
    steps: int
    seconds: float


class StepTimes:
    """Times of a loop's steady steps, per tick."""

    def __init__(self) -> None:
        self._ticks: list[tuple[int, float]] = []

    def add(self, steps: int, ms: float) -> None:
        """Adds a tick with `steps` steps that took `ms` milliseconds together."""
        self._ticks.append((steps, ms))

    def mean(self) -> StepMean | None:
        """The mean step; None if there are too few steps."""
        count = sum(count for count, _ in self._ticks)
        known = self._known()
        if count < LEAST_STEPS or known is None:
            return None
        mean, error = known
        seconds = mean * count / 1e3
        if error is None:
            return StepMean(mean, None, count, seconds)
        half = run_half(mean, error)
        return StepMean(mean, (mean - half, mean + half), count, seconds)

    def lower_bound(self, check: int) -> float | None:
        """Lower confidence bound of the mean step in milliseconds; None if there are too few ticks.

        A run is checked again and again, so all checks share the error probability `WRONGLY`, however many
        there are: check number `n` gets `1 / (n * (n + 1))` of it.

        Args:
            check: Number of the check of this run, from 1.
        """
        mean, error = self._known() or (0.0, None)
        if error is None:
            return None
        sure = t_quantile(FREEDOM, 1 - WRONGLY / (check * (check + 1)))
        return mean - sure * math.hypot(error, RUN_TO_RUN * mean)

    def _known(self) -> tuple[float, float | None] | None:
        """Mean step and its standard error; the error is None if there are too few ticks."""
        known = mean_and_error(list(self._ticks))
        if known is None or len(self._ticks) >= LEAST_TICKS:
            return known
        return known[0], None


class LiveRun:
    """The newest run in a folder, from rank 0's records.

    Once a run has received a batch, later runs are ignored: a script may train more than once.
    """

    def __init__(self, folder: Path) -> None:
        self._follower = Follower(folder)
        self._forget()

    def _forget(self) -> None:
        self.summary: dict[str, Any] = {}
        self.probe: dict[str, Any] | None = None
        """The `probe` record, once it is written."""
        self._steps: dict[str, int] = {}
        self._ticks: dict[str, StepTimes] = {}
        self._samples: dict[str, int] = {}

    @property
    def run(self) -> Path | None:
        """The run folder."""
        return self._follower.run

    @property
    def steps(self) -> int:
        """Batches that the training loop received."""
        return self._steps.get(self._main, 0)

    @property
    def moves(self) -> int:
        """Batches that any loop received. A run that only evaluates has not stalled."""
        return sum(self._steps.values())

    @property
    def _main(self) -> str:
        return self._follower.main_loop or ""

    def read(self) -> None:
        """Reads new records."""
        more = True
        while more:
            try:
                another_run, records, more = self._follower.poll()
            except OSError:
                return
            if another_run:
                self._forget()
            for rank, record in records:
                if rank == 0:
                    self._read_record(json.loads(record))
            if self.moves:
                self._follower.stay()

    def _read_record(self, record: dict[str, Any]) -> None:
        kind = record.get("kind")
        if kind == "summary":
            self.summary = record
        elif kind == "probe":
            self.probe = record
        elif kind == "tick":
            for loop in record.get("loops", ()):
                self._tick(loop)

    def _tick(self, loop: dict[str, Any]) -> None:
        name, steps = loop["name"], int(loop["steps"])
        seen = self._steps.get(name, 0)
        self._steps[name] = seen + steps
        self._samples[name] = self._samples.get(name, 0) + int(loop.get("samples") or 0)
        step = loop["step"]
        if seen >= LEAST_WARMUP and loop["phase"] == "live" and step["count"]:
            self._ticks.setdefault(name, StepTimes()).add(int(step["count"]), float(step["sum_ms"]))

    @property
    def times(self) -> StepTimes:
        """Times of the steps of the training loop."""
        return self._ticks.get(self._main, StepTimes())

    def samples_a_step(self) -> float | None:
        """Mean samples per batch of the training loop; None if they are not counted."""
        name = self._main
        samples, steps = self._samples.get(name, 0), self._steps.get(name, 0)
        return samples / steps if samples and steps else None
