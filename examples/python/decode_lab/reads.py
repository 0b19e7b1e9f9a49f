"""Counts the bytes that processes read, from the kernel's counters in `/proc/<pid>/io`.

When a process waits for a child that ended, the kernel adds the child's counters to those of the process
(`wait_task_zombie` in `kernel/exit.c`). So a program that runs for one clip is counted completely after its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def bytes_read(processes: Iterable[int], piped: bool) -> int | None:
    """Bytes of read calls until now, by these processes and by their child processes that have ended.

    Pages of a file that is mapped into memory are not counted, because the kernel has no counter for them.

    Args:
        processes: Ids of the processes.
        piped: Whether other programs read the clips and send the frames through pipes. If so, the threads of
            `processes` read only pipes, and their bytes are excluded.

    Returns:
        None if the kernel does not count, or if a process no longer exists.
    """
    try:
        return sum(_bytes_of(Path(f"/proc/{process}"), piped) for process in processes)
    except (OSError, ValueError):
        return None


def _bytes_of(process: Path, piped: bool) -> int:
    total = _requested(process)
    if piped:
        total -= sum(_requested(thread) for thread in (process / "task").iterdir())
    return total


def _requested(task: Path) -> int:
    """`rchar` of a process or of one of its threads."""
    name, value = (task / "io").read_text().splitlines()[0].split()
    if name != "rchar:":
        raise ValueError(f"`{task}/io` has no `rchar`")
    return int(value)
