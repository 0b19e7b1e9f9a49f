"""Watches datasets of tf.data that are iterated eagerly.

TensorFlow takes an iterator apart if it is passed to a compiled function, so it must stay TensorFlow's own.
Its `__next__` is replaced by one that times the call. Iterations inside a compiled function, such as those
of Keras' `fit`, are not seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from headspace._loops.epochs import length_of
from headspace._loops.replacing import replace
from headspace._session.own_errors import call_safely
from headspace._watch.call_iterator import CallIterator
from headspace._watch.find_loop import WatchedLoop, find_loop

#: The attribute of TensorFlow's iterator with ours, and with the calls that ours makes.
_ATTRIBUTE = "_headspace_calls"


class _DatasetCalls(CallIterator):
    """The calls of `__next__` of a dataset's iterator. The dataset is the loader."""

    _headspace_length = staticmethod(length_of)

    def __init__(self, dataset: Any) -> None:
        self._headspace_loader = dataset


def module_imported(_name: str, module: ModuleType) -> None:
    """``tensorflow.python.data.ops.iterator_ops`` has been imported."""
    replace(module.OwnedIterator, "__next__", _watch_calls)


def _watch_calls(original: Callable[..., Any]) -> Callable[..., Any]:
    def __next__(self: Any) -> Any:
        calls = vars(self).get(_ATTRIBUTE, ())
        if calls == () and _is_eager():
            # An iterator that was made from its components has no dataset.
            dataset = getattr(self, "_dataset", None)
            loop = None if dataset is None else call_safely(find_loop, dataset)
            calls = None if loop is None else call_safely(_begin_epoch, loop, dataset)
            setattr(self, _ATTRIBUTE, calls)
        if not calls or not _is_eager():
            return original(self)
        iterator, source = calls
        source.call = original, (self,), {}
        try:
            return next(iterator)
        finally:
            source.call = None

    return __next__


def _is_eager() -> bool:
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and bool(tensorflow.executing_eagerly())


def _begin_epoch(loop: WatchedLoop, dataset: Any) -> tuple[Any, CallIterator]:
    source = _DatasetCalls(dataset)
    return loop.begin_epoch(source, dataset), source
