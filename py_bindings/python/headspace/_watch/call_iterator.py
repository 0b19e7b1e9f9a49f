"""Defines an iterator whose batches are the results of calls, so that calls are timed like a loader."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class CallIterator:
    """An endless iterator: the next batch is the result of the call in `call`."""

    #: Function, positional and keyword arguments. Set for the time of one call.
    call: tuple[Callable[..., Any], Any, Any] | None = None

    def __iter__(self) -> CallIterator:
        return self

    def __next__(self) -> Any:
        if self.call is None:
            raise StopIteration
        function, args, kwargs = self.call
        return function(*args, **kwargs)
