"""Catches headspace's own errors, so that they do not reach the program, and reports the first one."""

from __future__ import annotations

from headspace._environment import prints_notices
from headspace._session import stderr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: An error was reported.
has_reported = False


def print_notice(text: str) -> None:
    """One line on stderr, on rank 0."""
    if prints_notices():
        stderr.write_line(f"headspace: {text}.")


def call_safely(function: Callable[..., Any], *args: Any) -> Any:
    """The function's result. None if it raises; the first such error is reported."""
    global has_reported
    try:
        return function(*args)
    except Exception as error:
        if not has_reported:
            has_reported = True
            print_notice(f"not everything is measured: {_describe(error)}. Training continues")
        return None


def _describe(error: Exception) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # The error may be of a class of the program.
        return name
