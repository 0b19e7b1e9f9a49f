"""Measures the truth in a program that is not changed. No part of headspace is used.

The harness puts this folder on `PYTHONPATH` and sets environment variables:

- `TRUTH_OUT`: prefix of the files with the numbers, one file for each rank.
- `TRUTH_SOURCE`: the method whose batches are timed (`module:Class.method`), or `backward`.
- `TRUTH_KIND`: `live` times `STEPS` unchanged steps. `both` times steps with live batches and steps with
  cached batches alternately, `CYCLES` times. The cached batches are the last live ones, and the source is not
  called while they are repeated. Changes in the machine's speed affect both kinds alike. Then the process
  ends.
- `TRUTH_WORKERS`, `TRUTH_PREFETCH`: `num_workers` and `prefetch_factor` of every torch loader.

A step is the time from one batch to the next one of the same epoch.
"""

import atexit
import json
import os
import sys
from collections import deque
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder
from time import perf_counter

OUT = os.environ["TRUTH_OUT"]
SOURCE = os.environ["TRUTH_SOURCE"]
CACHES = os.environ.get("TRUTH_KIND", "live") == "both"

#: Steps left out at the beginning.
WARMUP = 30

#: Number of timed steps if all are live.
STEPS = 180

#: Batches of a cycle, in order: live ones without timing, because the loader was not called before, and live ones
#: with timing. Then cached ones without timing, while the loader's queues fill, and cached ones with timing.
SETTLE_LIVE, LIVE, SETTLE_CACHED, CACHED = 40, 40, 40, 40
CYCLE = SETTLE_LIVE + LIVE + SETTLE_CACHED + CACHED
CYCLES = 5

#: Number of cached batches. They are the last ones before the timed ones, so no timed step includes the copying.
KEPT = 10


class Loop:
    """All epochs that one line of the program iterates."""

    def __init__(self):
        #: Number of delivered batches.
        self.taken = 0
        self.cache = deque(maxlen=KEPT)
        #: Milliseconds of each timed step.
        self.live = []
        #: For each cycle, the timed steps of live batches and of cached batches.
        self.cycles = []

    def at(self, number):
        """The cycle of the batch with this number, and its position in the cycle."""
        return divmod(number - WARMUP, CYCLE)

    def replays(self):
        """Whether the next batch comes from the cache."""
        cycle, at = self.at(self.taken)
        return CACHES and cycle >= 0 and at >= SETTLE_LIVE + LIVE

    def keeps(self):
        """Whether the next batch is live and must be kept in the cache."""
        cycle, at = self.at(self.taken)
        return CACHES and cycle >= 0 and SETTLE_LIVE - KEPT <= at < SETTLE_LIVE

    def add(self, seconds):
        """Adds the step that ended when the last batch was delivered."""
        cycle, at = self.at(self.taken - 1)
        if cycle < 0:
            return
        if not CACHES:
            self.live.append(1e3 * seconds)
            if len(self.live) >= STEPS:
                finish()
            return
        while len(self.cycles) <= cycle:
            self.cycles.append(([], []))
        live, cached = self.cycles[cycle]
        if SETTLE_LIVE < at < SETTLE_LIVE + LIVE:
            live.append(1e3 * seconds)
        elif at > SETTLE_LIVE + LIVE + SETTLE_CACHED:
            cached.append(1e3 * seconds)
        if (cycle, at) == (CYCLES - 1, CYCLE - 1):
            finish()


loops = {}
owner = []


def loop_of(place):
    if not owner:
        owner.append(os.getpid())
        atexit.register(write)
    if place not in loops:
        loops[place] = Loop()
    return loops[place]


def write():
    if owner and os.getpid() == owner[0]:
        path = f"{OUT}.{os.environ.get('RANK', '0')}.json"
        with open(path + ".part", "w") as out:
            found = [{"live": loop.live, "cycles": loop.cycles} for loop in loops.values()]
            json.dump(found, out)
        os.replace(path + ".part", path)


def finish():
    write()
    sys.stdout.flush()
    os._exit(0)


def fresh(batch):
    """A copy of the batch in new containers and new memory, as a loader would create it."""
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
        if "data" in made.__dict__:  # A UserDict, such as a batch of Hugging Face.
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
    """Marks iterations within the block as parts of a loader that is already timed."""
    inside.append(True)
    try:
        yield
    finally:
        inside.pop()


class Batches:
    """Replaces the loader's iterator for one epoch."""

    def __init__(self, loop, source, length):
        self.loop = loop
        self.source = source
        self.length = length
        self.taken = 0
        self.has_replayed = False
        self.last = None

    def __iter__(self):
        return self

    def __next__(self):
        loop = self.loop
        # The epoch keeps its length, so the remaining batches of the source are not used.
        if self.has_replayed and self.length is not None and self.taken >= self.length:
            raise StopIteration
        replays = loop.replays()
        begin = perf_counter()
        if replays:
            self.has_replayed = True
            batch = fresh(loop.cache[loop.taken % KEPT])
            spent = perf_counter() - begin
        else:
            with within():
                batch, spent = next(self.source), 0.0
            if loop.keeps():
                loop.cache.append(fresh(batch))
        self.taken += 1
        loop.taken += 1
        now = perf_counter()
        if self.last is not None:
            loop.add(now - self.last - spent)
        self.last = now
        return batch

    def __getattr__(self, name):
        if name == "source":
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
        with within():
            source = iter(original(self, *args, **kwargs))
        return Batches(loop_of(place), source, length)

    setattr(kind, method, patched)


def take_hold_of_backward(module, _path):
    original = module.Tensor.backward
    loop = loop_of("backward")
    last = []

    def backward(self, *args, **kwargs):
        now = perf_counter()
        loop.taken += 1
        if last:
            loop.add(now - last[0])
        last[:] = [now]
        return original(self, *args, **kwargs)

    module.Tensor.backward = backward


def again(function):
    """Decorates the function that makes batches, so that its last results are repeated in turn."""

    def cached(*args, **kwargs):
        loop = loop_of("backward")
        if loop.replays():
            return loop.cache[loop.taken % KEPT]
        made = function(*args, **kwargs)
        loop.cache.append(made)
        return made

    return cached


def change_loaders(module, _path):
    original = module.DataLoader.__init__
    workers = os.environ.get("TRUTH_WORKERS")
    prefetch = os.environ.get("TRUTH_PREFETCH")

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None,  # noqa: PLR0913
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


#: Actions to run after the import of a module, by its name.
hooks = {}


def on_import(name, action, path):
    hooks.setdefault(name, []).append((action, path))


class Then(Loader):
    """Runs the actions for a module after its import."""

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
