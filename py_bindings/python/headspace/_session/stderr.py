"""Writes lines for the user to stderr.

If nobody reads a pipe that is full, the rest of a line is dropped after some seconds, so that the program can end.
"""

from __future__ import annotations

import os
import sys
import time

#: Seconds that a line waits for room.
_PATIENCE_S = 5.0


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
        _write(stream.fileno(), f"{text}\n".encode(errors="backslashreplace"))
    except Exception:  # A stream of the program may raise anything.
        pass


def _write(descriptor: int, data: bytes) -> None:
    import select  # Not when headspace is imported: a module more takes time.

    end = time.monotonic() + _PATIENCE_S
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    rest = memoryview(data)
    while rest and room.poll(max(0.0, end - time.monotonic()) * 1e3):
        # A pipe that is ready has room for this many bytes.
        rest = rest[os.write(descriptor, rest[: select.PIPE_BUF]) :]
