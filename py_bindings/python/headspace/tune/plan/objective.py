"""Computes the cost of a configuration with its confidence interval, and the gain over the baseline.

The cost is the mean of the configuration's runs, in milliseconds per step (or per sample). The interval
of one run is the one in its record, but at least as wide as the variation between runs. The interval of
several runs is also at least as wide as their spread implies.

Two runs alone are too few to estimate how much runs differ (Student's t with one degree of freedom is 12.7). So
their spread is pooled with that of all other configurations that were run again, and with the runs' own
intervals (moderated t: Smyth, "Linear models and empirical Bayes methods", SAGMB 3(1), 2004).

For one run, and for one pair of runs, the interval is the same as in `headspace compare` on a machine
without other programs (`statistics/precision.rs`). With several runs, the two differ. `compare` reads from the
records how much other programs may have disturbed each run, and widens its interval by this amount. Here only
summaries are kept, so this amount is unknown. Therefore a run's own interval counts for only `ASSUMED`
degrees of freedom, and the interval of the gain is at least as wide as the measured spread implies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from headspace._native import FREEDOM, run_interval, t_quantile
from headspace.tune.experiment import Outcome, State, Trial
from headspace.tune.space.knobs import Config, key

#: Half-width of the interval of a run whose record has none, as a share of the step.
UNKNOWN_SHARE = 0.1

#: Degrees of freedom that one run's own interval counts for in the spread between runs. They are few,
#: since the interval does not contain the effect of other programs on the next run (`FREEDOM_OF_OTHERS`
#: in `statistics/precision.rs`).
ASSUMED = 3


class Objective(str, Enum):
    """The quantity that is minimised."""

    STEP = "step"
    """Milliseconds per step in steady state."""
    THROUGHPUT = "throughput"
    """Milliseconds per sample in steady state: for knobs that change the size of a batch."""

    @property
    def unit(self) -> str:
        """Unit of a cost."""
        return "ms per step" if self is Objective.STEP else "ms per sample"


@dataclass(frozen=True)
class Cost:
    """A cost in milliseconds and its 95 % interval."""

    ms: float
    low: float
    high: float
    runs: int = 1
    span: tuple[float, float] | None = None
    """The lowest and the highest cost of several runs."""

    @property
    def half(self) -> float:
        """How far the interval reaches above the mean. It reaches as far below the mean, but not below 0."""
        return self.high - self.ms


def scale(outcome: Outcome, objective: Objective) -> float | None:
    """Factor from milliseconds per step to a cost; None if samples are needed and were not counted."""
    if objective is Objective.STEP:
        return 1.0
    rate = outcome.summary.get("throughput_samples_per_s")
    step = outcome.summary.get("steady_step_mean_ms")
    return 1000.0 / (rate * step) if rate and step else None


def cost(outcome: Outcome, objective: Objective) -> Cost | None:
    """Cost of a run; None if its steps or samples were not counted."""
    factor = scale(outcome, objective)
    if outcome.step_ms is None or factor is None:
        return None
    step = outcome.step_ms
    low, high = outcome.interval_ms or (step * (1 - UNKNOWN_SHARE), step * (1 + UNKNOWN_SHARE))
    return Cost(step * factor, low * factor, high * factor)


def measured_cost(trial: Trial, objective: Objective) -> Cost | None:
    """Cost of a trial; None unless it measured its configuration."""
    return cost(trial.outcome, objective) if trial.outcome.measured else None


def comparable_cost(trial: Trial, objective: Objective) -> Cost | None:
    """Cost of a trial that was measured, or stopped early because it was slower; else None."""
    is_comparable = trial.outcome.measured or trial.outcome.state is State.STOPPED_EARLY
    return cost(trial.outcome, objective) if is_comparable else None


class Spread(NamedTuple):
    """How much runs of one configuration differ, over all configurations that were run again."""

    squares: float
    """Sum of the squared deviations from the configuration's mean, as shares of that mean."""
    freedom: int
    """Number of runs minus the number of configurations."""


def spread_of(groups: Iterable[Sequence[Cost]]) -> Spread:
    """The spread of the runs of several configurations."""
    squares, freedom = 0.0, 0
    for costs in groups:
        mean = math.fsum(one.ms for one in costs) / len(costs)
        squares += math.fsum((one.ms / mean - 1) ** 2 for one in costs)
        freedom += len(costs) - 1
    return Spread(squares, freedom)


def pool(costs: Sequence[Cost], spread: Spread | None = None) -> Cost:
    """Cost of one configuration over all its runs.

    Args:
        costs: The cost of each run.
        spread: The spread over all configurations, including this one. By default of this one alone.
    """
    count = len(costs)
    mean = math.fsum(one.ms for one in costs) / count
    half = _standard(costs)
    if count == 1:
        return Cost(mean, max(0.0, mean - half), mean + half)
    spread = spread or spread_of([costs])
    of_one = math.fsum((_half(one) / one.ms) ** 2 for one in costs) / count
    of_one /= t_quantile(FREEDOM) ** 2
    freedom = ASSUMED + spread.freedom
    variance = (ASSUMED * of_one + spread.squares) / freedom
    half = max(half, t_quantile(freedom) * mean * math.sqrt(variance / count))
    every = [one.ms for one in costs]
    return Cost(mean, max(0.0, mean - half), mean + half, count, (min(every), max(every)))


def by_config(trials: Iterable[Trial], objective: Objective) -> dict[str, tuple[Config, Cost]]:
    """Each measured configuration with its cost, by key."""
    runs: dict[str, tuple[Config, list[Cost]]] = {}
    for trial in trials:
        one = measured_cost(trial, objective)
        if one is not None:
            runs.setdefault(key(trial.knobs), (trial.knobs, []))[1].append(one)
    spread = spread_of(costs for _, costs in runs.values())
    return {name: (config, pool(costs, spread)) for name, (config, costs) in runs.items()}


@dataclass(frozen=True)
class Gain:
    """How much less the winner costs than the baseline, in percent of the baseline, with its 95 %
    interval."""

    pct: float
    low: float
    high: float
    pairs: int

    @property
    def sure(self) -> bool:
        """Whether it is significant: the whole interval is above zero."""
        return self.low > 0


def gain(baseline: Sequence[Cost], winner: Sequence[Cost]) -> Gain | None:
    """The gain of interleaved runs, with a two-sample interval from their pooled spread (Student).

    The interval is at least as wide as the runs' own intervals imply. These contain the variation
    between runs.
    """
    pairs = min(len(baseline), len(winner))
    if pairs == 0:
        return None
    before, after = pool(baseline), pool(winner)
    half = math.hypot(_standard(baseline), _standard(winner))
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
    low, high = 100 * (by - half) / before.ms, 100 * (by + half) / before.ms
    return Gain(100 * by / before.ms, low, min(100.0, high), pairs)


def _standard(runs: Sequence[Cost]) -> float:
    """Half-width of the mean of runs, from their own intervals and the variation between runs."""
    return math.hypot(*map(_half, runs)) / len(runs)


def _half(one: Cost) -> float:
    """Half-width of one run's interval, which contains the variation between runs."""
    return max(one.half, run_interval(one.ms)[1] - one.ms)
