"""Counts the samples in a batch, for loaders without a `batch_size`.

A batch is a tuple, a list or a dict of arrays. `len` of a dict is its number of keys, not of samples.
One sample can look like a batch: an image is an array of three channels. So samples are only counted if
several arrays agree on their number, and could not agree if they were parts of one sample.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Most arrays of a batch. One with more is not counted.
_MAX_ARRAYS = 64


def count_in_any(batch: Any) -> int | None:
    """Samples of a batch of any loader. None if it may be a single sample."""
    shapes = _shapes(batch)
    sizes = {shape[0] for shape in shapes}
    if len(sizes) != 1:
        return None
    # Images and labels, for example: those of one sample would differ in the first dimension.
    differ = len({len(shape) for shape in shapes}) > 1
    return sizes.pop() or None if differ or _is_tokens(batch) else None


def count_in_collated(batch: Any) -> int | None:
    """Samples of a batch of a loader that collates samples."""
    sizes = {shape[0] for shape in _shapes(batch)}
    # A list may be one of samples that were not stacked.
    if len(sizes) == 1 and isinstance(plain(batch), dict):
        return sizes.pop() or None
    return count_in_any(batch)


def _is_tokens(batch: Any) -> bool:
    """Whether it is the output of a language model's tokenizer for several texts."""
    fields = plain(batch)
    tokens: Any = fields.get("input_ids") if isinstance(fields, dict) else None
    return is_array(tokens) and len(tokens.shape) == 2


def _shapes(batch: Any) -> list[tuple[int, ...]]:
    """The shapes of the arrays in it, at any depth of dicts; empty if there are too many, or scalars, as in
    a single sample."""
    fields = plain(batch)
    parts = list(fields.values()) if isinstance(fields, dict) else fields
    if not isinstance(parts, (list, tuple)):
        return []
    parts, shapes = list(parts), []
    while parts:
        part = plain(parts.pop())
        if isinstance(part, dict):
            parts.extend(part.values())
        elif is_array(part):
            shapes.append(tuple(part.shape))
        elif isinstance(part, (int, float)):
            return []
        if len(shapes) + len(parts) > _MAX_ARRAYS:
            return []
    return shapes if all(shapes) else []


def is_user_dict(kind: type) -> bool:
    """Whether it is a ``UserDict``, the type of batches of Hugging Face's tokenizers."""
    user_dict = getattr(sys.modules.get("collections"), "UserDict", None)
    return user_dict is not None and issubclass(kind, user_dict)


def plain(part: Any) -> Any:
    """The dict within a `UserDict`."""
    return part.data if is_user_dict(type(part)) else part


def is_array(part: Any) -> bool:
    """Whether it is an array or a tensor of any library."""
    # Of the type: an attribute of the object may be computed when it is read.
    return hasattr(type(part), "shape") and hasattr(type(part), "dtype")
