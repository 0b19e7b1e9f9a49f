"""Measures how much a session slows a loop of 10 ms steps.

A step is a fixed amount of arithmetic (5 ms, calibrated once) and a sleep of 5 ms. Neither of them becomes shorter
if the session adds work, so the added time is visible.

Blocks of steps are compared in pairs. Within one process, one block of a pair iterates a wrapped loader. The other
one iterates the bare loader while the session is paused, which also stops its threads. Then the same is done in
separate processes. The order within a pair alternates. The interval is a bootstrap over pairs.

On a machine with other load, these pairs cannot show a difference of 0.1 %. So the parts of the cost are also added
up: the CPU time of the agent's threads, as if all of it delayed the loop, and the cost of each batch on the loop's
own thread.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rows import Row, bootstrap

BUSY_S = 0.005
SLEEP_S = 0.005

STACKS = "headspace-stack"
"""Name of the thread that reads stacks."""


def _spin(turns: int) -> int:
    x = 1
    for _ in range(turns):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def calibrate() -> int:
    """Number of iterations of `_spin` that take `BUSY_S` on an idle core."""
    probe = 20_000
    took = []
    for _ in range(50):
        begin = time.perf_counter()
        _spin(probe)
        took.append(time.perf_counter() - begin)
    return max(1, int(probe * BUSY_S / min(took)))


def block(batches: Iterable[Any], turns: int) -> list[float]:
    """Runs one block. Returns the milliseconds of each step."""
    times = []
    begin = time.perf_counter_ns()
    for _ in batches:
        _spin(turns)
        time.sleep(SLEEP_S)
        now = time.perf_counter_ns()
        times.append((now - begin) / 1e6)
        begin = now
    return times


def watched_loop(steps: int, turns: int) -> list[float]:
    import headspace

    with headspace.start():
        return block(headspace.wrap([None] * steps, mode="measure"), turns)


def _alternating(pairs: int, turns: int) -> list[tuple[list[float], list[float]]]:
    import headspace

    bare = [None] * 10
    wrapped = headspace.wrap(bare, mode="measure")
    with headspace.start() as session:

        def watched_block() -> list[float]:
            session.resume()
            times = block(wrapped, turns)
            session.pause()
            return times

        watched_block()
        return _pairs(pairs, watched_block, lambda: block(bare, turns))


def _pairs(count: int, watched: Any, bare: Any) -> list[tuple[list[float], list[float]]]:
    pairs = []
    for turn in range(count):
        if turn % 2:
            without = bare()
            pairs.append((watched(), without))
        else:
            with_session = watched()
            pairs.append((with_session, bare()))
    return pairs


def _rows(what: str, pairs: list[tuple[list[float], list[float]]]) -> list[Row]:
    """Slow-down in percent, of the mean step and of the median step. Outliers affect only the mean."""
    rows = []
    for kind, of in (("mean", statistics.fmean), ("median", statistics.median)):
        slower = [(of(with_session) / of(without) - 1) * 100 for with_session, without in pairs]
        low, high = bootstrap(slower, of)
        centre = of(slower)
        rows.append(Row("10 ms loop", f"{what}, {kind} step", centre, "%", 0.1, low, high))
    return rows


def _accounted(seconds: float) -> list[Row]:
    """The agent's CPU time and the cost of each batch, as a share of a loop of 10 ms steps."""
    import headspace

    steps = int(seconds / (BUSY_S + SLEEP_S))
    session, before = headspace.start(), _cpu_of_threads()
    wrapped = headspace.wrap([None] * 4000, mode="measure")
    try:
        others, begin = time.process_time() - time.thread_time(), time.perf_counter()
        for _ in headspace.wrap([None] * steps, mode="measure"):
            time.sleep(BUSY_S + SLEEP_S)
        agent_s = time.process_time() - time.thread_time() - others
        elapsed = time.perf_counter() - begin
        share = agent_s / elapsed
        stacks = (_cpu_of_threads()[STACKS] - before.get(STACKS, 0)) / 1e9 / elapsed
        per_batch = min(_drain(wrapped) for _ in range(20)) - min(
            _drain([None] * 4000) for _ in range(20)
        )
    finally:
        session.stop()
    share += per_batch / 4000 / (BUSY_S + SLEEP_S) - stacks
    what = "agent's CPU time + batches, added up, without stacks"
    return [
        Row("10 ms loop", what, share * 100, "%", 0.1),
        Row("stacks", "CPU time of a core, one process", stacks * 100, "%", 0.5),
    ]


def _by_thread(seconds: float) -> list[Row]:
    """CPU time of the agent's threads in a loop of 10 ms steps over a torch loader with two workers."""
    try:
        from torch.utils.data import DataLoader
    except ImportError:
        return []
    import headspace

    steps = int(seconds / (BUSY_S + SLEEP_S))
    with headspace.start():
        loader = DataLoader(range(steps), num_workers=2)  # type: ignore[arg-type]
        begin = None
        for number, _ in enumerate(headspace.wrap(loader, mode="measure")):
            if number == 100:  # By then, the workers run, and each source was read once.
                begin, before = time.perf_counter(), _cpu_of_threads()
            time.sleep(BUSY_S + SLEEP_S)
        assert begin is not None
        elapsed = time.perf_counter() - begin
        used = {
            name: cpu - before.get(name, 0)
            for name, cpu in _cpu_of_threads().items()
            if name.startswith(("hs-", "headspace-"))
        }
    shares = {name: ns / 1e7 / elapsed for name, ns in used.items()}
    rows = [
        Row("10 ms loop", f"torch, 2 workers: CPU time of `{name}`", share, "%")
        for name, share in sorted(shares.items(), key=lambda item: -item[1])
        if share >= 0.001
    ]
    stacks = shares.pop(STACKS)
    total = sum(shares.values())
    return [
        *rows,
        Row("10 ms loop", "torch, 2 workers: all of the agent's, without stacks", total, "%", 0.1),
        Row("stacks", "CPU time of a core for each of 3 processes", stacks / 3, "%", 0.5),
    ]


def _cpu_of_threads() -> dict[str, int]:
    """Nanoseconds of CPU time for each thread name."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            found[name] = int((task / "schedstat").read_text().split()[0])
        except OSError:  # The thread has ended meanwhile.
            continue
    return found


def _drain(batches: Iterable[Any]) -> float:
    begin = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - begin


def _child(how: str, steps: int, turns: int) -> list[float]:
    answer = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), how, str(steps), str(turns)],
        check=True,
        capture_output=True,
        text=True,
    )
    times: list[float] = json.loads(answer.stdout.splitlines()[-1])
    return times


def run(quick: bool) -> list[Row]:
    turns = calibrate()
    within = _alternating(20 if quick else 400, turns)
    apart = _pairs(
        2 if quick else 14,
        lambda: _child("watched", 200, turns),
        lambda: _child("bare", 200, turns),
    )
    accounted = _accounted(3.0 if quick else 20.0)
    by_thread = _by_thread(4.0 if quick else 60.0)
    return [
        *_rows("one process", within),
        *_rows("separate processes", apart),
        *accounted,
        *by_thread,
    ]


def main() -> None:
    how, steps, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    _spin(turns * 10)
    times = watched_loop(steps, turns) if how == "watched" else block([None] * steps, turns)
    print(json.dumps(times))


if __name__ == "__main__":
    main()
