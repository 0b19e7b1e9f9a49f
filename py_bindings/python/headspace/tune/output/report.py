"""Writes the final report of a search: the best command, its gain, and the remaining headspace."""

from __future__ import annotations

from collections.abc import Sequence

from headspace._native import RUN_TO_RUN, bottleneck_name
from headspace.tune.experiment import Kind, State, Trial
from headspace.tune.output.summary import Ladder, SearchSummary, seconds_by_group
from headspace.tune.output.wording import (
    describe_classes,
    describe_hit_rate,
    format_contribution,
    format_seconds,
    format_total,
)
from headspace.tune.plan import what_if
from headspace.tune.plan.objective import Cost, Gain
from headspace.tune.plan.planner import confirmed_gain, first_of
from headspace.tune.space.command import Template
from headspace.tune.space.knobs import Config, Space


def report(found: SearchSummary, template: Template, reason: str) -> list[str]:
    """The lines of the report, in the layout of the verdict. The last one is the command."""
    trials, space, objective = found.trials, found.space, found.objective
    unit, won, ladder = objective.unit, found.winner, found.ladder
    if won is None:
        return [f"tune       nothing was measured: {reason}"]
    others = sum(not one.searched for one in found.experiments)
    searched = len(trials) - others
    lines = [
        f"tune       {searched} of {space.size} configurations, {others} other runs; ended because "
        f"{reason}"
    ]
    if ladder is None:
        return [*lines, "           the best configuration was not measured"]
    lines += _class_lines(found)
    lines.append(
        f"baseline   {_format_cost(ladder.baseline, unit)}   {space.describe(space.baseline)}"
    )
    unsure = False
    if not ladder.rungs:
        lines.append("best       the baseline: no configuration that was tried is faster")
    else:
        lines.append(f"best       {_format_cost(ladder.best, unit)}   {space.describe(won.knobs)}")
        confirmed = confirmed_gain(trials, objective)
        lines += _gain_lines(confirmed, ladder)
        unsure = confirmed is not None and not confirmed.sure
        lines += _ladder_lines(ladder)
    lines += _floor_line(trials, found.standing.floor_ms, ladder.best.ms, unit)
    lines += _left_out_line(trials, space)
    if bottleneck := _bottleneck_of(trials, won.knobs):
        lines.append(f"bottleneck {bottleneck}")
    lines += _sm_line(found)
    meant = (State.FINISHED, State.STOPPED_EARLY)
    failed = [t for t in trials if t.outcome.state not in meant]
    if failed:
        states = ", ".join(f"#{t.number} {t.outcome.ending}" for t in failed)
        lines.append(f"failed     {states}")
    heading = "command of the best configuration (gain not confirmed)" if unsure else "command"
    return [*lines, heading, f"    {template.line(won.knobs)}"]


def _class_lines(found: SearchSummary) -> list[str]:
    """The experiments by class, the hit rate, and the time that each group took."""
    lines = [f"classes    {describe_classes(found)}"]
    rate = describe_hit_rate(found)
    if rate:
        lines.append(f"hit rate   {rate}")
    spent = seconds_by_group(found.experiments)
    if spent:
        parts = [f"{group.value} {format_seconds(s)}" for group, s in spent.items()]
        lines.append(f"time       {format_seconds(sum(spent.values()))}: {', '.join(parts)}")
    return lines


def _format_change(gain: Gain) -> str:
    """`12.0 % less time (95 % interval 9.8 to 14.1)`, or `more time` if the gain is negative."""
    sign, word = (1, "less") if gain.pct >= 0 else (-1, "more")
    low, high = sorted((sign * gain.low, sign * gain.high))
    return f"{abs(gain.pct):.1f} % {word} time (95 % interval {low:.1f} to {high:.1f})"


