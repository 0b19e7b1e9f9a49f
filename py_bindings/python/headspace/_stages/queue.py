"""Implements `headspace.queue`: reads the depth of each kind of queue.

The depth of queues of the standard library is read from their fields, because ``qsize()`` may wait for a
lock that the pipeline holds.
"""

from __future__ import annotations

import sys
from _weakref import ref

from headspace import _native, _settings
from headspace._processes.private_parts import call_ignoring_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Q = TypeVar("Q")

    #: Depth and capacity; for a pool also the number of busy workers and the number of all workers.
    Reading = tuple[int, int | None, int | None, int | None]

#: Largest depth or capacity in the records.
_MAX_COUNT = 2**32 - 1


def queue(
    name: str,
    q: Q = None,  # type: ignore[assignment]
    *,
    depth: Callable[[], int] | None = None,
    capacity: int | Callable[[], int] | None = None,
    last: bool = False,
) -> Q:
    """Measures how full a queue of the pipeline is.

        decoded = headspace.queue("decoded", queue.Queue(maxsize=32))

        headspace.queue("frames", depth=lambda: len(buffer), capacity=64)

    Supports the queues of ``queue``, ``asyncio`` and ``multiprocessing``, ``collections.deque``, the
    executors of ``concurrent.futures``, and any object with ``qsize()``. For other objects, pass ``depth``.
    The depth of an executor is the number of calls that wait for a worker. The number of its busy workers is
    recorded separately.

    During a session, a thread of headspace samples the depth: about ten times per second in the first ten
    seconds, then once per second. With ``HEADSPACE=0``, this function only returns ``q``.

    Args:
        name: Name of the queue. If two queues have the same name, the newer one is measured. If a pipeline
            has more stages than queues, name a queue after the stage that fills it: ``decoded``,
            ``decode_queue`` or ``after decode``.
        q: The queue. headspace does not keep it alive, unless its class allows no weak references
            (``__slots__`` without ``__weakref__``).
        depth: Function that returns the number of waiting items. It must not block. If it raises an
            exception, it is not called again. headspace keeps it alive while the queue is measured.
        capacity: Maximum number of items, or a function that returns it. By default that of ``q``.
        last: Whether the training loop takes its batches from this queue. If it is a ``multiprocessing.Queue``,
            its ``get`` in this process is then timed as the stage ``hand-off``, and the serialization of the
            items that other processes put into it as the stage ``hand-off (worker)``. If a loader or another
            queue has these names already, they begin with the name of this queue.

    Returns:
        ``q``.

    Raises:
        TypeError: If neither ``q`` nor ``depth`` gives the number of waiting items.
    """
    if not _settings.enabled():
        return q
    read_queue = _reader(q, depth)
    if read_queue is None:
        raise TypeError(
            f"headspace cannot read the depth of a `{type(q).__qualname__}`: "
            f'write `headspace.queue("{name}", depth=...)`'
        )
    _native.watch_queue(name, _make_reader(_weakly(q), read_queue, capacity), last)
    if last:
        call_ignoring_errors(_watch_hand_off, name, q)
    return q


def _watch_hand_off(name: str, q: object) -> None:
    """Times the hand-off of batches from other processes."""
    from headspace._loops.owner import claim_prefix
    from headspace._processes.hand_off import (
        hand_off_stage,
        is_process_queue,
        time_items,
        time_receipt,
    )

    if is_process_queue(q):
        prefix = claim_prefix("", ("queue", name), "hand-off")
        receive = hand_off_stage("receive", prefix=prefix)
        time_receipt(q, receive, _describe_received, weakly=False)
        time_items(q, prefix)


def _describe_received(item: object) -> None:
    """Describes a batch of the loop for which it is received."""
    from headspace._loops.batch_parts import report_parts
    from headspace._loops.nesting import enclosing_loop

    loop = enclosing_loop()
    if loop is not None:
        report_parts(item, loop.name)


