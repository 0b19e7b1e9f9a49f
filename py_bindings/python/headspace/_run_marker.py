"""The file that shows the process of `headspace run` that a child process started a session.

`_injection/hooks.py` loads this file by its path, before any module of headspace. So this file imports nothing
of headspace.
"""

from __future__ import annotations

import os


def create() -> None:
    """Creates the file, if this process runs under `headspace run`.

    The file is created only if that process runs Python, because otherwise it would not remove the file.
    """
    try:
        pid = int(os.environ.get("HEADSPACE_RUN_PID", "0"))
        if pid in (0, os.getpid()):
            return
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        if program.startswith(("python", "pypy")):
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(_path(pid), flags, 0o600))
    except (OSError, ValueError):  # The file exists already, or the process has exited.
        pass


def remove() -> bool:
    """Removes the file for this process. Returns whether it existed."""
    try:
        os.unlink(_path(os.getpid()))
    except OSError:
        return False
    return True


def _path(pid: int) -> str:
    folder = os.environ.get("TMPDIR") or "/tmp"
    return os.path.join(folder, f"headspace-run-{os.getuid()}-{pid}")
