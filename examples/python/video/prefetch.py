"""`PrefetchingLoader` makes batches far ahead of the training loop, with futures on a thread pool.

The order of the clips is known for all epochs, because it depends only on the seed. So the pool can start the next
epoch before this one ends, and the cache can use the time at which a clip is used next.

Four calls declare to `headspace` the stages, the batches that wait for the loop, the cache and the pool.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import headspace

from . import stages
from .clips import Clip, balanced_order
from .stages import Batch

_MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """Settings of a prefetching loader. Only the first three change its batches."""

    batch_size: int = 8
    """Clips per batch. The last batch of an epoch may have fewer."""
    frames: int = 8
    """Frames kept of each clip."""
    size: int = 64
    """Width and height of a frame in pixels."""
    ahead: int = 200
    """Maximum number of finished batches that wait for the training loop."""
    threads: int = 2
    """Threads of the pool. Each makes one batch at a time."""
    cache_mib: int = 16
    """Maximum size of the decoded clips in the cache, in MiB. 0 turns the cache off."""
    fetch_ms: float = 0.0
    """Additional latency of each file in milliseconds, as from network storage."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            least = 0 if name in ("cache_mib", "fetch_ms") else 1
            if value < least:
                raise ValueError(f"`{name}` is at least {least}: `{value}`")


class _Planned(NamedTuple):
    """A clip of a planned batch."""

    index: int
    next_use: int
    """Position of the clip in the next epoch, counted in clips from the first epoch on."""


class _Kept(NamedTuple):
    next_use: int
    frames: NDArray[np.uint8]


class ClipCache:
    """Decoded clips in memory, up to a number of bytes.

    If there is no room, the clip whose next use is the latest is removed. For a known order, no other rule has fewer
    misses (Belady, IBM Systems Journal 5, 1966). Several threads may use one cache.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._kept: dict[int, _Kept] = {}
        self._lock = threading.Lock()

    def get(self, index: int, next_use: int) -> NDArray[np.uint8] | None:
        """The frames of clip `index`, or None if they are not in the cache. `next_use` is its use after this one."""
        with self._lock:
            kept = self._kept.get(index)
            if kept is None:
                self.misses += 1
                return None
            self.hits += 1
            self._kept[index] = _Kept(next_use, kept.frames)
            return kept.frames

    def put(self, index: int, next_use: int, frames: NDArray[np.uint8]) -> None:
        """Adds the frames of a clip. If there is no room, removes the clips whose next use is the latest.

        This may be the new clip itself.
        """
        with self._lock:
            self._drop(index)
            self._kept[index] = _Kept(next_use, frames)
            self.bytes += frames.nbytes
            while self.bytes > self.max_bytes:
                self._drop(max(self._kept, key=lambda kept: self._kept[kept].next_use))

    def _drop(self, index: int) -> None:
        kept = self._kept.pop(index, None)
        if kept is not None:
            self.bytes -= kept.frames.nbytes


class PrefetchingLoader:
    """Batches of clips, in order. Each clip appears once in an epoch."""

    def __init__(
        self, clips: Sequence[Clip], settings: Settings | None = None, *, seed: int = 0
    ) -> None:
        self.clips = clips
        self.settings = settings or Settings()
        self.seed = seed
        self.epoch = 0
        self.cache = ClipCache(self.settings.cache_mib * _MIB)
        self._pool = ThreadPoolExecutor(self.settings.threads, "prefetch")
        self._futures: deque[Future[Batch]] = deque()
        #: Numbers of the next batch to deliver and of the next batch to submit, counted from the first epoch on.
        self._deliver = self._submit = 0
        self._plan: tuple[int, list[list[_Planned]]] | None = None
        self._load = headspace.stage("load", concurrency=self.settings.threads)(self._make_batch)
        self._declare()

    @property
    def batch_size(self) -> int:
        """Clips per batch."""
        return self.settings.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the next iteration. If it follows the previous epoch, it is already being prefetched."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.clips) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """Yields one epoch. An exception in a thread is raised when its batch is due."""
        first = self.epoch * len(self)
        if self._deliver != first:
            self._cancel()
            self._deliver = self._submit = first
        for _ in range(len(self)):
            self._fill()
            batch = self._futures.popleft().result()
            self._deliver += 1
            # New work is submitted before the loop trains on this batch, so that the threads are not idle meanwhile.
            self._fill()
            yield batch

    @property
    def finished(self) -> int:
        """Batches that are finished and wait for the training loop."""
        done = sum(future.done() for future in tuple(self._futures))
        # Each thread may finish one more batch than `ahead`. These do not count.
        return min(done, self.settings.ahead)

    def close(self) -> None:
        """Ends the threads after they finish their current batches."""
        self._cancel()
        self._pool.shutdown()

    def __enter__(self) -> PrefetchingLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _declare(self) -> None:
        """Tells `headspace` what to measure."""
        settings, cache = self.settings, self.cache
        headspace.queue("pool", self._pool)
        headspace.queue("loaded", depth=lambda: self.finished, capacity=settings.ahead, last=True)
        if settings.cache_mib:
            headspace.queue(
                "cache (MiB)", depth=lambda: cache.bytes // _MIB, capacity=settings.cache_mib
            )

    def _fill(self) -> None:
        """Submits batches until `ahead` batches, and one more for each thread, are pending or finished."""
        while len(self._futures) < self.settings.ahead + self.settings.threads:
            self._futures.append(self._pool.submit(self._load, self._planned(self._submit)))
            self._submit += 1

    def _cancel(self) -> None:
        for future in self._futures:
            future.cancel()
        self._futures.clear()

    def _planned(self, number: int) -> list[_Planned]:
        """The clips of a batch."""
        epoch, place = divmod(number, len(self))
        if self._plan is None or self._plan[0] != epoch:
            self._plan = epoch, self._plan_epoch(epoch)
        return self._plan[1][place]

    def _plan_epoch(self, epoch: int) -> list[list[_Planned]]:
        following = balanced_order(self.clips, epoch + 1, self.seed)
        first = (epoch + 1) * len(self.clips)
        next_use = {index: first + place for place, index in enumerate(following)}
        planned = [
            _Planned(index, next_use[index])
            for index in balanced_order(self.clips, epoch, self.seed)
        ]
        size = self.batch_size
        return [planned[begin : begin + size] for begin in range(0, len(planned), size)]

    def _make_batch(self, planned: list[_Planned]) -> Batch:
        return stages.collate(
            [(one.index, self.clips[one.index].label, self._frames(one)) for one in planned]
        )

    def _frames(self, planned: _Planned) -> NDArray[np.uint8]:
        frames = self.cache.get(planned.index, planned.next_use)
        if frames is None:
            settings = self.settings
            with headspace.stage("read"):
                fetched = stages.fetch(self.clips[planned.index], settings.fetch_ms / 1000)
                encoded = stages.demux(fetched)
            with headspace.stage("decode"):
                frames = stages.resize(stages.decode(encoded, settings.frames), settings.size)
            self.cache.put(planned.index, planned.next_use, frames)
        return frames
