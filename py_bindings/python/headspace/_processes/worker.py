"""Detects loader workers (processes that make batches for another one), names them, and records their end."""

from __future__ import annotations

import atexit
import sys

from headspace import _native

#: Put before the name of each worker, so that the workers of two loaders differ. Set in the worker.
prefix = ""

#: Whether this process executes a Ray dataset for the ranks beside it. Ray ends it by a signal.
executes_for_siblings = False

#: Modules with the functions that the workers of executors run (`loky` is joblib's).
_EXECUTORS = ("concurrent.futures.process", "loky.process_executor")


def is_worker() -> bool:
    """Whether this process makes batches for another one, which trains."""
    torch = sys.modules.get("torch.utils.data._utils.worker")
    if getattr(torch, "_worker_info", None) is not None:
        return True
    process = sys.modules.get("multiprocessing.process")
    try:
        if process is None or process.parent_process() is None:
            return False
    except (AttributeError, NameError):
        return False  # Another thread is still importing the module. A worker has imported it.
    return bool(process.current_process().daemon) or _native.works_for_another()


def _finish_last() -> None:
    """The processes of `multiprocessing` end without `atexit`. This finalizer runs last of all, since
    others may still call stages."""
    sys.modules["multiprocessing.util"].Finalize(None, _native.finish_worker, exitpriority=-1000)


def describe_worker(forked_from_worker: bool) -> tuple[str | None, bool]:
    """The name of this worker for people, and whether it is ended by a signal while it waits.

    Also registers for the worker's normal end, so that the trainer can tell one from a crash.

    Args:
        forked_from_worker: The process was forked from a worker, so torch's worker number in its memory is
            the parent's.
    """
    atexit.register(_native.finish_worker)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        _finish_last()
        # A process of a forkserver drops its finalizers when it begins. What it imports before that may
        # call stages.
        util.register_after_fork(_finish_last, lambda finish_last: finish_last())
    torch = sys.modules.get("torch.utils.data._utils.worker")
    info = None if forked_from_worker else getattr(torch, "_worker_info", None)
    name = None if info is None else f"{prefix}worker {info.id}"
    process = sys.modules.get("multiprocessing.process")
    if executes_for_siblings:
        return "Ray Data", True
    if process is None:
        return name, False
    current = process.current_process()
    # `multiprocessing.Pool` ends its workers by a signal, also when all is well.
    is_pool_worker = "PoolWorker" in current.name
    target = getattr(current, "_target", None)
    target_module = str(getattr(target, "__module__", ""))
    if name is None and (is_pool_worker or target_module.endswith(_EXECUTORS)):
        # The trainer appends a number for each worker of a pool, and uses it again for the next pool.
        name = "pool worker"
    return name, is_pool_worker
