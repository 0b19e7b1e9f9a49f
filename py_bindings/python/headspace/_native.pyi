"""The compiled half of headspace. Private: import `headspace` instead."""

from collections.abc import Awaitable, Callable, Iterable
from os import PathLike
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, TypedDict, TypeVar, final

from typing_extensions import Required, disjoint_base

__all__ = [
    "DEFAULT_CACHES",
    "FREEDOM",
    "LEAST_PROBE_STEPS",
    "RUN_TO_RUN",
    "Follower",
    "Loop",
    "LoopIterator",
    "Session",
    "Stage",
    "Task",
    "__version__",
    "bottleneck_name",
    "finish_worker",
    "observe_queue",
    "run_command",
    "run_interval",
    "stage",
    "stage_of_loop",
    "t_quantile",
    "threads_beyond",
    "ticks",
    "time_calls",
    "watch_queue",
    "works_for_another",
]

__version__: str

DEFAULT_CACHES: int
"""Batches that a probe or a replay repeats, if the user gives no number."""

LEAST_PROBE_STEPS: int
"""Fewest steps of a probe that can give a number."""

FREEDOM: float
"""Degrees of freedom of the standard error of a mean."""

RUN_TO_RUN: float
"""Standard deviation of a mean from run to run, as a share of it: the same program started again does not
take the same time."""

_Function = TypeVar("_Function")

def run_command(args: list[str], inject: str | None = None, /) -> int:
    """Runs the command with these arguments, the first being the program's name, and the folder that
    `run` puts on PYTHONPATH."""

def bottleneck_name(kind: str, name: str | None = None, /) -> str:
    """The name that the verdict has for a bottleneck, such as `GIL`.

    Args:
        kind: As in its record.
        name: As in its record.
    """

def t_quantile(freedom: float, probability: float = 0.975) -> float:
    """Quantile of Student's t.

    Args:
        freedom: Degrees of freedom, from 1.
        probability: From one half to less than 1.
    """

def run_interval(mean: float, error: float = 0.0) -> tuple[float, float]:
    """The 95 % interval of a program's mean over many starts, from the mean of one run.

    Args:
        mean: The mean of the run.
        error: Its standard error.
    """

@final
class Follower:
    """Reads the records of a run while they are written, across the rotation of its files.

    Args:
        path: A run's folder, a rank's file, or a folder of runs: of these the newest is followed, and
            then each that begins. A path that does not exist yet counts as a folder of runs.

    Raises:
        OSError: If the path cannot be read.
    """

    def __new__(cls, path: str | PathLike[str]) -> Follower: ...
    @property
    def run(self) -> Path | None:
        """The folder of the run that is followed; None while there is none."""

    @property
    def main_loop(self) -> str | None:
        """Name of rank 0's main loop, from the records read so far; None before its first loop."""

    @property
    def steady_step(self) -> tuple[float, float | None, int] | None:
        """The live steps of rank 0's main loop after warm-up, from the records read so far: their mean in
        milliseconds, its standard error (None if there are too few ticks), and their number. None before
        the end of warm-up."""

    def stay(self) -> None:
        """Keeps following the current run when another begins."""

    def poll(self) -> tuple[bool, list[tuple[int, str]], bool]:
        """Reads what was written since the last call, 8 MiB at most.

        Returns:
            Whether these records are of another run than those before; rank and record, as JSON; and
            whether there is more to read at once.

        Raises:
            OSError: If a file cannot be read. The next call tries again.
        """

def works_for_another() -> bool:
    """Whether this process descends from a trainer and seems to make batches for it."""

def finish_worker() -> None:
    """The process exits normally. No effect in a process without a trainer."""

def ticks() -> int:
    """A time stamp of the process's clock, for `origin`."""

def time_calls(
    stage: Stage, function: Callable[..., Any], owner: object | None = None
) -> Callable[..., Any]:
    """The function, with each call counted.

    Args:
        stage: What its calls are calls of.
        function: What is called.
        owner: An object that becomes the first argument, as a method's does. It is held weakly.
    """

