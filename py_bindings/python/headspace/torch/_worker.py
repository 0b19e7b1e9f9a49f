"""Times the calls that make a batch, in a worker or, for a loader without workers, in the trainer."""

from __future__ import annotations

import sys
import time
from _weakref import ref
from collections.abc import Callable
from typing import Any

from headspace import _settings
from headspace._loops.owner import Owner
from headspace._native import Stage, count_worker_objects, time_calls
from headspace._processes import worker
from headspace._processes.hand_off import time_sending
from headspace._processes.private_parts import call_ignoring_errors
from headspace.torch._order import BatchEndTimes, FetchCounter


class WorkerInit:
    """The `worker_init_fn` of a watched loader: it times the worker, and calls the user's function."""

    def __init__(
        self,
        users_function: Callable[[int], Any] | None,
        begun_ns: int,
        owner: Owner,
        end_times: BatchEndTimes | None,
    ) -> None:
        self.users_function = users_function
        #: On the system's monotonic clock, which all processes share.
        self.begun_ns = begun_ns
        self.owner = owner
        #: None where batches are not reordered, or there is no shared memory.
        self.end_times = end_times

    def __call__(self, worker_id: int) -> None:
        call_ignoring_errors(_watch_worker, self, worker_id)
        if self.users_function is not None:
            self.users_function(worker_id)


def _watch_worker(init: WorkerInit, worker_id: int) -> None:
    """In a worker: times the fetchers that are made from now on."""
    owner, end_times = init.owner, init.end_times
    worker.prefix = owner.prefix
    # It takes in and gives out no batch.
    start = owner.stage("worker start")
    start.record((time.monotonic_ns() - init.begun_ns) / 1e9, inputs=0, outputs=0)
    time_sending(owner.hand_off("send"), _is_batch)
    kind = sys.modules["torch.utils.data"]._DatasetKind
    create = kind.create_fetcher
    counter = None if end_times is None else end_times.fetch_counter(worker_id)
    counts_objects = _settings.memory() != _settings.OFF

    def create_fetcher(*args: Any, **kwargs: Any) -> Any:
        fetcher = create(*args, **kwargs)
        # There is a new fetcher for each epoch.
        note_end = None if end_times is None else end_times.recorder(worker_id)
        call_ignoring_errors(watch_fetcher, fetcher, owner, note_end, counter)
        if counts_objects:
            fetcher.fetch = _counting_objects(fetcher.fetch, f"{owner.prefix}worker {worker_id}")
        return fetcher

    kind.create_fetcher = staticmethod(create_fetcher)


def _is_batch(item: object) -> bool:
    """Whether it is a batch with its number, as torch's worker puts it into its queue.

    Also true for such a pair that the dataset puts into a queue of its own.
    """
    return type(item) is tuple and len(item) == 2 and type(item[0]) is int


def watch_fetcher(
    fetcher: Any,
    owner: Owner,
    note_end: Callable[[], None] | None = None,
    counter: FetchCounter | None = None,
) -> None:
    """Times what a fetcher does.

    Args:
        note_end: Called at the end of each batch.
        counter: Counts the workers that fetch at once.
    """
    collate = owner.stage("collate", concurrency=1)
    # Weakly, since a cycle would keep the dataset's iterator alive after the epoch.
    stage = owner.stage("fetch", concurrency=1)
    fetch = time_calls(stage, type(fetcher).fetch, fetcher)
    if counter is not None:
        fetch = _counting(fetch, stage, counter, fetcher)
    fetcher.collate_fn = time_calls(collate, fetcher.collate_fn)
    fetcher.fetch = fetch if note_end is None else _noting(fetch, note_end)


def _counting_objects(fetch: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Also counts the objects of this worker from time to time, before a batch."""

    tick_s = _settings.interval()

    def fetch_after_count(*args: Any) -> Any:
        count_worker_objects(name, tick_s)
        return fetch(*args)

    return fetch_after_count


def _noting(fetch: Callable[..., Any], note_end: Callable[[], None]) -> Callable[..., Any]:
    def noting_fetch(*args: Any) -> Any:
        try:
            return fetch(*args)
        finally:
            note_end()

    return noting_fetch


def _counting(
    fetch: Callable[..., Any], stage: Stage, counter: FetchCounter, fetcher: Any
) -> Callable[..., Any]:
    """Records how long a fetch takes, and how many workers fetch at once.

    The first fetch of a worker and a last batch with fewer samples are left out. They are slow, or fast, for another
    reason, and there are always many, or few, workers at that time.
    """
    weak_fetcher, record_level = ref(fetcher), stage._record_level
    largest = 0
    # From now on, the stage does not count the calls of this process alone.
    record_level(0, 0.0)

    def counting_fetch(*args: Any) -> Any:
        nonlocal largest
        level_at_begin = counter.begin()
        begin = time.perf_counter()
        try:
            batch = fetch(*args)
        finally:
            seconds = time.perf_counter() - begin
            level_at_end = counter.end()
        size = _batch_size(*args)
        # Only a fetcher of a stream has `ended`.
        is_whole = size >= largest and not getattr(weak_fetcher(), "ended", False)
        largest = max(largest, size)
        if is_whole and counter.is_warm:
            record_level((level_at_begin + level_at_end + 1) // 2, seconds)
        counter.is_warm = True
        return batch

    return counting_fetch


def _batch_size(indices: Any = None, *_: Any) -> int:
    """Number of samples in the requested batch."""
    try:
        return len(indices)
    except Exception:  # A single index.
        return 1
