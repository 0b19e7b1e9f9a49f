"""Measures the truth in a program that knows nothing of it. No part of headspace is used.

The harness puts this folder on `PYTHONPATH` and says by environment variables what to do:

- `TRUTH_OUT`: prefix of the files that the numbers go to, one a rank.
- `TRUTH_SOURCE`: whose batches are timed, `module:Class.method`, or `backward`.
- `TRUTH_KIND`: `live` times the steps as they are. `cached` hands out `LIVE` live batches, then the
  last `CACHED` of them again and again; the source is kept and left alone meanwhile.
- `TRUTH_STEPS`: the process ends after so many timed steps.
- `TRUTH_WORKERS`, `TRUTH_PREFETCH`: `num_workers` and `prefetch_factor` of every torch loader.

A step is the time from one batch to the next one of the same epoch.
"""

import atexit
import json
import os
import sys
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder
from time import perf_counter

OUT = os.environ["TRUTH_OUT"]
SOURCE = os.environ["TRUTH_SOURCE"]
CACHES = os.environ.get("TRUTH_KIND", "live") == "cached"
STEPS = int(os.environ.get("TRUTH_STEPS", "0"))

#: Live batches before the cached ones, and how many of them are cached.
LIVE, CACHED = 12, 10

#: Steps left out at the beginning, and after the source has been left alone.
WARMUP = 30


class Loop:
    """All epochs of one loader object."""

    def __init__(self, place):
        self.place = place
        self.live = 0
        self.cache = []
        #: Milliseconds of each step that counts.
        self.steps = []
        #: Steps seen since the last change of kind.
        self.settled = 0

    def add(self, seconds):
        self.settled += 1
        if self.settled <= WARMUP or (CACHES and self.live < LIVE):
            return
        self.steps.append(1e3 * seconds)
        if STEPS and len(self.steps) >= STEPS:
            finish()


loops = []
owner = []


def loop_of(loader, place):
    loop = getattr(loader, "_truth_loop", None)
    if loop is None:
        loop = Loop(place)
        loops.append(loop)
        if not owner:
            owner.append(os.getpid())
            atexit.register(write)
        try:
            object.__setattr__(loader, "_truth_loop", loop)
        except AttributeError:
            pass
    return loop


def write():
    if owner and os.getpid() == owner[0]:
        path = f"{OUT}.{os.environ.get('RANK', '0')}.json"
        with open(path + ".part", "w") as out:
            json.dump([{"place": loop.place, "steps": loop.steps} for loop in loops], out)
        os.replace(path + ".part", path)


def finish():
    write()
    sys.stdout.flush()
    os._exit(0)


def fresh(batch):
    """The same batch in new containers and new memory, as a loader makes it."""
    kind = type(batch)
    if kind is dict:
        return {key: fresh(value) for key, value in batch.items()}
    if kind in (list, tuple):
        return kind(fresh(value) for value in batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return kind(*map(fresh, batch))
    if isinstance(batch, dict):
        made = kind.__new__(kind)
        made.__dict__.update(getattr(batch, "__dict__", {}))
        for key, value in batch.items():
            dict.__setitem__(made, key, fresh(value))
        if "data" in made.__dict__:  # A UserDict, as Hugging Face's batches are.
            made.data = fresh(batch.data)
        return made
    clone = getattr(batch, "clone", None)
    if clone is not None:
        return clone()
    if kind.__module__ == "numpy":
        return batch.copy()
    return batch


inside = []


@contextmanager
def within():
    """What is iterated meanwhile is part of a loader that is timed already."""
    inside.append(True)
    try:
        yield
    finally:
        inside.pop()


class Batches:
    """In the place of the loader's iterator: one epoch."""

    def __init__(self, loop, make, length):
        self.loop = loop
        self.length = length
        self.taken = 0
        self.last = None
        self.source = None
        self.make = make
        if not self.replays():
            with within():
                self.source = make()

    def replays(self):
        return CACHES and self.loop.live >= LIVE

    def __iter__(self):
        return self

    def __next__(self):
        loop = self.loop
        if self.replays():
            if self.length is not None and self.taken >= self.length:
                raise StopIteration
            begin = perf_counter()
            batch = fresh(loop.cache[self.taken % CACHED])
            spent = perf_counter() - begin
        else:
            with within():
                batch, spent = next(self.source), 0.0
            loop.live += 1
            if CACHES and loop.live > LIVE - CACHED:
                loop.cache.append(fresh(batch))
            if CACHES and loop.live == LIVE:
                loop.settled = 0
        self.taken += 1
        now = perf_counter()
        if self.last is not None:
            loop.add(now - self.last - spent)
        self.last = now
        return batch

    def __getattr__(self, name):
        if name in ("source", "make"):
            raise AttributeError(name)
        return getattr(self.source, name)


def trains():
    torch = sys.modules.get("torch")
    enabled = getattr(torch, "is_grad_enabled", None)
    return enabled is None or enabled()


def take_hold_of_method(module, path):
    *parents, method = path.split(".")
    kind = module
    for parent in parents:
        kind = getattr(kind, parent)
    original = vars(kind)[method]

    def patched(self, *args, **kwargs):
        if inside or not trains() or (owner and os.getpid() != owner[0]):
            return original(self, *args, **kwargs)
        frame = sys._getframe(1)
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        try:
            length = len(self)
        except Exception:
            length = None
        return Batches(loop_of(self, place), lambda: iter(original(self, *args, **kwargs)), length)

    setattr(kind, method, patched)


def take_hold_of_backward(module, _path):
    original = module.Tensor.backward
    loop = loop_of(type("Program", (), {})(), BACKWARD_PLACE)
    loop.live = LIVE
    last = []

    def backward(self, *args, **kwargs):
        now = perf_counter()
        if last:
            loop.add(now - last[0])
        last[:] = [now]
        return original(self, *args, **kwargs)

    module.Tensor.backward = backward


BACKWARD_PLACE = "backward"


def change_loaders(module, _path):
    original = module.DataLoader.__init__
    workers = os.environ.get("TRUTH_WORKERS")
    prefetch = os.environ.get("TRUTH_PREFETCH")

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None,
                 num_workers=0, *args, **kwargs):  # fmt: skip
        if workers is not None:
            num_workers = int(workers)
        if prefetch is not None and num_workers:
            kwargs["prefetch_factor"] = int(prefetch)
        if not num_workers:
            kwargs.pop("prefetch_factor", None)
            kwargs.pop("persistent_workers", None)
            kwargs.pop("multiprocessing_context", None)
        original(self, dataset, batch_size, shuffle, sampler, batch_sampler,
                 num_workers, *args, **kwargs)  # fmt: skip

    module.DataLoader.__init__ = __init__


#: By module: what is done once it has been imported.
hooks = {}


def on_import(name, action, path):
    hooks.setdefault(name, []).append((action, path))


class Then(Loader):
    """Runs what waits for a module, once it is imported."""

    def __init__(self, loader, name):
        self.loader = loader
        self.name = name

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        for action, path in hooks.pop(self.name, ()):
            action(module, path)


class Finder(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name not in hooks:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = Then(spec.loader, name)
        return spec


if SOURCE == "backward":
    on_import("torch", take_hold_of_backward, "")
else:
    module, _, path = SOURCE.partition(":")
    on_import(module, take_hold_of_method, path)
if "TRUTH_WORKERS" in os.environ or "TRUTH_PREFETCH" in os.environ:
    on_import("torch.utils.data.dataloader", change_loaders, "")
sys.meta_path.insert(0, Finder())