def watch_queue(
    name: str,
    read: Callable[[], tuple[int, int] | tuple[int, int, int, int] | None],
    last: bool,
    loop_name: str | None = None,
) -> None:
    """Watches a queue from now on, in place of one that had its name.

    Args:
        name: What the queue is called.
        read: Gives depth and capacity (0 where it is not known), for the queue of a pool also how
            many of its workers have an item in hand and how many there can be; None once it is gone.
        last: Whether batches come out of it.
        loop_name: The loop whose batches pass it, where that is known.
    """

def threads_beyond(threads: list[int], code: CodeType) -> int:
    """How many of these threads run something else than that code.

    Args:
        threads: Their identifiers. One that is no thread of Python's is not counted.
        code: What a thread runs while it waits.
    """

def observe_queue(
    name: str, depth: int, seconds: float, *, capacity: int = 0, last: bool = False
) -> None:
    """Says how long a queue had which depth, for integrations that see every change themselves.

    Args:
        name: What the queue is called.
        depth: Items it held.
        seconds: For so long.
        capacity: Items it holds at most; 0 where that is not known.
        last: Whether batches come out of it.
    """

def stage(name: str, *, concurrency: int | None = None) -> Stage:
    """Around one unit of work of a pipeline stage.

        decode = headspace.stage("decode")

        with decode:                      # from any thread
            frames = decode_video(path)

        with decode as work:              # where items in and out are not one each
            frames = decode_video(path)
            work.items(inputs=1, outputs=len(frames), bytes=size)

        async with headspace.stage("fetch"):
            data = await fetch(url)

        @headspace.stage("resize")        # functions, coroutine and generator functions, methods
        def resize(frame): ...

    A handle may be kept and used by all threads and tasks at once, within itself, and in worker
    processes. An exception passes through and counts as a failure; `GeneratorExit` and
    `asyncio.CancelledError` do not, and `StopIteration` says that there was nothing to do: such a
    call is not counted. A stage called within another one counts as a part of it; in coroutines use
    `async with`, which knows tasks apart and takes no part in that. Every item that a generator
    gives out is one call. With `HEADSPACE=0` this does nothing, and a decorator returns its function.

    Args:
        name: What the stage is called. One name is one stage, wherever it is used.
        concurrency: How many calls may go on at once in this process, such as the number of threads,
            where known.

    Raises:
        ValueError: If `concurrency` is not a count of at least 1.
    """

def stage_of_loop(name: str, loop_name: str, *, concurrency: int | None = None) -> Stage:
    """The stage of one loop: `stage`, whose batches are that loop's.

    Args:
        name: What the stage is called. One name is one stage.
        loop_name: The loop's name in the records.
        concurrency: As of `stage`.
    """

@final
class Stage:
    """A stage of the pipeline. Made by `headspace.stage`."""

    @property
    def name(self) -> str: ...
    def __enter__(self) -> Stage: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __aenter__(self) -> Awaitable[Stage]: ...
    def __aexit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> Awaitable[None]: ...
    def __call__(self, function: _Function) -> _Function: ...
    def _call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Any: ...
    def items(
        self,
        *,
        inputs: int | None = None,
        outputs: int | None = None,
        bytes: int | None = None,
    ) -> None:
        """Says what the call that goes on takes in and gives out, where that is not one item each.
        What is said several times adds up. Negative counts are taken as 0.

        Args:
            inputs: Items taken in.
            outputs: Items given out.
            bytes: Bytes handled.
        """

    def record(
        self,
        seconds: float,
        *,
        inputs: int | None = None,
        outputs: int | None = None,
        bytes: int | None = None,
        failed: bool = False,
    ) -> None:
        """Counts a call that was timed elsewhere. One whose time is no duration is not counted.

        Args:
            seconds: How long it took.
            inputs: Items taken in.
            outputs: Items given out; by default 1, or 0 where it failed.
            bytes: Bytes handled.
            failed: Whether it ended in an exception.
        """

    def _begin(self, within: Task | None = None) -> Task:
        """A call that ends in another frame, or in another task.

        Args:
            within: The call around it, which waits for it.
        """

    def _add_items(self, inputs: int, outputs: int) -> None:
        """Adds items that were taken in or given out apart from calls."""

