"""Number of experiments that `headspace tune` and other searches need on recorded grids.

    python tests/python/study_tune.py                       on the recorded grids
    python tests/python/study_tune.py video                 on one of them
    python tests/python/study_tune.py video --record        records it again, on an idle machine
    python tests/python/study_tune.py --pictures FOLDER     draws one search of each, and prints its report

A grid contains every configuration of a program's knobs. Each ran alone, and the results are in
`tests/golden/`. Configurations within 25 % of the best so far have longer runs, in turn: run times vary, and
the best of many single short runs would be the luckiest one. On these results, `headspace tune`, Optuna's
TPE with its defaults and random search look for a configuration within 10 % of the best, from the same bad
baseline.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tune_replay import (
    SEARCHES,
    Grid,
    config_of,
    grid_of,
    needed,
    read_grid,
    read_rows,
    replay,
    row_of,
)

from headspace.tune.experiment import Experiment, Kind, Outcome, Proposal
from headspace.tune.output.ladder_plot import ladder_svg
from headspace.tune.output.plots import progress_svg
from headspace.tune.output.report import report
from headspace.tune.output.summary import summarize
from headspace.tune.output.tree_plot import tree_svg
from headspace.tune.plan.objective import Objective
from headspace.tune.plan.planner import Done, Limits, Planner
from headspace.tune.run.launch import Patience, Running, Setup
from headspace.tune.run.resources import Place
from headspace.tune.space.command import Template
from headspace.tune.space.knobs import Config, Space, key, parse_knob

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
SEEDS = range(25)
#: Number of seeds in the additional medians.
FEW = 5

#: Configurations within this share of the best may be near the best, so they get longer runs.
MAYBE = 0.25

#: Steps of the what-if.
WHAT_IF_STEPS = 1000


@dataclass(frozen=True)
class Program:
    """A program with knobs, and the record of its grid."""

    record: Path
    knobs: tuple[str, ...]
    """The first value of each is the baseline."""
    command: tuple[str, ...]
    """`STEPS` becomes the number of steps."""
    short: int
    """Steps of a short run."""
    long: int
    """Steps of a longer run."""
    most: int
    """Number of experiments that `headspace tune` may need."""

    @property
    def space(self) -> Space:
        return Space(tuple(map(parse_knob, self.knobs)))


VIDEO = Program(
        GOLDEN / "tune_grid.jsonl",
        (
            "fetch_threads=1,2,4,8",
            "decode_threads=1,2,4",
            "prefetch=1,3",
            "queue_depth=1,4",
            "subprocess=no,yes",
        ),
        (
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
        ),
        short=40,
        long=150,
        most=5,
)  # fmt: skip

TORCH = Program(
        GOLDEN / "tune_grid_torch.jsonl",
        (
            "workers=1,2,4,8",
            "prefetch_factor=1,4",
            "codec=lzma,zlib",
            "augment_threads=1,2",
            "torch_threads=2,1",
        ),
        (
            sys.executable,
            str(ROOT / "tests" / "programs" / "tuned_torch.py"),
            "--steps", "STEPS",
            "--workers", "{workers}",
            "--prefetch-factor", "{prefetch_factor}",
            "--codec", "{codec}",
            "--augment-threads", "{augment_threads}",
            "--torch-threads", "{torch_threads}",
        ),
        short=120,
        long=400,
        most=4,
)  # fmt: skip

PROGRAMS = {
    # The runs were recorded by an earlier version, on a machine whose speed varied. The what-if is newer.
    "video": VIDEO,
    "video_again": replace(VIDEO, record=GOLDEN / "tune_grid_again.jsonl"),
    "torch": TORCH,
}


@dataclass(frozen=True)
class Task:
    """A run of the grid: a row of the record."""

    name: str
    config: Config
    steps: int

    def run(self, program: Program, folder: Path) -> Outcome:
        """Runs the program to its end."""
        words = [word.replace("STEPS", str(self.steps)) for word in program.command]
        command = Template(words, program.space).fill(self.config)
        what_if_steps = WHAT_IF_STEPS if self.name == "what_if" else 0
        setup = Setup(
            Patience(measure=float("inf")), inject=False, early=False, what_if_steps=what_if_steps
        )
        experiment = Experiment(0, Proposal(Kind.BASELINE, self.config, "The grid."))
        running = Running(experiment, command, folder, Place(), setup)
        while (outcome := running.poll(None)) is None:
            time.sleep(0.05)
        return outcome


def record(program: Program, passes: int) -> None:
    """Runs the grid. Continues after an interruption: recorded runs are not repeated."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["HEADSPACE_QUIET"] = "1"
    path = program.record
    while (task := next_task(read_rows(path), program, passes)) is not None:
        with tempfile.TemporaryDirectory() as folder:
            outcome = task.run(program, Path(folder) / "run")
        with path.open("a") as out:
            row = row_of(task.name, task.config, outcome)
            out.write(json.dumps(row, separators=(",", ":")) + "\n")
        result = f"{outcome.step_ms:.1f} ms" if outcome.step_ms else outcome.detail
        knobs = program.space.describe(task.config)
        print(f"{outcome.seconds:5.1f} s  {result:>10}  {task.name:7} {knobs}", flush=True)


