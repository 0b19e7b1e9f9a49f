"""What a batch consists of, as far as handing it over between processes depends on it.

Tensors are handed over as shared memory, all else is copied object by object. A batch of many objects
is not walked to its end: of a long list a few elements stand for the others, so that the look takes
less than a millisecond.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Elements of a container that are looked at; those of a longer one are looked at with gaps.
_ELEMENTS = 32

#: Objects that are looked at in all.
_OBJECTS = 1000


def count(batch: Any) -> tuple[int, int, int, int]:
    """Tensors, bytes in them, other objects, and bytes in strings and arrays among those."""
    tensors = tensor_bytes = objects = object_bytes = 0.0
    #: Parts, with the number of parts that each stands for.
    stack: list[tuple[Any, float]] = [(batch, 1.0)]
    looked_at = 0
    while stack and looked_at < _OBJECTS:
        part, stands_for = stack.pop()
        looked_at += 1
        if type(part).__module__.partition(".")[0] == "torch" and hasattr(part, "nbytes"):
            tensors += stands_for
            tensor_bytes += stands_for * int(part.nbytes)
            continue
        objects += stands_for
        if isinstance(part, (str, bytes, bytearray)):
            object_bytes += stands_for * len(part)
        elif isinstance(part, (list, tuple, set, frozenset, dict)):
            # The keys of dictionaries that are alike are sent once.
            elements = list(part.values() if isinstance(part, dict) else part)
            gap = max(1, len(elements) // _ELEMENTS)
            sample = elements[::gap]
            if sample:
                share = stands_for * len(elements) / len(sample)
                stack.extend((element, share) for element in sample)
        elif isinstance(size := getattr(part, "nbytes", None), int):
            object_bytes += stands_for * size
        elif hasattr(part, "__dict__"):
            stack.append((vars(part), stands_for))
    return round(tensors), round(tensor_bytes), round(objects), round(object_bytes)
