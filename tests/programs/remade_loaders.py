"""Loaders with persistent workers, each created several times: `remade_loaders.py [--wrap] KIND...`.

Prints for each kind the maximum number of live workers, and their number after the last loader was freed.
The garbage collector is off, so only reference counts free a loader.
"""

import contextlib
import gc
import multiprocessing
import os
import sys
import time
import warnings

from torch.utils.data import DataLoader, Dataset

WORKERS = 2


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index


class Repeated:
    """A sampler without an end."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __len__(self):
        return len(self.sampler)

    def __iter__(self):
        while True:
            yield from self.sampler


class MultiEpochs(DataLoader):
    """Keeps one iterator for all epochs, as timm's loader of that name does."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Repeated(self.batch_sampler))
        self.iterator = super().__iter__()

    def __iter__(self):
        for _ in range(len(self.batch_sampler)):
            yield next(self.iterator)


class Infinite(MultiEpochs):
    """Ends its workers itself, as ultralytics' loader of that name does."""

    def __del__(self):
        # A worker that is killed while it holds this event's lock leaves it locked for ever, and torch's shutdown waits
        # for it.
        with self.iterator._workers_done_event._cond:
            for worker in self.iterator._workers:
                kill(worker)
        self.iterator._shutdown_workers()


def kill(worker):
    """Terminates a worker and waits for its end. torch's handler of SIGCHLD raises once for a worker that was killed."""
    with contextlib.suppress(RuntimeError):
        worker.terminate()
        worker.join()
    worker.join()


class Late(DataLoader):
    """Makes its iterator at the first batch."""

    def __iter__(self):
        yield from super().__iter__()


def accelerate(**options):
    from accelerate.data_loader import DataLoaderShard

    return DataLoaderShard(Numbers(), num_workers=WORKERS, **options)


def stateful(**options):
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(Numbers(), num_workers=WORKERS, **options)


def torchs(kind, **options):
    return lambda: kind(Numbers(), num_workers=WORKERS, **options)


KINDS = {
    "plain": torchs(DataLoader),
    "persistent": torchs(DataLoader, persistent_workers=True),
    "late": torchs(Late, persistent_workers=True),
    "multi_epochs": torchs(MultiEpochs),
    "infinite": torchs(Infinite),
    "accelerate": lambda: accelerate(persistent_workers=True),
    "accelerate_stateful": lambda: accelerate(use_stateful_dataloader=True),
    "stateful": stateful,
    "stateful_persistent": lambda: stateful(persistent_workers=True),
}


def living(allowed):
    """The number of live workers. Workers that were asked to end have ten seconds for it."""
    deadline = time.monotonic() + 10
    while True:
        # If torch's handler of SIGCHLD raises right after `waitpid`, multiprocessing loses the worker's exit
        # code and lists it for ever. Only a process that exists is in /proc.
        listed = multiprocessing.active_children()
        workers = sum(os.path.exists(f"/proc/{worker.pid}") for worker in listed)
        if workers <= allowed or time.monotonic() > deadline:
            return workers
        time.sleep(0.01)


def watched(loader):
    if "--wrap" not in sys.argv:
        return loader
    import headspace

    return headspace.wrap(loader)


def iterate(loader, how):
    if how == "not begun":
        iter(loader)
        return
    for _ in loader:
        if how == "left":
            return


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    gc.collect()
    gc.disable()
    for kind in sys.argv[1:]:
        if kind == "--wrap":
            continue
        most = 0
        for how in ("full", "left", "not begun"):
            loader = watched(KINDS[kind]())
            iterate(loader, how)
            iterate(loader, how)
            most = max(most, living(WORKERS))
            loader = None
        print(kind, most <= WORKERS, living(0), flush=True)
