"""Passes batches between processes: `hand_off.py SPEC`.

SPEC is JSON: `mib` (MiB in a batch of `float32`), `kind` ("tensor" or "array"), `dtype`, `load_ms`, `compute_ms`, `steps`,
`workers`, `together` (batches in a message), and `threads` (whether threads load instead of processes). The program
prints the mean step of the second half in milliseconds.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Each item is a message of one batch or more."""

    def __init__(self, spec):
        self.spec = spec
        self.values = np.ones(max(1, int(spec["mib"] * (1 << 20)) // 4), spec["dtype"])

    def __len__(self):
        return self.spec["steps"] // self.spec["together"]

    def batch(self):
        time.sleep(self.spec["load_ms"] / 1000)
        values = self.values.copy()
        return torch.from_numpy(values) if self.spec["kind"] == "tensor" else values

    def __getitem__(self, index):
        batches = [self.batch() for _ in range(self.spec["together"])]
        return batches if self.spec["together"] > 1 else batches[0]


def messages(spec):
    batches = Batches(spec)
    if not spec["threads"]:
        yield from DataLoader(
            batches, batch_size=None, num_workers=spec["workers"], collate_fn=lambda batch: batch
        )
        return
    with ThreadPoolExecutor(spec["workers"]) as pool:
        ahead = [pool.submit(batches.__getitem__, 0) for _ in range(2 * spec["workers"])]
        for _ in range(len(batches)):
            ahead.append(pool.submit(batches.__getitem__, 0))
            yield ahead.pop(0).result()


def main():
    spec = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    ends = []
    for message in messages(spec):
        for batch in message if spec["together"] > 1 else [message]:
            # Reads each cache line, as a model reads its batch.
            batch[:: 64 // batch.itemsize].sum()
            time.sleep(spec["compute_ms"] / 1000)
            ends.append(time.perf_counter())
    half = ends[len(ends) // 2 :]
    print(1e3 * (half[-1] - half[0]) / (len(half) - 1))


if __name__ == "__main__":
    main()
