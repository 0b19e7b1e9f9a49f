"""What keeps headspace out of a program's way: its own faults stay its own, and are said once."""

from __future__ import annotations

import sys

from headspace import _native, _session, _settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: A fault was said.
said = False


def say(text: str) -> None:
    """One line on stderr, on rank 0."""
    if not (_settings.quiet() or _settings.rank()):
        _session._print(f"headspace: {text}.")


def quietly(function: Callable[..., Any], *args: Any) -> Any:
    """What it gives; None where it fails, which is said once."""
    global said
    try:
        return function(*args)
    except Exception as error:
        if not said:
            said = True
            say(f"not everything is measured: {type(error).__name__}: {error}. Training goes on")
        return None


def is_worker() -> bool:
    """Whether this process makes batches for another one that trains."""
    torch = sys.modules.get("torch.utils.data._utils.worker")
    if getattr(torch, "_worker_info", None) is not None:
        return True
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return False
    return bool(process.current_process().daemon) or _native.works_for_another()
