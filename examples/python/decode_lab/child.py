"""Measures or checks one combination in a separate process: `python -m decode_lab.child TASK SPEC RESULT`.

The process isolates the library: a crash ends only this combination, and memory, CPU time and bytes belong to one
library. headspace measures the process and its children.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, Literal

import headspace

from . import pagecache
from .access import PATTERNS, Pattern, choose_frames, order_clips
from .correctness import Check, check_reader
from .formats import FORMATS, Clip, Frames, Sample, load_sample, read_reference
from .loaders import LOADERS, Reader, Request
from .reads import bytes_read


@dataclass(frozen=True)
class Spec:
    """A combination, and how to measure it."""

    sample: str
    """Work folder of the sample."""
    runs: str
    """Folder for the records of headspace."""
    format: str
    loader: str
    pattern: Pattern = "subclip"
    workers: int = 1
    cache: Literal["warm", "cold"] = "warm"
    size: int = 0
    pool: Literal["threads", "processes"] = "threads"
    frames: int = 16
    """Frames of a subclip."""
    sparse_frames: int = 8
    rounds: int = 5
    round_seconds: float = 0.5
    """Shortest round with a warm cache. With a cold cache, a round reads each clip once."""
    seed: int = 0

    def frames_of(self, pattern: Pattern) -> int:
        return self.sparse_frames if pattern == "sparse" else self.frames


@dataclass
class Measured:
    """Results of the rounds of one combination. Counters are divided by the number of requested clips."""

    round_seconds: list[float]
    round_clips: list[int]
    round_frames: list[int]
    cold_share: list[float]
    """Share of the pages that was not in the page cache before each round."""
    clips: int
    errors: int
    error: str | None
    cpu_s_per_clip: float | None = None
    requested_bytes_per_clip: float | None = None
    """Bytes of read calls. Reads from pipes that carry frames are excluded."""
    storage_bytes_per_clip: float | None = None
    memory_bytes: float | None = None
    others_cores: float | None = None
    """Mean number of cores that other programs used during the measurement."""


# --- code of a worker, which is a thread or a process ---

_reader: Reader | None = None
_stage: Any = None


def _open(loader: str, workers: int) -> None:
    global _reader, _stage
    _reader = LOADERS[loader].open()
    _stage = headspace.stage("read clip", concurrency=workers)


def _read(request: Request) -> Frames | str:
    """The frames, or the error as text."""
    assert _reader is not None
    try:
        with _stage:
            return _reader.read(request)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class ClipLoader:
    """Yields the clips of a round in order. The workers read at most `ahead` clips ahead of the loop."""

    def __init__(self, executor: Executor, ahead: int) -> None:
        self._executor = executor
        self._ahead = ahead
        self.requests: list[Request] = []

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Frames | str]:
        pending: deque[Future[Frames | str]] = deque()
        for request in self.requests:
            pending.append(self._executor.submit(_read, request))
            if len(pending) >= self._ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _make_executor(spec: Spec) -> Executor:
    arguments = (spec.loader, spec.workers)
    if spec.pool == "threads":
        _open(*arguments)
        return ThreadPoolExecutor(spec.workers, "worker")
    # Only the workers import the libraries, so no state of a library is forked.
    return ProcessPoolExecutor(spec.workers, get_context("fork"), _open, arguments)


def measure(spec: Spec) -> Measured:
    """Reads rounds of clips."""
    sample, rng = load_sample(Path(spec.sample)), random.Random(spec.seed)
    files = sample.files(spec.format)
    result = Measured([], [], [], [], 0, 0, None)
    with _make_executor(spec) as executor:
        loader = ClipLoader(executor, 2 * spec.workers)
        pagecache.load(files)
        # The first round is not measured, because libraries initialise in it. Its duration determines how often
        # each of the other rounds repeats the clips.
        loader.requests = _requests(spec, sample, rng, 1)
        began = time.perf_counter()
        for _ in loader:
            pass
        once = time.perf_counter() - began
        repeats = 1 if spec.cache == "cold" else max(1, round(spec.round_seconds / once))
        # The rounds last several ticks. On a busy machine, the first or the last tick may miss the children's
        # counters.
        session = headspace.start(to=headspace.JsonLines(spec.runs), interval=0.5, quiet=True)
        loop = headspace.wrap(loader, name="clips", batch_size=1)
        read_before = _bytes_read(spec)
        while len(result.round_seconds) < spec.rounds or sum(result.round_seconds) < 1.5:
            loader.requests = _requests(spec, sample, rng, repeats)
            if spec.cache == "cold":
                pagecache.evict(files)
            result.cold_share.append(pagecache.cold_share(files))
            frames, clips = 0, 0
            began = time.perf_counter()
            for item in loop:
                if isinstance(item, str):
                    result.errors += 1
                    result.error = result.error or item
                else:
                    clips += 1
                    frames += len(item)
            result.round_seconds.append(time.perf_counter() - began)
            result.round_clips.append(clips)
            result.round_frames.append(frames)
            result.clips += len(loader.requests)
        read_after = _bytes_read(spec)
        headspace_report = session.stop()
    if read_before is not None and read_after is not None:
        result.requested_bytes_per_clip = (read_after - read_before) / result.clips
    resources = headspace_report.to_dict()["resources"] if headspace_report else {}
    result.others_cores = resources.get("others_cores")
    # The counters of a process tree have a resolution of 10 ms, those of a single process less than 1 µs.
    has_children = LOADERS[spec.loader].pipe or spec.pool == "processes"
    _add_counters(result, Path(session.folder), "tree" if has_children else "process")
    if LOADERS[spec.loader].pipe and result.memory_bytes is not None:
        # Each process of `ffmpeg` ends with its clip. The kernel stores the largest peak of them, in KiB.
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        result.memory_bytes += spec.workers * peak
    return result


def _bytes_read(spec: Spec) -> int | None:
    """Bytes that the workers have read until now. The value is exact between two rounds, when they read no clip."""
    workers = [os.getpid()]
    if spec.pool == "processes":
        # This process only receives the frames.
        workers = [child.pid for child in active_children() if child.pid]
    return bytes_read(workers, piped=LOADERS[spec.loader].pipe)


def _requests(spec: Spec, sample: Sample, rng: random.Random, repeats: int) -> list[Request]:
    clips = [clip for _ in range(repeats) for clip in order_clips(sample.clips, rng)]
    return [_request(spec, sample, clip, spec.pattern, rng) for clip in clips]


def _request(
    spec: Spec, sample: Sample, clip: Clip, pattern: Pattern, rng: random.Random
) -> Request:
    indices = choose_frames(clip, pattern, spec.frames_of(pattern), rng)
    path, kind = sample.path(clip, spec.format), FORMATS[spec.format].kind
    return Request(clip, path, kind, indices, spec.size)


def _add_counters(result: Measured, run: Path, scope: str) -> None:
    """Adds the CPU time, the storage reads and the memory that headspace measured.

    Args:
        result: The result to which they are added.
        run: The run folder.
        scope: `process`, or `tree` for the process and its children.
    """
    steps = 0
    readings: dict[str, float] = {}
    marks: list[tuple[int, dict[str, float]]] = []
    for line in (run / "rank0.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] != "tick":
            continue
        steps += sum(loop["steps"] for loop in record["loops"])
        # A record may omit a total that has not changed.
        readings |= record["readings"].get(scope, {})
        if "process.cpu.time{cpu.mode=user}" in record["readings"].get(scope, {}):
            marks.append((steps, dict(readings)))
    clips = marks[-1][0] - marks[0][0] if marks else 0
    if not clips:
        return

    def per_clip(*names: str) -> float | None:
        first, last = marks[0][1], marks[-1][1]
        if not all(name in first and name in last for name in names):
            return None
        return sum(last[name] - first[name] for name in names) / clips

    result.cpu_s_per_clip = per_clip(
        *(f"process.cpu.time{{cpu.mode={m}}}" for m in ("user", "system"))
    )
    result.storage_bytes_per_clip = per_clip("process.disk.io{disk.io.direction=read}")
    result.memory_bytes = marks[-1][1].get("process.memory.usage")


def check(spec: Spec) -> Check:
    """Compares the frames of each access pattern with the reference, in the size of the file."""
    sample, rng = load_sample(Path(spec.sample)), random.Random(spec.seed)
    reader, kind = LOADERS[spec.loader].open(), FORMATS[spec.format].kind

    def cases() -> Iterator[tuple[Request, Frames]]:
        for clip in sample.clips:
            path = sample.path(clip, spec.format)
            reference = read_reference(path, kind)
            for pattern in (*PATTERNS, "subclip", "sparse"):
                indices = choose_frames(clip, pattern, spec.frames_of(pattern), rng)
                yield Request(clip, path, kind, indices), reference

    return check_reader(reader, cases())


def main() -> None:
    task, spec_text, result = sys.argv[1:]
    spec = Spec(**json.loads(spec_text))
    done = measure(spec) if task == "measure" else check(spec)
    Path(result).write_text(json.dumps(asdict(done)))


if __name__ == "__main__":
    main()
