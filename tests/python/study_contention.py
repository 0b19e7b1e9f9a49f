"""Predicted and measured steps of a video loader with fewer threads that demux.

    python tests/python/study_contention.py [--threads 8] [--steps 600] [--runs 3] [--repeats 3] [--where no demux]

The loader is that of `examples/python/video_classification.py`, with many threads of the stage `demux`, in the training
process and in its subprocess. Its clips are fragmented mp4 files with a header for each of 500 frames, so that demuxing
takes longest. Each program runs in mode `measure`, and `--runs` times in mode `whatif`. The study applies the number of threads that the
verdict proposes, or else half as many. Changed and unchanged runs alternate, so that other load on the machine affects
both alike, and the ratio of each pair counts. It is not a test, because it takes minutes and its result depends on other
load of the machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import av
import numpy as np
from running import Runs, clean_environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "python" / "video_classification.py"

FRAMES = 500

MODEL = ["--frames", "2", "--size", "16", "--channels", "4", "--queue-depth", "8"]

FRAGMENTS = {"movflags": "frag_every_frame+empty_moov+default_base_moof"}


def write_video(path: Path, seed: int) -> None:
    """A video in which each frame is a fragment of the file."""
    picture = np.random.default_rng(seed).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    with av.open(str(path), "w", format="mp4", options=FRAGMENTS) as container:
        stream = container.add_stream("mpeg4", rate=30)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        stream.gop_size = 12
        for number in range(FRAMES):
            frame = av.VideoFrame.from_ndarray(np.roll(picture, number, axis=1), format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def summary(data: Path, where: str, threads: int, steps: int, mode: str) -> dict[str, Any]:
    """The report of headspace about the program with this number of threads. A what-if may use all steps."""
    knobs = ["--demux-threads", str(threads), "--subprocess", where, *MODEL]
    length = ["--data", str(data), "--clips", "600", "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **clean_environment(),
            "OMP_NUM_THREADS": "1",
            "HEADSPACE_DIR": folder,
            "HEADSPACE_MODE": mode,
            "HEADSPACE_WHAT_IF_STEPS": str(steps),
        }
        subprocess.run(
            [sys.executable, str(EXAMPLE), *knobs, *length],
            env=environment,
            capture_output=True,
            check=True,
        )
        return dict(Runs(Path(folder)).summary())


def proposal(found: dict[str, Any]) -> dict[str, Any] | None:
    """The remedy that proposes fewer threads that demux. Fails if a stage of the subprocess should run in one."""
    remedies = {remedy["code"]: remedy for remedy in found["remedies"]}
    demux = next(stage for stage in found["stages"] if stage["name"] == "demux")
    moved = remedies.get("subprocess", {}).get("stage") == "demux"
    assert not (moved and demux.get("in_child_processes")), remedies
    fewer = remedies.get("fewer_workers", {})
    return fewer if fewer.get("stage") == "demux" else None


def shorter(data: Path, where: str, threads: tuple[int, int], args: argparse.Namespace) -> float:
    """Step time with the second number of threads divided by that with the first: the median over pairs."""
    ratios = []
    for _ in range(args.repeats):
        now, after = (
            summary(data, where, number, args.steps, "measure")["steady_step_mean_ms"]
            for number in threads
        )
        ratios.append(after / now)
    return statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--what-if-steps", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--where", nargs="*", choices=["no", "demux"], default=["no", "demux"])
    args = parser.parse_args()
    print(
        f"{'subprocess':12}{'mode':10}{'now':>9}{'threads':>9}"
        f"{'predicted':>11}{'measured':>10}{'error':>8}"
    )
    errors: list[float] = []
    asked = 0
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        for number in range(3):
            write_video(data / f"{number}.mp4", number)
        for where in args.where:
            measured: dict[int, float] = {}
            what_ifs = [("whatif", args.what_if_steps)] * args.runs
            asked += len(what_ifs)
            for mode, steps in [("measure", args.steps), *what_ifs]:
                found = summary(data, where, args.threads, steps, mode)
                remedy = proposal(found)
                to = int(remedy["change"]["to"]) if remedy else args.threads // 2
                if to not in measured:
                    measured[to] = shorter(data, where, (args.threads, to), args)
                now = found["steady_step_mean_ms"]
                after = measured[to] * now
                said, error = ("unknown" if remedy else "none"), ""
                if remedy and not remedy.get("at_least"):
                    said = f"{remedy['predicted_step_ms']:.1f}"
                    errors.append(100 * (remedy["predicted_step_ms"] / after - 1))
                    error = f"{errors[-1]:+.0f}%"
                print(
                    f"{where:12}{mode:10}{now:9.1f}{to:9}{said:>11}{after:10.1f}{error:>8}",
                    flush=True,
                )
    within = sum(abs(error) <= 10 for error in errors)
    print(f"predicted steps: {len(errors)} in {asked} what-ifs, {within} of them within 10 %")


if __name__ == "__main__":
    main()
