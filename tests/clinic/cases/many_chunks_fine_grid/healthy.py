"""Train an autoencoder on ocean fields of two resolutions, which the loader reads by chunks."""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, Sampler

CHANNELS, PATCH = 4, 4
GRIDS = {"coarse": (32, 64), "fine": (64, 128)}
FIELDS = 64


class Fields:
    """The fields of one grid in a file, each in a number of chunks, with a latency per chunk."""

    def __init__(self, path: Path, grid: str, chunks: int, latency: float) -> None:
        self.shape = (CHANNELS, *GRIDS[grid])
        self.chunks, self.latency = chunks, latency
        values = np.random.default_rng(0).standard_normal((FIELDS, *self.shape), dtype=np.float32)
        values.tofile(path)
        self.size = values[0].nbytes
        self.file = os.open(path, os.O_RDONLY)

    def read_chunk(self, number: int, chunk: int) -> bytes:
        time.sleep(self.latency)
        size = self.size // self.chunks
        return os.pread(self.file, size, number * self.size + chunk * size)

    def read(self, number: int) -> Tensor:
        data = bytearray().join(self.read_chunk(number, chunk) for chunk in range(self.chunks))
        return torch.frombuffer(data, dtype=torch.float32).view(self.shape)


class Ocean(Dataset):
    def __init__(self, fields: dict[str, Fields]) -> None:
        self.fields = fields

    def __getitem__(self, key: tuple[str, int]) -> Tensor:
        grid, number = key
        return self.fields[grid].read(number)


class GridBatches(Sampler):
    """Batches of one grid each; about one in twelve is fine."""

    def __init__(self, steps: int, batch: int) -> None:
        self.steps, self.batch = steps, batch

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[tuple[str, int]]]:
        rng = np.random.default_rng(2)
        for _ in range(self.steps):
            grid = "fine" if rng.random() < 1 / 12 else "coarse"
            yield [(grid, number) for number in rng.integers(0, FIELDS, self.batch).tolist()]


def build_model(width: int, layers: int) -> nn.Module:
    size = CHANNELS * PATCH * PATCH
    blocks: list[nn.Module] = [nn.Linear(size, width), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Linear(width, size))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--fine-chunks", type=int, default=1, help="chunks of a fine field")
    parser.add_argument("--latency-ms", type=float, default=1.5)
    parser.add_argument("--layers", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        chunks = {"coarse": 1, "fine": args.fine_chunks}
        fields = {
            grid: Fields(Path(folder, grid), grid, chunks[grid], args.latency_ms / 1000)
            for grid in GRIDS
        }
        batches = GridBatches(args.steps, args.batch)
        loader = DataLoader(Ocean(fields), batch_sampler=batches, num_workers=1)
        model = build_model(256, args.layers).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step, field in enumerate(loader, 1):
            coarse = functional.adaptive_avg_pool2d(field, GRIDS["coarse"])
            patches = functional.unfold(coarse, PATCH, stride=PATCH).transpose(1, 2)
            loss = functional.mse_loss(model(patches), patches)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
