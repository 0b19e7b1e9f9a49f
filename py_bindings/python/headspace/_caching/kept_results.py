"""Copies results of stages, so that a what-if can return them for other inputs.

A result is returned several times, and later stages may change it in place. So each time, it is copied with its values.
Only results that consist of data are kept: a result that is used up when it is read (an iterator, a file), or that
belongs to a library which may free it, is never returned again.
"""

from __future__ import annotations

import itertools
import sys

from headspace._caching.copies import MOST_CONTAINERS, copy_values, has_attributes, is_container
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
    ("pathlib", "PurePath"),
)

_CONSTANTS = (int, float, complex, str, bytes, bytearray, bool, type(None))

#: A larger result is not kept, in bytes. Each process keeps at least two results of a stage.
MAX_BYTES = 256 << 20


def copy_to_keep(result: Any) -> tuple[Any, int, str] | None:
    """A copy of a result, its bytes and its kind. None if it cannot be returned again.

    A stage that returns None works by its effect, which a kept result does not have.
    """
    if result is None:
        return None
    shared = _loaded(_SHARED)
    data = _loaded(_DATA)
    leaves = _leaves(result)
    if leaves is None:
        return None
    if not all(
        isinstance(leaf, shared) or (isinstance(leaf, data) and _is_plain(leaf)) for leaf in leaves
    ):
        return None
    if _share_memory(leaves):
        return None  # Changes of one part must show in the other, also in a copy.
    frames = sum(_frame_bytes(leaf) for leaf in leaves if isinstance(leaf, shared))
    size = count_bytes(result) + frames
    if size > MAX_BYTES:
        return None
    return copy_values(result, shared), size, _kind(result)


def _is_plain(leaf: Any) -> bool:
    """Whether an array or image consists of values in the memory of this process.

    The values of a lazy image or of a mapped file are read later, and a copy of a gradient's tensor would train nothing.
    """
    if type(leaf).__module__.startswith("PIL."):
        return not getattr(leaf, "tile", None)
    if type(leaf).__module__.partition(".")[0] not in ("torch", "numpy") or has_attributes(leaf):
        return False  # A copy is a plain tensor or array without the attributes of the program.
    device = getattr(getattr(leaf, "device", None), "type", "cpu")
    return (
        device == "cpu"
        and not getattr(leaf, "requires_grad", False)
        and type(leaf).__name__ != "memmap"
        and getattr(getattr(leaf, "dtype", None), "hasobject", False) is False
    )


def _share_memory(leaves: list[Any]) -> bool:
    """Whether two tensors or arrays use the same memory."""
    ranges = {id(leaf): found for leaf in leaves if (found := _memory_range(leaf)) is not None}
    ordered = sorted(ranges.values())
    return any(end > start for (_, end), (start, _) in itertools.pairwise(ordered))


def _memory_range(leaf: Any) -> tuple[int, int] | None:
    """The addresses of a tensor's or an array's values: the first, and the one after the last. None for other objects, and
    if there is no value."""
    if hasattr(leaf, "untyped_storage"):
        size = leaf.element_size()
        address, strides = leaf.data_ptr(), [size * stride for stride in leaf.stride()]
    elif hasattr(leaf, "__array_interface__") and hasattr(leaf, "strides"):
        size = leaf.itemsize
        address, strides = leaf.__array_interface__["data"][0], leaf.strides
    else:
        return None
    if 0 in leaf.shape:
        return None
    extents = [(length - 1) * stride for length, stride in zip(leaf.shape, strides, strict=True)]
    first = address + sum(extent for extent in extents if extent < 0)
    return first, address + sum(extent for extent in extents if extent > 0) + size


def _kind(result: Any) -> str:
    """What all results of a stage have in common, if one of them can stand for another."""
    if isinstance(result, tuple):
        return f"{type(result).__qualname__}({', '.join(map(_kind, result))})"
    if isinstance(result, dict):
        return f"{type(result).__qualname__}({', '.join(map(repr, result))})"
    shape = getattr(result, "shape", None)
    if shape is not None:
        return f"{type(result).__qualname__}[{getattr(result, 'dtype', '')}, {len(shape)}]"
    return type(result).__qualname__


def copy_kept(kept: Any) -> Any:
    """A copy of a kept result."""
    return copy_values(kept, _loaded(_SHARED))


def _leaves(result: Any) -> list[Any] | None:
    """The parts that are neither containers nor constants. None if there are too many, or if one cannot be copied."""
    parts, leaves, count = [result], [], 0
    while parts:
        part = parts.pop()
        kind = type(part)
        if kind in _CONSTANTS:
            continue
        count += 1
        if count > MOST_CONTAINERS:
            return None
        if not is_container(part, kind):
            leaves.append(part)
        elif isinstance(part, tuple) and has_attributes(part):
            return None  # A copy has only the items.
        elif isinstance(part, (list, tuple, set, frozenset)):
            parts.extend(part)
        elif hasattr(kind, "__dataclass_fields__"):
            parts.extend(getattr(part, name, None) for name in kind.__dataclass_fields__)
        else:
            parts.extend(part.values())
    return leaves


def _frame_bytes(part: Any) -> int:
    """Bytes of a decoded frame. 0 for other objects."""
    return sum(plane.buffer_size for plane in getattr(part, "planes", ()))


def _loaded(names: tuple[tuple[str, str], ...]) -> tuple[type, ...]:
    """The types of these names whose modules the process has loaded."""
    kinds = (getattr(sys.modules.get(module), name, None) for module, name in names)
    return tuple(kind for kind in kinds if isinstance(kind, type))
