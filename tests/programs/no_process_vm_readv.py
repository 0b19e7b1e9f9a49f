"""`slow_line.py` in a process whose system calls are filtered, as in a hardened container.

    python no_process_vm_readv.py SPEC

The filter (seccomp) refuses `process_vm_readv`, also for the memory of the process itself.
"""

from __future__ import annotations

import ctypes
import platform
import struct

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
PROCESS_VM_READV = {"x86_64": 310, "aarch64": 270}[platform.machine()]
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE_WITH_EPERM = 0x7FFF0000, 0x00050001


class Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def refuse_reads() -> None:
    """Installs the filter for this process and its children."""
    instructions = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (LOAD_NUMBER, 0, 0, 0),
            (JUMP_IF_EQUAL, 0, 1, PROCESS_VM_READV),
            (RETURN, 0, 0, REFUSE_WITH_EPERM),
            (RETURN, 0, 0, ALLOW),
        )
    )
    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(len(instructions) // 8, instructions)
    if (
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0
    ):
        raise OSError(ctypes.get_errno(), "cannot filter system calls")


if __name__ == "__main__":
    refuse_reads()

    import slow_line

    slow_line.main()
