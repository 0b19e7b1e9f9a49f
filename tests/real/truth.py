"""The truth about a program, measured without headspace: see `injected/sitecustomize.py`."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "injected"


def environment(
    out: Path, source: str, *, kind: str, changes: dict[str, str] | None = None
) -> dict[str, str]:
    """Environment variables with which the program writes the times of its steps to the files `out.*`.

    Args:
        out: Prefix of the files.
        source: The method whose batches are timed, or `backward`.
        kind: `live`, or `both` for live and cached batches alternately.
        changes: `num_workers` and `prefetch_factor` to use instead of the program's.
    """
    variables = {"num_workers": "TRUTH_WORKERS", "prefetch_factor": "TRUTH_PREFETCH"}
    return {
        "TRUTH_OUT": str(out),
        "TRUTH_SOURCE": source,
        "TRUTH_KIND": kind,
        **{variables[knob]: value for knob, value in (changes or {}).items()},
    }


def _loops(out: Path) -> list[dict[str, Any]]:
    try:
        loops: list[dict[str, Any]] = json.loads(Path(f"{out}.0.json").read_text())
    except FileNotFoundError:
        return []
    return loops


#: Number of consecutive steps in one mean.
PIECE = 30


def step_ms(out: Path) -> float | None:
    """Live step, in milliseconds, of the loop that took most time. None if there is none.

    Other load on the machine only makes steps longer. So the result is the lower quartile of the means of
    `PIECE` steps.
    """
    longest: list[float] = max((loop["live"] for loop in _loops(out)), key=sum, default=[])
    starts = range(0, len(longest) - PIECE + 1, PIECE)
    means = sorted(statistics.fmean(longest[start : start + PIECE]) for start in starts)
    return means[len(means) // 4] if means else None


@dataclass
class Truth:
    """Mean steps in milliseconds, one for each cycle of live and cached batches."""

    live: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)

    def add(self, out: Path) -> bool:
        """Adds the complete cycles of a run. Returns whether there were any."""
        loops = [
            [cycle for cycle in loop["cycles"] if all(map(len, cycle))] for loop in _loops(out)
        ]
        cycles = max(loops, key=len, default=[])
        for live, cached in cycles:
            self.live.append(statistics.fmean(live))
            self.floor.append(statistics.fmean(cached))
        return bool(cycles)

    @property
    def live_ms(self) -> float | None:
        return statistics.fmean(self.live) if self.live else None

    @property
    def headspace_pct(self) -> tuple[float, float, float] | None:
        """Headspace and its 95 % interval in percent. The interval comes from the variation between cycles."""
        if not self.live:
            return None
        live, floor = statistics.fmean(self.live), statistics.fmean(self.floor)
        value, error = 100 * (live - floor) / live, 2 * self.standard_error
        return value, value - error, value + error

    @property
    def standard_error(self) -> float:
        """Standard error of the headspace, in percentage points. 0 if there is only one cycle."""
        pairs = zip(self.live, self.floor, strict=True)
        shares = [100 * (live - floor) / live for live, floor in pairs]
        return statistics.stdev(shares) / len(shares) ** 0.5 if len(shares) > 1 else 0.0
