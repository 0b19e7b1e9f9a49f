"""Tracks running iterations of loaders, so that a loader inside another one is not counted as a second
loop.

Only the outermost loader counts. A loader is inside another one in two cases. The same thread is waiting
for the other loader's batch or iterator. Or the loader is iterated on a thread other than the main one
while another loader is iterated elsewhere: then it feeds that one.
"""

from __future__ import annotations

import os
from _thread import _local as ThreadLocal  # `threading` takes long to import.
from _thread import get_ident
from _weakref import ref

from headspace._processes.private_parts import call_ignoring_errors
from headspace._session import lifecycle, threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headspace import _native


class Enclosing:
    """Stands for the loop around a loader that is inside another one. It does not keep the loop alive.

    The stages of the inner loader belong to this loop. The inner iterator is the loader's own.
    """

    def __init__(self, loop: _native.Loop) -> None:
        self.name = loop.name
        self.type_name = loop.type_name

    @staticmethod
    def iterate(loader: Any, _session: Any, _role: Any) -> Any:
        return iter(loader)


class _Local(ThreadLocal):
    #: The loops whose iterators this thread is making, the outermost first.
    making: tuple[Enclosing, ...] = ()


_local = _Local()

#: The iterators that were made, each with the thread that made it and its loop.
_iterators: list[tuple[ref[Any], int, Enclosing]] = []

#: How many iterations have begun in this process.
begun = 0


def _after_fork() -> None:
    # The iterations of the parent are not the child's.
    global _local
    _iterators.clear()
    _local = _Local()


os.register_at_fork(after_in_child=_after_fork)


def begin_epoch(
    loop: _native.Loop, source: Any, role: str | None = None, torch_loader: Any = None
) -> Any:
    """An iterator over `source`, recorded as an epoch of the loop.

    Args:
        role: The purpose of the epoch, if the loop does not know it.
        torch_loader: The torch loader that is iterated. Its stages are recorded, too.
    """
    global begun
    begun += 1
    own, before = Enclosing(loop), _local.making
    _local.making = (*before, own)
    try:
        if torch_loader is None:
            if type(source).__module__.startswith("spdl.") and threads.is_main_thread():
                call_ignoring_errors(_watch_receipt, loop, source)
            iterator = loop.iterate(source, lifecycle.begin, role)
        else:
            from headspace.torch import iterate

            iterator = iterate(loop, source, torch_loader, role)
    finally:
        _local.making = before
    if hasattr(type(iterator), "_headspace_is_asked"):
        _iterators[:] = [entry for entry in _iterators if _is_running(entry[0]())]
        _iterators.append((ref(iterator), get_ident(), own))
    return iterator


def _watch_receipt(loop: _native.Loop, source: object) -> None:
    """Times the receipt of batches from another process, if `source` is SPDL's iterable of such batches."""
    from headspace.spdl._hand_off import watch_receipt

    watch_receipt(loop, source)


def _is_running(iterator: Any) -> bool:
    return iterator is not None and not iterator._headspace_has_ended


def is_iterating() -> bool:
    """Whether a watched loader is iterated in this process."""
    return any(_is_running(iterator()) for iterator, *_ in _iterators)


def interrupt_iterations() -> None:
    """Excludes the time until the next batch from training steps: this thread begins an evaluation."""
    if enclosing_loop() is None:
        for entry, *_ in _iterators:
            iterator = entry()
            if iterator is not None:
                iterator._headspace_interrupt()


def enclosing_loop() -> Enclosing | None:
    """The loop whose loader contains the iteration that this thread begins now. None if it is not part of a
    loader that is watched."""
    if _local.making:
        return _local.making[0]
    this_thread = get_ident()
    is_main_thread = threads.is_main_thread()
    for entry, thread, loop in _iterators:
        iterator = entry()
        if iterator is None:
            continue
        if iterator._headspace_is_asked:
            return loop
        if not is_main_thread and thread != this_thread and not iterator._headspace_has_ended:
            return loop
    return None
