"""The verdicts on the video example with bad settings, and the steps with their remedies.

    python tests/python/study_badly_set.py [--steps 300] [--pairs 2]

It prints the table "Badly set on purpose" of `examples/README.md`. Each program runs with bad settings. Its first remedy
that can be applied with the program's options is applied. Then runs with and without this remedy alternate, so that other
load of the machine affects both alike, and the ratio of each pair counts. It is not a test, because it takes minutes and its
result depends on other load.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from running import Runs, clean_environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "python" / "video_classification.py"

#: Bad settings.
PROGRAMS = [
    ["--decode-threads", "1", "--prefetch", "1"],
    ["--decode-threads", "8", "--demux-threads", "4", "--fetch-threads", "4", "--resize-threads", "4"],
    ["--equalize", "--decode-threads", "2", "--resize-threads", "2"],
]  # fmt: skip

#: Options that halve the frames to decode.
CHEAPER_DECODING = ["--subclip-seconds", "0.2", "--max-skip", "0.2"]


def summary(options: list[str], steps: int) -> dict[str, Any]:
    """The report of headspace about the program with these options."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, str(EXAMPLE), *options, "--steps", str(steps)],
            env={**clean_environment(), "OMP_NUM_THREADS": "1", "HEADSPACE_DIR": folder},
            capture_output=True,
            check=True,
        )
        return dict(Runs(Path(folder)).summary())


def options_of(remedy: dict[str, Any]) -> list[str] | None:
    """The options of the program that apply the remedy. None if it has none."""
    stage = remedy.get("stage")
    match remedy["code"]:
        case "more_workers" | "fewer_workers":
            return [f"--{stage}-threads", str(remedy["change"]["to"])]
        case "cheaper_calls" if stage == "decode":
            return CHEAPER_DECODING
        case "subprocess":
            return ["--subprocess"]
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--pairs", type=int, default=2)
    args = parser.parse_args()
    print(
        "| settings | step | bottleneck in the verdict | remedy, and how it was applied | predicted step | measured step |"
    )
    print("|---|---|---|---|---|---|")
    for program in PROGRAMS:
        found = summary(program, args.steps)
        step = found["steady_step_mean_ms"]
        bottleneck = found["bottleneck"]
        limit = f"{bottleneck.get('name') or bottleneck['kind']}: {bottleneck['evidence']}"
        row = [f"`{' '.join(program)}`", f"{step:.1f} ms", limit]
        applicable = ((remedy, options_of(remedy)) for remedy in found["remedies"])
        remedy, options = next((pair for pair in applicable if pair[1] is not None), (None, None))
        if remedy is None or options is None:
            print("| " + " | ".join([*row, "none", "", ""]) + " |", flush=True)
            continue
        ratios = []
        for _ in range(args.pairs):
            now, after = (
                summary(how, args.steps)["steady_step_mean_ms"]
                for how in (program, [*program, *options])
            )
            ratios.append(after / now)
        measured = step * statistics.median(ratios)
        predicted = remedy["predicted_step_ms"]
        said = "unknown" if remedy.get("at_least") else f"{predicted:.1f} ms"
        error = "" if remedy.get("at_least") else f" ({100 * (measured / predicted - 1):+.0f} %)"
        how = f"{remedy['what']} `{' '.join(options)}`"
        print("| " + " | ".join([*row, how, said, f"{measured:.1f} ms{error}"]) + " |", flush=True)


if __name__ == "__main__":
    main()
