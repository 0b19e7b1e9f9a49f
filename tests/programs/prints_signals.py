"""Says which signals it gets, and ends with the second kind."""

import os
import signal
import sys


def said(number, frame):
    os.write(1, f"{signal.Signals(number).name}\n".encode())
    if number == signal.SIGINT:
        sys.exit(5)


for number in (signal.SIGUSR1, signal.SIGINT):
    signal.signal(number, said)
print("waiting", flush=True)
while True:
    signal.pause()