def next_task(rows: list[dict[str, Any]], program: Program, passes: int) -> Task | None:
    """The next run to record, or None at the end.

    The order is: the what-if, a short run of each configuration, and the longer runs of those near the best.
    """
    space = program.space
    if all(row["kind"] != "what_if" for row in rows):
        return Task("what_if", space.baseline, 2 * WHAT_IF_STEPS)
    looks = grid_of((row for row in rows if row["kind"] == "look"), space)
    missing = [config for config in space.all() if key(config) not in looks.runs]
    if missing:
        return Task("look", missing[0], program.short)
    grid = grid_of(rows, space)
    maybe = [c for c in space.all() if grid.mean_ms(c) <= (1 + MAYBE) * grid.best_ms]
    longer = Counter(key(config_of(row, space)) for row in rows if row["kind"] == "long")
    fewest = min(maybe, key=lambda config: longer[key(config)])
    return Task("long", fewest, program.long) if longer[key(fewest)] < passes else None


def compare(grid: Grid) -> dict[str, list[int]]:
    """The number of experiments that each search method needs, by seed."""
    return {
        name: [needed(grid, search, seed) for seed in SEEDS] for name, search in SEARCHES.items()
    }


def needs_fewest(found: dict[str, list[int]], most: int) -> bool:
    """Whether `headspace tune` needs at most `most` experiments, and fewer than every other method.

    The median over the first seeds and the median over all seeds must both show it.
    """
    for seeds in (FEW, len(SEEDS)):
        medians = {name: statistics.median(counts[:seeds]) for name, counts in found.items()}
        mine = medians.pop("headspace tune")
        if mine > most or any(mine >= other for other in medians.values()):
            return False
    return True


def show(name: str, program: Program) -> bool:
    """Prints the comparison on a program's grid. Returns whether `headspace tune` needs the fewest experiments."""
    grid = read_grid(program.record, program.space)
    print(
        f"{name}: {len(grid.runs)} configurations: baseline {grid.mean_ms(grid.space.baseline):.1f} ms, best "
        f"{grid.best_ms:.1f} ms, {grid.near_count} within 10 % of it\n"
        f"experiments until one is, with the baseline:\n"
        f"{'':16} {f'seeds 0 to {FEW - 1}':{4 * FEW}}  median   median of {len(SEEDS)}"
    )
    found = compare(grid)
    for search, counts in found.items():
        shown = " ".join(f"{count:3}" for count in counts[:FEW])
        few, every = statistics.median(counts[:FEW]), statistics.median(counts)
        print(f"{search:16} {shown:{4 * FEW}}  {few:6g}   {every:6g}")
    print()
    return needs_fewest(found, program.most)


def draw(name: str, program: Program, folder: Path) -> None:
    """Writes the pictures of one search on a grid, with its repetitions, and prints its report."""
    grid = read_grid(program.record, program.space)
    limits = Limits()
    trials = list(replay(grid, limits))
    done = Planner(grid.space, limits).next(trials)
    assert isinstance(done, Done)
    found = summarize(trials, grid.space, Objective.STEP)
    folder.mkdir(parents=True, exist_ok=True)
    for kind, picture in (("progress", progress_svg), ("ladder", ladder_svg), ("tree", tree_svg)):
        (folder / f"{name}-{kind}.svg").write_text(picture(found))
    template = Template([word.replace("STEPS", "100") for word in program.command], grid.space)
    print(f"{name}:", *report(found, template, done.reason), sep="\n", end="\n\n")


def main() -> int:
    """Returns 1 if `headspace tune` does not need the fewest experiments on a grid."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("program", nargs="*", help="of the grids (default: all)")
    parser.add_argument("--record", action="store_true", help="run the grids first")
    parser.add_argument("--passes", type=int, default=2, help="longer runs, for --record")
    parser.add_argument("--pictures", type=Path, help="draw a search instead, into this folder")
    args = parser.parse_args()
    code = 0
    for name in args.program or PROGRAMS:
        program = PROGRAMS[name]
        if args.pictures:
            draw(name, program, args.pictures)
            continue
        if args.record:
            record(program, args.passes)
        if not show(name, program):
            print(
                f"`headspace tune` does not need fewest, or more than {program.most}",
                file=sys.stderr,
            )
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
