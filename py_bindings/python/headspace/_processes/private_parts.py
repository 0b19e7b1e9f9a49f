"""Calls functions that use private parts of a library."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def call_ignoring_errors(function: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Calls a function that uses private parts of a library. Another version of the library may lack them."""
    try:
        function(*args, **kwargs)
    except Exception:
        pass
