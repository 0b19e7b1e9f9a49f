"""Measures what one call of a stage costs: an empty `with` block, and an empty decorated function.

The reference is one `Histogram.record` of OpenTelemetry's SDK, the usual alternative to instrument a pipeline.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

from rows import Row

#: Calls of a burst. It is short, so that other programs interrupt few bursts.
CALLS = 1_000
REFERENCE = "OpenTelemetry Histogram.record"

#: Upper limit, as a share of the time of `record`, for blocks on one thread. The other subjects have no target:
#: the call of a function has a cost of its own, threads wait for the GIL, and 1,000 stages compete for the
#: processor's cache.
TARGET = 1 / 30
AIMED_AT = ("with stage", 'with stage("x"), looked up each time', "with stage, within another")


def _time(work: Callable[[int], None], calls: int) -> float:
    """Nanoseconds per call."""
    begin = time.perf_counter_ns()
    work(calls)
    return (time.perf_counter_ns() - begin) / calls


def _opentelemetry() -> Callable[[int], None] | None:
    try:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    except ImportError:
        return None
    meter = MeterProvider(metric_readers=[InMemoryMetricReader()]).get_meter("bench")
    histogram = meter.create_histogram("stage", unit="s")

    def record(calls: int) -> None:
        for _ in range(calls):
            histogram.record(0.001)

    return record


def _subjects() -> dict[str, Callable[[int], None]]:
    import headspace

    stage = headspace.stage("bench")
    many = [headspace.stage(f"bench {number}") for number in range(1000)]

    def block(calls: int) -> None:
        for _ in range(calls):
            with stage:
                pass

    def looked_up(calls: int) -> None:
        for _ in range(calls):
            with headspace.stage("bench"):
                pass

    def one_of_1000(calls: int) -> None:
        for number in range(calls):
            with many[number % 1000]:
                pass

    def nested(calls: int) -> None:
        with many[0]:
            for _ in range(calls):
                with stage:
                    pass

    @stage
    def function() -> None: ...

    def decorated(calls: int) -> None:
        for _ in range(calls):
            function()

    return {
        "with stage": block,
        'with stage("x"), looked up each time': looked_up,
        "with stage, one of 1,000 in turn": one_of_1000,
        "with stage, within another": nested,
        "decorated function, its own call included": decorated,
    }


def _by_threads(work: Callable[[int], None], threads: int) -> float:
    """Nanoseconds per call while `threads` threads call concurrently. They compete for the GIL."""
    calls = 20 * CALLS
    workers = [threading.Thread(target=work, args=(calls,)) for _ in range(threads)]
    begin = time.perf_counter_ns()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return (time.perf_counter_ns() - begin) / (calls * threads)


def run(quick: bool) -> list[Row]:
    import headspace

    subjects = _subjects()
    record = _opentelemetry()
    if record is not None:
        subjects[REFERENCE] = record
    times: dict[str, list[float]] = {name: [] for name in subjects}
    times["with stage, by 4 threads at once"] = []
    with headspace.start():
        # Warm-up: CPU time is measured in all of a stage's first calls.
        for work in subjects.values():
            work(100 * CALLS)
        for turn in range(50 if quick else 300):
            for name, work in subjects.items():
                time.sleep(0.001)
                times[name].append(_time(work, CALLS // 10 if name == REFERENCE else CALLS))
            if turn % 10 == 0:
                by_threads = _by_threads(subjects["with stage"], 4)
                times["with stage, by 4 threads at once"].append(by_threads)
    medians = {name: statistics.median(values) for name, values in times.items()}
    reference = medians.pop(REFERENCE, None)
    rows = []
    for name, value in medians.items():
        target = TARGET if reference and name in AIMED_AT else None
        against = (REFERENCE, value / reference) if reference else ()
        rows.append(Row("stage", name, value, "ns/call", target, None, None, *against))
    if reference is not None:
        rows.append(Row("stage", REFERENCE, reference, "ns/call"))
    return rows
