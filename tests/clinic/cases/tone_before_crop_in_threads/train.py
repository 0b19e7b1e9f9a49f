"""Trains a small convolutional network on crops of pictures, which a worker loads with threads."""

import argparse
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CROP = 64
BATCH = 8
FILES = 64
CLASSES = 10
LEVELS = np.arange(256)
CURVE = np.linspace(0.0, 1.0, 256) ** 2.2
Sample = tuple[torch.Tensor, int]


def write_pictures(folder: Path, side: int) -> None:
    rng = np.random.default_rng(0)
    slope = np.linspace(0, 200, side)[:, None, None]
    for number in range(FILES):
        noise = rng.integers(0, 50, (side, side, 3))
        picture = (slope + noise).astype(np.uint8)
        (folder / f"{number}.z").write_bytes(zlib.compress(picture.tobytes(), 1))


def decode(packed: bytes, side: int) -> np.ndarray:
    return np.frombuffer(zlib.decompress(packed), np.uint8).reshape(side, side, 3)


def tone(picture: np.ndarray) -> np.ndarray:
    return np.interp(picture, LEVELS, CURVE)


class Pictures(Dataset[Sample]):
    """Random crops of the pictures of a folder; threads load the samples of a batch."""

    def __init__(self, folder: Path, length: int, options: argparse.Namespace) -> None:
        self.folder = folder
        self.length = length
        self.options = options
        self.pool: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return self.length

    def load(self, index: int) -> Sample:
        packed = (self.folder / f"{index % FILES}.z").read_bytes()
        picture = decode(packed, self.options.side)
        rng = np.random.default_rng(index)
        top, left = rng.integers(0, self.options.side - CROP, 2)
        crop = (slice(top, top + CROP), slice(left, left + CROP))
        picture = tone(picture[crop]) if self.options.crop_first else tone(picture)[crop]
        if rng.random() < 0.5:
            picture = picture[:, ::-1]
        pixels = np.ascontiguousarray(picture.transpose(2, 0, 1), dtype=np.float32)
        return torch.from_numpy(pixels), index % CLASSES

    def __getitems__(self, indices: list[int]) -> list[Sample]:
        if self.pool is None:
            self.pool = ThreadPoolExecutor(self.options.threads)
        return list(self.pool.map(self.load, indices))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--crop-first", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as folder:
        write_pictures(Path(folder), args.side)
        pictures = Pictures(Path(folder), args.steps * BATCH, args)
        loader = DataLoader(pictures, batch_size=BATCH, num_workers=1)
        network = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64, CLASSES),
        )
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
        for step, (pixels, labels) in enumerate(loader):
            loss = nn.functional.cross_entropy(network(pixels), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
