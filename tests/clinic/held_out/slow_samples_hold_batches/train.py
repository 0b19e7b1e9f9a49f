"""Train a classifier on one second of each recording, which the loader fetches from an archive.

The archive sends whole recordings. Most are commands of a few seconds; a few are long meetings.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 16_000
WINDOW = 256
SPEAKERS = 40


class Recordings(Dataset[tuple[torch.Tensor, int]]):
    """Spectrograms of one second, and the numbers of the speakers."""

    def __init__(self, count: int, ms_per_second: float, meetings: float) -> None:
        rng = np.random.default_rng(0)
        commands = rng.uniform(1, 4, count)
        long_ones = rng.uniform(200, 400, count)
        self.seconds = np.where(rng.random(count) < meetings, long_ones, commands)
        self.delay = ms_per_second / 1000
        self.taper = np.hanning(WINDOW).astype(np.float32)

    def __len__(self) -> int:
        return len(self.seconds)

    def fetch_recording(self, index: int) -> np.ndarray:
        time.sleep(self.seconds[index] * self.delay)
        rng = np.random.default_rng(index)
        pitch = 100 + 10 * (index % SPEAKERS)
        tone = np.sin(np.arange(RATE, dtype=np.float32) * (2 * np.pi * pitch / RATE))
        return tone + rng.standard_normal(RATE, dtype=np.float32)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        second = self.fetch_recording(index)
        windows = second[: RATE // WINDOW * WINDOW].reshape(-1, WINDOW) * self.taper
        spectrogram = np.log1p(np.abs(np.fft.rfft(windows))).astype(np.float32)
        return torch.from_numpy(spectrogram), index % SPEAKERS


def build_model(width: int, layers: int) -> nn.Module:
    blocks: list[nn.Module] = [nn.Linear(WINDOW // 2 + 1, width), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Linear(width, SPEAKERS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--any-order", action="store_true", help="take the batch that is ready")
    parser.add_argument("--ms-per-second", type=float, default=1.2, help="speed of the archive")
    parser.add_argument("--meetings", type=float, default=0.01, help="part of the recordings")
    parser.add_argument("--layers", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    recordings = Recordings(args.steps * args.batch, args.ms_per_second, args.meetings)
    loader = DataLoader(
        recordings,
        batch_size=args.batch,
        shuffle=True,
        num_workers=args.workers,
        in_order=not args.any_order,
    )
    model = build_model(512, args.layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step, (spectrograms, speakers) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(spectrograms).mean(dim=1), speakers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
