"""Trains, then fills stderr, which nobody reads: `unread_stderr.py (blocks|ends)`. Then it blocks, or ends."""

import os
import sys
import time

import headspace

for _ in headspace.wrap(range(100)):
    time.sleep(0.001)
if sys.argv[1] == "blocks":
    print("ready", flush=True)
    while True:
        os.write(2, b"x" * 1024)
os.set_blocking(2, False)
try:
    while True:
        os.write(2, b"x")
except BlockingIOError:
    os.set_blocking(2, True)
print("ready", flush=True)
