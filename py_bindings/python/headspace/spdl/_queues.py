"""Measures the queues of SPDL's pipelines at each put and get."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing import parent_process
from typing import Any
from weakref import WeakValueDictionary, ref

from spdl import pipeline as _spdl
from spdl.pipeline import config as _config

from headspace import _native, _settings
from headspace.spdl._names import stage_name


class Queue(_spdl.AsyncQueue):  # type: ignore[misc]
    """A queue of SPDL whose depth is measured.

    A call of this class creates a queue of SPDL's own class, because SPDL passes batches from its own queues
    to the training loop faster than from other queues.

    Args:
        info: The stage whose output is in the queue.
        buffer_size: Maximum number of items in the queue.
        interval: As in SPDL's own queue.
    """

    def __new__(cls, info: _spdl.StageInfo, *, buffer_size: int = 1, interval: float = -1) -> Queue:
        kind: Any = _config.get_default_queue_class()
        if issubclass(kind, Queue):
            kind = _spdl.StatsQueue
        queue: Queue = kind(info, buffer_size=buffer_size, interval=interval)
        if _settings.enabled() and cls._is_watched(info):
            _watch(queue, info)
        return queue

    @classmethod
    def _is_watched(cls, info: _spdl.StageInfo) -> bool:
        return True


class DefaultQueue(Queue):
    """The default queue after :func:`install`."""

    @classmethod
    def _is_watched(cls, info: _spdl.StageInfo) -> bool:
        # A region has a pipeline in each of its processes. The first and last queue of such a pipeline
        # only transport items from and to the parent.
        return parent_process() is None or info.stage_name not in ("src", "sink")


class Watch:
    """Measures how long a queue has each depth."""

    def __init__(self, info: _spdl.StageInfo, capacity: int) -> None:
        self.name = f"{stage_name(info)}_queue"
        self.capacity = max(0, capacity)
        self.is_last = info.stage_name == "sink"
        #: The stage that fills the queue. None before its first call.
        self.stage: _native.Stage | None = None
        self.depth = 0
        self.since: float | None = None
        # Records list queues in the order of their first report: here the order of the data flow.
        self._report_depth(0.0)

    def set_depth(self, depth: int) -> None:
        """Records that the queue has this depth from now on."""
        now = time.monotonic()
        if self.since is not None:
            self._report_depth(now - self.since)
        self.depth, self.since = depth, now

    def _report_depth(self, seconds: float) -> None:
        _native.observe_queue(
            self.name, self.depth, seconds, capacity=self.capacity, last=self.is_last
        )


#: The watches of queues, by the stage that fills the queue. The queues keep their watches alive.
watches: WeakValueDictionary[_spdl.StageInfo, Watch] = WeakValueDictionary()


def _watch(queue: Any, info: _spdl.StageInfo) -> None:
    # Every put and get of an asyncio queue calls these two methods. They are replaced on the object, not on
    # its class.
    watch = watches[info] = Watch(info, queue.maxsize)
    put_in, take_out, me = type(queue)._put, type(queue)._get, ref(queue)

    def put(item: object) -> None:
        queue: Any = me()
        put_in(queue, item)
        try:
            watch.set_depth(queue.qsize())
            if watch.stage is not None and not (_spdl.is_eof(item) or _spdl.is_epoch_end(item)):
                watch.stage._add_items(0, 1)
        except Exception:  # The item is already in the queue, so the put must not fail.
            pass

    def get() -> object:
        queue: Any = me()
        item = take_out(queue)
        try:
            watch.set_depth(queue.qsize())
        except Exception:
            pass
        return item

    queue._put, queue._get = put, get
    _watch_ends(queue, watch)


def _watch_ends(queue: Any, watch: Watch) -> None:
    """Watches the queue from the start of its stage until the stage ends."""
    stage_hook, me = type(queue).stage_hook, ref(queue)

    @asynccontextmanager
    async def hook() -> AsyncIterator[Any]:
        async with stage_hook(me()) as entered:
            watch.set_depth(watch.depth)
            try:
                yield entered
            finally:
                watch.set_depth(watch.depth)

    queue.stage_hook = hook
