"""Train a network to predict the next satellite image from the last ones, at random times and places."""

import argparse
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

FRAMES, SIDE = 480, 160
HISTORY, CROP, PATCH = 3, 64, 8


def make_image(frame: int) -> np.ndarray:
    """Clouds that stay for some frames, with noise."""
    clouds = np.random.default_rng(frame // 40).normal(2000, 400, (SIDE // 8, SIDE // 8))
    noise = np.random.default_rng(FRAMES + frame).normal(0, 12, (SIDE, SIDE))
    return (clouds.repeat(8, 0).repeat(8, 1) + noise).astype(np.int16)


class Archive:
    """Images in compressed chunks along time, one file per chunk."""

    def __init__(self, folder: Path, frames_per_chunk: int) -> None:
        self.folder = folder
        self.frames_per_chunk = frames_per_chunk

    def write(self) -> None:
        for chunk in range(FRAMES // self.frames_per_chunk):
            first = chunk * self.frames_per_chunk
            images = [make_image(first + frame) for frame in range(self.frames_per_chunk)]
            packed = zlib.compress(np.stack(images).tobytes(), 1)
            (self.folder / f"{chunk}.z").write_bytes(packed)

    def read_chunk(self, chunk: int) -> np.ndarray:
        raw = zlib.decompress((self.folder / f"{chunk}.z").read_bytes())
        return np.frombuffer(raw, np.int16).reshape(-1, SIDE, SIDE)

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.concatenate(list(self.parts(start, stop)))

    def parts(self, start: int, stop: int) -> Iterator[np.ndarray]:
        size = self.frames_per_chunk
        for chunk in range(start // size, (stop - 1) // size + 1):
            first = chunk * size
            yield self.read_chunk(chunk)[max(start - first, 0) : stop - first]


class Crops(Dataset[Tensor]):
    """A square of the images at a random time."""

    def __init__(self, archive: Archive, length: int) -> None:
        self.archive = archive
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Tensor:
        rng = np.random.default_rng(index)
        start = int(rng.integers(FRAMES - HISTORY))
        top, left = rng.integers(SIDE - CROP, size=2)
        images = self.archive.read(start, start + HISTORY + 1)
        square = images[:, top : top + CROP, left : left + CROP].astype(np.float32)
        return torch.from_numpy((square - 2000) / 400)


def build_model(width: int, layers: int) -> nn.Module:
    blocks: list[nn.Module] = [nn.Linear(HISTORY * PATCH * PATCH, width), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Linear(width, PATCH * PATCH))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--frames-per-chunk", type=int, default=48)
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(Path(folder), args.frames_per_chunk)
        archive.write()
        loader = DataLoader(Crops(archive, args.steps * args.batch), args.batch, num_workers=2)
        model = build_model(512, args.layers).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step, images in enumerate(loader, 1):
            patches = functional.unfold(images[:, :HISTORY], PATCH, stride=PATCH).transpose(1, 2)
            target = functional.unfold(images[:, HISTORY:], PATCH, stride=PATCH).transpose(1, 2)
            loss = functional.mse_loss(model(patches), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
