"""A program in a real pseudo-terminal, and what its screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import pyte
import pytest

#: Deadline of each wait. It is long, because it only ends programs that hang.
DEADLINE_S = 60.0


class Terminal:
    """A terminal of some size with a program in it."""

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        columns: int = 80,
        lines: int = 24,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)
        self.master, slave = pty.openpty()
        self._size(columns, lines)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm-256color", **(env or {})},
            start_new_session=True,
        )
        # Kept open, so that tests can check the terminal after the end of the program.
        self._slave = slave

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        self._size(columns, lines)
        self.process.send_signal(signal.SIGWINCH)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def read(self, timeout: float = 0.05) -> None:
        """Reads the output of the program."""
        while select.select([self.master], [], [], timeout)[0]:
            piece = os.read(self.master, 1 << 16)
            self.raw += piece
            self._stream.feed(piece)
            timeout = 0.0

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def wait_for(self, what: str, timeout: float = DEADLINE_S) -> str:
        """Reads until the text is on the screen. Returns the screen."""
        end = time.monotonic() + timeout
        while what not in self.text:
            if time.monotonic() > end or self.process.poll() is not None:
                self.read()
                if what in self.text:
                    break
                pytest.fail(f"{what!r} is not on the screen after {timeout:g} s:\n{self.text}")
            self.read()
        return self.text

    def wait(self, timeout: float = DEADLINE_S) -> int:
        """Reads the output until the program ends. Returns its exit status."""
        end = time.monotonic() + timeout
        while self.process.poll() is None:
            if time.monotonic() > end:
                pytest.fail(f"still running after {timeout:g} s:\n{self.text}")
            self.read()
        self.read()
        return self.process.returncode

    @property
    def restored(self) -> bool:
        """Whether the program has restored the terminal: its mode, its main screen, and its cursor."""
        left = self.raw.rfind(b"\x1b[?1049l") > self.raw.rfind(b"\x1b[?1049h")
        shown = self.raw.rfind(b"\x1b[?25h") > self.raw.rfind(b"\x1b[?25l")
        return left and shown and termios.tcgetattr(self._slave) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
        os.close(self._slave)
