"""A test marked `alone` has the machine for itself: no other process of pytest-xdist runs a test meanwhile.

Every test holds the lock `room`: shared, or exclusively if it is marked. A test passes through the lock `door` before it
waits for `room`. A marked test keeps `door` while it waits, so it waits only for the tests that have begun.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def machine(*, alone: bool) -> Iterator[None]:
    """Waits until the test may run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:  # there is only this process
        yield
        return
    folder = Path(tempfile.gettempdir())
    with (
        (folder / f"pytest-{run}-door").open("w") as door,
        (folder / f"pytest-{run}-room").open("w") as room,
    ):
        # A process that the test leaves behind inherits the locks, so closing the files may not release them.
        try:
            fcntl.flock(door, fcntl.LOCK_EX)
            try:
                fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            finally:
                fcntl.flock(door, fcntl.LOCK_UN)
            yield
        finally:
            fcntl.flock(room, fcntl.LOCK_UN)
