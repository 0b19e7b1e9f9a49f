"""Detects the main thread."""

from __future__ import annotations

import sys
from _thread import get_ident

#: How Ray Train names the thread of a worker on which it calls the training function.
_RAY_TRAIN = "TrainingThread("


def is_main_thread() -> bool:
    """Whether this is the main thread, or the thread on which Ray Train calls the training function. If
    `threading` is not imported, there is only one thread."""
    threading = sys.modules.get("threading")
    if threading is None or threading.main_thread().ident == get_ident():
        return True
    return "ray.train" in sys.modules and threading.current_thread().name.startswith(_RAY_TRAIN)
