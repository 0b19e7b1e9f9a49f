"""Trains a small convolutional network on augmented photographs."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 80
BATCH = 16
CLASSES = 10
CURVE = np.linspace(0.0, 1.0, 256, dtype=np.float32) ** 2.2


def rotate(picture: np.ndarray, angle: float) -> np.ndarray:
    middle = (SIDE - 1) / 2
    rows, columns = np.mgrid[:SIDE, :SIDE] - middle
    source_rows = np.cos(angle) * rows - np.sin(angle) * columns + middle
    source_columns = np.sin(angle) * rows + np.cos(angle) * columns + middle
    clipped = np.clip(np.rint([source_rows, source_columns]), 0, SIDE - 1).astype(int)
    return picture[clipped[0], clipped[1]]


class Photographs(Dataset[tuple[torch.Tensor, int]]):
    """Photographs, developed once, rotated and with noise, each time in a new way."""

    def __init__(self, length: int) -> None:
        rng = np.random.default_rng(0)
        self.pictures = CURVE[rng.integers(0, 256, (256, SIDE, SIDE, 3), dtype=np.uint8)]
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        rng = np.random.default_rng(index)
        picture = rotate(self.pictures[index % len(self.pictures)], rng.uniform(-0.3, 0.3))
        picture += 0.02 * rng.standard_normal(picture.shape, dtype=np.float32)
        pixels = np.ascontiguousarray(picture.transpose(2, 0, 1))
        return torch.from_numpy(pixels), index % CLASSES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    photographs = Photographs(args.steps * BATCH)
    loader = DataLoader(photographs, batch_size=BATCH, shuffle=True, num_workers=args.workers)
    network = nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(48, 96, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, CLASSES),
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
