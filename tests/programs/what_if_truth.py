"""A training program whose stages can really be changed: `what_if_truth.py KIND STEPS MODE [STAGE=CHANGE]`.

CHANGE is a factor on the work of the stage (0 and 0.5), or `gateN` for at most N calls at once. KIND `video` is the video
example. There, a factor is the share of the clips whose result is not kept in memory.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import headspace

KIND, STEPS, MODE = sys.argv[1], int(sys.argv[2]), sys.argv[3]
STAGE, _, CHANGE = (sys.argv[4] if len(sys.argv) > 4 else "").partition("=")

#: Bytes that take about a millisecond to decompress, which releases the interpreter lock.
PACKED = zlib.compress(np.random.default_rng(1).integers(0, 8, 180_000, np.uint8).tobytes(), 1)
COMPUTE_S = 0.004


def wait(ms: float) -> None:
    time.sleep(ms / 1e3)


def calculate(ms: float) -> None:
    for _ in range(round(2 * ms)):
        zlib.decompress(PACKED)


def factor(stage: str) -> float:
    return float(CHANGE) if stage == STAGE and not CHANGE.startswith("gate") else 1.0


def gate(stage: str) -> contextlib.AbstractContextManager[Any]:
    if stage == STAGE and CHANGE.startswith("gate"):
        return threading.Semaphore(int(CHANGE.removeprefix("gate")))
    return contextlib.nullcontext()


def make_operation(
    name: str, work: Callable[[float], None], ms: float
) -> Callable[[Any], list[Any]]:
    """A function that works for this time, changed by CHANGE if `name` is the changed stage."""
    ms, waits = ms * factor(name), gate(name)

    def operation(item: Any) -> list[Any]:
        with waits:
            if ms:
                work(ms)
        return [1]

    return operation


def make_stage(name: str, work: Callable[[float], None], ms: float) -> Callable[[Any], Any]:
    stage: Callable[[Any], Any] = headspace.stage(name)(make_operation(name, work, ms))
    return stage


def threads(work: Callable[[float], None]) -> Iterator[Any]:
    read, decode = make_stage("read", wait, 3.0), make_stage("decode", work, 14.0)
    count, ahead_by = 3, 6

    def load(number: int) -> Any:
        return decode(read(number)[0])

    with ThreadPoolExecutor(count) as pool:
        ahead = deque(pool.submit(load, number) for number in range(ahead_by))
        for number in range(ahead_by, STEPS + ahead_by):
            batch = ahead.popleft().result()
            if number < STEPS:
                ahead.append(pool.submit(load, number))
            yield batch


def torch_loader(work: Callable[[float], None]) -> Any:
    from torch.utils.data import DataLoader, Dataset

    ms = 4.0 * factor("train fetch")
    workers = int(CHANGE.removeprefix("gate")) if CHANGE.startswith("gate") else 2

    class Samples(Dataset[int]):
        def __len__(self) -> int:
            return 4 * STEPS

        def __getitem__(self, number: int) -> int:
            if ms:
                work(ms)
            return number

    return DataLoader(Samples(), batch_size=4, num_workers=workers)


def spdl_pipeline() -> Any:
    from spdl.pipeline import PipelineBuilder

    import headspace.spdl

    builder = PipelineBuilder().add_source(range(STEPS))
    builder = builder.pipe(make_operation("download", wait, 20.0), concurrency=3, name="download")
    builder = builder.pipe(make_operation("decode", calculate, 3.0), concurrency=1, name="decode")
    return builder.add_sink(2).build(num_threads=5, **headspace.spdl.hooks())


def video_loader() -> Any:
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "python"))
    from video import stages
    from video.clips import cut, find_videos
    from video.loader import Knobs, VideoLoader

    if STAGE and not CHANGE.startswith("gate"):
        setattr(stages, STAGE, with_kept_results(getattr(stages, STAGE), float(CHANGE)))
    threads = {"decode_threads": 2, "fetch_threads": 4}
    if CHANGE.startswith("gate"):
        threads[f"{STAGE}_threads"] = int(CHANGE.removeprefix("gate"))
    knobs = Knobs(fetch_ms=20.0, queue_depth=1, **threads)
    return VideoLoader(cut(find_videos(None), 999, seconds=0.4, max_skip=0.4, seed=0), knobs)


def with_kept_results(function: Callable[..., Any], share: float) -> Callable[..., Any]:
    """The function, which does its work for this share of the calls, evenly spread. The others return a result that is kept
    in memory."""
    kept: deque[Any] = deque(maxlen=8)
    counter = itertools.count(1)

    def changed(*args: Any, **named: Any) -> Any:
        number = next(counter)
        if len(kept) == kept.maxlen and int(number * share) == int((number - 1) * share):
            return kept[number % len(kept)]
        result = function(*args, **named)
        kept.append(result)
        return result

    return changed


def epochs(loader: Any) -> Iterator[Any]:
    """Iterates until `STEPS` batches were taken."""
    steps = 0
    while steps < STEPS:
        for batch in loader:
            yield batch
            steps += 1
            if steps == STEPS:
                return


def train(loader: Any) -> None:
    for _ in epochs(headspace.wrap(loader, mode=MODE, name="train")):
        time.sleep(COMPUTE_S)


if __name__ == "__main__":
    if KIND == "video":
        train(video_loader())
    elif KIND == "spdl":
        with (pipeline := spdl_pipeline()).auto_stop():
            train(pipeline)
    elif KIND.startswith("threads"):
        train(threads(calculate if KIND.endswith("cpu") else wait))
    else:
        train(torch_loader(calculate if KIND.endswith("cpu") else wait))
