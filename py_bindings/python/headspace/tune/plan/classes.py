"""Classes of experiments: kept, no gain, or how the experiment failed.

One rule says which experiments are kept. `--patience`, the report, the plots and `experiments.jsonl` use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from headspace.tune.experiment import SEARCHING, Kind, State, Trial
from headspace.tune.plan.objective import Cost, Objective, comparable_cost, gain

#: Smallest gain of an experiment that is kept, as a share of the cost of the last kept experiment. The
#: difference of two runs of one configuration has about this standard deviation (`RUN_TO_RUN` in
#: `statistics/precision.rs`, times the square root of 2).
LEAST_GAIN = 0.01


class Group(str, Enum):
    """A class without its subdivisions. The plots have a colour for each."""

    BASELINE = "baseline"
    KEPT = "kept"
    NO_GAIN = "no gain"
    FAILED = "failed"
    RERUN = "reruns"


class Class(str, Enum):
    """The class of an experiment."""

    BASELINE = "baseline"
    """It measured the baseline."""
    KEPT = "kept"
    """It was faster than the last kept experiment (before the first: the baseline) by at least `LEAST_GAIN`."""
    NO_GAIN = "no_gain"
    """It was measured and is not kept."""
    STOPPED_EARLY = "stopped_early"
    """It was significantly slower than the best, so it was stopped. It has no gain either."""
    TIMEOUT = "timeout"
    """It reached the time limit before it was measured."""
    STALLED = "stalled"
    """It had no further step for a long time."""
    CRASHED = "crashed"
    """It ended in an error after its first step."""
    STARTUP_FAILED = "startup_failed"
    """It ended, or hung, before its first step."""
    UNMEASURED = "unmeasured"
    """It ended without an error after too few steps, or its samples were not counted."""
    RERUN = "rerun"
    """It measured a configuration again. It is no part of the search."""

    @property
    def label(self) -> str:
        """The class in words."""
        return self.value.replace("_", " ")

    @property
    def group(self) -> Group:
        """The class without its subdivisions."""
        return _GROUPS.get(self, Group.FAILED)


#: The other classes are kinds of failure.
_GROUPS = {
    Class.BASELINE: Group.BASELINE,
    Class.KEPT: Group.KEPT,
    Class.NO_GAIN: Group.NO_GAIN,
    Class.STOPPED_EARLY: Group.NO_GAIN,
    Class.RERUN: Group.RERUN,
}

_BY_STATE = {
    State.STOPPED_EARLY: Class.STOPPED_EARLY,
    State.TIMEOUT: Class.TIMEOUT,
    State.STALLED: Class.STALLED,
    State.CRASHED: Class.CRASHED,
    State.STARTUP_FAILED: Class.STARTUP_FAILED,
}


@dataclass(frozen=True)
class Classified:
    """An experiment with its class."""

    trial: Trial
    category: Class
    cost: Cost | None
    """Cost of this run. None if it failed."""
    significant: bool = False
    """Whether it was kept, and the interval of its gain over the last kept experiment is above zero."""

    @property
    def searched(self) -> bool:
        """Whether it is part of the search, and not a run of a configuration that was measured before."""
        return self.trial.kind in SEARCHING


def classify(trials: Iterable[Trial], objective: Objective) -> tuple[Classified, ...]:
    """The experiments with their classes, in the same order.

    Args:
        trials: Experiments that have ended, ordered by number.
        objective: The quantity that is minimised.
    """
    found: list[Classified] = []
    best: Cost | None = None
    for trial in trials:
        one = comparable_cost(trial, objective)
        category = _class_of(trial, one, best)
        significant = False
        if category is Class.KEPT and one and best:
            over_best = gain([best], [one])
            significant = over_best is not None and over_best.sure
        if category in (Class.BASELINE, Class.KEPT):
            best = one
        found.append(Classified(trial, category, one, significant))
    return tuple(found)


def _class_of(trial: Trial, one: Cost | None, best: Cost | None) -> Class:
    """The class of an experiment with this cost, after the last kept experiment had the cost `best`."""
    ended = _BY_STATE.get(trial.outcome.state)
    if ended is not None:
        return ended
    if one is None:
        return Class.UNMEASURED
    if trial.kind not in SEARCHING:
        return Class.RERUN
    if trial.kind is Kind.BASELINE:
        return Class.BASELINE
    is_kept = best is None or one.ms < (1 - LEAST_GAIN) * best.ms
    return Class.KEPT if is_kept else Class.NO_GAIN


def count_since_kept(experiments: Sequence[Classified]) -> int:
    """Number of experiments of the search since the last one that was kept, or since the baseline."""
    since = 0
    for one in experiments:
        if one.category in (Class.BASELINE, Class.KEPT):
            since = 0
        elif one.searched:
            since += 1
    return since


@dataclass(frozen=True)
class HitRate:
    """How many experiments of the search were kept."""

    kept: int
    significant: int
    """Number of kept experiments whose gain is significant."""
    experiments: int
    """Number of experiments of the search that have ended, without the baseline."""

    @property
    def pct(self) -> float | None:
        """The share that was kept, in percent. None if there was no experiment."""
        return 100 * self.kept / self.experiments if self.experiments else None


def hit_rate_of(experiments: Iterable[Classified]) -> HitRate:
    """The hit rate of a search."""
    tried = [one for one in experiments if one.searched and one.trial.kind is not Kind.BASELINE]
    kept = [one for one in tried if one.category is Class.KEPT]
    return HitRate(len(kept), sum(one.significant for one in kept), len(tried))


def count_classes(experiments: Iterable[Classified]) -> dict[Class, int]:
    """Number of experiments of each class that occurs, without the reruns, in the order of `Class`."""
    found = [one.category for one in experiments if one.searched]
    return {category: found.count(category) for category in Class if category in found}
