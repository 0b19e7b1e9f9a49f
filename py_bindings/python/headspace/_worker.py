"""What Python knows of a process that counts for a trainer."""

from __future__ import annotations

import atexit
import sys

from headspace import _native

#: What the loader's loop puts before the names of its workers, so that two loaders' are told apart.
prefix = ""

#: Modules with the functions that the workers of executors run (`loky` is joblib's).
_EXECUTORS = ("concurrent.futures.process", "loky.process_executor")


def _finish_last() -> None:
    """The processes of `multiprocessing` end without `atexit`. Last of all: what ends before may call
    stages."""
    sys.modules["multiprocessing.util"].Finalize(None, _native.finish_worker, exitpriority=-1000)


def about(forked_from_worker: bool) -> tuple[str | None, bool]:
    """What people call this worker, and whether it is ended by a signal while it waits.

    Also asks to be told of a normal end, so that the trainer can tell one from a crash.

    Args:
        forked_from_worker: What a worker's memory says of its number is then the parent's.
    """
    atexit.register(_native.finish_worker)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        _finish_last()
        # A process of a forkserver forgets its finalizers as it begins, and what it imports before
        # that may call stages.
        util.register_after_fork(_finish_last, lambda finish_last: finish_last())
    torch = sys.modules.get("torch.utils.data._utils.worker")
    info = None if forked_from_worker else getattr(torch, "_worker_info", None)
    label = None if info is None else f"{prefix}worker {info.id}"
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return label, False
    current = process.current_process()
    # `multiprocessing.Pool` ends its workers so, also in order.
    pooled = "PoolWorker" in current.name
    home = str(getattr(getattr(current, "_target", None), "__module__", ""))
    if label is None and (pooled or home.endswith(_EXECUTORS)):
        # The trainer tells those of one pool apart by a number, and uses it again for the next pool.
        label = "pool worker"
    return label, pooled
