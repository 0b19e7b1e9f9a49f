"""Trains for some seconds with a growing list, while threads fill tuples from generators: `unfinished_tuples.py SECONDS`.

Each generator also holds the growing list, so that a search for its holders meets the unfinished tuples.
"""

import sys
import threading
import time

import headspace

SECONDS = float(sys.argv[1])
history = []
is_over = threading.Event()
failures = []


def parts():
    """More items than CPython reserves for a tuple of unknown length."""
    for _ in range(100):
        time.sleep(0.0001)
        yield history


def fill_tuples():
    while not is_over.is_set():
        try:
            tuple(parts())
        except SystemError as error:
            failures.append(str(error))


threads = [threading.Thread(target=fill_tuples) for _ in range(4)]
for thread in threads:
    thread.start()
end = time.monotonic() + SECONDS
for _ in headspace.wrap(range(10**9), name="train", mode="measure"):
    history.append(bytearray(16384))
    time.sleep(0.002)
    if time.monotonic() > end:
        break
is_over.set()
for thread in threads:
    thread.join()
print(len(failures))
