"""The table of results: headspace's numbers, the true numbers, and whether they agree."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from examine import Applied, Result

#: Maximum error of a headspace without a warning, in percentage points.
FAR_OFF = 15.0

#: Findings that warn that the headspace may be wrong.
WARNINGS = frozenset({"unsteady_probe", "batches_mutated"})

HEADER = (
    *("program", "same output", "recognised", "live step", "headspace said", "true"),
    *("inside", "remedies: predicted, measured"),
)


def row(result: Result) -> list[str]:
    """A result's cells."""
    case = result.case
    if result.skipped:
        return [case.name, result.skipped, *[""] * (len(HEADER) - 2)]
    true = result.truth.headspace_pct
    inside = is_inside(result)
    return [
        case.name,
        "yes"
        if result.is_same
        else "**no**: " + ", ".join(k for k, v in result.differences.items() if v),
        recognised(result),
        live(result),
        said(result),
        "" if true is None else f"{true[0]:.1f} % ({true[1]:.1f} to {true[2]:.1f})",
        "" if inside is None else "yes" if inside else f"**no**, {error(result):+.1f}",
        "; ".join(map(remedy, result.applied)),
    ]


def recognised(result: Result) -> str:
    if result.is_recognised:
        return "yes"
    found = result.measured
    if found is None:
        return "**no**"
    return f"**no**: {found.loop}, {found.summary.get('loop_role')}, {found.steps} steps"


def live(result: Result) -> str:
    found, true = result.probed, result.truth.live_ms
    said = "–" if found is None or found.live_ms is None else f"{found.live_ms:.1f}"
    return f"{said} / {'–' if true is None else f'{true:.1f}'} ms"


def said(result: Result) -> str:
    """The number and the interval of the probe, or the reason why it has none."""
    found = result.probed
    if found is None:
        return "nothing"
    if found.headspace_pct is None:
        return found.findings.get("no_headspace", "no number, no reason")
    value, low, high = found.headspace_pct
    return f"{value:.1f} % ({low:.1f} to {high:.1f})"


def remedy(applied: Applied) -> str:
    it = applied.remedy
    likely = "likely " if it.is_likely else ""
    text = f"{it.knob}={it.to} {likely}{applied.predicted_ms:.1f}"
    slower = " **slower**" if applied.is_slower else ""
    at_least = " at most" if it.at_least else ""
    return f"{text}{at_least}, {applied.actual_ms:.1f} ms ({applied.error_pct:+.0f} %){slower}"


def is_inside(result: Result, *, give_or_take: bool = True) -> bool | None:
    """Whether the interval of headspace contains the true value. None without a number.

    Args:
        give_or_take: Widen the interval by the standard error of the true headspace, which is measured too.
    """
    found, true = result.probed, result.truth.headspace_pct
    if found is None or found.headspace_pct is None or true is None:
        return None
    _, low, high = found.headspace_pct
    error = result.truth.standard_error if give_or_take else 0.0
    return low - error <= true[0] <= high + error


def error(result: Result) -> float | None:
    """Error of the headspace in percentage points."""
    found, true = result.probed, result.truth.headspace_pct
    if found is None or found.headspace_pct is None or true is None:
        return None
    return found.headspace_pct[0] - true[0]


def is_far_off(result: Result) -> bool:
    """Whether the error is more than `FAR_OFF` points and no finding warns of it."""
    off, found = error(result), result.probed
    if off is None or found is None or abs(off) <= FAR_OFF:
        return False
    return not WARNINGS & set(found.findings)


def markdown(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def conclusion(results: list[Result]) -> tuple[list[str], bool]:
    """The lines below the table, and whether all targets are met."""
    ran = [result for result in results if not result.skipped]
    differ = [result.case.name for result in ran if not result.is_same]
    unknown = [result.case.name for result in ran if not result.is_recognised]
    judged = [result for result in ran if is_inside(result) is not None]
    inside = sum(bool(is_inside(result)) for result in judged)
    strictly = sum(bool(is_inside(result, give_or_take=False)) for result in judged)
    far = [result.case.name for result in judged if is_far_off(result)]
    applied = [applied for result in ran for applied in result.applied]
    predicted = [a for a in applied if not a.remedy.at_least]
    errors = [abs(a.error_pct) for a in predicted]
    slower = [a for a in applied if a.is_slower and a.remedy.is_likely]
    lines = [
        f"- Same exit code and output: {len(ran) - len(differ)} of {len(ran)}{names(differ)}.",
        f"- Training loop recognised, with every batch: {len(ran) - len(unknown)} of {len(ran)}{names(unknown)}.",
        f"- True headspace inside the interval: {inside} of {len(judged)} ({strictly} without the widening by the "
        f"standard error of the true headspace); off by more than {FAR_OFF:g} points without a warning: {len(far)}{names(far)}.",
    ]
    if errors:
        lines.append(
            f"- Remedies applied: {len(predicted)}, median error {statistics.median(errors):.1f} %, "
            f"largest {max(errors):.1f} %; likely ones that made the program slower: {len(slower)}."
        )
    good = not (differ or unknown or far or slower)
    good &= not judged or inside >= 0.9 * len(judged)
    good &= not errors or (max(errors) <= 15 and statistics.median(errors) <= 5)
    return lines, good


def names(of: list[str]) -> str:
    return f" (not: {', '.join(of)})" if of else ""
