"""Runs 22 real training programs with and without headspace, and compares its numbers with the truth.

`python tests/real`, or `make real`. Settings are environment variables; docs/real.md has them all.
"""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import checkouts
import packages
import table
from case import Case
from examine import TRUTH_RUNS, Examination, Result
from machine import machine
from processes import busy_loops
from workplace import STEPS, NotHere, Workplace

CASES = {case.name: case for case in (*checkouts.CASES, *packages.CASES)}


def chosen() -> list[Case]:
    """The cases of `REAL_CASES`. All cases if it is not set."""
    wanted = [name for name in os.environ.get("REAL_CASES", "").split(",") if name]
    unknown = [name for name in wanted if name not in CASES]
    if unknown:
        sys.exit(f"`REAL_CASES`: no case {', '.join(unknown)}. There are {', '.join(CASES)}.")
    return [CASES[name] for name in wanted] or list(CASES.values())


def number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if text and not text.isdecimal():
        sys.exit(f"`{name}` is not a whole number: `{text}`")
    return int(text) if text else default


def examine(case: Case, place: Workplace, truth_runs: int) -> Result:
    """Examines one case. An error becomes the result of the case, so that the next case can run."""
    try:
        return Examination(case, place, truth_runs=truth_runs)()
    except NotHere as missing:
        return Result(case, skipped=f"skipped: {missing}")
    except Exception:
        traceback.print_exc()
        return Result(case, differences={"harness": traceback.format_exc()})


def main() -> int:
    # `sys.exit` also ends the running program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(os.environ.get("REAL_WORK") or "target/real").resolve()
    named = os.environ.get("REAL_DIR")
    place = Workplace(folder, Path(named).resolve() if named else None, number("REAL_STEPS", STEPS))
    busy = number("REAL_BUSY", 0)
    out = Path(os.environ["REAL_OUT"]) if os.environ.get("REAL_OUT") else None
    beside = f", {busy} busy loops beside it" if busy else ""
    lines = [
        f"{datetime.date.today()}, {machine()}{beside}.",
        "",
        table.markdown(table.HEADER),
        table.markdown(["---"] * len(table.HEADER)),
    ]
    print("\n".join(lines), flush=True)
    results = []
    for case in chosen():
        begin = time.monotonic()
        with busy_loops(busy):
            result = examine(case, place, number("REAL_TRUTHS", TRUTH_RUNS))
        results.append(result)
        lines.append(table.markdown(table.row(result)))
        print(lines[-1], flush=True)
        print(f"{case.name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        for mode, text in result.differences.items():
            if text:
                print(f"{case.name}, {mode}:\n{text}", file=sys.stderr, flush=True)
        if out is not None:
            out.write_text("\n".join(lines) + "\n")
    last, good = table.conclusion(results)
    lines += ["", *last]
    print("\n".join(["", *last]), flush=True)
    if out is not None:
        out.write_text("\n".join(lines) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
