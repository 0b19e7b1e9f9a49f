"""A training script with a stall every n steps: `stalls.py SOURCE STEPS`.

SOURCE is `checkpoint` (every 75 steps), `logging` (every 50 steps, to a slow server) or `refill` (the shuffle buffer of the
dataset is filled again after every 40 batches). The first stall is after as many steps. The script does not use
headspace. It prints the durations of its stalls in seconds.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

BATCH = 8
WIDTH = 256

stalls: list[float] = []


@contextmanager
def stall() -> Iterator[None]:
    begin = time.monotonic()
    yield
    stalls.append(time.monotonic() - begin)


class Shuffled(IterableDataset):
    """Samples in the order of a buffer that is filled when it is empty."""

    def __init__(self, samples: int, refill_seconds: float) -> None:
        self.samples = samples
        self.refill_seconds = refill_seconds

    def refill(self) -> list[torch.Tensor]:
        time.sleep(self.refill_seconds)  # reads the next shard
        return [torch.rand(WIDTH) for _ in range(40 * BATCH)]

    def __iter__(self) -> Iterator[torch.Tensor]:
        buffer: list[torch.Tensor] = []
        for _ in range(self.samples):
            if not buffer:
                with stall():
                    buffer = self.refill()
                    random.shuffle(buffer)
            time.sleep(0.0005)
            yield buffer.pop()


def save(network: nn.Module, path: Path) -> None:
    weights = network.state_dict()
    with path.open("wb") as file:
        for _ in range(40):
            torch.save(weights, file)
        os.fsync(file.fileno())
        time.sleep(0.2)  # the file server confirms


class Server:
    """Answers each message after 0.4 s."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        connection, _ = self.listener.accept()
        while message := connection.recv(1024):
            time.sleep(0.4)
            connection.sendall(message)


def report(connection: socket.socket, step: int, loss: float) -> None:
    connection.sendall(f"{step} {loss}".encode())
    connection.recv(1024)


def main() -> None:
    source, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    network = nn.Sequential(nn.Linear(WIDTH, 1024), nn.ReLU(), nn.Linear(1024, WIDTH))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    connection = socket.create_connection(Server().listener.getsockname())
    samples = Shuffled(steps * BATCH, 0.4 if source == "refill" else 0.0)
    loader = DataLoader(samples, BATCH)
    with tempfile.TemporaryDirectory() as folder:
        for step, batch in enumerate(loader):
            loss = nn.functional.mse_loss(network(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if source == "checkpoint" and step % 75 == 74:
                with stall():
                    save(network, Path(folder, "checkpoint.pt"))
            if source == "logging" and step % 50 == 49:
                with stall():
                    report(connection, step, loss.item())
    print(*stalls)


if __name__ == "__main__":
    main()
