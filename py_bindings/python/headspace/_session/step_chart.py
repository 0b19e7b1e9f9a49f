"""Draws the steps of a run over time, for the output of a notebook cell.

The picture is an inline SVG with attributes only. Notebooks remove scripts, and some remove style sheets. Text and
rules have the colour of the notebook's text, so they are readable in a light and in a dark theme.
"""

from __future__ import annotations

import math
from html import escape

from headspace._native import duration_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headspace._session.step_history import Interval

#: Width of the picture in its own units. It shrinks with the cell.
WIDTH = 760.0

#: Space around the plot: for the labels of the axes, and for the legend.
LEFT, RIGHT, TOP, BOTTOM = 62.0, 8.0, 26.0, 22.0

#: A step longer than this number of medians is drawn at the upper edge. Otherwise the first step, in which the program
#: often compiles or allocates, would flatten the rest.
MAX_MEDIANS = 4.0

#: Colours of the lines: those of the verdict in a notebook (`cli/src/page/assets/notebook.css`). The step has the colour
#: of the text, as in the chart of `headspace report --html`.
STEP, WAIT, FLOOR = "currentColor", "#d97a16", "#17a067"


def draw_steps(
    intervals: Sequence[Interval], loop: str, floor_ms: float | None, *, height: float = 200.0
) -> str:
    """A chart of the mean step and the mean wait over time, with the floor as a line.

    Args:
        intervals: The points, in order.
        loop: Name of the loop.
        floor_ms: The floor in milliseconds; None if it is not known.
        height: Height of the picture, in the units of `WIDTH`.

    Returns:
        The SVG element. Empty if fewer than two intervals have steps.
    """
    steps = [(interval.end_s, interval.step_ms(loop)) for interval in intervals]
    known = sorted(step for _, step in steps if step is not None)
    if len(known) < 2:
        return ""
    waits = [(interval.end_s, interval.wait_ms(loop)) for interval in intervals]
    longest = known[-1]
    top = min(longest, MAX_MEDIANS * known[len(known) // 2])
    top = 1.08 * max(top, floor_ms or 0.0) or 1.0
    begin_s, end_s = steps[0][0], steps[-1][0]

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (seconds - begin_s) / ((end_s - begin_s) or 1.0)

    def y(ms: float) -> float:
        return height - BOTTOM - (height - BOTTOM - TOP) * min(ms, top) / top

    legend = [("step", STEP), ("waiting for data", WAIT)]
    parts = [*_y_axis(top, y), *_x_axis(begin_s, end_s, x, height)]
    if floor_ms is not None:
        legend.append((f"floor {duration_ms(floor_ms)}", FLOOR))
        parts.append(_rule(FLOOR, y(floor_ms), 'stroke-width="1.5" stroke-dasharray="6 4"'))
    parts += [_curve(WAIT, waits, x, y), _curve(STEP, steps, x, y)]
    parts += _legend(legend)
    if longest > top:
        words = f"cut off: up to {duration_ms(longest)}"
        parts.append(_text(WIDTH - RIGHT, TOP - 12, words, "end"))
    last = next(step for _, step in reversed(steps) if step is not None)
    label = f"Step over time, at the end {duration_ms(last)}"
    label += f"; floor {duration_ms(floor_ms)}" if floor_ms is not None else ""
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" width="100%" style="max-width:{WIDTH:g}px" '
        f'role="img" aria-label="{escape(label)}" font-size="12" fill="none">'
        + "".join(parts)
        + "</svg>"
    )


def _curve(
    colour: str,
    points: Iterable[tuple[float, float | None]],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> str:
    """A line through the points. It has a gap where a value is missing."""
    path, is_open = "", False
    for seconds, value in points:
        if value is not None:
            # `h0` shows a point as a dot if both its neighbours are missing.
            path += f"{'L' if is_open else 'M'}{x(seconds):.1f} {y(value):.1f}"
            path += "" if is_open else "h0"
        is_open = value is not None
    return f'<path d="{path}" stroke="{colour}" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round"/>'


def _y_axis(top: float, y: Callable[[float], float]) -> list[str]:
    parts = []
    for value in _round_values(0.0, top, 4):
        parts.append(_rule("currentColor", y(value), 'stroke-opacity="0.2"'))
        parts.append(_text(LEFT - 8, y(value) + 4, duration_ms(value) if value else "0", "end"))
    return parts


def _x_axis(begin_s: float, end_s: float, x: Callable[[float], float], height: float) -> list[str]:
    longest = end_s - begin_s
    unit, seconds = next(
        (pair for pair in (("h", 3600.0), ("min", 60.0)) if longest >= 2 * pair[1]), ("s", 1.0)
    )
    return [
        _text(x(value * seconds), height - 6, f"{value:g} {unit}", "middle")
        for value in _round_values(begin_s / seconds, end_s / seconds, 8)
        # A label at the edge would be cut.
        if LEFT + 8 <= x(value * seconds) <= WIDTH - RIGHT - 16
    ]


def _round_values(low: float, high: float, most: int) -> list[float]:
    """At most `most + 1` round numbers between `low` and `high`."""
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(power * by for by in (1, 2, 5, 10) if power * by * most >= high - low)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(step * number, 12) for number in range(first, last + 1)]


def _rule(colour: str, y: float, attributes: str) -> str:
    ends = f'x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"'
    return f'<line {ends} stroke="{colour}" {attributes}/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor" '
        f'fill-opacity="0.8">{escape(words)}</text>'
    )


def _legend(entries: Iterable[tuple[str, str]]) -> list[str]:
    parts, x = [], LEFT
    for words, colour in entries:
        parts.append(f'<rect x="{x:.1f}" y="9" width="14" height="3" fill="{colour}"/>')
        parts.append(_text(x + 20, TOP - 12, words, "start"))
        x += 44 + 7 * len(words)
    return parts
