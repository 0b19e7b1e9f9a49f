"""Records the stages and queues of SPDL's pipelines, by SPDL's own names.

    import headspace.spdl

    pipeline = builder.build(num_threads=4, **headspace.spdl.hooks())

``build_pipeline`` and ``run_pipeline_in_subprocess`` accept the same arguments. If a library builds the
pipeline (``spdl.dataloader``, the regions of ``PipelineBuilder.to``), call :func:`install`: it makes
these hooks SPDL's default.

The time of a call is defined as in SPDL's own statistics: from the start of a task to its end, including
the wait for a free thread. Queues are measured at each put and get, not sampled. SPDL's own statistics
continue as before.
"""

from __future__ import annotations

import re
import time
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from multiprocessing import parent_process
from weakref import WeakValueDictionary, ref

from headspace import _native, _settings

try:
    from spdl import pipeline as _spdl
    from spdl.pipeline import config as _config
except ModuleNotFoundError as error:
    if error.name != "spdl":
        raise
    raise ModuleNotFoundError(
        "`headspace.spdl` needs the package `spdl`: run `pip install spdl`",
        name="spdl",
    ) from error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType
    from typing import Any

__all__ = ["Queue", "TaskHook", "hooks", "install", "task_hook"]

#: Maximum number of pipelines of this process for which stages with equal names are numbered.
_PIPELINES = 64


def hooks(*, report_stats_interval: float = -1) -> dict[str, Any]:
    """Returns the arguments for ``build``, ``build_pipeline`` and ``run_pipeline_in_subprocess``.

        pipeline = builder.build(num_threads=4, **headspace.spdl.hooks())

    headspace then measures the pipeline. With ``HEADSPACE=0``, no hooks of headspace are returned.

    Args:
        report_stats_interval: SPDL's own argument of this name, in seconds. Pass it to this function,
            because SPDL passes its own argument only to its own hooks and queues.
    """
    theirs: dict[str, Any] = {}
    if report_stats_interval > 0:
        theirs["report_stats_interval"] = report_stats_interval
    if not _settings.enabled():
        return theirs
    interval: dict[str, Any] = {"interval": report_stats_interval}
    return {
        **theirs,
        "queue_class": partial(Queue, **interval),
        "task_hook_factory": partial(task_hook, **interval),
    }


def install() -> None:
    """Measures every pipeline that this process builds from now on, unless it is built with other hooks.

    Spawned processes must call this function too: pass it as ``initializer`` to SPDL's
    ``ProcessPoolExecutorConfig`` and ``run_pipeline_in_subprocess``.
    """
    if _settings.enabled():
        _config.set_default_hook_class(TaskHook)
        _config.set_default_queue_class(_DefaultQueue)


def task_hook(info: _spdl.StageInfo, interval: float = -1) -> list[_spdl.TaskHook]:
    """Returns the hooks of one stage, for ``task_hook_factory``.

    Args:
        info: The stage.
        interval: Seconds between two reports of SPDL's own statistics. By default there is one report, at
            the end.
    """
    return [TaskHook(info, interval)]


class TaskHook(_spdl.TaskHook):  # type: ignore[misc]
    """Calls SPDL's own hook, and counts the calls of the stage.

    Args:
        info: The stage.
        interval: As in SPDL's own hook.
    """

    def __init__(self, info: _spdl.StageInfo, interval: float = -1) -> None:
        self.info = info
        kind = _config.get_default_hook_class()
        if kind is not None and issubclass(kind, TaskHook):
            kind = _spdl.TaskStatsHook
        self._theirs: _spdl.TaskHook | None = (
            None if kind is None else kind(info, interval=interval)
        )
        #: The queue that the stage fills, if it is watched.
        self._behind: _Watch | None = _watches.get(info)
        self._stage: _native.Stage | None = None
        #: Whether the function is a generator, which takes one item per task and returns several items.
        self._generates = False
        #: Number of calls that were not the first call of their task, but were counted as taking an item.
        self._repeated = 0

    def stage_hook(self) -> Any:
        return super().stage_hook() if self._theirs is None else self._theirs.stage_hook()

    def task_hook(self, input_item: Any = None) -> Any:
        theirs = None if self._theirs is None else self._theirs.task_hook(input_item)
        return _Call(self, theirs, takes=0 if _spdl.is_eof(input_item) else 1)

    def _begin(self) -> _native.Task:
        stage = self._stage
        if stage is None:
            # Stages are in the order in which they are first called.
            name, concurrency = _name(self.info), self.info.concurrency or 1
            stage = self._stage = _native.stage(name, concurrency=concurrency)
            if self._behind is not None:
                self._behind.stage = stage
        return stage._begin()

    def _taken(self, takes: int, is_first: bool, is_exhausted: bool) -> int:
        """Number of items that a call took.

        A function has one call per task. An aggregator has one call per item that it takes, and its task
        never ends. A generator has one call per item that it returns, and a last call, in which it is
        exhausted. Only this last call distinguishes a generator from an aggregator.
        """
        if not is_first:
            if self._generates or is_exhausted:
                takes = 0
            else:
                self._repeated += takes
        if is_exhausted and not self._generates:
            self._generates = True
            takes -= self._repeated
        return takes


