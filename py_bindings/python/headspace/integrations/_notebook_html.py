"""Makes the HTML of the live view in a notebook: the current numbers of a run, and a chart of its last steps."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any, NamedTuple

from headspace import _native
from headspace._native import duration_ms
from headspace._session.step_chart import draw_steps
from headspace._session.step_history import Interval, StepHistory

#: Number of the last ticks whose mean is the current step: ten seconds by default.
CURRENT_TICKS = 10

#: Height of the chart of the last steps: lower than that of the verdict, which shows the whole run.
CHART_HEIGHT = 140.0

#: Shown before the first step.
WAITING = "Waiting for the first batch of a wrapped loader."

#: Shown if the view ends without a session.
NOTHING = "Nothing was measured, because no wrapped loader was iterated here."


class Card(NamedTuple):
    """A number with its name."""

    name: str
    value: str
    remark: str = ""


def paragraph(words: str) -> str:
    """A sentence as HTML."""
    return f'<p style="margin:0 0 6px">{escape(words)}</p>'


def live_html(history: StepHistory | None) -> str:
    """The current numbers of a run that goes on. None means that no session is running yet."""
    if history is None or not history.steps:
        return _block([_heading("headspace"), paragraph(WAITING)])
    heading = f"headspace · {history.loop} · {history.steps:,} steps"
    floor_ms = _floor_ms(history.summary)
    chart = draw_steps(list(history.recent), history.loop, floor_ms, height=CHART_HEIGHT)
    return _block([_heading(heading), _cards(_current_cards(history)), chart])


def _current_cards(history: StepHistory) -> Iterable[Card]:
    summary, loop = history.summary, history.loop
    last = _merged(list(history.recent)[-CURRENT_TICKS:])
    step, wait = last.step_ms(loop), last.wait_ms(loop)
    if step is None:
        yield Card("Step", "—", "no step on a batch of the loader in the last ticks")
    else:
        yield Card("Step", duration_ms(step))
        if wait is not None:
            share = 100.0 * min(wait / step, 1.0) if step > 0 else 0.0
            yield Card("Waiting for data", duration_ms(wait), f"{share:.0f} % of the step")
    floor_ms = _floor_ms(summary)
    if floor_ms is not None:
        gain = summary.get("headspace_pct")
        remark = "" if gain is None else f"free data saves {gain:.0f} %"
        yield Card("Floor", duration_ms(floor_ms), remark)
    elif summary.get("mode") in ("probe", "whatif"):
        yield Card("Floor", "…", "being measured")
    bottleneck = summary.get("bottleneck")
    if bottleneck is not None:
        name = _native.bottleneck_name(bottleneck["kind"], bottleneck.get("name"))
        yield Card("Bottleneck", name)


def _floor_ms(summary: dict[str, Any]) -> float | None:
    return None if summary.get("mode") == "replay" else summary.get("floor_step_ms")


def _merged(intervals: list[Interval]) -> Interval:
    whole = Interval({"at_s": 0.0})
    for interval in intervals:
        whole.add(interval)
    return whole


# Styles are attributes, because some notebooks remove style sheets.


def _block(parts: Iterable[str]) -> str:
    style = "font-variant-numeric:tabular-nums;line-height:1.45;max-width:1000px"
    return f'<div class="headspace-live" style="{style}">{"".join(parts)}</div>'


def _heading(words: str) -> str:
    return f'<p style="font-weight:600;margin:0 0 6px">{escape(words)}</p>'


def _cards(cards: Iterable[Card]) -> str:
    shown = []
    for card in cards:
        remark = f'<span style="font-size:12px;opacity:.8">{escape(card.remark)}</span>'
        shown.append(
            f'<div><span style="font-size:12.5px;opacity:.8">{escape(card.name)}</span><br>'
            f'<span style="font-size:21px;font-weight:600">{escape(card.value)}</span><br>{remark}</div>'
        )
    return f'<div style="display:flex;flex-wrap:wrap;gap:6px 28px;margin:0 0 6px">{"".join(shown)}</div>'
