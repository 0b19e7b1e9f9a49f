"""Converts a summary to the engine's events and log lines.

Stages log `pipeline:<pipeline>:<place>:<name>[<concurrency>]_<metric>`. Queues log the same with `_queue`
after the name (`prompts/knowledge/how_to_interpret_pipeline_stats.md`, spdl 0.8). Times are in seconds,
rates in items per second. Missing values are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headspace.spdl.autoresearch._records import Measured


def events(found: Measured) -> list[tuple[str, float]]:
    """The pipeline's events, source first."""
    summary = found.summary
    step_ms = summary.get("steady_step_mean_ms")
    rows: list[tuple[str, float | None]] = []
    names: dict[str, str] = {}
    for place, stage in enumerate(summary.get("stages", ()), start=1):
        concurrency = stage.get("concurrency")
        place_of = f"[{concurrency:g}]" if concurrency else ""
        name = names[stage["name"]] = f"pipeline:0:{place}:{stage['name']}{place_of}"
        rows += [
            (f"{name}_ave_time", _scaled(stage.get("mean_ms"), 1e-3)),
            (f"{name}_num_tasks", stage.get("calls")),
            (f"{name}_num_failures", stage.get("failures")),
        ]
        calls, ratio = stage.get("calls_per_batch"), stage.get("out_per_in")
        if step_ms and calls is not None:
            rows.append((f"{name}_queue_qps", calls * (ratio or 1.0) * 1e3 / step_ms))
    for place, queue in enumerate(summary.get("queues", ()), start=len(names) + 1):
        plain = queue["name"].removesuffix("_queue").removeprefix("after ")
        name = names.get(queue.get("filled_by")) or f"pipeline:0:{place}:{plain}"
        empty = queue.get("empty_pct")
        share = None if empty is None else 1.0 - empty / 100.0
        rows.append((f"{name}_queue_occupation_rate", share))
        if queue.get("last"):
            rows.append((f"{name}_queue_get", _scaled(summary.get("wait_ms"), 1e-3)))
    return [(name, float(value)) for name, value in rows if value is not None]


def log_lines(found: Measured) -> Iterator[str]:
    """The lines that an instrumented script would have printed."""
    if not found.steps:
        return
    summary = found.summary
    cores = (summary.get("resources") or {}).get("cores_usable")
    if cores is not None:
        yield f"[autoresearch] cpu_cores={cores:g}"
    if summary.get("ttfb_s") is not None:
        yield f"[autoresearch] ttfb_s={summary['ttfb_s']:.2f}"
    step = summary.get("step_time_ms")
    line = f"[autoresearch] step={found.steps}"
    if step is not None:
        line += f" step_time_ms={step:.1f}"
    if summary.get("wait_ms") is not None:
        line += f" fetch_time_ms={summary['wait_ms']:.1f}"
        line += f" compute_time_ms={summary['compute_ms']:.1f}"
    yield line


def system(found: Measured) -> str:
    """GPU, cores and memory. If SM utilisation was not measured, the text has the reason."""
    summary = found.summary
    lines = [_sm(found)]
    if summary.get("cpu_utilization_pct") is not None:
        lines.append(f"cpu_utilization_pct avg={summary['cpu_utilization_pct']:.1f}")
    resources = summary.get("resources") or {}
    lines += [
        f"{name}={resources[name]:.4g}"
        for name in (
            *("cores_used", "cores_usable", "others_cores", "consumer_run_queue_pct"),
            *("throttled_pct", "gil_wait_ms", "gc_pct", "memory_bytes", "disk_read_bytes_per_s"),
        )
        if isinstance(resources.get(name), int | float)
    ]
    for gpu in resources.get("gpus", ()):
        values = [f"{key}={value:.4g}" for key, value in gpu.items() if _is_number(key, value)]
        lines.append(f"gpu {gpu.get('ordinal', 0)}: {' '.join(values)}")
    return "\n".join(lines)


def _sm(found: Measured) -> str:
    summary = found.summary
    if summary.get("sm_utilization_pct") is None:
        sources = {source["name"]: source for source in found.run.get("sources", ())}
        why = sources.get("gpu_gpm", {}).get("reason")
        return f"sm_utilization_pct: null, not measured{f': {why}' if why else ''}"
    line = f"sm_utilization_pct avg={summary['sm_utilization_pct']:.1f}"
    if summary.get("steady_sm_utilization_pct") is not None:
        line += f" steady={summary['steady_sm_utilization_pct']:.1f}"
    if found.sm:
        in_order = sorted(found.sm)
        for percent in (50, 75):
            line += f" p{percent}={in_order[(len(in_order) - 1) * percent // 100]:.1f}"
    return line


def _is_number(key: str, value: Any) -> bool:
    return key != "ordinal" and isinstance(value, int | float)


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value * by
