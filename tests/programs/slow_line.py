"""A loop over a loader whose slow line is known: each kind of work is one line.

    python slow_line.py SPEC

SPEC is JSON: `layout` (inline, threads, workers, pool or compute), `amounts` (kind of work to amount),
`steps`, `compute_ms`, `concurrency`, `slow` (the kind of the slow line), `headspace` (whether to use it; yes by
default). The last line printed is JSON, in milliseconds: `line_ms`, the mean time of the slow line.

With `alternate`, the slow line takes half its amount in every second block of steps, and the output is `gain`
instead: how much shorter the step is then, divided by the time of the slow line with its whole amount. Blocks are
short, because the speed of a shared machine can double from one second to the next.
"""

from __future__ import annotations

import hashlib
import importlib
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

headspace: Any = None

DOCUMENT = json.dumps([{"name": str(number), "values": [number] * 4} for number in range(40)])

SPEC: dict[str, Any] = {}
LOCAL = threading.local()

MOST_BLOCKS = 4096

SLOW_LINE = get_context("fork").Array("d", 2 * MOST_BLOCKS)
"""For each block of steps, the time of the slow line in seconds, and the number of calls. The processes of a pool
and torch's workers are forked, so they share it.
"""

BLOCK = 20
"""Steps until the amount changes, with `alternate`."""

FIRST_END, LAST_END = 7, 15
"""The steps of a block that count are those between the ends of these two steps. Before them, batches of the block
before are still in the queues. After them, a batch is delivered while the next block's work runs: how long a thread
waits for the interpreter lock to deliver it depends on this work.
"""


def reply_slowly(server: socket.socket) -> None:
    """A store on the other side of a socket. It answers after the requested milliseconds."""
    while request := server.recv(8):
        time.sleep(int.from_bytes(request, "little") / 1e9)
        server.send(b"x")


def hold(requests: queue.SimpleQueue[tuple[threading.Lock, float]]) -> None:
    """Releases each lock after the requested time, like a thread that works while it holds the lock."""
    while True:
        lock, ms = requests.get()
        time.sleep(ms / 1e3)
        lock.release()


def helpers() -> Any:
    """The store and the lock holder of the calling thread."""
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


def python(own: Any, amount: float) -> None:
    sum(number % 7 for number in range(int(amount)))  # python


def numpy(own: Any, amount: float) -> None:
    array, sort = own.array, own.sort
    deque((sort(array) for _ in range(int(amount))), 0)  # numpy


def extension(own: Any, amount: float) -> None:
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", int(amount))  # extension


def parse(own: Any, amount: float) -> None:
    deque((json.loads(DOCUMENT) for _ in range(int(amount))), 0)  # parse


def read(own: Any, amount: float) -> None:
    own.store.send(int(amount * 1e6).to_bytes(8, "little"))
    own.store.recv(1)  # read


def lock(own: Any, amount: float) -> None:
    own.requests.put((own.lock, amount))
    own.lock.acquire()  # lock


def sleep(own: Any, amount: float) -> None:
    time.sleep(amount / 1e3)  # sleep


KINDS = {
    function.__name__: function for function in (python, numpy, extension, parse, read, lock, sleep)
}
"""Each kind of work is one line, marked with its name. It keeps no results: the collector of garbage would make
half the work take less than half the time.
"""


def work(part: str, number: int) -> None:
    """The work of this step: of the loader (`amounts`) or of the loop (`compute`)."""
    own, place = helpers(), 2 * min(number // BLOCK, MOST_BLOCKS - 1)
    slow_part = "compute" if SPEC["layout"] == "compute" else "amounts"
    for kind, amount in SPEC[part].items():
        if kind != SPEC["slow"] or part != slow_part:
            KINDS[kind](own, amount)
            continue
        begun = time.perf_counter()
        KINDS[kind](own, amount / 2 if is_half(number) else amount)
        took = time.perf_counter() - begun
        with SLOW_LINE.get_lock():
            SLOW_LINE[place] += took
            SLOW_LINE[place + 1] += 1


def is_half(number: int) -> bool:
    """Whether this step takes half of the alternating amount."""
    return SPEC.get("alternate", False) and number // BLOCK % 2 == 1


def load(number: int) -> int:
    if headspace is not None and SPEC["layout"] != "workers":
        with headspace.stage("load"):
            work("amounts", number)
    else:
        work("amounts", number)
    return number


class Items:
    """A data set for torch's loader."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> int:
        return load(number)


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

        return DataLoader(
            Items(),
            batch_size=1,
            num_workers=SPEC["concurrency"],
            multiprocessing_context="fork",  # The workers use variables of this module.
        )
    return batches()


def main() -> None:
    global headspace
    remember(json.loads(sys.argv[1]))
    if SPEC.get("headspace", True):
        headspace = importlib.import_module("headspace")
    SPEC.setdefault("compute", {"sleep": SPEC["compute_ms"]})
    source = headspace.wrap(loader()) if headspace is not None else loader()
    steps = SPEC["steps"]
    ends = []
    for number, _ in enumerate(source):
        ends.append(time.perf_counter())
        if number == steps:
            break
        work("compute", number)
    if headspace is not None:
        headspace.stop()
    if SPEC.get("alternate"):
        result = {"gain": gain(ends)}
    else:
        result = {"line_ms": 1e3 * sum(SLOW_LINE[4::2]) / sum(SLOW_LINE[5::2])}
    print(json.dumps(result), flush=True)
    os._exit(0)


def gain(ends: list[float]) -> float:
    """The gain from half of the slow line, divided by its time: each half block is compared with the two whole ones
    beside it. The result is the median over the half blocks.
    """
    steps = []
    for begin in range(0, len(ends) - BLOCK, BLOCK):
        # The number of steps is even, because two workers may finish their batches in pairs.
        first, last = begin + FIRST_END, begin + LAST_END
        steps.append((ends[last] - ends[first]) / (last - first))
    lines = [SLOW_LINE[2 * block] / SLOW_LINE[2 * block + 1] for block in range(len(steps))]
    gains = []
    for half in range(3, len(steps) - 1, 2):
        step = (steps[half - 1] + steps[half + 1]) / 2
        line = (lines[half - 1] + lines[half + 1]) / 2
        gains.append((step - steps[half]) / line)
    return statistics.median(gains)


if __name__ == "__main__":
    main()
