"""How long batches of a torch loader wait for their turn.

Workers end their batches in another order than the loop takes them. When each worker ended which, it
notes in memory that it shares with the trainer; the trainer compares as it takes them. A batch's
delay is the time from its own end to the latest end of those before it: it was there, and order
alone kept it back.
"""

from __future__ import annotations

import mmap
import os
import time
from _weakref import ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headspace import _native

#: Bytes of a time, in nanoseconds of the system's monotonic clock.
_TIME = 8

#: Loaders whose workers have more batches under way than that are not watched, in bytes.
_MOST = 1024 * 1024


class Ends:
    """When each worker ended its last batches, in turn.

    The memory is a file without a name, all of it there from the beginning: no full disk can make
    a write to it fail. It goes with the last process that has it.

    Args:
        workers: How many there are.
        ahead: Batches that all of them together may have under way.

    Raises:
        OSError: If there is no such memory.
    """

    def __init__(self, workers: int, ahead: int) -> None:
        self.workers = workers
        # The end of a stream is one more.
        self.room = ahead + 1
        size = workers * self.room * _TIME
        if size > _MOST:
            raise OSError(f"{size} bytes of times")
        #: For workers that are not forked. Closed once all have begun.
        self.file: int | None = os.memfd_create("headspace-order", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(self.file, 0, size)
            self.times = memoryview(mmap.mmap(self.file, size)).cast("q")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """No more workers begin."""
        file, self.file = self.file, None
        if file is not None:
            os.close(file)

    def __reduce__(self) -> tuple[Any, ...]:
        from multiprocessing.context import get_spawning_popen
        from multiprocessing.reduction import DupFd

        if self.file is None or get_spawning_popen() is None:
            return _mapped, (None, self.workers, self.room)
        return _mapped, (DupFd(self.file), self.workers, self.room)

    def notes(self, worker: int) -> Callable[[], None]:
        """What that worker calls at the end of each batch of an epoch."""
        times, begin, room, count = self.times, worker * self.room, self.room, 0

        def note() -> None:
            nonlocal count
            times[begin + count % room] = time.monotonic_ns()
            count += 1

        return note


def _mapped(file: Any, workers: int, room: int) -> Ends | None:
    """The same in a worker that was not forked; None where that does not work."""
    if file is None:
        return None
    try:
        ends = Ends.__new__(Ends)
        ends.workers, ends.room, ends.file = workers, room, None
        number: int = file.detach()
        try:
            ends.times = memoryview(mmap.mmap(number, workers * room * _TIME)).cast("q")
        finally:
            os.close(number)
        return ends
    except Exception:
        return None


def watch(iterator: Any, ends: Ends, stage: Callable[[str], _native.Stage]) -> None:
    """Every batch that the iterator gives out after its turn is told, with how long it waited.

    Args:
        iterator: torch's own for several workers, in which batches keep their order.
        ends: What its workers note.
        stage: Makes a stage of the loop, by its name.
    """
    process, me, times, room = type(iterator)._process_data, ref(iterator), ends.times, ends.room
    record = stage("reorder delay").record
    taken = [0] * ends.workers
    before = latest = 0

    def process_data(data: Any, *rest: Any) -> Any:
        nonlocal before, latest
        iterator: Any = me()
        try:
            (worker,) = rest
            number = iterator._rcvd_idx
            if number <= before:  # Another epoch.
                taken[:] = [0] * len(taken)
                latest = 0
            before = number
            place = worker * room + taken[worker] % room
            taken[worker] += 1
            end, times[place] = times[place], 0
            if end > latest:
                latest = end
            elif end > 0:  # It makes no batch, and so is no part of their way.
                record((latest - end) / 1e9, inputs=0, outputs=0)
        except Exception:  # What is private to torch may be another in its next version.
            pass
        return process(iterator, data, *rest)

    iterator._process_data = process_data