def _make_reader(
    get_queue: Callable[[], Any],
    read_queue: Callable[[Any], Reading | None],
    capacity: int | Callable[[], int] | None,
) -> Callable[[], tuple[int, int] | tuple[int, int, int, int] | None]:
    """The function that the native thread calls; see `_native.watch_queue`."""

    def read() -> tuple[int, int] | tuple[int, int, int, int] | None:
        q = get_queue()
        reading = None if q is None else read_queue(q)
        if reading is None:
            return None
        waiting, limit, active, workers = reading
        if capacity is not None:
            limit = capacity() if callable(capacity) else capacity
        if active is None or workers is None:
            return _count(waiting), _finite_capacity(limit)
        workers = _count(workers)
        return _count(waiting), _finite_capacity(limit), min(_count(active), workers), workers

    return read


def _finite_capacity(given: int | None) -> int:
    # "No limit" is 0 in the standard library, and the largest value of a semaphore in multiprocessing.
    limit = _count(given or 0)
    return limit if limit < 2**31 - 1 else 0


def _count(given: int) -> int:
    return max(0, min(int(given), _MAX_COUNT))


def _weakly(q: Any) -> Callable[[], Any]:
    if q is None:  # `depth` and `capacity` are enough.
        return lambda: ()
    try:
        return ref(q)
    except TypeError:
        return lambda: q


def _maxsize(q: Any) -> int | None:
    limits = (getattr(q, name, None) for name in ("maxsize", "_maxsize", "maxlen"))
    return next((limit for limit in limits if isinstance(limit, int)), None)


def _reader(q: Any, depth: Callable[[], int] | None) -> Callable[[Any], Reading | None] | None:
    """The function that reads this kind of object. It returns None for a pool that has ended."""
    if depth is not None:
        return lambda q: (depth(), _maxsize(q), None, None)
    modules = {base.__module__.partition(".")[0] for base in type(q).__mro__}
    if "concurrent" in modules:
        if hasattr(q, "_work_queue"):
            return _read_thread_pool
        if hasattr(q, "_pending_work_items"):
            return _read_process_pool
    if hasattr(q, "maxlen") and hasattr(q, "__len__"):
        return lambda q: (len(q), q.maxlen, None, None)
    # `queue.Queue` has `queue`, `asyncio.Queue` has `_queue`. The length of both can be read without a lock.
    if "queue" in modules and hasattr(q, "queue"):
        return lambda q: (len(q.queue), q.maxsize, None, None)
    if "asyncio" in modules and hasattr(q, "_queue"):
        return lambda q: (len(q._queue), q._maxsize, None, None)
    if callable(getattr(q, "qsize", None)):
        return lambda q: (q.qsize(), _maxsize(q), None, None)
    return None


def _read_thread_pool(pool: Any) -> Reading | None:
    work = pool._work_queue
    threads = [thread for thread in list(pool._threads) if thread.is_alive()]
    # A pool that shuts down puts a None into its queue, to wake up the threads.
    ends = bool(getattr(pool, "_shutdown", False))
    if ends and not threads:
        return None
    workers = getattr(pool, "_max_workers", None)
    return work.qsize() - ends, None, _count_busy(threads, work), workers


def _count_busy(threads: list[Any], work: Any) -> int | None:
    """Number of a pool's threads that are in a call. None if it is unknown.

    The pool's own count of idle threads is not used: before Python 3.12 it counts ends of calls, and later
    versions miss some idle threads. An idle thread waits in the pool's own function, which calls no other
    Python function.
    """
    loop = getattr(sys.modules.get("concurrent.futures.thread"), "_worker", None)
    # A thread that waits at another queue than the native one runs a Python function of that queue.
    if loop is None or type(work).__module__ != "_queue":
        return None
    # A thread that has just ended has no target.
    if any(getattr(thread, "_target", loop) is not loop for thread in threads):
        return None
    return _native.threads_beyond([thread.ident for thread in threads], loop.__code__)


def _read_process_pool(pool: Any) -> Reading | None:
    # Calls without a result: waiting, on their way to a process, or running in one.
    pending = len(pool._pending_work_items or ())
    asked: Any = getattr(pool, "_work_ids", None)
    sent: Any = getattr(pool, "_call_queue", None)
    workers = getattr(pool, "_max_workers", None)
    if sent is None and pending == 0:
        return None
    if sent is None or not hasattr(asked, "queue"):  # It is shutting down, or of another kind.
        return pending - len(pool._processes or ()), None, None, None
    waiting = len(asked.queue) + sent.qsize()
    return waiting, None, max(0, pending - waiting), workers
