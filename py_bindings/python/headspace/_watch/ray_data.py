"""Watches the datasets and data iterators of Ray Data.

Their methods return an iterable, which can be iterated several times. Each iteration is an epoch of the
dataset or data iterator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from inspect import signature
from types import ModuleType
from typing import Any

from headspace._loops.epochs import length_of
from headspace._loops.replacing import replace
from headspace._session.own_errors import call_safely
from headspace._watch.find_loop import find_loop
from headspace._watch.ray_operators import watch_operators

_METHODS = (
    "iter_batches",
    "iter_rows",
    "iter_torch_batches",
    "iter_jax_batches",
    "iter_tf_batches",
)


def module_imported(_name: str, module: ModuleType) -> None:
    """``ray.data`` has been imported."""
    call_safely(watch_operators)
    for kind in (vars(module)["Dataset"], vars(module)["DataIterator"]):
        for method in _METHODS:
            if method in vars(kind):
                replace(kind, method, _watch_iterations)


def _watch_iterations(original: Callable[..., Any]) -> Callable[..., Any]:
    def make_iterable(self: Any, *args: Any, **kwargs: Any) -> Any:
        iterable = original(self, *args, **kwargs)
        # Ray calls these methods itself, for example in `take`.
        if str(sys._getframe(1).f_globals.get("__name__")).startswith("ray.data."):
            return iterable
        batch_size = call_safely(_batch_size, original, (self, *args), kwargs)
        watched = _Iterable(self, iterable, batch_size)
        # The methods for JAX and TensorFlow return an iterator.
        return iter(watched) if hasattr(type(iterable), "__next__") else watched

    return make_iterable


def _batch_size(method: Callable[..., Any], args: Any, kwargs: Any) -> int | None:
    """Samples per batch. None if a batch is a whole block."""
    arguments = signature(method).bind(*args, **kwargs)
    arguments.apply_defaults()
    size = arguments.arguments.get("batch_size", 1)
    return size if type(size) is int and size > 0 else None


class _Iterable:
    """Stands for the iterable that a method returned."""

    __slots__ = ("__weakref__", "_batch_size", "_headspace_loader", "_iterable")

    _headspace_length = staticmethod(length_of)

    def __init__(self, loader: Any, iterable: Iterable[Any], batch_size: int | None) -> None:
        self._headspace_loader = loader
        self._iterable = iterable
        self._batch_size = batch_size

    def __iter__(self) -> Iterator[Any]:
        loop = call_safely(find_loop, self._headspace_loader, self._batch_size)
        if loop is None:
            return iter(self._iterable)
        # The loop iterates this object again. That iteration is inside its own, so it has no loop.
        iterator: Iterator[Any] = loop.begin_epoch(self, self._headspace_loader)
        return iterator
