"""Control groups that limit the memory of a program, where this process may make them."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running import wait_until

#: The folder of the memory cgroups, and the file with the limit: for cgroup v1, and for cgroup v2.
_HOMES = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))

_ENTER = (
    "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[list[str]]:
    """A command that runs Python with further arguments in a cgroup with this limit.

    Skips the test if no cgroup can be created.
    """
    for home, limit in _HOMES:
        group = Path(home, f"headspace-test-{os.getpid()}")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if _set_limit(group / limit, limit_bytes):
                yield [sys.executable, "-c", _ENTER, str(group / "cgroup.procs")]
                return
        finally:
            wait_until(lambda group=group: _remove(group), "the processes of the group end")
    pytest.skip("platform: no control group of memory can be made here")


def _remove(group: Path) -> bool:
    """Removes the group. Returns False if it still has processes, such as the fork server of worker processes."""
    try:
        group.rmdir()
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.ENOTEMPTY):
            return False
        raise
    return True


def _set_limit(file: Path, limit_bytes: int) -> bool:
    """Sets the limit. Returns whether there is such a limit."""
    try:
        file.write_text(str(limit_bytes))
    except OSError:
        return False
    return True
