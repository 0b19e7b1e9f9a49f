"""Compares what a what-if measures with programs that are really changed (`make study`).

Each program runs once in mode `whatif`. Then it runs with each change that was measured: without the work of a stage, with
half of it, or with fewer calls at once. The table has the step of both, and the error of the measured one.

    python tests/python/study_what_if.py [--rounds N] [KIND...]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parents[1] / "programs" / "what_if_truth.py"
KINDS = ("threads_wait", "threads_cpu", "torch_wait", "torch_cpu", "spdl", "video")

#: Steps of a run in mode `whatif`, and steps of each run of a changed program.
ASKED, CHANGED = 2400, 800

#: The change in which the loop never waits: mode `replay`.
REPLAY = "requests=0"

#: Number of runs over which the step time of a changed program is averaged.
REPEATS = 2

#: Targets for the errors, in percent: the median, and the 90th percentile.
MEDIAN_PCT, P90_PCT = 3.0, 8.0


def run(kind: str, steps: int, mode: str, change: str = "") -> dict[str, Any]:
    """The last summary of a run."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"HEADSPACE_DIR": folder, "HEADSPACE_QUIET": "1"}
        command = [sys.executable, PROGRAM, kind, steps, mode, *([change] if change else [])]
        subprocess.run(list(map(str, command)), check=True, env={**os.environ, **settings})
        (records,) = Path(folder).glob("*/rank0.jsonl")
        summaries = [
            record
            for record in map(json.loads, records.read_text().splitlines())
            if record["kind"] == "summary"
        ]
        found: dict[str, Any] = summaries[-1]
        return found


def change_of(answer: dict[str, Any]) -> str | None:
    """The argument with which the program makes this change itself. None if it has no such argument."""
    kind, stage = answer["intervention"], answer["stage"]
    if stage is None:
        return REPLAY if kind == "free" else None
    if stage == "train collate":
        return None
    if kind == "gate":
        return f"{stage}=gate{answer['amount']:.0f}"
    factor = {"free": "0", "half": "0.5"}.get(kind)
    return None if factor is None else f"{stage}={factor}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("kinds", nargs="*", default=KINDS, metavar="KIND")
    options = parser.parse_args()
    errors, inside = [], []
    print(f"{'program':14} {'change':22} {'measured ms':>20} {'changed ms':>11} {'error %':>8}")
    for _ in range(options.rounds):
        for kind in options.kinds:
            summary = run(kind, ASKED, "whatif")
            for answer in summary.get("what_if", []):
                change = change_of(answer)
                if change is None:
                    continue
                is_replay = change == REPLAY
                how = ("replay",) if is_replay else ("measure", change)
                runs = [run(kind, CHANGED, *how) for _ in range(REPEATS)]
                truth = statistics.fmean(summary["steady_step_mean_ms"] for summary in runs)
                error = 100 * (answer["step_ms"] / truth - 1)
                low, high = answer["step_ci_ms"]
                errors.append(abs(error))
                inside.append(low <= truth <= high)
                print(
                    f"{kind:14} {change:22} {answer['step_ms']:6.2f} ({low:5.2f} to {high:5.2f})"
                    f" {truth:11.2f} {error:8.1f}",
                    flush=True,
                )
    p90 = statistics.quantiles(errors, n=10)[-1]
    print(
        f"{len(errors)} answers: median error {statistics.median(errors):.1f} % (target {MEDIAN_PCT:g}), "
        f"90th percentile {p90:.1f} % (target {P90_PCT:g}); the interval contains the step of the changed "
        f"program in {100 * statistics.mean(inside):.0f} %"
    )


if __name__ == "__main__":
    main()
