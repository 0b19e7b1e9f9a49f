"""Reads the steps of a run over time from its records, in bounded memory."""

from __future__ import annotations

import json
from collections import Counter, deque

from headspace._native import Follower

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike
    from typing import Any

#: Maximum number of points of the whole run. A chart in a notebook is about 700 pixels wide.
MAX_POINTS = 240

#: Number of the last ticks that are kept one by one: two minutes by default.
RECENT_TICKS = 120


class Interval:
    """The live steps of each loop in one tick, or in several adjacent ticks.

    Steps on repeated batches, and steps before the loop has settled after them, are left out, as in the mean
    step of the verdict.
    """

    __slots__ = ("_loops", "end_s", "ticks")

    def __init__(self, tick: dict[str, Any]) -> None:
        self.end_s = float(tick["at_s"])
        """End of the interval in seconds since the run began."""
        self.ticks = 1
        """Number of ticks in the interval."""
        # By name of the loop: number and sum (ms) of the steps, and the same of the waits.
        self._loops: dict[str, list[float]] = {}
        for entry in tick.get("loops", ()):
            if entry["phase"] == "live":
                step, wait = entry["step"], entry["wait"]
                sums = [step["count"], step["sum_ms"], wait["count"], wait["sum_ms"]]
                self._add_sums(entry["name"], sums)

    def add(self, later: Interval) -> None:
        """Extends this interval by the one after it."""
        self.end_s = later.end_s
        self.ticks += later.ticks
        for name, sums in later._loops.items():
            self._add_sums(name, sums)

    def _add_sums(self, name: str, sums: list[float]) -> None:
        known = self._loops.get(name)
        self._loops[name] = sums[:] if known is None else [a + b for a, b in zip(known, sums)]

    def step_ms(self, loop: str) -> float | None:
        """Mean live step of the loop in milliseconds; None if it had none."""
        count, total, _, _ = self._loops.get(loop, (0, 0.0, 0, 0.0))
        return total / count if count else None

    def wait_ms(self, loop: str) -> float | None:
        """Mean wait of the loop for a batch in milliseconds; None if it had none."""
        _, _, count, total = self._loops.get(loop, (0, 0.0, 0, 0.0))
        return total / count if count else None


class StepHistory:
    """The steps of one rank so far, and its last summary.

    Args:
        path: The file with the records of the rank. Or a folder of runs of one rank each: the newest run is read.

    Raises:
        OSError: If the path cannot be read.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._follower = Follower(path)
        self._follower.stay()
        self._steps: Counter[str] = Counter()
        self._ticks_of_point = 1
        self.summary: dict[str, Any] = {}
        """The last `summary` record; empty before the first one."""
        self.whole: list[Interval] = []
        """The whole run, in at most `MAX_POINTS` intervals of the same number of ticks."""
        self.recent: deque[Interval] = deque(maxlen=RECENT_TICKS)
        """The last ticks."""

    @property
    def loop(self) -> str:
        """Name of the main loop; empty before the first step."""
        return self.summary.get("loop") or self._follower.main_loop or ""

    @property
    def steps(self) -> int:
        """Number of batches that the main loop received."""
        return self._steps[self.loop]

    def read(self) -> bool:
        """Reads the records that were written since the last call. Returns whether there were any.

        Raises:
            OSError: If the file cannot be read. The next call tries again.
        """
        has_new, more = False, True
        while more:
            _, records, more = self._follower.poll()
            has_new = has_new or bool(records)
            self._add_records(json.loads(text) for _, text in records)
        return has_new

    def _add_records(self, records: Iterable[dict[str, Any]]) -> None:
        for record in records:
            if record["kind"] == "summary":
                self.summary = record
            elif record["kind"] == "tick":
                for entry in record.get("loops", ()):
                    self._steps[entry["name"]] += entry["steps"]
                self.recent.append(Interval(record))
                self._add_to_whole(Interval(record))

    def _add_to_whole(self, interval: Interval) -> None:
        if self.whole and self.whole[-1].ticks < self._ticks_of_point:
            self.whole[-1].add(interval)
            return
        if len(self.whole) == MAX_POINTS:
            for earlier, later in zip(self.whole[::2], self.whole[1::2]):
                earlier.add(later)
            del self.whole[1::2]
            self._ticks_of_point *= 2
        self.whole.append(interval)
