"""Predicted and measured effect of the remedies of real training programs.

    python tests/python/study_remedies.py [--steps 250] [--repeats 3] [program ...]

Each program is a torch or NumPy loop that loads on its own thread. It runs under `headspace run` in
mode `measure`, which proposes remedies with a predicted step. The study applies each remedy that changes
a knob of the program, and runs the program again without headspace. Changed and unchanged runs alternate,
so that other load on the machine affects both alike. The shortest run of each counts. The program prints
the predicted and the measured steps. It is not a test, because it takes minutes and its result depends
on other load of the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from running import Runs, clean_environment

PROGRAM = Path(__file__).parents[1] / "programs" / "loads_by_itself.py"

RUN = [sys.executable, "-m", "headspace", "run", "--mode", "measure", "--"]

PROGRAMS = {
    "python": "18 ms of Python, two small tensors",
    "numpy": "12 ms of NumPy, two small tensors",
    "balanced": "10 ms of NumPy before 20 ms of compute",
    "large": "12 ms of NumPy, 24 MB a batch",
    "huge": "2 ms of copying, 40 MB a batch before 30 ms of compute",
    "tensors": "12 ms of NumPy, 16 tensors a batch",
    "objects": "10 ms of Python, 24,000 objects a batch",
    "waits": "20 ms of waiting for a store",
}
"""The kinds of `PROGRAM`, and what each loads."""


def step_ms(kind: str, steps: int, workers: int) -> float:
    """Mean step of the program without headspace."""
    ours = clean_environment()
    done = subprocess.run(
        [sys.executable, str(PROGRAM), kind, str(steps), str(workers)],
        env=ours,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def summary(kind: str, steps: int, folder: Path) -> dict[str, Any]:
    """headspace's summary of the unchanged program."""
    subprocess.run(
        [*RUN, sys.executable, str(PROGRAM), kind, str(steps), "0"],
        env={**os.environ, "HEADSPACE_DIR": str(folder)},
        capture_output=True,
        check=True,
    )
    return dict(Runs(folder).summary())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], default=list(PROGRAMS))
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()

    errors = []
    print(
        f"{'program':10}{'now':>9}{'workers':>9}{'predicted':>11}{'measured':>10}{'error':>8}  sure"
    )
    for kind in args.programs:
        with tempfile.TemporaryDirectory() as folder:
            found = summary(kind, args.steps, Path(folder))
        said = found["steady_step_mean_ms"]
        proposed = {
            int(remedy["change"]["to"]): remedy
            for remedy in found.get("remedies", [])
            if remedy.get("change", {}).get("knob") == "num_workers"
        }
        tried = [0, *(proposed or [1])]
        measured: dict[int, list[float]] = {workers: [] for workers in tried}
        for _ in range(args.repeats):
            for workers in tried:
                measured[workers].append(step_ms(kind, args.steps, workers))
        now = min(measured[0])
        for workers in tried[1:]:
            really = min(measured[workers])
            if workers not in proposed:
                verdict = "right" if really > 0.98 * now else "missed"
                print(f"{kind:10}{now:9.1f}{workers:9}{'none':>11}{really:10.1f}{verdict:>8}")
                continue
            remedy = proposed[workers]
            # Scales the prediction, because the speed of the machine may have changed since the run under headspace.
            predicted = remedy["predicted_step_ms"] * now / said
            error = 100 * (predicted / really - 1)
            errors.append(abs(error))
            sure = "likely" if remedy["confidence"] >= 0.7 else "plausible"
            wrong = "  SLOWER" if really > now and sure == "likely" else ""
            print(
                f"{kind:10}{now:9.1f}{workers:9}{predicted:11.1f}{really:10.1f}{error:+7.1f}%"
                f"  {sure}{wrong}"
            )
    if errors:
        print(f"error: median {statistics.median(errors):.1f} %, largest {max(errors):.1f} %")


if __name__ == "__main__":
    main()
