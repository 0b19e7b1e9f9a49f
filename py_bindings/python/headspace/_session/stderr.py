"""Writes lines for the user to stderr."""

from __future__ import annotations

import os
import sys


def write_line(text: str) -> None:
    """Writes a line. If stderr is closed, the line is lost, but a verdict is also in the records."""
    stream = sys.stderr
    if stream is None:  # `print` would write to stdout instead.
        return
    replaced = stream is not sys.__stderr__
    try:
        if replaced:
            print(text, file=stream, flush=True)
            return
        # Bypass the buffer: if nobody reads stderr, Python exits with status 120 because of buffered text.
        stream.flush()
        rest = memoryview(f"{text}\n".encode(errors="backslashreplace"))
        while rest:
            rest = rest[os.write(stream.fileno(), rest) :]
    except (OSError, ValueError, AttributeError):
        pass
