"""Finds the configuration with the shortest predicted step, by the model of a measured run.

A remedy changes one setting. The model also predicts what several changes do together: after more threads
fetch, too few may decode. So one experiment replaces a series of remedies. Knobs whose settings the model does
not contain, such as `subprocess`, keep their values.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from headspace._native import predict_steps
from headspace.tune.experiment import Outcome
from headspace.tune.plan.remedies import Proposed
from headspace.tune.space.knobs import Config, Knob, Space, Value, key

#: Maximum number of configurations that are predicted. Of more, only those on two greedy paths are.
MOST_PREDICTED = 600

#: Smallest predicted gain for which a configuration is proposed, as a share of the measured step.
LEAST_PREDICTED_GAIN = 0.02

#: Maximum number of values of a knob that is changed alone, value by value.
MOST_SINGLE = 4

#: Configurations whose predicted steps differ by less than this share are as good as each other. The one with
#: the fewest changes is proposed.
EQUAL = 0.005

#: Fields of a summary that the model does not use, because they are concluded from the others.
CONCLUSIONS = ("bottleneck", "remedies", "lines", "episodes", "findings")


class Setting(NamedTuple):
    """A setting of the measured run."""

    target: str | None
    """The stage or queue; None for the loader."""
    name: str
    """As in the records, such as `concurrency`."""
    value: float
    """Its value in the measured run."""


class Predicted(NamedTuple):
    """A configuration and its predicted step in milliseconds."""

    ms: float
    """As careful as the prediction of a remedy."""
    simulated_ms: float
    """By the simulation alone."""
    config: Config


class Predictions(NamedTuple):
    """What the model of one run predicts."""

    now: Config
    """The configuration of the run."""
    measured_ms: float
    """Its measured step."""
    steps: dict[str, Predicted]
    """The predicted configurations, by key."""


def predict(space: Space, now: Config, outcome: Outcome) -> Predictions | None:
    """Predicts configurations by the model of a run. None if the run has no model.

    Args:
        space: The knobs.
        now: The configuration of the run.
        outcome: The outcome of the run.
    """
    if outcome.step_ms is None or not outcome.summary:
        return None
    settings = _settings(space, now, outcome)
    predict_all = _predictor(settings, now, outcome)
    try:
        steps = predict_all(list(_candidates(space, now, settings, predict_all)))
    except ValueError:  # A record of another version of headspace.
        return None
    return Predictions(now, outcome.step_ms, steps)


def fastest(space: Space, found: Predictions, known: Collection[str]) -> Proposed | None:
    """The configuration with the shortest predicted step among those that are not `known`. None if none is
    predicted to be faster than the measured run.

    Args:
        space: The knobs.
        found: The predictions of a run.
        known: Keys of configurations that were tried, or are running.
    """
    steps = [step for name, step in found.steps.items() if name not in known]
    if not steps:
        return None
    shortest = min(one.ms for one in steps)
    if shortest > (1 - LEAST_PREDICTED_GAIN) * found.measured_ms:
        return None
    near = [one for one in steps if one.ms <= (1 + EQUAL) * shortest]
    shortest = min(one.simulated_ms for one in near)
    near = [one for one in near if one.simulated_ms <= (1 + EQUAL) * shortest]
    best = min(near, key=lambda one: (_distance(space, found.now, one.config), one.ms))
    what = space.describe(best.config, found.now)
    reason = f"The fastest configuration by the model of this run: {what}."
    return Proposed(best.config, reason, best.ms)


def without_prediction(
    space: Space, now: Config, found: Predictions | None
) -> Iterator[tuple[Knob, Config]]:
    """Configurations that differ from `now` in a single knob, of which the model predicts nothing. Knobs with few
    values come first. Those with more than `MOST_SINGLE` values are left to the sampler, and without a model all
    numbers are."""
    predicted = set(found.steps) if found else set()
    for knob in sorted(space.knobs, key=lambda knob: len(knob.values)):
        changed = [{**now, knob.name: value} for value in knob.values if value != now[knob.name]]
        is_predicted = any(key(config) in predicted for config in changed)
        is_open = not knob.is_number or (len(knob.values) <= MOST_SINGLE and predicted)
        if is_open and not is_predicted:
            yield from ((knob, config) for config in changed)


#: Predicts configurations. The result is by key. Some have no prediction.
_Predict = Callable[[Sequence[Config]], dict[str, Predicted]]


def _settings(space: Space, now: Config, outcome: Outcome) -> dict[str, list[Setting]]:
    """The settings that each knob changes, as far as the run has them."""
    found: dict[str, list[Setting]] = {}
    for names, setting in _measured_settings(outcome):
        for knob in space.knobs_of(*names):
            if _is_positive(knob, now[knob.name]):
                found.setdefault(knob.name, []).append(setting)
    return found


def _is_positive(knob: Knob, value: Value) -> bool:
    return knob.is_number and not isinstance(value, str) and value > 0


def _positive_values(knob: Knob) -> list[Value]:
    """The values with a prediction. 0 often means something else, such as no worker processes or no limit."""
    return [value for value in knob.values if _is_positive(knob, value)]


def _measured_settings(outcome: Outcome) -> Iterator[tuple[list[str], Setting]]:
    """The settings of a run, with the names that a knob may use for them."""
    summary, loader = outcome.summary, outcome.loader
    for field, name in (("workers", "num_workers"), ("prefetch_factor", "prefetch_factor")):
        if loader.get(field):
            yield [name], Setting(None, name, loader[field])
    for stage in summary.get("stages", ()):
        if stage.get("concurrency") and stage.get("within") is None:
            name = stage["name"]
            yield [f"{name}.concurrency"], Setting(name, "concurrency", stage["concurrency"])
    for queue in summary.get("queues", ()):
        if queue.get("capacity"):
            name = queue["name"]
            names = [*(["last.capacity"] if queue.get("last") else []), f"{name}.capacity"]
            yield names, Setting(name, "capacity", queue["capacity"])


def _predictor(
    settings: Mapping[str, Sequence[Setting]], now: Config, outcome: Outcome
) -> _Predict:
    """Predicts configurations, each once."""
    steps: dict[str, tuple[float, float] | None] = {}
    measured = {name: value for name, value in outcome.summary.items() if name not in CONCLUSIONS}
    summary = json.dumps(measured)
    loader = json.dumps({"name": "", "type": "", **outcome.loader})

    def changed(config: Config) -> list[tuple[str | None, str, int]]:
        return [
            (
                setting.target,
                setting.name,
                max(1, round(setting.value * _ratio(config[name], now[name]))),
            )
            for name, changed in settings.items()
            for setting in changed
            if config[name] != now[name]
        ]

    def predict_all(configs: Sequence[Config]) -> dict[str, Predicted]:
        new = [config for config in configs if key(config) not in steps]
        predicted = predict_steps(summary, loader, [changed(config) for config in new])
        steps.update(zip(map(key, new), predicted))
        found = ((config, steps[key(config)]) for config in configs)
        return {key(config): Predicted(*step, config) for config, step in found if step is not None}

    return predict_all


def _ratio(value: Value, now: Value) -> float:
    """How many times as large a value is. The knob may count in another unit than the setting."""
    return float(value) / float(now)


def _candidates(
    space: Space, now: Config, changed: Collection[str], predict: _Predict
) -> Iterator[Config]:
    """Configurations that differ in the knobs `changed`: all, or if they are too many, those on two greedy paths."""
    knobs = [knob for knob in space.knobs if knob.name in changed]
    if math.prod(len(knob.values) for knob in knobs) <= MOST_PREDICTED:
        for values in itertools.product(*map(_positive_values, knobs)):
            config = {**now, **{knob.name: value for knob, value in zip(knobs, values)}}
            if space.allowed(config):
                yield config
        return
    # Stages that are equally slow must be changed together. The path from the largest values does so.
    largest = {**now, **{knob.name: knob.values[-1] for knob in knobs}}
    for start in (now, largest):
        if space.allowed(start):
            yield from _greedy_path(space, knobs, start, predict)


def _greedy_path(
    space: Space, knobs: Sequence[Knob], start: Config, predict: _Predict
) -> Iterator[Config]:
    """Changes the knob that shortens the predicted step most, until none does."""
    at, shortest = start, math.inf
    while True:
        tried = [
            config
            for knob in knobs
            for value in _positive_values(knob)
            if space.allowed(config := {**at, knob.name: value})
        ]
        yield from tried
        steps = predict(tried)
        if not steps:
            return
        best = min(steps.values(), key=lambda one: one.simulated_ms)
        if best.simulated_ms >= (1 - EQUAL) * shortest:
            return
        at, shortest = best.config, best.simulated_ms


def _distance(space: Space, now: Config, config: Config) -> int:
    """How many values the knobs are moved, over all knobs."""
    return sum(
        abs(knob.values.index(config[knob.name]) - knob.values.index(now[knob.name]))
        for knob in space.knobs
    )
