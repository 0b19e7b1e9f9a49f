"""Draws `progress.svg`: the cost of each experiment with its interval, the best so far, and the floor.

Below are a panel with the SM utilisation of each experiment and one with its duration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headspace.tune.experiment import Kind
from headspace.tune.output.drawing import (
    MARKS,
    Scale,
    bar,
    document,
    legend,
    line,
    text,
    ticks_of,
    with_tooltip,
)
from headspace.tune.output.summary import SearchSummary, seconds_of, sm_pct_of
from headspace.tune.output.wording import (
    NO_DURATION,
    NO_SM,
    describe_classes,
    describe_hit_rate,
    format_seconds,
)
from headspace.tune.plan.classes import Class, Classified

WIDTH = 960
LEFT, RIGHT, TOP = 64, 150, 106
PANEL, SMALL, GAP = 300, 110, 58

#: Height of a sentence that replaces a panel.
SENTENCE = 26

_LEGEND = (
    ('<circle class="baseline" cx="{x}" cy="{y}" r="4"/>', "baseline"),
    ('<circle class="kept" cx="{x}" cy="{y}" r="5"/>', "kept"),
    ('<circle class="nogain" cx="{x}" cy="{y}" r="4"/>', "no gain"),
    ('<circle class="open" cx="{x}" cy="{y}" r="4"/>', "stopped early"),
    (
        '<g transform="translate({x} {y})"><path class="fail" d="M-4 -4l8 8m0 -8l-8 8"/></g>',
        "failed",
    ),
    ('<circle class="rerun" cx="{x}" cy="{y}" r="4"/>', "run again"),
    ('<g transform="translate({x} {y})"><path class="promise" d="M-5 0h10"/></g>', "predicted"),
)


def progress_svg(found: SearchSummary) -> str:
    """The progress plot: experiments from left to right, cost upwards."""
    experiments = found.experiments
    body = [
        text(24, 30, f"Steady step of {len(experiments)} experiments", "title"),
        text(24, 52, describe_classes(found), "quiet"),
        legend(30, 76, _LEGEND),
    ]
    rate = describe_hit_rate(found)
    if rate:
        body.append(text(WIDTH - 24, 30, f"hit rate {rate}", "quiet", "end"))
    right = WIDTH - RIGHT

    def x(place: float) -> float:
        return LEFT + (place + 0.5) * (right - LEFT) / max(len(experiments), 1)

    base: float = TOP + PANEL
    known = [one.cost for one in experiments if one.cost is not None]
    if not known:
        body.append(text(LEFT, TOP + 40, "No experiment was measured yet.", "quiet"))
        return document(WIDTH, base + 64, "headspace tune: progress", body)
    top = max(min(one.high, 1.3 * one.ms) for one in known) * 1.04
    body += _cost_panel(found, top, x, right)
    again = next((place for place, one in enumerate(experiments) if not one.searched), None)
    if again is not None:
        edge = x(again - 0.5)
        body.append(line("rule", edge, TOP, edge, base))
        body.append(text(edge + 6, TOP + 2, "run again", "quiet"))
    for panel in (_sm_panel, _duration_panel):
        drawn, height = panel(experiments, x, base, right)
        body += drawn
        base += height
    body.append(text((LEFT + right) / 2, base + 40, "experiment", "quiet", "middle"))
    return document(WIDTH, base + 64, "headspace tune: progress", body)


def _cost_panel(found: SearchSummary, top: float, x: Scale, right: float) -> list[str]:
    def y(ms: float) -> float:
        return TOP + PANEL * (1 - min(ms, top) / top)

    body = []
    for tick in ticks_of(0.0, top):
        body.append(line("rule", LEFT, y(tick), right, y(tick)))
        body.append(text(LEFT - 8, y(tick) + 4, f"{tick:g}", "quiet", "end"))
    body.append(text(24, TOP - 8, found.objective.unit, "quiet"))
    body += _marks(found.experiments, x, y, right)
    now = found.standing
    if now.floor_ms is not None:
        body.append(line("floor", LEFT, y(now.floor_ms), right, y(now.floor_ms)))
        is_below = now.best_cost is not None and now.best_cost.ms > now.floor_ms
        label = min(y(now.floor_ms) + (16 if is_below else -6), TOP + PANEL)
        body.append(text(right + 8, label, f"floor {now.floor_ms:.1f} ms", "quiet"))
    return body + _numbers(found.experiments, x, TOP + PANEL)


def _numbers(experiments: Sequence[Classified], x: Scale, base: float) -> list[str]:
    """The numbers of the experiments, below a panel."""
    every = max(1, math.ceil(len(experiments) / 24))
    return [
        text(x(place), base + 18, f"{one.trial.number}", "quiet", "middle")
        for place, one in enumerate(experiments)
        if place % every == 0
    ]


def _marks(experiments: Sequence[Classified], x: Scale, y: Scale, right: float) -> list[str]:
    """A mark for each experiment, and the line of the best cost so far."""
    body, path, best = [], "", math.inf
    for place, found in enumerate(experiments):
        at, trial, one = x(place), found.trial, found.cost
        promised = trial.proposal.predicted_ms
        name = f"#{trial.number} {found.category.label}"
        if promised is not None and trial.kind in (Kind.MODEL, Kind.REMEDY):
            body.append(line("promise", at - 6, y(promised), at + 6, y(promised)))
        if one is None:
            mark = f'<path class="fail" d="M{at - 4:.1f} {TOP + 4}l8 8m0 -8l-8 8"/>'
            body.append(with_tooltip(f"{name}: {trial.outcome.detail}", mark))
            continue
        body.append(line("whisker", at, y(one.low), at, y(one.high)))
        is_measured = found.searched and trial.outcome.measured
        if is_measured and one.ms < best:
            best = one.ms
            path += f"H{at:.1f}V{y(best):.1f}" if path else f"M{at:.1f} {y(best):.1f}"
        is_open = found.category is Class.STOPPED_EARLY
        css = "open" if is_open else MARKS[found.category.group]
        radius = 5 if found.category is Class.KEPT else 4
        mark = f'<circle class="{css}" cx="{at:.1f}" cy="{y(one.ms):.1f}" r="{radius}"/>'
        body.append(with_tooltip(f"{name}: {one.ms:.2f} ms. {trial.proposal.reason}", mark))
    if path:
        body.insert(0, f'<path class="best" d="{path}H{right:.1f}"/>')
        body.append(text(right + 8, y(best) + 4, f"best run {best:.1f} ms", "good"))
    return body


def _sm_panel(
    experiments: Sequence[Classified], x: Scale, base: float, right: float
) -> tuple[list[str], float]:
    """The SM utilisation of each experiment that has one, below `base`, and the height of the panel."""
    if all(sm_pct_of(one.trial) is None for one in experiments):
        return [text(24, base + SENTENCE + 18, NO_SM, "quiet")], SENTENCE
    top = base + GAP
    body = [text(24, top - 8, "SM utilisation, %", "quiet")]

    def y(pct: float) -> float:
        return top + SMALL * (1 - min(pct, 100) / 100)

    for tick in (0, 50, 100):
        body.append(line("rule", LEFT, y(tick), right, y(tick)))
        body.append(text(LEFT - 8, y(tick) + 4, f"{tick}", "quiet", "end"))
    for place, one in enumerate(experiments):
        pct, at = sm_pct_of(one.trial), x(place)
        if pct is not None:
            mark = f'<circle class="sm" cx="{at:.1f}" cy="{y(pct):.1f}" r="4"/>'
            stem = bar("sm", at - 1, y(pct), 2, top + SMALL - y(pct))
            body.append(with_tooltip(f"#{one.trial.number}: {pct:.1f} %", stem, mark))
    return body + _numbers(experiments, x, top + SMALL), GAP + SMALL


def _duration_panel(
    experiments: Sequence[Classified], x: Scale, base: float, right: float
) -> tuple[list[str], float]:
    """A bar for the duration of each experiment, in the colour of its group, and the height of the panel."""
    known = [seconds for one in experiments if (seconds := seconds_of(one.trial)) is not None]
    if not known:
        return [text(24, base + SENTENCE + 18, NO_DURATION, "quiet")], SENTENCE
    top = base + GAP
    longest = max(known)
    unit, size = ("min", 60.0) if longest >= 300 else ("s", 1.0)
    head = f"duration of an experiment, {unit} (all: {format_seconds(sum(known))})"
    body = [text(24, top - 8, head, "quiet")]

    def y(seconds: float) -> float:
        return top + SMALL * (1 - seconds / longest)

    for tick in ticks_of(0.0, longest / size):
        body.append(line("rule", LEFT, y(tick * size), right, y(tick * size)))
        body.append(text(LEFT - 8, y(tick * size) + 4, f"{tick:g}", "quiet", "end"))
    width = min(18.0, 0.6 * (x(1) - x(0)))
    for place, one in enumerate(experiments):
        seconds = seconds_of(one.trial)
        if seconds is not None:
            css = MARKS[one.category.group]
            drawn = bar(css, x(place) - width / 2, y(seconds), width, top + SMALL - y(seconds), 1)
            words = f"#{one.trial.number} {one.category.label}: {format_seconds(seconds)}"
            body.append(with_tooltip(words, drawn))
    return body + _numbers(experiments, x, top + SMALL), GAP + SMALL
