"""Measures the cost of the sources inside the interpreter: the callable in `gc.callbacks`, and the GIL probe's
thread.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path

from rows import Row

COLLECTIONS = 2_000


def _collections() -> float:
    """Nanoseconds per collection of the youngest generation, which is empty."""
    begin = time.perf_counter_ns()
    for _ in range(COLLECTIONS):
        gc.collect(0)
    return (time.perf_counter_ns() - begin) / COLLECTIONS


def _of_gc(rounds: int) -> list[Row]:
    import headspace

    def nothing(phase: str, info: dict[str, int]) -> None: ...

    without, native, python = [], [], []
    gc.disable()
    try:
        for _ in range(rounds):
            without.append(_collections())
            with headspace.start():
                native.append(_collections())
            gc.callbacks.append(nothing)
            python.append(_collections())
            gc.callbacks.remove(nothing)
    finally:
        gc.enable()
    # Python creates the `info` dictionary only if there is a callback, so its cost is included.
    ours, theirs = ((min(times) - min(without)) / 2 for times in (native, python))
    return [
        Row(
            "gc callback",
            "ns a call, two calls a collection",
            ours,
            "ns",
            reference="a Python function that does nothing",
            ratio=ours / theirs,
        )
    ]


def _of_gil(seconds: float) -> list[Row]:
    import headspace

    with headspace.start():
        time.sleep(0.1)  # The thread sets its name after it starts.
        (thread,) = (
            comm.parent
            for comm in Path("/proc/self/task").glob("*/comm")
            if comm.read_text() == "hs-gil\n"
        )
        begin, before = time.perf_counter(), _cpu_ns(thread)
        time.sleep(seconds)
        used = _cpu_ns(thread) - before
        share = used / 1e9 / (time.perf_counter() - begin)
    return [Row("gil", "CPU of the thread that asks", share * 1e6, "µs/s")]


def _cpu_ns(thread: Path) -> int:
    return int((thread / "schedstat").read_text().split()[0])


def run(quick: bool) -> list[Row]:
    return _of_gc(3 if quick else 30) + _of_gil(2.0 if quick else 20.0)
