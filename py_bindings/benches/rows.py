"""One line of the result: the measured value, its reference, and whether the target is met."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """A measured value and its target."""

    name: str
    what: str
    measured: float
    unit: str
    #: Upper limit of `ratio`, or of `measured` if there is no ratio. None: no target.
    target: float | None = None
    #: Ends of the 95 % interval of `measured`.
    low: float | None = None
    high: float | None = None
    #: Name of the reference, and `measured` divided by the reference's value.
    reference: str | None = None
    ratio: float | None = None

    @property
    def verdict(self) -> str:
        """`pass`, `miss`, or `unclear` if the interval is too wide or contains the target. Empty without a target."""
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
