"""Computes an inexpensive digest of a batch, to detect that the training loop changed it in place.

PyTorch tensors and their subclasses count in-place operations (``_version``), so nothing waits for a device.
Inference tensors have no count: their changes are not seen. Of other buffers a sample of bytes is read.
Objects of which neither is possible are taken as constant.
"""

from __future__ import annotations

from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Most parts of a batch that are read.
_MAX_PARTS = 256

#: Bytes read at each of `_SAMPLES` places of a buffer.
_CHUNK = 256
_SAMPLES = 64

_SCALARS = (int, float, complex, str, bytes, bool, type(None))


def fingerprint(batch: Any) -> tuple[int, int]:
    """Digest of the batch's contents, and the bytes that its buffers hold."""
    digest, size = 0, 0
    stack = [batch]
    seen: set[int] = set()
    while stack and len(seen) < _MAX_PARTS:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, (dict, list, tuple, set, frozenset)):
            stack.extend(part.values() if isinstance(part, dict) else part)
            token: object = len(part)
        elif isinstance(part, _SCALARS):
            size += len(part) if isinstance(part, bytes) else 0
            token = part
        else:
            token, held = _buffer(part)
            size += held
            if token is None and hasattr(part, "__dict__"):
                stack.append(vars(part))
        digest = hash((digest, token))
    return digest & (2**64 - 1), size


def _buffer(part: Any) -> tuple[object, int]:
    """Digest and size of one buffer; `(None, 0)` for any other object."""
    # A view shares its base's count, so a change through any of them is seen.
    if hasattr(part, "untyped_storage"):
        size = int(part.untyped_storage().nbytes())
        try:
            return (id(part), part._version, tuple(part.shape)), size
        except RuntimeError:  # Inference tensors do not count.
            return (id(part), tuple(part.shape)), size
    try:
        view = memoryview(part)
    except TypeError:
        return None, 0
    if view.nbytes == 0:
        return view.shape, 0
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    shape, view = view.shape, view.cast("B")
    stride = max(_CHUNK, view.nbytes // _SAMPLES)
    digest = 0
    for start in range(0, view.nbytes, stride):
        digest = crc32(view[start : start + _CHUNK], digest)
    return (digest, shape), view.nbytes
