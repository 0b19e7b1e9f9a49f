"""Times the hand-off of batches from a pipeline that runs in a subprocess (`run_pipeline_in_subprocess`)."""

from __future__ import annotations

from multiprocessing import parent_process

from headspace._loops.batch_parts import report_parts
from headspace._loops.owner import Owner
from headspace._processes.hand_off import (
    hand_off_stage,
    is_process_queue,
    time_receipt,
    time_sending,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: SPDL's module with the iterable that reads batches from a subprocess, and with its queue.
_HOME = "spdl.pipeline._iter_utils._subprocess"

#: Status of SPDL's message that contains a batch.
_BATCH_STATUS = "ITERATOR_SUCCESS"

#: Whether this process times what it sends.
_sends = False


def watch_receipt(loop: Any, source: object) -> None:
    """Times the receipt of batches on the training thread, if `source` reads them from a subprocess."""
    if type(source).__module__ != _HOME:
        return
    queue = getattr(getattr(source, "_interface", None), "data_q", None)
    if not is_process_queue(queue):
        return
    owner = Owner(loop)
    owner.claim_hand_off()

    def describe_received(item: Any) -> None:
        report_parts(item.message, owner.loop_name)

    time_receipt(queue, owner.hand_off("receive"), describe_received)


def watch_sending() -> None:
    """In a subprocess that runs a pipeline: times the serialization of its batches."""
    global _sends
    if _sends or parent_process() is None:
        return
    _sends = True
    # The subprocess does not know the loop.
    time_sending(hand_off_stage("send"), _is_batch)


def _is_batch(item: Any) -> bool:
    """Whether it is a message of SPDL with a batch. Other messages are on the state of the subprocess."""
    status = getattr(getattr(item, "status", None), "name", "")
    return type(item).__name__ == "_Msg" and status == _BATCH_STATUS
