"""Programs with a known slow line: does `summary.lines` name it, and is its gain right?

    python tests/python/study_lines.py [--programs 100] [--seconds 60] [--py-spy PY_SPY] [--python P ...]

Each program (`tests/programs/slow_line.py`) is drawn from its number: the kind of its slow line (Python,
NumPy, a C extension with and without the interpreter lock, a blocking read, a lock, a sleep), who runs it
(the training thread, threads, torch's workers, a pool of processes, compute), and what else it does. It runs
once under headspace, for `--seconds`: headspace reads the stacks about ten times a second, so a shorter run has
too few samples for a gain within 10 %. Before and after, it runs for 15 s without headspace, and the slow line
really has half its work in every second block of steps. The difference between the two steps is the true gain. The
speed of a shared machine changes within a minute, so this gain is multiplied by the time of the slow line under
headspace, measured by the program itself, divided by its time in the runs that measure the gain.

Every fifth program also runs under `py-spy record`, and both must name the same line. `--py-spy` names the
command. The default is the one beside this interpreter, if it is installed.

The programs take turns on this interpreter and on the other Python versions of this machine, 3.10 to 3.15. The
first run creates a virtual environment with NumPy for each of them in `.venv/pythons`. `--python` names other
interpreters instead. Each of these needs NumPy. headspace's folder is added to the path.

This is a program and not a test, because it takes almost three hours.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from running import clean_environment, create_environment, python_interpreters

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "programs" / "slow_line.py"
PACKAGE = ROOT / "py_bindings" / "python"

PYTHONS = ROOT / ".venv" / "pythons"
"""The virtual environments of other Python versions."""

KINDS = ["python", "numpy", "extension", "parse", "read", "lock", "sleep"]
"""The kinds of work. Each is one line of the program."""

COUNTED = ["python", "numpy", "extension", "parse"]
"""Kinds whose amount is a number of repetitions, and not milliseconds."""

LAYOUTS = ["inline", "threads", "workers", "pool", "compute"]

TRUTH_SECONDS = 15.0
"""Duration of each run that measures the truth. It has at least 400 steps."""

PY_SPY_SECONDS = 20.0

Environment = dict[str, str]


def has_numpy(python: Path) -> bool:
    command = [str(python), "-c", "import numpy"]
    return python.exists() and subprocess.run(command, capture_output=True).returncode == 0


def other_pythons() -> list[str]:
    """An interpreter with NumPy for each other Python version of this machine."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = []
    for version, interpreter in python_interpreters().items():
        if version == own:
            continue
        python = PYTHONS / version / "bin" / "python"
        if not has_numpy(python):
            numpy = ("--only-binary", ":all:", "numpy>=1.26,<3")
            with contextlib.suppress(subprocess.CalledProcessError):
                create_environment(interpreter, PYTHONS / version, *numpy)
        if has_numpy(python):
            found.append(str(python))
        else:
            print(f"Python {version}: no virtual environment with NumPy", file=sys.stderr)
    return found


def line_numbers() -> dict[int, str]:
    """The kind of each marked line of the program."""
    lines = enumerate(PROGRAM.read_text().splitlines(), 1)
    marked = ((number, text.rpartition("  # ")[2]) for number, text in lines if "  # " in text)
    return {number: kind for number, kind in marked if kind in KINDS}


def environment(folder: str | None = None) -> Environment:
    """The environment of a program: without headspace, or with headspace and its runs in this folder."""
    ours = clean_environment()
    ours.pop("PYTHONPATH", None)
    ours["OPENBLAS_NUM_THREADS"] = "1"
    if folder is not None:
        ours |= {"PYTHONPATH": str(PACKAGE), "HEADSPACE_DIR": folder, "HEADSPACE_MODE": "measure"}
    return ours


