"""Defines the base class of sinks, and the threads that send them metrics: one thread per sink."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from headspace import _native
from headspace._session.stderr import write_line

#: Shortest time between two calls of a sink, in seconds. More frequent values would not be visible in a plot.
SHORTEST_S = 1.0

#: Maximum number of seconds that the end of a session waits until the sinks have logged the last metrics.
LAST_S = 2.0


class Sink:
    """A destination of metrics. Write a subclass for a tracker that headspace does not support.

        class Printed(headspace.integrations.Sink):
            def log(self, step, time, values):
                print(step, values)

        headspace.start(to=Printed())

    `log`, `flush` and `close` are called from one thread per sink, not from the training thread. A sink
    that hangs delays nothing else.
    """

    #: Marks a sink for `headspace.start`.
    _sink = True

    @property
    def name(self) -> str:
        """Name of the sink in notices."""
        return type(self).__name__

    def open(self, rank: int) -> bool:
        """Opens the sink. `headspace.start` calls this before training, and raises its exceptions.

        Args:
            rank: Rank of this process.

        Returns:
            Whether this process logs metrics.
        """
        return True

    def log(self, step: int, time: float, values: Mapping[str, float]) -> None:
        """Logs the metrics of one moment.

        Args:
            step: Number of batches that the main loop had received.
            time: Seconds since 1970-01-01 UTC.
            values: Metrics by name. A name ends with the unit, if there is one: ``step_ms``,
                ``queue/decoded/depth``.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Makes logged metrics visible. Called after one or more calls of `log`."""

    def close(self) -> None:
        """Closes the sink. If the session fails to start after `open`, the starting thread calls this."""


class Feed:
    """Sends the metrics of a session to sinks, each on its own thread."""

    def __init__(self, sinks: Sequence[Sink], interval: float, quiet: bool) -> None:
        self.quiet = quiet
        self.interval = max(interval, SHORTEST_S)
        self.ending = threading.Event()
        self._threads = [_SinkThread(self, sink, place) for place, sink in enumerate(sinks)]

    def start(self, session: _native.Session) -> None:
        """Starts the threads. A forked child has no such threads, and sends nothing."""
        self.session = session
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Sends the last metrics, and waits at most `LAST_S`. The agent has already stopped."""
        self.ending.set()
        until = time.monotonic() + LAST_S
        late = [thread.name for thread in self._threads if not thread.ended(until)]
        if late and not self.quiet:
            names = ", ".join(f"`{name}`" for name in late)
            write_line(
                f"headspace: {names} did not log the last metrics within {LAST_S:g} s. "
                "The run folder contains them."
            )


class _SinkThread:
    """Sends metrics to one sink. If the sink hangs, the agent buffers only a limited number of metrics."""

    def __init__(self, feed: Feed, sink: Sink, place: int) -> None:
        self.name = sink.name
        self._feed = feed
        self._sink = sink
        self._place = place
        self._thread = threading.Thread(
            target=self._run, name=f"headspace-{self.name}", daemon=True
        )

    def start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError as error:
            self._disable(f"the system cannot create a thread: {error}")

    def ended(self, until: float) -> bool:
        """Whether the sink logs the last metrics before `until`, a time of the monotonic clock."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, until - time.monotonic()))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._feed.ending.wait(self._feed.interval):
                self._send()
            self._send()
            self._sink.close()
        except BaseException as error:  # Also `SystemExit`, which would print no message.
            reason = f"{type(error).__name__}: {error}".rstrip(": .")
            if not self._feed.ending.is_set():
                self._disable(reason)
            elif not self._feed.quiet:  # The records are closed.
                write_line(f"headspace: `{self.name}` did not log the last metrics ({reason}).")

    def _send(self) -> None:
        moments = self._feed.session.scalars(self._place)
        for step, at, values in moments:
            self._sink.log(step, at, values)
        if moments:
            self._sink.flush()

    def _disable(self, reason: str) -> None:
        self._feed.session.integration_off(self._place, self.name, reason)


def import_library(module: str, sink: str, package: str) -> Any:
    """Imports the library of a sink.

    Raises:
        ImportError: If the library is not installed. The message names the package to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"`{sink}` needs the package `{package}`: run `pip install {package}`"
        ) from error