@final
class Task:
    """A call that goes on. One that is dropped instead of ended is no call."""

    def end(self, kind: type[BaseException] | None, inputs: int, outputs: int) -> None:
        """It ends, with an exception of that type or None.

        Args:
            kind: As `__exit__` has it.
            inputs: Items taken in; fewer than 0 where earlier calls said too many.
            outputs: Items given out.
        """

class _Configuration(TypedDict):
    base: str | PathLike[str]
    run_id: str | None
    interval: float
    rank: int
    local_rank: int
    rank_on_node: int | None
    world_size: int
    mode: str
    versions: dict[str, str]
    argv: list[str]
    settings: dict[str, str]
    quiet: bool
    origin: int | None
    exports: list[tuple[str, dict[str, str], bool]]
    scalars: int
    libraries: list[str] | None

@final
class Session:
    """A started run."""

    def __new__(cls, configuration: _Configuration) -> Session: ...
    @property
    def folder(self) -> Path: ...
    @property
    def is_here(self) -> bool: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def ended_by_exception(self, exception: str, is_error: bool) -> None: ...
    def report_torch_device(self, ordinal: int) -> None: ...
    def refuse_setting(self, setting: str, problem: str) -> None: ...
    def integration_off(self, place: int, integration: str, reason: str) -> None: ...
    def scalars(self, place: int) -> list[tuple[int, float, dict[str, float]]]: ...
    def flush(self, timeout: float) -> bool: ...
    def report(self) -> tuple[str, str, str]: ...
    def stop(self) -> tuple[str, str, str] | None: ...

class _PlanOptions(TypedDict, total=False):
    num_caches: int
    return_caches_after: int | None
    stop_after: int | None
    probe_steps: int | None
    stop_after_probe: bool
    exactly_once: bool
    endless: bool
    keep_source: bool
    world_size: int

class _LoopPlan(_PlanOptions):
    mode: str

class _LoaderFacts(TypedDict, total=False):
    type_name: Required[str]
    batches: int | None
    batch_size: int | None
    workers: int | None
    prefetch_depth: int | None
    prefetch_factor: int | None
    pin_memory: bool | None
    count_samples: Callable[[Any], int | None] | None

class _LoopLabels(TypedDict, total=False):
    role: str | None
    chosen: bool
    options_from: Required[str | None]

@final
class Loop:
    """A wrapped loader."""

    def __new__(
        cls,
        name: str,
        plan: _LoopPlan,
        loader: _LoaderFacts | None = None,
        labels: _LoopLabels | None = None,
    ) -> Loop: ...
    @property
    def name(self) -> str: ...
    @property
    def type_name(self) -> str: ...
    def iterate(
        self,
        loader: Iterable[Any],
        session: Callable[[int], Session | None],
        role: str | None = None,
    ) -> Any: ...
    def describe_batch(
        self,
        session: Session,
        tensors: int,
        tensor_bytes: int,
        objects: int,
        object_bytes: int,
    ) -> None: ...
    def step(self, session: Session, samples: int | None = None, gap: bool = False) -> None: ...

@disjoint_base
class LoopIterator:
    """Yields what the wrapped iterator yields. Made by `Loop.iterate` only."""

    def __new__(cls, new: Any) -> LoopIterator: ...
    def __iter__(self) -> LoopIterator: ...
    def __next__(self) -> Any: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...
    def __delattr__(self, name: str, /) -> None: ...
    def __copy__(self) -> Any: ...
    def __deepcopy__(self, memo: Any) -> Any: ...
    def __reduce__(self) -> Any: ...
    def __reduce_ex__(self, protocol: Any) -> Any: ...
    def _headspace_surround_first(self, around: Any) -> None: ...
