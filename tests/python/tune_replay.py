"""Searches on recorded outcomes, to count the experiments until one is near the best.

A row of the record is a run of one configuration of a grid: a short run (`look`) of each, and longer runs
(`long`) of those near the best. If a configuration has longer runs, only these count. A search gets one of
the runs of a configuration, chosen by its seed. Whether a configuration is near the best depends on the mean
of all its runs, so that a lucky run does not count. The row `what_if` is the baseline's run with a what-if. All
searches begin with the baseline, with which a gain is compared.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution

from headspace.tune.experiment import Kind, Outcome, Proposal, State, Trial
from headspace.tune.plan.planner import Done, Limits, Planner
from headspace.tune.space.knobs import Config, Space, key

#: Maximum distance from the best configuration of the grid that counts as near, as a share of the best.
NEAR = 0.10

#: Fields of a summary that a row keeps, because the planner and the model use them.
KEPT = (
    "bottleneck",
    "compute_ms",
    "queues",
    "remedies",
    "resources",
    "stages",
    "steady_step_mean_ms",
    "throughput_samples_per_s",
    "wait_ms",
    "what_if",
    "what_if_status",
)

#: Significant digits of the numbers of a row.
DIGITS = 5


def row_of(kind: str, config: Config, outcome: Outcome) -> dict[str, Any]:
    """One line of the record."""
    summary = outcome.summary
    return {
        "kind": kind,
        "knobs": config,
        "state": outcome.state.value,
        "step_ms": _rounded(outcome.step_ms),
        "interval_ms": _rounded(outcome.interval_ms),
        "loader": _rounded(outcome.loader),
        "summary": {name: _rounded(summary[name]) for name in KEPT if name in summary},
    }


def _rounded(value: Any) -> Any:
    """A value with rounded numbers and without empty fields."""
    if isinstance(value, dict):
        rounded = ((name, _rounded(one)) for name, one in value.items())
        return {name: one for name, one in rounded if one not in (None, [])}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


@dataclass(frozen=True)
class Grid:
    """Recorded outcomes of every configuration."""

    space: Space
    runs: dict[str, list[Outcome]]
    """The outcomes of each configuration, by its key."""
    what_if: Outcome | None
    """The outcome of the baseline with a what-if."""

    def seen(self, config: Config, seed: int) -> Outcome:
        """The outcome of a configuration for a search with this seed."""
        runs = self.runs[key(config)]
        return runs[seed % len(runs)]

    def mean_ms(self, config: Config) -> float:
        """Mean step over a configuration's runs. Infinite if one of them failed."""
        runs = self.runs[key(config)]
        return statistics.fmean((o.step_ms or inf) if o.measured else inf for o in runs)

    @property
    def best_ms(self) -> float:
        return min(map(self.mean_ms, self.space.all()))

    def near(self, config: Config) -> bool:
        """Whether a configuration is near enough to the best."""
        return self.mean_ms(config) <= (1 + NEAR) * self.best_ms

    @property
    def near_count(self) -> int:
        return sum(self.near(config) for config in self.space.all())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of the record. If there is no record, the list is empty."""
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def config_of(row: dict[str, Any], space: Space) -> Config:
    """The configuration of a row."""
    return {knob.name: knob.read(row["knobs"][knob.name]) for knob in space.knobs}


def read_grid(path: Path, space: Space) -> Grid:
    """Reads the record."""
    return grid_of(read_rows(path), space)


def grid_of(rows: Iterable[dict[str, Any]], space: Space) -> Grid:
    looks: dict[str, list[Outcome]] = {}
    longer: dict[str, list[Outcome]] = {}
    what_if = None
    for row in rows:
        interval = row["interval_ms"]
        outcome = Outcome(
            State(row["state"]),
            row["step_ms"],
            interval and tuple(interval),
            summary=row["summary"],
            loader=row["loader"],
        )
        config = config_of(row, space)
        if row["kind"] == "what_if":
            what_if = outcome
        else:
            runs = longer if row["kind"] == "long" else looks
            runs.setdefault(key(config), []).append(outcome)
    return Grid(space, looks | longer, what_if)


def replay(grid: Grid, limits: Limits) -> Iterator[Trial]:
    """The experiments of `headspace tune`. Each run of a configuration has another recorded outcome."""
    planner, trials = Planner(grid.space, limits), list[Trial]()
    while not isinstance(proposal := planner.next(trials), Done):
        assert isinstance(proposal, Proposal)
        runs = sum(trial.knobs == proposal.knobs for trial in trials)
        outcome = grid.seen(proposal.knobs, limits.seed + runs)
        if proposal.kind is Kind.BASELINE and grid.what_if is not None:
            outcome = grid.what_if
        trials.append(Trial(len(trials), proposal, outcome=outcome))
        yield trials[-1]


def ours(grid: Grid, seed: int) -> Iterator[Config]:
    """The configurations that `headspace tune` runs."""
    limits = Limits(
        experiments=10**6,
        patience=10**6,
        near_floor=0.0,
        repeats=0,
        confirm=0,
        seed=seed,
    )
    return (trial.knobs for trial in replay(grid, limits))


def plain_tpe(grid: Grid, seed: int) -> Iterator[Config]:
    """Optuna with its defaults, starting with the baseline. A repeated proposal does not run again."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial(dict(grid.space.baseline))
    distributions = {knob.name: CategoricalDistribution(knob.values) for knob in grid.space.knobs}
    seen = set()
    while len(seen) < len(grid.runs):
        trial = study.ask(distributions)
        config = dict(trial.params)
        outcome = grid.seen(config, seed) if key(config) in grid.runs else None
        if outcome is None or outcome.step_ms is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        study.tell(trial, outcome.step_ms)
        if key(config) not in seen:
            seen.add(key(config))
            yield config


def at_random(grid: Grid, seed: int) -> Iterator[Config]:
    """The baseline, then all others in random order."""
    yield grid.space.baseline
    others = [c for c in grid.space.all() if key(c) != key(grid.space.baseline)]
    random.Random(seed).shuffle(others)
    yield from others


Search = Callable[[Grid, int], Iterator[Config]]

SEARCHES: dict[str, Search] = {"headspace tune": ours, "plain TPE": plain_tpe, "random": at_random}


def needed(grid: Grid, search: Search, seed: int) -> int:
    """The number of experiments until one is near the best, including that one."""
    for count, config in enumerate(search(grid, seed), 1):
        if grid.near(config):
            return count
    raise AssertionError("it never came near")
