"""What measured stages say of configurations that were not run: the operational laws.

A stage whose calls take so long, so many of them for a batch and so many at once, holds the step above
`calls * time / places`, however all else is turned (Denning and Buzen, *The Operational Analysis of
Queueing Network Models*, 1978). A configuration that lies above the best by that need not be tried
before others.

The time of a call is another with more calls at once, since these slow each other, and with other
knobs. So a measurement speaks only of configurations with at least as many calls of the stage at once,
and that differ in nothing else that changes what a call does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headspace.tune.experiment import Trial
from headspace.tune.knobs import Config, Knob, Space
from headspace.tune.objective import Objective, scale

#: Share of a call's time in which a core works for it, in percent, up to which it waits: it takes as
#: long in another process.
WAITS_PCT = 20.0

#: What knobs may turn without changing what a call does, in the words of remedies.
ONLY_PLACES = ("concurrency", "capacity", "prefetch_factor")

Bound = Callable[[Config], float]


def bound(space: Space, trials: Sequence[Trial], objective: Objective) -> Bound:
    """The least cost of any configuration, in ms, by what was measured so far; 0 where that says
    nothing."""
    known = [
        (knob, stage, trial.knobs, factor)
        for trial in trials
        if trial.outcome.measured and (factor := scale(trial.outcome, objective))
        for stage in trial.outcome.summary.get("stages", ())
        for knob in space.knobs
        if f"{stage['name']}.concurrency" in knob.turns
        and stage.get("within") is None
        and stage.get("mean_ms")
        and stage.get("calls_per_batch")
    ]

    def least(config: Config) -> float:
        # The smallest of what several measurements say of one stage, the greatest of all stages.
        found: dict[str, float] = {}
        for knob, stage, measured, factor in known:
            places = _places(knob, stage, measured, config)
            if places is not None and _says_of(space, stage, measured, config):
                own = factor * stage["mean_ms"] * stage["calls_per_batch"] / places
                found[stage["name"]] = min(own, found.get(stage["name"], own))
        return max(found.values(), default=0.0)

    return least


def _places(knob: Knob, stage: Mapping[str, Any], measured: Config, config: Config) -> float | None:
    """Calls at once; None where there are fewer than were measured."""
    then, now = measured[knob.name], config[knob.name]
    if isinstance(then, str) or isinstance(now, str) or now < then or then <= 0:
        return None
    return float(stage.get("concurrency") or then) * now / then


def _says_of(space: Space, stage: Mapping[str, Any], measured: Config, config: Config) -> bool:
    """Whether a call takes the same in both, as far as knobs tell."""
    waits = stage.get("cpu_pct", 100.0) <= WAITS_PCT
    return all(
        measured[knob.name] == config[knob.name]
        or _turns_only_places(knob)
        or (waits and "subprocess" in knob.turns)
        for knob in space.knobs
    )


def _turns_only_places(knob: Knob) -> bool:
    return bool(knob.turns) and all(
        turned.rpartition(".")[2] in ONLY_PLACES for turned in knob.turns
    )
