"""The verdicts of `headspace compare` on real training loops, equal ones and slower ones.

    python tests/python/study_compare.py [--pairs 20] [--runs-a-side 1 3] [--seconds 8] [--busy 2]

The loop runs unchanged, 10 % slower and 33 % slower in turn, so that other load on the machine affects all
alike. The two sides of a pair have no common run and are interleaved. Neighbouring pairs have common runs.
The program prints how often a difference was found, how often `--fail-if-slower 5%` failed, and how wide
the interval was. It is not a test, because it takes minutes and its result depends on other load of the
machine, which `--busy` increases.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from running import clean_environment

LOOP = """
import sys, time, headspace

factor, seconds = float(sys.argv[1]), float(sys.argv[2])

def batches():
    while True:
        time.sleep(0.004 * factor)
        yield 0

def compute(count):
    total = 0
    for value in range(count):
        total += value * value

begin = time.perf_counter()
for _ in headspace.wrap(batches(), name="train"):
    compute(int(100_000 * factor))
    if time.perf_counter() - begin > seconds:
        break
"""

FACTORS = {"same": 1.0, "10 % slower": 1.1, "33 % slower": 1.33}
"""The step time of each kind of loop, relative to the first kind."""

LIMIT = "5%"


class Said(NamedTuple):
    """The interval of a difference in percent, and whether B is beyond the limit."""

    low: float
    value: float
    high: float
    failed: bool


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Runs `count` processes that use a core all the time."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def train(folder: Path, factor: float, seconds: float) -> None:
    """Trains once, with records in `folder`. Does nothing if the folder exists."""
    if folder.exists():
        return
    ours = clean_environment()
    subprocess.run(
        [sys.executable, "-c", LOOP, str(factor), str(seconds)],
        env={**ours, "HEADSPACE_DIR": str(folder), "HEADSPACE_QUIET": "1"},
        check=True,
        capture_output=True,
    )


def compare(a: list[Path], b: list[Path]) -> Said | None:
    """The result of `headspace compare` for two sides of runs. None if a run is too short."""
    with tempfile.TemporaryDirectory() as base:
        sides = [Path(base) / name for name in "ab"]
        for side, folders in zip(sides, (a, b)):
            side.mkdir()
            for folder in folders:
                [made] = folder.iterdir()
                (side / folder.name).symlink_to(made)
        command = [sys.executable, "-m", "headspace", "compare", *map(str, sides), "--json"]
        done = subprocess.run(
            [*command, "--fail-if-slower", LIMIT], capture_output=True, text=True, check=False
        )
    if not done.stdout:
        raise SystemExit(done.stderr)
    said = json.loads(done.stdout)
    judged = {"step": "step_ms", "undisturbed_step": "undisturbed_ms"}
    pct = said[judged[said["judged_by"]]]["difference_pct"]
    if pct is None:
        return None
    return Said(pct["low"], pct["value"], pct["high"], done.returncode == 1)


def pairs_of(kind: str, runs: dict[str, list[Path]], a_side: int, pairs: int) -> list[Said | None]:
    """Compares pairs of the unchanged loop and the loop of this kind."""
    base, other = runs["same"], runs[kind]
    if kind == "same":
        ends = [(k, k + 2 * a_side) for k in range(pairs)]
        return [compare(base[i:j:2], base[i + 1 : j : 2]) for i, j in ends]
    return [compare(base[k : k + a_side], other[k : k + a_side]) for k in range(pairs)]


def row(kind: str, a_side: int, all_said: list[Said | None]) -> str:
    """One line of the table. A pair without an interval has no verdict."""
    said = [one for one in all_said if one is not None]
    slower = sum(one.low > 0 for one in said)
    faster = sum(one.high < 0 for one in said)
    failed = sum(one.failed for one in said)
    middle = statistics.median(one.value for one in said)
    width = statistics.median(one.high - one.low for one in said)
    return (
        f"{kind:12} {a_side:11} {len(all_said):6} {slower:12} {faster:12} {failed:9} "
        f"{middle:+7.1f} % {width:12.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--runs-a-side", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--seconds", type=float, default=8.0, help="of one run")
    parser.add_argument("--busy", type=int, default=0, help="busy loops beside the runs")
    parser.add_argument("--keep", type=Path, help="keep the runs here, and use those that are here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        runs: dict[str, list[Path]] = {kind: [] for kind in FACTORS}
        with busy_loops(args.busy):
            for k in range(args.pairs + 2 * max(args.runs_a_side) - 1):
                for kind, factor in FACTORS.items():
                    runs[kind].append(folder / f"{factor}-{k}")
                    train(runs[kind][-1], factor, args.seconds)
        print(
            f"{args.seconds:g} s a run, {args.busy} busy loops, {os.cpu_count()} cores\n"
            f"{'loop':12} runs a side  pairs  told slower  told faster  beyond {LIMIT}   "
            "median  width, points"
        )
        for a_side in args.runs_a_side:
            for kind in FACTORS:
                print(row(kind, a_side, pairs_of(kind, runs, a_side, args.pairs)), flush=True)


if __name__ == "__main__":
    main()
