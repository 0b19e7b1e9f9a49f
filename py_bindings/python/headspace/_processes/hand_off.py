"""Times both ends of the hand-off of batches through a queue of `multiprocessing`.

In the worker, a thread of the queue serializes each batch and writes it to a pipe. In the trainer, the thread that
takes the batch reads and deserializes it. The time in the pipe does not count, because one end waits there for the
other.
"""

from __future__ import annotations

import importlib
import os
import select
import sys
import time
from _weakref import ref
from functools import partial

from headspace._native import stage_of_loop
from headspace._processes.private_parts import call_ignoring_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from headspace import _native

#: Names of the stages of the two ends.
_STAGES: dict[Literal["send", "receive"], str] = {
    "send": "hand-off (worker)",
    "receive": "hand-off",
}

#: Number of the item of a queue that is described: early, so that this is part of the warm-up.
DESCRIBED_ITEM = 2


def hand_off_stage(
    end: Literal["send", "receive"], loop_name: str | None = None, prefix: str = ""
) -> _native.Stage:
    """The stage of an end.

    Args:
        loop_name: The loop that the batches are for. None if it is not known.
        prefix: Put before the name of the stage.
    """
    return stage_of_loop(f"{prefix}{_STAGES[end]}", loop_name, concurrency=1, hand_off=end)


def is_process_queue(thing: object) -> bool:
    """Whether it is a `multiprocessing.Queue` or a queue derived from it."""
    # While another thread imports the module, it has no `Queue` yet.
    kind = getattr(sys.modules.get("multiprocessing.queues"), "Queue", None)
    return kind is not None and isinstance(thing, kind)


