"""`pickle` and `copy` of a measured iterator return or raise the same as for the original iterator."""

from __future__ import annotations

import copy
import copyreg
import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from running import Runs

import headspace


class Own:
    """An iterator with its own `__copy__` and `__deepcopy__`."""

    def __init__(self) -> None:
        self.left = [3, 2, 1]

    def __iter__(self) -> Own:
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        return self.left.pop()

    def __copy__(self) -> Own:
        return self

    def __deepcopy__(self, memo: Any) -> Own:
        other = Own()
        other.left = copy.deepcopy(self.left, memo)
        return other


class Registered(Own):
    """An iterator that is pickled by a function in `copyreg.dispatch_table`."""


class Made:
    """A loader that creates its iterators with a function."""

    def __init__(self, make: Callable[[], Iterator[Any]]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[Any]:
        return self.make()


def torchs(workers: int) -> Iterator[Any]:
    data = pytest.importorskip("torch.utils.data")
    iterator: Iterator[Any] = iter(data.DataLoader(range(4), num_workers=workers))
    return iterator


SOURCES: dict[str, Callable[[], Iterator[Any]]] = {
    "list": lambda: iter([1, 2, 3]),
    "range": lambda: iter(range(3)),
    "map": lambda: map(abs, [1, 2, 3]),
    "chain": lambda: itertools.chain([1], [2, 3]),
    "generator": lambda: (number for number in (1, 2, 3)),
    "own": Own,
    "registered": Registered,
    "torch": lambda: torchs(0),
    "torch with workers": lambda: torchs(1),
}

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda it, protocol=protocol: pickle.loads(pickle.dumps(it, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


def outcome(copied: Callable[[Any], Any], iterator: Any) -> object:
    """The type of the copy and its remaining items, or the error. Then the remaining items of the original."""
    next(iterator)
    try:
        other = copied(iterator)
    except Exception as error:
        return type(error), str(error), len(list(iterator))
    is_same = other is iterator
    return type(other) if not is_same else "itself", list(other), list(iterator)


@pytest.mark.parametrize("mode", ["measure", "probe"])
@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("source", SOURCES)
def test_a_copied_iterator_behaves_as_without_headspace(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, source: str, copied: str, mode: str
) -> None:
    monkeypatch.setitem(copyreg.dispatch_table, Registered, lambda it: (list, (list(it.left),)))
    make, how = SOURCES[source], COPIES[copied]

    expected = outcome(how, make())
    got = outcome(how, iter(headspace.wrap(Made(make), mode=mode)))

    assert got == expected
