"""Replays the changes of a case study on the video example. Compares each prediction of headspace with the result.

    python examples/python/story.py

In the case study, one change after another made a video classifier faster. This program tries each change on the
fastest settings so far. It makes one run without and one run with the change. The verdict of the first run may propose
the change and predict the step time. The second run measures it. A change that shortens the step by at least 2 % is
kept. If other programs used many cores meanwhile, both runs are repeated. Before a stage gets fewer threads, a what-if
measures the step with fewer concurrent calls of the stage.

The results go to a folder: `story.md` (a table), `story.svg` (a chart) and `story.json`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

from video.ranks import DDP_RANKS

PROGRAM = Path(__file__).with_name("video_classification.py")
# Minimum gain of a change that is kept. Two runs of the same settings often differ by less.
KEPT_GAIN = 0.02
# Longest bar of the chart, relative to the baseline.
LONGEST_BAR = 1.6
BATCH = 3

Options = dict[str, "str | None"]

# The settings of the case study's first run: demux and decode in one stage, one pool with many threads, long clips,
# and a small buffer before the training loop.
BASELINE: Options = {
    "--monolithic": None,
    "--pool": "shared",
    "--decode-threads": "8",
    "--demux-threads": "8",
    "--subclip-seconds": "0.8",
    "--batch-size": str(BATCH),
    "--prefetch": "1",
}


@dataclass(frozen=True)
class Change:
    """One change of the settings, and the remedy of a verdict that proposes it."""

    title: str
    add: tuple[tuple[str, str | None], ...] = ()
    """Options that the change sets."""
    remove: str | None = None
    """An option that the change removes."""
    remedy: tuple[str, str | None] | None = None
    """The remedy that proposes this change: its `code`, and its `stage` or the target of its `change`."""
    to: str | None = None
    """The value that the remedy must propose, if it proposes a value."""
    needed: bool = False
    """Whether the change is kept in any case, because later changes need it."""
    gate: tuple[str, int] | None = None
    """A stage and a number of concurrent calls. A what-if measures the step while the stage is limited to them."""
    torch: bool = False
    """Whether the change needs a PyTorch model."""


LADDER = (
    Change("decode on the GPU (NVDEC)", (("--decoder", "nvdec"),)),
    Change("split demux and decode", remove="--monolithic", needed=True),
    Change(
        "decode threads: 8 → 2",
        (("--decode-threads", "2"),),
        remedy=("fewer_workers", "decode"),
        to="2",
        gate=("decode", 2),
    ),
    Change(
        "subclips: 0.8 s → 0.4 s",
        (("--subclip-seconds", "0.4"),),
        remedy=("cheaper_calls", "decode"),
    ),
    Change("a pool for each stage", (("--pool", "dedicated"),)),
    Change("batches: 3 → 6 clips", (("--batch-size", "6"),)),
    Change("compute in bfloat16", (("--bf16", None),), torch=True),
    Change("fused optimiser", (("--fused-optimizer", None),), torch=True),
    Change("torch.compile", (("--compile", None),), torch=True),
    Change("two ranks (DDP)", (("--ddp", None),), torch=True),
    Change(
        "demux threads: 8 → 2",
        (("--demux-threads", "2"),),
        remedy=("fewer_workers", "demux"),
        to="2",
        gate=("demux", 2),
    ),
    Change(
        "prefetched batches: 1 → 5",
        (("--prefetch", "5"),),
        remedy=("bigger_buffer", "after collate"),
        to="5",
    ),
    Change(
        "garbage collection between epochs",
        (("--gc-between-epochs", None),),
        remedy=("gc_between_epochs", None),
    ),
    Change(
        "loader in a process of its own",
        (("--subprocess", "all"),),
        remedy=("subprocess", None),
    ),
)


@dataclass(frozen=True)
class Run:
    """Values from the records of a run."""

    step_ms: float
    """Mean step time in steady state, scaled to the number of clips in a batch of the baseline."""
    other_cores: float | None
    """Mean number of cores that other programs used during the run."""
    bottleneck: str
    remedies: list[dict[str, Any]]
    what_if: list[dict[str, Any]]
    """Results of the what-if, if this run had one."""


@dataclass(frozen=True)
class Rung:
    """The result of a change, or the reason why it was not tried."""

    title: str
    left_out: str | None = None
    before: Run | None = None
    after: Run | None = None
    predicted: str = ""
    predicted_ratio: float | None = None
    """Predicted step time divided by the step time without the change."""
    started: float = 1.0
    """Step time of the fastest settings before this change, divided by that of the baseline."""
    kept: bool = False

    @property
    def reached(self) -> float:
        """Step time of the fastest settings after this change, divided by that of the baseline."""
        return self.started * self.ratio if self.kept and self.ratio else self.started

    @property
    def ratio(self) -> float | None:
        """Measured step time divided by the step time without the change."""
        return self.after.step_ms / self.before.step_ms if self.after and self.before else None


def main() -> int:
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    rungs = climb(args)
    table = render_table(rungs) + describe_disturbance(rungs, args.quiet)
    (args.out / "story.md").write_text(table)
    (args.out / "story.svg").write_text(render_chart(rungs))
    (args.out / "story.json").write_text(json.dumps([asdict(rung) for rung in rungs], indent=1))
    print(f"\n{table}\nchart: {args.out / 'story.svg'}")
    return 0


def climb(args: argparse.Namespace) -> list[Rung]:
    """Tries all changes in order."""
    options = {**BASELINE, "--model": args.model, "--steps": str(args.steps)}
    if args.model != "numpy":
        options["--width"] = str(args.width)
    reached = 1.0
    rungs = []
    for change in LADDER:
        reason = why_left_out(change, args.model)
        if reason is not None:
            rung = Rung(change.title, left_out=reason, started=reached)
        else:
            changed = {key: value for key, value in options.items() if key != change.remove}
            changed.update(change.add)
            rung = try_change(change, options, changed, reached, args)
            if rung.kept:
                options, reached = changed, rung.reached
        print(f"{change.title}: {describe(rung)}", flush=True)
        rungs.append(rung)
    return rungs


def try_change(
    change: Change, options: Options, changed: Options, reached: float, args: argparse.Namespace
) -> Rung:
    """Runs the program without and with a change. If a run fails, the change is left out, and the others are tried."""
    try:
        what_if = (
            measure_what_if(options, args.what_if_steps)
            if change.gate is not None and args.what_if_steps
            else None
        )
        return compare(change, what_if, *measure_pair(options, changed, args), started=reached)
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
        reason = str(error).strip().splitlines()[-1]
        return Rung(change.title, left_out=f"failed: {reason}", started=reached)


def why_left_out(change: Change, model: str) -> str | None:
    """The reason why a change cannot be tried here."""
    if ("--decoder", "nvdec") in change.add:
        from video.nvdec import NvdecError, require

        try:
            require()
        except NvdecError as error:
            return str(error)
    if change.torch and model == "numpy":
        return "`--model numpy` has no such option"
    return None


def measure_pair(options: Options, changed: Options, args: argparse.Namespace) -> tuple[Run, Run]:
    """Runs the program without and with a change, until other programs use at most `args.quiet` cores.

    Makes at most `args.tries` pairs of runs, and returns the pair with the least disturbance.
    """
    pairs = []
    for _ in range(args.tries):
        pairs.append((measure(options), measure(changed)))
        if _disturbance(pairs[-1]) <= args.quiet:
            break
    return min(pairs, key=_disturbance)


def _disturbance(pair: tuple[Run, Run]) -> float:
    """The cores that other programs used during the more disturbed one of two runs. An unknown value counts as 0."""
    return max(run.other_cores or 0.0 for run in pair)


def measure_what_if(options: Options, steps: int) -> Run:
    """Runs the program in mode `whatif` for at most this number of steps."""
    variables = {"HEADSPACE_MODE": "whatif", "HEADSPACE_WHAT_IF_STEPS": str(steps)}
    return measure({**options, "--steps": str(steps)}, variables)


def measure(options: Options, variables: Mapping[str, str] = MappingProxyType({})) -> Run:
    """Runs the video example with these settings and environment variables, and reads its last summary.

    Raises:
        RuntimeError: If the program failed, or too few steps were measured.
    """
    words = [word for option in options.items() for word in option if word is not None]
    with tempfile.TemporaryDirectory() as folder:
        program = subprocess.run(
            [sys.executable, str(PROGRAM), *words],
            env={**os.environ, "HEADSPACE_DIR": folder, "OMP_NUM_THREADS": "1", **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        if program.returncode != 0:
            raise RuntimeError(f"`{' '.join(words)}` failed:\n{program.stderr}")
        (records,) = Path(folder).glob("*/rank0.jsonl")
        return read_run(records, clips_per_step(options))


def clips_per_step(options: Options) -> int:
    """Number of clips in a step, over all ranks."""
    ranks = DDP_RANKS if "--ddp" in options else 1
    return int(options["--batch-size"] or 1) * ranks


def read_run(records: Path, clips: int) -> Run:
    """The last summary in a file of records. A step trained on `clips` clips.

    Raises:
        RuntimeError: If the run has no steady state.
    """
    lines = (json.loads(line) for line in records.read_text().splitlines())
    summary = [record for record in lines if record["kind"] == "summary"][-1]
    if summary["steady_step_mean_ms"] is None:
        raise RuntimeError(f"too few steps in `{records}`: use a larger `--steps`")
    # `bottleneck` is null if the loop hardly waits. Some kinds of bottleneck have no name.
    bottleneck = summary["bottleneck"] or {"kind": "none"}
    return Run(
        step_ms=summary["steady_step_mean_ms"] * BATCH / clips,
        other_cores=summary["resources"].get("others_cores"),
        bottleneck=bottleneck.get("name") or bottleneck["kind"],
        remedies=summary["remedies"],
        what_if=summary.get("what_if", []),
    )


def compare(
    change: Change, what_if: Run | None, before: Run, after: Run, *, started: float
) -> Rung:
    """Compares the runs without and with a change. `what_if` is a run in mode `whatif` without the change."""
    predicted, ratio = find_prediction(change, before)
    gate = find_gate(change, what_if) if what_if else None
    if gate is not None:
        ratio = 1.0 - gate["gain_pct"] / 100
        predicted = f"{ratio * before.step_ms:.1f} ms (what-if)"
    gain = 1.0 - after.step_ms / before.step_ms
    return Rung(
        change.title,
        before=before,
        after=after,
        predicted=predicted,
        predicted_ratio=ratio,
        started=started,
        kept=change.needed or gain >= KEPT_GAIN,
    )


def find_prediction(change: Change, before: Run) -> tuple[str, float | None]:
    """The verdict's prediction for a change as text, and the predicted step time divided by the step time before."""
    if change.remedy is None:
        return "no such remedy", None
    code, target = change.remedy
    for remedy in before.remedies:
        setting = remedy.get("change") or {}
        targets = (None, remedy.get("stage"), setting.get("target"))
        if remedy["code"] != code or target not in targets:
            continue
        proposed = setting.get("to")
        other = f" with {proposed}" if change.to and proposed not in (None, change.to) else ""
        # In this case, the predicted step is the current one, which is only an upper limit.
        if remedy.get("at_least"):
            return f"proposed{other}, gain unknown", None
        ratio = 1.0 - remedy["predicted_gain_pct"] / 100
        return f"{ratio * before.step_ms:.1f} ms{other}", ratio
    return "not proposed", None


