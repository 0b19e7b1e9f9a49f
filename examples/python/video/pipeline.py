"""Stages with their own threads, connected by bounded queues that keep the order.

The threads of a stage finish items in any order. The queue after the stage passes them on in the order
of their numbers. So an epoch does not depend on the number of threads.

One line each declares the stages, the queues and the pool to `headspace`, so that the verdict can name them.
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
    """The queue was closed while somebody waited at it."""


class Finished(Exception):
    """The queue is closed and empty."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self.total = total


@dataclass(frozen=True)
class Failure:
    """Replaces an item after a stage failed on it, and passes through the rest of the pipeline."""

    error: PipelineError


class OrderedQueue:
    """A bounded queue that delivers items in the order of their numbers.

    A `put` waits until its number is less than `maxsize` ahead of the next item to deliver. So the
    next item always fits, and the bound cannot cause a deadlock.
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
        """Says how many items there will have been."""
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
    """Threads and queues under construction, then at work; `close` ends them all.

    With `pool_threads`, the stages' work is done by one pool of that many threads, and a stage's
    own threads only wait for it: they bound how much of the pool the stage may hold.
    `describe` says in an error message which item it was.
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
        """A queue fed with `items` by one thread. What their iterator raises ends the queue."""
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
        """A queue of `work(item)` for each item of `upstream`, filled by `threads` threads. `last` means that
        the training loop reads from it."""
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
        """A queue of lists of `size` items, the last one perhaps shorter. A failure ends it."""

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
        """Ends all threads; each still finishes the one item it has in hand."""
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
        """The queue behind the stage of that name."""
        queue = headspace.queue(f"after {name}", OrderedQueue(depth), last=last)
        self._queues.append(queue)
        return queue

    def _spawn(self, name: str, body: Callable[[], None], count: int) -> None:
        def run() -> None:
            try:
                body()
            except Closed:
                pass

        # Daemons, so that an iterator somebody forgot cannot keep the process from ending.
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
    """The items of `queue` in order. Raises what a stage raised."""
    while True:
        try:
            _, item = queue.get()
        except Finished:
            return
        if isinstance(item, Failure):
            raise item.error
        yield item
