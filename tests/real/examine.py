"""Examines one case: runs its program in all modes, and compares the outputs and the numbers."""

from __future__ import annotations

import itertools
import os
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

import truth
import verdict
from case import BACKWARD, Case
from outputs import COUNTS, difference, masked
from processes import Ran, run
from truth import Truth
from verdict import Remedy, Verdict
from workplace import Workplace

#: Number of runs that measure the truth.
TRUTH_RUNS = 2

#: Maximum number of applied remedies, and number of runs of each.
REMEDIES = 2
TURNS = 2


@dataclass
class Applied:
    """An applied remedy and its measured effect."""

    remedy: Remedy
    #: The measured step with the remedy, and without it in the runs between.
    actual_ms: float
    before_ms: float
    #: The step without the remedy in the verdict.
    said_ms: float

    @property
    def predicted_ms(self) -> float:
        """The predicted step, scaled to the speed of the machine when the remedy was applied."""
        return self.remedy.predicted_ms * self.before_ms / self.said_ms

    @property
    def error_pct(self) -> float:
        """The error of the prediction, in percent of the measured step."""
        return 100 * (self.predicted_ms - self.actual_ms) / self.actual_ms

    @property
    def is_slower(self) -> bool:
        """Whether the program became slower by more than the variation between runs."""
        return self.actual_ms > 1.05 * self.before_ms


@dataclass
class Result:
    """The results of one case."""

    case: Case
    #: Batches of the training loop, if the number is known.
    steps: int | None = None
    #: Why it did not run here.
    skipped: str = ""
    #: The differences from the plain run by mode. A text is empty if nothing differs.
    differences: dict[str, str] = field(default_factory=dict)
    measured: Verdict | None = None
    probed: Verdict | None = None
    truth: Truth = field(default_factory=Truth)
    applied: list[Applied] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        return not any(self.differences.values())

    @property
    def is_recognised(self) -> bool:
        """Whether the verdict is about the training loop and counts every batch of it."""
        found, case = self.measured, self.case
        return (
            found is not None
            and found.loop == case.loop
            and found.summary.get("loop_role") == case.role
            and self.steps in (None, found.steps)
        )


