"""Searches on recorded outcomes: how many experiments until one is near the best?

A row of the record is a run of one configuration of a grid: a short run (`look`) of each, and longer runs
(`long`) of those near the best. If a configuration has longer runs, only these count. A search gets one of
the runs of a configuration, chosen by its seed. Whether a configuration is near the best depends on the mean
of all its runs, so that a lucky run does not count. The row `probe` is the baseline's run with a probe. All
searches begin with the baseline, with which a gain is compared.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution

from headspace.tune.experiment import Kind, Outcome, Proposal, State, Trial
from headspace.tune.plan.planner import Done, Limits, Planner
from headspace.tune.space.knobs import Config, Space, key

#: How near to the grid's best is near enough, as a share of it.
NEAR = 0.10

#: Fields of a stage that a row keeps.
STAGE = ("name", "within", "concurrency", "calls_per_batch", "mean_ms", "cpu_pct")

#: Fields of a summary that a row keeps.
KEPT = ("floor_step_ms", "floor_ci_ms", "steady_step_mean_ms", "throughput_samples_per_s")


def row_of(kind: str, config: Config, outcome: Outcome) -> dict[str, Any]:
    """One line of the record: only the values that a planner uses."""
    summary = outcome.summary
    remedies = []
    for remedy in summary.get("remedies", ()):
        known = ("code", "what", "stage", "change", "predicted_step_ms", "at_least", "confidence")
        kept = {name: remedy[name] for name in known if name in remedy}
        kept["predicted_step_ms"] = round(kept["predicted_step_ms"], 2)
        kept["confidence"] = round(kept["confidence"], 2)
        remedies.append(kept)
    bottleneck = summary.get("bottleneck") or {}
    return {
        "kind": kind,
        "knobs": config,
        "state": outcome.state.value,
        "step_ms": outcome.step_ms and round(outcome.step_ms, 3),
        "interval_ms": outcome.interval_ms and [round(ms, 3) for ms in outcome.interval_ms],
        "bottleneck": {name: bottleneck.get(name) for name in ("kind", "name")},
        "remedies": remedies,
        "queues": [
            {"name": queue["name"], "last": queue["last"]} for queue in summary.get("queues", ())
        ],
        "stages": [
            {name: stage[name] for name in STAGE if stage.get(name) is not None}
            for stage in summary.get("stages", ())
        ],
        **{name: summary.get(name) for name in KEPT},
    }


@dataclass(frozen=True)
class Grid:
    """Recorded outcomes of every configuration."""

    space: Space
    runs: dict[str, list[Outcome]]
    """Of each configuration, by its key."""
    probe: Outcome | None

    def seen(self, config: Config, seed: int) -> Outcome:
        """The outcome of a configuration for a search with this seed."""
        runs = self.runs[key(config)]
        return runs[seed % len(runs)]

    def mean_ms(self, config: Config) -> float:
        """Mean step over a configuration's runs; infinite where one of them failed."""
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
    """The configuration that a row is of."""
    return {knob.name: knob.read(row["knobs"][knob.name]) for knob in space.knobs}


def read_grid(path: Path, space: Space) -> Grid:
    """Reads the record."""
    return grid_of(read_rows(path), space)


def grid_of(rows: Iterable[dict[str, Any]], space: Space) -> Grid:
    looks: dict[str, list[Outcome]] = {}
    longer: dict[str, list[Outcome]] = {}
    probe = None
    for row in rows:
        interval = row["interval_ms"]
        kept = (*KEPT, "remedies", "queues", "stages", "bottleneck")
        summary = {name: row[name] for name in kept if name in row}
        outcome = Outcome(
            State(row["state"]), row["step_ms"], interval and tuple(interval), summary=summary
        )
        config = config_of(row, space)
        if row["kind"] == "probe":
            probe = outcome
        else:
            runs = longer if row["kind"] == "long" else looks
            runs.setdefault(key(config), []).append(outcome)
    return Grid(space, looks | longer, probe)


def ours(grid: Grid, seed: int) -> Iterator[Config]:
    """The configurations that `headspace tune` runs, probe and all. A probe that is not in the record
    counts as an experiment that tells what the baseline told."""
    limits = Limits(
        experiments=10**6,
        patience=10**6,
        near_floor=0.0,
        repeats=0,
        confirm=0,
        seed=seed,
    )
    planner, trials = Planner(grid.space, limits), list[Trial]()
    while not isinstance(proposal := planner.next(trials), Done):
        assert isinstance(proposal, Proposal)
        outcome = grid.seen(proposal.knobs, seed)
        if proposal.kind is Kind.PROBE and grid.probe is not None:
            outcome = replace(grid.probe, step_ms=grid.probe.step_ms or outcome.step_ms)
        trials.append(Trial(len(trials), proposal, outcome=outcome))
        yield proposal.knobs


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
    """The baseline, then all others in any order."""
    yield grid.space.baseline
    others = [c for c in grid.space.all() if key(c) != key(grid.space.baseline)]
    random.Random(seed).shuffle(others)
    yield from others


Search = Callable[[Grid, int], Iterator[Config]]

SEARCHES: dict[str, Search] = {"headspace tune": ours, "plain TPE": plain_tpe, "random": at_random}


def needed(grid: Grid, search: Search, seed: int) -> int:
    """Experiments until one is near the best, that one among them."""
    for count, config in enumerate(search(grid, seed), 1):
        if grid.near(config):
            return count
    raise AssertionError("it never came near")
