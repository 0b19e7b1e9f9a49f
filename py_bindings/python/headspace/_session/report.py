"""Defines `Report`: the numbers and the verdict of a run."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Report:
    """The numbers and the verdict of a run.

        print(headspace.report())

    ``print`` shows the verdict as text. A notebook shows it as a table.
    """

    __slots__ = ("_html", "_summary", "_text")

    def __init__(self, summary: str, text: str, html: str) -> None:
        self._summary = summary
        self._text = text
        self._html = html

    def to_dict(self) -> dict[str, Any]:
        """The ``summary`` record. Names end with the unit (``_ms``, ``_s``). Missing values are None."""
        import json

        summary: dict[str, Any] = json.loads(self._summary)
        return summary

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html
