"""Lists, from the indentation of CommonMark to that of Python-Markdown.

In CommonMark, as on GitHub, the parts of a list item are as far to the right as its text: two columns for `- `. For
Python-Markdown, each level is four columns, and a blank line precedes a list, and an item after one with several parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from markdown_it import MarkdownIt

#: Columns of a level for Python-Markdown.
COLUMNS = 4

MARKER = re.compile(r"\s*(?P<marker>[-*+]|\d+[.)])(?P<gap> {1,4}|$)")


@dataclass
class _Item:
    """An item of a list."""

    first: int
    end: int
    #: Columns before its text, in CommonMark. The columns of enclosing items count too.
    columns: int
    level: int


def indent_lists(text: str) -> str:
    """The document with the same lists, for Python-Markdown."""
    lines = text.split("\n")
    items: list[_Item] = []
    needs_blank = set()
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.map is None:
            continue
        first, end = token.map
        follows_text = first > 0 and lines[first - 1].strip() != ""
        if token.type == "list_item_open":
            if follows_text and any(
                item.end == first and _has_parts(item, lines) for item in items
            ):
                needs_blank.add(first)
            enclosing = [item for item in items if item.first <= first < item.end]
            outer = enclosing[-1].columns if enclosing else 0
            marker = MARKER.match(lines[first], outer)
            columns = marker.end() if marker else outer
            items.append(_Item(first, end, columns, len(enclosing) + 1))
        elif follows_text and token.level == 0 and token.type.endswith("_list_open"):
            needs_blank.add(first)

    indented = []
    for number, line in enumerate(lines):
        if number in needs_blank:
            indented.append("")
        # The items are in the order of their first lines, so the last one that has the line is the innermost.
        inner = next((item for item in reversed(items) if item.first <= number < item.end), None)
        indented.append(line if inner is None or not line.strip() else _indent(line, number, inner))
    return "\n".join(indented)


def _has_parts(item: _Item, lines: list[str]) -> bool:
    """Whether an item has several parts, such as paragraphs, with blank lines between them."""
    return any(not line.strip() for line in lines[item.first : item.end])


def _indent(line: str, number: int, item: _Item) -> str:
    if number == item.first and (marker := MARKER.match(line)) is not None:
        before = " " * COLUMNS * (item.level - 1)
        return f"{before}{marker['marker'].replace(')', '.')} {line[item.columns :]}"
    spaces = len(line) - len(line.lstrip(" "))
    return " " * COLUMNS * item.level + line[min(spaces, item.columns) :]
