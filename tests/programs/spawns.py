"""Spawns two ranks, each of which trains. It does not use headspace."""

import os

import torch
from torch.utils.data import DataLoader


def train(rank, folder):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    model = torch.nn.Linear(1, 1).train()
    for batch in DataLoader([torch.ones(1)] * 100, batch_size=2):
        model(batch).sum().backward()
    torch.distributed.barrier()


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, (os.getcwd(),), nprocs=2)
