"""Estimates the bytes of objects, with what only they hold."""

from __future__ import annotations

import gc
import sys
from collections import Counter, deque
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from headspace._memory import safe

#: Objects that belong to the program, not to what grows.
_SHARED = (
    type,
    ModuleType,
    BuiltinFunctionType,
    CodeType,
    GetSetDescriptorType,
    MemberDescriptorType,
    WrapperDescriptorType,
)

#: Types whose size Python itself computes. By address, because a metaclass may define `==`.
_BUILTIN = {
    id(kind)
    for kind in (bytes, bytearray, str, list, dict, set, frozenset, tuple, deque, int, float)
}

#: Maximum number of objects that are visited from one.
_MOST_OBJECTS = 500

#: Number of the newest items whose size is estimated.
SAMPLE = 8


def newest_items(container: Any) -> list[Any]:
    """The last items of a container, as far as it is ordered."""
    kind = type(container)
    if kind is list:
        return [*container[-SAMPLE:]]
    if kind is dict:
        return [part for pair in islice(reversed(container.items()), SAMPLE) for part in pair]
    if kind is deque:
        return list(islice(reversed(container), SAMPLE))
    return list(islice(container, SAMPLE))


def older_items(container: Any) -> list[Any]:
    """The first items of a container. Of a set, which has no order: others than `newest_items`."""
    kind = type(container)
    if kind is dict:
        return [part for pair in islice(container.items(), SAMPLE) for part in pair]
    begin = SAMPLE if kind is set else 0
    return list(islice(container, begin, begin + SAMPLE))


def bytes_per_object(objects: list[Any], count: int, besides: list[Any]) -> float:
    """Mean bytes of objects with what they hold.

    Args:
        objects: Some of the newest.
        count: Their number, if several of `objects` belong together (key and value of a dictionary).
        besides: Older ones. What these hold is shared, and not counted.
    """
    seen: set[int] = set()
    for item in besides:
        _visit(item, seen)
    total = sum(_visit(item, seen) for item in objects)
    return total / max(count, 1)


def own_bytes_per_object(objects: list[Any]) -> float:
    """Mean bytes of objects of a type, with their attributes and data but without other objects of classes."""
    seen: set[int] = set()
    return sum(_with_parts(item, seen) for item in objects) / max(len(objects), 1)


def bytes_per_exception(exceptions: list[BaseException]) -> float:
    """Mean bytes of exceptions with the arrays, strings and dictionaries in the local variables that only their tracebacks
    keep. A frame that several of them keep is one that still runs."""
    kept = [traceback for item in exceptions for traceback in safe.tracebacks(item)]
    times = Counter(id(traceback.tb_frame) for traceback in kept)
    own = [traceback for traceback in kept if times[id(traceback.tb_frame)] == 1]
    frames = [traceback.tb_frame for traceback in own]
    values = [value for frame in frames for value in gc.get_referents(frame)]
    times = Counter(map(id, values))
    seen = {address for address, count in times.items() if count > 1}
    tensors = [v for v in values if safe.is_plain_tensor(v) and id(v) not in seen]
    parts = [*exceptions, *own, *frames, *tensors]
    return sum(_with_parts(part, seen) for part in parts) / max(len(exceptions), 1)


def _with_parts(item: Any, seen: set[int]) -> int:
    """Bytes of an object with its attributes and data. Parts in `seen` do not count; the others are added to it."""
    total = _own_bytes(item, seen)
    for referent in gc.get_referents(item):
        is_part = type(referent) is dict or not gc.is_tracked(referent)
        if is_part and id(referent) not in seen and not safe.is_a(referent, type):
            seen.add(id(referent))
            total += _own_bytes(referent, seen)
    return total


def _visit(item: Any, seen: set[int]) -> int:
    """Bytes of an object and of what it holds, without objects in `seen`, to which they are added."""
    waiting, total, visited = [item], 0, 0
    while waiting and visited < _MOST_OBJECTS:
        item = waiting.pop()
        if id(item) in seen or any(safe.is_a(item, kind) for kind in _SHARED):
            continue
        seen.add(id(item))
        visited += 1
        total += _own_bytes(item, seen)
        if type(item) is dict and "__builtins__" in item:
            continue  # The namespace of a module.
        if type(item) is FunctionType:
            # Its globals belong to its module.
            waiting += gc.get_referents(*(item.__closure__ or ()))
            continue
        waiting += gc.get_referents(item)
    return total


def _own_bytes(item: Any, seen: set[int]) -> int:
    """Bytes of an object alone, without the header of the garbage collector."""
    kind = type(item)
    if id(kind) in _BUILTIN:
        return sys.getsizeof(item)
    if kind is safe.numpy_array():
        # The data of a view belongs to its base, which is a referent.
        return safe.basic_size(item) + (item.nbytes if item.base is None else 0)
    if safe.is_plain_tensor(item):
        return safe.basic_size(item) + _storage_bytes(item, seen)
    return safe.basic_size(item)


def _storage_bytes(tensor: Any, seen: set[int]) -> int:
    """Bytes of the data of a tensor in the memory of this process, unless another tensor was counted with it."""
    if tensor.device.type != "cpu" or tensor.layout is not sys.modules["torch"].strided:
        return 0
    storage = tensor.untyped_storage()
    address = -storage.data_ptr()  # Apart from the addresses of objects.
    if address in seen:
        return 0
    seen.add(address)
    size: int = storage.nbytes()
    return size
