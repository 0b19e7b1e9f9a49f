"""Draws two plots of a search as SVG, which follow the reader's light or dark theme.

`progress.svg` shows the cost of each experiment with its interval, the best so far, the floor, and SM
utilisation if there is a GPU. `tree.svg` shows which experiment led to which, with the changed knobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from headspace.tune.experiment import SEARCHING, Kind, State, Trial
from headspace.tune.plan.objective import Cost, Objective, comparable_cost
from headspace.tune.plan.planner import standing, winner_of
from headspace.tune.space.knobs import Space

_STYLE = """
:root { color-scheme: light dark; --card: #ffffff; --ink: #1b2230; --quiet: #566074;
  --rule: #dfe3ea; --best: #0f7a4d; --dot: #1d64c2; --bad: #b45309; --soft: #8a94a8; --sm: #7c3aed; }
@media (prefers-color-scheme: dark) { :root { --card: #171d27; --ink: #e8ecf3; --quiet: #a4aec0;
  --rule: #2a3342; --best: #4fd39a; --dot: #6aaef8; --bad: #f2a541; --soft: #7d889d; --sm: #c4a0ff; } }
text { fill: var(--ink); font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans",
  sans-serif; font-variant-numeric: tabular-nums; }
.card { fill: var(--card); } .title { font-size: 15px; font-weight: 600; }
.quiet { fill: var(--quiet); font-size: 12px; }
.rule { stroke: var(--rule); } .whisker { stroke: var(--soft); stroke-width: 1.5; }
.dot { fill: var(--soft); } .kept { fill: var(--best); } .open { fill: var(--card);
  stroke: var(--soft); stroke-width: 1.5; } .fail { stroke: var(--bad); stroke-width: 2; }
.promise { stroke: var(--dot); stroke-width: 2; }
.best { fill: none; stroke: var(--best); stroke-width: 2; }
.floor { stroke: var(--best); stroke-dasharray: 5 4; stroke-width: 1.5; }
.sm { fill: none; stroke: var(--sm); stroke-width: 1.5; } .smdot { fill: var(--sm); }
.edge { fill: none; stroke: var(--rule); stroke-width: 1.5; }
.way { fill: none; stroke: var(--best); stroke-width: 2.5; }
.box { fill: var(--card); stroke: var(--rule); } .won { stroke: var(--best); stroke-width: 2; }
.lost { stroke: var(--bad); }
.good { fill: var(--best); font-weight: 600; } .badtext { fill: var(--bad); }
"""

#: Converts a value to a coordinate of the plot.
Scale = Callable[[float], float]

WIDTH = 960
LEFT, RIGHT, TOP = 64, 140, 56
PANEL, SMALL, GAP = 300, 110, 48


def _document(width: float, height: float, title: str, body: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect class="card" width="{width:g}" height="{height:g}" rx="10"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _text(x: float, y: float, words: str, css: str = "", anchor: str = "start") -> str:
    named = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named} text-anchor="{anchor}">{escape(words)}</text>'


def _line(css: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def ticks_of(low: float, high: float) -> list[float]:
    """About five round numbers between `low` and `high`."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    rough = span / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * by for by in (1, 2, 5, 10) if power * by >= rough)
    first = math.ceil(low / step)
    return [step * k for k in range(first, math.floor(high / step) + 1)]


def progress_svg(trials: Sequence[Trial], objective: Objective) -> str:
    """The progress plot: experiments from left to right, cost upwards."""
    costs = [(t, comparable_cost(t, objective)) for t in trials]
    now = standing(trials, objective)
    has_sm = any(t.outcome.summary.get("steady_sm_utilization_pct") is not None for t in trials)
    height = TOP + PANEL + (GAP + SMALL if has_sm else 0) + 64
    body = [_text(24, 30, f"Steady step of {len(trials)} experiments", "title"), _legend()]
    known = [one for _, one in costs if one is not None]
    if not known:
        body.append(_text(LEFT, TOP + 40, "No experiment was measured yet.", "quiet"))
        return _document(WIDTH, height, "headspace tune: progress", body)
    top = max(min(one.high, 1.3 * one.ms) for one in known) * 1.04
    right = WIDTH - RIGHT

    def x(place: float) -> float:
        return LEFT + (place + 0.5) * (right - LEFT) / max(len(trials), 1)

    def y(ms: float) -> float:
        return TOP + PANEL * (1 - min(ms, top) / top)

    for tick in ticks_of(0.0, top):
        body.append(_line("rule", LEFT, y(tick), right, y(tick)))
        body.append(_text(LEFT - 8, y(tick) + 4, f"{tick:g}", "quiet", "end"))
    body.append(_text(24, TOP - 6, objective.unit, "quiet"))
    body += _marks(costs, x, y, right)
    if now.floor_ms is not None:
        body.append(_line("floor", LEFT, y(now.floor_ms), right, y(now.floor_ms)))
        low = y(now.floor_ms) + (16 if now.best_cost and now.best_cost.ms > now.floor_ms else -6)
        body.append(
            _text(right + 8, min(low, TOP + PANEL), f"floor {now.floor_ms:.1f} ms", "quiet")
        )
    base = TOP + PANEL
    every = max(1, math.ceil(len(trials) / 24))
    for place, trial in enumerate(trials):
        if place % every == 0:
            body.append(_text(x(place), base + 18, f"{trial.number}", "quiet", "middle"))
    again = next((p for p, t in enumerate(trials) if t.kind not in SEARCHING), None)
    if again is not None:
        edge = x(again - 0.5)
        body.append(_line("rule", edge, TOP, edge, base))
        body.append(_text(edge + 6, TOP + 2, "run again", "quiet"))
    if has_sm:
        body += _sm_panel(trials, x, base + GAP, right)
        base += GAP + SMALL
    body.append(_text((LEFT + right) / 2, base + 40, "experiment", "quiet", "middle"))
    return _document(WIDTH, height, "headspace tune: progress", body)


def _legend() -> str:
    x = 330.0
    parts = []
    for mark, words in (
        ('<circle class="kept" cx="{x}" cy="26" r="4.5"/>', "a new best"),
        ('<circle class="dot" cx="{x}" cy="26" r="4"/>', "no better"),
        ('<circle class="open" cx="{x}" cy="26" r="4"/>', "stopped early"),
        ('<path class="fail" d="M{a} 22l8 8m0 -8l-8 8"/>', "failed"),
        ('<path class="promise" d="M{a} 26h9"/>', "predicted"),
    ):
        parts.append(mark.format(x=f"{x:g}", a=f"{x - 4:g}") + _text(x + 10, 30, words, "quiet"))
        x += 34 + 7 * len(words)
    return "".join(parts)


def _marks(
    costs: Sequence[tuple[Trial, Cost | None]], x: Scale, y: Scale, right: float
) -> list[str]:
    """A mark for each experiment, and the line of the best cost so far."""
    body, path, best = [], "", math.inf
    for place, (trial, one) in enumerate(costs):
        at = x(place)
        promised = trial.proposal.predicted_ms
        name = f"#{trial.number} {trial.outcome.ending}"
        if promised is not None and trial.kind in (Kind.MODEL, Kind.REMEDY):
            body.append(_line("promise", at - 6, y(promised), at + 6, y(promised)))
        if one is None:
            body.append(
                f'<g><title>{escape(f"{name}: {trial.outcome.detail}")}</title><path class="fail" '
                f'd="M{at - 4:.1f} {TOP + 4}l8 8m0 -8l-8 8"/></g>'
            )
            continue
        body.append(_line("whisker", at, y(one.low), at, y(one.high)))
        css, radius = "dot", 4.0
        if trial.outcome.state is State.STOPPED_EARLY:
            css = "open"
        elif one.ms < best and trial.kind in SEARCHING:
            best, css, radius = one.ms, "kept", 5.0
            path += f"H{at:.1f}V{y(best):.1f}" if path else f"M{at:.1f} {y(best):.1f}"
        body.append(
            f"<g><title>{escape(f'{name}: {one.ms:.2f} ms. {trial.proposal.reason}')}"
            f'</title><circle class="{css}" cx="{at:.1f}" cy="{y(one.ms):.1f}" r="{radius:g}"/></g>'
        )
    if path:
        body.append(f'<path class="best" d="{path}H{right:.1f}"/>')
        body.append(_text(right + 8, y(best) + 4, f"best run {best:.1f} ms", "good"))
    return body


def _sm_panel(shown: Sequence[Trial], x: Scale, top: float, right: float) -> list[str]:
    body = [_text(24, top - 8, "SM utilisation, %", "quiet")]
    for tick in (0, 50, 100):
        level = top + SMALL * (1 - tick / 100)
        body.append(_line("rule", LEFT, level, right, level))
        body.append(_text(LEFT - 8, level + 4, f"{tick}", "quiet", "end"))
    path = ""
    for place, trial in enumerate(shown):
        pct = trial.outcome.summary.get("steady_sm_utilization_pct")
        if pct is None:
            continue
        at, level = x(place), top + SMALL * (1 - min(pct, 100) / 100)
        path += f"{'L' if path else 'M'}{at:.1f} {level:.1f}"
        body.append(f'<circle class="smdot" cx="{at:.1f}" cy="{level:.1f}" r="3"/>')
    body.append(f'<path class="sm" d="{path}"/>')
    return body


ROW, COLUMN, BOX = 46, 40, 460


def tree_svg(trials: Sequence[Trial], space: Space, objective: Objective) -> str:
    """The tree plot: one experiment per row, each below the one that led to it."""
    shown = [t for t in trials if t.kind in SEARCHING]
    numbers = {t.number for t in shown}
    children: dict[int | None, list[Trial]] = {}
    for trial in shown:
        parent = trial.proposal.parent
        children.setdefault(parent if parent in numbers else None, []).append(trial)
    rows: list[tuple[Trial, int]] = []
    stack = [(trial, 0) for trial in reversed(children.get(None, []))]
    while stack:
        trial, depth = stack.pop()
        rows.append((trial, depth))
        stack += [(child, depth + 1) for child in reversed(children.get(trial.number, []))]
    deepest = max((depth for _, depth in rows), default=0)
    width = max(560, 48 + deepest * COLUMN + BOX)
    height = TOP + max(1, len(rows)) * ROW + 12
    body = [_text(24, 30, "Which experiment led to which", "title")]
    won = winner_of(trials, objective) if rows else None
    way = _ancestors(won, {t.number: t for t in shown})
    row_of = {trial.number: place for place, (trial, _) in enumerate(rows)}
    depth_of = {trial.number: depth for trial, depth in rows}
    edges: list[str] = []
    boxes: list[str] = []
    for place, (trial, depth) in enumerate(rows):
        left, top = 24 + depth * COLUMN, TOP + place * ROW
        parent = trial.proposal.parent
        if parent in row_of:
            from_x = 24 + depth_of[parent] * COLUMN + 16
            from_y = TOP + row_of[parent] * ROW + ROW - 10
            css = "way" if trial.number in way else "edge"
            edge = f'<path class="{css}" d="M{from_x} {from_y}V{top + 18}H{left}"/>'
            edges.insert(0 if css == "edge" else len(edges), edge)
        boxes += _node(trial, (left, top), space, objective, trial is won, trials)
    return _document(width, height, "headspace tune: tree", body + edges + boxes)


def _ancestors(trial: Trial | None, by_number: dict[int | None, Trial]) -> set[int]:
    found: set[int] = set()
    while trial is not None and trial.number not in found:
        found.add(trial.number)
        trial = by_number.get(trial.proposal.parent)
    return found


def _node(
    trial: Trial,
    corner: tuple[float, float],
    space: Space,
    objective: Objective,
    won: bool,
    trials: Sequence[Trial],
) -> list[str]:
    left, top = corner
    one = comparable_cost(trial, objective)
    parent = next((t for t in trials if t.number == trial.proposal.parent), None)
    words = "baseline" if trial.kind is Kind.BASELINE else ""
    words = words or space.describe(trial.knobs, parent.knobs if parent else None) or "the same"
    if len(words) > 42:
        words = words[:41].rstrip() + "…"
    css = "box won" if won else "box" if one else "box lost"
    if one is None:
        result, style = trial.outcome.ending, "badtext"
    else:
        early = trial.outcome.state is State.STOPPED_EARLY
        result, style = f"{one.ms:.1f} ms", "good" if won else "quiet" if early else ""
    promised = trial.proposal.predicted_ms
    by = trial.kind.value if trial.kind in SEARCHING and trial.kind is not Kind.BASELINE else ""
    if trial.outcome.state is State.STOPPED_EARLY:
        by += ", stopped early"
    quiet = by + (f", predicted {promised:.1f} ms" if promised is not None else "")
    return [
        f"<g><title>{escape(trial.proposal.reason)}</title>"
        f'<rect class="{css}" x="{left:.1f}" y="{top:.1f}" width="{BOX - 24}" height="36" rx="6"/>',
        _text(left + 10, top + 15, f"#{trial.number} {words}"),
        _text(left + BOX - 34, top + 15, result, style, "end"),
        _text(left + 10, top + 30, quiet, "quiet") + "</g>",
    ]
