"""Ends while daemon threads call a stage, or iterate wrapped loaders: `daemon_threads.py (stage|wrap)`."""

import sys
import threading
import time

import headspace

lock = threading.Lock()


@headspace.stage("decode", concurrency=16)
def decode():
    total = 0.0
    for number in range(3000):
        total += number
    with lock:
        time.sleep(0.001)


def numbers():
    while True:
        with lock:
            time.sleep(0.001)
        yield 1


def call_stage():
    while True:
        decode()


def iterate():
    for _ in headspace.wrap(numbers(), name="in a thread"):
        pass


work = call_stage if sys.argv[1] == "stage" else iterate
for _ in range(16):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.5)
print("done", flush=True)
