"""Parts of SVG pictures that follow the reader's light or dark theme."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from headspace.tune.plan.classes import Group

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
.baseline { fill: var(--ink); } .kept { fill: var(--best); } .nogain { fill: var(--soft); }
.rerun { fill: var(--dot); } .failed { fill: var(--bad); } .sm { fill: var(--sm); }
.open { fill: var(--card); stroke: var(--soft); stroke-width: 1.5; }
.interval { fill: none; stroke: var(--ink); stroke-width: 1.5; }
.link { stroke: var(--soft); stroke-dasharray: 2 2; }
.fail { stroke: var(--bad); stroke-width: 2; }
.promise { stroke: var(--dot); stroke-width: 2; }
.best { fill: none; stroke: var(--best); stroke-width: 2; }
.floor { stroke: var(--best); stroke-dasharray: 5 4; stroke-width: 1.5; }
.edge { fill: none; stroke: var(--rule); stroke-width: 1.5; }
.way { fill: none; stroke: var(--best); stroke-width: 2.5; }
.box { fill: var(--card); stroke: var(--rule); } .lost { stroke: var(--bad); }
.green { fill: var(--best); fill-opacity: 0.12; stroke: var(--best); } .won { stroke-width: 3; }
.rest { fill: var(--rule); }
.good { fill: var(--best); font-weight: 600; } .badtext { fill: var(--bad); }
"""

#: Style of the marks of each group.
MARKS = {
    Group.BASELINE: "baseline",
    Group.KEPT: "kept",
    Group.NO_GAIN: "nogain",
    Group.FAILED: "failed",
    Group.RERUN: "rerun",
}

#: Converts a value to a coordinate of the plot.
Scale = Callable[[float], float]


def document(width: float, height: float, title: str, body: Sequence[str]) -> str:
    """The whole picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect class="card" width="{width:g}" height="{height:g}" rx="10"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def text(x: float, y: float, words: str, css: str = "", anchor: str = "start") -> str:
    """A line of text. `y` is its base line."""
    named = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named} text-anchor="{anchor}">{escape(words)}</text>'


def line(css: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """A straight line."""
    return f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def bar(css: str, x: float, y: float, width: float, height: float, radius: float = 0) -> str:
    """A rectangle. A length below zero is zero."""
    return (
        f'<rect class="{css}" x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" '
        f'height="{max(0.0, height):.1f}" rx="{radius:g}"/>'
    )


def with_tooltip(words: str, *parts: str) -> str:
    """Parts of a picture with a text that appears below the pointer."""
    return f"<g><title>{escape(words)}</title>{''.join(parts)}</g>"


def legend(x: float, y: float, entries: Sequence[tuple[str, str]]) -> str:
    """Marks with their meaning, from left to right. In a mark, `{x}` and `{y}` are its centre."""
    parts = []
    for mark, words in entries:
        parts.append(mark.format(x=f"{x:g}", y=f"{y - 4:g}") + text(x + 10, y, words, "quiet"))
        x += 34 + 7 * len(words)
    return "".join(parts)


def shorten(words: str, most: int) -> str:
    """A text of at most `most` characters."""
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


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
