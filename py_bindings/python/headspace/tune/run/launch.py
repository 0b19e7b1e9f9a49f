"""Runs one experiment: starts the program under `headspace run`, watches its records, and ends it when
enough is measured or something is wrong.

The program has its own process group, a folder for its log and its run, and a marker variable in the
environment of all its processes. However it ends, `_processes` then ends all processes that it started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headspace._processes.ending import Ending, end_marked, has_exited
from headspace._settings import MEASURE, WHAT_IF
from headspace.tune.experiment import SEARCHING, Experiment, Kind, Outcome, State
from headspace.tune.plan.objective import Objective
from headspace.tune.run.early_stop import EarlyStop
from headspace.tune.run.live import LiveRun, StepMean
from headspace.tune.run.resources import Place

#: Seconds between two reads of the records.
READ_S = 0.25

#: Environment variable with the experiment's folder, set in all its processes. It identifies the processes
#: of a killed tuner.
MARK = "HEADSPACE_TUNE_EXPERIMENT"

#: Maximum number of lines of the log that are quoted if a program fails.
TAIL_LINES = 12

_PIN = "import os,sys;os.sched_setaffinity(0,map(int,sys.argv[1].split(',')));os.execvp(sys.argv[2],sys.argv[2:])"


@dataclass(frozen=True)
class Patience:
    """How long an experiment may take, in seconds."""

    measure: float = 60.0
    """Time in steady state after which it is ended and counts. If infinite, it ends by itself."""
    timeout: float = 1800.0
    """Total time after which it is ended. It counts only if it was measured by then."""
    startup: float = 600.0
    """Maximum time from its start to its first step."""
    stall: float = 120.0
    """Maximum time between two steps."""


@dataclass(frozen=True)
class Setup:
    """How programs are started."""

    patience: Patience = Patience()
    inject: bool = True
    """Whether the program runs under `headspace run`. Otherwise it calls `headspace.wrap` itself."""
    early: bool = True
    """Whether experiments that are slower than the best are stopped early."""
    objective: Objective = Objective.STEP
    """The quantity in which experiments are compared."""
    what_if_steps: int = 0
    """Maximum number of steps of the baseline's what-if. 0: there is none."""

    def has_what_if(self, experiment: Experiment) -> bool:
        """Whether an experiment is run with a what-if."""
        return experiment.kind is Kind.BASELINE and self.what_if_steps > 0


