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

_CONSTANTS = (int, float, complex, str, bytes, bytearray, bool, type(None))


def copy_to_keep(result: Any) -> tuple[Any, int] | None:
    """A copy of a result and its bytes. None if it cannot be returned again.

    A stage that returns None works by its effect, which a kept result does not have.
    """
    if result is None or not _is_data(result):
        return None
    return copy_values(result), count_bytes(result)


def copy_kept(kept: Any) -> Any:
    """A copy of a kept result."""
    return copy_values(kept)


def _is_data(result: Any) -> bool:
    """Whether it consists of arrays, images, constants, and containers of them."""
    parts, seen = [result], 0
    kinds = tuple(_loaded_kinds())
    while parts:
        part = parts.pop()
        seen += 1
        if seen > MOST_CONTAINERS:
            return False
        kind = type(part)
        if kind in _CONSTANTS or isinstance(part, kinds):
            continue
        if not is_container(part, kind):
            return False
        if isinstance(part, (list, tuple, set, frozenset)):
            parts.extend(part)
        elif hasattr(kind, "__dataclass_fields__"):
            parts.extend(getattr(part, name, None) for name in kind.__dataclass_fields__)
        else:
            parts.extend(part.values())
    return True


def _loaded_kinds() -> list[type]:
    """The types of `_DATA` whose libraries the process has loaded."""
    kinds = []
    for module, name in _DATA:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            kinds.append(kind)
    return kinds
