"""Tells whether the current thread is the main thread."""

from __future__ import annotations

import sys
from _thread import get_ident


def is_main_thread() -> bool:
    """Whether this is the program's main thread. Where `threading` is not imported there is no other."""
    threading = sys.modules.get("threading")
    return threading is None or threading.main_thread().ident == get_ident()
