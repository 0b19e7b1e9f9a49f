"""Runs the search: claims the next experiment, runs it and records its outcome, until the plan is done.

Each outcome is recorded before anything else uses it. Files, plots and printed lines are made from the
records. So a search that was killed can continue from the recorded outcomes.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from headspace.tune.experiment import SEARCHING, Experiment, Kind, Trial
from headspace.tune.output import results
from headspace.tune.output.progress import Progress
from headspace.tune.output.summary import summarize
from headspace.tune.plan.objective import measured_cost
from headspace.tune.plan.planner import Done, Limits, Next, Planner, Wait, standing
from headspace.tune.run.launch import Running, Setup, end_leftovers
from headspace.tune.run.resources import Place
from headspace.tune.space.command import Template
from headspace.tune.space.knobs import Space
from headspace.tune.store import Store

#: Seconds between two polls of the running experiments.
POLL_S = 0.05

#: Seconds between two reads of what other tuners have recorded.
ASK_S = 1.0


@dataclass(frozen=True)
class Job:
    """The configuration of a search."""

    folder: Path
    space: Space
    template: Template
    limits: Limits
    setup: Setup
    places: Sequence[Place]
    seconds: float
    """Time in seconds after which no experiment starts. Time before a resume counts."""


@dataclass(frozen=True)
class Ended:
    """How a search ended."""

    trials: list[Trial]
    reason: str
    failed: bool = False
    interrupted: bool = False


class Search:
    """The part of a search that one tuner does."""

    def __init__(self, job: Job, store: Store, progress: Progress) -> None:
        self._job = job
        self._store = store
        self._progress = progress
        self._planner = Planner(job.space, job.limits, store.tuner)
        self._free = list(job.places)
        self._running: list[Running] = []
        self._trials: list[Trial] = []
        self._standing = standing([], job.limits.objective)
        self._interrupted = False

    def run(self) -> Ended:
        """Searches until the plan is done, or a signal arrives."""
        handlers = {
            number: signal.signal(number, self._interrupt)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        try:
            return self._run()
        finally:
            for running in self._running:
                running.ask_to_end()
            for running in self._running:
                running.end()
            for running in self._running:
                self._store.release(running.experiment)
            self._store.leave()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._progress.clear()

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._interrupted = True

    def _run(self) -> Ended:
        self._forget_failed_baseline()
        self._take_over()
        asked = 0.0
        next_up: Next | Experiment | None = None
        while not self._interrupted:
            changed = self._reap()
            due = changed or time.monotonic() - asked >= ASK_S
            if self._free and (due or next_up is None):
                asked = time.monotonic()
                next_up = self._store.claim(self._plan)
                if isinstance(next_up, Experiment):
                    self._start(next_up)
                    next_up = None
                    continue
                if isinstance(next_up, Done) and not self._running:
                    self._refresh()
                    return Ended(self._trials, next_up.reason, next_up.failed)
                if isinstance(next_up, Wait) and not self._running:
                    self._take_over()
            # Experiments that another tuner gave up, since this tuner seemed dead.
            lost = self._store.beat([running.experiment for running in self._running])
            for running in self._running:
                if running.experiment in lost:
                    running.ask_to_end()
            self._draw()
            time.sleep(POLL_S)
        return Ended(self._trials, "interrupted", interrupted=True)

    def _plan(self, trials: Sequence[Trial], pending: Sequence[Experiment]) -> Next:
        over = "the limit `--time` is reached" if self._store.spent_s >= self._job.seconds else None
        return self._planner.next(trials, pending, over, self._store.others())

    def _forget_failed_baseline(self) -> None:
        """Ignores a baseline that was not measured, so that it runs again: the cause may be fixed."""
        for trial in self._store.read()[0]:
            measured = measured_cost(trial, self._job.limits.objective)
            if trial.kind is Kind.BASELINE and measured is None:
                self._store.forget(trial)

    def _take_over(self) -> None:
        """Gives up the experiments of tuners that have exited, and ends their processes."""
        for experiment, here in self._store.give_up_lost():
            ended = end_leftovers(experiment) if here else 0
            processes = "process was" if ended == 1 else "processes were"
            left = f" ({ended} leftover {processes} ended)" if ended else ""
            self._progress.note(
                f"experiment #{experiment.number} was abandoned, because the `headspace tune` process that "
                f"ran it exited{left}"
            )
        self._refresh()

    def _refresh(self) -> None:
        self._trials, _ = self._store.read()
        found = summarize(self._trials, self._job.space, self._job.limits.objective)
        self._standing = found.standing
        results.write(self._job.folder, found)

    def _start(self, experiment: Experiment) -> None:
        place = self._free.pop(0)
        has_what_if = self._job.setup.has_what_if(experiment)
        command = self._job.template.fill(experiment.knobs, has_what_if)
        folder = self._job.folder / "experiments" / experiment.name
        self._running.append(Running(experiment, command, folder, place, self._job.setup))

    def _reap(self) -> bool:
        """Records the experiments that have ended. Returns whether there were any."""
        best = self._standing.best_cost
        ended = []
        for running in self._running:
            # Its upper end is the limit for stopping early.
            outcome = running.poll(best.high if best else None)
            if outcome is None:
                continue
            ended.append(running)
            if not self._store.record(running.experiment, outcome):
                number = running.experiment.number
                self._progress.note(
                    f"the result of #{number} is ignored, because another `headspace tune` process had "
                    "abandoned it"
                )
        for running in ended:
            self._running.remove(running)
            self._free.append(running.place)
            self._free.sort(key=lambda place: place.number)
        if ended:
            self._refresh()
            numbers = {running.experiment.number for running in ended}
            for trial in self._trials:
                if trial.number in numbers:
                    self._progress.ended(trial)
        return bool(ended)

    def _draw(self) -> None:
        spent = sum(trial.kind in SEARCHING for trial in self._trials)
        words = [
            f"#{running.experiment.number} {running.experiment.kind.value} {running.progress}"
            for running in self._running
        ]
        self._progress.draw(self._standing, spent, words)
