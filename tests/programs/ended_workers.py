"""Workers of torch loaders that are ended in several ways: `ended_workers.py HOW START_METHOD`."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import headspace

how, method = sys.argv[1:]
if how == "by the end of a program that had its session first":
    headspace.start()

from torch.utils.data import DataLoader, Dataset  # noqa: E402

WORKERS = 2


class Slow(Dataset):
    def __init__(self, sleep_s):
        self.sleep_s = sleep_s

    def __len__(self):
        return 100

    def __getitem__(self, index):
        time.sleep(self.sleep_s if index >= WORKERS else 0.0)
        return index


class Terminating(DataLoader):
    def __del__(self):
        for worker in self._iterator._workers:
            worker.terminate()
        self._iterator._shutdown_workers()


def begun(kind=DataLoader, sleep_s=0.01, **options):
    """A loader, and its iterator after the first batch of each worker."""
    loader = headspace.wrap(
        kind(Slow(sleep_s), num_workers=WORKERS, multiprocessing_context=method, **options),
        name="loader",
    )
    iterator = iter(loader)
    for _ in range(WORKERS):
        next(iterator)
    return loader, iterator


@contextmanager
def unseen_by_torch():
    """Disables torch's handler of SIGCHLD. After a worker was killed, this handler raises an error in the main
    thread, for example while the thread kills the next worker."""
    torchs = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, torchs)


def signal_workers(iterator, number):
    with unseen_by_torch():
        for worker in iterator._workers:
            os.kill(worker.pid, number)
        for worker in iterator._workers:
            worker.join()


if __name__ == "__main__":
    if how == "left early":
        for _ in range(3):
            begun()
    elif how == "kept and left":
        for _ in range(3):
            begun(persistent_workers=True)
    elif how == "terminated":
        loader, iterator = begun(sleep_s=60)
        signal_workers(iterator, signal.SIGTERM)
    elif how == "terminated by its loader":
        loader, iterator = begun(Terminating, sleep_s=60, persistent_workers=True)
        del loader, iterator
    elif how == "too slow to end":
        loader, iterator = begun(sleep_s=60)
        del loader, iterator
    elif how == "killed":
        for _ in range(3):
            loader, iterator = begun()
            signal_workers(iterator, signal.SIGKILL)
    elif how == "terminated by another process":
        loader, iterator = begun(sleep_s=60)
        with unseen_by_torch():
            subprocess.run(["kill", str(iterator._workers[0].pid)], check=True)
            iterator._workers[0].join()
    else:
        loader, iterator = begun(sleep_s=60, persistent_workers="session" in how)
    # The sampler reads the workers once more before the end of the session.
    session = headspace._session.lifecycle.current
    if session is not None and "by the end" not in how:
        session.flush()
