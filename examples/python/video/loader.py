"""`VideoLoader`: batches of decoded clips, made by threads in this process or in another.

sampling → fetch → demux → decode → resize (→ equalize) → batch → collate → prefetched batches
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

from . import stages
from .clips import Clip, balanced_order
from .pipeline import Pipeline, drain
from .remote import Front
from .stages import Batch


@dataclass(frozen=True)
class Knobs:
    """How a loader works. None of them changes which batches it yields, except the first three
    and `equalize`."""

    batch_size: int = 3
    """Clips a batch; the last one of an epoch may be shorter."""
    frames: int = 8
    """Frames kept of each clip."""
    size: int = 64
    """Width and height of a frame in pixels."""
    fetch_ms: float = 0.0
    """Milliseconds that each file takes longer to come, as from storage behind a network."""
    fetch_threads: int = 1
    """Threads that read files."""
    demux_threads: int = 1
    """Threads that take files apart into packets."""
    decode_threads: int = 1
    """Threads that decode."""
    resize_threads: int = 1
    """Threads that resize."""
    equalize: bool = False
    """Spread each clip's brightness over the whole range, in plain Python: a stage of as many
    threads as resize, which all need the interpreter lock."""
    queue_depth: int = 4
    """Clips that may wait between two stages."""
    prefetch: int = 3
    """Batches that may wait for the training loop."""
    pool: Literal["dedicated", "shared"] = "dedicated"
    """Threads of its own for each stage, or one pool for all, as large as the widest stage."""
    subprocess: bool = False
    """Everything but the last queue in a process of its own."""
    gc_between_epochs: bool = False
    """In the subprocess: collect garbage only between epochs."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if type(value) is int and value < 1:
                raise ValueError(f"`{name}` is at least 1: `{value}`")
        if self.fetch_ms < 0:
            raise ValueError(f"`fetch_ms` is at least 0: `{self.fetch_ms}`")


class VideoLoader:
    """Batches of clips. Each clip appears once per epoch, in a new random order for each epoch."""

    def __init__(self, clips: Sequence[Clip], knobs: Knobs | None = None, *, seed: int = 0) -> None:
        self.clips = clips
        self.knobs = knobs or Knobs()
        self.seed = seed
        self.epoch = 0
        self._idle: list[Front] = []

    @property
    def batch_size(self) -> int:
        """Clips a batch."""
        return self.knobs.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.clips) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """One epoch. Leaving the loop early ends its threads and its subprocess.

        Raises:
            PipelineError: If a stage failed; its exception is the cause.
        """
        return self._remote(self.epoch) if self.knobs.subprocess else self._local(self.epoch)

    def close(self) -> None:
        """Ends the subprocess, if one waits for the next epoch."""
        while self._idle:
            self._idle.pop().end()

    def __enter__(self) -> VideoLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _local(self, epoch: int) -> Iterator[Batch]:
        knobs, depth = self.knobs, self.knobs.queue_depth
        widest = max(
            knobs.fetch_threads, knobs.demux_threads, knobs.decode_threads, knobs.resize_threads
        )
        pipeline = Pipeline(widest if knobs.pool == "shared" else None, self._describe)

        # Each item travels with its index, so that the batch can say which clips it holds.
        sampled = pipeline.source(
            "sample",
            ((index, self.clips[index]) for index in balanced_order(self.clips, epoch, self.seed)),
            depth,
        )
        fetching = partial(_keep, partial(stages.fetch, delay=knobs.fetch_ms / 1000))
        fetched = pipeline.stage("fetch", fetching, sampled, knobs.fetch_threads, depth)
        packets = pipeline.stage(
            "demux", partial(_keep, stages.demux), fetched, knobs.demux_threads, depth
        )
        decoding = partial(_keep, partial(stages.decode, frames=knobs.frames))
        decoded = pipeline.stage("decode", decoding, packets, knobs.decode_threads, depth)
        resizing = partial(_keep, partial(stages.resize, size=knobs.size))
        resized = pipeline.stage("resize", resizing, decoded, knobs.resize_threads, depth)
        if knobs.equalize:
            resized = pipeline.stage(
                "equalize", partial(_keep, stages.equalize), resized, knobs.resize_threads, depth
            )
        grouped = pipeline.group("batch", resized, knobs.batch_size, 1)
        batches = pipeline.stage("collate", self._collate, grouped, 1, knobs.prefetch, last=True)
        pipeline.start()
        try:
            yield from drain(batches)
        finally:
            pipeline.close()

    def _remote(self, epoch: int) -> Iterator[Batch]:
        front = (
            self._idle.pop()
            if self._idle
            else Front(partial(_front_epoch, self.clips, self.knobs, self.seed))
        )
        pipeline = Pipeline()
        batches = pipeline.source("front", front.epoch(epoch), self.knobs.prefetch)
        pipeline.start()
        try:
            yield from drain(batches)
        except BaseException:
            front.kill()
            pipeline.close()
            front.close()
            raise
        pipeline.close()
        self._idle.append(front)

    def _describe(self, item: Any) -> str:
        return (
            f"{self.clips[item[0]]}" if isinstance(item, tuple) else f"a batch of {len(item)} clips"
        )

    def _collate(self, items: list[tuple[int, Any]]) -> Batch:
        return stages.collate([(index, self.clips[index].label, frames) for index, frames in items])


def _keep(work: Any, item: tuple[int, Any]) -> tuple[int, Any]:
    """Does `work` to an item and keeps its index."""
    index, value = item
    return index, work(value)


def _front_epoch(clips: Sequence[Clip], knobs: Knobs, seed: int, epoch: int) -> Iterator[Batch]:
    """What the subprocess runs: the same loader, with only one batch in hand."""
    if knobs.gc_between_epochs:
        gc.disable()
    loader = VideoLoader(clips, replace(knobs, subprocess=False, prefetch=1), seed=seed)
    loader.set_epoch(epoch)
    yield from loader
    if knobs.gc_between_epochs:
        gc.collect()
