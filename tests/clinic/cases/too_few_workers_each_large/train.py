"""Trains a small network to name the keyword in a second of speech, mixed with recorded noise.

The clips are in an object store, which answers each request after a few milliseconds.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 16_000
WINDOW = 256
KEYWORDS = 35
BATCH = 8


def decode_noise(megabytes: int) -> np.ndarray:
    """The background recordings, as samples of 4 bytes."""
    recording = np.random.default_rng(0).standard_normal(1_000_000, dtype=np.float32)
    return np.resize(recording, megabytes * 250_000)


class Clips(Dataset[tuple[torch.Tensor, int]]):
    """Clips from the store as spectrograms, and the numbers of their keywords."""

    def __init__(self, length: int, latency: float, noise_mb: int) -> None:
        self.length = length
        self.latency = latency
        self.noise_mb = noise_mb
        self.noise: np.ndarray | None = None
        self.taper = np.hanning(WINDOW).astype(np.float32)

    def __len__(self) -> int:
        return self.length

    def fetch(self, index: int, rng: np.random.Generator) -> np.ndarray:
        time.sleep(self.latency)
        pitch = 200 + 50 * (index % KEYWORDS)
        tone = np.sin(np.arange(RATE, dtype=np.float32) * (2 * np.pi * pitch / RATE))
        return tone + rng.standard_normal(RATE, dtype=np.float32)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.noise is None:
            self.noise = decode_noise(self.noise_mb)
        rng = np.random.default_rng(index)
        clip = self.fetch(index, rng)
        start = int(rng.integers(len(self.noise) - RATE))
        clip += 0.1 * self.noise[start : start + RATE]
        windows = clip[: RATE // WINDOW * WINDOW].reshape(-1, WINDOW) * self.taper
        spectrogram = np.log1p(np.abs(np.fft.rfft(windows))).astype(np.float32)
        return torch.from_numpy(spectrogram), index % KEYWORDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--latency-ms", type=float, default=5.0)
    parser.add_argument("--noise-mb", type=int, default=800)
    parser.add_argument("--width", type=int, default=512)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    clips = Clips(args.steps * BATCH, args.latency_ms / 1000, args.noise_mb)
    loader = DataLoader(clips, batch_size=BATCH, num_workers=args.workers)
    network = nn.Sequential(
        nn.Linear(WINDOW // 2 + 1, args.width),
        nn.ReLU(),
        nn.Linear(args.width, args.width),
        nn.ReLU(),
        nn.Linear(args.width, KEYWORDS),
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    for step, (spectrograms, keywords) in enumerate(loader):
        scores = network(spectrograms).mean(dim=1)
        loss = nn.functional.cross_entropy(scores, keywords)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
