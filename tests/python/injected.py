"""Runs programs under `headspace run`, and as they are."""

from __future__ import annotations

import sys
from typing import Any

from running import Programs, Ran, Started

#: The command, in front of whatever is run.
HEADSPACE = [sys.executable, "-m", "headspace", "run"]


def under(*options: str, python: list[str] | None = None) -> dict[str, Any]:
    """For `Programs`: the program is started by `headspace run` with those options."""
    return {"python": [*HEADSPACE, *options, "--", *(python or [sys.executable])]}


def run(
    program: Programs, name: str, *args: object, options: tuple[str, ...] = (), **how: Any
) -> Ran:
    """A program under `headspace run`, to its end."""
    how = {"timeout": 120.0, **how}
    return program(name, *args, **under(*options, python=how.pop("by", None)), **how)


def start(program: Programs, name: str, *args: object, **how: Any) -> Started:
    return program.start(name, *args, **under(), **how)


def without_verdict(stderr: str) -> str:
    """What the program itself said on stderr."""
    return stderr.partition("headspace  ")[0]
