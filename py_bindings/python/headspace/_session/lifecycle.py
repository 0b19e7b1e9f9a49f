"""Starts and ends the session of this process: by `start()`, or at the first iteration of a wrapped loader."""

from __future__ import annotations

import atexit
import os
import sys
from _thread import RLock

from headspace import _environment, _native, _settings
from headspace._session import stderr, threads
from headspace._session.report import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from headspace.config import Destination
    from headspace.integrations._sink import Feed, Sink

#: The running session of this process, or of the process from which this process was forked.
current: Session | None = None

#: Whether a session was started in this process.
has_begun = False

#: Number of sessions of this process that have ended.
ended = 0

#: The report of the last session of this process that has ended.
last_report: Report | None = None

#: Whether the default session could not be started. One line reports this. Later epochs do not try again.
has_failed = False

#: The loop of `step()`.
steps_loop: _native.Loop | None = None

#: Held while a session is started. So threads that begin to iterate at the same time get the same session.
_starting = RLock()


def _after_fork() -> None:
    # The thread that holds the lock may not exist in the child.
    global _starting
    _starting = RLock()


os.register_at_fork(after_in_child=_after_fork)


class Session:
    """The measurement of this process. Begins with :func:`start`; ends with :func:`stop` or a ``with`` block."""

    __slots__ = ("_feed", "_native", "_prints_verdict", "_records")

    def __init__(self, native: _native.Session, *, prints_verdict: bool, feed: Feed | None) -> None:
        self._native = native
        self._feed = feed
        self._prints_verdict = prints_verdict
        # The program may change its working directory later.
        self._records = os.path.abspath(native.records)

    @property
    def folder(self) -> str:
        """Path of the run folder."""
        return str(self._native.folder)

    def pause(self) -> None:
        """Pauses the measurement while training continues: batches are not counted."""
        self._native.pause()

    def resume(self) -> None:
        """Resumes the measurement. No step includes the pause."""
        self._native.resume()

    def flush(self, timeout: float = 2.0) -> bool:
        """Writes all pending records. Returns whether they were delivered within ``timeout`` seconds."""
        return self._native.flush(timeout)

    def report(self) -> Report:
        """Report of the run so far.

        Raises:
            RuntimeError: In a process that was forked after the start of the session.
        """
        return Report(*self._native.report(), self._records)

    def stop(self) -> Report | None:
        """Ends the run and prints its verdict.

        Rank 0 of several prints the verdict on all ranks, and waits at most 2 seconds until they have ended. The
        report is that of this rank. Waits at most 2 seconds for the last records. Returns None if the run has already
        ended, and in a process that was forked after the start of the session.
        """
        # No import here, because this function runs at exit. There, an import changes the exit status of Python
        # 3.10 after Ctrl-C.
        global current, ended, last_report
        if current is self and self._native.is_here:
            current = None
            ended += 1
            last_report = None  # That of an earlier session is not the report of this one.
        rendered = self._native.stop()
        if rendered is None:
            return None
        atexit.unregister(self._at_exit)
        if self._feed is not None:
            self._feed.finish()
        if self._prints_verdict:
            stderr.write_line(self._native.verdict_on_ranks() or rendered[1])
        last_report = Report(*rendered, self._records)
        return last_report

    def _at_exit(self) -> None:
        """Ends the run at the end of the program."""
        self._ended_by(_uncaught())
        self.stop()

    def _ended_by(self, exception: type[BaseException] | None) -> None:
        # A program that raises `SystemExit` ends itself: this is no failure.
        if exception is not None and not issubclass(exception, SystemExit):
            is_error = issubclass(exception, Exception)
            self._native.ended_by_exception(exception.__name__, is_error)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended_by(kind)
        self.stop()


def _uncaught() -> type[BaseException] | None:
    """The type of the exception that ends the program. None if the program ends without one."""
    # Python stores the exception before it calls exit handlers. In an interactive session, it stores the
    # exception of the last failed command, which did not end the program.
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return None
    error = getattr(sys, "last_exc", None)  # From Python 3.12 on.
    kind = getattr(sys, "last_type", None) if error is None else type(error)
    return kind if isinstance(kind, type) else None


