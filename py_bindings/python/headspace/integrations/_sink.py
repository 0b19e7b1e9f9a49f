"""What takes numbers, and the thread that hands them over."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence

from headspace import _native

#: Shortest time between two calls of a sink, in seconds: people look at curves, not at milliseconds.
SHORTEST_S = 1.0

#: How long the end of a session waits for the last numbers to be taken, in seconds.
LAST_S = 2.0


class Sink:
    """Where numbers go. Subclass it for a tracker that is not here.

        class Printed(headspace.integrations.Sink):
            def log(self, step, time, values):
                print(step, values)

        headspace.start(to=Printed())

    `log`, `flush` and `close` are called from one thread, which is not the one that trains.
    """

    #: What `headspace.start` knows it by.
    _sink = True

    @property
    def name(self) -> str:
        """What notices call it."""
        return type(self).__name__

    def open(self, rank: int) -> bool:
        """Called by `headspace.start`, before training. An exception is the caller's.

        Args:
            rank: This process's rank.

        Returns:
            Whether there is anything to log in this process.
        """
        return True

    def log(self, step: int, time: float, values: Mapping[str, float]) -> None:
        """Takes numbers of one moment.

        Args:
            step: Batches that the main loop had received.
            time: Seconds since 1970-01-01 UTC.
            values: By name; the unit is the name's end: ``step_ms``, ``queue/decoded/depth``.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Makes what was logged visible. Called after every few `log`."""

    def close(self) -> None:
        """No more numbers come."""


class Feed:
    """Hands the numbers of a session to sinks, on a thread of its own."""

    def __init__(self, sinks: Sequence[Sink], interval: float, quiet: bool) -> None:
        self._sinks = list(sinks)
        self._interval = max(interval, SHORTEST_S)
        self._quiet = quiet
        self._ending = threading.Event()
        self._session: _native.Session | None = None
        self._thread = threading.Thread(
            target=self._run, name="headspace-integrations", daemon=True
        )

    def start(self, session: _native.Session) -> None:
        """Begins. In a forked child there is no such thread, and nothing is handed over."""
        self._session = session
        try:
            self._thread.start()
        except RuntimeError as error:
            for sink in self._sinks:
                session.integration_off(sink.name, f"the system gives no thread: {error}")

    def finish(self) -> None:
        """Hands over what is left, and waits for that a moment. The agent has stopped."""
        self._ending.set()
        if self._thread.ident is None:
            return
        self._thread.join(LAST_S)
        if self._thread.is_alive() and not self._quiet:
            names = ", ".join(f"`{sink.name}`" for sink in self._sinks)
            _say(
                f"{names} did not take the last numbers within {LAST_S:g} s. The records have them."
            )

    def _run(self) -> None:
        while not self._ending.wait(self._interval):
            self._hand_over()
        self._hand_over()
        for sink in list(self._sinks):
            self._call(sink, sink.close)

    def _hand_over(self) -> None:
        session = self._session
        moments = [] if session is None else session.scalars()
        for sink in list(self._sinks) if moments else ():

            def log(sink: Sink = sink) -> None:
                for step, time, values in moments:
                    sink.log(step, time, values)
                sink.flush()

            self._call(sink, log)

    def _call(self, sink: Sink, what: Callable[[], None]) -> None:
        try:
            what()
        except Exception as error:
            if sink in self._sinks:
                self._sinks.remove(sink)
            reason = f"{type(error).__name__}: {error}".rstrip(": .")
            if self._ending.is_set():  # The records are closed.
                if not self._quiet:
                    _say(f"`{sink.name}` did not take the last numbers ({reason}).")
            elif self._session is not None:
                self._session.integration_off(sink.name, reason)


def _say(text: str) -> None:
    try:
        if sys.stderr is not None:
            print(f"headspace: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def missing(what: str, package: str) -> ImportError:
    """The error for a library that is not installed."""
    return ImportError(f"`{what}` needs the package `{package}`: run `pip install {package}`")
