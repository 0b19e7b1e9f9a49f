"""Times the calls that make a batch, in a worker or, for a loader without workers, in the trainer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from headspace._loops.owner import Owner
from headspace._native import time_calls
from headspace._processes import worker
from headspace._processes.hand_off import time_sending
from headspace._processes.private_parts import call_ignoring_errors
from headspace.torch._order import BatchEndTimes


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

    def create_fetcher(*args: Any, **kwargs: Any) -> Any:
        fetcher = create(*args, **kwargs)
        # There is a new fetcher for each epoch.
        note_end = None if end_times is None else end_times.recorder(worker_id)
        call_ignoring_errors(watch_fetcher, fetcher, owner, note_end)
        return fetcher

    kind.create_fetcher = staticmethod(create_fetcher)


def _is_batch(item: object) -> bool:
    """Whether it is a batch with its number, as torch's worker puts it into its queue.

    Also true for such a pair that the dataset puts into a queue of its own.
    """
    return type(item) is tuple and len(item) == 2 and type(item[0]) is int


def watch_fetcher(fetcher: Any, owner: Owner, note_end: Callable[[], None] | None = None) -> None:
    """Times what a fetcher does.

    Args:
        note_end: Called at the end of each batch.
    """
    collate = owner.stage("collate", concurrency=1)
    # Weakly, since a cycle would keep the dataset's iterator alive after the epoch.
    fetch = time_calls(owner.stage("fetch", concurrency=1), type(fetcher).fetch, fetcher)
    fetcher.collate_fn = time_calls(collate, fetcher.collate_fn)
    fetcher.fetch = fetch if note_end is None else _noting(fetch, note_end)


def _noting(fetch: Callable[..., Any], note_end: Callable[[], None]) -> Callable[..., Any]:
    def noting_fetch(*args: Any) -> Any:
        try:
            return fetch(*args)
        finally:
            note_end()

    return noting_fetch
