"""Runs a command to its end, with its streams in files, and ends all processes that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def tail(self) -> str:
        """The last lines of both streams, for a person to read."""
        return "\n".join([*self.out.splitlines()[-5:], *self.err.splitlines()[-15:]])


def run(command: list[str], cwd: Path, env: dict[str, str], timeout: float) -> Ran:
    """Runs `command`. `code` is None if it did not end within `timeout` seconds."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        code: int | None = None
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:
            try:  # Also ends processes that the command left behind.
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    return Ran(code, texts[0], texts[1], time.monotonic() - begin)


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """`count` processes that do nothing but use a core."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
