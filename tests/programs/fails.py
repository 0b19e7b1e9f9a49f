"""Ends by an error, or at once: `fails.py WHERE`."""

import os
import signal
import sys

import headspace

where = sys.argv[1]


def batches():
    for i in range(50):
        if i == 30 and where == "loader":
            raise LookupError("no batch 30")
        yield i


class NoIterator:
    def __iter__(self):
        raise LookupError("no iterator")


def train(loader):
    for i in loader:
        if i == 30:
            if where == "loop":
                raise ArithmeticError("loss is nan")
            if where == "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
            if where == "exit":
                sys.exit(9)
            if where == "exit text":
                sys.exit("that is all")
            if where == "_exit":
                print("gone", flush=True)
                os._exit(3)
            if where == "abort":
                os.abort()


train(headspace.wrap(NoIterator() if where == "iter" else batches(), name="train"))
print("done")
