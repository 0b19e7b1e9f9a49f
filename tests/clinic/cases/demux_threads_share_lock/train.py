"""Trains a small network on clips, which the threads of an SPDL pipeline demux and decode."""

import argparse
import threading
import time

import numpy as np
import torch
from spdl.pipeline import PipelineBuilder
from torch import nn

SIDE, FRAMES, CLASSES = 32, 8, 10
BATCH = 4
CODEC_LOCK = threading.Lock()
Packets = tuple[int, np.ndarray]
Clip = tuple[torch.Tensor, int]


class Demuxer:
    """Opens clips and reads their packets, from a store that answers after some milliseconds."""

    def __init__(self, latency: float, is_thread_safe: bool) -> None:
        self.latency, self.is_thread_safe = latency, is_thread_safe

    def open_codec(self, clip: int) -> np.ndarray:
        """The tables of the clip's codec."""
        time.sleep(self.latency)
        return np.sort(np.random.default_rng(clip).random(FRAMES * SIDE * SIDE))

    def demux(self, clip: int) -> Packets:
        if self.is_thread_safe:
            table = self.open_codec(clip)
        else:
            with CODEC_LOCK:
                table = self.open_codec(clip)
        time.sleep(self.latency)
        return clip, table


def decode(packets: Packets) -> Clip:
    clip, values = packets
    frames = torch.from_numpy(values.astype(np.float32)).reshape(1, FRAMES, SIDE, SIDE)
    return frames, clip % CLASSES


def collate(clips: list[Clip]) -> tuple[torch.Tensor, torch.Tensor]:
    frames, labels = zip(*clips)
    return torch.stack(frames), torch.tensor(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--latency-ms", type=float, default=4.0)
    parser.add_argument(
        "--thread-safe", action="store_true", help="codecs are opened without a lock"
    )
    parser.add_argument("--width", type=int, default=48)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    demuxer = Demuxer(args.latency_ms / 1000, args.thread_safe)
    pipeline = (
        PipelineBuilder()
        .add_source(range(args.steps * BATCH))
        .pipe(demuxer.demux, concurrency=args.threads)
        .pipe(decode, concurrency=2)
        .aggregate(BATCH)
        .pipe(collate)
        .add_sink(3)
        .build(num_threads=args.threads + 3)
    )
    network = nn.Sequential(
        nn.Conv3d(1, args.width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv3d(args.width, 2 * args.width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(2 * args.width, CLASSES),
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    with pipeline.auto_stop():
        for step, (frames, labels) in enumerate(pipeline):
            loss = nn.functional.cross_entropy(network(frames), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                print(f"step {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
