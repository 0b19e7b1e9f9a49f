"""SPDL's pipelines, seen from inside: their stages and queues, by SPDL's own names.

    import headspace.spdl

    pipeline = builder.build(num_threads=4, **headspace.spdl.hooks())

The same works with ``build_pipeline`` and ``run_pipeline_in_subprocess``. Where a pipeline is built
out of reach (``spdl.dataloader``, the regions of ``PipelineBuilder.to``), :func:`install` makes it
SPDL's default.

A stage takes as long as SPDL's own statistics say: from a task's beginning to its end, so the wait
for a free thread is in it. Queues are seen at each put and get, not now and then. SPDL's own
statistics go on as before.
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
        "`headspace.spdl` is for pipelines of SPDL, which is not installed here: `pip install spdl`",
        name="spdl",
    ) from error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType
    from typing import Any

__all__ = ["Queue", "TaskHook", "hooks", "install", "task_hook"]

#: Stages of one name are told apart within a pipeline, for so many pipelines of this process.
_PIPELINES = 64


def hooks(*, report_stats_interval: float = -1) -> dict[str, Any]:
    """What ``build``, ``build_pipeline`` and ``run_pipeline_in_subprocess`` take to be watched.

        pipeline = builder.build(num_threads=4, **headspace.spdl.hooks())

    With ``HEADSPACE=0`` SPDL is told nothing of headspace.

    Args:
        report_stats_interval: SPDL's own argument of that name, in seconds. It is given here since
            SPDL hands it to its own hooks and queues only.
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
    """Watch every pipeline that this process builds from now on, unless it is built with others.

    Processes that are spawned need it too: SPDL's ``ProcessPoolExecutorConfig`` and
    ``run_pipeline_in_subprocess`` take it as their ``initializer``.
    """
    if _settings.enabled():
        _config.set_default_hook_class(TaskHook)
        _config.set_default_queue_class(_DefaultQueue)


def task_hook(info: _spdl.StageInfo, interval: float = -1) -> list[_spdl.TaskHook]:
    """For ``task_hook_factory``: the hooks of one stage.

    Args:
        info: The stage.
        interval: Seconds between two reports of SPDL's own statistics. By default only at the end.
    """
    return [TaskHook(info, interval)]


class TaskHook(_spdl.TaskHook):  # type: ignore[misc]
    """SPDL's own hook, and a stage of headspace.

    Args:
        info: The stage.
        interval: As SPDL's own hook has it.
    """

    def __init__(self, info: _spdl.StageInfo, interval: float = -1) -> None:
        self.info = info
        kind = _config.get_default_hook_class()
        if kind is not None and issubclass(kind, TaskHook):
            kind = _spdl.TaskStatsHook
        self._theirs: _spdl.TaskHook | None = (
            None if kind is None else kind(info, interval=interval)
        )
        #: Where what the stage gives out is seen.
        self._behind: _Watch | None = _watches.get(info)
        self._stage: _native.Stage | None = None
        #: Whether a task gives out items one by one: then one task takes one item.
        self._generates = False
        #: Calls that were counted as taking an item and were not the first of their task.
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
        """Items that a call took.

        A task of a function is one call, and so is an item that an aggregator takes, whose task
        never ends. A generator's task has a call for each item that it gives out, and one more that
        finds it exhausted: only this one tells it from an aggregator's.
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


#: The hook whose first call in this task has been.
_begun: ContextVar[object] = ContextVar("headspace.spdl", default=None)


class _Call:
    """One call of a stage, around SPDL's own account of it."""

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
        # What goes into a watched queue is counted there: a function may give out nothing.
        given = 1 if hook._behind is None and kind is None else 0
        self._task.end(kind, taken, given)
        if self._theirs is None:
            return None
        suppressed: bool | None = await self._theirs.__aexit__(kind, error, traceback)
        return suppressed


class Queue(_spdl.AsyncQueue):  # type: ignore[misc]
    """The queue that SPDL would have made, watched.

    Calling this class makes one of SPDL's own, since SPDL hands batches of those to the training
    loop on a shorter way than those of other classes.

    Args:
        info: The stage whose output it holds.
        buffer_size: Items it holds at most.
        interval: As SPDL's own queue has it.
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
    """Where :func:`install` asked for it."""

    @classmethod
    def _is_watched(cls, info: _spdl.StageInfo) -> bool:
        # A region has a pipeline of its own in each of its processes. Its ends are no more than the
        # way there and back.
        return parent_process() is None or info.stage_name not in ("src", "sink")


class _Watch:
    """What is known of a queue: for how long it has had which depth."""

    __slots__ = ("__weakref__", "capacity", "depth", "is_last", "name", "since", "stage")

    def __init__(self, info: _spdl.StageInfo, capacity: int) -> None:
        self.name = f"{_name(info)}_queue"
        self.capacity = max(0, capacity)
        self.is_last = info.stage_name == "sink"
        #: The stage that fills it, once it was called.
        self.stage: _native.Stage | None = None
        self.depth = 0
        self.since: float | None = None
        # Queues are in the order in which they are first told of: here that of the data.
        self._tell(0.0)

    def see(self, depth: int) -> None:
        """It has that depth from now on."""
        now = time.monotonic()
        if self.since is not None:
            self._tell(now - self.since)
        self.depth, self.since = depth, now

    def _tell(self, seconds: float) -> None:
        _native.observe_queue(
            self.name, self.depth, seconds, capacity=self.capacity, last=self.is_last
        )


#: The queues that are watched, by the stage that fills them. They keep their watches alive.
_watches: WeakValueDictionary[_spdl.StageInfo, _Watch] = WeakValueDictionary()


def _watch(queue: _spdl.AsyncQueue, info: _spdl.StageInfo) -> None:
    # Every put and get of an asyncio queue comes through these two. They are the object's own:
    # its class stays as it is.
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
        except Exception:  # The item is in: nothing of ours may say otherwise.
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


#: What stages are called, by pipeline: the id of each by its name.
_names: dict[int, dict[str, tuple[str, str]]] = {}

_OBJECT = re.compile(r"<(?:function )?(?:[\w<>]+\.)*(\w+)(?: object)? at 0x[0-9a-fA-F]+>")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def _clean(name: str) -> str:
    """``name`` without addresses of objects, which are others in each run."""
    return _ADDRESS.sub("", _OBJECT.sub(r"\1", name))


def _name(info: _spdl.StageInfo) -> str:
    """What the stage is called: by SPDL's name, with a number where several of one pipeline have it.

    A pipeline that is built anew, as for each epoch, has the same stages as before.
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
