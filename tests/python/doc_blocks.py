"""Finds the code blocks of the documentation, and the commands in them."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: The pages whose blocks are tested.
PAGES = (
    "README.md",
    "docs/*.md",
    "*/README.md",
    "examples/*/README.md",
    "py_bindings/PACKAGE.md",
)

_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S
)

#: Languages of blocks with commands. In a `console` block, lines without `$` are output.
SHELLS = ("console", "sh", "bash", "shell")


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    page: str
    number: int
    """Its number among the blocks of the same kind on the page, from 0."""
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def read_blocks(*languages: str) -> list[Block]:
    """The blocks in these languages on all pages, in order."""
    found = []
    for path in sorted({path for pattern in PAGES for path in ROOT.glob(pattern)}):
        found += blocks_of(str(path.relative_to(ROOT)), path.read_text(), languages)
    return found


def blocks_of(page: str, source: str, languages: tuple[str, ...]) -> list[Block]:
    """The blocks in these languages in the text of a page."""
    matches = [match for match in _BLOCK.finditer(source) if match["language"] in languages]
    return [
        Block(
            page,
            number,
            source.count("\n", 0, match.start()) + 1,
            match["language"],
            textwrap.dedent(match["text"]),
        )
        for number, match in enumerate(matches)
    ]


def commands_of(block: Block) -> list[str]:
    """The commands of a block, each on one line and without its comment."""
    commands: list[str] = []
    continues = False
    for line in block.text.splitlines():
        # A synopsis (`[--option]`) continues on indented lines, as in a manual page.
        continues = continues or (
            line.startswith("  ")
            and bool(commands)
            and re.search(r" \[--", commands[-1]) is not None
        )
        if continues:
            commands[-1] += " " + line.strip()
        elif block.language == "console" and line.startswith("$ "):
            commands.append(line[2:])
        elif block.language != "console" and line.strip() and not line.startswith("#"):
            commands.append(line)
        else:
            continue
        continues = commands[-1].endswith("\\")
        commands[-1] = commands[-1].removesuffix("\\").strip()
    return [re.sub(r"\s+# .*$", "", command) for command in commands]
