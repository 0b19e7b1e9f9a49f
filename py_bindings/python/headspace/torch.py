"""torch's ``DataLoader``, seen from inside: what its workers do, and what waits for them.

``headspace.wrap`` asks this module by itself for whatever is a torch loader; there is nothing to
call. It imports no torch: where there is a loader, torch has been imported.

| stage | is |
|---|---|
| ``fetch`` | one batch made in a worker: the dataset's items, and ``collate`` within it |
| ``collate`` | the loader's ``collate_fn`` |
| ``pin_memory`` | one batch copied into page-locked memory |
| ``worker start`` | from the iterator being made to a worker that can begin |
| ``reorder delay`` | from the end of a batch to the end of the last one before it: what order alone \
costs a batch. Only batches that are made before their turn have one |

| queue | holds batches that |
|---|---|
| ``prefetch`` | are made and wait for the training loop |

Where a loop has another name than its loader's type, the names begin with it: ``val fetch``. The
records say of each which loop it is of.

The user's dataset, its ``collate_fn`` and the types of loader and iterator stay as they are. What is
added is in the worker's own process (how its fetcher is made), in single objects (the fetcher, the
iterator's queues and its hand-over) and, for as long as an iterator is made, in two attributes of the
loader.
"""

from __future__ import annotations

import sys
import time
from _weakref import ref

from headspace import _batch, _order, _session, _worker
from headspace._native import LoopIterator, stage_of_loop, time_calls, watch_queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headspace import _native


def iterate(loop: _native.Loop, whole: Any, loader: Any, role: str | None = None) -> Any:
    """``loop.iterate(whole)``, with workers that tell what they do.

    Args:
        whole: What is iterated: the loader, or what iterates it.
        role: What the loop is for, where it does not know that itself.
    """
    session = _session._current
    attributes = vars(loader)
    before = attributes.get("_get_iterator")
    if (session is not None and not session._native.is_here) or not (
        before is None or type(before) is _Maker
    ):
        return loop.iterate(whole, _session._begin, role)
    maker = _Maker(loader, Owner(loop), getattr(loop, "describe_batch", None))
    maker.begin()
    try:
        iterator = loop.iterate(whole, _session._begin, role)
    finally:
        maker.remove()
    if not maker.has_made:
        # A loader that is a generator makes torch's iterator at the first batch.
        if isinstance(iterator, LoopIterator):
            iterator._headspace_surround_first(maker)
        else:
            maker.end()
    return iterator


#: The loop that first had a prefix.
_owners: dict[str, str] = {}


class Owner:
    """The loop that a loader's stages and queues are of, as its workers know it."""

    __slots__ = ("loop_name", "prefix")

    def __init__(self, loop: _native.Loop) -> None:
        self.loop_name = loop.name
        kind = loop.type_name.rpartition(".")[2].lstrip("_")
        short = self.loop_name
        if short.startswith(f"{kind} ("):
            # Whatever its loader is called, the stages of an evaluation are called so.
            short = short.removeprefix(f"{kind} (").replace(")", "", 1)
        prefix = "" if short == kind else f"{short} "
        if _owners.setdefault(prefix, self.loop_name) != self.loop_name:
            prefix = f"{self.loop_name} "
        #: What the names of its stages, queues and workers begin with, so that no two loops share one.
        self.prefix = prefix

    def stage(self, name: str, concurrency: int | None = None) -> _native.Stage:
        return stage_of_loop(f"{self.prefix}{name}", self.loop_name, concurrency=concurrency)

    def watch_queue(self, name: str, look: Callable[[], tuple[int, int] | None]) -> None:
        """Watches the queue that batches come out of."""
        watch_queue(f"{self.prefix}{name}", look, True, self.loop_name)


class _Maker:
    """Stands in for a loader's ``_get_iterator`` while an iterator is made, and no longer.

    The loader is held weakly: whoever keeps the iterator keeps this object, and often is the loader.
    """

    def __init__(
        self, loader: Any, owner: Owner, describe_batch: Callable[..., None] | None
    ) -> None:
        self.loader = ref(loader)
        self.owner = owner
        #: What is told of a batch that is made here.
        self.describe_batch = describe_batch
        self.has_made = False

    def begin(self) -> None:
        loader = self.loader()
        if loader is not None:
            vars(loader).setdefault("_get_iterator", self)

    def remove(self) -> None:
        loader = self.loader()
        if loader is not None and vars(loader).get("_get_iterator") is self:
            del vars(loader)["_get_iterator"]

    def end(self) -> None:
        self.remove()
        kept = getattr(self.loader(), "_iterator", None)
        if not self.has_made and kept is not None:  # The loader kept its iterator, and its workers.
            _ignoring_errors(_watch_queues, kept, self.owner)

    def __call__(self) -> Any:
        loader: Any = self.loader()
        self.has_made = True
        attributes = vars(loader)
        users = attributes.get("worker_init_fn")
        if type(users) is WorkerInit:  # Another thread makes one, too.
            users = users.users
        ends = _ends(loader)
        chained = WorkerInit(users, time.monotonic_ns(), self.owner, ends)
        attributes["worker_init_fn"] = chained
        try:
            iterator = type(loader)._get_iterator(loader)
        finally:
            if attributes.get("worker_init_fn") is chained:
                attributes["worker_init_fn"] = users
            if ends is not None:
                ends.close()
        _ignoring_errors(_watch_iterator, iterator, chained, self.describe_batch)
        return iterator