class Running:
    """A running experiment."""

    def __init__(
        self,
        experiment: Experiment,
        command: Sequence[str],
        folder: Path,
        place: Place,
        setup: Setup,
    ) -> None:
        """Starts the program.

        Raises:
            OSError: If the folder or the log cannot be created, or the folder already contains a run.
        """
        self.experiment = experiment
        self.place = place
        self._folder = folder
        self._setup = setup
        self._log = folder / "output.log"
        self._live = LiveRun(folder / "runs")
        self._mode = WHAT_IF if setup.has_what_if(experiment) else MEASURE
        self._state: State | None = None
        self._detail = ""
        self._ending: Ending | None = None
        self._early_stop = EarlyStop()
        self._linked = False
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "runs").mkdir()
        self._began = self._moved = time.monotonic()
        self._read_at = 0.0
        self._moves = 0
        self._process: subprocess.Popen[bytes] | None = None
        with self._log.open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    self._words(command),
                    env={
                        **os.environ,
                        # The experiment is watched by its ticks.
                        "HEADSPACE_INTERVAL": os.environ.get("HEADSPACE_INTERVAL") or "500ms",
                        "HEADSPACE_DIR": str(folder / "runs"),
                        **self._mode_settings,
                        MARK: self._mark[1],
                        **place.environment,
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                self._state = State.STARTUP_FAILED
                self._detail = f"cannot start `{command[0]}`: {error.strerror}"

    @property
    def _mode_settings(self) -> dict[str, str]:
        steps = {"HEADSPACE_WHAT_IF_STEPS": str(self._setup.what_if_steps)}
        return {"HEADSPACE_MODE": self._mode, **(steps if self._mode == WHAT_IF else {})}

    def _words(self, command: Sequence[str]) -> list[str]:
        words = list(command)
        if self._setup.inject:
            run = [sys.executable, "-m", "headspace", "run", "--mode", self._mode]
            words = [*run, "--dir", str(self._folder / "runs"), "--", *words]
        if self.place.cores:
            pin = [sys.executable, "-I", "-S", "-c", _PIN, ",".join(map(str, self.place.cores))]
            words = [*pin, *words]
        return words

    @property
    def progress(self) -> str:
        """Its progress, in a few words."""
        if self._moves == 0:
            return "starting"
        step = self._live.step
        return f"{self._live.steps} steps" + (f", {step.ms:.1f} ms" if step else "")

    def poll(self, best_high: float | None) -> Outcome | None:
        """Reads its records, and ends it if necessary. Returns the outcome once it has ended.

        Args:
            best_high: Upper end of the best configuration's interval, if there is one, in the unit of
                the objective.
        """
        process = self._process
        if process is None:
            return self._outcome(None)
        if self._ending is None and has_exited(process.pid):
            # Processes that it left running are ended too.
            self._ending = Ending(process.pid, self._mark, at_once=True)
        if self._ending is not None and self._ending.poll():
            code = process.poll()
            self._read()
            return self._outcome(code)
        now = time.monotonic()
        if now - self._read_at >= READ_S:
            self._read_at = now
            self._read()
            if self._live.moves > self._moves:
                self._moves, self._moved = self._live.moves, now
            if self._ending is None:
                self._judge(now, best_high)
        return None

    @property
    def _mark(self) -> tuple[str, str]:
        return MARK, str(self._folder.resolve())

    def _read(self) -> None:
        """Reads new records. Links the run into the folder of all runs, for `headspace serve` and `report`."""
        self._live.read()
        run = self._live.run
        if run is None or self._linked:
            return
        self._linked = True
        runs = self._folder.parent.parent / "runs"
        try:
            runs.mkdir(exist_ok=True)
            (runs / run.name).symlink_to(os.path.relpath(run, runs))
        except OSError:  # It exists, or the file system has no links. Nothing depends on it.
            pass

    def _judge(self, now: float, best_high: float | None) -> None:
        patience = self._setup.patience
        ran, began = now - self._began, self._moves > 0
        step = self._live.step
        if self._is_measured(step):
            self._end(State.FINISHED, "")
        elif not began and ran >= patience.startup:
            self._end(State.STARTUP_FAILED, f"no step within {patience.startup:g} s")
        elif began and now - self._moved >= patience.stall:
            text = f"no step for {patience.stall:g} s after {self._live.steps} steps"
            self._end(State.STALLED, text)
        elif ran >= patience.timeout:
            self._end(State.TIMEOUT, f"not measured within {patience.timeout:g} s")
        elif best_high is not None and step and self._is_slower(step, best_high):
            limit = f"{best_high:.4g} {self._setup.objective.unit}"
            self._end(
                State.STOPPED_EARLY,
                "significantly slower than the best configuration (upper end of its 95 % interval: "
                f"{limit})",
            )

    def _is_measured(self, step: StepMean | None) -> bool:
        """Whether its steps, and the questions of its what-if, are measured."""
        if step is None or self._live.what_if_is_running:
            return False
        return self._live.what_if_has_finished or step.seconds >= self._setup.patience.measure

    def _is_slower(self, step: StepMean, best_high: float) -> bool:
        """Whether it may be stopped early and is slower than the best."""
        kind = self.experiment.kind
        if not self._setup.early or kind not in SEARCHING or kind is Kind.BASELINE:
            return False
        samples: float | None = 1.0
        if self._setup.objective is Objective.THROUGHPUT:
            samples = self._live.samples_a_step()
        return samples is not None and self._early_stop.is_slower(step, best_high * samples)

    def _end(self, state: State, detail: str) -> None:
        self._state, self._detail = state, detail
        self.ask_to_end()

    def ask_to_end(self) -> None:
        """Starts to end it, and does not wait."""
        if self._process is not None and self._ending is None:
            self._ending = Ending(self._process.pid, self._mark)

    def end(self) -> None:
        """Ends it, and returns when no process of it is left."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self.ask_to_end()
        if self._ending is not None:
            self._ending.wait()
        process.poll()

    def _outcome(self, code: int | None) -> Outcome:
        """The outcome of a program that has ended."""
        summary = self._live.summary
        state, detail = self._state, self._detail
        step, interval = self._measured()
        if state is None:
            why = "the program used no supported loader (wrap it with `headspace.wrap(loader)`)"
            if code != 0:
                why = f"{_exit_text(code)}\n{self._tail()}".strip()
            if not self._live.moves:
                state, detail = State.STARTUP_FAILED, f"no step: {why}"
            elif code == 0:
                state = State.FINISHED
            else:
                state, detail = State.CRASHED, why
        elif state is State.STARTUP_FAILED and self._process is not None:
            detail = f"{detail}\n{self._tail()}".strip()
        elif state is State.TIMEOUT and step is not None:
            limit = self._setup.patience.timeout
            state, detail = (
                State.FINISHED,
                f"ended at the time limit of {limit:g} s; the steps until then count",
            )
        return Outcome(
            state=state,
            step_ms=step,
            interval_ms=interval,
            steps=self._live.steps,
            seconds=time.monotonic() - self._began,
            detail=detail,
            exit_code=code if self._state is None else None,
            log=str(self._log),
            run=str(self._live.run or ""),
            summary=summary,
            loader=self._live.loader,
        )

    def _measured(self) -> tuple[float | None, tuple[float, float] | None]:
        """The steady step from the summary, or from the ticks if the summary has none."""
        summary, live = self._live.summary, self._live.step
        mean = summary.get("steady_step_mean_ms")
        if mean is None or summary.get("state") != "finished":
            return (live.ms, live.interval_ms) if live else (None, None)
        interval = summary.get("steady_step_ci_ms")
        if interval:
            return mean, (interval[0], interval[1])
        if live and live.interval_ms:
            low, high = live.interval_ms
            half = (high - low) / 2
            return mean, (mean - half, mean + half)
        return mean, None

    def _tail(self) -> str:
        """The end of the log. If it has a traceback, the last frames that fit into `TAIL_LINES`."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, self._log.stat().st_size - 16_384))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        frames = [i for i, line in enumerate(lines) if line.startswith("  File ")]
        if not frames:
            return "\n".join(lines[-TAIL_LINES:])
        # The excerpt ends with the error, the first line that is not indented. Later lines, such as the
        # verdict, are only in the log.
        after = enumerate(lines[frames[-1] :], frames[-1])
        last = next((i for i, line in after if line[:1].strip()), len(lines))
        begin = next((i for i in frames if last - i < TAIL_LINES), frames[-1])
        return "\n".join(lines[begin : last + 1])


def _exit_text(code: int | None) -> str:
    if code is None:
        return ""
    if code >= 0:
        return f"exit code {code}"
    is_named = -code in set(signal.Signals)
    return f"killed by {signal.Signals(-code).name if is_named else f'signal {-code}'}"


def end_leftovers(experiment: Experiment) -> int:
    """Ends the processes of an experiment whose tuner has exited. They have its marker in their
    environment. Returns how many there were."""
    # Without a token, an experiment of another study may have the same name.
    return end_marked(MARK, experiment.name) if experiment.token else 0
