"""Writes the final report of a search: the best command, its gain, and the remaining headspace."""

from __future__ import annotations

from collections.abc import Sequence

from headspace._native import bottleneck_name
from headspace.tune.experiment import SEARCHING, Kind, State, Trial
from headspace.tune.plan import what_if
from headspace.tune.plan.objective import Cost
from headspace.tune.plan.planner import (
    Limits,
    confirmed_gain,
    first_of,
    pooled,
    standing,
    winner_of,
)
from headspace.tune.space.command import Template
from headspace.tune.space.knobs import Config, Space, key


def report(
    trials: Sequence[Trial], space: Space, template: Template, limits: Limits, reason: str
) -> list[str]:
    """The lines of the report, in the layout of the verdict. The last one is the command."""
    objective = limits.objective
    unit = objective.unit
    won = winner_of(trials, objective)
    if won is None:
        return [f"tune       nothing was measured: {reason}"]
    now = standing(trials, objective)
    searched = sum(t.kind in SEARCHING for t in trials)
    others = len(trials) - searched
    lines = [
        f"tune       {searched} of {space.size} configurations, {others} other runs; ended because "
        f"{reason}"
    ]
    unsure = False
    before = pooled(trials, space.baseline, objective)
    after = pooled(trials, won.knobs, objective)
    if before is None or after is None:
        return [*lines, "           the best configuration was not measured"]
    lines.append(f"baseline   {_format_cost(before, unit)}   {space.describe(space.baseline)}")
    if key(won.knobs) == key(space.baseline):
        lines.append("best       the baseline: no configuration that was tried is faster")
    else:
        lines.append(f"best       {_format_cost(after, unit)}   {space.describe(won.knobs)}")
        confirmed = confirmed_gain(trials, objective)
        if confirmed is None:
            less = 100 * (1 - after.ms / before.ms)
            lines.append(f"gain       {less:.1f} % less time, not confirmed")
        else:
            of_both = "of the best configuration and the baseline"
            text = (
                f"(95 % interval {confirmed.low:.1f} to {confirmed.high:.1f}), from "
                f"{confirmed.pairs} runs each {of_both}"
            )
            if confirmed.pairs == 1:
                text = f"from one run each {of_both}, which gives no interval (use `--confirm 2`)"
            lines.append(f"gain       {confirmed.pct:.1f} % less time {text}")
            if not confirmed.sure:
                lines.append(
                    "           The gain is not significant: keep the baseline, or continue the search with "
                    "longer runs"
                )
                unsure = True
    lines += _floor_line(trials, now.floor_ms, after.ms, unit)
    lines += _left_out_line(trials, space)
    if bottleneck := _bottleneck_of(trials, won.knobs):
        lines.append(f"bottleneck {bottleneck}")
    meant = (State.FINISHED, State.STOPPED_EARLY)
    failed = [t for t in trials if t.outcome.state not in meant]
    if failed:
        states = ", ".join(f"#{t.number} {t.outcome.ending}" for t in failed)
        lines.append(f"failed     {states}")
    heading = "command of the best configuration (gain not confirmed)" if unsure else "command"
    return [*lines, heading, f"    {template.line(won.knobs)}"]


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
