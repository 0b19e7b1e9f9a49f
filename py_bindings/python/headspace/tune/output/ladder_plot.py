"""Draws `ladder.svg`: how the gain of the best configuration adds up from the changes of the knobs."""

from __future__ import annotations

from headspace.tune.output.drawing import (
    Scale,
    bar,
    document,
    legend,
    line,
    shorten,
    text,
    ticks_of,
    with_tooltip,
)
from headspace.tune.output.summary import Rung, SearchSummary
from headspace.tune.output.wording import format_contribution, format_total
from headspace.tune.plan.objective import Cost

WIDTH = 960
LEFT, RIGHT, TOP = 356, 210, 84

#: Height of a line of text, and of the space around the lines of a row.
LINE, SPACE = 17, 16

#: Height of a bar.
THICK = 20

_BAR = '<g transform="translate({{x}} {{y}})"><rect class="{css}" x="-8" y="-5" width="14" height="10"/></g>'
_LEGEND = (
    (_BAR.format(css="kept"), "gain"),
    (_BAR.format(css="nogain"), "not significant"),
    (_BAR.format(css="failed"), "slower"),
    (_BAR.format(css="rest"), "time that remains"),
    (
        '<g transform="translate({x} {y})"><path class="interval" d="M-8 -4v8m0 -4h14m0 -4v8"/></g>',
        "95 % interval",
    ),
)


def ladder_svg(found: SearchSummary) -> str:
    """The ladder: the baseline, a row for each rung, and the best configuration."""
    ladder = found.ladder
    body = [text(24, 30, "What each change contributes", "title")]
    title = "headspace tune: ladder"
    if ladder is None or not ladder.rungs:
        words = "No experiment was measured yet."
        if ladder is not None:
            words = f"No configuration is faster than the baseline ({ladder.baseline.ms:.1f} ms)."
        body.append(text(24, 60, words, "quiet"))
        return document(WIDTH, 84, title, body)
    body.append(legend(34, 54, _LEGEND))
    right = WIDTH - RIGHT
    most = max(one.high for one in (ladder.baseline, *(rung.cost for rung in ladder.rungs)))

    def x(ms: float) -> float:
        return LEFT + (right - LEFT) * ms / most

    rows: list[str] = []
    top = float(TOP)
    rows += _words(top, ["baseline"], "", ladder.baseline, "")
    rows.append(_bar("rest", top, x(0), x(ladder.baseline.ms)))
    before, top = ladder.baseline, top + SPACE + 2 * LINE
    for rung in ladder.rungs:
        rows += _rung(rung, before, top, x)
        before, top = rung.cost, top + SPACE + LINE * (len(rung.changes) + 1)
    rows += _words(top, ["best configuration"], "", ladder.best, format_total(ladder))
    rows.append(_bar("rest", top, x(0), x(ladder.best.ms)))
    base = top + 2 * LINE + 10
    axis = []
    for tick in ticks_of(0.0, most):
        axis.append(line("rule", x(tick), TOP - 8, x(tick), base))
        axis.append(text(x(tick), base + 16, f"{tick:g}", "quiet", "middle"))
    axis.append(text(right + 14, base + 16, found.objective.unit, "quiet"))
    floor = found.standing.floor_ms
    if floor is not None:
        rows.append(line("floor", x(floor), TOP - 8, x(floor), base + 22))
        rows.append(text(x(floor), base + 36, f"floor {floor:.1f} ms", "quiet", "middle"))
    return document(WIDTH, base + 52, title, body + axis + rows)


def _words(top: float, names: list[str], note: str, cost: Cost, gain: str) -> list[str]:
    """The texts of a row: names and a note on the left, cost and gain on the right."""
    value = WIDTH - RIGHT + 14
    return [
        *(text(24, top + LINE * (k + 1) - 3, shorten(name, 42)) for k, name in enumerate(names)),
        text(24, top + LINE * (len(names) + 1) - 3, note, "quiet"),
        text(value, top + LINE - 3, f"{cost.ms:.1f} ms"),
        text(value, top + 2 * LINE - 3, gain, "quiet"),
    ]


def _bar(css: str, top: float, left: float, right: float) -> str:
    return bar(css, left, top + 4, right - left, THICK)


def _rung(rung: Rung, before: Cost, top: float, x: Scale) -> list[str]:
    """A row of a rung: the time that remains, the time that the rung saves, and the interval of its cost."""
    now = rung.cost
    note = f"#{rung.trial.number} {rung.trial.kind.value}"
    if len(rung.changes) > 1:
        note += ", measured only together"
    if not rung.significant:
        note += ", not significant"
    low, high = sorted((before.ms, now.ms))
    css = "nogain" if not rung.significant else "kept" if rung.gain_pct > 0 else "failed"
    names = [change.text for change in rung.changes]
    gain = format_contribution(rung)
    words = f"{', '.join(names)}: {now.ms:.2f} ms, {gain}. {rung.trial.proposal.reason}"
    drawn = with_tooltip(
        words,
        *_words(top, names, note, now, gain),
        _bar("rest", top, x(0), x(low)),
        _bar(css, top, x(low), x(high)),
        _interval(x(max(0.0, now.low)), x(now.high), top + 4 + THICK / 2),
    )
    return [line("link", x(before.ms), top - SPACE, x(before.ms), top + 4), drawn]


def _interval(left: float, right: float, y: float) -> str:
    ends = f"M{left:.1f} {y - 4:.1f}v8M{right:.1f} {y - 4:.1f}v8"
    return f'<path class="interval" d="M{left:.1f} {y:.1f}H{right:.1f}{ends}"/>'
