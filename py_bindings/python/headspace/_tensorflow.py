"""tf.data: datasets that are iterated eagerly.

TensorFlow takes an iterator apart where it is given to a compiled function, and it must be TensorFlow's own.
So the iterator stays what it is, and its `__next__` is timed. What a compiled function iterates, as `fit` of
Keras does, is not seen.
"""

from __future__ import annotations

import sys

from headspace import _guard, _loops, _nesting, _session, _watch
from headspace._calls import Calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_ATTRIBUTE = "_headspace_calls"


class _DatasetCalls(Calls):
    """The calls of an iterator of a dataset, which is the loader."""

    __slots__ = ("_headspace_loader",)

    _headspace_length = staticmethod(_loops.length)

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        self._headspace_loader = dataset


def ready(_name: str, module: ModuleType) -> None:
    """``tensorflow.python.data.ops.iterator_ops`` has been imported."""
    kind = module.OwnedIterator
    original = kind.__next__
    if hasattr(original, "_headspace_original"):
        return
    from functools import wraps

    @wraps(original)
    def __next__(self: Any) -> Any:
        calls = vars(self).get(_ATTRIBUTE, ())
        if calls == () and _is_eager():
            # An iterator that was made of its parts has no dataset.
            dataset = getattr(self, "_dataset", None)
            known = None if dataset is None else _guard.quietly(_watch._loop_of, dataset)
            calls = None if known is None else _guard.quietly(_begin, known, dataset)
            setattr(self, _ATTRIBUTE, calls)
        if not calls or not _is_eager():
            return original(self)
        iterator, source = calls
        source.call = original, (self,), {}
        try:
            return next(iterator)
        finally:
            source.call = None

    __next__._headspace_original = original  # type: ignore[attr-defined]
    kind.__next__ = __next__


def _is_eager() -> bool:
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and bool(tensorflow.executing_eagerly())


def _begin(known: _watch._Known, dataset: Any) -> tuple[Any, Calls]:
    source = _DatasetCalls(dataset)
    iterator = _nesting.make(known.loop, known.loop.iterate, source, _session._begin)
    known.last = _watch._weak(iterator)
    return iterator, source
