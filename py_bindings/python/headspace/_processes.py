"""Ends a program with all that it started.

SIGTERM to its process group, so that its records are completed; SIGKILL to what is left of the group
after `GRACE_S`; then whatever bears its mark, in whatever session: `torchrun` gives each rank one of its
own. Only that group and what bears the mark are ever sent a signal.

The leader is not reaped before that is done: its number, which is also the group's, is then not given
to another.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

#: Seconds between SIGTERM and SIGKILL. `torchrun` gives its ranks 30 to end.
GRACE_S = 35.0

#: Seconds that the kernel is given after SIGKILL.
KILLED_S = 5.0

#: How often what bears a mark is looked for: it may start another while it is looked for.
_ROUNDS = 20


class Ending:
    """A program that is being ended.

    Args:
        group: Number of its process group.
        mark: Name and value of a variable that all its processes have in their environment.
        at_once: Without SIGTERM: the program itself has ended, and what it left ends with it.
    """

    def __init__(self, group: int, mark: tuple[str, str], at_once: bool = False) -> None:
        self._group = group
        self._mark = mark
        self._killed = False
        self._until = time.monotonic() + (0.0 if at_once else GRACE_S)
        if not at_once:
            signal_group(group, signal.SIGTERM)

    def poll(self) -> bool:
        """Goes on with it, without waiting. Whether nothing of the program runs any more."""
        if self._killed:
            if not group_lives(self._group):
                return True
            return time.monotonic() > self._until + KILLED_S
        if group_lives(self._group) and time.monotonic() < self._until:
            return False
        self._killed = True
        self._until = time.monotonic()
        signal_group(self._group, signal.SIGKILL)
        end_marked(*self._mark)
        return not group_lives(self._group)

    def wait(self) -> None:
        """Returns when nothing of it runs any more."""
        while not self.poll():
            time.sleep(0.02)


def has_exited(pid: int) -> bool:
    """Whether a child has ended. It stays to be reaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def signal_group(group: int, number: signal.Signals) -> None:
    """Sends a signal to a group, where there is one."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def group_lives(group: int) -> bool:
    """Whether a process of that group runs; one that nobody reaps does not."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        found = _stat(path)
        if found is not None and found[1] == group and found[0] != "Z":
            return True
    return False


def marked(name: str, value: str) -> Iterator[int]:
    """Processes of this user, but this one, in whose environment that variable is the value, or a path
    whose last part is."""
    start, wanted = os.fsencode(f"{name}="), os.fsencode(value)
    for path in Path("/proc").glob("[0-9]*/environ"):
        pid = int(path.parent.name)
        if pid == os.getpid():
            continue
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:
            continue
        values = [one.removeprefix(start) for one in variables if one.startswith(start)]
        if any(wanted in (one, one.rpartition(b"/")[2]) for one in values):
            found = _stat(path.with_name("stat"))
            if found is not None and found[0] != "Z":
                yield pid


def end_marked(name: str, value: str) -> int:
    """Kills them. Returns how many there were."""
    ended: set[int] = set()
    for _ in range(_ROUNDS):
        found = list(marked(name, value))
        if not found:
            break
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
                ended.add(pid)
            except OSError:
                continue
        time.sleep(0.01)
    return len(ended)


def _stat(path: Path) -> tuple[str, int] | None:
    """State and process group; None where the process is gone."""
    try:
        # Behind the name, which may hold anything: state, parent, group (proc_pid_stat(5)).
        state, _, group = path.read_text().rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return None
    return state, int(group)
