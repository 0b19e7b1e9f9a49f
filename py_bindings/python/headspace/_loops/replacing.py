"""Replaces functions of other libraries by wrappers of them, each function once."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def replace(owner: Any, name: str, make_wrapper: Callable[[Any], Any]) -> None:
    """Replaces a function of this class or module by a wrapper of it.

    Args:
        make_wrapper: Makes the wrapper of the function. Not called for a function that was replaced already.
    """
    original = getattr(owner, name)
    if not is_replaced(original):
        setattr(owner, name, mark(make_wrapper(original), original))


def is_replaced(function: Any) -> bool:
    """Whether :func:`mark` marked it."""
    return hasattr(function, "_headspace_original")


def mark(wrapper: Any, original: Any) -> Any:
    """Marks a wrapper as ours, and gives it the name and the documentation of the original."""
    from functools import update_wrapper

    update_wrapper(wrapper, original)
    wrapper._headspace_original = original
    return wrapper
