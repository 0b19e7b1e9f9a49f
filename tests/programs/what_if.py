"""Trains in mode `whatif`: `what_if.py HOW`. Prints what happened as JSON.

What each `HOW` does is in the function of that name.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import headspace

#: Inputs that `decode` has really processed, in this order.
decoded: list[int] = []


@headspace.stage("read")
def read(number: int) -> int:
    time.sleep(0.0005)
    return number


@headspace.stage("decode")
def decode(number: int) -> np.ndarray[Any, Any]:
    decoded.append(number)
    time.sleep(0.003)
    return np.full(3, number)


@headspace.stage("write", replayable=False)
def write(frame: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    written.append(1)
    return frame


written: list[int] = []
check = headspace.stage("check")


def load(number: int) -> np.ndarray[Any, Any]:
    frame = write(decode(read(number)))
    with check:
        return frame


def in_threads(count: int, threads: int = 2) -> Iterator[np.ndarray[Any, Any]]:
    with ThreadPoolExecutor(threads) as pool:
        ahead = deque(pool.submit(load, number) for number in range(threads))
        for number in range(threads, count + threads):
            batch = ahead.popleft().result()
            if number < count:
                ahead.append(pool.submit(load, number))
            yield batch


def wrap(loader: Any, **options: Any) -> Any:
    return headspace.wrap(loader, mode="whatif", name="train", **options)


class Sized:
    """A loader that prefetches nothing, on the training thread or in threads."""

    def __init__(self, count: int, threads: int = 0) -> None:
        self.count, self.threads, self.num_workers = count, threads, 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
        if self.threads:
            return in_threads(self.count, self.threads)
        return map(load, range(self.count))


def threads() -> dict[str, Any]:
    batches = sum(1 for _ in wrap(in_threads(1900)))
    return {"batches": batches, "decoded": len(decoded), "written": len(written)}


def keep_data() -> dict[str, Any]:
    loader = wrap(in_threads(1900), keep_data=True)
    numbers = [int(batch[0]) for batch in loader]
    return {"all": numbers == list(range(1900))}


def changed_in_place() -> dict[str, Any]:
    """The loop changes each batch in place. A result that is returned again must not show that."""
    is_whole = True
    for batch in wrap(in_threads(900), what_if_steps=800):
        is_whole &= bool((batch == batch[0]).all()) and int(batch[0]) < 900
        batch[1:] = 10_000
    return {"whole": is_whole, "decoded": len(decoded)}


def epochs() -> dict[str, Any]:
    """Between the epochs, an evaluation calls the same stages."""
    loader = wrap(in_epochs := Sized(150, 2))
    lengths, evaluated = [], []
    for _ in range(10):
        lengths.append(sum(1 for _ in loader))
        evaluated += [int(load(number)[0]) for number in range(1000, 1005)]
    return {
        "lengths": lengths,
        "real": evaluated == [*range(1000, 1005)] * 10,
        "length": len(in_epochs),
    }


def no_stages() -> dict[str, Any]:
    """A loader without stages, in short epochs."""
    loaded: list[int] = []

    def load_plain(number: int) -> tuple[np.ndarray[Any, Any], int]:
        loaded.append(number)
        time.sleep(0.003)
        return np.full(3, number), number

    lengths, is_clean = [], True
    loader = wrap(Loaded(load_plain, 150))
    for _ in range(8):
        lengths.append(0)
        for array, number in loader:
            lengths[-1] += 1
            is_clean &= bool((array == number).all())
            array[:] = -1
            time.sleep(0.001)
    return {"lengths": lengths, "clean": is_clean, "loaded": len(loaded)}


def ends_while_batches_are_repeated() -> dict[str, Any]:
    """A loader without a length ends in each kind of window. Then it has no more batches."""
    after_the_end = loaded = 0
    lengths = range(140, 1100, 60)
    for length in lengths:
        iterator = iter(wrap(number for number in range(length)))
        loaded += len(set(iterator))
        after_the_end += sum(1 for _ in range(5) if next(iterator, None) is not None)
    return {"after_the_end": after_the_end, "loaded": loaded, "length": sum(lengths)}


def ends_within_an_epoch() -> dict[str, Any]:
    loader = wrap(Sized(1200, 2), what_if_steps=800)
    iterator = iter(loader)
    batches = sum(1 for _ in iterator)
    return {
        "batches": batches,
        "loaded": len(written),
        "ended": next(iterator, None) is None,
    }


def delays_requests() -> dict[str, Any]:
    def load_plain(number: int) -> int:
        time.sleep(0.001)
        return number

    loader = wrap(Loaded(load_plain, 700), keep_data=True)
    return {"all": list(loader) == list(range(700))}


def own_batches() -> dict[str, Any]:
    batches = list(wrap(Loaded(lambda number: Thing(), 700)))
    return {"distinct": len(set(map(id, batches)))}


def evaluates_within() -> dict[str, Any]:
    """The body of the loop evaluates with another loop, and calls a stage of its own."""
    steps: list[int] = []

    @headspace.stage("train step")
    def train_step(step: int) -> int:
        steps.append(step)
        return step

    evaluated, batches = [], 0
    for batches, _ in enumerate(wrap(Sized(1900, 2)), 1):
        train_step(batches)
        if batches % 100 == 50:
            evaluation = headspace.wrap(Sized(5), mode="measure", name="evaluation")
            evaluated += [int(batch[0]) for batch in evaluation]
    return {"real": evaluated == [*range(5)] * 19, "steps": len(steps), "batches": batches}


def stops_iterating() -> dict[str, Any]:
    """The program keeps an iterator, and takes no more batches from it."""
    iterator = iter(wrap(Sized(4000, 2)))
    for _ in range(150):
        next(iterator)

    def is_real() -> bool:
        # Calls the stage on another thread, because calls in the loop's own body are never changed.
        with ThreadPoolExecutor(1) as pool:
            return int(pool.submit(load, 5000).result()[0]) == 5000

    was_real, end = is_real(), time.monotonic() + 30
    while not is_real():
        assert time.monotonic() < end
    return {"was_real": was_real}


def leaves() -> dict[str, Any]:
    """The program leaves the loop in each way. After that, stages do their work again."""
    loader = wrap(Sized(4000, 2))
    real = []
    for number in (230, 330, 260):
        try:
            for step, _ in enumerate(loader):
                if step == number and number == 330:
                    raise KeyError(step)
                if step == number:
                    break
        except KeyError:
            pass
        real.append(int(load(5000)[0]) == 5000)
    return {"real": real, "rest": sum(1 for _ in loader)}


def raises() -> dict[str, Any]:
    """A stage fails for every 50th input, and the loop continues."""

    @headspace.stage("fragile")
    def fragile(number: int) -> int:
        if number % 50 == 49:
            raise ValueError(number)
        time.sleep(0.001)
        return number

    class Loader:
        """Continues after an error."""

        def __init__(self) -> None:
            self.numbers = iter(range(1500))

        def __len__(self) -> int:
            return 1500 - 30  # Without the numbers that fail.

        def __iter__(self) -> Loader:
            return self

        def __next__(self) -> int:
            return fragile(next(self.numbers))

    iterator = iter(wrap(Loader()))
    batches = failures = 0
    while True:
        try:
            next(iterator)
            batches += 1
        except ValueError:
            failures += 1
        except StopIteration:
            return {"batches": batches, "failures": failures}


class Thing:
    """An object that is no data."""


def own_objects() -> dict[str, Any]:
    things: set[int] = set()

    def make_thing(number: int) -> Thing:
        time.sleep(0.001)
        thing = Thing()
        kept.append(thing)
        things.add(id(thing))
        return thing

    kept: list[Thing] = []
    trusted = headspace.stage("trusted", replayable=True)(make_thing)
    others = headspace.stage("others")(make_thing)
    loader = wrap(Loaded(lambda number: (trusted(number), others(number)), 1200))
    known = all(id(thing) in things for pair in loader for thing in pair)
    return {"known": known, "made": len(kept)}


class Loaded:
    """A loader without a prefetch that calls a function for each batch."""

    def __init__(self, load: Any, count: int) -> None:
        self.load, self.count, self.num_workers = load, count, 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return map(self.load, range(self.count))


def fails() -> dict[str, Any]:
    for step, _ in enumerate(wrap(Sized(4000, 2))):
        if step == 150:
            raise KeyError(step)
    return {}


def killed() -> dict[str, Any]:
    for step, _ in enumerate(wrap(in_threads(4000))):
        if step == 1150:
            os.kill(os.getpid(), signal.SIGKILL)
    return {}


def two_loops() -> dict[str, Any]:
    first, second = wrap(in_threads(400)), headspace.wrap(Sized(50), mode="whatif", name="other")
    batches = [0, 0]
    for step, _ in enumerate(first):
        batches[0] += 1
        if step == 200:
            batches[1] = sum(1 for _ in second)
    return {"batches": batches}


def torch_workers() -> dict[str, Any]:
    from torch_data import Samples, make_loader

    loader = wrap(make_loader(Samples(6400, 0.004), batch_size=4, num_workers=2))
    return {"batches": sum(1 for _ in loader)}


def torch_epochs() -> dict[str, Any]:
    from torch_data import Samples, make_loader

    loader = wrap(make_loader(Samples(1600, 0.002), batch_size=4, num_workers=2))
    return {"lengths": [sum(1 for _ in loader) for _ in range(4)]}


def spdl_pipeline() -> dict[str, Any]:
    from spdl.pipeline import PipelineBuilder

    import headspace.spdl

    def slow(number: int) -> list[int]:
        time.sleep(0.008)
        return [number]

    def quick(part: list[int]) -> list[int]:
        time.sleep(0.0002)
        return part

    builder = PipelineBuilder().add_source(range(1900))
    builder = builder.pipe(slow, concurrency=2, name="slow").pipe(quick, name="quick").add_sink(2)
    pipeline = builder.build(num_threads=3, **headspace.spdl.hooks())
    with pipeline.auto_stop():
        return {"batches": sum(1 for _ in wrap(pipeline))}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()), flush=True)