class Receipts:
    """Times how long this process takes to receive an item that is there, and to read it.

    An item is there when its first bytes are in the pipe of the queue.
    """

    def __init__(
        self, queue: Any, stage: _native.Stage, received: Callable[[Any], None] | None = None
    ) -> None:
        """
        Args:
            queue: A `multiprocessing.Queue`. No reference to it is kept.
            stage: Counts the receipts.
            received: Called once, with item number `DESCRIBED_ITEM`.
        """
        self._stage, self._received = stage, received
        self._process = os.getpid()
        self._arrived_ns = self._count = 0
        poll, receive_bytes = queue._poll, queue._recv_bytes
        pipe = select.poll()
        pipe.register(queue._reader.fileno(), select.POLLIN)

        def noting_poll(*args: Any) -> Any:
            has_data = poll(*args)
            self._arrived_ns = time.monotonic_ns()
            return has_data

        def noting_receive_bytes(*args: Any) -> Any:
            if not self._arrived_ns:  # `get` without a timeout does not poll.
                pipe.poll()
                self._arrived_ns = time.monotonic_ns()
            return receive_bytes(*args)

        queue._poll, queue._recv_bytes = noting_poll, noting_receive_bytes

    def time(self, get: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls `get`, and times the receipt of its item."""
        self._arrived_ns = 0
        item = get(*args, **kwargs)
        # If two threads take items at the same time, a time can be lost or too short, but no item is lost.
        begun_ns = self._arrived_ns
        if begun_ns and os.getpid() == self._process:
            call_ignoring_errors(self._stage.record, (time.monotonic_ns() - begun_ns) / 1e9)
        self._count += 1
        if self._count == DESCRIBED_ITEM and self._received is not None:
            call_ignoring_errors(self._received, item)
        return item


def time_receipt(
    queue: Any,
    stage: _native.Stage,
    received: Callable[[Any], None] | None = None,
    *,
    weakly: bool = True,
) -> None:
    """Times the receipts of a queue.

    Args:
        queue, stage, received: As for :class:`Receipts`.
        weakly: Whether the new `get` holds only a weak reference to the queue.
    """
    if "get" in vars(queue):  # It is timed already.
        return
    get = type(queue).get
    get_queue: Callable[[], Any] = ref(queue) if weakly else lambda: queue
    receipts = Receipts(queue, stage, received)

    def timed_get(*args: Any, **kwargs: Any) -> Any:
        return receipts.time(get, get_queue(), *args, **kwargs)

    queue.get = timed_get


def time_sending(stage: _native.Stage, is_batch: Callable[[object], bool]) -> None:
    """In a worker: times the serialization of the batches that it puts into queues of `multiprocessing`.

    Args:
        stage: Counts the batches.
        is_batch: Whether an object that is put into a queue is, or contains, a batch.
    """
    queues: Any = importlib.import_module("multiprocessing.queues")
    earlier: Any = queues._ForkingPickler

    class TimedPickler(earlier):  # type: ignore[misc]
        """Serializes as before. Only the queues of `multiprocessing` use it."""

        @classmethod
        def dumps(cls, obj: Any, protocol: int | None = None) -> Any:
            if not is_batch(obj):
                return earlier.dumps(obj, protocol)
            begun_ns, begun_cpu_ns = time.monotonic_ns(), time.thread_time_ns()
            data = earlier.dumps(obj, protocol)
            seconds = (time.monotonic_ns() - begun_ns) / 1e9
            cpu_seconds = (time.thread_time_ns() - begun_cpu_ns) / 1e9
            call_ignoring_errors(stage.record, seconds, cpu_seconds=cpu_seconds)
            return data

    queues._ForkingPickler = TimedPickler


#: Most items that are expected to be serialized. A derived queue may put other objects into the pipe instead.
_MAX_WAITING = 4096


class _SentItems:
    """The items that other processes put into the queues of :func:`time_items`, while they wait to be serialized."""

    def __init__(self) -> None:
        self.waiting: set[int] = set()
        #: The process whose items are timed. A forked child of it begins again.
        self.process = 0

    def put(self, prefix: str, queue: Any, obj: object, *args: Any, **kwargs: Any) -> None:
        """Puts an item. `prefix` is put before the name of the stage."""
        if self.process != os.getpid():
            self.waiting.clear()
            self.process = os.getpid()
            call_ignoring_errors(self.begin, prefix)
        if len(self.waiting) >= _MAX_WAITING:
            self.waiting.clear()
        # The queue holds the item until it is serialized, so its address stays its own.
        self.waiting.add(id(obj))
        try:
            type(queue).put(queue, obj, *args, **kwargs)
        except BaseException:
            self.waiting.discard(id(obj))
            raise

    def begin(self, prefix: str) -> None:
        time_sending(hand_off_stage("send", prefix=prefix), self.take)

    def take(self, obj: object) -> bool:
        """Removes an item. Returns whether it was waiting."""
        try:
            self.waiting.remove(id(obj))
        except KeyError:
            return False
        return True


_sent = _SentItems()


def time_items(queue: Any, prefix: str) -> None:
    """Times the serialization of the items that other processes put into this queue.

    Args:
        queue: A `multiprocessing.Queue`. A process receives it by fork, or pickled.
        prefix: Put before the name of the stage. The queue that is used first gives a process its prefix.
    """
    if "put" in vars(queue):  # Its items are timed already, or it has a `put` of its own.
        return
    trainer = os.getpid()

    def put(obj: object, *args: Any, **kwargs: Any) -> None:
        if os.getpid() == trainer:
            type(queue).put(queue, obj, *args, **kwargs)
        else:
            _sent.put(prefix, queue, obj, *args, **kwargs)

    def reduce(protocol: int) -> tuple[Any, ...]:
        own_reduce: Any = type(queue).__reduce_ex__
        return _receive_queue, (own_reduce(queue, protocol), prefix)

    # Pickling asks the object itself for its `__reduce_ex__`.
    queue.put, queue.__reduce_ex__ = put, reduce


def _receive_queue(reduced: tuple[Any, ...], prefix: str) -> Any:
    """The queue of :func:`time_items` in a process that received it pickled: `reduced` by its own class."""
    make, args, *state = reduced
    queue = make(*args)
    if state and state[0] is not None:
        queue.__setstate__(state[0])
    queue.put = partial(_sent.put, prefix, queue)
    return queue
