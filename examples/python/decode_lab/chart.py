"""Draws the chart (SVG): clips/s over the size on disk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from .output import describe_row, group_name, groups_of, ratio_text
from .results import Row

# Okabe and Ito's palette: readers with colour blindness can distinguish the colours.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
# Width of the chart and edges of a plot, in pixels. The title and the format names are above the plot.
_WIDTH, _LEFT, _RIGHT_MARGIN, _TOP, _BOTTOM = 960, 62, 30, 94, 364
_HEIGHT = _BOTTOM + 56
#: Pixels between the points of two loaders at one format. A point is 8 pixels wide.
_STEP = 5
_LEGEND_WIDTH, _LEGEND_HEIGHT = 120, 18
_TARGET_STROKE = 'stroke="#b00020" stroke-dasharray="6 3" fill="none"'


def draw_chart(rows: Sequence[Row], target: float | None = None) -> str:
    """Clips/s over the size on disk, with one panel for each group. All panels have the same two logarithmic axes.

    Each point is a loader and a format, with the fastest number of workers. The dotted line of a format is at its
    size. Its points are side by side around this line, so that each is visible. The vertical line of a point is the
    95 % interval. A hollow point has errors or wrong frames. The dashed line is the rate `target`.

    A single panel is as wide as two.
    """
    # The rows of a group are sorted by rate. Reversed, the fastest row of a loader and format overwrites the others.
    groups = {
        group: list({(row.loader, row.format): row for row in reversed(members)}.values())
        for group, members in groups_of([row for row in rows if row.clips_per_s.value > 0]).items()
    }
    shown = [row for members in groups.values() for row in members]
    ends = [end for row in shown for end in _interval(row)] + ([target] if target else [])
    columns = 2 if len(groups) > 1 else 1
    panel_width = _WIDTH // columns
    ratios = [row.disk_ratio for row in shown]
    colours = {
        name: _COLOURS[k % len(_COLOURS)]
        for k, name in enumerate(sorted({row.loader for row in rows}))
    }
    axes = (
        _Axis(ratios, _LEFT, panel_width - _RIGHT_MARGIN, margin=_STEP * len(colours) / 2),
        _Axis(ends, _BOTTOM, _TOP),
    )
    marks = [
        (name, f'<circle cx="0" cy="-4" r="4" fill="{colour}"/>')
        for name, colour in colours.items()
    ]
    if target:
        marks.append((f"target {target:g} clips/s", f'<path d="M-12 -4H6" {_TARGET_STROKE}/>'))
    lines = -(-len(groups) // columns)
    width = _WIDTH + 30
    per_line = width // _LEGEND_WIDTH
    height = lines * _HEIGHT + -(-len(marks) // per_line) * _LEGEND_HEIGHT + 6
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (group, members) in enumerate(groups.items()):
        x, y = 10 + number % columns * panel_width, number // columns * _HEIGHT
        panel = _panel(group_name(group), members, colours, axes, target)
        out.append(f'<g transform="translate({x} {y})">{panel}</g>')
    for k, (name, mark) in enumerate(marks):
        x = 24 + k % per_line * _LEGEND_WIDTH
        y = lines * _HEIGHT + 10 + k // per_line * _LEGEND_HEIGHT
        out.append(
            f'<g transform="translate({x} {y})">{mark}<text x="10">{escape(name)}</text></g>'
        )
    return "\n".join([*out, "</svg>"])


def _interval(row: Row) -> tuple[float, float]:
    """The drawn ends of the interval. They are limited, because a logarithmic axis has no 0."""
    rate = row.clips_per_s
    return max(rate.value - rate.half, rate.value / 2), rate.value + min(rate.half, rate.value)


def _panel(
    title: str,
    rows: Sequence[Row],
    colours: dict[str, str],
    axes: tuple[_Axis, _Axis],
    target: float | None,
) -> str:
    horizontal, vertical = axes
    right = horizontal.end
    formats = _place_formats(rows, horizontal)
    places = _place_points(rows, formats)
    out = [f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(title)}</text>']
    out.append(f'<text x="{_LEFT - 46}" y="{_TOP - 8}" fill="#555">clips/s</text>')
    for tick in horizontal.ticks():
        x = horizontal.place(tick)
        out.append(f'<path d="M{x:.1f} {_TOP}V{_BOTTOM}" stroke="#e4e4e4"/>')
        out.append(
            f'<text x="{x:.1f}" y="{_BOTTOM + 15}" text-anchor="middle">{ratio_text(tick)}</text>'
        )
    for tick in vertical.ticks():
        y = vertical.place(tick)
        out.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#e4e4e4"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    out.append(
        f'<text x="{(_LEFT + right) / 2}" y="{_BOTTOM + 32}" text-anchor="middle" fill="#555">size on disk, as a multiple of the source</text>'
    )
    out += _format_names(formats)
    if target:
        y = vertical.place(target)
        out.append(f'<path d="M{_LEFT} {y:.1f}H{right}" {_TARGET_STROKE}/>')
    for row in rows:
        x, rate = places[row.format, row.loader], row.clips_per_s
        low, high = map(vertical.place, _interval(row))
        colour = colours[row.loader]
        tip = f"{describe_row(row)}: {rate.value:.1f} ± {rate.half:.1f} clips/s"
        fill = colour if row.usable else "white"
        out.append(f"<g><title>{escape(tip)}</title>")
        out.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}"/>')
        y = vertical.place(rate.value)
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}"/></g>')
    return "\n".join(out)


def _place_formats(rows: Sequence[Row], horizontal: _Axis) -> dict[str, float]:
    """The horizontal position of each format. Formats of about the same size are half a step apart."""
    sizes = {row.format: horizontal.place(row.disk_ratio) for row in rows}
    places = {}
    free = 0.0
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        places[name] = max(sizes[name], free)
        free = places[name] + _STEP / 2
    return places


def _place_points(
    rows: Sequence[Row], formats: Mapping[str, float]
) -> dict[tuple[str, str], float]:
    """The horizontal position of each point, by format and loader. A format's points are centred on its position."""
    places = {}
    for name, middle in formats.items():
        loaders = sorted(row.loader for row in rows if row.format == name)
        first = middle - _STEP * (len(loaders) - 1) / 2
        places.update({(name, loader): first + _STEP * k for k, loader in enumerate(loaders)})
    return places


