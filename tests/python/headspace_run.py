"""Runs programs under `headspace run`."""

from __future__ import annotations

import sys
from typing import Any

from running import Programs, Ran, Started

#: The command before the program.
HEADSPACE = [sys.executable, "-m", "headspace", "run"]


def under_headspace(*options: str, python: list[str] | None = None) -> dict[str, Any]:
    """Arguments for `Programs` that start the program by `headspace run` with these options."""
    return {"python": [*HEADSPACE, *options, "--", *(python or [sys.executable])]}


def run(
    program: Programs, name: str, *args: object, options: tuple[str, ...] = (), **how: Any
) -> Ran:
    """Runs a program under `headspace run` to its end."""
    how = {"timeout": 120.0, **how}
    return program(name, *args, **under_headspace(*options, python=how.pop("by", None)), **how)


def start(program: Programs, name: str, *args: object, **how: Any) -> Started:
    return program.start(name, *args, **under_headspace(), **how)


def without_verdict(stderr: str) -> str:
    """The output of the program itself on stderr."""
    return stderr.partition("headspace  ")[0]
