"""Copies results of stages, so that a what-if can return them for other inputs.

A result is returned several times, and later stages may change it in place. So each time, it is copied with its values.
Only results that consist of data are kept: a result that is used up when it is read (an iterator, a file), or that
belongs to a library which may free it, is never returned again.
"""

from __future__ import annotations

import sys

from headspace._caching.copies import MOST_CONTAINERS, copy_values, is_container
from headspace._loops.batch_parts import count_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Types whose values may be copied, by module and name.
_DATA = (("torch", "Tensor"), ("numpy", "ndarray"), ("numpy", "generic"), ("PIL.Image", "Image"))

#: Types that later stages only read, so that they need no copy.
_SHARED = (
    ("av.video.frame", "VideoFrame"),
    ("av.audio.frame", "AudioFrame"),
    ("av.packet", "Packet"),
    ("pathlib", "PurePath"),
)

_CONSTANTS = (int, float, complex, str, bytes, bytearray, bool, type(None))


def copy_to_keep(result: Any) -> tuple[Any, int] | None:
    """A copy of a result and its bytes. None if it cannot be returned again.

    A stage that returns None works by its effect, which a kept result does not have.
    """
    if result is None:
        return None
    shared = _loaded(_SHARED)
    parts = _leaves(result)
    if parts is None or not all(isinstance(part, (*_loaded(_DATA), *shared)) for part in parts):
        return None
    frames = sum(_frame_bytes(part) for part in parts if isinstance(part, shared))
    return copy_values(result, shared), count_bytes(result) + frames


def copy_kept(kept: Any) -> Any:
    """A copy of a kept result."""
    return copy_values(kept, _loaded(_SHARED))


def _leaves(result: Any) -> list[Any] | None:
    """The parts that are neither containers nor constants. None if there are too many parts."""
    parts, leaves, count = [result], [], 0
    while parts:
        part = parts.pop()
        count += 1
        if count > MOST_CONTAINERS:
            return None
        kind = type(part)
        if kind in _CONSTANTS:
            continue
        if not is_container(part, kind):
            leaves.append(part)
        elif isinstance(part, (list, tuple, set, frozenset)):
            parts.extend(part)
        elif hasattr(kind, "__dataclass_fields__"):
            parts.extend(getattr(part, name, None) for name in kind.__dataclass_fields__)
        else:
            parts.extend(part.values())
    return leaves


def _frame_bytes(part: Any) -> int:
    """Bytes of a decoded frame, or of a packet."""
    planes = getattr(part, "planes", None)
    if planes is None:
        return int(getattr(part, "size", 0) or 0)
    return sum(plane.buffer_size for plane in planes)


def _loaded(names: tuple[tuple[str, str], ...]) -> tuple[type, ...]:
    """The types of these names whose modules the process has loaded."""
    kinds = (getattr(sys.modules.get(module), name, None) for module, name in names)
    return tuple(kind for kind in kinds if isinstance(kind, type))
