"""torch's ``DataLoader``, seen from inside: what its workers do, and what waits for them.

``headspace.wrap`` asks this module by itself for whatever is a torch loader; there is nothing to
call. It imports no torch: where there is a loader, torch has been imported.

| stage | is |
|---|---|
| ``fetch`` | one batch made in a worker: the dataset's items, and ``collate`` within it |
| ``collate`` | the loader's ``collate_fn`` |
| ``pin_memory`` | one batch copied into page-locked memory |
| ``worker start`` | from the iterator being made to a worker that can begin |

| queue | holds batches that |
|---|---|
| ``prefetch`` | are made and wait for the training loop |
| ``reorder`` | of these, wait for an earlier one that another worker still makes. Their mean number \
over the batches a second is how long order delays a batch (Little's law) |

Where a loop has another name than its loader's type, the names begin with it: ``val fetch``.

The user's dataset, its ``collate_fn`` and the types of loader and iterator stay as they are. What is
added is in the worker's own process (how its fetcher is made), in single objects (the fetcher, the
iterator's queues) and, for as long as an iterator is made, in two attributes of the loader.
"""

from __future__ import annotations

import sys
import time
from _weakref import ref

from headspace import _session
from headspace._native import stage, watch_queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headspace import _native


def iterate(loop: _native.Loop, whole: Any, loader: Any, name: str) -> Any:
    """``loop.iterate(whole)``, with workers that tell what they do.

    Args:
        whole: What is iterated: the loader, or what iterates it.
        name: The loop's.
    """
    prefix = "" if name == type(whole).__name__ else f"{name} "
    session = _session._current
    attributes = vars(loader)
    before = attributes.get("_get_iterator")
    if (session is not None and not session._native.is_here) or not (
        before is None or type(before) is _Maker
    ):
        return loop.iterate(whole, _session._begin)
    maker = attributes["_get_iterator"] = _Maker(loader, prefix)
    iterator = None
    try:
        iterator = loop.iterate(whole, _session._begin)
    finally:
        # Loaders that are generators make theirs at the first batch.
        maker.is_late = hasattr(iterator, "send") and not maker.made
        if not maker.is_late:
            maker.remove()
    if not (maker.made or maker.is_late):  # It kept its iterator, and its workers.
        _quietly(_watch_queues, attributes["_iterator"], prefix)
    return iterator


class _Maker:
    """Stands in for a loader's ``_get_iterator`` while an iterator is made."""

    def __init__(self, loader: Any, prefix: str) -> None:
        self.loader = loader
        self.prefix = prefix
        self.made = False
        self.is_late = False

    def __call__(self) -> Any:
        loader = self.loader
        self.made = True
        if self.is_late:
            self.remove()
        attributes = vars(loader)
        users = attributes.get("worker_init_fn")
        if type(users) is WorkerInit:  # Another thread makes one, too.
            users = users.users
        chained = WorkerInit(users, time.monotonic_ns(), self.prefix)
        attributes["worker_init_fn"] = chained
        try:
            iterator = type(loader)._get_iterator(loader)
        finally:
            if attributes.get("worker_init_fn") is chained:
                attributes["worker_init_fn"] = users
        _quietly(_watch_iterator, iterator, chained)
        return iterator

    def remove(self) -> None:
        if vars(self.loader).get("_get_iterator") is self:
            del vars(self.loader)["_get_iterator"]


class WorkerInit:
    """A worker's first call: watches what the worker does from then on, and calls the user's."""

    def __init__(self, users: Callable[[int], Any] | None, begun_ns: int, prefix: str) -> None:
        self.users = users
        #: On the system's monotonic clock, which all processes share.
        self.begun_ns = begun_ns
        self.prefix = prefix

    def __call__(self, worker_id: int) -> None:
        _quietly(_watch_worker, self.begun_ns, self.prefix)
        if self.users is not None:
            self.users(worker_id)


