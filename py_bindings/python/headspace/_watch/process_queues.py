"""Times the receipt of batches that a loop without a loader takes from a queue of `multiprocessing`.

The program may keep a reference to the `get` of a queue before the loop is known, so the method of the class is
replaced. The serialization in the other processes is not timed: they may have begun before the loop.
"""

from __future__ import annotations

import importlib
from functools import partial

from headspace._loops.batch_parts import report_parts
from headspace._loops.owner import claim_prefix
from headspace._loops.replacing import replace
from headspace._processes.hand_off import Receipts, hand_off_stage
from headspace._processes.private_parts import call_ignoring_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headspace import _native

#: Number of items after which a queue counts as the queue of batches. The training thread may also take commands or
#: results from other queues, but fewer.
_MIN_ITEMS = 4

#: Most queues whose items are counted at the same time.
_MAX_QUEUES = 64


class _Batches:
    """Finds the queue from which a loop takes its batches, and times the receipts."""

    def __init__(self, loop_of_this_thread: Callable[[], _native.Loop | None]) -> None:
        self.loop_of_this_thread = loop_of_this_thread
        #: Number of items that the training thread took, by address of the queue, until the queue of batches is found.
        self.taken: dict[int, int] = {}
        self.is_found = False

    def receipts(self, queue: Any) -> Receipts | None:
        """Times an item that this thread takes from the queue. None if it is not to be timed."""
        loop = self.loop_of_this_thread()
        attributes = getattr(queue, "__dict__", None)
        # If it has a `get` of its own, it is timed already, or is not to be changed.
        if loop is None or attributes is None or "get" in attributes:
            return None
        receipts: Receipts | None = attributes.get("_headspace_receipts")
        if receipts is None and not self.is_found:
            self._count(queue, loop.name)
        return receipts

    def _count(self, queue: Any, loop_name: str) -> None:
        if len(self.taken) >= _MAX_QUEUES:
            self.taken.clear()
        count = self.taken[id(queue)] = self.taken.get(id(queue), 0) + 1
        if count < _MIN_ITEMS:
            return
        self.is_found = True
        self.taken.clear()
        call_ignoring_errors(self._time, queue, loop_name)

    def _time(self, queue: Any, loop_name: str) -> None:
        prefix = claim_prefix("", ("loop", loop_name), "hand-off")
        stage = hand_off_stage("receive", loop_name, prefix)
        receipts = Receipts(queue, stage, partial(report_parts, loop_name=loop_name))
        queue._headspace_receipts = receipts


def watch(loop_of_this_thread: Callable[[], _native.Loop | None]) -> None:
    """Times the receipts from now on.

    Args:
        loop_of_this_thread: The loop without a loader whose batches this thread takes. None if there is none.
    """
    batches = _Batches(loop_of_this_thread)

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def get(self: Any, *args: Any, **kwargs: Any) -> Any:
            receipts = None
            try:
                receipts = batches.receipts(self)
            except Exception:
                pass
            if receipts is None:
                return original(self, *args, **kwargs)
            return receipts.time(original, self, *args, **kwargs)

        return get

    replace(importlib.import_module("multiprocessing.queues").Queue, "get", make_wrapper)
