"""One rank of a training over gloo, without a GPU: `gloo_ranks.py [STEPS]`. It does not use headspace.

The launcher passes rank, size and address in the environment (`torchrun`, or a script of Slurm).
"""

import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(torch.ones(2 * steps, 4)), batch_size=2):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
    time.sleep(0.005)
# One write for the line: with PYTHONUNBUFFERED, `print` writes each argument alone, and the ranks of a machine share a pipe.
sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()}\n")
dist.destroy_process_group()
