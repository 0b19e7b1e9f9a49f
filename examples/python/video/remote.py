"""Runs stages of the loader in a separate process, which does not share the GIL with the model.

The process is spawned, not forked. A forked process would inherit locks, but not the threads that hold them.

The transfer of items to this process has two stages: `pickle` in the other process, and `receive` in this one. The
latter lasts from the first bytes of an item in the pipe until the item is unpickled. The wait of the other process for
room in the pipe belongs to neither.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import headspace

from .pipeline import PipelineError

_SPAWN = multiprocessing.get_context("spawn")


class RemoteTraceback(Exception):
    """Carries the traceback of the other process as text, as the cause of what is raised here."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class Front:
    """A process that iterates `epoch(number)` on request and sends the items."""

    def __init__(self, epoch: Callable[[int], Iterable[Any]]) -> None:
        """Starts the process. `epoch` is pickled."""
        self._ours, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(
            target=_serve, args=(theirs, epoch), name="front", daemon=True
        )
        self._process.start()
        # Only the child may hold its end: then its death is the end of the stream.
        theirs.close()
        self._killed = False

    def epoch(self, number: int) -> Iterator[Any]:
        """What the process yields for epoch `number`. Ends early after `kill`.

        Raises:
            PipelineError: If its pipeline failed, with its traceback as cause, or if it died.
        """
        # A block, not a decorated function: headspace may call a function less often to measure what it costs.
        receive = headspace.stage("receive", concurrency=1)
        try:
            self._ours.send(number)
            while True:
                self._ours.poll(None)
                with receive:
                    kind, value = self._receive()
                if kind == "end":
                    return
                if kind == "error":
                    message, text = value
                    raise PipelineError(message) from RemoteTraceback(text)
                yield value
        except (EOFError, OSError) as error:
            if not self._killed:
                self._process.join(1.0)
            raise PipelineError(
                f"the loader's subprocess ended with exit code {self._process.exitcode}"
            ) from error

    def _receive(self) -> tuple[str, Any]:
        """The kind and the value of the next message."""
        try:
            message: tuple[str, Any] = pickle.loads(self._ours.recv_bytes())
        except (EOFError, OSError):
            # The loop was left early. Its epoch ends here: that is no failed call of `receive`.
            if self._killed:
                return "end", None
            raise
        return message

    def kill(self) -> None:
        """Kills the process and unblocks the thread that waits for it."""
        self._killed = True
        self._process.terminate()
        self._process.join()

    def end(self) -> None:
        """Lets the process end, which waits for the next epoch, and frees what is left of it."""
        self._ours.close()
        self._process.join(5.0)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._process.close()

    def close(self) -> None:
        """Frees the resources of the process after `kill`, once no thread waits for it."""
        self._ours.close()
        self._process.close()


def _serve(pipe: Connection, epoch: Callable[[int], Iterable[Any]]) -> None:
    # Ctrl-C reaches the whole process group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What ends in order can close its pipeline, and say that it did.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    serialize = headspace.stage("pickle", concurrency=1)

    def send(kind: str, value: Any) -> None:
        with serialize:
            message = pickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL)
        pipe.send_bytes(message)

    try:
        while True:
            number = pipe.recv()
            try:
                for item in epoch(number):
                    send("item", item)
                send("end", None)
            except PipelineError as error:
                send("error", (str(error), "".join(traceback.format_exception(error))))
    except (EOFError, BrokenPipeError):
        return  # The parent is gone, or done.
