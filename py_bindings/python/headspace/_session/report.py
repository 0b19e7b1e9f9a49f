"""Defines `Report`: the numbers and the verdict of a run."""

from __future__ import annotations

import os

from headspace._session import own_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Report:
    """The numbers and the verdict of a run.

        print(headspace.report())

    ``print`` shows the verdict as text. A notebook shows it with a chart of the steps over time.
    """

    __slots__ = ("_html", "_records", "_summary", "_text")

    def __init__(self, summary: str, text: str, html: str, records: str | None = None) -> None:
        self._summary = summary
        self._text = text
        self._html = html
        # The file with the records of this process. The chart is drawn from it when a notebook shows the report.
        self._records = records

    def to_dict(self) -> dict[str, Any]:
        """The ``summary`` record. Names end with the unit (``_ms``, ``_s``). Missing values are None."""
        import json

        summary: dict[str, Any] = json.loads(self._summary)
        return summary

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        chart = own_errors.call_safely(self._chart)
        # Below the numbers of the verdict. Names of the program are escaped, so they contain no tag.
        before, verdict, after = self._html.partition('<section class="verdict">')
        numbers, end, rest = after.partition("</section>")
        return f"{before}{verdict}{numbers}{end}{chart}{rest}" if chart and end else self._html

    def _chart(self) -> str:
        """The steps over time as a part of the verdict. Empty if the records are missing, or the run is too short."""
        if self._records is None or not os.path.exists(self._records):
            return ""
        # Only a notebook needs them.
        from headspace._session.step_chart import draw_steps
        from headspace._session.step_history import StepHistory

        summary = self.to_dict()
        history = StepHistory(self._records)
        history.read()
        floor_ms = None if summary.get("mode") == "replay" else summary.get("floor_step_ms")
        chart = draw_steps(history.whole, summary.get("loop") or "", floor_ms)
        return f'<section class="chart">{chart}</section>' if chart else ""
