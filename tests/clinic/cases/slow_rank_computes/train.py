"""Trains a deep regression network on several ranks; the last rank keeps gradient spectra."""

import argparse
from collections import Counter
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

BATCH = 384


class Spectra:
    """The singular values of the gradient of each weight, for the study of the training's rank."""

    def __init__(self, network: nn.Module, every: int) -> None:
        self.every = every
        self.calls: Counter[str] = Counter()
        self.latest: dict[str, torch.Tensor] = {}
        for name, weight in network.named_parameters():
            if weight.dim() == 2:
                weight.register_hook(partial(self.keep, name))

    def keep(self, name: str, gradient: torch.Tensor) -> None:
        self.calls[name] += 1
        if self.calls[name] % self.every == 0:
            self.latest[name] = torch.linalg.svdvals(gradient)

    def effective_rank(self) -> float:
        ranks = [float((values > 0.01 * values[0]).sum()) for values in self.latest.values()]
        return sum(ranks) / max(len(ranks), 1)


def build(width: int, depth: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--spectra-every", type=int, default=1)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    inputs = torch.randn(BATCH * 200, args.width)
    targets = inputs[:, :8].sum(dim=1, keepdim=True)
    dataset = TensorDataset(inputs, targets)
    sampler = DistributedSampler(dataset, ranks, rank, seed=0)
    batches = BatchSampler(sampler, BATCH, drop_last=True)
    loader = DataLoader(dataset, sampler=batches, batch_size=None)

    network = build(args.width, args.depth)
    spectra = Spectra(network, args.spectra_every) if rank == ranks - 1 else None
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    epoch = 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        epoch += 1
        for features, values in loader:
            loss = nn.functional.mse_loss(model(features), values)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 0 and rank == 0:
                print(f"step {step}: loss {loss.item():.3f}", flush=True)
            step += 1
            if step == args.steps:
                break
    if spectra is not None:
        print(f"effective rank of the gradients: {spectra.effective_rank():.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
