"""One case, from its data to its row of the table."""

from __future__ import annotations

import itertools
import os
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

#: Timed steps of a run that measures the truth, and the runs of each kind.
TRUTH_STEPS = 180
TRUTH_RUNS = 3

#: Remedies that are really applied, at most.
REMEDIES = 2


@dataclass
class Applied:
    """A remedy and what it led to."""

    remedy: Remedy
    actual_ms: float
    before_ms: float

    @property
    def error_pct(self) -> float:
        """By how much the prediction is off, in percent of the step that was measured."""
        return 100 * (self.remedy.predicted_ms - self.actual_ms) / self.actual_ms

    @property
    def is_slower(self) -> bool:
        """Whether the program got slower, by more than runs differ."""
        return self.actual_ms > 1.05 * self.before_ms


@dataclass
class Result:
    """What was found of one case."""

    case: Case
    #: Batches that the training loop takes, where that is known.
    steps: int | None = None
    #: Why it did not run here.
    skipped: str = ""
    #: What differs from the plain run, by mode. Empty texts: nothing.
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
        """Whether the verdict is about the training loop, and holds each of its batches."""
        found, case = self.measured, self.case
        return (
            found is not None
            and found.loop == case.loop
            and found.summary.get("loop_role") == case.role
            and self.steps in (None, found.steps)
        )


class Examination:
    """Runs one case in all its ways."""

    def __init__(self, case: Case, place: Workplace, *, truth_runs: int = TRUTH_RUNS) -> None:
        self.case = case
        self.place = place
        self.truth_runs = truth_runs
        self.result = Result(case, place.steps if case.steps == 0 else case.steps)
        place.check(case)
        self.runs = place.folder / case.name / "runs"
        self.runs.mkdir(parents=True)

    def __call__(self) -> Result:
        """All runs. Those of the truth lie between the others, so that all see the same machine."""
        pairs = iter(range(self.truth_runs))
        self.truth_pair(next(pairs, None))
        plain = self.run_plain()
        self.result.measured = self.watch("measure", plain)
        self.truth_pair(next(pairs, None))
        self.result.probed = self.watch("probe", plain)
        for pair in pairs:
            self.truth_pair(pair)
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
        """The program under `headspace run`, compared with the plain run."""
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
        """The lines of a stream as they are compared."""
        case = self.case
        rules = (*case.masks, *(case.computed if computed else ()), *(() if counts else COUNTS))
        lines = masked(text, rules, computed=computed, unordered=case.unordered)
        # A longer epoch has more lines of one kind.
        return lines if counts else [line for line, _ in itertools.groupby(lines)]

    def truth_pair(self, number: int | None) -> None:
        """The live step and the floor, one run each."""
        if number is None:
            return
        for kind, found in (("live", self.result.truth.live), ("cached", self.result.truth.floor)):
            step = self.truth_run(f"{kind}{number}", kind)
            found += [] if step is None else [step]

    def truth_run(
        self, name: str, kind: str, changes: dict[str, str] | None = None
    ) -> float | None:
        """Mean step of one run, in milliseconds."""
        case, out = self.case, self.runs / name
        changes = changes or {}
        cwd = self.place.renew(case, changes, cached=kind == "cached")
        # A knob of the program is in its command line or its edits; others are turned from outside.
        outside = {knob: value for knob, value in changes.items() if knob not in case.knobs}
        told = truth.environment(out, case.source, kind=kind, steps=TRUTH_STEPS, changes=outside)
        env = self.place.environment(case, cwd)
        path = [str(truth.FOLDER), *filter(None, [env.get("PYTHONPATH")])]
        ran = run(
            self.place.command(case, cwd, changes),
            cwd,
            {**env, **told, "PYTHONPATH": os.pathsep.join(path)},
            case.timeout,
        )
        step = truth.step_ms(out)
        if step is None:
            self.save(name, ran)
        return step

    def apply_remedies(self) -> None:
        """Applies remedies whose knob can be turned here, and measures the live step."""
        if self.result.probed is None or self.case.source == BACKWARD:
            return
        can = {*self.case.knobs, "prefetch_factor"}
        remedies = [remedy for remedy in self.result.probed.remedies if remedy.knob in can]
        before = self.result.truth.live_ms
        for number, remedy in enumerate(remedies[:REMEDIES]):
            change = {remedy.knob: remedy.to}
            runs = [self.truth_run(f"remedy{number}-{run}", "live", change) for run in range(2)]
            after = [step for step in runs if step is not None]
            if before is not None and after:
                self.result.applied.append(Applied(remedy, sum(after) / len(after), before))

    def save(self, name: str, ran: Ran) -> None:
        """Keeps the streams of a run, for a person who looks for the cause of a difference."""
        Path(self.runs / f"{name}.out").write_text(ran.out)
        Path(self.runs / f"{name}.err").write_text(ran.err)
