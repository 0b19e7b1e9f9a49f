"""The interpreter lock and the garbage collector: their measurements are right, and the GIL probe never
changes how a program ends, on any Python.

`HEADSPACE_TEST_REPEATS=20` runs each way of ending 20 times on every Python, to find rare races.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from running import (
    DEADLINE_S,
    PACKAGE,
    VERSIONS,
    Programs,
    Ran,
    Runs,
    interpreter,
    of_kind,
    read_records,
    thread_names,
    wait_until,
)

import headspace

WAITS = "headspace.gil.waits"
WAIT_TIME = "headspace.gil.wait.time"
LONGEST_WAIT = "headspace.gil.wait.longest"
LONGEST_PAUSE = "headspace.gc.pause.longest"
OWN_CPU = "headspace.agent.cpu.time"

REPEATS = int(os.environ.get("HEADSPACE_TEST_REPEATS", "0"))


def so_far(runs: Runs, scope: str = "process") -> list[dict[str, float]]:
    """The readings of each complete tick in the file. The last line may be incomplete."""
    files = [file for folder in runs.folders for file in folder.glob("rank0.jsonl")]
    begun = [file for file in files if b"\n" in file.read_bytes()]
    records = [record for file in begun for record in read_records(file, unfinished=True)]
    return [tick["readings"][scope] for tick in of_kind(records, "tick")]


def readings(runs: Runs, session: headspace.Session) -> dict[str, float]:
    """The current readings of the process. A tick omits counters that have not changed."""
    assert session.flush(30)
    return {name: value for tick in so_far(runs) for name, value in tick.items()}


def highest(runs: Runs, name: str) -> float:
    """The highest value of a reading in all ticks so far. 0 if no tick has it."""
    return max((tick.get(name, 0.0) for tick in so_far(runs)), default=0.0)


def next_thread_state() -> int:
    """The id of the Python thread state of a new thread. They are numbered in the order of their creation."""
    api = ctypes.pythonapi
    api.PyThreadState_Get.restype = ctypes.c_void_p
    api.PyThreadState_GetID.argtypes = [ctypes.c_void_p]
    api.PyThreadState_GetID.restype = ctypes.c_uint64
    found: list[int] = []
    thread = threading.Thread(
        target=lambda: found.append(api.PyThreadState_GetID(api.PyThreadState_Get()))
    )
    thread.start()
    thread.join()
    return found[0]


# Before Python 3.11.10, a child hangs if it is forked while another thread creates a thread state
# (https://github.com/python/cpython/issues/112275).
def test_no_thread_state_is_created_after_the_start_of_a_session(runs: Runs) -> None:
    with headspace.start(interval=0.02) as session:
        watched = headspace.queue("numbers", queue.Queue())
        before = next_thread_state()
        wait_until(lambda: readings(runs, session)[WAITS] >= 4, "four waits for the lock")
        assert next_thread_state() == before + 1
        assert watched.empty()


# Before Python 3.14, Python ends daemon threads by unwinding their stacks. Rust frames cannot be unwound this way.
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("what", ["stage", "fetch", "wrap", "break", "iter", "send", "samples"])
def test_a_program_with_daemon_threads_in_calls_of_headspace_ends_normally(
    program: Programs, what: str, version: str
) -> None:
    python = [interpreter(version)]
    for _ in range(2):
        ran = program("daemon_threads.py", what, python=python, env=PACKAGE)
        assert (ran.exit_code, ran.stdout) == (0, "done\n"), ran.stderr
        assert "Traceback" not in ran.stderr


# How long a thread waits for the lock.


def mean_wait(runs: Runs, during: Callable[[], object] = lambda: time.sleep(0.01)) -> float:
    """Mean of the first few waits of a session, while this thread runs `during`."""
    with headspace.start(interval=0.02) as session:
        end = time.monotonic() + DEADLINE_S
        while (found := readings(runs, session))[WAITS] < 4:
            assert time.monotonic() < end, "no four waits for the lock"
            during()
    shutil.rmtree(session.folder)
    return found[WAIT_TIME] / found[WAITS]


@contextmanager
def running(work: Callable[[], object]) -> Iterator[None]:
    """Calls `work` repeatedly on another thread."""
    stop = threading.Event()

    def again() -> None:
        while not stop.is_set():
            work()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_call_that_holds_the_lock_gives_a_long_wait_and_an_idle_process_a_short_one(
    runs: Runs,
) -> None:
    usleep = ctypes.PyDLL(None).usleep  # Unlike `CDLL`, `PyDLL` keeps the lock during a call.

    with running(lambda: usleep(60_000)):
        held = mean_wait(runs)

    assert held > 0.01
    # A busy machine also delays the thread of the GIL probe, so one session may measure too much.
    wait_until(lambda: mean_wait(runs) < held / 4, "an idle process in which waits are short")


def test_a_wait_for_the_lock_among_python_threads_lasts_about_the_switch_interval(
    runs: Runs,
) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.05)
    try:
        with running(lambda: sum(range(1000))), headspace.start(interval=0.02) as session:
            wait_until(
                lambda: session.flush(30) and highest(runs, LONGEST_WAIT) >= 0.03,
                "a wait of about the switch interval",
            )
    finally:
        sys.setswitchinterval(before)


def test_a_wait_for_the_lock_is_recorded_before_it_ends(program: Programs) -> None:
    run = program.start("interpreter.py", "no", "forever", env={"HEADSPACE_INTERVAL": "20ms"})

    wait_until(lambda: highest(run, LONGEST_WAIT), "a wait that has not ended")
    run.send(signal.SIGTERM)

    # The lock is free only after a minute.
    ran = run.finish(timeout=40)
    assert ran.exit_code == -signal.SIGTERM
    assert ran.summary()["state"] == "finished"


def test_the_gil_probe_stops_while_the_session_is_paused(runs: Runs) -> None:
    with headspace.start(interval=0.02) as session:
        wait_until(lambda: readings(runs, session)[WAITS] >= 1, "a first wait")
        session.pause()
        before = readings(runs, session)[WAITS]
        time.sleep(1.0)  # Time for three waits, if the probe were not paused.
        paused = readings(runs, session)[WAITS]
        session.resume()
        wait_until(lambda: readings(runs, session)[WAITS] >= paused + 2, "further waits")

    assert paused <= before + 1


def test_the_gil_probe_thread_exits_with_the_session(runs: Runs) -> None:
    session = headspace.start()
    wait_until(lambda: "hs-gil" in thread_names(), "the thread has named itself")
    session.stop()

    # The thread stops probing before `stop` returns. The system removes it a moment later.
    wait_until(lambda: "hs-gil" not in thread_names(), "the thread is gone")


def test_the_cpu_time_of_the_gil_probe_is_part_of_the_reported_overhead(runs: Runs) -> None:
    with headspace.start(interval=0.02) as session:
        wait_until(lambda: readings(runs, session)[WAITS] >= 2, "some waits")
        ticks = so_far(runs, "agent")

    spent = [tick[OWN_CPU] for tick in ticks if OWN_CPU in tick]
    assert spent[-1] > spent[0] > 0


def test_a_python_without_a_gil_disables_the_source_with_a_reason(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with headspace.start() as session:
        session.flush(30)

    sources = {source["name"]: source for source in runs.records()[0]["sources"]}
    assert sources["gil"]["state"] == "off"
    assert sources["gil"]["reason"] == "this Python runs without a GIL"
    assert sources["gc"]["state"] == "on"
    assert WAITS not in so_far(runs)[-1]


# The garbage collector.


@pytest.fixture
def by_hand() -> Iterator[None]:
    """Disables automatic collection and freezes the existing heap. Only the objects of the test are
    collected: a collection of everything that other tests imported takes too long."""
    was_on = gc.isenabled()
    gc.disable()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    if was_on:
        gc.enable()


class Node:
    def __init__(self) -> None:
        self.itself = self


def gc_counts(found: dict[str, float]) -> list[dict[str, int]]:
    """The readings, in the shape of `gc.get_stats()`."""
    names = {
        "collections": "cpython.gc.collections",
        "collected": "cpython.gc.collected_objects",
        "uncollectable": "cpython.gc.uncollectable_objects",
    }
    return [
        {
            what: int(found[f"{name}{{cpython.gc.generation={generation}}}"])
            for what, name in names.items()
        }
        for generation in range(3)
    ]


def difference(before: list[dict[str, int]], after: list[dict[str, int]]) -> list[dict[str, int]]:
    return [{what: b[what] - a[what] for what in b} for a, b in zip(before, after)]


def test_gc_counts_match_the_collector_and_a_large_graph_gives_a_long_pause(
    runs: Runs, by_hand: None
) -> None:
    with headspace.start() as session:
        before = gc.get_stats()
        garbage = [Node() for _ in range(100_000)]
        del garbage
        begin = time.perf_counter()
        assert gc.collect() >= 100_000
        took = time.perf_counter() - begin
        for generation in (0, 0, 0, 1, 1, 2):
            gc.collect(generation)
        found = readings(runs, session)
        longest = highest(runs, LONGEST_PAUSE)

    assert gc_counts(found) == difference(before, gc.get_stats())
    pause = found["headspace.gc.pause.time{cpython.gc.generation=2}"]
    assert took / 2 <= longest <= took
    assert longest <= pause
    assert found["headspace.gc.pause.time{cpython.gc.generation=0}"] < longest


def test_collections_of_two_threads_are_counted_correctly(runs: Runs, by_hand: None) -> None:
    class Slow(Node):
        def __del__(self) -> None:
            time.sleep(0)  # Lets the other thread run during the collection.

    def collect() -> None:
        for _ in range(50):
            Slow()
            gc.collect()

    with headspace.start() as session:
        before, begin = gc.get_stats(), time.perf_counter()
        threads = [threading.Thread(target=collect) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - begin
        found = readings(runs, session)

    assert gc_counts(found) == difference(before, gc.get_stats())
    assert 0 < found["headspace.gc.pause.time{cpython.gc.generation=2}"] <= took


def test_the_gc_callback_is_registered_exactly_during_the_session(runs: Runs) -> None:
    class Awkward:
        """A callback that is equal to every object."""

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

        def __call__(self, phase: str, info: dict[str, int]) -> None: ...

    of_user = Awkward()
    gc.callbacks.append(of_user)
    try:
        before = list(map(id, gc.callbacks))
        session = headspace.start()
        assert len(gc.callbacks) == len(before) + 1
        session.stop()
        assert list(map(id, gc.callbacks)) == before
    finally:
        gc.callbacks[:] = [one for one in gc.callbacks if one is not of_user]


def test_clearing_or_replacing_gc_callbacks_causes_no_error(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_of_python = gc.callbacks
    kept = list(list_of_python)
    with headspace.start() as session:
        list_of_python.clear()
        gc.collect()
        monkeypatch.setattr(gc, "callbacks", [])
        session.flush(30)
    assert list_of_python == []
    list_of_python.extend(kept)

    with headspace.start():  # The callback is in the replaced list, which Python does not call.
        assert len(gc.callbacks) == 1
        monkeypatch.undo()
        assert gc.callbacks is list_of_python
    assert list_of_python == kept


def test_the_gc_callback_ignores_invalid_arguments(runs: Runs, by_hand: None) -> None:
    nonsense: list[tuple[Any, Any]] = [
        ("start", None),
        ("stop", None),
        ("stop", {}),
        ("stop", {"generation": 99}),
        ("stop", {"generation": "2", "collected": None}),
        ("pause", {"generation": 0}),
        (7, {"generation": 0}),
        ("\udc80", {}),
    ]
    with headspace.start() as session:
        callback = gc.callbacks[-1]
        for phase, info in nonsense:
            assert callback(phase, info) is None
        found = readings(runs, session)

    assert sum(one["collections"] for one in gc_counts(found)) == 0
    assert LONGEST_PAUSE not in found


def test_a_session_that_cannot_start_leaves_no_thread_and_no_callback(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    before = len(gc.callbacks)

    with pytest.raises(OSError, match="file"):
        headspace.start(to=tmp_path / "file" / "runs")

    assert len(gc.callbacks) == before


# How programs end.


ENDS = {
    "no": 0,
    "stopped": 0,
    "never ended": 0,
    "error": 1,
    "exit": 9,
    "_exit": 3,
    "interrupt": -signal.SIGINT,
    "terminate": -signal.SIGTERM,
    "fork exit": 0,
    "fork _exit": 0,
    "fork": 0,
    "spawn": 0,
}


def ends_as_ever(program: Programs, version: str, how: str, hog: str) -> None:
    run: Ran = program(
        "interpreter.py",
        how,
        hog,
        python=[interpreter(version)],
        env={**PACKAGE, "HEADSPACE_INTERVAL": "10ms"},
    )

    assert run.exit_code == ENDS[how], run.stderr
    assert run.stdout == {0: "done\n", 3: "gone\n"}.get(ENDS[how], "")
    for trace in ("Fatal", "panicked", "Segmentation", "not catch", "hs-gil"):
        assert trace not in run.stderr
    if how not in ("_exit", "never ended"):
        # A spawned child has its own run.
        assert len(run.folders) == (3 if how == "spawn" else 1)
        for folder in run.folders:
            assert read_records(folder / "rank0.jsonl")[-1]["state"] == "finished"


THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def cases(hogs: list[str], ways: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """All cases on this Python. On others, only the last of the hogs, unless repeats are requested."""
    for version, how, hog in itertools.product(VERSIONS, ways, hogs):
        if REPEATS or version == THIS_PYTHON or hog == hogs[-1]:
            yield version, how, hog


@pytest.mark.slow
@pytest.mark.parametrize(("version", "how", "hog"), list(cases(["no", "python", "c"], ENDS)))
def test_a_program_ends_normally_while_threads_compete_for_the_lock(
    program: Programs, version: str, how: str, hog: str
) -> None:
    for _ in range(max(REPEATS, 1)):
        ends_as_ever(program, version, how, hog)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["no", "never ended", "exit", "terminate"])
@pytest.mark.parametrize("version", VERSIONS if REPEATS else [THIS_PYTHON])
def test_a_program_ends_normally_while_the_lock_is_held_longer_than_the_end_waits(
    program: Programs, version: str, how: str
) -> None:
    ends_as_ever(program, version, how, "long")
