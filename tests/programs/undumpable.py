"""`slow_line.py` in processes that other processes may not read.

    python undumpable.py SPEC

The process is undumpable, as its children are, and has no capabilities. So under Linux no other process
can read its memory.
"""

from __future__ import annotations

import ctypes
import struct

PR_SET_DUMPABLE = 4
CAPABILITIES_V3 = 0x20080522


def forbid_reads() -> None:
    """Drops all capabilities, and makes this process undumpable."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, none = struct.pack("=Ii", CAPABILITIES_V3, 0), bytes(24)
    if libc.capset(header, none) != 0 or libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot give up rights")


if __name__ == "__main__":
    forbid_reads()

    import slow_line

    slow_line.main()