def find_gate(change: Change, run: Run) -> dict[str, Any] | None:
    """The result of a what-if for the stage and the number of calls of the change. None if there is none."""
    for answer in run.what_if:
        if answer["intervention"] == "gate" and (answer["stage"], answer["amount"]) == change.gate:
            return answer
    return None


def describe(rung: Rung) -> str:
    """The result of a change in one line."""
    if rung.before is None or rung.after is None:
        return f"left out: {rung.left_out}"
    verdict = "kept" if rung.kept else "not kept"
    return f"{rung.before.step_ms:.1f} ms → {rung.after.step_ms:.1f} ms, predicted: {rung.predicted}; {verdict}"


def describe_disturbance(rungs: Sequence[Rung], quiet: float) -> str:
    """A warning, if other programs used more than `quiet` cores."""
    tried = [(rung.before, rung.after) for rung in rungs if rung.before and rung.after]
    disturbed = sum(_disturbance(pair) > quiet for pair in tried)  # type: ignore[arg-type]
    if not disturbed:
        return ""
    return (
        f"\nIn {disturbed} of {len(tried)} comparisons, other programs used more than {quiet:g} cores. Their steps "
        "show how the machine was shared, not what the change gains. Run this again on a quiet machine.\n"
    )


def render_table(rungs: Sequence[Rung]) -> str:
    """A Markdown table with one row for each change."""
    lines = [
        "| change | bottleneck before | step before | predicted | measured "
        "| change of the step | kept | speed-up so far | other programs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for rung in rungs:
        before, after, ratio = rung.before, rung.after, rung.ratio
        if before is None or after is None or ratio is None:
            lines.append(f"| {rung.title} | | | | left out: {rung.left_out} | | | | |")
            continue
        loads = [run.other_cores for run in (before, after) if run.other_cores is not None]
        load = f"{max(loads):.1f} cores" if loads else "unknown"
        gain = f"{100 * (ratio - 1):+.0f} %".replace("-", "−")
        lines.append(
            f"| {rung.title} | `{before.bottleneck}` | {before.step_ms:.1f} ms | {rung.predicted} "
            f"| {after.step_ms:.1f} ms | {gain} | {'yes' if rung.kept else 'no'} "
            f"| {1 / rung.reached:.2f}x | {load} |"
        )
    return "\n".join(lines) + "\n"


def render_chart(rungs: Sequence[Rung]) -> str:
    """An SVG chart of the measured and the predicted step after each change, relative to the baseline."""
    left, width, height, top = 250, 420, 26, 58
    steps = [rung.started * rung.ratio for rung in rungs if rung.ratio]
    # Without a limit, one very long step would make all other bars too short.
    longest = min(max([1.0, *steps]), LONGEST_BAR)
    scale = width / longest
    rows = [_row("baseline", top, scale, "#8c959f"), _note(left + scale, top, "1.00x")]
    for place, rung in enumerate(rungs, 1):
        y = top + place * height
        if rung.ratio is None:
            rows.append(_text(left - 8, y + 13, rung.title, "end", "#8c959f"))
            rows.append(_text(left, y + 13, "left out", "start", "#8c959f"))
            continue
        step = rung.started * rung.ratio
        end = min(step, longest) * scale
        color, note = ("#2da44e", "") if rung.kept else ("#d0d7de", ", not kept")
        rows.append(_row(rung.title, y, end, color))
        if step > longest:
            cut = f"{step:.1f} times the baseline (the bar is cut)"
            rows.append(_text(left + 8, y + 13, cut, "start", "#1f2328"))
        if rung.predicted_ratio is not None:
            predicted = rung.started * rung.predicted_ratio * scale
            rows.append(_diamond(left + predicted, y + 9))
            end = max(end, predicted)
        rows.append(_note(left + end, y, f"{1 / rung.reached:.2f}x{note}"))
    total = top + (len(rungs) + 1) * height + 8
    legend = (
        "bar: measured step, relative to the baseline · ◇ predicted step · number: speed-up so far"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 {total}" '
        'font-family="system-ui, sans-serif" font-size="12">\n'
        f'<rect width="820" height="{total}" fill="#ffffff"/>\n'
        f"{_text(16, 22, 'The step after each change', 'start', '#1f2328')}\n"
        f"{_text(16, 42, legend, 'start', '#57606a')}\n" + "\n".join(rows) + "\n</svg>\n"
    )


def _row(title: str, y: float, length: float, color: str) -> str:
    bar = f'<rect x="250" y="{y}" width="{length:.1f}" height="18" rx="2" fill="{color}"/>'
    return _text(242, y + 13, title, "end", "#1f2328") + bar


def _note(end: float, y: float, words: str) -> str:
    """Text to the right of a bar that ends at `end`."""
    return _text(end + 12, y + 13, words, "start", "#1f2328")


def _diamond(x: float, y: float) -> str:
    points = f"{x - 6:.1f},{y} {x:.1f},{y - 6} {x + 6:.1f},{y} {x:.1f},{y + 6}"
    return f'<polygon points="{points}" fill="#ffffff" stroke="#1f2328"/>'


def _text(x: float, y: float, words: str, anchor: str, color: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" fill="{color}">{escape(words)}</text>'


def parse() -> argparse.Namespace:
    torch = importlib.util.find_spec("torch") is not None
    parser = argparse.ArgumentParser(
        description="Replay the changes of a case study on the video example.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--out", type=Path, default=Path("headspace-story"), metavar="DIR", help="folder of results"
    )
    add("--steps", type=int, default=200, help="steps of each run")
    add("--what-if-steps", type=int, default=2000, help="steps of each what-if; 0: none")
    add("--quiet", type=float, default=0.2, help="repeat runs if other programs use more cores")
    add("--tries", type=int, default=3, help="runs of the same settings, at most")
    add("--model", default="r3d18" if torch else "numpy", help="numpy, r3d18 or r2plus1d")
    add("--width", type=float, default=0.0625, help="share of the PyTorch model's channels")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
