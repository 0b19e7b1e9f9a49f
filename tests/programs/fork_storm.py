"""Forks many times while threads iterate and the agent ticks: `fork_storm.py FORKS`."""

import itertools
import os
import sys
import threading

import headspace

forks = int(sys.argv[1])
stop = threading.Event()
other = headspace.wrap(itertools.count(), name="other")
loader = headspace.wrap(range(20), name="train")


def iterate():
    for _ in other:
        if stop.is_set():
            return


threads = [threading.Thread(target=iterate) for _ in range(2)]
for thread in threads:
    thread.start()
codes = []
for i in range(forks):
    assert len(list(loader)) == 20
    child = os.fork()
    if child == 0:
        assert len(list(loader)) == 20
        if i % 2:
            os._exit(0)
        # Runs every `atexit` function and finalizer.
        sys.exit(0)
    codes.append(os.waitpid(child, 0)[1])
stop.set()
for thread in threads:
    thread.join()
print("forks", len(codes), "failed", sum(map(bool, codes)))
