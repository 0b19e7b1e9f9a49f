"""Refuses subinterpreters, before the extension module is loaded.

The extension module has one state per process: its types, and the agent's threads. CPython 3.11 hangs at the end of a
program, and 3.12 aborts, if a subinterpreter still has such a thread. So nothing of the module may be loaded there.
"""

from __future__ import annotations


def refuse() -> None:
    """Raises an error in every interpreter but the main one.

    Raises:
        ImportError: In a subinterpreter.
    """
    try:
        import _interpreters as interpreters  # type: ignore[import-not-found] # From 3.13 on.
    except ImportError:
        try:
            import _xxsubinterpreters as interpreters  # type: ignore[import-not-found]
        except ImportError:  # This Python was built without subinterpreters.
            return
    if interpreters.get_current() != interpreters.get_main():
        raise ImportError(
            "headspace works only in the main interpreter of a process, and this is a subinterpreter. Import headspace "
            "in the main interpreter, or run this code in a process of its own (`multiprocessing`)"
        )


refuse()
del refuse
