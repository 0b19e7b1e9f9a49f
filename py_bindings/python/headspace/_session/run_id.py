"""Names the run folder of a run with several ranks, which all of them must share."""

from __future__ import annotations

import os
import time

from headspace import _settings
from headspace._processes.proc_stat import stat_fields


def shared_run_id() -> str | None:
    """Name of the run folder, if several ranks must use the same name. None for a single process.

    All ranks of a machine have the same launcher. The name is the start time of the launcher, and the ID of
    the job or else the process ID of the launcher.
    """
    # The first process of a container has no parent in it. Its start is not that of a launcher, so other ranks cannot know
    # it: each rank then has a folder of its own.
    if _settings.world_size() == 1 or os.getppid() == 0:
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
