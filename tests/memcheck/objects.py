"""Searches for objects and for what holds them, while threads fill tuples and sets from generators.

A session searches only if the memory grows, and under valgrind it grows in other ways.
"""

import threading
import time

import headspace._native as native


class Thing:
    """An object with a type of its own."""


SEARCHES = 8
things = [Thing() for _ in range(200)]
# The garbage collector does not track it before Python 3.14.
untracked = {number: number for number in range(100)}
holder = [untracked]
is_over = threading.Event()


def parts():
    """More items than CPython reserves for a tuple of unknown length."""
    for _ in range(50):
        time.sleep(0.0001)
        yield things


def fill():
    while not is_over.is_set():
        tuple(parts())
        frozenset(map(id, parts()))


threads = [threading.Thread(target=fill) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(SEARCHES):
    sampled = {id(Thing), id(tuple), id(dict)}
    found = native.find_objects(sampled, 5, {id(frozenset)}, {id(things), id(untracked)})
    assert any(one is things for one in found)
    holders = native.find_holders([things, untracked, things[0]])
    assert any(one is holder for one in holders)
is_over.set()
for thread in threads:
    thread.join()
print("done")
