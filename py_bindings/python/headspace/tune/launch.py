"""Runs one experiment: starts the program under `headspace run`, watches its records, and ends it when
enough is known or something is wrong.

The program has a process group of its own, and a folder with its log and its run. Only that group is
ever sent a signal: SIGTERM, so that its records are completed, and SIGKILL if it is still there after
`GRACE_S`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headspace.tune.experiment import Experiment, Kind, Outcome, State
from headspace.tune.live import LiveRun
from headspace.tune.resources import Place

#: Seconds between SIGTERM and SIGKILL.
GRACE_S = 10.0

#: Seconds between two looks at the records.
LOOK_S = 0.25

#: Names the experiment's folder in the environment of all its processes, so that what a killed tuner
#: left behind is found.
MARK = "HEADSPACE_TUNE_EXPERIMENT"

#: Lines of the log that tell why a program failed, at most.
TAIL_LINES = 12

#: Steady steps before an experiment may be stopped as slower than the best.
EARLY_STEPS = 30

_PIN = "import os,sys;os.sched_setaffinity(0,map(int,sys.argv[1].split(',')));os.execvp(sys.argv[2],sys.argv[2:])"


@dataclass(frozen=True)
class Patience:
    """How long an experiment may take, in seconds."""

    measure: float = 60.0
    """Of steady steps: then it is ended, and counts. Infinite: until it ends itself."""
    timeout: float = 1800.0
    """From its start: then it is ended, and counts only if it was measured."""
    startup: float = 600.0
    """From its start to its first step."""
    stall: float = 120.0
    """Between two steps."""


@dataclass(frozen=True)
class Setup:
    """How programs are started."""

    patience: Patience = Patience()
    inject: bool = True
    """Whether the program runs under `headspace run`; else it wraps its loader itself."""
    early: bool = True
    """Whether experiments that are slower than the best are stopped."""


class Running:
    """An experiment under way."""

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
            OSError: If the folder or the log cannot be made.
        """
        self.experiment = experiment
        self.place = place
        self._folder = folder
        self._setup = setup
        self._log = folder / "output.log"
        self._live = LiveRun(folder / "runs")
        self._mode = "probe" if experiment.kind is Kind.PROBE else "measure"
        self._state: State | None = None
        self._detail = ""
        self._ending_at = 0.0
        self._killed = False
        self._linked = False
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "runs").mkdir(exist_ok=True)
        self._began = self._moved = time.monotonic()
        self._looked = 0.0
        self._moves = 0
        self._process: subprocess.Popen[bytes] | None = None
        with self._log.open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    self._words(command),
                    env=self._environment(place.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                self._state = State.STARTUP_FAILED
                self._detail = f"cannot start `{command[0]}`: {error.strerror}"

    def _words(self, command: Sequence[str]) -> list[str]:
        words = list(command)
        if self._setup.inject:
            run = [sys.executable, "-m", "headspace", "run", "--mode", self._mode]
            words = [*run, "--dir", str(self._folder / "runs"), "--", *words]
        if self.place.cores:
            pin = [sys.executable, "-I", "-S", "-c", _PIN, ",".join(map(str, self.place.cores))]
            words = [*pin, *words]
        return words

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        return {
            **os.environ,
            # Ticks are what it is watched by.
            "HEADSPACE_INTERVAL": os.environ.get("HEADSPACE_INTERVAL") or "500ms",
            "HEADSPACE_DIR": str(self._folder / "runs"),
            "HEADSPACE_MODE": self._mode,
            MARK: str(self._folder.resolve()),
            **more,
        }

    @property
    def progress(self) -> str:
        """How far it is, in a few words."""
        if self._moves == 0:
            return "starting"
        step = self._live.step()
        return f"{self._live.steps} steps" + (f", {step[0]:.1f} ms" if step else "")

    def poll(self, best_high: float | None) -> Outcome | None:
        """Looks at it, and ends it where that is due. The outcome once it has ended.

        Args:
            best_high: Upper end of the best's interval in milliseconds a step, where there is one.
        """
        process = self._process
        if process is None:
            return self._outcome(None)
        code = process.poll()
        now = time.monotonic()
        if code is not None:
            self._kill()  # What it started and left ends with it.
            self._live.read()
            self._link()
            return self._outcome(code)
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._live.read()
            self._link()
            if self._live.moves > self._moves:
                self._moves, self._moved = self._live.moves, now
            if self._state is None:
                self._judge(now, best_high)
        if self._ending_at and now > self._ending_at + GRACE_S and not self._killed:
            self._kill()
        return None

    def _link(self) -> None:
        """Shows the run among those of all experiments, for `headspace serve` and `report`."""
        run = self._live.run
        if run is None or self._linked:
            return
        self._linked = True
        runs = self._folder.parent.parent / "runs"
        try:
            runs.mkdir(exist_ok=True)
            (runs / run.name).symlink_to(os.path.relpath(run, runs))
        except OSError:  # One that is there, or a disk without links: nothing depends on it.
            pass

    def _judge(self, now: float, best_high: float | None) -> None:
        patience = self._setup.patience
        ran = now - self._began
        step = self._live.step()
        if self._mode == "probe":
            if self._live.probe is not None:
                return self._end(State.FINISHED, "")
        elif step and step[3] >= patience.measure:
            return self._end(State.FINISHED, "")
        if self._moves == 0:
            if ran >= patience.startup:
                self._end(State.STARTUP_FAILED, f"no step within {patience.startup:g} s")
        elif now - self._moved >= patience.stall:
            self._end(State.STALLED, f"no step for {patience.stall:g} s after {self._live.steps}")
        elif ran >= patience.timeout:
            self._end(State.TIMEOUT, f"not done within {patience.timeout:g} s")
        elif (
            best_high is not None
            and self._setup.early
            and self.experiment.kind.value in ("remedy", "sample")
            and step
            and step[1]
            and step[2] >= EARLY_STEPS
            and step[1][0] > best_high
        ):
            self._end(State.STOPPED_EARLY, f"slower than {best_high:.4g} ms beyond doubt")
        return None

    def _end(self, state: State, detail: str) -> None:
        self._state, self._detail = state, detail
        self._ending_at = time.monotonic()
        self._signal(signal.SIGTERM)

    def end(self) -> None:
        """Ends it now, for good: the search was interrupted. Returns when it is gone."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            pass
        self._kill()
        process.wait()

    def _kill(self) -> None:
        self._killed = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def _outcome(self, code: int | None) -> Outcome:
        """How it ended."""
        summary = self._live.summary
        state, detail = self._state, self._detail
        step, interval = self._measured()
        if state is None:
            if code == 0 and self._live.moves:
                state = State.FINISHED
            elif self._live.moves:
                state, detail = State.CRASHED, f"{_ended(code)}\n{self._tail()}".strip()
            else:
                no_loop = "it iterated no loader that headspace knows" if code == 0 else ""
                why = no_loop or f"{_ended(code)}\n{self._tail()}".strip()
                state, detail = State.STARTUP_FAILED, f"no step: {why}"
        elif state is State.STARTUP_FAILED and self._process is not None:
            detail = f"{detail}\n{self._tail()}".strip()
        elif state is State.TIMEOUT and step is not None and self._mode == "measure":
            state = State.FINISHED
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
        )

    def _measured(self) -> tuple[float | None, tuple[float, float] | None]:
        """The steady step as the summary has it, else by the ticks."""
        summary, live = self._live.summary, self._live.step()
        mean = summary.get("steady_step_mean_ms")
        if mean is None or summary.get("state") != "finished":
            return (live[0], live[1]) if live else (None, None)
        interval = summary.get("steady_step_ci_ms")
        if interval:
            return mean, (interval[0], interval[1])
        if live and live[1]:
            half = (live[1][1] - live[1][0]) / 2
            return mean, (mean - half, mean + half)
        return mean, None

    def _tail(self) -> str:
        """The end of the log: of a traceback from its last frame on."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, self._log.stat().st_size - 16_384))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        frames = [i for i, line in enumerate(lines) if line.startswith("  File ")]
        lines = lines[frames[-1] :] if frames else lines
        return "\n".join(lines[:TAIL_LINES] if frames else lines[-TAIL_LINES:])


def _ended(code: int | None) -> str:
    if code is None:
        return ""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"


def end_leftovers(folder: Path) -> int:
    """Ends what is left of an experiment whose tuner is gone: processes of this user with its folder
    in their environment. Returns how many there were."""
    wanted = f"{MARK}={folder.resolve()}".encode()
    ended = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                ended += 1
        except (OSError, ValueError):
            continue
    return ended
