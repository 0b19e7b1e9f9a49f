"""Prints the progress of a search on stderr: one line per experiment that has ended, with the reason of a failure
below it, and on a terminal a status line at the end."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from typing import TextIO

from headspace.tune.experiment import SEARCHING, Kind, State, Trial
from headspace.tune.plan import what_if
from headspace.tune.plan.objective import measured_cost
from headspace.tune.plan.planner import Limits, Standing
from headspace.tune.space.knobs import Space

BAR = 24

#: Indentation of a reason: it begins below the result.
_INDENT = " " * 5

#: Kinds that are not named in a line, because most experiments have them.
_SEARCHED = tuple(kind for kind in SEARCHING if kind is not Kind.BASELINE)


class Progress:
    """Prints to a stream. If `quiet`, it prints nothing."""

    def __init__(
        self, space: Space, limits: Limits, quiet: bool = False, stream: TextIO | None = None
    ) -> None:
        self._space = space
        self._limits = limits
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self._live = not quiet and self._stream.isatty()
        self._drawn = 0.0

    def ended(self, trial: Trial) -> None:
        """Prints the result of an experiment, with all its knobs. If it was not measured, the reason follows."""
        label = "" if trial.kind in _SEARCHED else f"{trial.kind.value}: "
        knobs = self._space.describe(trial.knobs)
        self.note(f"#{trial.number:<3} {self._result(trial):<34}  {label}{knobs}")
        if not trial.outcome.measured and trial.outcome.first_line:
            self.note(_wrap(trial.outcome.first_line))

    def _result(self, trial: Trial) -> str:
        outcome = trial.outcome
        one = measured_cost(trial, self._limits.objective)
        if one is None:
            is_finished = outcome.state is State.FINISHED
            return "too few steps to measure" if is_finished else outcome.ending
        promised = trial.proposal.predicted_ms
        text = f"{one.ms:.4g} ms ±{one.half:.2g}"
        floor = what_if.floor_ms(outcome.summary)
        if floor is not None:
            text += f" (floor {floor:.1f} ms)"
        if promised is not None and trial.kind in SEARCHING:
            text += f" (predicted {promised:.1f})"
        return text

    def draw(self, now: Standing, spent: int, running: Sequence[str]) -> None:
        """Updates the status line on a terminal, a few times a second."""
        if not self._live or time.monotonic() - self._drawn < 0.2:
            return
        self._drawn = time.monotonic()
        share = min(1.0, spent / self._limits.experiments)
        full = round(BAR * share)
        best = f"best {now.best_cost.ms:.1f} ms" if now.best_cost else "no best yet"
        floor = f", floor {now.floor_ms:.1f}" if now.floor_ms else ""
        line = (
            f"[{'█' * full}{'·' * (BAR - full)}] {spent}/{self._limits.experiments}  {best}{floor}"
            f"  now: {'; '.join(running) or 'nothing'}"
        )
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r\x1b[2K{line[:width]}")
        self._stream.flush()

    def clear(self) -> None:
        """Removes the status line."""
        if self._live:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()

    def note(self, text: str) -> None:
        """Prints a line above the status line."""
        if self._quiet:
            return
        self.clear()
        try:
            print(text, file=self._stream, flush=True)
        except OSError:
            self._quiet, self._live = True, False


def _wrap(reason: str) -> str:
    """The reason, in lines that fit the terminal. Paths and other long words are not broken."""
    return textwrap.fill(
        reason,
        shutil.get_terminal_size().columns,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
