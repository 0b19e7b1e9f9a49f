"""Prints the names of the signals that it gets, and exits at SIGINT."""

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
