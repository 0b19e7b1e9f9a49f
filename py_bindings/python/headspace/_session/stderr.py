"""Writes lines for the user to stderr."""

from __future__ import annotations

import os
import sys


def write_line(text: str) -> None:
    """Writes a line. If the user has closed stderr it is lost; a verdict is still in the records."""
    stream = sys.stderr
    if stream is None:  # For `print`, that is stdout.
        return
    replaced = stream is not sys.__stderr__
    try:
        if replaced:
            print(text, file=stream, flush=True)
            return
        # Past its buffer: what nobody reads would stay there, and then Python ends with status 120.
        stream.flush()
        rest = memoryview(f"{text}\n".encode(errors="backslashreplace"))
        while rest:
            rest = rest[os.write(stream.fileno(), rest) :]
    except (OSError, ValueError, AttributeError):
        pass
