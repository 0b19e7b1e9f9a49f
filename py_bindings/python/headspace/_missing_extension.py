"""Explains why the compiled module cannot be imported. `__init__.py` imports this file only if something is wrong, or in a
free-threaded Python.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib.machinery import EXTENSION_SUFFIXES


def check_free_threaded() -> None:
    """Checks that the compiled module was built for free-threaded Pythons.

    Python 3.13 and 3.14 would load one that was built for others (`abi3`), and crash.

    Raises:
        ImportError: If it was not.
    """
    module = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_native")
    suffixes = (suffix for suffix in EXTENSION_SUFFIXES if suffix != ".abi3.so")
    if not any(os.path.exists(module + suffix) for suffix in suffixes):
        raise ImportError(explain())


def explain() -> str:
    """Which Python has no compiled module, and how to get one."""
    kind = ", free-threaded" if "t" in sys.abiflags else ""
    return (
        "headspace's compiled module is missing or not built for this Python "
        f"({platform.python_implementation()} {platform.python_version()}{kind} on {platform.machine()}). "
        "Install the wheel of the release for this Python and machine, or build headspace in a clone of its repository: "
        "`pip install .`"
    )
