"""The compiled part of headspace. Private: import `headspace` instead."""

from collections.abc import Awaitable, Callable, Iterable
from os import PathLike
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Literal, TypedDict, TypeVar, final

from typing_extensions import Required, disjoint_base

__all__ = [
    "DEFAULT_CACHES",
    "FREEDOM",
    "LEAST_PROBE_STEPS",
    "LEAST_WHAT_IF_STEPS",
    "RUN_TO_RUN",
    "Follower",
    "Loop",
    "LoopIterator",
    "Session",
    "Stage",
    "Task",
    "__version__",
    "bottleneck_name",
    "count_for_sibling",
    "count_worker_objects",
    "duration_ms",
    "find_holders",
    "find_objects",
    "finish_worker",
    "observe_queue",
    "predict_steps",
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

LEAST_WHAT_IF_STEPS: int
"""Fewest steps of a what-if that can answer a question."""

FREEDOM: float
"""Degrees of freedom of the standard error of a mean."""

RUN_TO_RUN: float
"""Standard deviation of a mean between repeated runs of the same program, as a share of the mean."""

_Function = TypeVar("_Function")

def run_command(args: list[str], inject: str | None = None, /) -> int:
    """Runs the `headspace` command and returns its exit status.

    Args:
        args: The command line. The first element is the name of the program.
        inject: The folder that `headspace run` puts on PYTHONPATH.
    """

def duration_ms(ms: float, /) -> str:
    """A duration in milliseconds as the verdict shows it."""

def bottleneck_name(kind: str, name: str | None = None, /) -> str:
    """Name of a bottleneck in the verdict, for example `GIL`.

    Args:
        kind: The field `kind` of its record.
        name: The field `name` of its record.
    """

def predict_steps(
    summary: str,
    loader: str,
    configurations: list[list[tuple[str | None, str, int]]],
    /,
) -> list[tuple[float, float] | None]:
    """The predicted step of each configuration in milliseconds, from the measurements of one run: as careful as that of a
    remedy, and by the simulation alone. None if the model of that run cannot predict it.

    Args:
        summary: The run's `summary` record as JSON.
        loader: The `loader` of its `run` record as JSON.
        configurations: The settings of each configuration: the stage or queue (None: the loader), the name of
            the setting as in the records (`concurrency`), and its value.

    Raises:
        ValueError: If a record cannot be read, or a setting is unknown.
    """

def t_quantile(freedom: float, probability: float = 0.975) -> float:
    """Quantile of Student's t distribution.

    Args:
        freedom: Degrees of freedom, at least 1.
        probability: At least one half, and less than 1.
    """

def run_interval(mean: float, error: float = 0.0) -> tuple[float, float]:
    """The 95 % interval of a program's mean over many starts, from the mean of one run.

    Args:
        mean: The mean of the run.
        error: Its standard error.
    """

@final
class Follower:
    """Reads the records of a run while they are written, also after its files were rotated.

    Args:
        path: A run folder, the file of a rank, or a folder of run folders. In a folder of run folders,
            the newest run is read first, and then each new run. A path that does not exist yet counts
            as a folder of run folders.

    Raises:
        OSError: If the path cannot be read.
    """

    def __new__(cls, path: str | PathLike[str]) -> Follower: ...
    @property
    def run(self) -> Path | None:
        """The folder of the run that is read. None before the first run."""

    @property
    def main_loop(self) -> str | None:
        """Name of rank 0's main loop, from the records read so far. None if no loop was found yet."""

    @property
    def steady_step(self) -> tuple[float, float | None, int] | None:
        """The live steps of rank 0's main loop after warm-up, from the records read so far: their mean in
        milliseconds, its standard error (None if there are too few ticks), and their number. None before
        the end of warm-up."""

    def stay(self) -> None:
        """Continues to read the current run, even if a new run begins."""

    def poll(self) -> tuple[bool, list[tuple[int, str]], bool]:
        """Reads the records that were written since the last call, at most 8 MiB.

        Returns:
            Whether these records belong to another run than the records before; the rank and the JSON text
            of each record; and whether there are more records to read now.

        Raises:
            OSError: If a file cannot be read. The next call tries again.
        """

def works_for_another() -> bool:
    """Whether this process descends from a trainer, and so probably makes batches for that trainer."""

def count_for_sibling() -> None:
    """This process serves trainers that have the same parent as it. Without a trainer among its ancestors, it counts for
    the one of them with the lowest rank."""

def finish_worker() -> None:
    """Records that this process exits normally. Has no effect in a process without a trainer."""

def ticks() -> int:
    """Current time stamp of the process's clock. A session accepts it as `origin`."""

def time_calls(
    stage: Stage, function: Callable[..., Any], owner: object | None = None
) -> Callable[..., Any]:
    """Wraps a function so that each call counts as a call of the stage.

    Args:
        stage: The stage.
        function: The function to call.
        owner: Object that is passed as the first argument, as to a method. The wrapper has only a weak
            reference to it.
    """

def watch_queue(
    name: str,
    read: Callable[[], tuple[int, int] | tuple[int, int, int, int] | None],
    last: bool,
    loop_name: str | None = None,
) -> None:
    """Registers a queue whose depth is sampled from now on. It replaces an earlier queue with this name.

    Args:
        name: Name of the queue.
        read: Returns depth and capacity (0 if unknown), and for the queue of a pool also the number of
            busy workers and the number of all workers. Returns None once the queue was deleted.
        last: Whether the training loop takes its batches from this queue.
        loop_name: Name of the loop whose batches pass through the queue, if it is known.
    """

def threads_beyond(threads: list[int], code: CodeType) -> int:
    """Counts the threads that run other code than `code`.

    Args:
        threads: Identifiers of the threads. Threads that Python does not know are not counted.
        code: The code that an idle thread runs.
    """

def find_objects(types: set[int], sample: int, all_of: set[int], containers: set[int]) -> list[Any]:
    """Finds objects. Never returns a tuple that is still being filled.

    Args:
        types: Addresses of types of which a sample is returned: the last objects in the list of the garbage collector.
        sample: Size of this sample, for each type.
        all_of: Addresses of types of which all objects are returned.
        containers: Addresses of objects, and of dictionaries that the garbage collector does not track.
    """

def find_holders(items: list[Any]) -> list[Any]:
    """The tracked objects that refer to at least one of `items`, without tuples that are still being filled."""

def count_worker_objects(name: str, tick_s: float) -> None:
    """Counts the Python objects of a worker process, if that is due. The worker calls this between two batches.

    Args:
        name: Name of the worker for people.
        tick_s: Time between two ticks of the run, in seconds.
    """

def observe_queue(
    name: str, depth: int, seconds: float, *, capacity: int = 0, last: bool = False
) -> None:
    """Records for how long a queue had a depth, for integrations that know every change of the depth.

    Args:
        name: Name of the queue.
        depth: Number of items in the queue.
        seconds: How long the queue had this depth.
        capacity: Maximum number of items in the queue; 0 if it is unknown.
        last: Whether the training loop takes its batches from this queue.
    """

def stage(name: str, *, concurrency: int | None = None, replayable: bool | None = None) -> Stage:
    """Marks one unit of work of a pipeline stage.

        decode = headspace.stage("decode")

        with decode:                      # in any thread
            frames = decode_video(path)

        with decode as work:              # if the call does not take one item and return one item
            frames = decode_video(path)
            work.items(inputs=1, outputs=len(frames), bytes=size)

        async with headspace.stage("fetch"):
            data = await fetch(url)

        @headspace.stage("resize")        # functions, coroutine and generator functions, methods
        def resize(frame): ...

    All threads and tasks may use the same handle at the same time, also recursively and in worker
    processes. Each item that a generator yields is one call.

    If an exception leaves the call, the call counts as failed, and the exception propagates as usual.
    There are two special cases: `GeneratorExit` and `asyncio.CancelledError` are not failures, and a
    call that ends with `StopIteration` is not counted, because there was nothing to do.

    If a stage is called within a call of another stage, it counts as a part of that stage. In
    coroutines use `async with`, which keeps the calls of different tasks apart. A call by `async with`
    is not a part of another stage, and no other stage is a part of it.

    With `HEADSPACE=0` nothing is counted, and a decorated function is returned unchanged.

    Args:
        name: Name of the stage. All handles with this name belong to the same stage.
        concurrency: Maximum number of concurrent calls in this process, such as the number of threads.
            None if it is unknown.
        replayable: Whether a what-if may return a result of another call instead of calling the function.
            Pass False if a call has effects besides its result. Pass True if any result may be returned
            again, as the same object. By default, copies of results that consist of data are returned.

    Raises:
        ValueError: If `concurrency` is less than 1.
    """

def stage_of_loop(
    name: str,
    loop_name: str | None,
    *,
    concurrency: int | None = None,
    hand_off: Literal["send", "receive"] | None = None,
) -> Stage:
    """Marks one unit of work of a stage that makes batches for one loop. Otherwise like `stage`.

    Args:
        name: Name of the stage. All handles with this name belong to the same stage.
        loop_name: Name of the loop in the records. None if it is not known.
        concurrency: As for `stage`.
        hand_off: Which end of the hand-off between processes it measures: ``"send"`` in a worker, or
            ``"receive"`` on the training thread. None for other stages.

    Raises:
        ValueError: If ``hand_off`` is neither.
    """

@final
class Stage:
    """A stage of the pipeline. `headspace.stage` creates it."""

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
        """Adds items to the call in progress, for calls that do not take one item and return one item.
        The numbers of several calls of `items` add up. Negative numbers count as 0.

        Args:
            inputs: Number of input items.
            outputs: Number of output items.
            bytes: Number of bytes processed.
        """

    def record(
        self,
        seconds: float,
        *,
        inputs: int | None = None,
        outputs: int | None = None,
        bytes: int | None = None,
        failed: bool = False,
        cpu_seconds: float | None = None,
    ) -> None:
        """Counts a call that was timed elsewhere. Does nothing if `seconds` is negative or not finite.

        Args:
            seconds: Duration of the call.
            inputs: Number of input items, by default 1.
            outputs: Number of output items. By default 1, or 0 if the call failed.
            bytes: Number of bytes processed.
            failed: Whether the call ended in an exception.
            cpu_seconds: CPU time of the call. Ignored if negative or not finite. At most `seconds` is counted.
        """

    def _record_level(self, level: int, seconds: float) -> None:
        """Counts the duration of a call for the number of calls at once that the program counted, over several processes.
        From then on, the stage does not count the calls at once itself.

        Args:
            level: Number of calls at once. 0 counts nothing.
            seconds: Duration of the call.
        """

    def _begin(self, within: Task | None = None) -> Task:
        """Begins a call that may end in another frame or in another task.

        Args:
            within: The enclosing call, which waits for this call.
        """

    def _add_items(self, inputs: int, outputs: int) -> None:
        """Adds input and output items independently of calls."""

@final
class Task:
    """A call in progress. If it is dropped before `end`, it is not counted."""

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Runs a function on this thread as a part of the call: the thread shows that it is in the stage, and its CPU
        time counts as that of the call."""

    def end(self, kind: type[BaseException] | None, inputs: int, outputs: int) -> None:
        """Ends the call.

        Args:
            kind: Type of the exception that ended the call, or None, as in `__exit__`.
            inputs: Number of input items. A negative number corrects earlier calls.
            outputs: Number of output items.
        """

class _Configuration(TypedDict):
    base: str | PathLike[str]
    run_id: str | None
    counts_objects: bool
    interval: float
    rank: int
    local_rank: int
    rank_on_node: int | None
    ranks_on_node: int | None
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
    """A started run. `headspace.start` returns the public `Session`."""

    def __new__(cls, configuration: _Configuration) -> Session: ...
    @property
    def folder(self) -> Path: ...
    @property
    def records(self) -> Path: ...
    @property
    def is_here(self) -> bool: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def census_costs(self) -> tuple[int, float, float]:
        """Number of censuses of Python objects, their seconds, and the seconds of examinations."""

    def ended_by_exception(self, exception: str, is_error: bool) -> None: ...
    def report_torch_device(self, ordinal: int) -> None: ...
    def describe_batch(self, loop_name: str, parts: tuple[int, int, int, int, int]) -> None: ...
    def refuse_setting(self, setting: str, problem: str) -> None: ...
    def integration_off(self, place: int, integration: str, reason: str) -> None: ...
    def scalars(self, place: int) -> list[tuple[int, float, dict[str, float]]]: ...
    def flush(self, timeout: float) -> bool: ...
    def report(self) -> tuple[str, str, str]: ...
    def verdict_on_ranks(self) -> str | None: ...
    def stop(self) -> tuple[str, str, str] | None: ...

class _PlanOptions(TypedDict, total=False):
    num_caches: int
    return_caches_after: int | None
    stop_after: int | None
    probe_steps: int | None
    what_if_steps: int | None
    keep_data: bool
    stop_after_probe: bool
    exactly_once: bool
    endless: bool
    keep_source: bool
    world_size: int

class _LoopPlan(_PlanOptions):
    mode: str

class _StartObstacle(TypedDict):
    part: str
    type_name: str
    kind: str
    file: str | None
    line: int | None

class _StartFacts(TypedDict):
    bytes: int | None
    objects: int | None
    at_least: bool
    obstacle: _StartObstacle | None
    other_obstacles: list[str]

class _LoaderFacts(TypedDict, total=False):
    type_name: Required[str]
    batches: int | None
    batch_size: int | None
    epochs: int | None
    total_steps: int | None
    count_units: Callable[[Any], int] | None
    unit: str | None
    workers: int | None
    prefetch_depth: int | None
    prefetch_factor: int | None
    pin_memory: bool | None
    ranks_with_same_samples: int | None
    unsplit_stream: bool
    split_twice: bool
    count_samples: Callable[[Any], int | None] | None
    digest_batch: Callable[[Any], int | None] | None
    count_parts: Callable[[Any], tuple[int, int, int, int, int]] | None
    count_bytes: Callable[[Any], int] | None
    sent: _StartFacts | None
    role: str | None
    chosen: bool
    options_from: str | None

@final
class Loop:
    """The loop over a wrapped loader."""

    def __new__(cls, name: str, plan: _LoopPlan, loader: _LoaderFacts | None = None) -> Loop: ...
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
    def step(self, session: Session, samples: int | None = None, gap: bool = False) -> None: ...

@disjoint_base
class LoopIterator:
    """Yields the items of the wrapped iterator. Only `Loop.iterate` creates it."""

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