def _gain_lines(confirmed: Gain | None, ladder: Ladder) -> list[str]:
    """The gain of the winner over the baseline, and whether it is confirmed."""
    if confirmed is None:
        return [f"gain       {ladder.gain_pct:.1f} % less time, not confirmed"]
    runs = "1 run" if confirmed.pairs == 1 else f"{confirmed.pairs} runs"
    lines = [
        f"gain       {_format_change(confirmed)}, from {runs} each of the best configuration and the baseline"
    ]
    if confirmed.pairs == 1:
        lines.append(
            f"           The interval assumes that runs vary by {100 * RUN_TO_RUN:.2g} %: use `--confirm 2` to measure it"
        )
    if not confirmed.sure:
        lines.append(
            "           The gain is not significant: keep the baseline, or continue the search with "
            "longer runs"
        )
    return lines


def _ladder_lines(ladder: Ladder) -> list[str]:
    """What each change of the knobs contributes: a line for each rung, as in `ladder.svg`."""
    rows = [("baseline", f"{ladder.baseline.ms:.1f} ms", "", "")]
    for rung in ladder.rungs:
        changes = " + ".join(change.text for change in rung.changes)
        rows.append(
            (
                f"#{rung.trial.number} {changes}",
                f"{rung.cost.ms:.1f} ms",
                format_contribution(rung),
                "" if rung.significant else "not significant",
            )
        )
    if len(ladder.rungs) > 1:
        rows.append(("together", "", format_total(ladder), ""))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines: list[str] = []
    for name, cost, gain, note in rows:
        text = f"{name:<{widths[0]}}  {cost:>{widths[1]}}  {gain:>{widths[2]}}  {note}"
        lines.append(f"{'           ' if lines else 'ladder     '}{text.rstrip()}")
    return lines


def _sm_line(found: SearchSummary) -> list[str]:
    """SM utilisation of the baseline and of the winner. Nothing without a GPU."""
    before = found.sm_pct(found.space.baseline)
    after = found.sm_pct(found.winner.knobs) if found.winner else None
    if before is None or after is None:
        return []
    return [f"SM         {before:.0f} % utilised with the baseline, {after:.0f} % with the best"]


def _format_cost(cost: Cost, unit: str) -> str:
    """A cost with its interval, and the number of runs if there are several."""
    text = f"{cost.ms:.1f} {unit} ±{cost.half:.1f}"
    if cost.span is None:
        return text
    least, most = cost.span
    return f"{text} ({cost.runs} runs, {least:.1f} to {most:.1f})"


def _floor_line(trials: Sequence[Trial], floor: float | None, best: float, unit: str) -> list[str]:
    if floor is not None:
        left = 100 * (1 - floor / best)
        text = f"a headspace of {left:.1f} % is left" if left > 0 else "no headspace is left"
        return [f"floor      {floor:.1f} {unit}: {text}"]
    baseline = first_of(trials, Kind.BASELINE)
    status = baseline.outcome.summary.get("what_if_status") if baseline else None
    if status is None:
        return ["floor      unknown: the baseline was run without a what-if"]
    if not status["finished"]:
        return [
            "floor      unknown: the what-if of the baseline did not finish (increase the number of steps of this run "
            "with `{what_if:1200|200}` in the command, or `--timeout`)"
        ]
    if status["imprecise"]:
        return [
            "floor      unknown: the steps of the baseline varied too much to measure them without the work of stages"
        ]
    return [
        "floor      unknown: the loop still waits in all steps without the work of stages that were measured"
    ]


def _left_out_line(trials: Sequence[Trial], space: Space) -> list[str]:
    """The knobs that were not tried."""
    baseline = first_of(trials, Kind.BASELINE)
    knobs = what_if.left_out(space, baseline.outcome.summary) if baseline else []
    names = ", ".join(knob.name for knob in knobs)
    return (
        [f"not tried  {names}: a step is not shorter without the work of the stage"]
        if names
        else []
    )


def _bottleneck_of(trials: Sequence[Trial], config: Config) -> str:
    """The bottleneck of a configuration, by its last run that has one."""
    for trial in reversed(trials):
        found = trial.outcome.summary.get("bottleneck")
        if trial.knobs == config and trial.outcome.measured and found:
            name = bottleneck_name(found["kind"], found.get("name"))
            return f"{name} ({found['evidence']})"
    return ""