def _quietly(function: Callable[..., None], *args: Any) -> None:
    # What is private to torch may be another in its next version. Then it is not told.
    try:
        function(*args)
    except Exception:
        pass


def _watch_worker(begun_ns: int, prefix: str) -> None:
    """In a worker: whatever makes batches from now on is watched."""
    # It makes no batch, and so is no part of their way.
    start = stage(f"{prefix}worker start")
    start.record((time.monotonic_ns() - begun_ns) / 1e9, inputs=0, outputs=0)
    kind = sys.modules["torch.utils.data"]._DatasetKind
    create = kind.create_fetcher

    def create_fetcher(*args: Any, **kwargs: Any) -> Any:
        fetcher = create(*args, **kwargs)
        _quietly(_watch_fetcher, fetcher, prefix)
        return fetcher

    kind.create_fetcher = staticmethod(create_fetcher)


def _watch_fetcher(fetcher: Any, prefix: str) -> None:
    fetch = type(fetcher).fetch
    collate_fn = fetcher.collate_fn
    me = ref(fetcher)  # A cycle would keep the dataset's iterator beyond the epoch.
    time_fetch = stage(f"{prefix}fetch", concurrency=1)._call
    time_collate = stage(f"{prefix}collate", concurrency=1)._call

    def timed_collate(*args: Any) -> Any:
        return time_collate(collate_fn, args, {})

    def timed_fetch(*args: Any) -> Any:
        return time_fetch(fetch, (me(), *args), {})

    fetcher.collate_fn = timed_collate
    fetcher.fetch = timed_fetch


def _watch_iterator(iterator: Any, chained: WorkerInit) -> None:
    if getattr(iterator, "_worker_init_fn", None) is chained:
        iterator._worker_init_fn = chained.users
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    if fetcher is not None:  # Without workers.
        _watch_fetcher(fetcher, chained.prefix)
        return
    _watch_queues(iterator, chained.prefix)
    if getattr(iterator, "_pin_memory_thread", None) is not None:
        _watch_pinning(iterator._worker_result_queue, iterator._data_queue, chained.prefix)


def _watch_pinning(source: Any, sink: Any, prefix: str) -> None:
    """Times what the thread between two queues does with each batch."""
    get, put = type(source).get, type(sink).put
    source_itself, sink_itself = ref(source), ref(sink)
    pinning = stage(f"{prefix}pin_memory", concurrency=1)
    begun: list[int] = []

    def timed_get(*args: Any, **kwargs: Any) -> Any:
        begun.clear()
        item = get(source_itself(), *args, **kwargs)
        begun.append(time.monotonic_ns())
        return item

    def timed_put(*args: Any, **kwargs: Any) -> Any:
        while begun:
            pinning.record((time.monotonic_ns() - begun.pop()) / 1e9)
        return put(sink_itself(), *args, **kwargs)

    sink.put = timed_put
    source.get = timed_get


def _watch_queues(iterator: Any, prefix: str) -> None:
    capacity = iterator._num_workers * iterator._prefetch_factor
    me = ref(iterator)

    def waiting_for_order() -> int | None:
        """Batches that came too early; None once the epoch is over."""
        iterator = me()
        # What is asked of the workers is in it, from the first batch to the last.
        if iterator is None or iterator._shutdown or not iterator._task_info:
            return None
        return sum(len(task) == 2 for task in list(iterator._task_info.values()))

    def prefetched() -> tuple[int, int] | None:
        iterator, early = me(), waiting_for_order()
        if iterator is None or early is None:
            return None
        # What came too early is ready only once the batch that comes next is there as well.
        following = iterator._task_info.get(iterator._rcvd_idx, ())
        held = early if len(following) == 2 else 0
        return min(iterator._data_queue.qsize() + held, capacity), capacity

    def reordered() -> tuple[int, int] | None:
        early = waiting_for_order()
        return None if early is None else (early, 0)

    watch_queue(f"{prefix}prefetch", prefetched, True)
    watch_queue(f"{prefix}reorder", reordered, False)
