"""One line of the result: what was measured, against what, and whether the target is met."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """A measured value beside its target."""

    name: str
    what: str
    measured: float
    unit: str
    #: Upper limit, in `unit`, or of `ratio` where there is one. None: for information.
    target: float | None = None
    #: Ends of the 95 % interval of `measured`.
    low: float | None = None
    high: float | None = None
    #: What the value is divided by, and the quotient.
    reference: str | None = None
    ratio: float | None = None

    @property
    def verdict(self) -> str:
        """`pass`, `miss`, `` without a target, or `unclear`: the interval is too wide to tell."""
        if self.target is None:
            return ""
        if self.ratio is not None:
            return "pass" if self.ratio <= self.target else "miss"
        if self.low is not None and self.high is not None:
            wide = self.high - self.low > 2 * self.target
            if wide or self.low <= self.target < self.high:
                return "unclear"
        return "pass" if self.measured <= self.target else "miss"

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self), "verdict": self.verdict}


def bootstrap(
    values: Sequence[float],
    statistic: Callable[[Sequence[float]], float] = statistics.fmean,
    resamples: int = 5000,
) -> tuple[float, float]:
    """95 % percentile interval of `statistic` (Efron and Tibshirani 1993, chapter 13)."""
    source = random.Random(1)
    seen = sorted(statistic(source.choices(values, k=len(values))) for _ in range(resamples))
    return seen[int(0.025 * resamples)], seen[int(0.975 * resamples)]


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned text."""
    lines = [("", "", "measured", "ratio", "target", "")]
    for row in rows:
        measured = f"{row.measured:.4g} {row.unit}"
        if row.low is not None and row.high is not None:
            measured += f" [{row.low:.3g}, {row.high:.3g}]"
        target = ""
        if row.target is not None:
            target = f"≤ {row.target:g}" + (f" {row.unit}" if row.ratio is None else " x")
        ratio = f"{row.ratio:.2f} x {row.reference}" if row.ratio is not None else ""
        lines.append((row.name, row.what, measured, ratio, target, row.verdict))
    widths = [max(len(line[i]) for line in lines) for i in range(6)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines
    )
