"""Number of experiments that `headspace tune` and other searches need on the video example.

    python tests/python/study_tune.py                  on the recorded grid
    python tests/python/study_tune.py --record         records it again, on an idle machine

The grid contains every configuration of the video example's knobs. Each ran alone, and the results are in
`tests/golden/tune_grid.jsonl`. Configurations within 25 % of the best so far have longer runs, in turn:
run times vary, and the best of many single short runs would be the luckiest one. On these results,
`headspace tune`, Optuna's TPE with its defaults and random search look for a configuration within 10 % of
the best, from the same bad baseline.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune_replay import SEARCHES, Grid, config_of, grid_of, needed, read_grid, read_rows, row_of

from headspace.tune.experiment import Experiment, Kind, Outcome, Proposal
from headspace.tune.run.launch import Patience, Running, Setup
from headspace.tune.run.resources import Place
from headspace.tune.space.command import Template
from headspace.tune.space.knobs import Config, Space, key, parse_knob

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "tests" / "golden" / "tune_grid.jsonl"
MOST = 40
SEEDS = range(25)
#: Number of seeds in the additional medians.
FEW = 5

#: Configurations that may be near the best: those within this share of it have longer runs.
MAYBE = 0.25

#: Steps of a short run, and of a longer run.
LOOK, LONG = 40, 150

#: The first value of each is the baseline.
KNOBS = (
    "fetch_threads=1,2,4,8",
    "decode_threads=1,2,4",
    "prefetch=1,3",
    "queue_depth=1,4",
    "subprocess=no,yes",
)
COMMAND = (
    sys.executable,
    str(ROOT / "examples" / "python" / "video_classification.py"),
    "--equalize",
    "--fetch-ms", "150",
    "--steps", "STEPS",
    "--fetch-threads", "{fetch_threads}",
    "--decode-threads", "{decode_threads}",
    "--prefetch", "{prefetch}",
    "--queue-depth", "{queue_depth}",
    "{subprocess:--subprocess}",
)  # fmt: skip


def video_space() -> Space:
    return Space(tuple(map(parse_knob, KNOBS)))


@dataclass(frozen=True)
class Task:
    """A run of the grid: a row of the record."""

    name: str
    config: Config
    steps: int

    def run(self, folder: Path, space: Space) -> Outcome:
        """Runs it to its end."""
        kind = Kind.PROBE if self.name == "probe" else Kind.BASELINE
        words = [word.replace("STEPS", str(self.steps)) for word in COMMAND]
        command = Template(words, space).fill(self.config, kind is Kind.PROBE)
        setup = Setup(Patience(measure=float("inf")), inject=False, early=False)
        experiment = Experiment(0, Proposal(kind, self.config, "The grid."))
        running = Running(experiment, command, folder, Place(), setup)
        while (outcome := running.poll(None)) is None:
            time.sleep(0.05)
        return outcome


def record(path: Path, passes: int) -> None:
    """Runs the grid. Continues after an interruption: recorded runs are not repeated."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["HEADSPACE_QUIET"] = "1"
    space = video_space()
    while (task := next_task(read_rows(path), space, passes)) is not None:
        with tempfile.TemporaryDirectory() as folder:
            outcome = task.run(Path(folder) / "run", space)
        with path.open("a") as out:
            row = row_of(task.name, task.config, outcome)
            out.write(json.dumps(row, separators=(",", ":")) + "\n")
        result = f"{outcome.step_ms:.1f} ms" if outcome.step_ms else outcome.detail
        print(f"{outcome.seconds:5.1f} s  {result:>10}  {task.name:5} {space.describe(task.config)}",
              flush=True)  # fmt: skip


def next_task(rows: list[dict[str, Any]], space: Space, passes: int) -> Task | None:
    """The probe, a short run of each, and then in turn the longer runs of those that may be near the best."""
    if all(row["kind"] != "probe" for row in rows):
        return Task("probe", space.baseline, 300)
    looks = grid_of((row for row in rows if row["kind"] == "look"), space)
    missing = [config for config in space.all() if key(config) not in looks.runs]
    if missing:
        return Task("look", missing[0], LOOK)
    grid = grid_of(rows, space)
    maybe = [c for c in space.all() if grid.mean_ms(c) <= (1 + MAYBE) * grid.best_ms]
    longer = Counter(key(config_of(row, space)) for row in rows if row["kind"] == "long")
    fewest = min(maybe, key=lambda config: longer[key(config)])
    return Task("long", fewest, LONG) if longer[key(fewest)] < passes else None


def compare(grid: Grid) -> dict[str, list[int]]:
    """Experiments that each way to search needs, by seed."""
    return {
        name: [needed(grid, search, seed) for seed in SEEDS] for name, search in SEARCHES.items()
    }


def needs_fewest(found: dict[str, list[int]]) -> bool:
    """Whether `headspace tune` needs at most `MOST` experiments and fewer than all others, by the
    median of the few seeds and of all."""
    for seeds in (FEW, len(SEEDS)):
        medians = {name: statistics.median(counts[:seeds]) for name, counts in found.items()}
        mine = medians.pop("headspace tune")
        if mine > MOST or any(mine >= other for other in medians.values()):
            return False
    return True


def main() -> int:
    """Records, or compares and prints. 1 where `headspace tune` does not need fewest."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--record", action="store_true", help="run the grid first")
    parser.add_argument("--file", type=Path, default=RECORD)
    parser.add_argument("--passes", type=int, default=2, help="longer runs, for --record")
    args = parser.parse_args()
    if args.record:
        record(args.file, args.passes)
    if not args.file.exists():
        print(f"{args.file} is not there: `--record` runs the grid", file=sys.stderr)
        return 1
    grid = read_grid(args.file, video_space())
    print(
        f"{len(grid.runs)} configurations: baseline {grid.mean_ms(grid.space.baseline):.1f} ms, best "
        f"{grid.best_ms:.1f} ms, {grid.near_count} within 10 % of it\n"
        f"experiments until one is, the baseline and the probe among them:\n"
        f"{'':16} {f'seeds 0 to {FEW - 1}':{4 * FEW}}  median   median of {len(SEEDS)}"
    )
    found = compare(grid)
    for name, counts in found.items():
        shown = " ".join(f"{count:3}" for count in counts[:FEW])
        few, every = statistics.median(counts[:FEW]), statistics.median(counts)
        print(f"{name:16} {shown:{4 * FEW}}  {few:6g}   {every:6g}")
    if not needs_fewest(found):
        print(f"`headspace tune` does not need fewest, or more than {MOST}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
