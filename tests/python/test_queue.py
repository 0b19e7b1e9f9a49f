"""`headspace.queue`: every kind of queue is read correctly, referenced weakly, and read only during a session."""

from __future__ import annotations

import asyncio
import collections
import gc
import itertools
import multiprocessing
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from running import Runs, thread_names, wait_until
from stage_totals import queue_entries

import headspace


def first_entry(session: headspace.Session, name: str) -> dict[str, Any]:
    wait_until(lambda: queue_entries(session, name), f"an entry of {name}")
    return queue_entries(session, name)[-1]


class NoLock(queue.Queue[int]):
    """`qsize` must not be called: it would wait for a lock that the pipeline holds."""

    def qsize(self) -> int:
        raise AssertionError("not to be called")


class OwnQueue:
    def __init__(self, depth: int) -> None:
        self.depth = depth

    def qsize(self) -> int:
        return self.depth


class Slotted:
    __slots__ = ()

    def qsize(self) -> int:
        return 4


def filled(q: Any, count: int) -> Any:
    for number in range(count):
        q.put_nowait(number)
    return q


KINDS: dict[str, tuple[Callable[[], Any], int, int | None]] = {
    "Queue": (lambda: filled(queue.Queue(5), 2), 2, 5),
    "Queue without a limit": (lambda: filled(queue.Queue(), 3), 3, None),
    "Queue under lock": (lambda: filled(NoLock(5), 1), 1, 5),
    "LifoQueue": (lambda: filled(queue.LifoQueue(4), 4), 4, 4),
    "PriorityQueue": (lambda: filled(queue.PriorityQueue(9), 1), 1, 9),
    "SimpleQueue": (lambda: filled(queue.SimpleQueue(), 2), 2, None),
    "asyncio.Queue": (lambda: filled(asyncio.Queue(7), 3), 3, 7),
    "multiprocessing.Queue": (lambda: filled(multiprocessing.Queue(6), 2), 2, 6),
    "multiprocessing.Queue without a limit": (lambda: multiprocessing.Queue(), 0, None),
    "deque": (lambda: collections.deque([1, 2], maxlen=3), 2, 3),
    "qsize": (lambda: OwnQueue(5), 5, None),
    "slots": (Slotted, 4, None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_recorded_depth_and_capacity_are_those_of_the_queue(
    session: headspace.Session, name: str, kind: str
) -> None:
    make, depth, capacity = KINDS[kind]
    made = make()

    assert headspace.queue(name, made) is made
    entry = first_entry(session, name)

    assert (round(entry["depth"], 2), entry["deepest"]) == (depth, depth)
    assert entry.get("capacity") == capacity
    assert entry["last"] is False
    assert (entry["empty_ms"] > 0) == (depth == 0)
    assert (entry["full_ms"] > 0) == (depth == capacity)
    # Ends the thread of a `multiprocessing.Queue`.
    if hasattr(made, "cancel_join_thread"):
        made.cancel_join_thread()
        made.close()


class Pool:
    """A real pool of four workers, and calls that run until the test ends them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.marks = folder / "marks"
        self.marks.mkdir()
        if kind == "threads":
            self.pool: Executor = ThreadPoolExecutor(4)
        else:
            context = multiprocessing.get_context(kind)
            self.pool = ProcessPoolExecutor(4, mp_context=context)
        self.calls: dict[Path, Future[None]] = {}
        self.count = itertools.count()

    def begin(self, count: int) -> None:
        for _ in range(count):
            mark = self.marks / str(next(self.count))
            self.calls[mark] = self.pool.submit(_until_marked, mark)

    def end(self, count: int | None = None) -> None:
        """Ends the oldest of the calls, by default all."""
        for mark in list(self.calls)[:count]:
            mark.touch()
            self.calls.pop(mark).result(60)


def _until_marked(mark: Path) -> None:
    wait_until(mark.exists, "the mark")


@pytest.fixture(params=["threads", "fork", "spawn"])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pool]:
    pool = Pool(request.param, tmp_path)
    yield pool
    pool.end()
    pool.pool.shutdown()


def test_a_pool_records_its_waiting_and_active_tasks(
    session: headspace.Session, name: str, pool: Pool
) -> None:
    def wait_for(waiting: int, active: int) -> None:
        def is_so() -> bool:
            seen = queue_entries(session, name)
            return bool(seen) and (seen[-1]["depth"], seen[-1].get("active")) == (waiting, active)

        wait_until(is_so, f"{active} calls at work and {waiting} that wait")

    headspace.queue(name, pool.pool)
    wait_for(0, 0)
    pool.begin(10)
    wait_for(6, 4)
    pool.end(7)
    wait_for(0, 3)
    pool.end(1)
    wait_for(0, 2)
    pool.end()
    wait_for(0, 0)
    # After more calls than workers, the number of idle workers is still right.
    pool.begin(1)
    wait_for(0, 1)

    assert {entry["concurrency"] for entry in queue_entries(session, name)} == {4}


def test_a_pool_is_no_longer_recorded_after_its_shutdown(
    session: headspace.Session, name: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        headspace.queue(name, pool)
        pool.submit(int).result()
        first_entry(session, name)

    headspace.queue(f"{name} other", depth=lambda: 1)
    before = len(queue_entries(session, name))
    first_entry(session, f"{name} other")
    assert len(queue_entries(session, name)) <= before + 1


def test_for_a_pool_of_an_unknown_type_only_the_depth_is_recorded(
    session: headspace.Session, name: str
) -> None:
    pool = ThreadPoolExecutor(2)
    # With this queue, the threads of the pool would wait in Python functions.
    pool._work_queue = queue.Queue()  # type: ignore[assignment]
    headspace.queue(name, pool)

    entry = first_entry(session, name)

    assert entry["depth"] == 0
    assert not {"active", "concurrency"} & entry.keys()


def test_the_summary_of_a_pool_is_the_mean_of_its_samples(
    runs: Runs, session: headspace.Session, name: str
) -> None:
    go_on = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        headspace.queue(name, pool)
        for _ in range(2):
            pool.submit(go_on.wait)
        wait_until(lambda: len(queue_entries(session, name)) > 3, "samples")
        session.stop()
        go_on.set()

    (told,) = [entry for entry in runs.summary()["queues"] if entry["name"] == name]
    assert told["concurrency"] == 4
    assert 1 < told["active"] <= 2


def train_on_one_pool(threads: int, steps: int = 200) -> None:
    """Two stages share a pool. Their calls take 6 ms and 4 ms, and the loop computes for 2 ms."""
    with ThreadPoolExecutor(threads) as pool:
        headspace.queue("pool", pool)
        read = headspace.queue("read", queue.Queue(2))
        decoded = headspace.queue("decoded", queue.Queue(2), last=True)

        def serve(name: str, seconds: float, put: Callable[[Any], None], items: Any) -> None:
            call = headspace.stage(name, concurrency=1)(time.sleep)
            for _ in items:
                put(pool.submit(call, seconds).result())

        stages = [
            threading.Thread(target=serve, args=("read", 0.006, read.put, range(steps))),
            threading.Thread(
                target=serve,
                args=("decode", 0.004, decoded.put, (read.get() for _ in range(steps))),
            ),
        ]
        for thread in stages:
            thread.start()
        for _ in headspace.wrap(decoded.get() for _ in range(steps)):
            time.sleep(0.002)
        for thread in stages:
            thread.join()


@pytest.mark.alone  # Compares the times of two runs.
def test_a_pool_shared_by_stages_is_the_bottleneck_and_more_threads_gain_what_was_predicted(
    runs: Runs,
) -> None:
    def summary(threads: int) -> dict[str, Any]:
        with headspace.start(interval=0.05) as session:
            train_on_one_pool(threads)
        (told,) = Runs(Path(session.folder).parent).kind("summary")[-1:]
        shutil.rmtree(session.folder)
        return told

    one, two = summary(1), summary(2)

    assert (one["bottleneck"]["kind"], one["bottleneck"]["name"]) == ("pool", "pool")
    assert "its thread is busy" in one["bottleneck"]["evidence"]
    best = one["remedies"][0]
    assert best["code"] == "more_threads"
    change = {"knob": "pool.concurrency", "target": "pool", "setting": "concurrency"}
    assert best["change"] == change | {"from": "1", "to": "2"}
    assert best["predicted_step_ms"] == pytest.approx(two["steady_step_mean_ms"], rel=0.15)
    assert (two["bottleneck"]["kind"], two["bottleneck"]["name"]) == ("stage", "read")


def test_callables_give_depth_and_capacity_of_other_objects(
    session: headspace.Session, name: str
) -> None:
    assert headspace.queue(name, depth=lambda: 3, capacity=lambda: 8, last=True) is None

    entry = first_entry(session, name)

    assert (round(entry["depth"], 2), entry["capacity"], entry["last"]) == (3, 8, True)
    with pytest.raises(TypeError, match=r"cannot read the depth of a `object`: .* depth="):
        headspace.queue(name, object())
    # Callables are read until the end. A newer queue with the same name replaces them and is freed at once.
    headspace.queue(name, queue.Queue(1))


def test_the_newer_of_two_queues_with_one_name_is_recorded(
    session: headspace.Session, name: str
) -> None:
    older = headspace.queue(name, OwnQueue(1))
    first_entry(session, name)
    newer = headspace.queue(name, OwnQueue(2))

    wait_until(lambda: round(first_entry(session, name)["depth"], 2) == 2, "only the newer one")

    assert (older.depth, newer.depth) == (1, 2)


def test_a_queue_is_no_longer_recorded_after_it_was_freed(
    session: headspace.Session, name: str
) -> None:
    watched = headspace.queue(name, queue.Queue(3))
    first_entry(session, name)

    gone = weakref.ref(watched)
    del watched
    gc.collect()

    assert gone() is None
    headspace.queue(f"{name} other", depth=lambda: 1)
    before = len(queue_entries(session, name))
    first_entry(session, f"{name} other")
    assert len(queue_entries(session, name)) <= before + 1


def test_a_queue_whose_depth_raises_is_disabled_with_one_notice(
    runs: Runs, session: headspace.Session, name: str
) -> None:
    asked = []

    def depth() -> int:
        asked.append(1)
        raise RuntimeError("no depth here")

    headspace.queue(name, depth=depth)
    headspace.queue(f"{name} good", depth=lambda: 1)
    first_entry(session, f"{name} good")
    wait_until(lambda: session.flush(30) and "queue_off" in runs.notices(), "a notice")

    assert len(asked) == 1
    (notice,) = [n for n in runs.kind("notice") if n["code"] == "queue_off"]
    assert name in notice["text"]
    assert "no depth here" in notice["text"]


def test_no_queue_is_read_without_a_session_or_while_it_is_paused(runs: Runs, name: str) -> None:
    asked = itertools.count()
    last = [0]

    def depth() -> int:
        last[0] = next(asked)
        return 1

    headspace.queue(name, depth=depth)
    wait_until(
        lambda: "hs-queues" not in thread_names(), "the thread of an earlier session is gone"
    )
    with headspace.start(interval=0.05) as session:
        wait_until(lambda: last[0] > 1, "samples")
        session.pause()
        time.sleep(0.05)  # Time for a sample that has begun to end.
        paused = last[0]
        time.sleep(0.5)  # Time for five samples, if the session were not paused.
        assert last[0] <= paused + 1
        session.resume()
        wait_until(lambda: last[0] > paused + 2, "further samples")
    ended = last[0]
    time.sleep(0.5)  # As above.

    assert last[0] == ended
    wait_until(lambda: "hs-queues" not in thread_names(), "the thread is gone")


def test_without_queues_no_sampling_thread_runs(runs: Runs) -> None:
    script = (
        "import headspace, pathlib, time\n"
        "with headspace.start():\n"
        "    time.sleep(0.2)\n"
        "    names = [c.read_text() for c in pathlib.Path('/proc/self/task').glob('*/comm')]\n"
        "    assert 'hs-gil\\n' in names and 'hs-queues\\n' not in names, names\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def send(q: Any, count: int) -> None:
    for number in range(count):
        q.put([number] * 1000)
    q.put(None)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("timeout", [None, 60])
@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue"])
def test_both_ends_of_the_hand_off_of_batches_through_the_last_queue_are_timed(
    runs: Runs, name: str, method: Any, timeout: float | None, kind: str
) -> None:
    context = multiprocessing.get_context(method)
    batches = headspace.queue(name, getattr(context, kind)(4), last=True)
    session = headspace.start(interval=60)
    worker = context.Process(target=send, args=(batches, 50), daemon=True)
    worker.start()
    received = list(headspace.wrap(iter(lambda: batches.get(timeout=timeout), None), name=name))
    session.stop()
    worker.join()

    assert received == [[number] * 1000 for number in range(50)]
    # The summary leaves out a stage whose calls all belong to the warm-up. Here, that may be all 50 batches.
    calls = collections.Counter[str]()
    for tick in runs.kind("tick"):
        for stage in tick.get("stages", []):
            if "hand_off" in stage:
                calls[stage["hand_off"]] += stage["time"]["count"]
    # The end marker is an item, too.
    assert calls == {"receive": 51, "send": 51}
    # A list of numbers.
    assert runs.summary()["batch"]["objects"] == 1001


HAND_OFFS = """
import multiprocessing, sys
import headspace, torch

multiprocessing.set_start_method("fork")

def iterate_loader():
    dataset = torch.utils.data.TensorDataset(torch.zeros(64, 2))
    loader = torch.utils.data.DataLoader(dataset, num_workers=1)
    for batch in headspace.wrap(loader):
        pass

def send(batches):
    for number in range(20):
        batches.put(number)
    batches.put(None)

def receive_from_queue():
    batches = headspace.queue("batches", multiprocessing.Queue(4), last=True)
    multiprocessing.Process(target=send, args=(batches,), daemon=True).start()
    for batch in headspace.wrap(iter(batches.get, None), name="queue"):
        pass

with headspace.start():
    for function in sys.argv[1:]:
        globals()[function]()
"""


@pytest.mark.parametrize("queue_first", [False, True])
def test_a_loader_and_a_queue_do_not_share_the_stages_of_their_hand_offs(
    runs: Runs, queue_first: bool
) -> None:
    order = ["iterate_loader", "receive_from_queue"]
    if queue_first:
        order.reverse()
    subprocess.run([sys.executable, "-c", HAND_OFFS, *order], check=True, timeout=60)

    received: dict[str, int] = {}
    for tick in runs.kind("tick"):
        for stage in tick.get("stages", []):
            name, calls = stage["name"], stage["time"]["count"]
            received[name] = received.get(name, 0) + calls
    loader, batches = (
        ("DataLoader hand-off", "hand-off") if queue_first else ("hand-off", "batches hand-off")
    )
    assert received.items() >= {(loader, 64), (batches, 21)}
    assert received["fetch"] == 64


def test_the_get_of_a_timed_queue_keeps_the_queue_alive(name: str) -> None:
    get = headspace.queue(name, filled(multiprocessing.Queue(4), 2), last=True).get
    gc.collect()

    assert [get(), get(timeout=60)] == [0, 1]


def test_a_forked_child_reads_no_queue(session: headspace.Session, name: str) -> None:
    headspace.queue(name, depth=lambda: 1)
    first_entry(session, name)

    child = os.fork()
    if child == 0:
        status = 1
        try:
            headspace.queue(name, depth=lambda: 2)
            time.sleep(0.3)  # Time for three samples, if there were a thread.
            status = int("hs-queues" in thread_names())
        finally:
            os._exit(status)

    assert os.waitpid(child, 0)[1] == 0
    assert all(entry["deepest"] == 1 for entry in queue_entries(session, name))
