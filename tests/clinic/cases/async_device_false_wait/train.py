"""Trains a small classifier of camera frames on a device that works through a queue of its own."""

import argparse
import math
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 40
BATCH = 20
Sample = tuple[torch.Tensor, int]


class Device:
    """Runs the work that is launched on it, in order, each for its time; the caller goes on."""

    def __init__(self) -> None:
        self.stream: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while True:
            seconds, work, result = self.stream.get()
            until = time.perf_counter() + seconds
            try:
                value = work()
                time.sleep(max(until - time.perf_counter(), 0.0))
                result.set_result(value)
            except Exception as error:
                result.set_exception(error)

    def launch(self, seconds: float, work: Callable[[], Any]) -> Future:
        result: Future = Future()
        self.stream.put((seconds, work, result))
        return result

    def upload(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.launch(0.0, tensor.clone).result()


class Frames(Dataset[Sample]):
    """Frames with the sensor's curve applied, on the device if one is given."""

    def __init__(self, length: int, device: Device | None) -> None:
        self.raw = np.random.default_rng(0).integers(0, 256, (64, 3, SIDE, SIDE), dtype=np.uint8)
        self.curve = np.linspace(0.0, 1.0, 256) ** 2.2
        self.length = length
        self.device = device

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Sample:
        linear = np.interp(self.raw[index % len(self.raw)], np.arange(256), self.curve)
        frame = torch.from_numpy(linear.astype(np.float32))
        return (self.device.upload(frame) if self.device else frame), index % 10


def update(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--forward-ms", type=float, default=15.0)
    parser.add_argument("--backward-ms", type=float, default=20.0)
    parser.add_argument("--upload-in-loop", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    device = Device()
    frames = Frames(args.steps * BATCH, None if args.upload_in_loop else device)
    loader = DataLoader(frames, batch_size=BATCH, num_workers=args.workers)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

    def forward(pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(network(pixels), labels)

    for step, (pixels, labels) in enumerate(loader):
        if args.upload_in_loop:
            pixels = device.upload(pixels)
        loss = device.launch(args.forward_ms / 1000, partial(forward, pixels, labels)).result()
        if not math.isfinite(value := loss.item()):
            raise ValueError(f"the loss is {value} in step {step}")
        last = device.launch(args.backward_ms / 1000, partial(update, optimizer, loss))
        if step % 100 == 0:
            print(f"step {step}: loss {value:.3f}")
    last.result()


if __name__ == "__main__":
    main()
