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
from headspace._processes.hand_off import hand_off_stage, time_receipt
from headspace._session.own_errors import call_safely

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headspace import _native


def watch(loop_of_this_thread: Callable[[], _native.Loop | None]) -> None:
    """Times the receipts from now on.

    Args:
        loop_of_this_thread: The loop without a loader whose batches this thread takes. None if there is none.
    """

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def get(self: Any, *args: Any, **kwargs: Any) -> Any:
            timed = vars(self).get("get")
            if timed is None:
                loop = loop_of_this_thread()
                if loop is not None:
                    call_safely(_time_queue, self, loop.name)
            elif getattr(timed, "_headspace_original", None) is original:
                # The program called a reference to `get` from before it was timed.
                return timed(*args, **kwargs)
            return original(self, *args, **kwargs)

        return get

    replace(importlib.import_module("multiprocessing.queues").Queue, "get", make_wrapper)


def _time_queue(queue: Any, loop_name: str) -> None:
    prefix = claim_prefix("", loop_name, "hand-off")
    stage = hand_off_stage("receive", loop_name, prefix)
    time_receipt(queue, stage, partial(report_parts, loop_name=loop_name), weakly=False)
