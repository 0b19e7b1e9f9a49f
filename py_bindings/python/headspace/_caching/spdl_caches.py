"""Implements replacements for SPDL's caches: live batches first, then cached batches, with measurements."""

from __future__ import annotations

from itertools import chain

from headspace import _settings
from headspace._loops import names, nesting
from headspace._loops.attributes import type_name_of
from headspace._loops.epochs import length_of
from headspace._loops.loader_facts import samples_per_batch
from headspace._loops.make_loop import make_loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, TypeVar

    from headspace import _native

    T = TypeVar("T")

    #: `num_caches`, `return_caches_after` and `stop_after`.
    Numbers = tuple[int, int | None, int | None]


class CacheDataLoader:
    """Replacement for SPDL's class of the same name: live batches first, then cached batches, all measured.

        for batch in headspace.CacheDataLoader(loader, 10, 100, stop_after=1000):
            train_step(batch)

    Yields the same batches and raises the same errors as SPDL's class, with four differences:

    - Without ``stop_after``, an epoch keeps the length of the loader, if the loader has a length.
    - The cache is kept for the next epochs.
    - When the cached batches begin, the loader's iterator is released, even if the loader itself keeps it
      (torch's persistent workers).
    - Batches that are changed in place are detected.

    Args:
        dl: The loader.
        num_caches: Number of batches to cache, at least 1.
        return_caches_after: Number of live batches before the first cached batch, at least ``num_caches``.
        stop_after: Number of batches after which the iteration ends.
    """

    def __init__(
        self,
        dl: Iterable[T],
        num_caches: int,
        return_caches_after: int,
        stop_after: int | None = None,
    ) -> None:
        self.dl = dl
        self.num_caches = num_caches
        self.return_caches_after = return_caches_after
        self.stop_after = stop_after
        self._loop: tuple[Numbers, _native.Loop] | None = None

    def __iter__(self) -> Iterator[Any]:
        return _lazily(self._iterate)

    def _iterate(self) -> Iterator[Any]:
        numbers = (self.num_caches, self.return_caches_after, self.stop_after)
        if self._loop is None or self._loop[0] != numbers:
            self._loop = (numbers, _replay_loop(self.dl, numbers, keep_source=False))
        iterator: Iterator[Any] = nesting.begin_epoch(self._loop[1], self.dl)
        return iterator

    def __len__(self) -> int:
        """Length of the loader, if the loader has a length."""
        return len(self.dl)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "dl":  # Not set yet, during unpickling.
            raise AttributeError(name)
        return getattr(self.dl, name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loop": None}


def cache_iterator(
    src: Iterable[T],
    num_caches: int,
    *,
    return_caches_after: int | None = None,
    stop_after: int | None = None,
    delete_src: bool = True,
) -> Iterator[T]:
    """Replacement for SPDL's function of the same name: live batches first, then cached batches, all measured.

    Args:
        src: The source of the batches.
        num_caches: Number of batches to cache, at least 1.
        return_caches_after: Number of live batches before the first cached batch. By default
            ``num_caches``.
        stop_after: Number of batches after which the iteration ends. By default it never ends.
        delete_src: Whether to drop the reference to ``src`` when the cached batches begin, so that its
            resources are released.

    Raises:
        ValueError: At the first batch, if the numbers contradict each other.
    """
    numbers = (num_caches, return_caches_after, stop_after)
    return _lazily(_cache_once, src, numbers, delete_src, kept=None if delete_src else src)


def _cache_once(src: Any, numbers: Numbers, delete_src: bool) -> Iterator[Any]:
    loop = _replay_loop(src, numbers, keep_source=not delete_src, endless=True)
    iterator: Iterator[Any] = nesting.begin_epoch(loop, src)
    return iterator


def _lazily(begin: Any, *args: Any, kept: Any = None) -> Iterator[Any]:
    """Iterates the iterator that `begin(*args)` returns. `begin` is called, and may raise, at the first batch.

    `kept` is kept alive until the iteration has ended.
    """

    def once(begin: Any, args: Any, kept: Any) -> Iterator[Any]:
        iterator = begin(*args)
        # This generator waits here, and must not keep the source alive.
        del begin, args
        yield iterator

    return chain.from_iterable(once(begin, args, kept))


def _replay_loop(
    src: Any, numbers: Numbers, *, keep_source: bool, endless: bool = False
) -> _native.Loop:
    num_caches, return_caches_after, stop_after = numbers
    return make_loop(
        names.make_unique(type(src).__name__),
        {
            "type_name": type_name_of(src),
            "batches": None if endless else length_of(src),
            "batch_size": samples_per_batch(src),
        },
        mode=_settings.REPLAY,
        options_from="wrap",
        num_caches=num_caches,
        return_caches_after=return_caches_after,
        stop_after=stop_after,
        keep_source=keep_source,
        endless=endless,
    )
