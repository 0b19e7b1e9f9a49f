"""Stages with their own threads, connected by bounded queues that keep the order.

The threads of a stage finish items in any order. The queue after the stage delivers them in the order of their
numbers. So an epoch does not depend on the number of threads.

The stages, the queues and the pool are declared to `headspace`, with one line of code for each kind. So the verdict
can name them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import headspace


class PipelineError(Exception):
    """A stage failed. The stage's own exception is the cause."""


class Closed(Exception):
    """The queue was closed."""


class Finished(Exception):
    """All items of the queue were delivered, and no others will follow."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self.total = total


@dataclass(frozen=True)
class Failure:
    """Replaces an item on which a stage failed. The later stages pass it on unchanged."""

    error: PipelineError


class OrderedQueue:
    """A bounded queue that delivers items in the order of their numbers.

    `put` waits until the item's number is less than `maxsize` ahead of the next item to deliver. So there is always
    room for the next item, and the limit cannot cause a deadlock.
    """

    def __init__(self, maxsize: int) -> None:
        if maxsize < 1:
            raise ValueError(f"a queue holds at least 1 item: `{maxsize}`")
        self.maxsize = maxsize
        self._items: dict[int, Any] = {}
        self._next = 0
        self._total: int | None = None
        self._closed = False
        self._changed = threading.Condition()

    def qsize(self) -> int:
        """Items in the queue now."""
        return len(self._items)

    def put(self, number: int, item: Any) -> None:
        """Adds item `number`, counted from 0."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or number < self._next + self.maxsize)
            if self._closed:
                raise Closed
            self._items[number] = item
            self._changed.notify_all()

    def get(self) -> tuple[int, Any]:
        """Removes and returns the next item, with its number."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._next in self._items or self._next == self._total
            )
            if self._closed:
                raise Closed
            if self._next == self._total:
                raise Finished(self._total)
            number = self._next
            self._next += 1
            self._changed.notify_all()
            return number, self._items.pop(number)

    def finish(self, total: int) -> None:
        """Sets the total number of items of the epoch."""
        with self._changed:
            self._total = total
            self._changed.notify_all()

    def close(self) -> None:
        """Wakes all threads that wait here. Later calls fail at once."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()


class Pipeline:
    """The threads and the queues of an epoch. Add sources and stages, then call `start`, and `close` at the end.

    Args:
        pool_threads: If given, one pool with this number of threads does the work of all stages. The threads of a
            stage then only wait for the pool. Their number limits how many threads of the pool the stage can use.
        describe: Describes an item for an error message.
    """

    def __init__(
        self, pool_threads: int | None = None, describe: Callable[[Any], str] = repr
    ) -> None:
        self._describe = describe
        self._pool = ThreadPoolExecutor(pool_threads, "pool") if pool_threads else None
        if self._pool is not None:
            headspace.queue("pool", self._pool)
        self._queues: list[OrderedQueue] = []
        self._threads: list[threading.Thread] = []

    def source(
        self, name: str, items: Iterable[Any], depth: int, last: bool = False
    ) -> OrderedQueue:
        """A queue that one thread fills with `items`. An exception of the iterator becomes its last item."""
        out = self._queue(name, depth, last)

        def feed() -> None:
            number = 0
            try:
                for item in items:
                    out.put(number, item)
                    number += 1
            except Closed:
                raise
            except Exception as cause:
                out.put(number, _failure(f"`{name}` failed: {cause}", cause))
                number += 1
            out.finish(number)

        self._spawn(name, feed, 1)
        return out

    def stage(
        self,
        name: str,
        work: Callable[[Any], Any],
        upstream: OrderedQueue,
        threads: int,
        depth: int,
        last: bool = False,
    ) -> OrderedQueue:
        """A queue that `threads` threads fill with `work(item)` for each item of `upstream`.

        `last` means that the training loop reads from this queue.
        """
        out = self._queue(name, depth, last)
        timed = headspace.stage(name, concurrency=threads)(work)

        def serve() -> None:
            while True:
                try:
                    number, item = upstream.get()
                except Finished as end:
                    return out.finish(end.total)
                out.put(
                    number,
                    item if isinstance(item, Failure) else self._attempt(name, timed, item),
                )

        self._spawn(name, serve, threads)
        return out

    def group(self, name: str, upstream: OrderedQueue, size: int, depth: int) -> OrderedQueue:
        """A queue of lists of `size` items. The last list may be shorter. A failure ends the queue."""

        def batches() -> Iterator[list[Any]]:
            batch: list[Any] = []
            for item in drain(upstream):
                batch.append(item)
                if len(batch) == size:
                    yield batch
                    batch = []
            if batch:
                yield batch

        return self.source(name, batches(), depth)

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends all threads. Each finishes its current item first."""
        for queue in self._queues:
            queue.close()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for thread in self._threads:
            thread.join()

    def _attempt(self, name: str, work: Callable[[Any], Any], item: Any) -> Any:
        try:
            return work(item) if self._pool is None else self._pool.submit(work, item).result()
        except Exception as cause:
            return _failure(f"`{name}` failed on {self._describe(item)}: {cause}", cause)

    def _queue(self, name: str, depth: int, last: bool = False) -> OrderedQueue:
        """Creates the queue after the stage `name`, and declares it to headspace."""
        queue = headspace.queue(f"after {name}", OrderedQueue(depth), last=last)
        self._queues.append(queue)
        return queue

    def _spawn(self, name: str, body: Callable[[], None], count: int) -> None:
        def run() -> None:
            try:
                body()
            except Closed:
                pass

        # The threads are daemons, so that an iterator that was not closed cannot prevent the process from ending.
        self._threads += [
            threading.Thread(target=run, name=f"{name}-{k}", daemon=True) for k in range(count)
        ]


def _failure(message: str, cause: Exception) -> Failure:
    if isinstance(cause, PipelineError):
        return Failure(cause)
    error = PipelineError(message)
    error.__cause__ = cause
    return Failure(error)


def drain(queue: OrderedQueue) -> Iterator[Any]:
    """Yields the items of `queue` in order. Raises the error of a stage that failed."""
    while True:
        try:
            _, item = queue.get()
        except Finished:
            return
        if isinstance(item, Failure):
            raise item.error
        yield item
