"""Loads with threads that slow each other: `slow_each_other.py THREADS WHERE EPOCHS [BATCHES]`.

A call of the stage `demux` takes CALL_S if it is alone, and (1 + (n - 1) * PENALTY) * n times as long with n calls at once:
the threads share a device, and lose time to each other. So one thread delivers most. Without BATCHES, the epochs have
different lengths, so the number of calls at once varies. With it, calls have half as much work on average, and each has
another amount, because calls with equal work end together. WHERE is `here` (threads of this process), or `child` (threads
of a child process).
"""

import multiprocessing
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import headspace

CALL_S = 0.006
PENALTY = 0.3
BATCHES = (1, 2, 12, 3, 24)
LENGTH = int(sys.argv[4]) if len(sys.argv) > 4 else None

_active = 0
_lock = threading.Lock()


def share_of_work(number):
    return random.Random(number).uniform(0.25, 0.75) if LENGTH else 1


def demux(number):
    global _active
    with _lock:
        _active += 1
    left, before = CALL_S * share_of_work(number), time.monotonic()
    while left > 0:
        time.sleep(0.0005)
        now = time.monotonic()
        calls = _active
        left -= (now - before) / (calls * (1 + (calls - 1) * PENALTY))
        before = now
    with _lock:
        _active -= 1
    return number


def load(threads, batches):
    """The batches of an epoch."""
    work = headspace.stage("demux", concurrency=threads)(demux)
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, range(batches))


def serve(pipe, threads):
    try:
        while True:
            for item in load(threads, pipe.recv()):
                pipe.send(item)
            pipe.send(None)
    except EOFError:
        return


def receive(pipe, batches):
    pipe.send(batches)
    while (item := pipe.recv()) is not None:
        yield item


class Loader:
    """Loads the epochs one after another."""

    def __init__(self, threads, lengths, pipe):
        self.threads = threads
        self.lengths = lengths
        self.pipe = pipe
        self.epoch = 0

    def __iter__(self):
        batches = self.lengths[self.epoch % len(self.lengths)]
        self.epoch += 1
        return receive(self.pipe, batches) if self.pipe else load(self.threads, batches)


def main():
    threads, where, epochs = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    pipe = None
    if where == "child":
        context = multiprocessing.get_context("spawn")
        pipe, theirs = context.Pipe()
        context.Process(target=serve, args=(theirs, threads), daemon=True).start()
        theirs.close()
    loader = headspace.wrap(Loader(threads, [LENGTH] if LENGTH else BATCHES, pipe))
    for _ in range(epochs):
        for _batch in loader:
            time.sleep(0.001)


if __name__ == "__main__":
    main()
