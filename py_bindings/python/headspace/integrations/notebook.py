"""Shows a run in the output of a notebook cell, while the cell trains.

    from headspace.integrations.notebook import live

    with live():
        for batch in headspace.wrap(loader):
            train_step(batch)

A thread reads the records of the run, about once per second, and replaces the output of the cell: the steps so far, the
current step and wait, the floor if it is known, the bottleneck, and a chart of the last steps. At the end, the output is
the verdict. Only this module imports the package ``ipython``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Any

from headspace import _settings
from headspace._session import lifecycle, own_errors
from headspace._session.report import Report
from headspace._session.step_history import StepHistory
from headspace.integrations._notebook_html import NOTHING, live_html, paragraph

#: Shortest time between two updates, in seconds.
SHORTEST_S = 0.1

#: An update holds the interpreter lock for 1 to 2 ms. If updates take longer, for example on a slow machine, they become
#: rarer, so that they use at most this share of a core.
MAX_CPU_SHARE = 0.01

#: Maximum number of seconds that the end of the view waits for an update that hangs.
LAST_S = 2.0


def live(*, every: float = 1.0) -> LiveView:
    """Shows the run of this notebook cell, and replaces the output while the cell trains.

        with live() as view:
            for batch in headspace.wrap(loader):
                train_step(batch)
        view.report.to_dict()

    The view ends with the block. Without ``with``, it ends with the cell. The output is then the verdict, also if the
    cell raises an exception or is interrupted. A session that begins in the block ends with it, so each block is a run
    of its own. A session that was running before continues.

    Outside of a notebook, `live` prints why it shows nothing, and has no other effect.

    Args:
        every: Seconds between two updates, at least 0.1. The records have a new value once per tick
            (``HEADSPACE_INTERVAL``).

    Raises:
        ValueError: If `every` is too short.
    """
    if not every >= SHORTEST_S:
        raise ValueError(f"`every` must be at least {SHORTEST_S:g} s, and is {every!r}")
    view = LiveView(every)
    reason = "`HEADSPACE` turns headspace off" if not _settings.enabled() else view._open()
    if reason:
        print(f"headspace: there is no live view, because {reason}.")
    return view


class LiveView:
    """The output of a notebook cell that follows a run. `live` creates it."""

    def __init__(self, every: float) -> None:
        self.report: Report | None = None
        """The report of the run; None before the end of the view, and if nothing was measured."""
        self._every = every
        self._process = os.getpid()
        self._session_before = lifecycle.current
        self._ended_before = lifecycle.ended
        self._session: lifecycle.Session | None = None
        """The session that is shown."""
        self._history: StepHistory | None = None
        self._shell: Any = None
        self._html: Any = None
        """IPython's type of an output in HTML."""
        self._output: Any = None
        """The output of the cell; None outside of a notebook, and after the verdict was shown."""
        self._shown = ""
        # Held while the output is replaced, so that no late update replaces the verdict.
        self._replacing = threading.Lock()
        self._ending = threading.Event()

    def stop(self) -> None:
        """Ends the view: the output of the cell is the verdict. Has no effect after the end."""
        self._end(None)

    def __enter__(self) -> LiveView:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(kind)

    def _open(self) -> str:
        """Begins the view. Returns why it cannot begin, or an empty text."""
        # A notebook has imported IPython. IPython in a terminal has no kernel, and cannot replace an output.
        ipython = sys.modules.get("IPython")
        self._shell = ipython and ipython.get_ipython()
        if getattr(self._shell, "kernel", None) is None:
            return "this is not a notebook: use `headspace top` in a second terminal"
        from IPython.display import HTML, display

        self._shown = live_html(None)
        self._html = HTML
        self._output = display(HTML(self._shown), display_id=True)
        self._shell.events.register("post_run_cell", self._cell_ended)
        thread = threading.Thread(target=self._run, name="headspace-live", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # The verdict is still shown at the end.
            own_errors.print_notice(f"the live view is not updated: {error}")
        return ""

    def _run(self) -> None:
        pause = self._every
        while not self._ending.wait(pause):
            began = time.thread_time()
            own_errors.call_safely(self._update)
            pause = max(self._every, (time.thread_time() - began) / MAX_CPU_SHARE)

    def _update(self) -> None:
        """Shows the current numbers."""
        session = lifecycle.current
        if session is not self._session:
            self._session, self._history = session, None
        if session is None:
            # The program ended its session, and may begin another one.
            if lifecycle.ended > self._ended_before and lifecycle.last_report is not None:
                self._replace(lifecycle.last_report._repr_html_())
            return
        if self._history is None:
            self._history = StepHistory(session._records)
        if self._history.read():
            self._replace(live_html(self._history))

    def _replace(self, html: str, *, is_last: bool = False) -> None:
        """Replaces the output, except after the last time."""
        if not self._replacing.acquire(timeout=LAST_S):
            return
        try:
            output = self._output
            if is_last:
                self._output = None
            if output is not None and html != self._shown:
                self._shown = html
                output.update(self._html(html))
        finally:
            self._replacing.release()

    def _cell_ended(self, result: Any) -> None:
        """IPython calls this after the cell."""
        error = getattr(result, "error_in_exec", None)
        self._end(None if error is None else type(error))

    def _end(self, kind: type[BaseException] | None) -> None:
        """Ends the view.

        Args:
            kind: Type of the exception that ended the cell, or None.
        """
        # A forked child may leave the block too. The output belongs to its parent.
        if self._output is None or self._ending.is_set() or os.getpid() != self._process:
            return
        self._ending.set()
        own_errors.call_safely(self._show_end, kind)

    def _show_end(self, kind: type[BaseException] | None) -> None:
        self._shell.events.unregister("post_run_cell", self._cell_ended)
        self.report = self._final_report(kind)
        html = paragraph(NOTHING) if self.report is None else self.report._repr_html_()
        if kind is not None:
            html = paragraph(f"The cell ended with {kind.__name__}.") + html
        self._replace(html, is_last=True)

    def _final_report(self, kind: type[BaseException] | None) -> Report | None:
        """The report of the shown run. Ends its session if it began after the view."""
        session = lifecycle.current
        if session is None or not session._native.is_here:
            return lifecycle.last_report if lifecycle.ended > self._ended_before else None
        if session is self._session_before:
            return session.report()
        session._prints_verdict = False  # The cell shows it.
        session._ended_by(kind)
        return session.stop()