#: The hook that has already been called in this task.
_begun: ContextVar[object] = ContextVar("headspace.spdl", default=None)


class _Call:
    """One call of a stage. It contains SPDL's own measurement of the call."""

    __slots__ = ("_hook", "_is_first", "_takes", "_task", "_theirs")

    _task: _native.Task

    def __init__(self, hook: TaskHook, theirs: Any, takes: int) -> None:
        self._hook = hook
        self._theirs = theirs
        self._takes = takes
        self._is_first = True

    async def __aenter__(self) -> None:
        if self._theirs is not None:
            await self._theirs.__aenter__()
        hook = self._hook
        self._is_first = _begun.get() is not hook
        if self._is_first:
            _begun.set(hook)
        self._task = hook._begin()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        hook = self._hook
        is_exhausted = kind is not None and issubclass(kind, StopAsyncIteration)
        taken = hook._taken(self._takes, self._is_first, is_exhausted)
        # Items are counted at a watched queue, since a function may return nothing.
        given = 1 if hook._behind is None and kind is None else 0
        self._task.end(kind, taken, given)
        if self._theirs is None:
            return None
        suppressed: bool | None = await self._theirs.__aexit__(kind, error, traceback)
        return suppressed


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


class _DefaultQueue(Queue):
    """The default queue after :func:`install`."""

    @classmethod
    def _is_watched(cls, info: _spdl.StageInfo) -> bool:
        # A region has a pipeline in each of its processes. The first and last queue of such a pipeline
        # only transport items from and to the parent.
        return parent_process() is None or info.stage_name not in ("src", "sink")


class _Watch:
    """Measures how long a queue has each depth."""

    __slots__ = ("__weakref__", "capacity", "depth", "is_last", "name", "since", "stage")

    def __init__(self, info: _spdl.StageInfo, capacity: int) -> None:
        self.name = f"{_name(info)}_queue"
        self.capacity = max(0, capacity)
        self.is_last = info.stage_name == "sink"
        #: The stage that fills the queue. None before its first call.
        self.stage: _native.Stage | None = None
        self.depth = 0
        self.since: float | None = None
        # Records list queues in the order of their first report: here the order of the data flow.
        self._tell(0.0)

    def see(self, depth: int) -> None:
        """Records that the queue has this depth from now on."""
        now = time.monotonic()
        if self.since is not None:
            self._tell(now - self.since)
        self.depth, self.since = depth, now

    def _tell(self, seconds: float) -> None:
        _native.observe_queue(
            self.name, self.depth, seconds, capacity=self.capacity, last=self.is_last
        )


#: The watches of queues, by the stage that fills the queue. The queues keep their watches alive.
_watches: WeakValueDictionary[_spdl.StageInfo, _Watch] = WeakValueDictionary()


def _watch(queue: _spdl.AsyncQueue, info: _spdl.StageInfo) -> None:
    # Every put and get of an asyncio queue calls these two methods. They are replaced on the object, not on
    # its class.
    anything: Any = queue
    watch = _watches[info] = _Watch(info, anything.maxsize)
    kind = type(anything)
    put_in, take_out, me = kind._put, kind._get, ref(anything)

    def put(item: object) -> None:
        queue: Any = me()
        put_in(queue, item)
        try:
            watch.see(queue.qsize())
            if watch.stage is not None and not (_spdl.is_eof(item) or _spdl.is_epoch_end(item)):
                watch.stage._add_items(0, 1)
        except Exception:  # The item is already in the queue, so the put must not fail.
            pass

    def get() -> object:
        queue: Any = me()
        item = take_out(queue)
        try:
            watch.see(queue.qsize())
        except Exception:
            pass
        return item

    anything._put, anything._get = put, get
    _watch_ends(anything, watch)


def _watch_ends(queue: Any, watch: _Watch) -> None:
    """Watches the queue from the start of its stage until the stage ends."""
    stage_hook, me = type(queue).stage_hook, ref(queue)

    @asynccontextmanager
    async def hook() -> AsyncIterator[Any]:
        async with stage_hook(me()) as entered:
            watch.see(watch.depth)
            try:
                yield entered
            finally:
                watch.see(watch.depth)

    queue.stage_hook = hook


#: By pipeline, the names of its stages, each with the ID of the stage.
_names: dict[int, dict[str, tuple[str, str]]] = {}

_OBJECT = re.compile(r"<(?:function )?(?:[\w<>]+\.)*(\w+)(?: object)? at 0x[0-9a-fA-F]+>")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def _clean(name: str) -> str:
    """Returns ``name`` without addresses of objects, because these differ between runs."""
    return _ADDRESS.sub("", _OBJECT.sub(r"\1", name))


def _name(info: _spdl.StageInfo) -> str:
    """Name of the stage: SPDL's name, with a number if several stages of the pipeline have the same name.

    If a pipeline is built again, for example for each epoch, its stages have the same names as before.
    """
    names = _names.get(info.pipeline_id)
    if names is None:
        while len(_names) >= _PIPELINES:
            del _names[next(iter(_names))]
        names = _names[info.pipeline_id] = {}
    plain, number = _clean(info.stage_name), 1
    name = plain
    me = (info.stage_id, info.stage_name)
    while names.setdefault(name, me) != me:
        number += 1
        name = f"{plain}-{number}"
    return name
