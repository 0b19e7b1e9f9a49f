"""Writes the results: a table, words, JSON lines, a chart (SVG) and a page (HTML)."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from html import escape

from .formats import Clip, Stored
from .results import Advice, Row
from .wording import describe_workers, format_count

HEADINGS = (
    "format", "loader", "workers", "clips/s", "frames/s", "CPU s/clip", "read/clip", "storage/clip",
    "memory", "disk", "cold", "errors", "wrong frames",
)  # fmt: skip


def bytes_text(value: float | None) -> str:
    """The number with a decimal unit. A missing value is a dash."""
    if value is None:
        return "–"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        # From 999.5 on, a smaller unit would need a fourth digit.
        if value >= 0.9995 * scale:
            return f"{_number_text(value / scale)} {unit}"
    return f"{value:.0f} B"


def ratio_text(ratio: float) -> str:
    """A multiple, such as `0.43x` or `130x`."""
    return f"{_number_text(ratio)}x"


def _number_text(value: float) -> str:
    """Three digits, or all digits of a larger number. No exponent from 0.0001 on."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _cells(row: Row) -> list[str]:
    cpu = "–" if row.cpu_s_per_clip is None else f"{row.cpu_s_per_clip:.4f}"
    frames = row.frames_per_s
    return [
        row.format,
        row.loader,
        str(row.workers) if row.pool == "threads" else describe_workers(row.workers, row.pool),
        f"{row.clips_per_s.value:.1f} ± {row.clips_per_s.half:.1f}",
        f"{frames.value:.0f} ± {frames.half:.0f}",
        cpu,
        bytes_text(row.requested_bytes_per_clip),
        bytes_text(row.storage_bytes_per_clip),
        bytes_text(row.memory_bytes),
        ratio_text(row.disk_ratio),
        f"{row.cold_share:.0%}",
        f"{row.errors} of {row.clips}",
        f"{row.wrong_frames} of {row.checked_frames}",
    ]


def group_name(group: tuple[str, str, int]) -> str:
    pattern, cache, size = group
    frames = {"whole": "whole clips", "subclip": "random subclips", "sparse": "sparse frames"}
    pixels = f"{size} x {size} pixels" if size else "the size of the file"
    return f"{frames[pattern]}, {cache} page cache, {pixels}"


