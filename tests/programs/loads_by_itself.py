"""Trains on batches that it loads: `loads_by_itself.py KIND STEPS WORKERS` prints the mean step in milliseconds.

Loading and computing are fixed amounts of work, not fixed times. As in real programs, both get slower if
other programs use the cores.
"""

import sys
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

KIND, STEPS, WORKERS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
WARM_UP = 25

torch.set_num_threads(1)
image = np.random.default_rng(0).random((96, 96), dtype=np.float32)


def in_python(ms):
    """Computes for about `ms` milliseconds on the reference machine."""
    total = 0
    for value in range(int(22_500 * ms)):
        total += value * value
    return total


def in_numpy(ms):
    out = image
    for _ in range(int(145 * ms)):
        out = np.sqrt(out * 1.01 + 0.5)
    return out


class Batches(Dataset):
    """Makes whole batches, as a data set of shards does."""

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        if KIND == "python":
            in_python(18)
            return {"image": torch.ones(64, 64), "label": torch.ones(64)}
        if KIND == "numpy":
            return {"image": torch.from_numpy(in_numpy(12)), "label": torch.ones(64)}
        if KIND == "balanced":
            return {"image": torch.from_numpy(in_numpy(10)), "label": torch.ones(64)}
        if KIND == "large":
            return {"image": torch.full((24, 1_000_000 // 4), float(in_numpy(12)[0, 0]))}
        if KIND == "huge":
            return {"image": torch.full((40, 1_000_000 // 4), float(index))}
        if KIND == "tensors":
            found = torch.from_numpy(in_numpy(12))
            return {f"field {number}": found[number].clone() for number in range(16)}
        if KIND == "objects":
            in_python(10)
            return [{"id": n, "text": f"sample {index} {n}"} for n in range(8_000)]
        time.sleep(0.100 if KIND == "waits long" else 0.020)
        return {"image": torch.ones(64, 64), "label": torch.ones(64)}


COMPUTE_MS = {"balanced": 20, "huge": 30}.get(KIND, 7)

loader = DataLoader(Batches(), batch_size=None, num_workers=WORKERS)
model = torch.nn.Linear(256, 256)
begun = 0.0
for step, batch in enumerate(loader):
    if step == WARM_UP:
        begun = time.perf_counter()
    if isinstance(batch, dict):
        loss = sum(tensor.mean() for tensor in batch.values())
    in_numpy(COMPUTE_MS)
    model(torch.ones(64, 256)).mean().backward()
print(1e3 * (time.perf_counter() - begun) / (STEPS - WARM_UP))
