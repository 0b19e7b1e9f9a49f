"""Trains a small convolutional network on images, on a GPU. Prints the step, and how long the GPU works in it.

`loops.py` runs it.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, BATCH, WARMUP = 224, 32, 50
Sample = tuple[torch.Tensor, int]


class Images(Dataset[Sample]):
    """Images that take `sample_ms` each to read."""

    def __init__(self, length: int, sample_ms: float) -> None:
        self.raw = torch.randint(0, 256, (64, 3, SIDE, SIDE), dtype=torch.uint8)
        self.length = length
        self.sample_ms = sample_ms

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Sample:
        time.sleep(self.sample_ms / 1000)
        return self.raw[index % len(self.raw)], index % 10


def collate(samples: list[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = zip(*samples)
    return torch.stack(images), torch.tensor(labels)


def collate_and_upload(samples: list[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    """Uploads from memory that is not pinned, so the copy waits until the GPU has finished all earlier work."""
    images, labels = collate(samples)
    return images.cuda(), labels.cuda()


def network(layers: int) -> nn.Module:
    body = [
        module for _ in range(layers) for module in (nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())
    ]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(nn.Conv2d(3, 64, 7, stride=2), nn.ReLU(), *body, *head).cuda()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--sample-ms", type=float, default=0.0)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--upload-in-loader", action="store_true")
    parser.add_argument("--read-loss", action="store_true", help="read the loss in each step")
    parser.add_argument("--time-gpu", action="store_true", help="time the GPU with CUDA events")
    args = parser.parse_args()

    images = Images(args.steps * BATCH, args.sample_ms)
    loader = DataLoader(
        images,
        batch_size=BATCH,
        num_workers=args.workers,
        pin_memory=not args.upload_in_loader,
        collate_fn=collate_and_upload if args.upload_in_loader else collate,
    )
    model = network(args.layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    events = []
    begin = 0.0
    for step, (pixels, labels) in enumerate(loader):
        if step == WARMUP:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if args.time_gpu else []
        if pair:
            pair[0].record()
        pixels, labels = pixels.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        loss = nn.functional.cross_entropy(model(pixels.float() / 255), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if pair:
            pair[1].record()
            events.append(pair)
        if args.read_loss:
            loss.item()
    torch.cuda.synchronize()
    step_ms = 1000 * (time.perf_counter() - begin) / (args.steps - WARMUP)
    busy = [first.elapsed_time(last) for first, last in events[WARMUP:]]
    print(f"step_ms {step_ms:.3f}")
    if busy:
        print(f"gpu_ms {sum(busy) / len(busy):.3f}")


if __name__ == "__main__":
    main()
