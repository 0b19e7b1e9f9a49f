"""Converts a summary to the JSON block that the engine's analysis needs.

Names and meanings are the engine's (`prompts/analyze.md`, spdl 0.8). The summary has the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headspace._native import bottleneck_name
from headspace._settings import MEASURE, PROBE
from headspace.spdl.autoresearch._records import Measured

#: The engine's name of the experiment that others are compared with.
_BASELINE = "000_baseline"
#: Maximum number of remedies that become findings.
_REMEDIES = 3
#: Smallest gain that is printed as a prediction, in percent. A remedy with a smaller gain is only named.
_WORTH_PCT = 1.0

Metrics = dict[str, Any]


def block(
    found: Measured,
    *,
    mode: str,
    error: str = "",
    others: Mapping[str, Metrics] | None = None,
    run_id: str = "",
    duration_s: float | None = None,
) -> dict[str, Any]:
    """Metrics and findings.

    Args:
        found: The records' content.
        mode: `MEASURE`, `PROBE`, or `failed`.
        error: Why it failed.
        others: Metrics of the experiments that succeeded, by the engine's name of the experiment.
        run_id: The engine's name of this one.
        duration_s: Seconds that it ran. The engine counts a practice as tried only if it has
            this or the use of a GPU.
    """
    if mode == "failed":
        notes = error.partition("\n")[0]
        metrics: Metrics = {**(_nothing() if found.steps else {}), "notes": notes}
        return {"metrics": metrics, "findings": [notes]}
    if not found.steps:
        notes = (
            "nothing was measured: no loop used a supported loader (wrap the loader with "
            "`headspace.wrap(loader)`)"
        )
        return {"metrics": {**_nothing(), "notes": notes}, "findings": [notes]}
    metrics = _floor(found) if mode == PROBE else _live(found)
    if mode == MEASURE:
        metrics["duration_s"] = _rounded(duration_s)
        metrics.update(_compared(metrics, dict(others or {}), run_id))
    notes = _headspace(found) if mode == PROBE else _bottleneck(found)
    return {"metrics": {**metrics, "notes": notes}, "findings": _findings(found, notes)}


def _nothing() -> Metrics:
    """All metrics as not measured."""
    return {
        "step_time_ms": None,
        "steady_step_time_ms": None,
        "throughput_samples_per_s": None,
        "ttfb_s": None,
        "sm_utilization_pct": None,
        "steady_sm_utilization_pct": None,
        "cpu_utilization_pct": None,
        "data_readiness_pct": None,
        "init_time_s": None,
        "bottleneck_stage": None,
        "improvement_vs_baseline_pct": None,
        "is_best_so_far": False,
    }


def _live(found: Measured) -> Metrics:
    nothing = _nothing().items()
    metrics = {name: _rounded(found.summary.get(name, value)) for name, value in nothing}
    bottleneck = found.summary.get("bottleneck") or {}
    if bottleneck.get("kind") == "compute":
        metrics["bottleneck_stage"] = "none"
    elif metrics["bottleneck_stage"] is None:
        metrics["bottleneck_stage"] = bottleneck.get("name")
    rate = metrics["throughput_samples_per_s"]
    if rate is not None:
        # Ranks train in step, each on batches of its own.
        metrics["throughput_samples_per_s"] = _rounded(rate * found.ranks)
    return metrics


def _floor(found: Measured) -> Metrics:
    """Metrics of the headspace experiment: a training run with free data.

    Mean step and steady step are the same. The engine scales the throughput by their ratio, to correct for
    a cache that has to fill first.
    """
    metrics = _nothing()
    summary = found.summary
    floor, live = summary.get("floor_step_ms"), summary.get("steady_step_mean_ms")
    metrics["ttfb_s"] = _rounded(summary.get("ttfb_s"))
    metrics["init_time_s"] = _rounded(summary.get("init_time_s"))
    if not floor:
        return metrics
    metrics["step_time_ms"] = metrics["steady_step_time_ms"] = _rounded(floor)
    rate = summary.get("throughput_samples_per_s")
    if rate and live:
        metrics["throughput_samples_per_s"] = _rounded(rate * found.ranks * live / floor)
    return metrics


def _compared(metrics: Metrics, others: dict[str, Metrics], run_id: str) -> Metrics:
    mine = _speed(metrics)
    if mine is None:
        return {}
    others.pop(run_id, None)
    compared: Metrics = {
        "is_best_so_far": all(
            theirs is None or theirs[0] != mine[0] or theirs[1] < mine[1]
            for theirs in map(_speed, others.values())
        )
    }
    baseline = _speed(others.get(_BASELINE, metrics))
    if baseline is not None and baseline[0] == mine[0]:
        compared["improvement_vs_baseline_pct"] = _rounded(100.0 * (mine[1] / baseline[1] - 1.0))
    return compared


def _speed(metrics: Metrics) -> tuple[str, float] | None:
    """The rate by which the engine compares: samples per second, else steps per second."""
    if metrics.get("throughput_samples_per_s"):
        return "samples", float(metrics["throughput_samples_per_s"])
    if metrics.get("steady_step_time_ms"):
        return "steps", 1000.0 / float(metrics["steady_step_time_ms"])
    return None


def _headspace(found: Measured) -> str:
    summary = found.summary
    if summary.get("floor_step_ms") is None:
        reasons = [f["text"] for f in summary.get("findings", ()) if f["code"] == "no_headspace"]
        why = reasons[0] if reasons else "the run was too short"
        return f"the floor was not measured: {why}"
    low, high = summary.get("headspace_ci_pct") or (None, None)
    interval = "" if low is None else f" (95 % interval {low:.1f} to {high:.1f})"
    return (
        f"with free data a step takes {summary['floor_step_ms']:.1f} ms: headspace "
        f"{summary['headspace_pct']:.1f} %{interval}"
    )


def _bottleneck(found: Measured) -> str:
    summary = found.summary
    wait = summary.get("wait_pct")
    notes: list[str] = [] if wait is None else [f"{wait:.0f} % of a step is waiting for data"]
    bottleneck = summary.get("bottleneck") or {}
    if bottleneck:
        name = bottleneck_name(bottleneck["kind"], bottleneck.get("name"))
        notes.append(f"the bottleneck is {name} ({bottleneck['evidence']})")
    return "; ".join(notes) or "no step in steady state"


def _findings(found: Measured, notes: str) -> list[str]:
    findings = [notes]
    interval = found.summary.get("steady_step_ci_ms")
    if interval:
        low, high = interval
        findings.append(
            f"a step takes {low:.1f} to {high:.1f} ms (95 % interval): a difference within it is noise"
        )
    for remedy in found.summary.get("remedies", ())[:_REMEDIES]:
        predicted, gain = remedy["predicted_step_ms"], remedy["predicted_gain_pct"]
        what = remedy["what"].rstrip(".")
        if gain >= _WORTH_PCT:
            what = f"predicted: {what}: {predicted:.1f} ms a step (-{gain:.0f} %)"
        findings.append(what)
    findings.extend(finding["text"] for finding in found.summary.get("findings", ()))
    return list(dict.fromkeys(findings))


def _rounded(value: Any) -> Any:
    """Rounds to three digits after the point. The interval of a run is wider."""
    return round(value, 3) if isinstance(value, float) else value
