"""Formats the results as tables, advice, JSON lines and an HTML page."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from html import escape

from .formats import Clip, Sample
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
        # The smaller unit would show 999.5 and more with four digits.
        if value >= 0.9995 * scale:
            return f"{_number_text(value / scale)} {unit}"
    return f"{value:.0f} B"


def ratio_text(ratio: float) -> str:
    """A multiple, such as `0.43x` or `130x`."""
    return f"{_number_text(ratio)}x"


def _number_text(value: float) -> str:
    """Three significant digits, or all digits before the decimal point. Values from 0.0001 on have no exponent."""
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
    """One line for each source video of the clips."""
    facts = Counter((c.video, f"{c.width} x {c.height}", f"{c.rate:.4g}") for c in clips)
    return [[*video, str(count)] for video, count in facts.items()]


def clips_text(clips: Sequence[Clip]) -> str:
    """The source videos of the clips, with frame size, frame rate and number of clips."""
    return table(CLIP_HEADINGS, _clip_lines(clips))


FORMAT_HEADINGS = ("format", "disk", "of source", "PSNR", "encoding")


def _format_lines(sample: Sample) -> list[list[str]]:
    """One line for each format."""
    return [
        [
            entry.format,
            bytes_text(entry.bytes),
            ratio_text(entry.bytes / sample.source_bytes),
            "identical" if entry.psnr_db is None else f"{entry.psnr_db:.1f} dB",
            f"{entry.encode_s:.1f} s",
        ]
        for entry in sample.stored
    ]


def formats_text(sample: Sample) -> str:
    """Size, quality and encoding time of each format."""
    return table(FORMAT_HEADINGS, _format_lines(sample), left=1)


def describe_row(row: Row) -> str:
    """The combination as text."""
    workers = format_count(row.workers, "worker" if row.pool == "threads" else "worker process")
    return f"{workers} of {row.loader} on {row.format}"


def cores_text(row: Row, target: float) -> str:
    """The cores that a combination uses at the rate `target`."""
    if row.cpu_s_per_clip is None:
        return "CPU time unknown"
    return f"{row.cpu_s_per_clip * target:.2f} cores"


def advice_text(advice: Sequence[Advice]) -> str:
    """The cheapest combinations as text."""
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


_STYLE = """
body { font: 14px/1.5 sans-serif; margin: 2em auto; max-width: 84em; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; font-size: 12px; display: block; overflow-x: auto }
td, th { padding: .15em .6em; text-align: right; border-bottom: 1px solid #ddd }
td { white-space: nowrap }
th { vertical-align: bottom }
.left { text-align: left }
svg { max-width: 100%; height: auto }
"""


def page(
    machine: str,
    sample: Sample,
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
    parts += ["<h2>Formats</h2>", _html_table(FORMAT_HEADINGS, _format_lines(sample), left=1)]
    parts += ["<h2>Clips</h2>", _html_table(CLIP_HEADINGS, _clip_lines(sample.clips))]
    if notes:
        items = "".join(f"<li>{_html(note)}</li>" for note in notes)
        parts.append(f"<h2>Notes</h2><ul>{items}</ul>")
    body = "\n".join(parts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Decoders and formats</title>'
        f"<style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def _html(text: str) -> str:
    """The text as HTML. Text between backticks is marked as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _html_table(headings: Sequence[str], lines: Sequence[Sequence[str]], left: int = 2) -> str:
    """A table. The first `left` columns are aligned to the left."""

    def row(tag: str, cells: Sequence[str]) -> str:
        css = [' class="left"' if k < left else "" for k in range(len(cells))]
        content = "".join(f"<{tag}{c}>{escape(cell)}</{tag}>" for c, cell in zip(css, cells))
        return f"<tr>{content}</tr>"

    body = "".join(row("td", line) for line in lines)
    return f"<table>{row('th', headings)}{body}</table>"
