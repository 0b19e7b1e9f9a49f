"""How many samples a batch holds, by the batch itself.

For loaders that do not say. A batch is a tuple, a list or a dict of arrays; `len` of a dict is its
number of keys and says nothing. One sample may look like a batch: an image is an array of three
channels. So a number is only given where several arrays agree on it that could not if they were of one
sample, and None otherwise.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Arrays of a batch that are looked at; a batch of more is not understood.
_MOST = 64


def of_any(batch: Any) -> int | None:
    """Samples of what an unknown loader gave. None where it may be a single sample."""
    shapes = _shapes(batch)
    sizes = {shape[0] for shape in shapes or ()}
    if shapes is None or len(sizes) != 1:
        return None
    # Images and their labels, say: of one sample they would not have the same first dimension.
    differ = len({len(shape) for shape in shapes}) > 1
    return sizes.pop() or None if differ or _is_tokens(batch) else None


def of_collated(batch: Any) -> int | None:
    """Samples of what a loader that makes batches gave."""
    shapes = _shapes(batch)
    if shapes is None:
        return None
    sizes = {shape[0] for shape in shapes}
    # A list may be one of samples that were not stacked.
    if len(sizes) == 1 and isinstance(_plain(batch), dict):
        return sizes.pop() or None
    return of_any(batch)


def _is_tokens(batch: Any) -> bool:
    """Whether it is what tokenizers of language models give for several texts."""
    fields = _plain(batch)
    tokens: Any = fields.get("input_ids") if isinstance(fields, dict) else None
    return _is_array(tokens) and len(tokens.shape) == 2


def _shapes(batch: Any) -> list[tuple[int, ...]] | None:
    """The shapes of the arrays in it, at any depth of dicts; None where there are none, where one is a
    scalar, as in a single sample, and where there are too many."""
    fields = _plain(batch)
    parts = list(fields.values()) if isinstance(fields, dict) else fields
    if not isinstance(parts, (list, tuple)):
        return None
    parts, shapes = list(parts), []
    while parts:
        part = _plain(parts.pop())
        if isinstance(part, dict):
            parts.extend(part.values())
        elif _is_array(part):
            shapes.append(tuple(part.shape))
        elif isinstance(part, (int, float)):
            return None
        if len(shapes) + len(parts) > _MOST:
            return None
    return shapes if shapes and all(shapes) else None


def is_user_dict(kind: type) -> bool:
    """Whether it is a ``UserDict``, as which Hugging Face's tokenizers give batches."""
    user_dict = getattr(sys.modules.get("collections"), "UserDict", None)
    return user_dict is not None and issubclass(kind, user_dict)


def _plain(part: Any) -> Any:
    """The dict within a `UserDict`."""
    return part.data if is_user_dict(type(part)) else part


def _is_array(part: Any) -> bool:
    # Asked of the type: an attribute of an object may be made as it is read.
    return hasattr(type(part), "shape") and hasattr(type(part), "dtype")
