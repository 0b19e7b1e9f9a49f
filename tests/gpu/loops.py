"""Runs training loops on a GPU under `headspace run`, and compares the verdicts with CUDA events and real changes.

    python tests/gpu/loops.py

For a machine with an NVIDIA GPU, torch and at least 8 cores. GPUs work asynchronously, so a loop can wait in its loader
for work that it launched before. The verdict must not call the loader the bottleneck then. The step that it
predicts for more workers must match the measured one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TRAIN = Path(__file__).with_name("train.py")

#: The options of each loop, by its description.
LOOPS = {
    "the loader uploads batches": ["--upload-in-loader"],
    "no workers, the loss is read in each step": ["--sample-ms", "0.5", "--read-loss"],
    "no workers, nothing waits for the GPU": ["--sample-ms", "0.5"],
    "no workers, slow reads": ["--sample-ms", "2"],
    "two workers, slow reads": ["--sample-ms", "3", "--workers", "2"],
    "four workers, fast enough": ["--sample-ms", "2", "--workers", "4"],
}


def printed(text: str, name: str) -> float:
    found = re.search(rf"^{name} ([0-9.]+)$", text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the program does not print {name}: {text[-2000:]}")
    return float(found[1])


def run(options: list[str], *before: str) -> str:
    command = [*before, sys.executable, str(TRAIN), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=200).stdout


def watched(options: list[str]) -> dict[str, Any]:
    """The summary of the run under headspace."""
    with tempfile.TemporaryDirectory() as folder:
        run(options, sys.executable, "-m", "headspace", "run", "--dir", folder, "--")
        (records,) = Path(folder).glob("*/rank0.jsonl")
        lines = [json.loads(line) for line in records.read_text().splitlines()]
    return next(record for record in reversed(lines) if record["kind"] == "summary")


def more_workers(summary: dict[str, Any]) -> dict[str, Any] | None:
    remedies = summary["remedies"]
    return next(
        (one for one in remedies if one["code"] == "more_workers" and one.get("change")), None
    )


def main() -> None:
    print(
        "| loop | step | GPU works (CUDA events) | GPU works (headspace) | bottleneck | workers | predicted | measured |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name, options in LOOPS.items():
        timed = run([*options, "--time-gpu"])
        summary = watched(options)
        step_ms = summary["steady_step_mean_ms"]
        gpus = summary["resources"]["gpus"]
        busy_ms = step_ms * gpus[0]["any_kernel_pct"] / 100
        limit = summary["bottleneck"] or {"kind": "unknown"}
        cells = [
            name,
            f"{step_ms:.1f} ms",
            f"{printed(timed, 'gpu_ms'):.1f} ms",
            f"{busy_ms:.1f} ms",
            limit["kind"],
        ]
        remedy = more_workers(summary)
        if remedy is None:
            cells += ["", "", ""]
        else:
            workers = remedy["change"]["to"]
            measured = printed(run([*options, "--workers", workers]), "step_ms")
            predicted = remedy["predicted_step_ms"]
            cells += [
                workers,
                f"{predicted:.1f} ms",
                f"{measured:.1f} ms ({predicted / measured - 1:+.0%})",
            ]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
