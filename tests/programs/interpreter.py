"""Ends in a given way while other threads compete for the interpreter lock: `interpreter.py HOW HOG`.

HOG is `no` (no thread), `python` (two threads that compute), or the time for which each C call of a thread
holds the lock: `c` (30 ms), `long` (1.5 s), or `forever` (a minute).
"""

import atexit
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time

import headspace


def compute():
    while True:
        sum(range(1000))


def hold(seconds):
    # Unlike `CDLL`, `PyDLL` keeps the lock during a call.
    usleep = ctypes.PyDLL(None).usleep
    while True:
        usleep(int(seconds * 1e6))


HOGS = {
    "no": [],
    "python": [(compute, ()), (compute, ())],
    "c": [(hold, (0.03,))],
    "long": [(hold, (1.5,))],
    "forever": [(hold, (60,))],
}


def child():
    assert headspace.report() is None
    sum(1 for _ in headspace.wrap(range(100)))


def fork(how):
    pid = os.fork()
    if pid == 0:
        child()
        if how == "_exit":
            os._exit(7)
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def processes(method):
    started = [multiprocessing.get_context(method).Process(target=child) for _ in range(2)]
    for one in started:
        one.start()
    for one in started:
        one.join()
    assert [one.exitcode for one in started] == [0, 0]


def end(how):
    if how == "error":
        raise ArithmeticError("loss is nan")
    if how == "exit":
        sys.exit(9)
    if how == "_exit":
        print("gone", flush=True)
        os._exit(3)
    if how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    if how == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    if how == "never ended":
        atexit._clear()
    if how == "stopped":
        headspace.stop()
    if how == "fork exit":
        fork("exit")
    if how == "fork _exit":
        fork("_exit")
    if how in ("fork", "spawn"):
        processes(how)


if __name__ == "__main__":
    how, hog = sys.argv[1:]
    for _ in headspace.wrap(range(50), name="train"):
        pass
    for target, args in HOGS[hog]:
        threading.Thread(target=target, args=args, daemon=True).start()
    # The GIL probe now waits for the lock.
    time.sleep(0.0 if hog == "no" else 0.5)
    end(how)
    print("done")
