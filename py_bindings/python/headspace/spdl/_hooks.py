"""Records the stages of SPDL's pipelines, beside SPDL's own hooks."""

from __future__ import annotations

from asyncio import get_running_loop
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from types import NoneType, TracebackType
from typing import Any

from spdl import pipeline as _spdl
from spdl.pipeline import config as _config

from headspace import _native, _settings
from headspace._loops.sent_parts import check_sent, remember_pipeline
from headspace._processes.private_parts import call_ignoring_errors
from headspace._processes.worker import is_worker
from headspace.spdl._hand_off import watch_sending
from headspace.spdl._names import stage_name
from headspace.spdl._queues import DefaultQueue, Queue, Watch, watches


def hooks(*, report_stats_interval: float = -1) -> dict[str, Any]:
    """Returns the arguments for ``build``, ``build_pipeline`` and ``run_pipeline_in_subprocess``.

        pipeline = builder.build(num_threads=4, **headspace.spdl.hooks())

    headspace then measures the pipeline. With ``HEADSPACE=0``, no hooks of headspace are returned.

    Args:
        report_stats_interval: SPDL's own argument of this name, in seconds. Pass it to this function,
            because SPDL passes its own argument only to its own hooks and queues.
    """
    arguments: dict[str, Any] = {}
    if report_stats_interval > 0:
        arguments["report_stats_interval"] = report_stats_interval
    if _settings.enabled():
        arguments["queue_class"] = partial(Queue, interval=report_stats_interval)
        arguments["task_hook_factory"] = partial(task_hook, interval=report_stats_interval)
    return arguments


def install() -> None:
    """Measures every pipeline that this process builds from now on, unless it is built with other hooks.

    Spawned processes must call this function too: pass it as ``initializer`` to SPDL's
    ``ProcessPoolExecutorConfig`` and ``run_pipeline_in_subprocess``.
    """
    if _settings.enabled():
        _config.set_default_hook_class(TaskHook)
        _config.set_default_queue_class(DefaultQueue)
        call_ignoring_errors(_check_built_pipelines)


def _check_built_pipelines() -> None:
    """Checks whether a process could get the pipelines that are built from now on, unless the program uses this hook."""
    if _config.get_default_build_callback() is None:
        _config.set_default_build_callback(_check_pipeline)


def _check_pipeline(pipeline: Any) -> None:
    if is_worker():
        return
    sent = check_sent({"pipeline": pipeline}, allowed=(Executor,))  # SPDL sends executors itself.
    if sent is not None:
        remember_pipeline(repr(pipeline), sent)


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
        call_ignoring_errors(watch_sending)
        self.info = info
        kind = _config.get_default_hook_class()
        if kind is not None and issubclass(kind, TaskHook):
            kind = _spdl.TaskStatsHook
        self._theirs: _spdl.TaskHook | None = (
            None if kind is None else kind(info, interval=interval)
        )
        #: The queue that the stage fills, if it is watched.
        self._behind: Watch | None = watches.get(info)
        self._stage: _native.Stage | None = None
        #: Whether the function is a generator, which has several calls for one item. None while unknown.
        self._generates: bool | None = None
        #: Number of items of later calls that are not counted yet, while this is unknown.
        self._undecided = 0

    def stage_hook(self) -> Any:
        return super().stage_hook() if self._theirs is None else self._theirs.stage_hook()

    def task_hook(self, input_item: Any = None) -> Any:
        theirs = None if self._theirs is None else self._theirs.task_hook(input_item)
        return _Call(self, theirs, input_item)

    def _begin(self) -> _native.Task:
        stage = self._stage
        if stage is None:
            # Stages are in the order in which they are first called.
            name, concurrency = stage_name(self.info), self.info.concurrency or 1
            stage = self._stage = _native.stage(name, concurrency=concurrency)
            if self._behind is not None:
                self._behind.stage = stage
            call_ignoring_errors(_watch_threads, get_running_loop())
        return stage._begin()

    def _taken(self, call: _Call, is_exhausted: bool) -> int:
        """Number of items that a call took.

        A function has one call per task. A generator has one call per item that it returns, all with the
        item that it took, and a last call, in which it is exhausted. An aggregator has one call per item
        that it takes, and its task never ends. Counts must never fall, so these items are held back until the
        kind is known: if all items of an aggregator are the same object, until its input ends.
        """
        if is_exhausted:
            self._generates = True
            self._undecided = 0
        if call.is_first:
            return call.takes
        if self._generates is None and call.has_new_item:
            self._generates = False
        if self._generates is None:
            self._undecided += call.takes
            return 0
        if self._generates:
            return 0
        taken, self._undecided = call.takes + self._undecided, 0
        return taken


#: The hook that has already been called in this task, and the identity of its last item.
_begun: ContextVar[tuple[TaskHook, int] | None] = ContextVar("headspace.spdl", default=None)


#: The call that runs in this task.
_running: ContextVar[_native.Task | None] = ContextVar("headspace.spdl call", default=None)


def _watch_threads(loop: Any) -> None:
    """The threads that execute functions for this event loop show in which call of a stage they are."""
    if "run_in_executor" in vars(loop):  # They do already.
        return
    run = loop.run_in_executor

    def run_in_executor(executor: Any, func: Any, *args: Any) -> Any:
        task = _running.get()
        # Other executors may send the function to another process or interpreter.
        if task is None or type(executor) not in (NoneType, ThreadPoolExecutor):
            return run(executor, func, *args)
        return run(executor, task.run, func, *args)

    loop.run_in_executor = run_in_executor


class _Call:
    """One call of a stage. It contains SPDL's own measurement of the call."""

    __slots__ = ("_hook", "_item", "_task", "_theirs", "has_new_item", "is_first", "takes")

    _task: _native.Task

    def __init__(self, hook: TaskHook, theirs: Any, item: Any) -> None:
        self._hook = hook
        self._theirs = theirs
        self._item = id(item)
        #: Number of items of the call: none if it is the end of the input.
        self.takes = 0 if _spdl.is_eof(item) else 1
        #: Whether it is the first call of the stage in this task.
        self.is_first = True
        #: Whether its item differs from that of the previous call in this task.
        self.has_new_item = True

    async def __aenter__(
        self,
    ) -> None:  # No `await` after `_begin`: a task that is cancelled there would not end its call.
        if self._theirs is not None:
            await self._theirs.__aenter__()
        hook = self._hook
        begun = _begun.get()
        self.is_first = begun is None or begun[0] is not hook
        self.has_new_item = begun is None or begun[1] != self._item
        if self.has_new_item or self.is_first:
            _begun.set((hook, self._item))
        self._task = hook._begin()
        _running.set(self._task)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        _running.set(None)
        hook = self._hook
        is_exhausted = kind is not None and issubclass(kind, StopAsyncIteration)
        taken = hook._taken(self, is_exhausted)
        # Items are counted at a watched queue, since a function may return nothing.
        given = 1 if hook._behind is None and kind is None else 0
        self._task.end(kind, taken, given)
        if self._theirs is None:
            return None
        suppressed: bool | None = await self._theirs.__aexit__(kind, error, traceback)
        return suppressed
