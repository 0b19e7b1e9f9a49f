"""Receives SIGTERM: `sigterm.py HANDLER STUCK GO`.

HANDLER is the program's handling of SIGTERM, STUCK the state of its loop when the signal comes. The
program runs until the file GO exists.
"""

import ctypes
import itertools
import os
import signal
import sys
import time

import headspace

handler, stuck, go = sys.argv[1:]


def handle(number, frame):
    # Not `print`, because the signal may come during a `print` of the loop.
    os.write(1, f"handled {number == signal.SIGTERM}\n".encode())
    sys.exit(7)


ACTIONS = {"handled": handle, "ignored": signal.SIG_IGN, "default": signal.SIG_DFL}
action, _, when = handler.partition(" ")
if when == "before":
    signal.signal(signal.SIGTERM, ACTIONS[action])

for i in headspace.wrap(itertools.count(), name="train"):
    if i < 5:
        continue
    if i == 5:
        if when == "after":
            signal.signal(signal.SIGTERM, ACTIONS[action])
        expected = ACTIONS[action]
        assert signal.getsignal(signal.SIGTERM) == expected
        print("ready", flush=True)
    if os.path.exists(go):
        break
    if stuck == "python":
        time.sleep(0.005)
    elif stuck == "c":
        ctypes.CDLL(None).sleep(600)
    else:
        ctypes.PyDLL(None).sleep(600)  # Holds the interpreter lock.
print("done")
