"""Draws `tree.svg`: which experiment led to which, with the changed knobs. Kept experiments are green."""

from __future__ import annotations

from headspace.tune.experiment import Kind, Trial
from headspace.tune.output.drawing import bar, document, legend, shorten, text, with_tooltip
from headspace.tune.output.summary import SearchSummary
from headspace.tune.plan.classes import Class, Classified, Group

TOP, ROW, COLUMN, BOX = 80, 46, 40, 460

_BOX = '<g transform="translate({{x}} {{y}})"><rect class="{css}" x="-8" y="-5" width="14" height="10" rx="3"/></g>'
_LEGEND = (
    (_BOX.format(css="green"), "kept"),
    (_BOX.format(css="green won"), "best"),
    (_BOX.format(css="box"), "no gain"),
    (_BOX.format(css="box lost"), "failed"),
    ('<g transform="translate({x} {y})"><path class="way" d="M-8 0h14"/></g>', "way to the best"),
)


def tree_svg(found: SearchSummary) -> str:
    """The tree plot: one experiment per row, each below the one that led to it."""
    shown = [one for one in found.experiments if one.searched]
    numbers = {one.trial.number for one in shown}
    children: dict[int | None, list[Classified]] = {}
    for one in shown:
        parent = one.trial.proposal.parent
        children.setdefault(parent if parent in numbers else None, []).append(one)
    rows: list[tuple[Classified, int]] = []
    stack = [(one, 0) for one in reversed(children.get(None, []))]
    while stack:
        one, depth = stack.pop()
        rows.append((one, depth))
        stack += [(child, depth + 1) for child in reversed(children.get(one.trial.number, []))]
    deepest = max((depth for _, depth in rows), default=0)
    width = max(560, 48 + deepest * COLUMN + BOX)
    height = TOP + max(1, len(rows)) * ROW + 12
    body = [text(24, 30, "Which experiment led to which", "title"), legend(34, 56, _LEGEND)]
    by_number: dict[int | None, Trial] = {one.trial.number: one.trial for one in shown}
    way = _ancestors(found.winner, by_number)
    row_of = {one.trial.number: place for place, (one, _) in enumerate(rows)}
    depth_of = {one.trial.number: depth for one, depth in rows}
    edges: list[str] = []
    boxes: list[str] = []
    for place, (one, depth) in enumerate(rows):
        left, top = 24 + depth * COLUMN, TOP + place * ROW
        parent = one.trial.proposal.parent
        if parent in row_of:
            from_x = 24 + depth_of[parent] * COLUMN + 16
            from_y = TOP + row_of[parent] * ROW + ROW - 10
            css = "way" if one.trial.number in way else "edge"
            edge = f'<path class="{css}" d="M{from_x} {from_y}V{top + 18}H{left}"/>'
            edges.insert(0 if css == "edge" else len(edges), edge)
        boxes.append(_node(one, (left, top), found, by_number.get(parent)))
    return document(width, height, "headspace tune: tree", body + edges + boxes)


def _ancestors(trial: Trial | None, by_number: dict[int | None, Trial]) -> set[int]:
    found: set[int] = set()
    while trial is not None and trial.number not in found:
        found.add(trial.number)
        trial = by_number.get(trial.proposal.parent)
    return found


def _node(
    one: Classified, corner: tuple[float, float], found: SearchSummary, parent: Trial | None
) -> str:
    left, top = corner
    trial, category = one.trial, one.category
    is_baseline = trial.kind is Kind.BASELINE
    is_winner = found.winner is not None and trial.number == found.winner.number
    words = "baseline" if is_baseline else ""
    words = (
        words or found.space.describe(trial.knobs, parent.knobs if parent else None) or "the same"
    )
    css = {Group.KEPT: "green", Group.FAILED: "box lost"}.get(category.group, "box")
    css = "green won" if is_winner else css
    if one.cost is None:
        result, style = category.label, "badtext"
    else:
        early = category is Class.STOPPED_EARLY
        is_good = is_winner or category is Class.KEPT
        result, style = f"{one.cost.ms:.1f} ms", "good" if is_good else "quiet" if early else ""
    promised = trial.proposal.predicted_ms
    parts = [] if is_baseline else [trial.kind.value, category.label]
    if promised is not None:
        parts.append(f"predicted {promised:.1f} ms")
    elif trial.kind is Kind.REMEDY:
        parts.append("no prediction")
    parts += ["best"] if is_winner else []
    return with_tooltip(
        trial.proposal.reason,
        bar(css, left, top, BOX - 24, 36, 6),
        text(left + 10, top + 15, shorten(f"#{trial.number} {words}", 46)),
        text(left + BOX - 34, top + 15, result, style, "end"),
        text(left + 10, top + 30, ", ".join(parts), "quiet"),
    )
