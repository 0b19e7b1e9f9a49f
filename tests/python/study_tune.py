"""How many experiments does `headspace tune` need on the video example, and how many do others?

    python tests/python/study_tune.py                  on the recorded grid
    python tests/python/study_tune.py --record         records it anew, on a machine that is at rest

The grid is every configuration of the video example's knobs, one run at a time; its record is
`tests/golden/tune_grid.jsonl`. Those that one run shows within 35 % of the best are run again, in turn:
the same program differs by some percent from run to run, and the best of many by one run each would be
the luckiest. On the record `headspace tune`, Optuna's TPE as it comes and random search look for a
configuration within 10 % of the best, from the same bad baseline.
"""

from __future__ import annotations

import argparse
import itertools
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
MOST = 40
SEEDS = range(25)
#: Medians are told of these few as well.
FEW = 5

#: Configurations that may be near the best: those within this share of it are run again.
AGAIN = 0.35

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
    "--steps", "{probe:300|STEPS}",
    "--fetch-threads", "{fetch_threads}",
    "--decode-threads", "{decode_threads}",
    "--prefetch", "{prefetch}",
    "--queue-depth", "{queue_depth}",
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


def record(path: Path, steps: int, passes: int) -> None:
    """Runs the grid. Goes on where it was stopped: what is recorded is not run again."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["HEADSPACE_QUIET"] = "1"
    space = video_space()
    words = [word.replace("STEPS", str(steps)) for word in COMMAND]
    template = Template(words, space)
    setup = Setup(Patience(measure=float("inf")), inject=False, early=False)
    with tempfile.TemporaryDirectory() as base, path.open("a") as out:
        for number in itertools.count():
            todo = what_is_left(read_grid(path, space), passes)
            if todo is None:
                return
            kind, config = todo
            outcome = run(number, kind, config, Path(base), template, setup)
            name = "probe" if kind is Kind.PROBE else "grid"
            out.write(json.dumps(row_of(name, config, outcome), separators=(",", ":")) + "\n")
            out.flush()
            told = f"{outcome.step_ms:.1f} ms" if outcome.step_ms else outcome.detail
            print(f"{number + 1:3} {outcome.seconds:5.1f} s  {told:>10}  "
                  f"{name} {space.describe(config)}", flush=True)  # fmt: skip


def what_is_left(grid: Grid, passes: int) -> tuple[Kind, Config] | None:
    """What is to be run next: all once and the probe, then by turns those that may be near the best."""
    missing = [config for config in grid.space.all() if key(config) not in grid.runs]
    if grid.probe is None:
        return Kind.PROBE, grid.space.baseline
    if missing:
        return Kind.BASELINE, missing[0]
    near = [c for c in grid.space.all() if grid.mean_ms(c) <= (1 + AGAIN) * grid.best_ms]
    fewest = min(near, key=lambda config: len(grid.runs[key(config)]))
    return (Kind.BASELINE, fewest) if len(grid.runs[key(fewest)]) < passes else None


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
    parser.add_argument("--steps", type=int, default=40, help="of a run, for --record")
    parser.add_argument("--passes", type=int, default=5, help="runs of those near the best")
    args = parser.parse_args()
    if args.record:
        record(args.file, args.steps, args.passes)
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
