"""Loads batches with calls that wait for one another's lock: `shared_lock.py SPEC`.

SPEC is JSON: `how`, `hold_ms` and `other_ms` (mean times of a batch with and without the lock), `workers`, `steps`,
`compute_ms`, and `separate` (each worker has a lock of its own). The program prints the mean step of the second half in
milliseconds.

`how` is the kind of lock. torch's worker processes share a lock of a file ("file", "record"), a semaphore ("semaphore"),
a lock of the library `filelock` ("filelock"), or a database ("database", SQLite). With "threads", the workers are the
threads of an SPDL pipeline.
"""

import fcntl
import json
import multiprocessing
import random
import sqlite3
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from filelock import FileLock
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Batches(Dataset):
    """Each item is a batch."""

    def __init__(self, spec, folder):
        self.spec = spec
        self.folder = Path(folder)
        locks = spec["workers"] if spec["separate"] else 1
        self.database = None
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
        path = self.folder / f"{number}.lock"
        if self.spec["how"] == "filelock":
            with FileLock(path, poll_interval=0.001):
                yield
            return
        if self.spec["how"] == "database":
            if self.database is None:
                self.database = sqlite3.connect(path, timeout=60, isolation_level=None)
            self.database.execute("BEGIN IMMEDIATE")
            yield
            self.database.execute("COMMIT")
            return
        wait = fcntl.flock if self.spec["how"] == "file" else fcntl.lockf
        with path.open("w") as file:
            wait(file, fcntl.LOCK_EX)
            yield

    def __getitem__(self, index):
        times = random.Random(index)
        time.sleep(times.uniform(0.5, 1.5) * self.spec["other_ms"] / 1000)
        with self.lock():
            time.sleep(times.uniform(0.5, 1.5) * self.spec["hold_ms"] / 1000)
        return torch.zeros(8)


def pipeline(spec):
    """Batches from threads."""
    from spdl.pipeline import PipelineBuilder

    shared, own = threading.Lock(), threading.local()

    def read(index):
        times = random.Random(index)
        time.sleep(times.uniform(0.5, 1.5) * spec["other_ms"] / 1000)
        if not hasattr(own, "lock"):
            own.lock = threading.Lock() if spec["separate"] else shared
        with own.lock:
            time.sleep(times.uniform(0.5, 1.5) * spec["hold_ms"] / 1000)
        return torch.zeros(8)

    workers = spec["workers"]
    builder = PipelineBuilder().add_source(range(spec["steps"]))
    pipeline = builder.pipe(read, concurrency=workers).add_sink(4).build(num_threads=workers)
    with pipeline.auto_stop():
        yield from pipeline


def batches(spec):
    if spec["how"] == "threads":
        yield from pipeline(spec)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield from DataLoader(Batches(spec, folder), batch_size=None, num_workers=spec["workers"])


def main():
    spec = json.loads(sys.argv[1])
    ends = []
    for _batch in batches(spec):
        time.sleep(spec["compute_ms"] / 1000)
        ends.append(time.perf_counter())
    half = len(ends) // 2
    print(1000 * (ends[-1] - ends[half]) / (len(ends) - 1 - half))


if __name__ == "__main__":
    main()
