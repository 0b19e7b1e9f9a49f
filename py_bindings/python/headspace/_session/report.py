"""Defines `Report`: the numbers and the verdict of a run."""

from __future__ import annotations

import json
from typing import Any


class Report:
    """The numbers of a run, and its verdict.

        print(headspace.report())

    Prints as text; shows as a table in a notebook.
    """

    __slots__ = ("_html", "_summary", "_text")

    def __init__(self, summary: str, text: str, html: str) -> None:
        self._summary = summary
        self._text = text
        self._html = html

    def to_dict(self) -> dict[str, Any]:
        """The ``summary`` record: times in ms or s as the names say, None where not measured."""
        summary: dict[str, Any] = json.loads(self._summary)
        return summary

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html
