"""Removes files from the page cache, and reports which share of their pages is in it.

The kernel may ignore `posix_fadvise`, for example for pages that are not yet written. So `cold_share` calls
`mincore`, which reports the state of each page, and the table shows the result.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_MAP_FAILED = ctypes.c_void_p(-1).value


def files_of(path: Path) -> list[Path]:
    """The file itself, or all files of a folder."""
    return sorted(path.iterdir()) if path.is_dir() else [path]


def evict(paths: Iterable[Path]) -> None:
    """Writes the files to storage and asks the kernel to drop their pages."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def load(paths: Iterable[Path]) -> None:
    """Reads the files, so that their pages are in the cache."""
    for path in paths:
        path.read_bytes()


def count_pages(path: Path) -> tuple[int, int]:
    """The number of the file's pages in the page cache, and the number of all its pages.

    Since Linux 5.2, `mincore` reports every page as cached if this user neither owns the file nor can write it.

    Raises:
        OSError: If the file cannot be mapped.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        length = os.fstat(descriptor).st_size
        if not length:
            return 0, 0
        address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), f"cannot map `{path}`")
        try:
            pages = -(-length // mmap.PAGESIZE)
            answer = ctypes.create_string_buffer(pages)
            if _libc.mincore(address, length, answer):
                raise OSError(ctypes.get_errno(), f"`mincore` failed for `{path}`")
            # Only the lowest bit is defined (mincore(2)).
            return sum(byte & 1 for byte in answer.raw), pages
        finally:
            _libc.munmap(address, length)
    finally:
        os.close(descriptor)


def cold_share(paths: Iterable[Path]) -> float:
    """Share of the files' pages that are not in the page cache, from 0 to 1."""
    cached = total = 0
    for path in paths:
        here, pages = count_pages(path)
        cached += here
        total += pages
    return 1 - cached / total if total else 0.0
