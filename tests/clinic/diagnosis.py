"""Runs the programs of a case under headspace, and compares the verdicts with the card."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from card import Card
from processes import run
from verdict import Verdict, read

#: Seconds that one run may take.
TIMEOUT_S = 240.0

#: A likely remedy of the healthy twin is a false cure if it promises at least this, in percent of the step.
FALSE_CURE_PCT = 5.0


@dataclass(frozen=True)
class Result:
    """The outcome of a case."""

    card: Card
    #: The verdict of the sick program. None if it could not be run; `problem` has the reason.
    sick: Verdict | None = None
    #: Regular expressions of the card that the verdict does not fulfil.
    missed: tuple[str, ...] = ()
    #: Step of the cured program that headspace predicts, in milliseconds.
    predicted_ms: float | None = None
    #: Step of the cured program in milliseconds.
    cured_ms: float | None = None
    #: Remedies of the healthy twin that promise a gain.
    false_cures: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_named(self) -> bool:
        return self.sick is not None and not self.missed

    @property
    def is_twin_healthy(self) -> bool:
        return self.sick is not None and not self.false_cures

    @property
    def error_pct(self) -> float | None:
        """Error of the predicted step, in percent of the measured one."""
        if self.predicted_ms is None or self.cured_ms is None:
            return None
        return 100 * (self.predicted_ms / self.cured_ms - 1)


def count_named(results: list[Result]) -> int:
    """Number of cases whose cause is named."""
    return sum(result.is_named for result in results)


def count_healthy(results: list[Result]) -> int:
    """Number of healthy twins without a false cure."""
    return sum(result.is_twin_healthy for result in results)


def watch(card: Card, program: str, options: list[str], steps: int | None) -> Verdict:
    """The verdict of a program. Raises RuntimeError if the program fails or was not measured."""
    steps_option = [] if steps is None else ["--steps", str(steps)]
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "headspace", "run", "--dir", runs, *card.watch, "--"]
        command += card.launch or [sys.executable]
        command += [str(card.folder / program), *options, *steps_option]
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}"
        ran = run(command, card.folder, {**env, "PATH": path}, TIMEOUT_S)
        if ran.code != 0:
            raise RuntimeError(f"{program} ended with {ran.code}: {ran.tail}")
        found = read(Path(runs))
    if found is None:
        raise RuntimeError(f"{program}: headspace recorded nothing: {ran.tail}")
    return found


def missed(card: Card, text: str) -> tuple[str, ...]:
    """What the verdict lacks, and what it says although it must not."""
    words = " ".join(text.split())
    lacks = [says for says in card.says if not re.search(says, words, re.IGNORECASE)]
    return (
        *lacks,
        *(f"not {never}" for never in card.never if re.search(never, words, re.IGNORECASE)),
    )


def examine(card: Card, steps: int | None) -> Result:
    """Runs the sick program, the cured one and the healthy twin."""
    sick = watch(card, "train.py", [], steps)
    cured = watch(card, "train.py", card.apply, steps) if card.apply else None
    twin = watch(card, *card.twin, steps)
    return Result(
        card,
        sick=sick,
        missed=missed(card, sick.text),
        predicted_ms=card.predicted_ms(sick),
        cured_ms=None if cured is None else cured.live_ms,
        false_cures=false_cures(twin),
    )


def false_cures(twin: Verdict) -> tuple[str, ...]:
    step = twin.live_ms or 0.0
    limit = step * (1 - FALSE_CURE_PCT / 100)
    found = (one for one in twin.remedies if one.is_likely and not one.at_least)
    return tuple(one.name for one in found if one.predicted_ms < limit)