def calibrate(python: str) -> dict[str, float]:
    """Amount of work of each kind that lasts a millisecond."""
    code = (
        "import sys, time, json; sys.path.insert(0, sys.argv[1]); import slow_line as s\n"
        "s.SPEC['amounts'] = {'numpy': 1}\n"
        "own = s.helpers()\n"
        "for kind in ('python', 'numpy', 'extension', 'parse'):\n"
        "    times = []\n"
        "    s.KINDS[kind](own, 10)\n"
        "    for _ in range(9):\n"
        "        begun = time.perf_counter(); s.KINDS[kind](own, 100); times.append(time.perf_counter() - begun)\n"
        "    print(kind, 100 / (1e3 * sorted(times)[4]))\n"
    )
    done = subprocess.run(
        [python, "-c", code, str(PROGRAM.parent)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return {kind: float(value) for kind, value in map(str.split, done.stdout.splitlines())}


def draw(number: int, per_ms: dict[str, float], *, torch: bool) -> tuple[dict[str, Any], float]:
    """The program of this number, and the milliseconds that a step takes."""
    random_ = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    layouts = LAYOUTS if torch else [name for name in LAYOUTS if name != "workers"]
    layout = random_.choice(layouts)
    total = random_.uniform(14.0, 30.0)
    share = random_.uniform(0.45, 0.8)
    others = random_.sample([other for other in KINDS if other != kind], 2)
    split = random_.uniform(0.35, 0.65)
    ms = {kind: share * total}
    for other, part in zip(others, (split, 1.0 - split), strict=True):
        ms[other] = min((1.0 - share) * part, 0.6 * share) * total
    amounts = {name: value * per_ms.get(name, 1.0) for name, value in ms.items()}
    concurrency = random_.choice([1, 2])
    data_ms = total / (concurrency if layout in ("threads", "workers", "pool") else 1)
    spec: dict[str, Any] = {
        "layout": layout,
        "slow": kind,
        "amounts": amounts,
        "concurrency": concurrency,
        "compute_ms": random_.uniform(0.05, 0.3) * data_ms,
    }
    if layout == "compute":
        spec |= {"compute": amounts, "amounts": {"sleep": 1.0}}
    return spec, data_ms


def output(done: subprocess.CompletedProcess[str]) -> dict[str, float]:
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured_gain(python: str, spec: dict[str, Any]) -> float:
    """How many milliseconds a step gains for each millisecond of the slow line if the line has half its work,
    without headspace.
    """
    done = subprocess.run(
        [python, str(PROGRAM), json.dumps(spec | {"alternate": True, "headspace": False})],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return output(done)["gain"]


def measured(python: str, spec: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """headspace's summary of the program, and the mean time of the slow line in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [python, str(PROGRAM), json.dumps(spec)],
            env=environment(folder),
            capture_output=True,
            text=True,
            check=True,
        )
        (records,) = Path(folder).glob("*/rank0.jsonl")
        found = map(json.loads, records.read_text().splitlines())
        summaries = [record for record in found if record["kind"] == "summary"]
        return summaries[-1], output(done)["line_ms"]


def spied(py_spy: str, python: str, spec: dict[str, Any], kinds: dict[int, str]) -> str:
    """The kind of line that `py-spy record` samples most in the slow part."""
    part = "main (" if spec["layout"] == "compute" else "load ("
    with tempfile.TemporaryDirectory() as folder:
        stacks = Path(folder) / "stacks"
        command = [py_spy, "record", "--format", "raw", "--idle", "--nonblocking", "--subprocesses"]
        command += ["--rate", "100", "--output", str(stacks), "--"]
        subprocess.run(
            [*command, python, str(PROGRAM), json.dumps(spec | {"headspace": False})],
            env=environment(),
            capture_output=True,
            check=False,
        )
        seen: Counter[str] = Counter()
        for text in stacks.read_text().splitlines():
            stack, _, count = text.rpartition(" ")
            frames = [frame for frame in stack.split(";") if PROGRAM.name in frame]
            if frames and any(frame.startswith(part) for frame in frames):
                number = frames[-1].rstrip(")").rpartition(":")[2]
                seen[kinds.get(int(number), "other")] += int(count)
    del seen["other"]
    return seen.most_common(1)[0][0] if seen else "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    beside = Path(sys.executable).with_name("py-spy")
    parser.add_argument("--py-spy", default=str(beside) if beside.exists() else None)
    parser.add_argument("--python", action="append")
    args = parser.parse_args()

    pythons = [sys.executable, *(other_pythons() if args.python is None else args.python)]
    kinds = line_numbers()
    named, agreed, spied_on = 0, 0, 0
    step_errors, gain_errors = [], []
    print(
        f"{'':4}{'python':8}{'layout':9}{'slow line':11}{'named':11}{'share':>6}{'step':>8}", end=""
    )
    print(f"{'predicted':>11}{'measured':>10}{'error':>8}  py-spy", flush=True)
    for number in range(args.first, args.first + args.programs):
        python = pythons[number % len(pythons)]
        # Each time: the speed of a shared machine changes, and the slow line must remain the slowest.
        spec, step_ms = draw(number, calibrate(python), torch=python == sys.executable)
        steps = {"steps": max(int(1e3 * TRUTH_SECONDS / step_ms), 400)}
        gains = [measured_gain(python, spec | steps)]
        found, line_ms = measured(python, spec | {"steps": int(1e3 * args.seconds / step_ms)})
        gains.append(measured_gain(python, spec | steps))
        lines = [line for line in found.get("lines", []) if line["file"].endswith(PROGRAM.name)]
        top = lines[0] if lines else None
        name = kinds.get(top["line"], f"line {top['line']}") if top else "nothing"
        step = found["steady_step_mean_ms"]
        truth = step - line_ms * statistics.fmean(gains)
        named += name == spec["slow"]
        text = f"{number:<4}{Path(python).parents[1].name[:7]:8}{spec['layout']:9}{spec['slow']:11}{name:11}"
        if top and name == spec["slow"]:
            error = 100 * (top["predicted_step_ms"] / truth - 1)
            step_errors.append(abs(error))
            gain_errors.append(100 * abs(top["predicted_step_ms"] - truth) / abs(step - truth))
            text += f"{top['share_pct']:5.0f}%{step:8.1f}{top['predicted_step_ms']:11.1f}{truth:10.1f}{error:+7.1f}%"
        else:
            text += f"{'':6}{step:8.1f}{'':11}{truth:10.1f}{'':8}"
        if args.py_spy and number % 5 == 0:
            steps = {"steps": int(1e3 * PY_SPY_SECONDS / step_ms)}
            other = spied(args.py_spy, python, spec | steps, kinds)
            spied_on += 1
            agreed += other == name
            text += f"  {other}"
        print(text, flush=True)
    print(f"\nslow line named: {named} of {args.programs} (target 90 %)")
    for what, errors in (("step", step_errors), ("gain", gain_errors)):
        right = sum(error <= 10 for error in errors)
        median = f", median error {statistics.median(errors):.1f} %" if errors else ""
        print(f"{what} with half of it within 10 %: {right} of {args.programs}{median}")
    if spied_on:
        print(f"py-spy names the same line: {agreed} of {spied_on}")


if __name__ == "__main__":
    main()
