"""Runs stages of the loader in a separate process, which does not share the GIL with the model.

The process is spawned, not forked. A forked process would inherit locks, but not the threads that hold them.

The transfer of an item has two stages: `pickle` in the other process, and `receive` in this one. `receive` lasts from
the first bytes of the item in the pipe until the item is unpickled. If the other process waits for room in the pipe,
this time is in neither stage.
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
    """The traceback of the other process as text. It is the cause of the exception that is raised in this process."""

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
        # Only the child may hold this end of the pipe. So when the child ends, this process reads the end of file.
        theirs.close()
        self._killed = False

    def epoch(self, number: int) -> Iterator[Any]:
        """Yields the items of epoch `number` from the process. Ends early after `kill`.

        Raises:
            PipelineError: If the pipeline of the process failed, with its traceback as cause, or if the process
                ended unexpectedly.
        """
        # This is a block, not a decorated function. In a what-if, headspace may return an earlier result instead of
        # calling a decorated function. Then this epoch would yield an item twice.
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
            # The loop was left early, so the epoch ends here. This is not a failed call of `receive`.
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
        """Ends the process, which waits for the next epoch, and frees its resources."""
        self._ours.close()
        self._process.join(5.0)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._process.close()

    def close(self) -> None:
        """Frees the resources of the process. Call it after `kill`, when no thread waits for the process."""
        self._ours.close()
        self._process.close()


def _serve(pipe: Connection, epoch: Callable[[int], Iterable[Any]]) -> None:
    # Ctrl-C sends the signal to the whole process group. Only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # `sys.exit` unwinds the stack, so that the pipeline is closed.
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
        return  # The parent has ended, or needs no more epochs.
