"""Times torch's iterator in the trainer: makes it with timed workers, and watches its queues."""

from __future__ import annotations

import time
from _weakref import ref

from headspace._loops.batch_parts import report_parts
from headspace._loops.owner import Owner
from headspace._native import Loop, LoopIterator
from headspace._processes.hand_off import DESCRIBED_ITEM, time_receipt
from headspace._processes.private_parts import call_ignoring_errors
from headspace._session import lifecycle
from headspace._session.threads import is_main_thread
from headspace.torch._order import BatchEndTimes, watch_order
from headspace.torch._worker import WorkerInit, watch_fetcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headspace import _native
    from headspace._loops.nesting import Enclosing


def iterate(
    loop: _native.Loop | Enclosing, source: Any, loader: Any, role: str | None = None
) -> Any:
    """``loop.iterate(source)``, with the stages of the loader timed.

    Args:
        source: What is iterated: the loader, or an object that contains it.
        loader: The torch loader.
        role: What the loop is for, if the loop does not know that itself.
    """
    session = lifecycle.current
    attributes = vars(loader)
    before = attributes.get("_get_iterator")
    is_forked = session is not None and not session._native.is_here
    if is_forked or not (before is None or type(before) is _IteratorMaker):
        return loop.iterate(source, lifecycle.begin, role)
    # A loader inside another one may make other batches than the loop takes.
    makes_batches = isinstance(loop, Loop)
    maker = _IteratorMaker(loader, Owner(loop), makes_batches=makes_batches)
    maker.begin()
    try:
        iterator = loop.iterate(source, lifecycle.begin, role)
    finally:
        maker.remove()
    if not maker.has_made:
        # If `__iter__` is a generator, it makes torch's iterator at the first batch.
        if isinstance(iterator, LoopIterator):
            iterator._headspace_surround_first(maker)
        else:
            maker.end()
    return iterator


class _IteratorMaker:
    """Replaces a loader's ``_get_iterator``, only while an iterator is made.

    It holds the loader weakly, since the iterator holds this object, and the loader often the iterator.
    """

    def __init__(self, loader: Any, owner: Owner, *, makes_batches: bool) -> None:
        self.loader = ref(loader)
        self.owner = owner
        #: Whether the loop takes the loader's batches as they are. Then one of them is described.
        self.makes_batches = makes_batches
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
        if not self.has_made and kept is not None:
            # Persistent workers: an earlier epoch's iterator.
            call_ignoring_errors(_watch_queues, kept, self.owner)

    def __call__(self) -> Any:
        loader: Any = self.loader()
        self.has_made = True
        attributes = vars(loader)
        users = attributes.get("worker_init_fn")
        if type(users) is WorkerInit:  # Another thread makes an iterator, too.
            users = users.users_function
        if loader.num_workers > 0:
            self.owner.claim_hand_off()
        end_times = _make_end_times(loader)
        init = WorkerInit(users, time.monotonic_ns(), self.owner, end_times)
        attributes["worker_init_fn"] = init
        try:
            iterator = type(loader)._get_iterator(loader)
        finally:
            if attributes.get("worker_init_fn") is init:
                attributes["worker_init_fn"] = users
            if end_times is not None:
                end_times.close()
        call_ignoring_errors(_watch_iterator, iterator, init, makes_batches=self.makes_batches)
        return iterator


def _make_end_times(loader: Any) -> BatchEndTimes | None:
    if loader.num_workers < 2 or not getattr(loader, "in_order", True):
        return None
    try:
        return BatchEndTimes(loader.num_workers, loader.num_workers * loader.prefetch_factor)
    except Exception:
        return None


def _watch_iterator(iterator: Any, init: WorkerInit, *, makes_batches: bool) -> None:
    if getattr(iterator, "_worker_init_fn", None) is init:
        iterator._worker_init_fn = init.users_function
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    if fetcher is not None:  # Without workers.
        watch_fetcher(fetcher, init.owner)
        if makes_batches:
            _describe_fetched(fetcher, init.owner.loop_name)
        return
    _watch_queues(iterator, init.owner)
    # Not a class derived from torch's own, which may hand over batches differently.
    is_torchs = type(iterator).__module__ == "torch.utils.data.dataloader"
    if init.end_times is not None and is_torchs:
        watch_order(iterator, init.end_times, init.owner.stage)
    if getattr(iterator, "_pin_memory_thread", None) is not None:
        _watch_pinning(iterator._worker_result_queue, iterator._data_queue, init.owner)
    elif is_main_thread():  # Another thread only feeds the loop: its time is not the loop's wait.
        _watch_receipt(iterator._data_queue, init.owner, makes_batches=makes_batches)


def _watch_receipt(queue: Any, owner: Owner, *, makes_batches: bool) -> None:
    """Times the receipt of batches on the training thread."""

    def describe_received(item: Any) -> None:
        _number, batch = item
        if makes_batches:
            report_parts(batch, owner.loop_name)

    time_receipt(queue, owner.hand_off("receive"), describe_received)


def _describe_fetched(fetcher: Any, loop_name: str) -> None:
    """Describes a batch that this process makes itself."""
    fetch = fetcher.fetch
    made = 0

    def describing_fetch(*args: Any) -> Any:
        nonlocal made
        batch = fetch(*args)
        made += 1
        if made == DESCRIBED_ITEM:
            fetcher_itself = weak_fetcher()
            if fetcher_itself is not None:
                fetcher_itself.fetch = fetch
            call_ignoring_errors(report_parts, batch, loop_name)
        return batch

    weak_fetcher = ref(fetcher)  # See `watch_fetcher`.
    fetcher.fetch = describing_fetch


def _watch_pinning(source: Any, sink: Any, owner: Owner) -> None:
    """Times the thread that takes batches from one queue, pins them, and puts them into the next."""
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
    weak_iterator = ref(iterator)

    def read() -> tuple[int, int] | None:
        iterator = weak_iterator()
        # `_task_info` has the batches that the workers are to make. It is empty between epochs.
        if iterator is None or iterator._shutdown or not iterator._task_info:
            return None
        early = sum(len(task) == 2 for task in list(iterator._task_info.values()))
        # Batches that came early can be taken only if the one whose turn it is has come as well.
        following = iterator._task_info.get(iterator._rcvd_idx, ())
        held = early if len(following) == 2 else 0
        return min(iterator._data_queue.qsize() + held, capacity), capacity

    owner.watch_queue("prefetch", read)
