"""Lines of a record file, made by hand."""

import json
from typing import Any


def line(kind: str, **fields: Any) -> str:
    envelope = {
        "schema": "headspace/1.1",
        "time_unix_nano": 1,
        "run_id": "made",
        "rank": 0,
        "pid": 1,
        "kind": kind,
    }
    return json.dumps(envelope | fields) + "\n"


def tick(*loops: dict[str, Any]) -> str:
    return line("tick", tick=0, at_s=1.0, interval_s=1.0, merged=1, loops=loops)


def loop(name: str, steps: int, ms: float, phase: str = "live") -> dict[str, Any]:
    """The entry of a tick for a loop with this number of steps, each of `ms` milliseconds."""
    step = {"count": steps, "sum_ms": steps * ms, "min_ms": ms, "max_ms": ms, "buckets": [steps]}
    return {
        "name": name,
        "phase": phase,
        "epoch": 0,
        "first_step": 0,
        "steps": steps,
        "wait": step,
        "compute": step,
        "step": step,
    }


def probe() -> str:
    return line(
        "probe", loop="train", windows=[], cached_batches=0, mutated_batches=0, replayed_steps=0
    )
