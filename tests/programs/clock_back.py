"""The wall clock is set back by an hour in the middle of the run."""

import ctypes
import time

import headspace

session = headspace.start(interval=0.005)
before = time.time()
for i in headspace.wrap(range(40), name="train"):
    if i == 20:
        session.flush()
        ctypes.CDLL(None).set_clock_back(3600)
    time.sleep(0.001)
print("back", round((before - time.time()) / 3600))
