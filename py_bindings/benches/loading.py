"""Measures how much longer a batch of a torch loader takes while its stages are measured. Batches have one sample.

Without workers, a bare and a wrapped loader are measured alternately. With workers, a batch takes about 100 times
as long as the cost to be measured. So the two parts of the cost are measured alone: the additional work of a
worker for a batch, and the work of the trainer to measure the reorder delay.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

from rows import Row

BATCHES = 2_000

#: Upper limit of the additional time per batch, in nanoseconds.
TARGET = 1_000


def _drain(batches: Iterable[Any]) -> float:
    """Nanoseconds per batch."""
    begin = time.perf_counter_ns()
    for _ in batches:
        pass
    return (time.perf_counter_ns() - begin) / BATCHES


def _calls(function: Callable[..., object], *args: object) -> float:
    """Nanoseconds per call."""
    calls = range(BATCHES)
    begin = time.perf_counter_ns()
    for _ in calls:
        function(*args)
    return (time.perf_counter_ns() - begin) / BATCHES


def _difference(rounds: int, bare: Callable[[], float], watched: Callable[[], float]) -> float:
    """The median difference over pairs. The order within a pair alternates."""
    differences = []
    for turn in range(rounds):
        if turn % 2:
            without = bare()
            differences.append(watched() - without)
        else:
            with_stages = watched()
            differences.append(with_stages - bare())
        time.sleep(0.004)
    return statistics.median(differences)


def _same(items: Any) -> Any:
    return items


class _Handover:
    """The part of torch's iterator that delivers a batch to the training loop."""

    def __init__(self) -> None:
        self._rcvd_idx = 0

    def _process_data(self, data: Any, worker: int) -> Any:
        self._rcvd_idx += 1
        return data


def run(quick: bool) -> list[Row]:
    try:
        from torch.utils.data import DataLoader
    except ImportError:
        return []
    import headspace
    from headspace import _native
    from headspace.torch import Owner
    from headspace.torch._order import BatchEndTimes, watch_order
    from headspace.torch._worker import watch_fetcher

    rounds = 20 if quick else 200
    loader = DataLoader(range(BATCHES), batch_size=1, collate_fn=_same)  # type: ignore[arg-type]
    with headspace.start():
        watched = headspace.wrap(loader, mode="measure")
        whole = _difference(rounds, lambda: _drain(loader), lambda: _drain(watched))

        owner = Owner(_native.Loop("bench", {"mode": "measure"}))
        end_times = BatchEndTimes(2, 4)
        fetchers = [iter(loader)._dataset_fetcher for _ in range(2)]  # type: ignore[attr-defined]
        watch_fetcher(fetchers[1], owner, end_times.recorder(0))
        in_worker = _difference(
            rounds, *(lambda fetch=f.fetch: _calls(fetch, [0]) for f in fetchers)
        )

        handovers = [_Handover(), _Handover()]
        watch_order(handovers[1], end_times, owner.stage)
        in_trainer = _difference(
            rounds,
            *(lambda process=h._process_data: _calls(process, None, 0) for h in handovers),
        )
    return [
        Row("torch", "a batch of 1, no workers: wrap, `fetch` and `collate`", whole, "ns", TARGET),
        Row("torch", "a batch of 1, in a worker: `fetch` and `collate`", in_worker, "ns", TARGET),
        Row("torch", "a batch of 1, workers, in the trainer: order", in_trainer, "ns", TARGET),
    ]
