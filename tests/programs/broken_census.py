"""Trains for some seconds while each count of objects fails: `broken_census.py SECONDS`."""

import sys
import time

import headspace
from headspace._memory import variables


def fail(frames):
    raise RuntimeError("no frames today")


variables.untracked_dicts = fail
end = time.monotonic() + float(sys.argv[1])
for _ in headspace.wrap(range(10**9), name="train", mode="measure"):
    time.sleep(0.002)
    if time.monotonic() > end:
        break
