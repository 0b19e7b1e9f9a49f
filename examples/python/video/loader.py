"""`VideoLoader` yields batches of decoded clips. Threads in this process or in a subprocess make them.

sampling → fetch → demux → decode → resize (→ equalize) → batch → collate → prefetched batches

`monolithic` makes demux and decode one stage. `decoder="nvdec"` makes demux, decode and resize one stage on the
GPU. `subprocess` moves the stages up to demux, or all stages, into another process.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

from . import nvdec, stages
from .clips import Clip, balanced_order
from .pipeline import OrderedQueue, Pipeline, drain
from .remote import Front
from .stages import Batch


@dataclass(frozen=True)
class Knobs:
    """Settings of a loader. Only the first three, `decoder` and `equalize` change the contents of the batches."""

    batch_size: int = 3
    """Clips per batch. The last batch of an epoch may have fewer."""
    frames: int = 8
    """Frames kept of each clip."""
    size: int = 64
    """Width and height of a frame in pixels."""
    fetch_ms: float = 0.0
    """Additional latency of each file in milliseconds, as from network storage."""
    fetch_threads: int = 1
    """Threads that read files."""
    demux_threads: int = 1
    """Threads that demux: they extract the packets from a file."""
    decode_threads: int = 1
    """Threads that decode."""
    monolithic: bool = False
    """One stage `decode` does the work of demux and decode, with `decode_threads` threads."""
    decoder: Literal["cpu", "nvdec"] = "cpu"
    """`nvdec`: one stage `decode` does the work of demux, decode and resize, with torchcodec on an NVIDIA GPU."""
    resize_threads: int = 1
    """Threads that resize."""
    equalize: bool = False
    """Add a stage that equalizes the brightness of each clip, in plain Python. It has `resize_threads` threads,
    which all need the GIL."""
    queue_depth: int = 4
    """Maximum number of clips that wait between two stages."""
    prefetch: int = 3
    """Maximum number of finished batches that wait for the training loop."""
    pool: Literal["dedicated", "shared"] = "dedicated"
    """`dedicated`: separate threads for each stage. `shared`: one pool for all stages. Its size is the largest
    number of threads of a stage."""
    subprocess: Literal["no", "demux", "all"] = "no"
    """Which stages run in a subprocess: none, those up to demux, or all."""
    gc_between_epochs: bool = False
    """In the subprocess, collect garbage only between epochs."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if type(value) is int and value < 1:
                raise ValueError(f"`{name}` is at least 1: `{value}`")
        if self.fetch_ms < 0:
            raise ValueError(f"`fetch_ms` is at least 0: `{self.fetch_ms}`")
        if self.subprocess == "demux" and not self.demuxes:
            joined = "monolithic" if self.monolithic else "decoder nvdec"
            raise ValueError(
                f"`subprocess demux` needs a stage `demux`, and `{joined}` has none: use `subprocess all`"
            )
        if self.decoder == "nvdec":
            nvdec.require()

    @property
    def demuxes(self) -> bool:
        """Whether demux is a separate stage."""
        return not self.monolithic and self.decoder == "cpu"


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
        """Clips per batch."""
        return self.knobs.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.clips) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """Yields one epoch. If the loop is left early, the threads and the subprocess end.

        Raises:
            PipelineError: If a stage failed. The stage's exception is the cause.
        """
        return self._batches(self.epoch)

    def close(self) -> None:
        """Ends the subprocesses that wait for the next epoch."""
        while self._idle:
            self._idle.pop().end()

    def __enter__(self) -> VideoLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def demuxed(self) -> Iterator[tuple[int, stages.Encoded]]:
        """Yields the index and the packets of each clip of an epoch. Called in the subprocess."""
        pipeline = self._pipeline()
        packets = self._demux(pipeline, self.epoch, depth=1)
        pipeline.start()
        try:
            yield from drain(packets)
        finally:
            pipeline.close()

    def _batches(self, epoch: int) -> Iterator[Batch]:
        front = None if self.knobs.subprocess == "no" else self._front()
        pipeline = self._pipeline()
        if front is None:
            depth = self.knobs.queue_depth
            fetched = self._demux if self.knobs.demuxes else self._fetch
            batches = self._decode(pipeline, fetched(pipeline, epoch, depth))
        elif self.knobs.subprocess == "demux":
            items = front.epoch(epoch)
            packets = pipeline.source("front", items, self.knobs.queue_depth)
            batches = self._decode(pipeline, packets)
        else:
            items = front.epoch(epoch)
            batches = pipeline.source("front", items, self.knobs.prefetch, last=True)
        pipeline.start()
        try:
            yield from drain(batches)
        except BaseException:
            if front is not None:
                front.kill()
            pipeline.close()
            if front is not None:
                front.close()
            raise
        pipeline.close()
        if front is not None:
            self._idle.append(front)

    def _front(self) -> Front:
        """A subprocess that waits for an epoch's number."""
        if self._idle:
            return self._idle.pop()
        return Front(partial(_front_epoch, self.clips, self.knobs, self.seed))

    def _pipeline(self) -> Pipeline:
        knobs = self.knobs
        widest = max(
            knobs.fetch_threads, knobs.demux_threads, knobs.decode_threads, knobs.resize_threads
        )
        return Pipeline(widest if knobs.pool == "shared" else None, self._describe)

    # The methods below add stages to a pipeline. Each item has the index of its clip, so that the batch can list
    # its clips.

    def _fetch(self, pipeline: Pipeline, epoch: int, depth: int) -> OrderedQueue:
        knobs = self.knobs
        items = (
            (index, self.clips[index]) for index in balanced_order(self.clips, epoch, self.seed)
        )
        sampled = pipeline.source("sample", items, knobs.queue_depth)
        work = partial(stages.fetch, delay=knobs.fetch_ms / 1000)
        return pipeline.stage("fetch", partial(_keep, work), sampled, knobs.fetch_threads, depth)

    def _demux(self, pipeline: Pipeline, epoch: int, depth: int) -> OrderedQueue:
        fetched = self._fetch(pipeline, epoch, self.knobs.queue_depth)
        work = partial(_keep, stages.demux)
        return pipeline.stage("demux", work, fetched, self.knobs.demux_threads, depth)

    def _decode(self, pipeline: Pipeline, encoded: OrderedQueue) -> OrderedQueue:
        """Adds the stages from decode to collate. Their input is packets, or files if there is no stage `demux`."""
        knobs, depth = self.knobs, self.knobs.queue_depth
        work: Any = partial(stages.decode, frames=knobs.frames)
        if knobs.decoder == "nvdec":
            work = partial(nvdec.decode, frames=knobs.frames, size=knobs.size)
        elif knobs.monolithic:
            work = partial(stages.demux_and_decode, frames=knobs.frames)
        clips = pipeline.stage("decode", partial(_keep, work), encoded, knobs.decode_threads, depth)
        if knobs.decoder == "cpu":
            work = partial(_keep, partial(stages.resize, size=knobs.size))
            clips = pipeline.stage("resize", work, clips, knobs.resize_threads, depth)
        if knobs.equalize:
            work = partial(_keep, stages.equalize)
            clips = pipeline.stage("equalize", work, clips, knobs.resize_threads, depth)
        grouped = pipeline.group("batch", clips, knobs.batch_size, 1)
        return pipeline.stage("collate", self._collate, grouped, 1, knobs.prefetch, last=True)

    def _describe(self, item: Any) -> str:
        return (
            f"{self.clips[item[0]]}" if isinstance(item, tuple) else f"a batch of {len(item)} clips"
        )

    def _collate(self, items: list[tuple[int, Any]]) -> Batch:
        return stages.collate([(index, self.clips[index].label, frames) for index, frames in items])


def _keep(work: Any, item: tuple[int, Any]) -> tuple[int, Any]:
    """Applies `work` to the value of an item and keeps its index."""
    index, value = item
    return index, work(value)


def _front_epoch(clips: Sequence[Clip], knobs: Knobs, seed: int, epoch: int) -> Iterator[Any]:
    """Yields the items of an epoch in the subprocess, from the same loader with a queue of one item at its end."""
    if knobs.gc_between_epochs:
        gc.disable()
    loader = VideoLoader(clips, replace(knobs, subprocess="no", prefetch=1), seed=seed)
    loader.set_epoch(epoch)
    yield from loader.demuxed() if knobs.subprocess == "demux" else loader
    if knobs.gc_between_epochs:
        gc.collect()
