"""Counts the parts of a batch that determine the cost of passing it to another process.

Tensors are passed as shared memory, everything else is copied object by object. Of a long container a
sample of the elements is counted, so that counting takes less than a millisecond.
"""

from __future__ import annotations

from headspace._session import lifecycle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Elements of a container that are counted. In a longer one, every n-th is.
_ELEMENTS = 32

#: Most objects that are visited.
_MAX_OBJECTS = 1000


def count_parts(batch: Any) -> tuple[int, int, int, int, int]:
    """Tensors, bytes in them, other objects, bytes in strings and arrays among those, and tensors on a device."""
    tensors = tensor_bytes = objects = object_bytes = device_tensors = 0.0
    #: Parts, with the number of parts that each stands for.
    stack: list[tuple[Any, float]] = [(batch, 1.0)]
    visited = 0
    while stack and visited < _MAX_OBJECTS:
        part, stands_for = stack.pop()
        visited += 1
        if type(part).__module__.partition(".")[0] == "torch" and hasattr(part, "nbytes"):
            tensors += stands_for
            tensor_bytes += stands_for * int(part.nbytes)
            if part.device.type != "cpu":
                device_tensors += stands_for
            continue
        objects += stands_for
        if isinstance(part, (str, bytes, bytearray)):
            object_bytes += stands_for * len(part)
        elif isinstance(part, (list, tuple, set, frozenset, dict)):
            # Keys are not counted: those of similar dictionaries are sent once.
            elements: Any = part.values() if isinstance(part, dict) else part
            if not isinstance(elements, (list, tuple)):
                elements = list(elements)
            gap = max(1, len(elements) // _ELEMENTS)
            sample = elements[::gap]
            if sample:
                share = stands_for * len(elements) / len(sample)
                stack.extend((element, share) for element in sample)
        elif isinstance(size := getattr(part, "nbytes", None), int):
            object_bytes += stands_for * size
        elif hasattr(part, "__dict__"):
            stack.append((vars(part), stands_for))
    return (
        round(tensors),
        round(tensor_bytes),
        round(objects),
        round(object_bytes),
        round(device_tensors),
    )


def count_bytes(batch: Any) -> int:
    """Bytes in its tensors, arrays and strings."""
    _tensors, tensor_bytes, _objects, object_bytes, _ = count_parts(batch)
    return tensor_bytes + object_bytes


def report_parts(batch: Any, loop_name: str) -> None:
    """Counts the parts of a batch and records the numbers for its loop.

    The price of a worker process and the proposal of pinned memory need them.
    """
    session = lifecycle.current
    if session is not None:
        session._native.describe_batch(loop_name, count_parts(batch))