def start(
    *,
    to: Destination | Iterable[Destination] | None = None,
    interval: float | str | None = None,
    run_id: str | None = None,
    quiet: bool | None = None,
) -> Session:
    """Measures this process until the session ends.

        with headspace.start(to=headspace.JsonLines("runs")):
            train()

    Args:
        to: Where records go: one destination or several. A path is a folder for JSON lines. JSON lines are
            always written: by default in ``HEADSPACE_DIR``, else in ``headspace-runs``.
            ``HEADSPACE_EXPORT`` adds destinations.
        interval: Seconds between two ticks, at least 0.001, or a text such as ``250ms``. A shorter interval
            gives more detail and costs more. By default ``HEADSPACE_INTERVAL``, else 1.
        run_id: Name of the run folder. By default the time and the process ID.
        quiet: Whether to print nothing on stderr. By default ``HEADSPACE_QUIET``, else no.

    Raises:
        TypeError: If ``to`` is not a destination.
        ValueError: If ``interval`` is too short, an option of a destination is invalid, or ``to`` names two
            folders.
        OSError: If the run folder or its file cannot be created, or a destination cannot be opened.
            Training has not started yet.
        RuntimeError: If a session is already running.
    """
    with _starting:
        return _start(to=to, interval=interval, run_id=run_id, quiet=quiet)


def _start(
    *,
    to: Destination | Iterable[Destination] | None = None,
    interval: float | str | None = None,
    run_id: str | None = None,
    quiet: bool | None = None,
    origin: int | None = None,
) -> Session:
    """Starts a session, as `start` does. The caller holds `_starting`.

    Args:
        to: As for `start`. The same holds for `interval`, `run_id` and `quiet`.
        origin: Value of the clock (`_native.ticks`) at which the session's time begins: at the first
            iteration or step. None means now.
    """
    global current, has_begun
    if current is not None and current._native.is_here:
        raise RuntimeError(
            f"a session is already running, in `{current.folder}`: call `headspace.stop()` first"
        )
    from headspace import _run_marker
    from headspace._session.destinations import sort_destinations
    from headspace._session.run_id import shared_run_id

    base, exports, asked = sort_destinations(to)
    silent = _environment.is_quiet() if quiet is None else quiet
    # If the process has no stderr, descriptor 2 may belong to another file.
    silent = silent or sys.__stderr__ is None
    seconds = _settings.interval() if interval is None else _seconds(interval)
    rank = _environment.read_rank()
    sinks: list[Sink] = []
    try:
        for sink in asked:
            if sink.open(rank):
                sinks.append(sink)  # noqa: PERF401 - if the next one raises, these are closed.
        feed = _feed_of(sinks, seconds, silent)
        base = base or _settings.directory()
        mode = _settings.mode()
        memory = _settings.memory()
        kinds = {kind for kind, _, _ in exports}
        # The function is long because this configuration has a line for each field.
        native = _native.Session(
            {
                "base": base,
                "run_id": shared_run_id() if run_id is None else run_id,
                "interval": seconds,
                "rank": rank,
                "local_rank": _settings.local_rank(),
                "rank_on_node": _settings.rank_on_node(),
                "ranks_on_node": _settings.ranks_on_node(),
                "world_size": _settings.world_size(),
                "mode": mode,
                "versions": _settings.versions(_native.__version__),
                # An argument that is not UTF-8 has surrogates.
                "argv": [str(argument).encode(errors="replace").decode() for argument in sys.argv],
                "settings": {
                    "interval": f"{seconds:g}s",
                    "dir": str(base),
                    "mode": mode,
                    "memory": memory,
                },
                "quiet": silent,
                "origin": origin,
                "exports": [*exports, *_settings.export(besides=kinds)],
                "scalars": len(sinks),
                "counts_objects": memory != _settings.OFF,
                "libraries": _settings.libraries() if _settings.samples_stacks() else None,
            }
        )
    except BaseException:
        _close_sinks(sinks)
        raise
    if memory == _settings.TRACEMALLOC:
        _trace_allocations()
    session = Session(native, prints_verdict=not (silent or rank), feed=feed)
    _record_refused_settings(native)
    current = session
    has_begun = True
    _run_marker.create()
    atexit.register(session._at_exit)
    if feed is not None:
        feed.start(native)
    return session


