"""Results of each combination, and the cheapest combinations for a target rate."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from math import inf

#: 97.5 % quantiles of Student's t distribution for 1 to 10 degrees of freedom (any table of it).
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Mean:
    """A mean over rounds, and half of its 95 % interval."""

    value: float
    half: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ± {self.half:.2g}"


def mean_of(values: list[float]) -> Mean:
    """The mean with the interval of Student's t distribution."""
    if len(values) < 2:
        return Mean(statistics.fmean(values), float("inf"))
    freedom = len(values) - 1
    # Above 10 degrees of freedom, the error of this expansion around the normal quantile is below 0.1 %.
    quantile = _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.37 / freedom + 2.9 / freedom**2
    return Mean(statistics.fmean(values), quantile * statistics.stdev(values) / len(values) ** 0.5)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    format: str
    loader: str
    pattern: str
    cache: str
    size: int
    pool: str
    workers: int
    clips_per_s: Mean
    frames_per_s: Mean
    cpu_s_per_clip: float | None
    requested_bytes_per_clip: float | None
    """Bytes of read calls, from the page cache or from storage."""
    storage_bytes_per_clip: float | None
    memory_bytes: float | None
    disk_bytes: int
    disk_ratio: float
    """Size on disk, as a multiple of the source's."""
    others_cores: float | None
    """Mean number of cores that other programs used during the measurement. They make clips/s too low."""
    cold_share: float
    """Share of the pages that were not in the page cache before a round (mean over the rounds)."""
    errors: int
    """Number of `clips` that could not be read."""
    clips: int
    error: str | None
    wrong_frames: int
    """Number of `checked_frames` that are not the requested ones."""
    checked_frames: int

    @property
    def usable(self) -> bool:
        return not self.errors and not self.wrong_frames

    @property
    def group(self) -> tuple[str, str, int]:
        """Rows of one group do the same work."""
        return self.pattern, self.cache, self.size


@dataclass(frozen=True)
class Advice:
    """The combinations that load clips at a target rate."""

    group: tuple[str, str, int]
    target: float
    options: tuple[Row, ...]
    """Combinations that reach the rate, sorted by CPU time. Each loader and format occurs at most once, with the
    fewest workers. No combination is in the list if another one needs no more workers, CPU time and disk space, and
    less of at least one of them."""
    fastest: Row | None
    """The fastest usable combination. None if there is no usable one."""


def advise(rows: list[Row], target: float) -> list[Advice]:
    """The cheapest combinations for each group. A target is reached if the whole interval is at least the target."""
    advice = []
    for group in dict.fromkeys(row.group for row in rows):
        usable = [row for row in rows if row.group == group and row.usable]
        enough = [row for row in usable if row.clips_per_s.value - row.clips_per_s.half >= target]
        fewest = _with_fewest_workers(enough)
        options = [row for row in fewest if not any(_better(other, row) for other in fewest)]
        options.sort(key=lambda row: (_cpu(row), row.workers))
        fastest = max(usable, key=lambda row: row.clips_per_s.value, default=None)
        advice.append(Advice(group, target, tuple(options), fastest))
    return advice


def _with_fewest_workers(rows: list[Row]) -> list[Row]:
    """For each loader and format, the row with the fewest workers. Among equals, that with the least CPU time.

    The measured CPU time is often slightly lower with more workers. This is no reason to use more workers.
    """
    found: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: (row.workers, _cpu(row))):
        found.setdefault((row.loader, row.format), row)
    return list(found.values())


def _cpu(row: Row) -> float:
    """CPU seconds per clip. An unknown time counts as the longest."""
    return inf if row.cpu_s_per_clip is None else row.cpu_s_per_clip


def _cost(row: Row) -> tuple[float, float, float]:
    return _cpu(row), float(row.disk_bytes), float(row.workers)


def _better(one: Row, other: Row) -> bool:
    return _cost(one) != _cost(other) and all(a <= b for a, b in zip(_cost(one), _cost(other)))