def _format_names(places: Mapping[str, float]) -> list[str]:
    """Names above the plot, each with a dotted line to the middle of the points of its format."""
    out = []
    free = 0.0
    for name, x in sorted(places.items(), key=lambda entry: (entry[1], entry[0])):
        # The names of formats of about the same size must not overlap.
        at = max(x, free)
        free = at + 16
        line = f"M{at:.1f} {_TOP - 4}L{x:.1f} {_TOP + 8}V{_BOTTOM}"
        out.append(f'<path d="{line}" stroke="#999" stroke-dasharray="1 3" fill="none"/>')
        turn = f"translate({at + 3:.1f} {_TOP - 7}) rotate(-45)"
        out.append(f'<text transform="{turn}">{escape(name)}</text>')
    return out


class _Axis:
    """A logarithmic axis from `begin` to `end` in pixels. No value is nearer than `margin` to an end."""

    def __init__(
        self, values: Sequence[float], begin: float, end: float, margin: float = 0
    ) -> None:
        self._low = math.log10(min(values, default=1)) - 0.08
        self._high = math.log10(max(values, default=1)) + 0.16
        self.end = end
        self._first, self._last = begin + margin, end - margin

    def place(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._first + share * (self._last - self._first)

    def ticks(self) -> list[float]:
        decades = range(math.floor(self._low), math.ceil(self._high) + 1)
        steps = (1, 2, 5) if self._high - self._low < 2.5 else (1,)
        every = [step * 10.0**decade for decade in decades for step in steps]
        return [tick for tick in every if self._low <= math.log10(tick) <= self._high]
