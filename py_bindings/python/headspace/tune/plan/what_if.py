"""What the what-if of the baseline says: the floor, and the knobs that need not be tried.

`docs/whatif.md` says how it measures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from headspace.tune.space.knobs import Knob, Space

#: The step without the work of all stages is the floor if it is at most this many times the compute of an
#: unchanged step. If it is longer, the loop still waits for work that was not left out.
MOST_OVER_COMPUTE = 1.1

#: A stage gains nothing if the upper end of its gain's interval is at most this, in percent.
NO_GAIN_PCT = 1.0


def floor_ms(summary: Mapping[str, Any]) -> float | None:
    """The step if data were free, in milliseconds: the shortest one that was measured without the work of stages. None
    if the loop still waited in it."""
    if summary.get("floor_step_ms"):
        return float(summary["floor_step_ms"])
    compute = summary.get("compute_ms")
    steps = [answer["step_ms"] for answer in _answers(summary, "cut", "free")]
    if not steps or not compute or min(steps) > MOST_OVER_COMPUTE * compute:
        return None
    return float(min(steps))


def left_out(space: Space, summary: Mapping[str, Any]) -> list[Knob]:
    """The knobs that change only the concurrency of stages that gain nothing.

    Without the work of such a stage, the step is as long as before. The stage alone also allows a shorter step than
    the floor, so it does not limit other configurations either, if its calls do not become longer there. Without a
    floor, no knob is left out.
    """
    floor = floor_ms(summary) or 0.0
    without_gain = {
        answer["stage"]
        for answer in _answers(summary, "free")
        if answer["gain_ci_pct"][1] <= NO_GAIN_PCT
    }
    idle = {
        f"{stage['name']}.concurrency"
        for stage in summary.get("stages", ())
        if stage["name"] in without_gain and _least_ms(stage) < floor
    }
    return [knob for knob in space.knobs if knob.turns and set(knob.turns) <= idle]


def _answers(summary: Mapping[str, Any], *interventions: str) -> Iterator[Mapping[str, Any]]:
    for answer in summary.get("what_if", ()):
        if not interventions or answer["intervention"] in interventions:
            yield answer


def _least_ms(stage: Mapping[str, Any]) -> float:
    """The shortest step that the stage allows in the baseline, in milliseconds. Infinite if it is unknown."""
    mean, calls = stage.get("mean_ms"), stage.get("calls_per_batch")
    if mean is None or calls is None:
        return math.inf
    return float(mean) * float(calls) / max(1.0, float(stage.get("concurrency") or 1.0))
