"""Ends while a daemon thread iterates a wrapped loader."""

import itertools
import sys
import threading

import headspace

going = threading.Event()


def iterate():
    for i in headspace.wrap(itertools.count(), name="train"):
        if i == 1000:
            going.set()


threading.Thread(target=iterate, daemon=True).start()
going.wait()
print("going")
sys.exit(5)
