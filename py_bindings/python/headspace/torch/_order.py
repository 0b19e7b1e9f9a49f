"""Measures how long batches of a torch loader wait for their turn, and how many workers fetch at once.

Workers finish batches in another order than the loop takes them. Each worker writes the time at which it
finished a batch into memory that it shares with the trainer, and the trainer compares the times when it
takes the batches. The delay of a batch is the time from its own end to the latest end of the batches
before it: the batch was ready, and only the order kept it back.

The same memory has a byte for each worker, which says whether the worker fetches a batch. A worker counts these
bytes when its own fetch begins and ends.
"""

from __future__ import annotations

import mmap
import os
import time
from _weakref import ref
from collections.abc import Callable
from typing import Any

from headspace import _native

#: Bytes of a time, in nanoseconds of the system's monotonic clock.
_TIME = 8

#: Most bytes of times. A loader whose workers may have more batches in progress is not watched.
_MAX_BYTES = 1024 * 1024


class BatchEndTimes:
    """The times at which each worker finished its last batches, in a ring buffer per worker, and whether it fetches.

    The memory is an anonymous file, allocated at once, so no write to it can fail. It is freed with the
    last process that has it.

    Args:
        workers: How many there are.
        prefetched: Most batches that all of them together have in progress.

    Raises:
        OSError: If there is no such memory.
    """

    def __init__(self, workers: int, prefetched: int) -> None:
        self.workers = workers
        #: Times per worker. The end of a stream takes one as well.
        self.capacity = prefetched + 1
        size = _size(workers, self.capacity)
        if size > _MAX_BYTES:
            raise OSError(f"{size} bytes of times")
        #: For workers that are not forked. Closed when all have started.
        self.file: int | None = os.memfd_create("headspace-order", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(self.file, 0, size)
            self.times, self.fetching = _views(self.file, workers, self.capacity)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """All workers have started."""
        file, self.file = self.file, None
        if file is not None:
            os.close(file)

    def __reduce__(self) -> tuple[Any, ...]:
        from multiprocessing.context import get_spawning_popen
        from multiprocessing.reduction import DupFd

        if self.file is None or get_spawning_popen() is None:
            return _unpickle, (None, self.workers, self.capacity)
        return _unpickle, (DupFd(self.file), self.workers, self.capacity)

    def recorder(self, worker: int) -> Callable[[], None]:
        """The function that this worker calls at the end of each batch of an epoch."""
        times, begin, capacity, count = self.times, worker * self.capacity, self.capacity, 0

        def record_end() -> None:
            nonlocal count
            times[begin + count % capacity] = time.monotonic_ns()
            count += 1

        return record_end

    def fetch_counter(self, worker: int) -> FetchCounter:
        """Counts the fetches at once for this worker."""
        return FetchCounter(self.fetching, worker)


class FetchCounter:
    """Says when a worker begins and ends a fetch, and how many workers fetch at that time, including itself."""

    #: Whether the worker has fetched before. Its first fetch also opens files and imports modules.
    is_warm = False

    def __init__(self, fetching: memoryview, worker: int) -> None:
        self._fetching = fetching
        self._worker = worker

    def begin(self) -> int:
        self._fetching[self._worker] = 1
        return self._fetching.tobytes().count(1)

    def end(self) -> int:
        count = self._fetching.tobytes().count(1)
        self._fetching[self._worker] = 0
        return count


def _size(workers: int, capacity: int) -> int:
    """Bytes of the times of all workers, and of one byte for each."""
    return workers * capacity * _TIME + workers


def _views(file: int, workers: int, capacity: int) -> tuple[memoryview, memoryview]:
    """The memory of the times, and that of the byte for each worker."""
    memory = memoryview(mmap.mmap(file, _size(workers, capacity)))
    end = workers * capacity * _TIME
    return memory[:end].cast("q"), memory[end:]


def _unpickle(file: Any, workers: int, capacity: int) -> BatchEndTimes | None:
    """The same memory in a worker that was not forked. None if it cannot be mapped."""
    if file is None:
        return None
    try:
        ends = BatchEndTimes.__new__(BatchEndTimes)
        ends.workers, ends.capacity, ends.file = workers, capacity, None
        number: int = file.detach()
        try:
            ends.times, ends.fetching = _views(number, workers, capacity)
        finally:
            os.close(number)
        return ends
    except Exception:
        return None


def watch_order(
    iterator: Any, end_times: BatchEndTimes, stage: Callable[[str], _native.Stage]
) -> None:
    """Records the delay of every batch that the iterator gives out.

    Args:
        iterator: torch's own for several workers, in which batches keep their order.
        end_times: Written by its workers.
        stage: Makes a stage of the loop, by its name.
    """
    process, weak_iterator = type(iterator)._process_data, ref(iterator)
    times, capacity = end_times.times, end_times.capacity
    record = stage("reorder delay").record
    taken = [0] * end_times.workers
    before = latest = 0

    def process_data(data: Any, *rest: Any) -> Any:
        nonlocal before, latest
        iterator: Any = weak_iterator()
        try:
            (worker,) = rest
            number = iterator._rcvd_idx
            if number <= before:  # Another epoch.
                taken[:] = [0] * len(taken)
                latest = 0
            before = number
            place = worker * capacity + taken[worker] % capacity
            taken[worker] += 1
            end, times[place] = times[place], 0
            if end > latest:
                latest = end
            elif end > 0:  # The stage takes in and gives out no batch.
                record((latest - end) / 1e9, inputs=0, outputs=0)
        except Exception:  # These attributes are private to torch, and may change.
            pass
        return process(iterator, data, *rest)

    iterator._process_data = process_data