class WorkerInit:
    """A worker's first call: watches what the worker does from then on, and calls the user's."""

    def __init__(
        self,
        users: Callable[[int], Any] | None,
        begun_ns: int,
        owner: Owner,
        ends: _order.Ends | None,
    ) -> None:
        self.users = users
        #: On the system's monotonic clock, which all processes share.
        self.begun_ns = begun_ns
        self.owner = owner
        #: None where order costs nothing, or it cannot be told.
        self.ends = ends

    def __call__(self, worker_id: int) -> None:
        _ignoring_errors(_watch_worker, self, worker_id)
        if self.users is not None:
            self.users(worker_id)


def _ignoring_errors(function: Callable[..., None], *args: Any) -> None:
    # What is private to torch may be another in its next version. Then it is not told.
    try:
        function(*args)
    except Exception:
        pass


def _ends(loader: Any) -> _order.Ends | None:
    if loader.num_workers < 2 or not getattr(loader, "in_order", True):
        return None
    try:
        return _order.Ends(loader.num_workers, loader.num_workers * loader.prefetch_factor)
    except Exception:
        return None


def _watch_worker(init: WorkerInit, worker_id: int) -> None:
    """In a worker: whatever makes batches from now on is watched."""
    owner, ends = init.owner, init.ends
    _worker.prefix = owner.prefix
    # It makes no batch, and so is no part of their way.
    start = owner.stage("worker start")
    start.record((time.monotonic_ns() - init.begun_ns) / 1e9, inputs=0, outputs=0)
    kind = sys.modules["torch.utils.data"]._DatasetKind
    create = kind.create_fetcher

    def create_fetcher(*args: Any, **kwargs: Any) -> Any:
        fetcher = create(*args, **kwargs)
        # Made anew for each epoch.
        note_end = None if ends is None else ends.notes(worker_id)
        _ignoring_errors(_watch_fetcher, fetcher, owner, note_end)
        return fetcher

    kind.create_fetcher = staticmethod(create_fetcher)


def _watch_fetcher(fetcher: Any, owner: Owner, note_end: Callable[[], None] | None = None) -> None:
    collate = owner.stage("collate", concurrency=1)
    # Held weakly: a cycle would keep the dataset's iterator beyond the epoch.
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


def _watch_iterator(
    iterator: Any, chained: WorkerInit, describe_batch: Callable[..., None] | None
) -> None:
    if getattr(iterator, "_worker_init_fn", None) is chained:
        iterator._worker_init_fn = chained.users
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    if fetcher is not None:  # Without workers.
        _watch_fetcher(fetcher, chained.owner)
        if describe_batch is not None:
            _look_at_a_batch(fetcher, describe_batch)
        return
    _watch_queues(iterator, chained.owner)
    if chained.ends is not None and _is_torchs(type(iterator)):
        _order.watch(iterator, chained.ends, chained.owner.stage)
    if getattr(iterator, "_pin_memory_thread", None) is not None:
        _watch_pinning(iterator._worker_result_queue, iterator._data_queue, chained.owner)


#: Which batch of an epoch is looked at: within the steps that are dropped as warm-up.
_LOOKED_AT = 2


def _look_at_a_batch(fetcher: Any, describe_batch: Callable[..., None]) -> None:
    """Tells what handing a batch over would take, where the loop's own thread makes it."""
    fetch = fetcher.fetch
    made = 0

    def looking_fetch(*args: Any) -> Any:
        nonlocal made
        batch = fetch(*args)
        made += 1
        if made == _LOOKED_AT:
            fetcher_itself = me()
            if fetcher_itself is not None:
                fetcher_itself.fetch = fetch
            session = _session._current
            if session is not None:
                _ignoring_errors(_describe, describe_batch, session._native, batch)
        return batch

    me = ref(fetcher)  # See `_watch_fetcher`.
    fetcher.fetch = looking_fetch


def _describe(describe_batch: Callable[..., None], session: Any, batch: Any) -> None:
    describe_batch(session, *_batch.count(batch))


def _is_torchs(kind: type) -> bool:
    """Whether batches are handed over as torch does, and not by a class made from torch's."""
    return kind.__module__ == "torch.utils.data.dataloader"


def _watch_pinning(source: Any, sink: Any, owner: Owner) -> None:
    """Times what the thread between two queues does with each batch."""
    get, put = type(source).get, type(sink).put
    source_itself, sink_itself = ref(source), ref(sink)
    pinning = owner.stage("pin_memory", concurrency=1)
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


def _watch_queues(iterator: Any, owner: Owner) -> None:
    capacity = iterator._num_workers * iterator._prefetch_factor
    me = ref(iterator)

    def prefetched() -> tuple[int, int] | None:
        iterator = me()
        # What is asked of the workers is in it, from the first batch to the last.
        if iterator is None or iterator._shutdown or not iterator._task_info:
            return None
        early = sum(len(task) == 2 for task in list(iterator._task_info.values()))
        # What came too early is ready only once the batch that comes next is there as well.
        following = iterator._task_info.get(iterator._rcvd_idx, ())
        held = early if len(following) == 2 else 0
        return min(iterator._data_queue.qsize() + held, capacity), capacity

    owner.watch_queue("prefetch", prefetched)
