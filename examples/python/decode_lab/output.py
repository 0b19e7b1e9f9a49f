"""Writes the results: a table, words, JSON lines, a chart (SVG) and a page (HTML)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from html import escape

from .formats import Stored
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
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B"


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
        f"{row.disk_ratio:.3g}x",
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


def formats_text(stored: Sequence[Stored], source_bytes: int) -> str:
    """Size, quality and encoding time of each format."""
    lines = [
        [
            entry.format,
            bytes_text(entry.bytes),
            f"{entry.bytes / source_bytes:.3g}x",
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
                f"{cores_text(row, entry.target)}, {row.disk_ratio:.2g}x the disk)"
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
_WIDTH, _HEIGHT, _LEFT, _TOP = 460, 300, 62, 46


def chart(rows: Sequence[Row]) -> str:
    """Clips/s over the size on disk, one panel for each group, both axes logarithmic.

    Each point is a loader and a format, with the number of workers that is fastest. The vertical line is the 95 %
    interval. A hollow point has errors or wrong frames.
    """
    loaders = sorted({row.loader for row in rows})
    colours = {name: _COLOURS[k % len(_COLOURS)] for k, name in enumerate(loaders)}
    groups = groups_of([row for row in rows if row.clips_per_s.value > 0])
    columns = 2 if len(groups) > 1 else 1
    lines = -(-len(groups) // columns)
    width, height = columns * (_WIDTH + 20) + 10, lines * (_HEIGHT + 76) + 60
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (group, members) in enumerate(groups.items()):
        x = 10 + number % columns * (_WIDTH + 20)
        y = number // columns * (_HEIGHT + 76)
        out.append(f'<g transform="translate({x} {y})">{_panel(group, members, colours)}</g>')
    per_line = width // 120
    for k, name in enumerate(loaders):
        x, y = 20 + k % per_line * 120, height - 56 + k // per_line * 18
        out.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{colours[name]}"/>')
        out.append(f'<text x="{x + 10}" y="{y}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>"])


def _panel(group: tuple[str, str, int], rows: Sequence[Row], colours: dict[str, str]) -> str:
    # The rows are sorted: the first of each loader and format is the fastest.
    best = list({(row.loader, row.format): row for row in reversed(rows)}.values())
    horizontal = _Axis([row.disk_ratio for row in best], _LEFT, _WIDTH - 10)
    rates = [row.clips_per_s for row in best]
    ends = [r.value + min(r.half, r.value) for r in rates]
    ends += [max(r.value - r.half, r.value / 2) for r in rates]
    vertical = _Axis(ends, _TOP + _HEIGHT - 30, _TOP)
    bottom = _TOP + _HEIGHT - 30
    out = [
        f'<text x="{_LEFT}" y="{_TOP - 22}" font-weight="bold">{escape(group_name(group))}</text>'
    ]
    out.append(f'<text x="{_LEFT - 46}" y="{_TOP - 8}" fill="#555">clips/s</text>')
    for tick in horizontal.ticks():
        x = horizontal.place(tick)
        out.append(f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="#e4e4e4"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{tick:g}x</text>')
    for tick in vertical.ticks():
        y = vertical.place(tick)
        out.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - 10}" stroke="#e4e4e4"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    middle = (_LEFT + _WIDTH) / 2
    out.append(
        f'<text x="{middle}" y="{bottom + 32}" text-anchor="middle" fill="#555">size on disk, as a multiple of the source</text>'
    )
    named: set[str] = set()
    for row in sorted(best, key=lambda row: -row.clips_per_s.value):
        x, rate = horizontal.place(row.disk_ratio), row.clips_per_s
        y = vertical.place(rate.value)
        low = vertical.place(max(rate.value - rate.half, rate.value / 2))
        high = vertical.place(rate.value + min(rate.half, rate.value))
        colour = colours[row.loader]
        tip = f"{describe_row(row)}: {rate.value:.1f} ± {rate.half:.1f} clips/s"
        fill = colour if row.usable else "white"
        out.append(f"<g><title>{escape(tip)}</title>")
        out.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}"/>')
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}"/></g>')
        # The fastest point of a format has its name.
        if row.format not in named:
            named.add(row.format)
            turn = f"rotate(-35 {x:.1f} {y - 8:.1f})"
            out.append(
                f'<text x="{x:.1f}" y="{y - 8:.1f}" transform="{turn}">{escape(row.format)}</text>'
            )
    return "\n".join(out)


class _Axis:
    """A logarithmic axis from `begin` to `end` in pixels."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self._low = math.log10(min(values)) - 0.08
        self._high = math.log10(max(values)) + 0.16
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
body { font: 14px/1.5 sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; font-size: 12px; display: block; overflow-x: auto }
td, th { padding: .15em .7em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
td:nth-child(-n+2), th:nth-child(-n+2) { text-align: left }
svg { max-width: 100%; height: auto }
"""


def page(machine: str, picture: str, rows: Sequence[Row], notes: Sequence[str], words: str) -> str:
    """Everything on one page, without references to other files."""
    parts = ["<h1>Decoders and formats</h1>", f"<p>{escape(machine)}</p>"]
    parts += [f"<p>{escape(line)}</p>" for line in words.splitlines()]
    parts.append(picture)
    for group, members in groups_of(rows).items():
        parts.append(f"<h2>{escape(group_name(group))}</h2>")
        parts.append(_html_table(HEADINGS, [_cells(row) for row in members]))
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        parts.append(f"<h2>Notes</h2><ul>{items}</ul>")
    body = "\n".join(parts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Decoders and formats</title>'
        f"<style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def _html_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines
    )
    return f"<table><tr>{head}</tr>{body}</table>"
