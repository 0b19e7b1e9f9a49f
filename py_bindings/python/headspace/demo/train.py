"""The training program of `headspace demo`. It needs only headspace, and PyAV for `--video`.

A loader reads clips from a store that answers slowly, and decodes them. The model hashes each batch, which keeps one core
busy as a training step on a CPU does.

The lines that concern headspace are marked with `headspace:`.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import random
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import headspace

#: Time that the store needs to answer a request.
LATENCY_S = 0.01
#: Clips in a batch.
BATCH = 2
#: Frames in a clip, and their size in pixels.
FRAMES, WIDTH, HEIGHT = 8, 160, 120
#: Times that the model hashes a batch. One pass takes about 3 ms.
PASSES = 6


def main() -> None:
    args = parse()
    clip, decode_clip = make_video() if args.video else make_compressed()

    @headspace.stage("fetch")  # headspace: the calls of this function are a stage of the loader
    def fetch(index: int) -> bytes:
        time.sleep(LATENCY_S)
        return clip

    @headspace.stage("decode")  # headspace: and so are these
    def decode(data: bytes) -> bytes:
        return decode_clip(data)

    def load(index: int) -> list[bytes]:
        return [decode(fetch(BATCH * index + place)) for place in range(BATCH)]

    loader = Loader(load, args.steps, args.threads)
    for batch in headspace.wrap(loader):  # headspace: measures the loop
        train(batch)


class Loader:
    """Loads batches on threads. At most two batches per thread are loaded in advance."""

    def __init__(self, load: Callable[[int], list[bytes]], batches: int, threads: int) -> None:
        self.load = load
        self.batches = batches
        self.threads = threads

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[bytes]]:
        pending: deque[Future[list[bytes]]] = deque()
        with ThreadPoolExecutor(self.threads) as pool:
            for index in range(self.batches):
                pending.append(pool.submit(self.load, index))
                if len(pending) > 2 * self.threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()


def train(batch: list[bytes]) -> None:
    """A step of the model."""
    for _ in range(PASSES):
        for frames in batch:
            hashlib.sha256(frames).digest()


def make_compressed() -> tuple[bytes, Callable[[bytes], bytes]]:
    """A clip as compressed bytes, and its decoder."""
    noise = random.Random(0)
    row = bytes(noise.randrange(0, 256, 16) for _ in range(WIDTH * 3))
    rows = b"".join(row[place:] + row[:place] for place in range(HEIGHT * FRAMES))
    return zlib.compress(rows, 6), zlib.decompress


def make_video() -> tuple[bytes, Callable[[bytes], bytes]]:
    """A clip as an mp4 file, and its decoder, PyAV."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=24)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(FRAMES):
            frame = av.VideoFrame(WIDTH, HEIGHT, "yuv420p")
            for plane in frame.planes:
                plane.update(
                    bytes((number * 8 + place) % 256 for place in range(plane.buffer_size))
                )
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue(), decode_video


def decode_video(data: bytes) -> bytes:
    """The frames of an mp4 file."""
    import av

    with av.open(io.BytesIO(data)) as container:
        frames: list[Any] = [frame.reformat(format="rgb24") for frame in container.decode(video=0)]
        return b"".join(bytes(frame.planes[0]) for frame in frames)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on clips from a slow store.")
    parser.add_argument("--threads", type=int, default=1, help="threads that load batches")
    parser.add_argument("--steps", type=int, default=1500, help="number of batches")
    parser.add_argument("--video", action="store_true", help="decode mp4 files with PyAV")
    return parser.parse_args()


if __name__ == "__main__":
    main()
