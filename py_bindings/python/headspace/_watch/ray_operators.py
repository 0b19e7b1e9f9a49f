"""Records the operators of Ray Data as stages.

Ray Data executes a dataset in the process that iterates it, and runs the tasks of its operators in other
processes. They report the duration and the CPU time of each task. A dataset that is split among ranks
(`streaming_split`, Ray Train) is executed in a process beside those of the ranks. Its operators count for the lowest rank
on that machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from headspace import _native
from headspace._loops.replacing import replace
from headspace._processes import worker
from headspace._session.own_errors import call_safely


def watch_operators() -> None:
    """Replaces the methods in which an operator learns of its tasks."""
    # Each operator has one object of this class. It is private, but Ray passes the reports of a task to no public
    # class.
    from ray.data._internal.execution.interfaces.op_runtime_metrics import OpRuntimeMetrics

    replace(OpRuntimeMetrics, "on_task_submitted", _call_before(_begin))
    replace(OpRuntimeMetrics, "on_task_output_generated", _call_before(_add_output))
    replace(OpRuntimeMetrics, "on_task_finished", _call_before(_end))
    if _is_ray_process():
        worker.executes_for_siblings = True
        _native.count_for_sibling()


def _is_ray_process() -> bool:
    """Whether Ray started this process."""
    try:
        with open(f"/proc/{os.getppid()}/comm") as comm:
            return comm.read().strip() == "raylet"
    except OSError:  # The parent is in another container, or hidden.
        return False


def _call_before(record: Callable[..., None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes wrappers that call `record` with the same arguments before the original."""

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            call_safely(partial(record, self, *args, **kwargs))
            return original(self, *args, **kwargs)

        return method

    return make_wrapper


class _Task:
    """A task of an operator that has been submitted."""

    __slots__ = ("bytes", "call", "cpu_s", "rows_in", "rows_out", "stage", "submitted_s")

    def __init__(self, stage: _native.Stage, rows_in: int | None) -> None:
        self.stage = stage
        #: The call in progress. It is counted when the duration of the task is known.
        self.call = stage._begin()
        self.submitted_s = time.perf_counter()
        self.rows_in = rows_in
        self.bytes = 0
        #: None while unknown.
        self.rows_out: int | None = None
        self.cpu_s: float | None = None

    def add(self, blocks: Iterable[Any]) -> None:
        """Adds blocks that the task returned, by their metadata."""
        for block in blocks:
            self.rows_out = (self.rows_out or 0) + (block.num_rows or 0)
            self.bytes += block.size_bytes or 0
            cpu_s = getattr(block.exec_stats, "cpu_time_s", None)
            if cpu_s is not None:
                self.cpu_s = (self.cpu_s or 0.0) + cpu_s

    @property
    def age_s(self) -> float:
        """Seconds since it was submitted."""
        return time.perf_counter() - self.submitted_s

    def end(self, failed: bool, seconds: float) -> None:
        """Counts the task."""
        del self.call
        self.stage.record(
            max(0.0, seconds),
            inputs=self.rows_in,
            outputs=self.rows_out,
            bytes=self.bytes,
            failed=failed,
            cpu_seconds=self.cpu_s,
        )


def _tasks(metrics: Any) -> dict[int, _Task]:
    """The tasks in progress of an operator."""
    tasks: dict[int, _Task] = metrics.__dict__.setdefault("_headspace_tasks", {})
    return tasks


def _limit(operator: Any) -> int | None:
    """The maximum number of concurrent tasks. None without a limit."""
    limit = operator.get_max_concurrency_limit()
    return limit if isinstance(limit, int) and limit > 0 else None


def _begin(metrics: Any, task_index: int, inputs: Any, *_: Any, **_other: Any) -> None:
    operator = metrics._op
    stage = _native.stage(operator.name, concurrency=_limit(operator))
    _tasks(metrics)[task_index] = _Task(stage, inputs.num_rows())


def _add_output(metrics: Any, task_index: int, output: Any) -> None:
    task = _tasks(metrics).get(task_index)
    if task is not None:
        task.add(output.metadata)


def _end(
    metrics: Any,
    task_index: int,
    exception: Exception | None,
    task_exec_stats: Any = None,
    task_exec_driver_stats: Any = None,
) -> None:
    task = _tasks(metrics).pop(task_index, None)
    if task is None:
        return
    seconds = task.age_s - getattr(task_exec_driver_stats, "task_output_backpressure_s", 0.0)
    # With a limit, a task occupies a slot from its submission until Ray notices its end. Otherwise, only its own
    # duration matters. More tasks are submitted to an actor than it runs, so they wait there.
    occupies_slot = type(metrics._op).__name__ == "TaskPoolMapOperator" and _limit(metrics._op)
    if not occupies_slot:
        seconds = getattr(task_exec_stats, "task_wall_time_s", seconds)
    task.end(exception is not None, seconds)
