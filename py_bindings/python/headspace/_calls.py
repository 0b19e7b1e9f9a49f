"""Calls of a function in the place of a loader's batches."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Calls:
    """An endless iterator: the next batch is what the function returns."""

    __slots__ = ("call",)

    def __init__(self) -> None:
        self.call: tuple[Callable[..., Any], Any, Any] | None = None

    def __iter__(self) -> Calls:
        return self

    def __next__(self) -> Any:
        if self.call is None:
            raise StopIteration
        function, args, kwargs = self.call
        return function(*args, **kwargs)
