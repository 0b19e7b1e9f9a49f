"""Train a regressor on windows of a sensor signal: it predicts the amplitude of each window."""

import argparse
import queue
import threading
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

LENGTH, SEGMENT = 4096, 512


class Recordings(Dataset):
    """Rows of a signal's values; the last value of a row is its amplitude."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> list[float]:
        rng = np.random.default_rng(index)
        amplitude = rng.random()
        signal = rng.standard_normal(LENGTH, dtype=np.float32) * amplitude
        return [*signal.tolist(), amplitude]


def stage_batches(source: Iterator, ready: queue.Queue) -> None:
    """Copies batches into four reusable buffers, for the loop to take."""
    buffers: list[Tensor] = []
    for number, rows in enumerate(source):
        data = torch.as_tensor(rows)
        if len(buffers) < 4:
            buffers.append(torch.empty_like(data))
        buffer = buffers[number % 4][: len(data)]
        buffer.copy_(data)
        ready.put(buffer)
    ready.put(None)


class StagedLoader(DataLoader):
    """A loader with a thread that keeps two batches ready."""

    def __iter__(self) -> Iterator[Tensor]:
        ready: queue.Queue = queue.Queue(maxsize=2)
        source = super().__iter__()
        thread = threading.Thread(
            target=stage_batches, args=(source, ready), name="stage", daemon=True
        )
        thread.start()
        while (batch := ready.get()) is not None:
            yield batch
        thread.join()


class Regressor(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        blocks: list[nn.Module] = [nn.Linear(SEGMENT, width), nn.ReLU()]
        for _ in range(layers):
            blocks += [nn.Linear(width, width), nn.ReLU()]
        self.net = nn.Sequential(*blocks, nn.Linear(width, 1))

    def forward(self, signal: Tensor) -> Tensor:
        segments = signal.reshape(len(signal), -1, SEGMENT)
        return self.net(segments).mean((1, 2))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--collate-in-worker", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = StagedLoader(
        Recordings(args.steps * args.batch),
        batch_size=args.batch,
        num_workers=1,
        collate_fn=torch.tensor if args.collate_in_worker else list,
    )
    model = Regressor(args.width, args.layers).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, batch in enumerate(loader, 1):
        signal, amplitude = batch[:, :LENGTH], batch[:, LENGTH]
        loss = functional.mse_loss(model(signal), amplitude)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
