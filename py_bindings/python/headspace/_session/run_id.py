"""Names the run folder of a run with several ranks, which all of them must share."""

from __future__ import annotations

import os
import time

from headspace import _environment, _settings
from headspace._processes.proc_stat import stat_fields

#: The value of ``HEADSPACE_RUN_ID`` in this process, after `shared_run_id` has removed it from the environment.
_named: str | None = None


def shared_run_id() -> str | None:
    """Name of the run folder, if several ranks must use the same name. None for a single process.

    ``HEADSPACE_RUN_ID`` names the folder for the ranks of all machines. Without it, the ranks of one machine use what they
    have in common: the name is the start time of their launcher, and the ID of the job or else the process ID of the
    launcher.
    """
    if _settings.world_size() == 1:
        return None
    return _take_name() or _name_of_launcher()


def _take_name() -> str | None:
    """The value of ``HEADSPACE_RUN_ID``, removed from the environment. Otherwise a Python process that this rank starts
    would have the same rank and the same name, and would write to this rank's file."""
    global _named
    _named = os.environ.pop("HEADSPACE_RUN_ID", None) or _named
    if _named and (os.path.basename(_named) != _named or _named in {".", ".."}):
        _environment.refuse(
            "HEADSPACE_RUN_ID",
            f"`{_named}` is not a valid folder name (use letters, digits, `-`, `_` and `.`); it is ignored.",
        )
        _named = None
    return _named


def _name_of_launcher() -> str | None:
    # The first process of a container has no parent in it. Its start is not that of a launcher, so other ranks cannot know
    # it: each rank then has a folder of its own.
    if os.getppid() == 0:
        return None
    jobs = map(os.environ.get, ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"))
    value = next((job for job in jobs if job and job != "none"), str(os.getppid()))
    started = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(_started(os.getppid())))
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in value)
    return f"{started}-{safe}"


def _started(pid: int) -> float:
    """Start time of a process, in seconds since 1970; 0 if it is unknown."""
    try:
        ticks = int(stat_fields(f"/proc/{pid}/stat")[19])
        with open("/proc/stat", "rb") as stat:
            boot = next(int(line.split()[1]) for line in stat if line.startswith(b"btime"))
        return boot + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return 0.0
