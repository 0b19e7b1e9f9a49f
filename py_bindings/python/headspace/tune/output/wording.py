"""Words and numbers that the report and the plots have in common."""

from __future__ import annotations

from headspace.tune.output.summary import Ladder, Rung, SearchSummary
from headspace.tune.plan.classes import Group, count_classes

#: Groups of experiments that a search tries, in the order of the report. The baseline and the reruns are not counted.
SEARCHED = (Group.KEPT, Group.NO_GAIN, Group.FAILED)

#: What to say if no record has a SM utilisation.
NO_SM = "No SM utilisation: no record has it (no NVIDIA GPU was measured; `headspace doctor` names the missing sources)."

#: What to say if no record has a duration.
NO_DURATION = "No durations: the records have none."


def describe_classes(found: SearchSummary) -> str:
    """The number of experiments of each class: `3 kept, 18 no gain, 9 stopped early, 1 crashed`."""
    counts = count_classes(found.experiments)
    parts = [
        f"{count} {category.label}"
        for group in SEARCHED
        for category, count in counts.items()
        if category.group is group
    ]
    return ", ".join(parts) or "only the baseline was run"


def describe_hit_rate(found: SearchSummary) -> str:
    """The hit rate with its numbers. Empty if there was no experiment after the baseline."""
    rate = found.hit_rate
    if rate.pct is None:
        return ""
    return (
        f"{rate.pct:.0f} % ({rate.kept} of {rate.experiments} kept, {rate.significant} significant)"
    )


def format_contribution(rung: Rung) -> str:
    """The gain of a rung as a change of the cost, with half of its interval: `−12.3 % ±0.8`."""
    return f"{_signed(rung.gain_pct)} ±{rung.half_pct:.1f}"


def format_total(ladder: Ladder) -> str:
    """The gain of the winner over the baseline: `−82.3 % (5.6x faster)`."""
    times = ladder.baseline.ms / ladder.best.ms
    return f"{_signed(ladder.gain_pct)} ({times:.1f}x faster)"


def _signed(gain_pct: float) -> str:
    sign = "−" if gain_pct >= 0 else "+"
    return f"{sign}{abs(gain_pct):.1f} %"


def format_seconds(seconds: float) -> str:
    """A duration with its unit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
