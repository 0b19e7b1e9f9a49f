"""Computes a lower bound of a configuration's cost from stages measured in other configurations.

By the operational laws, a step takes at least `calls * time / concurrency` of each stage: calls per
batch, time per call, and calls at once (Denning and Buzen, *The Operational Analysis of Queueing Network
Models*, 1978). If this bound is above the best cost, other configurations are tried first.

Concurrent calls slow each other down, and other knobs can change the time of a call. So a measurement
applies only to configurations with at least the same concurrency of the stage, and with no other
difference that changes what a call does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headspace.tune.experiment import Trial
from headspace.tune.plan.objective import Objective, scale
from headspace.tune.space.knobs import Config, Knob, Space

#: A stage that uses a core for at most this percentage of a call mostly waits. Its calls take as long in
#: another process.
WAITS_PCT = 20.0

#: Settings that do not change what a call does, in the terms of remedies.
ONLY_PLACES = ("concurrency", "capacity", "prefetch_factor")


def bound(space: Space, trials: Sequence[Trial], objective: Objective) -> Callable[[Config], float]:
    """Returns the function that computes a configuration's least cost in ms; 0 if nothing is known."""
    known = [
        (knob, stage, trial.knobs, factor)
        for trial in trials
        if trial.outcome.measured and (factor := scale(trial.outcome, objective))
        for stage in trial.outcome.summary.get("stages", ())
        for knob in space.knobs_of(f"{stage['name']}.concurrency")
        if stage.get("within") is None
        and stage.get("mean_ms")
        and stage.get("calls_per_batch")
    ]

    def least(config: Config) -> float:
        # For each stage the lowest bound of all measurements; of these, the highest of all stages.
        found: dict[str, float] = {}
        for knob, stage, measured, factor in known:
            places = _places(knob, stage, measured, config)
            if places is not None and _applies_to(space, stage, measured, config):
                own = factor * stage["mean_ms"] * stage["calls_per_batch"] / places
                found[stage["name"]] = min(own, found.get(stage["name"], own))
        return max(found.values(), default=0.0)

    return least


def _places(knob: Knob, stage: Mapping[str, Any], measured: Config, config: Config) -> float | None:
    """The stage's concurrency in `config`; None if it is lower than the measured one."""
    then, now = measured[knob.name], config[knob.name]
    if isinstance(then, str) or isinstance(now, str) or now < then or then <= 0:
        return None
    return float(stage.get("concurrency") or then) * now / then


def _applies_to(space: Space, stage: Mapping[str, Any], measured: Config, config: Config) -> bool:
    """Whether a call takes the same time in both configurations, judged by their knobs."""
    waits = stage.get("cpu_pct", 100.0) <= WAITS_PCT
    return all(
        measured[knob.name] == config[knob.name]
        or (knob.turns and all(turn.rpartition(".")[2] in ONLY_PLACES for turn in knob.turns))
        or (waits and "subprocess" in knob.turns)
        for knob in space.knobs
    )
