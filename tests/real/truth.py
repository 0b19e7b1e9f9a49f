"""The truth about a program, measured without headspace: see `injected/sitecustomize.py`."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "injected"


def environment(
    out: Path, source: str, *, kind: str, steps: int, changes: dict[str, str] | None = None
) -> dict[str, str]:
    """What the program's environment needs, for its steps to be timed to the files `out.*`.

    Args:
        out: Prefix of the files.
        source: Whose batches are timed.
        kind: `live` or `cached`.
        steps: The program ends after so many; 0: at its own end.
        changes: `num_workers` and `prefetch_factor` to use instead of the program's.
    """
    variables = {"num_workers": "TRUTH_WORKERS", "prefetch_factor": "TRUTH_PREFETCH"}
    return {
        "TRUTH_OUT": str(out),
        "TRUTH_SOURCE": source,
        "TRUTH_KIND": kind,
        "TRUTH_STEPS": str(steps),
        **{variables[knob]: value for knob, value in (changes or {}).items()},
    }


def step_ms(out: Path) -> float | None:
    """Mean step of the loop that most time was spent in, in milliseconds; None without one."""
    try:
        loops = json.loads(Path(f"{out}.0.json").read_text())
    except FileNotFoundError:
        return None
    steps: dict[str, list[float]] = {}
    for loop in loops:  # A program may make a new loader for each epoch.
        steps.setdefault(loop["place"], []).extend(loop["steps"])
    longest = max(steps.values(), key=sum, default=[])
    return statistics.fmean(longest) if longest else None


@dataclass
class Truth:
    """Mean steps in milliseconds, one a run."""

    live: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)

    @property
    def live_ms(self) -> float | None:
        return statistics.fmean(self.live) if self.live else None

    @property
    def headspace_pct(self) -> tuple[float, float, float] | None:
        """Headspace and the least and the most that the runs give, in percent.

        Runs are paired in the order in which they were made, so that a slow machine slows both.
        """
        shares = self._shares
        if not shares:
            return None
        count = len(shares)
        live, floor = statistics.fmean(self.live[:count]), statistics.fmean(self.floor[:count])
        return 100 * (live - floor) / live, min(shares), max(shares)

    @property
    def standard_error(self) -> float:
        """Of the headspace, in points, by how the pairs differ. 0 where there is one."""
        shares = self._shares
        return statistics.stdev(shares) / len(shares) ** 0.5 if len(shares) > 1 else 0.0

    @property
    def _shares(self) -> list[float]:
        """The headspace of each pair, in percent."""
        pairs = zip(self.live, self.floor, strict=False)
        return [100 * (live - floor) / live for live, floor in pairs]
