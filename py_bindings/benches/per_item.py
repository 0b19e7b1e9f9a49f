"""Measures what one batch costs: `for _ in wrapped: pass` over a plain list, compared with similar wrappers.

A burst fits into the recorder's ring buffer. This is like training, where the sampling thread empties the buffer
in time. A sustained run has no work between batches, so the buffer may overflow. Each round measures all subjects,
so that other load on the machine slows all of them.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rows import Row

BURST = 4_000
SUSTAINED = 200_000


class TimingWrapper:
    """A timer as users write it by hand. It stores the wait and the step of each batch for percentiles."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader
        self.waits: list[float] = []
        self.steps: list[float] = []

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        received = None
        while True:
            requested = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            now = time.perf_counter()
            self.waits.append(now - requested)
            if received is not None:
                self.steps.append(now - received)
            received = now
            yield batch

    def percentile(self, q: int) -> float:
        return statistics.quantiles(self.steps, n=100)[q - 1]


def _generator(items: list[Any]) -> Iterator[Any]:
    yield from items


def _by_hand(items: list[Any]) -> Iterator[Any]:
    for item in items:  # noqa: UP028 - the loop in Python is what is measured
        yield item


def _subjects(items: list[Any]) -> dict[str, Callable[[], Iterable[Any]]]:
    import headspace

    length = len(items)
    wrapped = headspace.wrap(items, mode="measure")
    subjects: dict[str, Callable[[], Iterable[Any]]] = {
        "bare list": lambda: items,
        "generator": lambda: _by_hand(items),
        "headspace.wrap": lambda: wrapped,
        "headspace CacheDataLoader": lambda: headspace.CacheDataLoader(items, 10, 10, length),
        "Python timing wrapper": lambda: TimingWrapper(items),
    }
    try:
        from spdl.dataloader import CacheDataLoader
    except ImportError:
        pass
    else:
        subjects["SPDL CacheDataLoader"] = lambda: CacheDataLoader(items, 10, 10, length)
    try:
        from tqdm import tqdm
    except ImportError:
        pass
    else:
        subjects["tqdm"] = lambda: tqdm(items, file=io.StringIO())
    return subjects


def _time(batches: Iterable[Any], count: int) -> float:
    """Nanoseconds per item of an empty loop over `batches`."""
    begin = time.perf_counter_ns()
    for _ in batches:
        pass
    return (time.perf_counter_ns() - begin) / count


def _rounds(count: int, rounds: int, rest_s: float) -> dict[str, float]:
    """Median nanoseconds per item of every subject."""
    subjects = _subjects([object()] * count)
    times: dict[str, list[float]] = {name: [] for name in subjects}
    order = list(subjects)
    for turn in range(rounds):
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            time.sleep(rest_s)
            times[name].append(_time(subjects[name](), count))
    return {name: statistics.median(values) for name, values in times.items()}


def run(quick: bool) -> list[Row]:
    import headspace

    session = headspace.start(interval=0.02)
    try:
        burst = _rounds(BURST, 40 if quick else 200, 0.004)
        sustained = _rounds(SUSTAINED, 3 if quick else 11, 0.05)
        dropped = headspace.report().to_dict().get("dropped", {}).get("steps", 0)
    finally:
        session.stop()

    rows = [Row("wrap", name, value, "ns/item") for name, value in burst.items()]
    compared = (
        ("headspace.wrap", "SPDL CacheDataLoader", 1.0),
        ("headspace.wrap", "Python timing wrapper", 0.25),
        ("headspace CacheDataLoader", "SPDL CacheDataLoader", 1.0),
    )
    for kind, values in (("", burst), (" (sustained)", sustained)):
        for ours, reference, target in compared:
            if reference in values:
                ratio = values[ours] / values[reference]
                what = ours + kind
                row = Row(
                    "wrap", what, values[ours], "ns/item", target, None, None, reference, ratio
                )
                rows.append(row)
    rows.append(Row("wrap", "steps dropped by the recorder", float(dropped), "steps"))
    return rows
