"""Detects the main thread."""

from __future__ import annotations

import sys
from _thread import get_ident


def is_main_thread() -> bool:
    """Whether this is the main thread. If `threading` is not imported, there is no other thread."""
    threading = sys.modules.get("threading")
    return threading is None or threading.main_thread().ident == get_ident()
