"""Trains on a torch `DataLoader`, for the study of `headspace tune`.

A sample comes from a store with a latency. It is decompressed, which takes much longer with the codec `lzma`, and
augmented.
"""

from __future__ import annotations

import argparse
import lzma
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import headspace

#: Seconds until the store answers.
LATENCY_S = 0.012

SHAPE = (3, 128, 128)
SAMPLES = 4096

CODECS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "lzma": (lzma.compress, lzma.decompress),
    "zlib": (zlib.compress, zlib.decompress),
}


class Store(Dataset[Any]):
    """Compressed images, by index."""

    def __init__(self, codec: str, augment_threads: int) -> None:
        compress, self._decompress = CODECS[codec]
        images = np.random.default_rng(0).integers(0, 12, (16, *SHAPE), np.uint8)
        self._images = [compress(image.tobytes()) for image in images]
        self._threads = augment_threads
        self._pool: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return SAMPLES

    @headspace.stage("read")
    def read(self, index: int) -> bytes:
        time.sleep(LATENCY_S)
        return self._images[index % len(self._images)]

    @headspace.stage("decode")
    def decode(self, image: bytes) -> np.ndarray[Any, Any]:
        return np.frombuffer(self._decompress(image), np.uint8).reshape(SHAPE)

    @headspace.stage("augment")
    def augment(self, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return image[:, :, ::-1].astype(np.float32)

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        if self._pool is None:  # Created in the worker that uses it.
            self._pool = ThreadPoolExecutor(self._threads)
        image = self.decode(self.read(index))
        return self._pool.submit(self.augment, image).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--prefetch-factor", type=int, default=1)
    parser.add_argument("--codec", choices=sorted(CODECS), default="lzma")
    parser.add_argument("--augment-threads", type=int, default=1)
    parser.add_argument("--torch-threads", type=int, default=2)
    args = parser.parse_args()

    torch.set_num_threads(args.torch_threads)
    loader = headspace.wrap(
        DataLoader(
            Store(args.codec, args.augment_threads),
            batch_size=4,
            num_workers=args.workers,
            prefetch_factor=args.prefetch_factor,
            persistent_workers=True,
        )
    )
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 5, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 5, stride=2)
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    steps = 0
    while steps < args.steps:
        for batch in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            steps += 1
            if steps == args.steps:
                break


if __name__ == "__main__":
    main()
