"""Ends while daemon threads are in calls of headspace: `daemon_threads.py (stage|fetch|wrap|break|iter|send|samples)`."""

import sys
import threading
import time

import headspace
from headspace import _native

lock = threading.Lock()


def wait_for_turn():
    with lock:
        time.sleep(0.001)


@headspace.stage("decode", concurrency=16)
def decode():
    total = 0.0
    for number in range(3000):
        total += number
    wait_for_turn()


def numbers():
    while True:
        wait_for_turn()
        yield 1


class Loader:
    def __iter__(self):
        wait_for_turn()
        return iter([1])


def count(batch):
    wait_for_turn()
    return 1


def call_stage():
    while True:
        decode()


def numbers_of_file():
    try:
        yield 1
        yield 2
    finally:
        wait_for_turn()


def fetch(batch):
    wait_for_turn()


def call_fetch():
    timed = _native.time_calls(headspace.stage("fetch"), fetch)
    while True:
        timed(1)


def leave_epochs():
    while True:
        for _ in headspace.wrap(numbers_of_file(), name="in a thread"):
            break


def iterate():
    for _ in headspace.wrap(numbers(), name="in a thread"):
        pass


def begin_epochs():
    loader = headspace.wrap(Loader(), name="in a thread")
    while True:
        list(loader)


def send():
    batches = iter(headspace.wrap(numbers(), name="in a thread"))
    while True:
        batches.send(None)


def count_samples():
    while True:
        list(headspace.wrap([1] * 64, name="in a thread", samples=count))


work = {
    "stage": call_stage,
    "fetch": call_fetch,
    "wrap": iterate,
    "break": leave_epochs,
    "iter": begin_epochs,
    "send": send,
    "samples": count_samples,
}[sys.argv[1]]
for _ in range(16):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.5)
print("done", flush=True)
