"""Trains on batches that a generator makes on the training thread, without stages: `generator_loader.py [--waits]`.

With `--waits`, another thread makes the batches, and the generator waits for it.
"""

from __future__ import annotations

import argparse
import queue
import threading
import time
import zlib
from collections.abc import Iterator

import headspace

PACKED = zlib.compress(bytes(range(256)) * 40_000)
SECONDS = 12.0


def decode() -> bytes:
    return zlib.decompress(PACKED)


def batches() -> Iterator[bytes]:
    while True:
        time.sleep(0.002)
        yield decode()


def batches_of_another_thread() -> Iterator[bytes]:
    made: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    wanted = threading.Semaphore(1)

    def make() -> None:
        for batch in batches():
            wanted.acquire()
            made.put(batch)

    threading.Thread(target=make, daemon=True).start()
    while True:
        wanted.release()
        yield made.get()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waits", action="store_true")
    args = parser.parse_args()
    until = time.monotonic() + SECONDS
    loader = batches_of_another_thread() if args.waits else batches()
    for batch in headspace.wrap(loader):
        zlib.crc32(batch)
        if time.monotonic() >= until:
            break


if __name__ == "__main__":
    main()
