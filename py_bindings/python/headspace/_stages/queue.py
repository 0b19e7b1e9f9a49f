"""`headspace.queue`: how the depth of each kind of queue is read.

Queues of the standard library are read by their fields and not by ``qsize()``, which may wait for a
lock that the pipeline holds.
"""

from __future__ import annotations

import sys
from _weakref import ref

from headspace import _native, _settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Q = TypeVar("Q")

    #: Depth, capacity, and of a pool how many workers have an item in hand and how many there can be.
    Seen = tuple[int, int | None, int | None, int | None]

#: A depth or a capacity is no more than this in the records.
_MOST = 2**32 - 1


def queue(
    name: str,
    q: Q = None,  # type: ignore[assignment]
    *,
    depth: Callable[[], int] | None = None,
    capacity: int | Callable[[], int] | None = None,
    last: bool = False,
) -> Q:
    """Watch how full a queue of the pipeline is.

        decoded = headspace.queue("decoded", queue.Queue(maxsize=32))

        headspace.queue("frames", depth=lambda: len(buffer), capacity=64)

    Queues of ``queue``, ``asyncio`` and ``multiprocessing``, a ``collections.deque``, the executors of
    ``concurrent.futures`` (what waits for a free worker, and how many workers are at work) and any
    object with ``qsize()`` are known; of anything else say its ``depth``. While a session goes on, it
    is looked at from a thread of headspace's own, about ten times a second at first and once a second
    after ten seconds. With ``HEADSPACE=0`` this only returns ``q``.

    Args:
        name: What the queue is called. Of two with one name, the newer is watched.
        q: The queue. It is held weakly, so watching does not keep it alive; where it cannot be
            (its class has ``__slots__`` without ``__weakref__``), it is kept.
        depth: Says how many items wait. Must not block; kept as long as the queue is watched.
            One that raises is not asked again.
        capacity: How many items fit, or what says so; by default what ``q`` says.
        last: Whether the training loop takes its batches out of this queue.

    Returns:
        ``q``.

    Raises:
        TypeError: If neither ``q`` nor ``depth`` says how many items wait.
    """
    if not _settings.enabled():
        return q
    look_inside = None
    if depth is None:
        look_inside = _reader(q)
        if look_inside is None:
            raise TypeError(
                f"the depth of a `{type(q).__qualname__}` is not known: "
                f'write `headspace.queue("{name}", depth=...)`'
            )
    _native.watch_queue(name, _look(_held(q), look_inside, depth, capacity), last)
    return q


def _look(
    held: Callable[[], Any],
    look_inside: Callable[[Any], Seen | None] | None,
    depth: Callable[[], int] | None,
    capacity: int | Callable[[], int] | None,
) -> Callable[[], tuple[int, int] | tuple[int, int, int, int] | None]:
    """What the native thread calls, as `_native.watch_queue` has it."""

    def look() -> tuple[int, int] | tuple[int, int, int, int] | None:
        waiting: int
        room: int | None = None
        active: int | None = None
        places: int | None = None
        q = held()
        if q is None:
            return None
        if look_inside is not None:
            seen = look_inside(q)
            if seen is None:
                return None
            waiting, room, active, places = seen
        elif depth is not None:
            waiting = depth()
            room = _maxsize(q)
        if capacity is not None:
            room = capacity() if callable(capacity) else capacity
        if active is None or places is None:
            return _count(waiting), _room(room)
        places = _count(places)
        return _count(waiting), _room(room), min(_count(active), places), places

    return look


def _room(given: int | None) -> int:
    # Python's own "no limit" is 0, that of multiprocessing the largest semaphore.
    room = _count(given or 0)
    return room if room < 2**31 - 1 else 0


def _count(given: int) -> int:
    return max(0, min(int(given), _MOST))


def _held(q: Any) -> Callable[[], Any]:
    if q is None:  # There are callables only.
        return lambda: ()
    try:
        return ref(q)
    except TypeError:
        return lambda: q


def _maxsize(q: Any) -> int | None:
    for name in ("maxsize", "_maxsize", "maxlen"):
        room = getattr(q, name, None)
        if isinstance(room, int):
            return room
    return None


def _reader(q: Any) -> Callable[[Any], Seen | None] | None:
    """How that kind of object is read. A pool that has ended gives None."""
    modules = {base.__module__.partition(".")[0] for base in type(q).__mro__}
    if "concurrent" in modules:
        if hasattr(q, "_work_queue"):
            return _of_threads
        if hasattr(q, "_pending_work_items"):
            return _of_processes
    if hasattr(q, "maxlen") and hasattr(q, "__len__"):
        return lambda q: (len(q), q.maxlen, None, None)
    # `queue.Queue` has `queue`, `asyncio.Queue` has `_queue`; both know their length without a lock.
    if "queue" in modules and hasattr(q, "queue"):
        return lambda q: (len(q.queue), q.maxsize, None, None)
    if "asyncio" in modules and hasattr(q, "_queue"):
        return lambda q: (len(q._queue), q._maxsize, None, None)
    if callable(getattr(q, "qsize", None)):
        return lambda q: (q.qsize(), _maxsize(q), None, None)
    return None


def _of_threads(pool: Any) -> Seen | None:
    work = pool._work_queue
    threads = [thread for thread in list(pool._threads) if thread.is_alive()]
    # At its end something that is no work is put in, to wake the threads up.
    ends = bool(getattr(pool, "_shutdown", False))
    if ends and not threads:
        return None
    places = getattr(pool, "_max_workers", None)
    return work.qsize() - ends, None, _at_work(threads, work), places


def _at_work(threads: list[Any], work: Any) -> int | None:
    """How many threads of a pool are in a call; None where that cannot be told.

    What the pool itself counts as idle is not: before 3.12 it counts ends of calls, and later it
    misses some. A thread without a call waits in the pool's loop, with nothing on top of it.
    """
    loop = getattr(sys.modules.get("concurrent.futures.thread"), "_worker", None)
    # Another queue than the native one has frames of its own in which a thread waits.
    if loop is None or type(work).__module__ != "_queue":
        return None
    for thread in threads:
        # It is gone from a thread that has just ended.
        if getattr(thread, "_target", loop) is not loop:
            return None
    identifiers = [thread.ident for thread in threads]
    return _native.threads_beyond(identifiers, loop.__code__)


def _of_processes(pool: Any) -> Seen | None:
    # All calls without a result: those that nobody has asked for, those on their way to the
    # processes, and those that a process works on.
    pending = len(pool._pending_work_items or ())
    asked: Any = getattr(pool, "_work_ids", None)
    sent: Any = getattr(pool, "_call_queue", None)
    places = getattr(pool, "_max_workers", None)
    if sent is None and pending == 0:
        return None
    if sent is None or not hasattr(asked, "queue"):  # It ends, or is of another kind.
        return pending - len(pool._processes or ()), None, None, None
    waiting = len(asked.queue) + sent.qsize()
    return waiting, None, max(0, pending - waiting), places
