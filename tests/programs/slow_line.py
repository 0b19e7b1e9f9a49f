"""A loop over a loader whose slow line is known: each kind of work is one line.

    python slow_line.py SPEC

SPEC is JSON: `layout` (inline, threads, workers, pool or compute), `amounts` (kind of work to amount),
`steps`, `compute_ms`, `concurrency`. The last line printed is the mean step in milliseconds.

With `alternate`, a kind of work takes half its amount in every second block of steps, and the last line is the
step of the half amount as a share of the step of the whole one. Blocks are short, so that a slow second of the
machine counts for both.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import socket
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

try:
    import headspace
except ImportError:
    headspace = None

DOCUMENT = json.dumps([{"name": str(number), "values": [number] * 4} for number in range(40)])

SPEC: dict[str, Any] = {}
LOCAL = threading.local()

BLOCK = 16
"""Steps until the amount changes, with `alternate`. The first half of each block does not count: batches of the
block before are still in the queues.
"""


def reply_slowly(server: socket.socket) -> None:
    """A store on the other side of a socket. It answers after the requested milliseconds."""
    while request := server.recv(8):
        time.sleep(int.from_bytes(request, "little") / 1e9)
        server.send(b"x")


def hold(requests: queue.SimpleQueue[tuple[threading.Lock, float]]) -> None:
    """Releases each lock after a time, as a thread does that works under it."""
    while True:
        lock, ms = requests.get()
        time.sleep(ms / 1e3)
        lock.release()


def helpers() -> Any:
    """The calling thread's store and holder of locks."""
    if getattr(LOCAL, "pid", None) != os.getpid():
        LOCAL.pid = os.getpid()
        LOCAL.store, server = socket.socketpair()
        threading.Thread(target=reply_slowly, args=(server,), daemon=True).start()
        LOCAL.lock, LOCAL.requests = threading.Lock(), queue.SimpleQueue()
        LOCAL.lock.acquire()
        threading.Thread(target=hold, args=(LOCAL.requests,), daemon=True).start()
        if any("numpy" in SPEC.get(part, {}) for part in ("amounts", "compute")):
            import numpy as np

            LOCAL.array, LOCAL.sort = np.random.default_rng(0).random(4096), np.sort
    return LOCAL


def work(amounts: dict[str, float]) -> int:
    """Each kind of work is one line, marked with its name. It keeps no results: the collector of garbage would
    make half the work take less than half the time.
    """
    own, get = helpers(), amounts.get
    total = 0
    if amount := get("python"):
        total += sum(number % 7 for number in range(int(amount)))  # python
    if amount := get("numpy"):
        array, sort = own.array, own.sort
        deque((sort(array) for _ in range(int(amount))), 0)  # numpy
    if amount := get("extension"):
        _ = hashlib.pbkdf2_hmac("sha256", b"password", b"salt", int(amount))  # extension
    if amount := get("parse"):
        deque((json.loads(DOCUMENT) for _ in range(int(amount))), 0)  # parse
    if amount := get("read"):
        own.store.send(int(amount * 1e6).to_bytes(8, "little"))
        own.store.recv(1)  # read
    if amount := get("lock"):
        own.requests.put((own.lock, amount))
        own.lock.acquire()  # lock
    if amount := get("sleep"):
        time.sleep(amount / 1e3)  # sleep
    return total


def is_half(number: int) -> bool:
    """Whether this step takes half of the alternating amount."""
    return "alternate" in SPEC and number // BLOCK % 2 == 1


def amounts(part: str, number: int) -> dict[str, float]:
    """The work of this step: of the loader (`amounts`) or of the loop (`compute`)."""
    whole: dict[str, float] = SPEC[part]
    if is_half(number) and (kind := SPEC["alternate"]) in whole:
        return whole | {kind: whole[kind] / 2}
    return whole


def load(number: int) -> Any:
    if headspace is not None and SPEC["layout"] != "workers":
        with headspace.stage("load"):
            return work(amounts("amounts", number))
    return work(amounts("amounts", number))


class Items:
    """A data set for torch's loader."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> int:
        return int(load(number))


def remember(spec: dict[str, Any]) -> None:
    SPEC.update(spec)


def batches() -> Iterator[Any]:
    layout, count = SPEC["layout"], SPEC["concurrency"]
    if layout in ("inline", "compute"):
        yield from (load(number) for number in range(1_000_000))
    elif layout == "threads":
        with ThreadPoolExecutor(count) as pool:
            ahead = deque(pool.submit(load, number) for number in range(2 * count))
            for number in range(2 * count, 1_000_000):
                yield ahead.popleft().result()
                ahead.append(pool.submit(load, number))
    else:
        with get_context("fork").Pool(count, remember, (SPEC,)) as pool:
            ahead = deque(pool.apply_async(load, (number,)) for number in range(2 * count))
            for number in range(2 * count, 1_000_000):
                yield ahead.popleft().get()
                ahead.append(pool.apply_async(load, (number,)))


def loader() -> Any:
    if SPEC["layout"] == "workers":
        from torch.utils.data import DataLoader

        return DataLoader(Items(), batch_size=1, num_workers=SPEC["concurrency"])
    return batches()


def main() -> None:
    remember(json.loads(sys.argv[1]))
    SPEC.setdefault("compute", {"sleep": SPEC["compute_ms"]})
    source = headspace.wrap(loader()) if headspace is not None else loader()
    steps, warm_up = SPEC["steps"], SPEC["steps"] // 5
    ends = []
    for number, _ in enumerate(source):
        ends.append(time.perf_counter())
        if number == steps:
            break
        work(amounts("compute", number))
    if headspace is not None:
        headspace.stop()
    if "alternate" in SPEC:
        print(halved_ratio(ends), flush=True)
    else:
        print(1e3 * (ends[steps] - ends[warm_up]) / (steps - warm_up), flush=True)
    os._exit(0)


def halved_ratio(ends: list[float]) -> float:
    """The step of the half amount as a share of the step of the whole one: each half block is compared with the
    two whole ones beside it. The result is the median over the half blocks.
    """
    steps = []
    for begin in range(0, len(ends) - BLOCK, BLOCK):
        # The batch that is received at the end of a block was loaded with the amount of the next one.
        first, last = begin + BLOCK // 2, begin + BLOCK - 1
        steps.append((ends[last] - ends[first]) / (last - first))
    neighbours = zip(steps[2::2], steps[3::2], steps[4::2], strict=False)
    return statistics.median(2 * half / (before + after) for before, half, after in neighbours)


if __name__ == "__main__":
    main()
