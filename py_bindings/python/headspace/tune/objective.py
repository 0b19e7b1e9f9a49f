"""Who is better, so that a lucky run does not win.

A configuration's cost is the mean of its runs, in milliseconds a step (or a sample), with an interval.
One run's interval is the record's own. Of several runs it is also at least as wide as they differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from headspace.tune.experiment import Outcome, Trial
from headspace.tune.knobs import Config, key

#: Half-width of the interval of a run that tells none, as a share of the step.
UNKNOWN_SHARE = 0.1

#: 97.5 % quantile of Student's t by degrees of freedom from 1 (any table of it).
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


def t_quantile(freedom: int) -> float:
    """97.5 % quantile of Student's t; beyond the table 2.23 at most, which is on the safe side."""
    return _T[min(freedom, len(_T)) - 1]


class Objective(str, Enum):
    """What is made small."""

    STEP = "step"
    """Milliseconds a step in steady state."""
    THROUGHPUT = "throughput"
    """Milliseconds a sample in steady state: for where knobs change how many are in a batch."""


@dataclass(frozen=True)
class Cost:
    """A cost in milliseconds and its 95 % interval."""

    ms: float
    low: float
    high: float
    runs: int = 1

    @property
    def half(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2

    def beats_beyond_doubt(self, other: Cost) -> bool:
        """Whether the intervals lie apart."""
        return self.high < other.low


def scale(outcome: Outcome, objective: Objective) -> float | None:
    """What the step's milliseconds are multiplied by; None where samples were not counted."""
    if objective is Objective.STEP:
        return 1.0
    rate = outcome.summary.get("throughput_samples_per_s")
    step = outcome.summary.get("steady_step_mean_ms")
    return 1000.0 / (rate * step) if rate and step else None


def cost(outcome: Outcome, objective: Objective) -> Cost | None:
    """What a run cost; None where it was not measured."""
    factor = scale(outcome, objective)
    if outcome.step_ms is None or factor is None:
        return None
    step = outcome.step_ms
    low, high = outcome.interval_ms or (step * (1 - UNKNOWN_SHARE), step * (1 + UNKNOWN_SHARE))
    return Cost(step * factor, low * factor, high * factor)


def pool(costs: Sequence[Cost]) -> Cost:
    """Several runs of one configuration."""
    count = len(costs)
    mean = math.fsum(one.ms for one in costs) / count
    if count == 1:
        return costs[0]
    within = math.sqrt(math.fsum(one.half**2 for one in costs)) / count
    spread = (max(one.ms for one in costs) - min(one.ms for one in costs)) / 2
    half = max(within, spread)
    return Cost(mean, mean - half, mean + half, count)


def by_config(trials: Iterable[Trial], objective: Objective) -> dict[str, tuple[Config, Cost]]:
    """Each measured configuration with its cost, by key. Probes do not count: their live steps are
    few, and what surrounds them is not as in training."""
    runs: dict[str, tuple[Config, list[Cost]]] = {}
    for trial in trials:
        if trial.kind.value == "probe" or not trial.outcome.measured:
            continue
        if one := cost(trial.outcome, objective):
            runs.setdefault(key(trial.knobs), (trial.knobs, []))[1].append(one)
    return {name: (config, pool(costs)) for name, (config, costs) in runs.items()}


@dataclass(frozen=True)
class Gain:
    """How much less one costs than another, in percent of the other, with its 95 % interval."""

    pct: float
    low: float
    high: float
    pairs: int

    @property
    def sure(self) -> bool:
        """Whether it is more than noise."""
        return self.low > 0


def gain(baseline: Sequence[Cost], winner: Sequence[Cost]) -> Gain | None:
    """The gain of interleaved runs: two-sample interval by the pooled spread of the runs (Student),
    and at least as wide as the intervals of the runs themselves make it."""
    pairs = min(len(baseline), len(winner))
    if pairs == 0:
        return None
    before, after = pool(baseline), pool(winner)
    within = math.hypot(*(_standard(side) for side in (baseline, winner)))
    half = within
    freedom = len(baseline) + len(winner) - 2
    if freedom > 0:
        squares = math.fsum(
            (one.ms - side.ms) ** 2
            for side, runs in ((before, baseline), (after, winner))
            for one in runs
        )
        spread = math.sqrt(squares / freedom * (1 / len(baseline) + 1 / len(winner)))
        half = max(half, t_quantile(freedom) * spread)
    by = before.ms - after.ms
    return Gain(
        100 * by / before.ms, 100 * (by - half) / before.ms, 100 * (by + half) / before.ms, pairs
    )


def _standard(runs: Sequence[Cost]) -> float:
    """Half-width of the mean of runs by their own intervals."""
    return math.sqrt(math.fsum(one.half**2 for one in runs)) / len(runs)
