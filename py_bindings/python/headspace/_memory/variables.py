"""Lists the local variables of the functions that run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

#: Flag of code whose local variables are not a dictionary of the program.
_OPTIMIZED = 0x1

#: Names with which a function reads its local variables as a dictionary.
_READS_LOCALS = {"locals", "vars", "eval", "exec", "dir"}

#: Maximum number of frames of a thread.
_MOST_FRAMES = 200


def local_variables(frames: Iterable[FrameType]) -> Iterator[tuple[FrameType, str, Any]]:
    """Yields each local variable of the functions that run on some threads.

    Args:
        frames: The innermost frame of each thread.
    """
    for innermost in frames:
        frame: FrameType | None = innermost
        for _ in range(_MOST_FRAMES):
            if frame is None:
                break
            if not frame.f_code.co_filename.startswith(_OWN):
                for name, value in frame_variables(frame):
                    yield frame, name, value
            frame = frame.f_back


def frame_variables(frame: FrameType) -> list[tuple[str, Any]]:
    """The local variables of a function, with their values."""
    code = frame.f_code
    if not code.co_flags & _OPTIMIZED:
        return []  # A module or a class: its dictionary is found by itself.
    if sys.version_info >= (3, 13):
        return list(frame.f_locals.items())
    # Python keeps the dictionary with the values in the frame, and gives it to the program if it asks. It also copies the
    # values back from the dictionary after a call of a debugger.
    if frame.f_trace is not None or not _READS_LOCALS.isdisjoint(code.co_names):
        return []
    variables = frame.f_locals
    found = list(variables.items())
    variables.clear()
    return found


def untracked_dicts(frames: Iterable[FrameType]) -> list[dict[Any, Any]]:
    """The dictionaries in local variables, which the garbage collector may not track."""
    return [value for _, _, value in local_variables(frames) if type(value) is dict]
