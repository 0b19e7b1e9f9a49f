"""Draws docs/images/top.svg: `headspace top` on a real run, as a terminal shows it.

    python tests/python/picture_top.py headspace docs/images/top.svg

The run is tests/programs/pipeline.py with a probe; the first argument is the command.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path

import pyte
from screen import Terminal

PROGRAM = Path(__file__).parents[1] / "programs" / "pipeline.py"
CELL, LINE, EDGE = 8.4, 17.0, 12.0
INK, PAPER = "#d8dee6", "#14181d"
NAMED = {"default": INK, "black": "#000000", "white": "#ffffff"}


def colour(name: str, otherwise: str) -> str:
    if name == "default":
        return otherwise
    return NAMED.get(name, f"#{name}")


def svg(screen: pyte.Screen) -> str:
    width = screen.columns * CELL + 2 * EDGE
    height = screen.lines * LINE + 2 * EDGE
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        'aria-label="headspace top in a terminal">',
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
        "<g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" "
        'font-size="14">',
    ]
    for y in range(screen.lines):
        row = screen.buffer[y]
        top = EDGE + y * LINE
        x = 0
        while x < screen.columns:
            cell = row[x]
            look = (cell.fg, cell.bg, cell.bold, cell.reverse)
            end = x
            while end < screen.columns:
                other = row[end]
                if (other.fg, other.bg, other.bold, other.reverse) != look:
                    break
                end += 1
            text = "".join(row[i].data for i in range(x, end))
            ink, paper = colour(cell.fg, INK), colour(cell.bg, PAPER)
            if cell.reverse:
                ink, paper = paper, ink
            left = EDGE + x * CELL
            length = (end - x) * CELL
            if paper != PAPER:
                out.append(
                    f'<rect x="{left:.1f}" y="{top:.1f}" width="{length:.1f}" '
                    f'height="{LINE:.1f}" fill="{paper}"/>'
                )
            if text.strip():
                weight = ' font-weight="bold"' if cell.bold else ""
                out.append(
                    f'<text x="{left:.1f}" y="{top + LINE - 4.5:.1f}" textLength="{length:.1f}" '
                    f'lengthAdjust="spacingAndGlyphs" fill="{ink}"{weight} '
                    f'xml:space="preserve">{escape(text)}</text>'
                )
            x = end
    out += ["</g>", "</svg>", ""]
    return "\n".join(out)


def main() -> None:
    command, target = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        stop = Path(folder) / "stop"
        env = {"HEADSPACE_DIR": f"{folder}/headspace-runs", "HEADSPACE_INTERVAL": "0.25"}
        trainer = subprocess.Popen(
            [sys.executable, PROGRAM, stop],
            env={**os.environ, **env, "HEADSPACE_MODE": "probe"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        terminal = Terminal([command, "top"], 104, 38, env=env)
        try:
            terminal.wait_for("up to")
            end = time.monotonic() + 12
            while time.monotonic() < end:
                terminal.read()
            Path(target).write_text(svg(terminal.screen))
            print(terminal.text)
        finally:
            terminal.close()
            stop.touch()
            trainer.wait()


if __name__ == "__main__":
    main()