def _trace_allocations() -> None:
    """Starts Python's own record of where objects are allocated. It ends with the program."""
    import tracemalloc

    if not tracemalloc.is_tracing():
        # Some frames, since a library often allocates for the program.
        tracemalloc.start(8)


def _close_sinks(sinks: Iterable[Sink]) -> None:
    """Closes sinks after an error."""
    for sink in sinks:
        try:
            sink.close()
        except Exception:  # The first error is the one that the caller must see.
            pass


def _feed_of(sinks: list[Sink], interval: float, quiet: bool) -> Feed | None:
    """The threads that send metrics to the sinks. None without sinks, so that nothing is imported."""
    if not sinks:
        return None
    from headspace.integrations._sink import Feed

    return Feed(sinks, interval, quiet)


def _record_refused_settings(native: _native.Session) -> None:
    """Records the settings that were invalid."""
    while _environment.refused:
        try:
            refused = _environment.refused.pop(0)
        except IndexError:  # Another thread records them, too.
            return
        native.refuse_setting(*refused)


def _seconds(interval: float | str) -> float:
    seconds = _settings.duration(interval) if isinstance(interval, str) else float(interval)
    if seconds is None or not seconds >= 0.001:
        raise ValueError(f"`interval` is not a duration of 1 ms or more: {interval!r} (write 0.5)")
    return seconds


def begin(origin: int) -> _native.Session | None:
    """Returns the session to which a wrapped loader records. Starts a session if there is none.

    Returns None in a process that was forked after the start of the session, because the worker of a loader
    does not train. Also returns None if no session can be started: training then continues without
    measurement.
    """
    session = current  # Read once: another thread may end it.
    if session is None:
        with _starting:
            return _begin_first_session(origin)
    if not session._native.is_here:
        return None
    _record_refused_settings(session._native)
    _report_device(session._native)
    return session._native


def _report_device(session: _native.Session) -> None:
    """Records the GPU that the main thread uses, which is the GPU of this rank."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        # Each thread has a current device of its own.
        if cuda is not None and threads.is_main_thread() and cuda.is_initialized():
            session.report_torch_device(cuda.current_device())
    except Exception:
        pass  # The GPU is then found by the memory of the process, or by its local rank.


def _begin_first_session(origin: int) -> _native.Session | None:
    global has_failed
    session = current
    if session is not None:  # Another thread was faster.
        return session._native
    if has_failed or not _settings.enabled():
        return None
    try:
        native = _start(origin=origin)._native
        _report_device(native)
        return native
    except Exception as error:
        has_failed = True
        if not _environment.is_quiet():
            stderr.write_line(f"headspace: nothing is measured: {error}. Training continues.")
        return None


def stop() -> Report | None:
    """Ends the session and prints its verdict. Returns None if no session is running."""
    session = current
    return None if session is None else session.stop()


def report() -> Report | None:
    """Report of the run so far. None if no session runs, or if this process was forked after the session began."""
    session = current
    return None if session is None or not session._native.is_here else session.report()


def step(samples: int | None = None) -> None:
    """Records the end of a step in a loop that iterates no loader.

        for _ in range(1000):
            train_step(next_batch())
            headspace.step(samples=32)

    This does not measure the wait for data. If there is a loader, wrap it instead.

    Args:
        samples: Number of samples in the step.
    """
    global steps_loop
    if not _settings.enabled():
        return
    if steps_loop is None:
        steps_loop = _native.Loop("steps", {"mode": "measure"})
    record_step(steps_loop, samples)


def record_step(loop: _native.Loop, samples: int | None, *, gap: bool = False) -> None:
    """Records the end of a step in the session. Starts a session if there is none.

    Args:
        gap: Whether the program did something else since the last step.
    """
    session = current  # Read once: another thread may end it.
    native = session._native if session is not None else begin(_native.ticks())
    if native is not None and native.is_here:
        loop.step(native, samples, gap)