def groups_of(rows: Sequence[Row]) -> dict[tuple[str, str, int], list[Row]]:
    """The rows of each group, the fastest first."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: -row.clips_per_s.value):
        groups.setdefault(row.group, []).append(row)
    return {key: groups[key] for key in dict.fromkeys(row.group for row in rows)}


def table(headings: Sequence[str], lines: Sequence[Sequence[str]], left: int = 2) -> str:
    """Columns as wide as their contents. The first `left` columns are aligned to the left."""
    widths = [max(len(line[k]) for line in (headings, *lines)) for k in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in (headings, *lines)
    )


def results_text(rows: Sequence[Row]) -> str:
    parts = []
    for group, members in groups_of(rows).items():
        parts.append(group_name(group))
        parts.append(table(HEADINGS, [_cells(row) for row in members]) + "\n")
    return "\n".join(parts)


CLIP_HEADINGS = ("video", "size", "frames/s", "clips")


def _clip_lines(clips: Sequence[Clip]) -> list[list[str]]:
    """A line for each video that clips were cut from."""
    facts = Counter((c.video, f"{c.width} x {c.height}", f"{c.rate:.4g}") for c in clips)
    return [[*video, str(count)] for video, count in facts.items()]


def clips_text(clips: Sequence[Clip]) -> str:
    """Which videos the clips are from, and the size and the rate of their frames."""
    return table(CLIP_HEADINGS, _clip_lines(clips))


def formats_text(stored: Sequence[Stored], source_bytes: int) -> str:
    """Size, quality and encoding time of each format."""
    lines = [
        [
            entry.format,
            bytes_text(entry.bytes),
            ratio_text(entry.bytes / source_bytes),
            "identical" if entry.psnr_db is None else f"{entry.psnr_db:.1f} dB",
            f"{entry.encode_s:.1f} s",
        ]
        for entry in stored
    ]
    return table(("format", "disk", "of source", "PSNR", "encoding"), lines, left=1)


def describe_row(row: Row) -> str:
    """The combination in words."""
    workers = format_count(row.workers, "worker" if row.pool == "threads" else "worker process")
    return f"{workers} of {row.loader} on {row.format}"


def cores_text(row: Row, target: float) -> str:
    """The cores that a combination uses at that rate."""
    if row.cpu_s_per_clip is None:
        return "CPU time unknown"
    return f"{row.cpu_s_per_clip * target:.2f} cores"


def advice_text(advice: Sequence[Advice]) -> str:
    """The cheapest combinations in words."""
    lines = []
    for entry in advice:
        goal = f"{entry.target:g} clips/s ({group_name(entry.group)})"
        if entry.options:
            choices = [
                f"{describe_row(row)} ({row.clips_per_s.value:.0f} ± {row.clips_per_s.half:.0f} clips/s, "
                f"{cores_text(row, entry.target)}, {ratio_text(row.disk_ratio)} the disk)"
                for row in entry.options[:4]
            ]
            lines.append(f"To feed {goal} you need " + ", or ".join(choices) + ".")
        elif entry.fastest is None:
            lines.append(f"No combination loads {goal} without errors.")
        else:
            best = entry.fastest
            text = f"No measured combination reaches {goal} with its whole interval. "
            rate = best.clips_per_s
            text += (
                f"The fastest is {describe_row(best)}: {rate.value:.1f} ± {rate.half:.1f} clips/s."
            )
            if best.cpu_s_per_clip:
                cores = best.cpu_s_per_clip * entry.target
                text += (
                    f" The target takes {cores:.1f} cores if its CPU time per clip does not change."
                )
            lines.append(text)
    return "\n".join(lines)


def json_line(kind: str, content: dict[str, object]) -> str:
    """One record. Infinite numbers are null."""

    def finite(value: object) -> object:
        if isinstance(value, dict):
            return {key: finite(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [finite(entry) for entry in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps({"kind": kind, **finite(content)})  # type: ignore[dict-item]


def row_record(row: Row) -> str:
    return json_line("combination", asdict(row))


# --- the chart ---

# Okabe and Ito's palette, which readers with colour blindness can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
# In pixels: the width of a panel, and the edges of its plot. Above the plot are the title and the names of formats.
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 62, 450, 94, 364
_HEIGHT = _BOTTOM + 56
_LEGEND_WIDTH, _LEGEND_HEIGHT = 120, 18
_TARGET_STROKE = 'stroke="#b00020" stroke-dasharray="6 3" fill="none"'


def chart(rows: Sequence[Row], target: float | None = None) -> str:
    """Clips/s over the size on disk, one panel for each group, both axes logarithmic and the same in all panels.

    Each point is a loader and a format, with the number of workers that is fastest. The vertical line is the 95 %
    interval. A hollow point has errors or wrong frames. The dashed line is the rate `target`.
    """
    # The rows of a group are sorted: the first of each loader and format is the fastest.
    groups = {
        group: list({(row.loader, row.format): row for row in reversed(members)}.values())
        for group, members in groups_of([row for row in rows if row.clips_per_s.value > 0]).items()
    }
    shown = [row for members in groups.values() for row in members]
    ends = [end for row in shown for end in _interval(row)] + ([target] if target else [])
    axes = _Axis([row.disk_ratio for row in shown], _LEFT, _RIGHT), _Axis(ends, _BOTTOM, _TOP)
    colours = {
        name: _COLOURS[k % len(_COLOURS)]
        for k, name in enumerate(sorted({row.loader for row in rows}))
    }
    marks = [
        (name, f'<circle cx="0" cy="-4" r="4" fill="{colour}"/>')
        for name, colour in colours.items()
    ]
    if target:
        marks.append((f"target {target:g} clips/s", f'<path d="M-12 -4H6" {_TARGET_STROKE}/>'))
    columns = 2 if len(groups) > 1 else 1
    lines = -(-len(groups) // columns)
    width = columns * _WIDTH + 30
    per_line = width // _LEGEND_WIDTH
    height = lines * _HEIGHT + -(-len(marks) // per_line) * _LEGEND_HEIGHT + 6
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (group, members) in enumerate(groups.items()):
        x, y = 10 + number % columns * _WIDTH, number // columns * _HEIGHT
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
    """The ends of the interval that are drawn. A logarithmic axis has no 0."""
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
        out.append(f'<path d="M{_LEFT} {y:.1f}H{_RIGHT}" stroke="#e4e4e4"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    out.append(
        f'<text x="{(_LEFT + _RIGHT) / 2}" y="{_BOTTOM + 32}" text-anchor="middle" fill="#555">size on disk, as a multiple of the source</text>'
    )
    out += _format_names({row.format: horizontal.place(row.disk_ratio) for row in rows})
    if target:
        y = vertical.place(target)
        out.append(f'<path d="M{_LEFT} {y:.1f}H{_RIGHT}" {_TARGET_STROKE}/>')
    for row in rows:
        x, rate = horizontal.place(row.disk_ratio), row.clips_per_s
        low, high = map(vertical.place, _interval(row))
        colour = colours[row.loader]
        tip = f"{describe_row(row)}: {rate.value:.1f} ± {rate.half:.1f} clips/s"
        fill = colour if row.usable else "white"
        out.append(f"<g><title>{escape(tip)}</title>")
        out.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}"/>')
        y = vertical.place(rate.value)
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}"/></g>')
    return "\n".join(out)


def _format_names(places: dict[str, float]) -> list[str]:
    """Names above the plot, each with a dotted line to the points of its format."""
    out = []
    free = 0.0
    for name, x in sorted(places.items(), key=lambda entry: (entry[1], entry[0])):
        # Formats of about the same size would have their names at the same place.
        at = max(x, free)
        free = at + 16
        line = f"M{at:.1f} {_TOP - 4}L{x:.1f} {_TOP + 8}V{_BOTTOM}"
        out.append(f'<path d="{line}" stroke="#999" stroke-dasharray="1 3" fill="none"/>')
        turn = f"translate({at + 3:.1f} {_TOP - 7}) rotate(-45)"
        out.append(f'<text transform="{turn}">{escape(name)}</text>')
    return out


class _Axis:
    """A logarithmic axis from `begin` to `end` in pixels."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self._low = math.log10(min(values, default=1)) - 0.08
        self._high = math.log10(max(values, default=1)) + 0.16
        self._begin, self._end = begin, end

    def place(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._begin + share * (self._end - self._begin)

    def ticks(self) -> list[float]:
        decades = range(math.floor(self._low), math.ceil(self._high) + 1)
        steps = (1, 2, 5) if self._high - self._low < 2.5 else (1,)
        every = [step * 10.0**decade for decade in decades for step in steps]
        return [tick for tick in every if self._low <= math.log10(tick) <= self._high]


_STYLE = """
body { font: 14px/1.5 sans-serif; margin: 2em auto; max-width: 84em; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; font-size: 12px; display: block; overflow-x: auto }
td, th { padding: .15em .6em; text-align: right; border-bottom: 1px solid #ddd }
td { white-space: nowrap }
th { vertical-align: bottom }
td:nth-child(-n+2), th:nth-child(-n+2) { text-align: left }
svg { max-width: 100%; height: auto }
"""


def page(
    machine: str,
    clips: Sequence[Clip],
    picture: str,
    rows: Sequence[Row],
    notes: Sequence[str],
    words: str,
) -> str:
    """Everything on one page, without references to other files."""
    parts = ["<h1>Decoders and formats</h1>", f"<p>{escape(machine)}</p>"]
    parts += [f"<p>{_html(line)}</p>" for line in words.splitlines()]
    parts.append(picture)
    for group, members in groups_of(rows).items():
        parts.append(f"<h2>{escape(group_name(group))}</h2>")
        parts.append(_html_table(HEADINGS, [_cells(row) for row in members]))
    parts += ["<h2>Clips</h2>", _html_table(CLIP_HEADINGS, _clip_lines(clips))]
    if notes:
        items = "".join(f"<li>{_html(note)}</li>" for note in notes)
        parts.append(f"<h2>Notes</h2><ul>{items}</ul>")
    body = "\n".join(parts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Decoders and formats</title>'
        f"<style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def _html(text: str) -> str:
    """The text for HTML. What stands between backticks becomes code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _html_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines
    )
    return f"<table><tr>{head}</tr>{body}</table>"
