"""How many experiments does `headspace tune` need on the video example, and how many do others?

    python tests/python/study_tune.py                  on the recorded grid
    python tests/python/study_tune.py --record         records it anew, on a machine that is at rest

The grid is every configuration of the video example's knobs, each run once, one at a time; its record
is `tests/golden/tune_grid.jsonl`. On it `headspace tune`, Optuna's TPE as it comes and random search
look for a configuration within 10 % of the best, from the same bad baseline.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tune_replay import SEARCHES, Grid, needed, read_grid, row_of

from headspace.tune.command import Template
from headspace.tune.experiment import Experiment, Kind, Outcome, Proposal
from headspace.tune.knobs import Config, Space, key, parse_knob
from headspace.tune.launch import Patience, Running, Setup
from headspace.tune.resources import Place

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "tests" / "golden" / "tune_grid.jsonl"
SEEDS = range(5)
MOST = 40

#: The first value of each is the baseline.
KNOBS = (
    "decode_threads=1,2,4",
    "resize_threads=1,2",
    "prefetch=1,3",
    "queue_depth=1,4",
    "pool=dedicated,shared",
    "subprocess=no,yes",
)
COMMAND = (
    sys.executable,
    str(ROOT / "examples" / "python" / "video_classification.py"),
    "--equalize",
    "--steps", "{probe:700|STEPS}",
    "--decode-threads", "{decode_threads}",
    "--resize-threads", "{resize_threads}",
    "--prefetch", "{prefetch}",
    "--queue-depth", "{queue_depth}",
    "--pool", "{pool}",
    "{subprocess:--subprocess}",
)  # fmt: skip


def video_space() -> Space:
    return Space(tuple(map(parse_knob, KNOBS)))


def run(
    number: int, kind: Kind, config: Config, folder: Path, template: Template, setup: Setup
) -> Outcome:
    """One experiment to its end."""
    experiment = Experiment(number, Proposal(kind, config, "The grid."))
    command = template.fill(config, kind is Kind.PROBE)
    running = Running(experiment, command, folder / f"{number:04}", Place(), setup)
    while (outcome := running.poll(None)) is None:
        time.sleep(0.05)
    return outcome


def record(path: Path, steps: int, only: int | None) -> None:
    """Runs the grid. Goes on where it was stopped: a configuration that is there is not run again."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["HEADSPACE_QUIET"] = "1"
    space = video_space()
    words = [word.replace("STEPS", str(steps)) for word in COMMAND]
    template = Template(words, space)
    setup = Setup(Patience(measure=float("inf")), inject=False, early=False)
    todo = [(Kind.BASELINE, config) for config in space.all()][:only]
    todo.insert(1, (Kind.PROBE, space.baseline))
    done = path.read_text().splitlines() if path.exists() else []
    with tempfile.TemporaryDirectory() as base, path.open("a") as out:
        for number, (kind, config) in enumerate(todo):
            if number < len(done):
                continue
            outcome = run(number, kind, config, Path(base), template, setup)
            name = "probe" if kind is Kind.PROBE else "grid"
            out.write(json.dumps(row_of(name, config, outcome), separators=(",", ":")) + "\n")
            out.flush()
            told = f"{outcome.step_ms:.1f} ms" if outcome.step_ms else outcome.detail
            print(f"{number + 1:3}/{len(todo)} {outcome.seconds:5.1f} s  {told:>10}  "
                  f"{name} {space.describe(config)}", flush=True)  # fmt: skip


def compare(grid: Grid) -> dict[str, list[int]]:
    """Experiments that each way to search needs, by seed."""
    return {
        name: [needed(grid, search, seed) for seed in SEEDS] for name, search in SEARCHES.items()
    }


def main() -> int:
    """Records, or compares and prints. 1 where `headspace tune` does not need fewest."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--record", action="store_true", help="run the grid first")
    parser.add_argument("--file", type=Path, default=RECORD)
    parser.add_argument("--steps", type=int, default=100, help="of a run, for --record")
    parser.add_argument("--only", type=int, help="so many configurations, for --record")
    args = parser.parse_args()
    if args.record:
        record(args.file, args.steps, args.only)
        if args.only:
            return 0
    if not args.file.exists():
        print(f"{args.file} is not there: `--record` runs the grid", file=sys.stderr)
        return 1
    grid = read_grid(args.file, video_space())
    base = grid.outcomes[key(grid.space.baseline)]
    print(
        f"{len(grid.outcomes)} configurations: baseline {base.step_ms:.1f} ms, best "
        f"{grid.best_ms:.1f} ms, {grid.near_count} within 10 % of it\n"
        f"{'':16} experiments until one is (seeds {SEEDS[0]} to {SEEDS[-1]})   median"
    )
    found = compare(grid)
    for name, counts in found.items():
        shown = "  ".join(f"{count:3}" for count in counts)
        print(f"{name:16} {shown:42} {statistics.median(counts):8g}")
    medians = {name: statistics.median(counts) for name, counts in found.items()}
    mine = medians.pop("headspace tune")
    if mine > MOST or any(mine >= other for other in medians.values()):
        print(f"`headspace tune` does not need fewest, or more than {MOST}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
