"""Summarizes a search in typed values. The report, the plots and the result files show these values.

The ladder divides the gain of the winner over the baseline into the contributions of the knobs. Its rungs are
the kept experiments in their order, and then the winner. Kept experiments that are not faster by the mean of all
their runs are left out, and so are changes that a later rung undoes. If a rung changes several knobs, and
experiments measured parts of this change, the rung is divided there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from headspace.tune.experiment import Trial
from headspace.tune.plan.classes import (
    Class,
    Classified,
    Group,
    HitRate,
    classify,
    hit_rate_of,
)
from headspace.tune.plan.objective import Cost, Objective
from headspace.tune.plan.planner import Standing, standing, winner_of
from headspace.tune.space.knobs import Config, Space, key


@dataclass(frozen=True)
class Change:
    """A knob with another value."""

    knob: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """The change in words."""
        return f"{self.knob} {self.before} → {self.after}"


@dataclass(frozen=True)
class Rung:
    """A step of the ladder: a configuration, and what it gains over the one before."""

    trial: Trial
    """The first measurement of the configuration."""
    changes: tuple[Change, ...]
    """The knobs that differ from the rung before, or from the baseline."""
    cost: Cost
    """The cost over all runs of the configuration."""
    gain_pct: float
    """How much less it costs than the rung before, in percent of the baseline. So the gains add up."""
    half_pct: float
    """Half of the 95 % interval of `gain_pct`."""

    @property
    def significant(self) -> bool:
        """Whether the interval of the gain excludes zero."""
        return abs(self.gain_pct) > self.half_pct


@dataclass(frozen=True)
class Ladder:
    """The way from the baseline to the winner."""

    baseline: Cost
    """The cost over all runs of the baseline."""
    rungs: tuple[Rung, ...]
    """The last one is the winner. Empty if the baseline is the winner."""

    @property
    def best(self) -> Cost:
        """The cost of the winner."""
        return self.rungs[-1].cost if self.rungs else self.baseline

    @property
    def gain_pct(self) -> float:
        """The sum of the gains of all rungs."""
        return 100 * (1 - self.best.ms / self.baseline.ms)


@dataclass(frozen=True)
class SearchSummary:
    """What a search has found so far."""

    space: Space
    objective: Objective
    experiments: tuple[Classified, ...]
    """All experiments, ordered by number."""
    standing: Standing
    winner: Trial | None
    """The first measurement of the winning configuration."""
    hit_rate: HitRate
    ladder: Ladder | None
    """None if the baseline or the winner was not measured."""

    @property
    def trials(self) -> list[Trial]:
        """The experiments without their classes."""
        return [one.trial for one in self.experiments]

    def sm_pct(self, config: Config) -> float | None:
        """Mean SM utilisation of the runs of a configuration. None if no record has it."""
        found = [sm_pct_of(t) for t in self.trials if t.knobs == config and t.outcome.measured]
        known = [pct for pct in found if pct is not None]
        return fmean(known) if known else None


def sm_pct_of(trial: Trial) -> float | None:
    """SM utilisation in steady state, in percent. None if the run measured no NVIDIA GPU."""
    pct: float | None = trial.outcome.summary.get("steady_sm_utilization_pct")
    return pct


def seconds_of(trial: Trial) -> float | None:
    """Duration of an experiment in seconds. None if it was not recorded."""
    return trial.outcome.seconds or None


def summarize(trials: Sequence[Trial], space: Space, objective: Objective) -> SearchSummary:
    """The summary of a search.

    Args:
        trials: Experiments that have ended, ordered by number.
        space: The knobs.
        objective: The quantity that is minimised.
    """
    experiments = classify(trials, objective)
    now = standing(trials, objective)
    winner = winner_of(trials, objective)
    ladder = _ladder_of(experiments, space, now, winner) if winner else None
    return SearchSummary(
        space, objective, experiments, now, winner, hit_rate_of(experiments), ladder
    )


def _ladder_of(
    experiments: Sequence[Classified], space: Space, now: Standing, winner: Trial
) -> Ladder | None:
    costs = {name: one for name, (_, one) in now.costs.items()}
    first: dict[str, Trial] = {}
    for one in experiments:
        if one.searched and one.trial.outcome.measured:
            first.setdefault(key(one.trial.knobs), one.trial)
    baseline = first.get(key(space.baseline))
    if baseline is None or key(baseline.knobs) not in costs:
        return None
    base = costs[key(baseline.knobs)]
    if key(winner.knobs) == key(baseline.knobs):
        return Ladder(base, ())
    way = [baseline]
    for one in experiments:
        is_kept = one.category is Class.KEPT and one.trial.number < winner.number
        # A kept experiment may owe its gain to chance. Reruns then show that it is not faster.
        if is_kept and costs[key(one.trial.knobs)].ms < costs[key(way[-1].knobs)].ms:
            way.append(one.trial)
    way.append(winner)
    measured = [trial for name, trial in first.items() if name in costs]
    divided = [baseline]
    for before, after in itertools.pairwise(way):
        divided += [*_between(before, after, measured, space), after]
    divided = _without_detours(divided)
    rungs = []
    for before, after in itertools.pairwise(divided):
        was, is_now = costs[key(before.knobs)], costs[key(after.knobs)]
        gain_pct = 100 * (was.ms - is_now.ms) / base.ms
        half_pct = 100 * math.hypot(was.half, is_now.half) / base.ms
        changes = _changes(space, before.knobs, after.knobs)
        rungs.append(Rung(after, changes, is_now, gain_pct, half_pct))
    return Ladder(base, tuple(rungs))


def _without_detours(way: Sequence[Trial]) -> list[Trial]:
    """The way without the parts after which it is back at an earlier configuration."""
    found: list[Trial] = []
    for trial in way:
        if trial in found:
            del found[found.index(trial) :]
        found.append(trial)
    return found


def _changes(space: Space, before: Config, after: Config) -> tuple[Change, ...]:
    return tuple(
        Change(knob.name, knob.text(before[knob.name]), knob.text(after[knob.name]))
        for knob in space.knobs
        if before[knob.name] != after[knob.name]
    )


def _between(before: Trial, after: Trial, measured: Sequence[Trial], space: Space) -> list[Trial]:
    """The longest chain of measured configurations from one to another in which each has more of the new values.

    Of several chains, the one with the earliest experiments is used.
    """
    old, new = before.knobs, after.knobs
    changed = {knob.name for knob in space.knobs if old[knob.name] != new[knob.name]}
    parts: list[tuple[frozenset[str], Trial]] = []
    for trial in measured:
        is_part = all(value in (old[name], new[name]) for name, value in trial.knobs.items())
        moved = frozenset(name for name in changed if trial.knobs[name] == new[name])
        if is_part and 0 < len(moved) < len(changed):
            parts.append((moved, trial))
    parts.sort(key=lambda part: (len(part[0]), part[1].number))
    chains: list[list[tuple[frozenset[str], Trial]]] = [[]]
    for part in parts:
        longest = max((chain for chain in chains if not chain or chain[-1][0] < part[0]), key=len)
        chains.append([*longest, part])
    return [trial for _, trial in max(chains, key=len)]


def seconds_by_group(experiments: Sequence[Classified]) -> dict[Group, float]:
    """Seconds of all experiments of each group together, in the order of `Group`."""
    spent = dict.fromkeys(Group, 0.0)
    for one in experiments:
        spent[one.category.group] += seconds_of(one.trial) or 0.0
    return {group: seconds for group, seconds in spent.items() if seconds}
