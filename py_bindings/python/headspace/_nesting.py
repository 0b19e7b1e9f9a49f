"""Which iterations of loaders go on, so that a loader within another one is not taken for a second.

Only the outermost counts. A loader is within another where that is being asked for a batch, or for
its iterator, by the same thread; and where it is iterated on a thread beside the main one while
another is iterated elsewhere: it feeds that one.
"""

from __future__ import annotations

import os
import sys
from _thread import _local as ThreadLocal  # `threading` takes long to import.
from _thread import get_ident
from _weakref import ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headspace import _native


class Enclosing:
    """What a loader within another one is told of the loop around it. It keeps nothing of the loop alive."""

    __slots__ = ("name", "type_name")

    def __init__(self, loop: _native.Loop) -> None:
        self.name = loop.name
        self.type_name = loop.type_name


class _Local(ThreadLocal):
    #: The loops whose iterators this thread is making, the outermost first.
    making: tuple[Enclosing, ...] = ()


_local = _Local()

#: The iterators that were given out, each with the thread that made it and its loop.
_given: list[tuple[ref[Any], int, Enclosing]] = []

#: How many iterations have begun in this process.
begun = 0


def _after_fork() -> None:
    # What a parent's thread was about is nothing to its child.
    global _local
    _given.clear()
    _local = _Local()


os.register_at_fork(after_in_child=_after_fork)


def make(loop: _native.Loop, iterate: Callable[..., Any], *args: Any) -> Any:
    """``iterate(*args)``, an iterator of the loop's loader."""
    global begun
    begun += 1
    own, before = Enclosing(loop), _local.making
    _local.making = (*before, own)
    try:
        iterator = iterate(*args)
    finally:
        _local.making = before
    if hasattr(type(iterator), "_headspace_is_asked"):
        _given[:] = [entry for entry in _given if _goes_on(entry[0]())]
        _given.append((ref(iterator), get_ident(), own))
    return iterator


def _goes_on(iterator: Any) -> bool:
    return iterator is not None and not iterator._headspace_has_ended


def goes_on() -> bool:
    """Whether a watched loader is iterated in this process."""
    return any(_goes_on(iterator()) for iterator, *_ in _given)


def interrupt() -> None:
    """What this thread iterates stands still: it begins an evaluation, which is no part of a step."""
    if not is_within():
        for entry, *_ in _given:
            iterator = entry()
            if iterator is not None:
                iterator._headspace_interrupt()


def is_beside() -> bool:
    """Whether this thread is not the main one."""
    threading = sys.modules.get("threading")
    return threading is not None and threading.main_thread().ident != get_ident()


def is_within() -> bool:
    """Whether what this thread begins to iterate is part of a loader that is watched."""
    return enclosing() is not None


def enclosing() -> Enclosing | None:
    """The loop whose loader has within it what this thread begins to iterate."""
    if _local.making:
        return _local.making[0]
    here = get_ident()
    beside = is_beside()
    for entry, thread, around in _given:
        iterator = entry()
        if iterator is None:
            continue
        if iterator._headspace_is_asked:
            return around
        if beside and thread != here and not iterator._headspace_has_ended:
            return around
    return None
