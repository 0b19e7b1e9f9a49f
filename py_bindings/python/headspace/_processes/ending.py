"""Ends a program with all the processes that it started.

First SIGTERM to its process group, so that records are completed. After `GRACE_S` SIGKILL to the rest of
the group, and then to every process with the program's mark in its environment, since `torchrun` starts
each rank in a session of its own. No other process is sent a signal.

The leader of the group is reaped only after that, so that its number, which is also the group's, is not
given to another process meanwhile.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from headspace._processes.proc_stat import stat_fields

#: Seconds between SIGTERM and SIGKILL. `torchrun` gives its ranks 30 to end.
GRACE_S = 35.0

#: Seconds that the kernel is given after SIGKILL.
KILLED_S = 5.0

#: How often marked processes are searched: one may start another during a search.
_ROUNDS = 20


class Ending:
    """A program that is being ended.

    Args:
        group: Number of its process group.
        mark: Name and value of a variable that all its processes have in their environment.
        at_once: Skip SIGTERM: the program itself has ended, and only its children are left.
    """

    def __init__(self, group: int, mark: tuple[str, str], at_once: bool = False) -> None:
        self._group = group
        self._mark = mark
        self._killed = False
        self._until = time.monotonic() + (0.0 if at_once else GRACE_S)
        if not at_once:
            signal_group(group, signal.SIGTERM)

    def poll(self) -> bool:
        """Takes the next step, without waiting. Returns whether no process of the program is left."""
        if self._killed:
            return not group_lives(self._group) or time.monotonic() > self._until + KILLED_S
        if group_lives(self._group) and time.monotonic() < self._until:
            return False
        self._killed = True
        self._until = time.monotonic()
        signal_group(self._group, signal.SIGKILL)
        end_marked(*self._mark)
        return not group_lives(self._group)

    def wait(self) -> None:
        """Returns when no process of the program is left."""
        while not self.poll():
            time.sleep(0.02)


def has_exited(pid: int) -> bool:
    """Whether a child has exited. It is not reaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def signal_group(group: int, number: signal.Signals) -> None:
    """Sends a signal to a group, if it exists."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def group_lives(group: int) -> bool:
    """Whether a process of that group is running. A zombie is not."""
    stats = map(stat_fields, Path("/proc").glob("[0-9]*/stat"))
    return any(fields[2:3] == [str(group)] and fields[0] != "Z" for fields in stats)


def find_marked(name: str, value: str) -> Iterator[int]:
    """Other processes of this user with that variable in their environment: its value is `value`, or a
    path that ends in it."""
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
            fields = stat_fields(path.with_name("stat"))
            if fields and fields[0] != "Z":
                yield pid


def end_marked(name: str, value: str) -> int:
    """Kills the marked processes. Returns how many there were."""
    ended: set[int] = set()
    for _ in range(_ROUNDS):
        found = list(find_marked(name, value))
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
