"""A loader during which code, threads and processes change all the time, as a test for the reader of stacks.

    python stack_traps.py STEPS

Each call of the stage `load` compiles functions, runs them and frees them. The file, the name and the lines of a
function follow from its number, so a stack that mixes two functions can be recognised. Meanwhile threads begin and
end, the process forks children that exit at once, and a pool kills its workers in the middle of their calls. The
process ends without a shutdown of the interpreter, while its threads run.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

import headspace


def compiled(number: int) -> Any:
    """A function on its own line of its own file. It runs for about a millisecond."""
    begin = 10 * (number % 50) + 1
    source = (
        "\n" * (begin - 1)
        + f"def function_{number}(until):\n    while clock() < until:\n        pass\n"
    )
    names = {"clock": time.perf_counter}
    exec(compile(source, f"/generated/{number}.py", "exec"), names)
    return names[f"function_{number}"]


@headspace.stage("load")
def load(step: int) -> int:
    for number in range(20 * step, 20 * step + 20):
        compiled(number)(time.perf_counter() + 1e-3)
    return step


def work(number: int) -> int:
    with headspace.stage("work"):
        time.sleep(0.02)
    return number


def fork_and_start_threads(stop: threading.Event) -> None:
    while not stop.wait(0.02):
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
        thread = threading.Thread(target=time.sleep, args=(0.001,))
        thread.start()
        thread.join()


def kill_workers(stop: threading.Event) -> None:
    """Begins pools, and kills each of them while its workers are in a call."""
    while not stop.wait(0.1):
        pool = get_context("fork").Pool(2)
        workers = [process.pid for process in pool._pool]  # type: ignore[attr-defined]
        pool.map_async(work, range(100))
        stop.wait(0.3)
        pool._worker_handler._state = "TERMINATE"  # type: ignore[attr-defined]  # starts no new ones
        for pid in workers:
            os.kill(pid, signal.SIGKILL)


def batches(steps: int) -> Iterator[int]:
    yield from map(load, range(steps))


def main() -> None:
    stop = threading.Event()
    for target in (fork_and_start_threads, kill_workers):
        threading.Thread(target=target, args=(stop,), daemon=True).start()
    for _ in headspace.wrap(batches(int(sys.argv[1]))):
        pass
    headspace.stop()
    print("done", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
