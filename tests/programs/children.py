"""Forks children that iterate the wrapped loader, each in its own way."""

import itertools
import multiprocessing
import os
import time

import headspace

COUNT = 1000
mode = os.environ["HEADSPACE_MODE"]
fork = multiprocessing.get_context("fork")
loader = headspace.wrap(range(COUNT), name="train")
iterator = iter(loader)


def check(outcome):
    assert outcome, "in the child"


def anew():
    # In mode `replay`, later batches come from the cache.
    check(list(loader)[:90] == list(range(COUNT))[:90])
    check(sum(1 for _ in loader) == COUNT)


def goes_on():
    # A probe repeats batches, too, but the epoch keeps its length.
    rest = list(iterator)
    check(len(rest) == COUNT - 10)
    check({*range(10, 90)} <= {*rest})


def wraps():
    check(list(headspace.wrap(range(5), name="of the child")) == list(range(5)))


def reports():
    check(headspace.report() is None)
    check(headspace.stop() is None)
    headspace.step()
    anew()


def nested():
    child = fork.Process(target=anew)
    child.start()
    child.join()
    check(child.exitcode == 0)


def at_once():
    anew()
    os._exit(0)


assert list(itertools.islice(iterator, 10)) == list(range(10))
children = [
    fork.Process(target=target) for target in (anew, goes_on, wraps, reports, nested, at_once)
]
for child in children:
    child.start()
killed = fork.Process(target=time.sleep, args=(600,))
killed.start()
killed.terminate()
for child in [*children, killed]:
    child.join()
print([child.exitcode for child in children], killed.exitcode)
print("rest", sum(1 for _ in iterator))
