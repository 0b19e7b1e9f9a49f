"""What `study_soak.py` does to a training program and to the destinations of its records.

Each disturbance is a thread that works until the study ends it.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol

from running import clean_environment, free_port

#: Longest wait of the collector before it answers, in seconds. headspace waits up to 10 s for an answer.
HANG_S = 15.0
SLOW_S = 3.0

#: Size of the disk in bytes. The records of two hours need about a quarter of it.
DISK_BYTES = 512 << 20


@contextmanager
def repeatedly(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Calls `work` repeatedly on a thread until the end of the block.

    `work` gets an event that is set at the end, and uses it for its waits.
    """
    end = threading.Event()

    def run() -> None:
        while not end.is_set():
            work(end)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


# --- A collector -------------------------------------------------------------------------------


class Collector:
    """An OTLP collector at one port, which changes its behaviour."""

    BEHAVIOURS = ("answers", "answers slowly", "hangs", "refuses", "answers 503")

    def __init__(self) -> None:
        self.port = free_port()
        self.behaviour = self.BEHAVIOURS[0]
        #: Number of requests by behaviour. Refused connections do not arrive.
        self.requests: Counter[str] = Counter()
        self._server: ThreadingHTTPServer | None = None
        self._changed = threading.Event()

    def take_turns(self, seconds: float) -> Callable[[threading.Event], None]:
        """Changes the behaviour at this interval (seconds), in a fixed order."""
        numbers = iter(range(10**9))

        def change(end: threading.Event) -> None:
            self.behave(self.BEHAVIOURS[next(numbers) % len(self.BEHAVIOURS)])
            end.wait(seconds)

        return change

    def behave(self, behaviour: str) -> None:
        self.behaviour = behaviour
        self._changed.set()  # Ends requests that hang.
        self._changed = threading.Event()
        if behaviour == "refuses":
            self.close()
        elif self._server is None:
            self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler_of(self))
            threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.socket.close()

    def wait_for_another_behaviour(self, seconds: float) -> None:
        self._changed.wait(seconds)


def handler_of(collector: Collector) -> type[BaseHTTPRequestHandler]:
    """The class that answers requests according to the collector's behaviour."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            behaviour = collector.behaviour
            collector.requests[behaviour] += 1
            if behaviour == "hangs":
                collector.wait_for_another_behaviour(HANG_S)
                return
            if behaviour == "answers slowly":
                time.sleep(SLOW_S)
            with contextlib.suppress(OSError):  # The client may have given up.
                self.send_response(503 if behaviour == "answers 503" else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


# --- A disk ------------------------------------------------------------------------------------


class Disk(Protocol):
    """A place for run folders that is sometimes full."""

    folder: Path
    #: How it becomes full, for the table.
    kind: str

    def fill(self, pid: int) -> None:
        """Makes the disk full for this process."""

    def free(self, pid: int) -> None:
        """Gives the space back."""


class SmallDisk:
    """A tmpfs, filled with a file."""

    kind = "a tmpfs without space"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, pid: int) -> None:
        free = os.statvfs(self.folder)
        with self._ballast.open("wb") as file, contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_bsize))

    def free(self, pid: int) -> None:
        self._ballast.unlink(missing_ok=True)


class LimitedFiles:
    """A folder in which files may not grow, by the limit of the process (`RLIMIT_FSIZE`)."""

    kind = "a limit of the size of files"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, pid: int) -> None:
        sizes = [path.stat().st_size for path in self.folder.rglob("rank*.jsonl")]
        resource.prlimit(
            pid, resource.RLIMIT_FSIZE, (min(sizes, default=1), resource.RLIM_INFINITY)
        )

    def free(self, pid: int) -> None:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)


@contextmanager
def disk_that_fills(folder: Path) -> Iterator[Disk]:
    """A small disk if one can be mounted, otherwise limited files."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        yield LimitedFiles(folder)
        return
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill_sometimes(disk: Disk, pid: int, full_s: float, free_s: float) -> Callable[..., None]:
    """Returns a function that fills the disk for `full_s` seconds and then frees it for `free_s` seconds."""

    def fill(end: threading.Event) -> None:
        end.wait(free_s)
        if end.is_set():
            return
        with contextlib.suppress(ProcessLookupError):  # It has ended.
            disk.fill(pid)
            end.wait(full_s)
            disk.free(pid)

    return fill


# --- The process -------------------------------------------------------------------------------


def stop_sometimes(pids: list[int], longest_s: float, mean_pause_s: float) -> Callable[..., None]:
    """Stops the processes for random times, at random times."""
    chance = random.Random(1)

    def send(number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # It has ended.
                os.kill(pid, number)

    def stop(end: threading.Event) -> None:
        end.wait(chance.expovariate(1 / mean_pause_s))
        send(signal.SIGSTOP)
        end.wait(chance.uniform(0.05, longest_s))
        send(signal.SIGCONT)

    return stop


# --- Readers -----------------------------------------------------------------------------------


class Scrapes:
    """Reads the metrics of the process in a loop. A stopped process does not answer in time."""

    def __init__(self, port: int) -> None:
        self.answered = self.failed = 0
        self._url = f"http://127.0.0.1:{port}/metrics"

    def work(self, end: threading.Event) -> None:
        try:
            with urllib.request.urlopen(self._url, timeout=10) as answer:
                complete = b"headspace_loop_steps_total" in answer.read()
            self.answered += complete
            self.failed += not complete
        except OSError:
            self.failed += 1
        end.wait(0.2)


class Reports:
    """Runs `headspace report` while the records are written."""

    def __init__(self, folder: Path) -> None:
        self.read = 0
        self.errors: list[str] = []
        self._folder = folder

    def work(self, end: threading.Event) -> None:
        end.wait(5)
        if not any(self._folder.glob("*/rank0.jsonl")):
            return
        done = subprocess.run(
            [sys.executable, "-m", "headspace", "report", "--json", str(self._folder)],
            env=clean_environment(),
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            self.read += 1
        else:
            self.errors.append(done.stderr.strip())
