"""Writes the result files: `results.tsv`, `experiments.jsonl`, and the plots.

The table has the columns of SPDL's master table, with the same names and meanings, so the same tools
read both. The floor, which the what-if of the baseline measured, is the row `headspace_cache`. Files are
replaced whole, so a reader never sees a part of one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headspace.tune.experiment import Kind, Outcome, State, Trial
from headspace.tune.output.ladder_plot import ladder_svg
from headspace.tune.output.plots import progress_svg
from headspace.tune.output.summary import SearchSummary
from headspace.tune.output.tree_plot import tree_svg
from headspace.tune.plan import what_if
from headspace.tune.plan.classes import Class, Classified
from headspace.tune.space.knobs import Space

COLUMNS = (
    "run_id",
    "name",
    "job_id",
    "status",
    "throughput_samples_per_s",
    "step_time_ms",
    "steady_step_time_ms",
    "ttfb_s",
    "sm_util_pct",
    "steady_sm_util_pct",
    "data_readiness_pct",
    "duration_s",
    "changes",
    "change_summary",
    "notes",
)

#: Fields of the proposal that `experiments.jsonl` repeats.
_PROPOSAL = ("kind", "knobs", "parent", "reason", "predicted_ms")

#: Fields of the summary that `experiments.jsonl` repeats.
_SUMMARY = (
    "throughput_samples_per_s",
    "steady_step_time_ms",
    "wait_ms",
    "compute_ms",
    "ttfb_s",
    "steady_sm_utilization_pct",
    "cpu_utilization_pct",
    "data_readiness_pct",
    "bottleneck",
    "what_if",
)


def write(folder: Path, found: SearchSummary) -> None:
    """Writes all result files."""
    replace(folder / "results.tsv", table(found.trials, found.space))
    lines = [json.dumps(line(one), ensure_ascii=False) + "\n" for one in found.experiments]
    replace(folder / "experiments.jsonl", "".join(lines))
    replace(folder / "progress.svg", progress_svg(found))
    replace(folder / "ladder.svg", ladder_svg(found))
    replace(folder / "tree.svg", tree_svg(found))


def replace(path: Path, text: str) -> None:
    """Replaces a file atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def table(trials: Sequence[Trial], space: Space) -> str:
    """`results.tsv`."""
    by_number: dict[int | None, Trial] = {trial.number: trial for trial in trials}
    rows = ["\t".join(COLUMNS)]
    for trial in trials:
        row = _row(trial, space, by_number.get(trial.proposal.parent))
        rows.append(_tabbed(row))
        floor = what_if.floor_ms(trial.outcome.summary)
        if trial.kind is Kind.BASELINE and floor is not None:
            rows.append(_tabbed(_floor_row(trial, space, floor)))
    return "\n".join(rows) + "\n"


def _tabbed(row: Mapping[str, object]) -> str:
    return "\t".join(_escaped(row.get(column)) for column in COLUMNS)


def _floor_row(baseline: Trial, space: Space, floor_ms: float) -> dict[str, object]:
    summary = baseline.outcome.summary
    rate, mean = summary.get("throughput_samples_per_s"), summary.get("steady_step_mean_ms")
    return {
        "run_id": f"{baseline.number:03}",
        "name": "headspace_cache",
        "status": "completed",
        "throughput_samples_per_s": rate * mean / floor_ms if rate and mean else None,
        "step_time_ms": floor_ms,
        "steady_step_time_ms": floor_ms,
        "changes": space.describe(baseline.knobs),
        "notes": "The floor: the step without the work of all stages, from the same run.",
    }


def _row(trial: Trial, space: Space, parent: Trial | None) -> dict[str, object]:
    outcome, summary = trial.outcome, trial.outcome.summary
    row: dict[str, object] = {
        "run_id": f"{trial.number:03}",
        "name": trial.kind.value,
        "status": _status(outcome),
        "duration_s": f"{outcome.seconds:.1f}",
        "changes": space.describe(trial.knobs),
        "change_summary": space.describe(trial.knobs, parent.knobs) if parent else "",
        "notes": notes(trial),
    }
    if outcome.state is State.STOPPED_EARLY:
        row["step_time_ms"] = outcome.step_ms
    if not outcome.measured:
        return row
    return row | {
        "throughput_samples_per_s": summary.get("throughput_samples_per_s"),
        "step_time_ms": summary.get("step_time_ms"),
        "steady_step_time_ms": summary.get("steady_step_time_ms"),
        "ttfb_s": summary.get("ttfb_s"),
        "sm_util_pct": summary.get("sm_utilization_pct"),
        "steady_sm_util_pct": summary.get("steady_sm_utilization_pct"),
        "data_readiness_pct": summary.get("data_readiness_pct"),
    }


def _status(outcome: Outcome) -> str:
    """SPDL's words for an experiment that was measured or failed. A slower one that was stopped early did not fail:
    it has its class as the status, and SPDL's tools show it as an experiment without a gain."""
    if outcome.state is State.STOPPED_EARLY:
        return Class.STOPPED_EARLY.value
    return "completed" if outcome.measured else "failed"


def notes(trial: Trial) -> str:
    """Why an experiment was run, its prediction, and its error, if there was one."""
    proposal, outcome = trial.proposal, trial.outcome
    parts = [proposal.reason]
    if proposal.predicted_ms is not None:
        parts.append(f"Predicted {proposal.predicted_ms:.1f} ms.")
    if outcome.state is not State.FINISHED:
        parts.append(f"{outcome.state.value}: {outcome.detail}")
    elif outcome.detail:
        parts.append(outcome.detail)
    elif not outcome.measured:
        parts.append(f"{outcome.steps} steps are too few to measure.")
    return " ".join(parts)


def _escaped(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def line(one: Classified) -> Mapping[str, Any]:
    """A line of `experiments.jsonl`."""
    trial = one.trial
    proposal, outcome = trial.proposal, trial.outcome
    ended = ("state", "step_ms", "interval_ms", "steps", "seconds", "exit_code", "detail")
    return {
        "number": trial.number,
        "class": one.category.value,
        **{name: getattr(proposal, name) for name in _PROPOSAL},
        **{name: getattr(outcome, name) for name in (*ended, "log", "run")},
        "seconds": round(outcome.seconds, 3),
        "summary": {name: outcome.summary.get(name) for name in _SUMMARY},
    }
