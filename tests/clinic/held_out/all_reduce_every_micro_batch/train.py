"""Train a wide network on tables on several ranks, with gradients accumulated over small batches."""

import argparse
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

COLUMNS = 256
Sample = tuple[Tensor, Tensor]


class Table(Dataset[Sample]):
    """Rows of a table; the target is the mean of some columns."""

    def __init__(self, count: int) -> None:
        self.rows = torch.randn(count, COLUMNS, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Sample:
        row = self.rows[index]
        return row, row[:16].mean(0, keepdim=True)


class Accumulation:
    """Adds up the gradients of several micro-batches before each step of the optimizer."""

    def __init__(self, model: DistributedDataParallel, count: int, reduce_once: bool) -> None:
        self.model, self.count, self.reduce_once = model, count, reduce_once

    def is_last(self, micro_batch: int) -> bool:
        return micro_batch % self.count == 0

    def context(self, micro_batch: int) -> AbstractContextManager[None]:
        """Around the forward pass, in which the model decides whether it reduces the gradients."""
        if self.reduce_once and not self.is_last(micro_batch):
            return self.model.no_sync()
        return nullcontext()


def build_model(width: int, layers: int) -> nn.Module:
    blocks: list[nn.Module] = [nn.Linear(COLUMNS, width), nn.ReLU()]
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Linear(width, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600, help="micro-batches of each rank")
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=8)
    parser.add_argument("--reduce-once", action="store_true")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("gloo")

    table = Table(args.steps * args.micro_batch * distributed.get_world_size())
    loader = DataLoader(table, args.micro_batch, sampler=DistributedSampler(table))
    model = DistributedDataParallel(build_model(args.width, args.layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    accumulation = Accumulation(model, args.accumulate, args.reduce_once)
    for step, (rows, targets) in enumerate(loader, 1):
        with accumulation.context(step):
            loss = nn.functional.mse_loss(model(rows), targets)
            (loss / args.accumulate).backward()
        if accumulation.is_last(step):
            optimizer.step()
            optimizer.zero_grad()
        if step % 100 == 0 and distributed.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
