"""A loader whose event loop is in an asynchronous stage while other tasks compute, and a generator with a stage.

python coroutine_stage.py STEPS
"""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator

import headspace

FETCHED: queue.Queue[int] = queue.Queue(maxsize=2)


def compute(ms: float) -> None:
    until = time.perf_counter() + ms / 1e3
    while time.perf_counter() < until:
        pass  # other task


async def fetch(number: int) -> int:
    async with headspace.stage("fetch"):
        await asyncio.sleep(0.01)
    return number


async def serve() -> None:
    pending = [asyncio.ensure_future(fetch(number)) for number in range(4)]
    while True:
        number = await pending.pop(0)
        compute(8.0)
        await asyncio.to_thread(FETCHED.put, number)
        pending.append(asyncio.ensure_future(fetch(number + 4)))


def decode(numbers: Iterator[int]) -> Iterator[int]:
    """A generator: the stage's `with` block is entered and left within one resumption."""
    for number in numbers:
        with headspace.stage("decode"):
            time.sleep(0.006)  # in the generator
        yield number


def batches() -> Iterator[int]:
    threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
    yield from decode(iter(FETCHED.get, None))


def main() -> None:
    for step, _ in enumerate(headspace.wrap(batches())):
        if step == int(sys.argv[1]):
            break
    headspace.stop()
    os._exit(0)  # The event loop has no end.


if __name__ == "__main__":
    main()
