"""A loader of torch whose worker processes wait for one another's lock: `shared_lock.py SPEC`.

SPEC is JSON: `how` ("file", "record" or "semaphore"), `hold_ms` and `other_ms` (mean times of a batch with and
without the lock), `workers`, `steps`, `compute_ms`, and `separate` (each worker has a lock of its own). The program
prints the mean step of the second half in milliseconds.
"""

import fcntl
import json
import multiprocessing
import random
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Batches(Dataset):
    """Each item is a batch."""

    def __init__(self, spec, folder):
        self.spec = spec
        self.folder = Path(folder)
        locks = spec["workers"] if spec["separate"] else 1
        self.semaphores = [multiprocessing.Lock() for _ in range(locks)]

    def __len__(self):
        return self.spec["steps"]

    @contextmanager
    def lock(self):
        number = get_worker_info().id if self.spec["separate"] else 0
        if self.spec["how"] == "semaphore":
            with self.semaphores[number]:
                yield
            return
        wait = fcntl.flock if self.spec["how"] == "file" else fcntl.lockf
        with (self.folder / f"{number}.lock").open("w") as file:
            wait(file, fcntl.LOCK_EX)
            yield

    def __getitem__(self, index):
        times = random.Random(index)
        time.sleep(times.uniform(0.5, 1.5) * self.spec["other_ms"] / 1000)
        with self.lock():
            time.sleep(times.uniform(0.5, 1.5) * self.spec["hold_ms"] / 1000)
        return torch.zeros(8)


def main():
    spec = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(Batches(spec, folder), batch_size=None, num_workers=spec["workers"])
        ends = []
        for _batch in loader:
            time.sleep(spec["compute_ms"] / 1000)
            ends.append(time.perf_counter())
    half = len(ends) // 2
    print(1000 * (ends[-1] - ends[half]) / (len(ends) - 1 - half))


if __name__ == "__main__":
    main()
