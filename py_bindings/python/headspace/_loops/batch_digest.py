"""Computes a digest of a batch's contents. Equal batches of several ranks or workers have the same digest.

A batch has a digest only if each of its parts can be read: equal labels say nothing about images that are on a
GPU. Arrays on a device are not read, because that would wait for the device. Of long parts, a sample is read.
"""

from __future__ import annotations

from itertools import islice

from headspace._loops.attributes import get_attribute
from headspace._loops.samples import is_array, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Most parts of a batch that are read, containers included, and most elements of a container. Later ones are
#: ignored: the first samples of a batch suffice to recognize it.
_MAX_PARTS = 64

#: Most evenly spaced elements of an array that are read. The last element is read as well.
_ELEMENTS = 64

#: Bytes, or characters, that are read at each end of a long string.
_MAX_BYTES = 256


def digest_batch(batch: Any) -> int | None:
    """The digest, 64 bits. None if a part cannot be read, or if there is nothing to read.

    Raises what the methods of an array raise, for example if it is sparse.
    """
    # Imported here, because most runs of a single rank do not need it.
    from hashlib import blake2b

    digest = blake2b(digest_size=8)
    is_empty = True
    parts = [batch]
    for _ in range(_MAX_PARTS):
        if not parts:
            break
        part = plain(parts.pop())
        if isinstance(part, (dict, list, tuple)):
            elements = part.values() if isinstance(part, dict) else part
            parts.extend(reversed(list(islice(elements, _MAX_PARTS))))
        elif part is not None:
            content = _read_array(part) if is_array(part) else _read_scalar(part)
            if content is None:
                return None
            digest.update(content)
            is_empty = False
    return None if is_empty else int.from_bytes(digest.digest(), "little")


def _read_scalar(part: Any) -> bytes | None:
    """A number, or the length and both ends of a string. None for any other object."""
    if isinstance(part, (int, float, complex)):
        return f"{part!r},".encode()
    if not isinstance(part, (str, bytes, bytearray)):
        return None
    ends = part[:_MAX_BYTES], part[-_MAX_BYTES:]
    return f"{len(part)}:{ends!r},".encode()


def _read_array(array: Any) -> bytes | None:
    """The shape and some elements. None if the array is on a device, or if its elements are not scalars."""
    if str(get_attribute(array, "device") or "cpu") != "cpu":
        return None
    # This copies an array that is not contiguous. Only 16 batches of a loop are read.
    flat = array.reshape(-1)
    # Rounded up, so that the elements are those of the whole array, not of its start.
    step = max(1, -(-len(flat) // _ELEMENTS))
    elements = [_read_scalar(e) for e in flat[::step].tolist() + flat[-1:].tolist()]
    readable = [element for element in elements if element is not None]
    if len(readable) < len(elements):
        return None
    return f"{tuple(array.shape)}:".encode() + b"".join(readable)
