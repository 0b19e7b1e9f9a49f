"""Docstrings for the Python page: examples get colours, and roles of Sphinx become code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

#: Headings of the sections of a docstring, whose content is indented and is no example.
SECTION = re.compile(r"(Args|Returns|Raises|Yields|Attributes|Examples?|Note|Warns):$")

ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")

INDENT = "    "


class Examples(Extension):
    """Changes each docstring when it is read."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = mark_examples(ROLE.sub(r"`\1`", obj.docstring.value))


def mark_examples(text: str) -> str:
    """The docstring, with its indented examples as blocks of Python."""
    lines = text.split("\n")
    marked: list[str] = []
    at = 0
    in_section = False
    while at < len(lines):
        line = lines[at]
        if line.strip() and not line.startswith(" "):
            in_section = SECTION.match(line) is not None
        begins = (
            line.startswith(INDENT) and not in_section and (at == 0 or not lines[at - 1].strip())
        )
        if not begins:
            marked.append(line)
            at += 1
            continue
        end = at
        while end < len(lines) and (not lines[end].strip() or lines[end].startswith(INDENT)):
            end += 1
        example = "\n".join(part[len(INDENT) :] for part in lines[at:end]).rstrip()
        language = "console" if example.startswith("spdl ") else "python"
        marked += [f"```{language}", example, "```", ""]
        at = end
    return "\n".join(marked)
