"""Converts the remedies of a verdict to configurations of knobs.

A remedy says, for example, that the step takes 54 ms if `decode.concurrency` goes from 1 to 2. This
module sets the knob that changes this setting. If the knob has no value 2, it takes another one, without a
prediction. Remedies with high confidence are first tried together, because one expensive experiment then
tests all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headspace.tune.space.knobs import Config, Knob, Space, Value, is_same_value, key

#: Lowest confidence of a remedy that counts as sure.
SURE = 0.5


@dataclass(frozen=True)
class Move:
    """A change of one knob."""

    knob: str
    value: Value
    predicted_ms: float
    """The step that the remedy predicts. If its gain is unknown, this is the present step."""
    sure: bool
    what: str
    is_predicted: bool = True
    """Whether the prediction applies: the gain is known, and the knob has the value of the remedy."""


@dataclass(frozen=True)
class Proposed:
    """A configuration that remedies lead to."""

    knobs: Config
    reason: str
    predicted_ms: float
    """The prediction of the remedies. The proposals are tried in its order."""
    is_predicted: bool = True
    """Whether the prediction applies to these knobs. Otherwise it is only used for the order."""


def proposals(space: Space, now: Config, summary: Mapping[str, Any]) -> Iterator[Proposed]:
    """Configurations that the verdict of a run with the knobs `now` leads to, the most promising first.

    The order is: the sure remedies together, all remedies together, each one alone.
    """
    found = moves(space, now, summary)
    sure = [move for move in found if move.sure]
    seen = {key(now)}
    for group in (sure, found, *([move] for move in found)):
        proposed = _combine(space, now, group)
        if proposed is not None and key(proposed.knobs) not in seen:
            seen.add(key(proposed.knobs))
            yield proposed


def _combine(space: Space, now: Config, group: Sequence[Move]) -> Proposed | None:
    """Applies as many of the moves as are possible together."""
    config, taken = dict(now), list[Move]()
    for move in group:
        tried = {**config, move.knob: move.value}
        if config[move.knob] == now[move.knob] and space.allowed(tried):
            config = tried
            taken.append(move)
    if not taken:
        return None
    reason = " ".join(move.what for move in taken)
    predicted = min(move.predicted_ms for move in taken)
    return Proposed(config, reason, predicted, all(move.is_predicted for move in taken))


def moves(space: Space, now: Config, summary: Mapping[str, Any]) -> list[Move]:
    """The remedies that a knob can apply, the best first."""
    last = {queue["name"] for queue in summary.get("queues", ()) if queue.get("last")}
    found = []
    for remedy in summary.get("remedies", ()):
        if remedy.get("obstacle"):
            # The processes would not start, or would share open files: the program must be changed first.
            continue
        for knob in _knobs_for(space, remedy, last):
            target = _target(knob, now[knob.name], remedy)
            if target is None or target[0] == now[knob.name]:
                continue
            value, note = target
            is_known = not remedy.get("at_least")
            unknown = "" if is_known else " (The gain is unknown.)"
            found.append(
                Move(
                    knob.name,
                    value,
                    float(remedy["predicted_step_ms"]),
                    float(remedy.get("confidence", 0)) >= SURE and is_known,
                    f"{remedy['what']}{note}{unknown}",
                    is_known and not note,
                )
            )
            break
    return found


def _knobs_for(space: Space, remedy: Mapping[str, Any], last: set[str]) -> list[Knob]:
    """The knobs that change the setting of a remedy, the most specific one first."""
    names = [str(remedy.get("code", ""))]
    change = remedy.get("change")
    if change:
        names = [str(change["knob"])]
        if change.get("setting") == "capacity" and change.get("target") in last:
            names.insert(0, "last.capacity")
    return space.knobs_of(*names)


def _target(knob: Knob, now: Value, remedy: Mapping[str, Any]) -> tuple[Value, str] | None:
    """The value to which the remedy sets the knob. If it is not the value of the remedy, a note says so.

    None if the knob has no value in that direction.
    """
    change = remedy.get("change")
    if knob.is_switch:
        wanted = str(change["to"]).lower() if change else "true"
        return wanted in ("true", "yes", "on", "1"), ""
    if not knob.is_number or isinstance(now, str) or not change:
        return None
    try:
        start, end = float(change["from"]), float(change["to"])
    except ValueError:
        return None
    # The knob may count in another unit than the remedy: then it changes by the same factor.
    goal = end if start == now else now * (end / start if start > 0 else 2.0)
    value = knob.value_towards(now, goal)
    if value is None:
        return None
    if is_same_value(value, goal):
        return value, ""
    return value, f" (`{knob.name}` has no value {goal:g}. It is set to {knob.text(value)}.)"