class Examination:
    """Runs one case in all modes."""

    def __init__(self, case: Case, place: Workplace, *, truth_runs: int = TRUTH_RUNS) -> None:
        self.case = case
        self.place = place
        self.truth_runs = truth_runs
        self.result = Result(case, place.steps if case.steps == 0 else case.steps)
        place.check(case)
        self.runs = place.folder / case.name / "runs"
        self.runs.mkdir(parents=True)

    def __call__(self) -> Result:
        """Does all runs. The runs for the truth are between the others, so that changes of the machine affect all."""
        numbers = iter(range(self.truth_runs))
        plain = self.run_plain()
        self.result.measured = self.watch("measure", plain)
        self.find_truth(next(numbers, None))
        self.result.probed = self.watch("probe", plain)
        for number in numbers:
            self.find_truth(number)
        if self.truth_runs:
            self.apply_remedies()
        return self.result

    def run_plain(self) -> Ran:
        cwd = self.place.renew(self.case)
        ran = run(
            self.place.command(self.case, cwd),
            cwd,
            self.place.environment(self.case, cwd),
            self.case.timeout,
        )
        self.save("plain", ran)
        if ran.code != 0:
            self.result.differences["plain"] = f"exit code {ran.code}\n{ran.tail}"
        return ran

    def watch(self, mode: str, plain: Ran) -> Verdict | None:
        """Runs the program under `headspace run`, and compares its output with that of the plain run."""
        case, folder, cwd = self.case, self.runs / mode, self.place.renew(self.case)
        ran = run(
            [
                *(sys.executable, "-m", "headspace", "run", "--quiet"),
                *("--mode", mode, "--dir", str(folder), *case.watch_options, "--"),
                *self.place.command(case, cwd),
            ],
            cwd,
            self.place.environment(case, cwd),
            case.timeout,
        )
        self.save(mode, ran)
        computed = mode == "probe" or not case.deterministic
        counts = case.has_length or mode != "probe"
        found = [] if ran.code == plain.code else [f"exit code {ran.code} for {plain.code}"]
        for name, expected, actual in (("out", plain.out, ran.out), ("err", plain.err, ran.err)):
            lines = [
                self.shown(text, computed=computed, counts=counts) for text in (expected, actual)
            ]
            differs = difference(*lines)
            found += [f"std{name}:\n{differs}"] if differs else []
        self.result.differences[mode] = "\n".join(found)
        return verdict.read(folder)

    def shown(self, text: str, *, computed: bool, counts: bool) -> list[str]:
        """The lines of a stream in the form in which they are compared."""
        case = self.case
        rules = (*case.masks, *(case.computed if computed else ()), *(() if counts else COUNTS))
        lines = masked(text, rules, computed=computed, unordered=case.unordered)
        # A longer epoch has more lines of the same kind, so equal neighbours count once.
        return lines if counts else [line for line, _ in itertools.groupby(lines)]

    def find_truth(self, number: int | None) -> None:
        """Measures the live step and the floor alternately in one run."""
        if number is None:
            return
        out, ran = self.truth_run(f"truth{number}", "both")
        if not self.result.truth.add(out):
            self.save(out.name, ran)

    def live_step(self, name: str, changes: dict[str, str]) -> float | None:
        """Mean live step of one run, in milliseconds."""
        out, ran = self.truth_run(name, "live", changes)
        step = truth.step_ms(out)
        if step is None:
            self.save(name, ran)
        return step

    def truth_run(
        self, name: str, kind: str, changes: dict[str, str] | None = None
    ) -> tuple[Path, Ran]:
        """Runs the program with its steps timed."""
        case, out = self.case, self.runs / name
        changes = changes or {}
        cwd = self.place.renew(case, changes, cached=kind == "both")
        # Knobs of the program are in its command line or its edits. Environment variables set the others.
        outside = {knob: value for knob, value in changes.items() if not case.takes(knob)}
        told = truth.environment(out, case.source, kind=kind, changes=outside)
        env = self.place.environment(case, cwd)
        path = [str(truth.FOLDER), *filter(None, [env.get("PYTHONPATH")])]
        return out, run(
            self.place.command(case, cwd, changes),
            cwd,
            {**env, **told, "PYTHONPATH": os.pathsep.join(path)},
            case.timeout,
        )

    def apply_remedies(self) -> None:
        """Applies remedies whose knob can be set here, and measures the live step. Unchanged and changed runs
        alternate, so that other load on the machine affects both alike."""
        found = self.result.probed
        if found is None or self.case.source == BACKWARD or found.live_ms is None:
            return
        can = {*self.case.knobs, "prefetch_factor"}
        remedies = [remedy for remedy in found.remedies if remedy.knob in can][:REMEDIES]
        if not remedies:
            return
        steps: list[list[float]] = [[] for _ in range(1 + len(remedies))]
        for turn in range(TURNS):
            for number, remedy in enumerate([None, *remedies]):
                change = {} if remedy is None else {remedy.knob: remedy.to}
                step = self.live_step(f"remedy{number}-{turn}", change)
                steps[number] += [] if step is None else [step]
        before, *after = steps
        for remedy, measured in zip(remedies, after, strict=True):
            if before and measured:
                means = statistics.fmean(measured), statistics.fmean(before)
                self.result.applied.append(Applied(remedy, *means, found.live_ms))

    def save(self, name: str, ran: Ran) -> None:
        """Keeps the output of a run, to find the cause of a difference."""
        Path(self.runs / f"{name}.out").write_text(ran.out)
        Path(self.runs / f"{name}.err").write_text(ran.err)
