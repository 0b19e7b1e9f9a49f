"""Reads `/proc/PID/stat`."""

from __future__ import annotations

import os


def stat_fields(path: str | os.PathLike[str]) -> list[str]:
    """The fields after the process name (proc_pid_stat(5)). Empty if the process has ended."""
    try:
        # The name before the state may contain anything.
        with open(path, errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return []
