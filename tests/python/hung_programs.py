"""Describes a program that does not end: what each of its processes and threads executes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def processes_of(session: int) -> list[int]:
    """The processes of the session that the process with this id began."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, fields = stat.read_text().rpartition(")")
        except OSError:  # it ended
            continue
        if int(fields.split()[3]) == session:
            found.append(int(stat.parent.name))
    return sorted(found)


def describe_processes(session: int) -> str:
    """The stacks of all its processes by py-spy. Without py-spy, the functions of the kernel in which they wait."""
    tool = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    parts = []
    for pid in processes_of(session):
        try:
            command = (
                Path(f"/proc/{pid}/cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")
            )
            waits = [
                (path.parent.name, path.read_text())
                for path in Path(f"/proc/{pid}/task").glob("*/wchan")
            ]
        except OSError:  # it ended
            continue
        parts.append(f"process {pid}: {command}\n  kernel waits: {waits}")
        if tool is not None:
            # With `--native`, frames of C are shown too: a process may hang in `os.fork` itself.
            for how in ("--native", "--nonblocking"):
                dump = [tool, "dump", how, "--pid", str(pid)]
                try:
                    done = subprocess.run(dump, capture_output=True, text=True, timeout=10)
                except subprocess.TimeoutExpired as error:
                    parts.append(str(error))
                    continue
                parts.append(done.stdout + done.stderr)
                if done.returncode == 0:
                    break
    return "\n".join(parts)
