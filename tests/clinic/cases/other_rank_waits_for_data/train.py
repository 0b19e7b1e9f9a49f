"""Trains a robot's policy on two ranks, each on its half of the recorded episodes.

The first half of the episodes is on the local disk, the second half in a bucket.
"""

import argparse
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset

SIDE = 64
PATCH = 192
JOINTS = 7
BATCH = 8


class Episodes(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Frames of the camera and positions of the joints."""

    def __init__(self, length: int, latency: float) -> None:
        self.length = length
        patches = SIDE * SIDE * 3 // PATCH
        rng = np.random.default_rng(0)
        self.frames = rng.standard_normal((256, patches, PATCH), dtype=np.float32)
        self.latency = latency

    def __len__(self) -> int:
        return self.length

    def read(self, index: int) -> np.ndarray:
        if index >= self.length // 2:
            time.sleep(self.latency)
        return self.frames[index % len(self.frames)]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        frame = torch.from_numpy(self.read(index))
        return frame, frame[0, :JOINTS].tanh()


class Policy(nn.Module):
    """Positions of the joints from the patches of a frame."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patches = nn.Sequential(
            nn.Linear(PATCH, width), nn.GELU(), nn.Linear(width, width), nn.GELU()
        )
        self.joints = nn.Linear(width, JOINTS)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self.joints(self.patches(frames).mean(dim=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--latency-ms", type=float, default=5.0)
    parser.add_argument("--width", type=int, default=512)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    share = args.steps * BATCH
    episodes = Episodes(share * ranks, args.latency_ms / 1000)
    mine = Subset(episodes, range(rank * share, (rank + 1) * share))
    loader = DataLoader(mine, batch_size=BATCH, shuffle=True, num_workers=args.workers)
    model = DistributedDataParallel(Policy(args.width))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (frames, joints) in enumerate(loader):
        loss = nn.functional.mse_loss(model(frames), joints)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0 and rank == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
