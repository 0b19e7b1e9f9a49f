"""Train a model that predicts the mean brightness of patches, on images in one record file."""

import argparse
import contextlib
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

SIDE, PATCH = 128, 16
RECORD = SIDE * SIDE
SEEK = {"hdd": 0.0015, "ssd": 0.00005}


def write_records(path: Path, count: int, memory: int) -> None:
    """Writes random images; at most `memory` bytes of the file stay in memory."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range((count + 63) // 64):
            file.write(rng.bytes(64 * RECORD))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), memory, 0, os.POSIX_FADV_DONTNEED)


class Disk:
    """A file on a disk with one head, whose seeks take a given time."""

    def __init__(self, path: Path, seek: float) -> None:
        self.seek = seek
        self.head = multiprocessing.Lock()
        self.file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)

    def read(self, offset: int, size: int) -> bytearray:
        buffer = bytearray(size)
        with contextlib.suppress(BlockingIOError):
            if os.preadv(self.file, [buffer], offset, os.RWF_NOWAIT) == size:
                return buffer
        with self.head:
            time.sleep(self.seek)
            os.preadv(self.file, [buffer], offset)
        return buffer


class Records(Dataset):
    """Images in the order of the file, shuffled within groups of 1024."""

    def __init__(self, disk: Disk, count: int) -> None:
        rng = np.random.default_rng(1)
        groups = [np.arange(first, min(first + 1024, count)) for first in range(0, count, 1024)]
        self.order = np.concatenate([rng.permutation(group) for group in groups])
        self.disk = disk

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> Tensor:
        data = self.disk.read(int(self.order[index]) * RECORD, RECORD)
        return torch.frombuffer(data, dtype=torch.uint8).view(1, SIDE, SIDE)


def build_model(width: int, layers: int) -> nn.Module:
    blocks: list[nn.Module] = [nn.Linear(PATCH * PATCH, width), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Linear(width, 1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--memory-mb", type=int, default=120)
    parser.add_argument("--disk", choices=SEEK, default="hdd")
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    count = args.steps * args.batch
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "images.u8")
        write_records(path, count, args.memory_mb << 20)
        records = Records(Disk(path, SEEK[args.disk]), count)
        loader = DataLoader(records, args.batch, num_workers=1)
        model = build_model(128, args.layers).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step, images in enumerate(loader, 1):
            pixels = images.float().div_(255)
            patches = functional.unfold(pixels, PATCH, stride=PATCH).transpose(1, 2)
            loss = functional.mse_loss(model(patches), patches.mean(2, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
