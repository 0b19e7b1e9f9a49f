"""Runs the programs of a case under headspace, and compares the verdicts with the card."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from card import Card
from processes import run
from verdict import Remedy, Verdict, read

#: Seconds that one run may take.
TIMEOUT_S = 240.0

#: A likely remedy of the healthy twin is a false cure if it promises at least this, in percent of the step.
FALSE_CURE_PCT = 5.0

#: The same for a plausible remedy. A run that loses time names such a remedy unasked.
FALSE_PLAUSIBLE_CURE_PCT = 10.0

#: An episode or a slowest rank of the healthy twin is reported if it costs at least this, in percent of the step.
LOSS_PCT = 5.0

#: Minimum and maximum number of rounds of a case with a prediction. More would make the clinic longer: with these, all
#: cases take 45 to 85 minutes.
ROUNDS = (3, 6)

#: Standard error of the mean error of the predictions, in points, at which no further round is run.
PRECISION_PCT = 3.0


@dataclass(frozen=True)
class Round:
    """One run of the sick program, and one of the cured one."""

    sick: Verdict
    #: Regular expressions of the card that the verdict does not fulfil.
    missed: tuple[str, ...]
    #: Step of the cured program that headspace predicts, in milliseconds.
    predicted_ms: float | None
    #: Step of the cured program in milliseconds. None if the card names no cure that can be applied.
    cured_ms: float | None


@dataclass(frozen=True)
class Result:
    """The outcome of a case."""

    card: Card
    #: Empty if the programs could not be run; `problem` has the reason.
    rounds: tuple[Round, ...] = ()
    #: Step of the healthy twin in milliseconds. None if it was not measured.
    twin_ms: float | None = None
    #: Remedies of the healthy twin that promise a gain.
    false_cures: tuple[str, ...] = ()
    #: Its costliest episode and its slowest rank, if they cost much. They may be real: the machine stalls, too.
    twin_losses: tuple[str, ...] = ()
    #: Whether the verdict on the healthy twin also contains the words of the card. Then they prove nothing.
    is_twin_named: bool = False
    problem: str = ""

    @property
    def named_rounds(self) -> int:
        """Number of rounds in which the verdict names the cause."""
        return sum(not one.missed for one in self.rounds)

    @property
    def is_named(self) -> bool:
        """Whether the verdict names the cause in most rounds."""
        return 2 * self.named_rounds > len(self.rounds)

    @property
    def shown(self) -> Round:
        """A round that shows the outcome."""
        return next(one for one in self.rounds if (not one.missed) == self.is_named)

    @property
    def is_twin_healthy(self) -> bool:
        return self.twin_ms is not None and not self.false_cures

    @property
    def step_ms(self) -> float | None:
        """Mean step of the sick program."""
        return mean_of(one.sick.live_ms for one in self.rounds)

    @property
    def predicted_ms(self) -> float | None:
        """Mean of the predictions. None if most rounds have none."""
        is_usual = 2 * len(self.errors_pct) > len(self.rounds)
        return mean_of(one.predicted_ms for one in self.rounds) if is_usual else None

    @property
    def cured_ms(self) -> float | None:
        """Mean step of the cured program."""
        return mean_of(one.cured_ms for one in self.rounds)

    @property
    def error_pct(self) -> float | None:
        """Mean error of the predicted steps, in percent of the measured ones."""
        return None if self.predicted_ms is None else mean(self.errors_pct)

    @property
    def errors_pct(self) -> list[float]:
        """Error of each round with a prediction. Both of its programs ran at about the same time."""
        return errors_pct(self.rounds)


def mean_of(numbers: Iterable[float | None]) -> float | None:
    """Mean of those that are known. None if none is."""
    known = [number for number in numbers if number is not None]
    return mean(known) if known else None


def errors_pct(rounds: Sequence[Round]) -> list[float]:
    return [
        100 * (one.predicted_ms / one.cured_ms - 1)
        for one in rounds
        if one.predicted_ms is not None and one.cured_ms is not None
    ]


def needs_more(rounds: Sequence[Round]) -> bool:
    """Whether further rounds would make the mean error of the predictions more precise, and it is not precise yet."""
    errors = errors_pct(rounds)
    return len(errors) > 1 and stdev(errors) / len(errors) ** 0.5 > PRECISION_PCT


def count_named(results: list[Result]) -> int:
    """Number of cases whose cause is named."""
    return sum(result.is_named for result in results)


def count_predicted(results: list[Result]) -> tuple[int, int]:
    """Number of predicted steps within 10 % of the measured ones, and of all predicted steps."""
    return count_close([result.error_pct for result in results if result.error_pct is not None])


def count_close_runs(results: list[Result]) -> tuple[int, int]:
    """The same for the single runs."""
    predicted = (result for result in results if result.error_pct is not None)
    return count_close([error for result in predicted for error in result.errors_pct])


def count_close(errors: list[float]) -> tuple[int, int]:
    """Number of errors of at most 10 %, and of all errors."""
    return sum(abs(error) <= 10 for error in errors), len(errors)


def count_named_twins(results: list[Result]) -> int:
    """Number of healthy twins whose verdict also contains the words of the card."""
    return sum(result.is_twin_named for result in results)


def count_healthy(results: list[Result]) -> int:
    """Number of healthy twins without a false cure."""
    return sum(result.is_twin_healthy for result in results)


def count_lossy(results: list[Result]) -> int:
    """Number of healthy twins whose verdict has a loss."""
    return sum(bool(result.twin_losses) for result in results)


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


def examine(card: Card, steps: int | None, rounds: tuple[int, int]) -> Result:
    """Runs the sick program and the cured one in turn, and then the healthy twin.

    A shared machine becomes faster and slower by a third within a minute, so one run of each program says little. The
    number of rounds is between the two in `rounds`, and depends on the spread of the errors, not on their size. The
    program that runs first alternates, so that a machine that becomes faster favours neither.
    """
    least, most = rounds
    done = [run_round(card, steps)]
    # Without a prediction, there is nothing to compare.
    while card.prediction and len(done) < most and (len(done) < least or needs_more(done)):
        done.append(run_round(card, steps, is_cured_first=len(done) % 2 == 1))
    twin = watch(card, *card.twin, steps)
    return Result(
        card,
        tuple(done),
        twin_ms=twin.live_ms,
        false_cures=false_cures(twin),
        twin_losses=losses(twin),
        is_twin_named=not missed(card, twin.text),
    )


def run_round(card: Card, steps: int | None, *, is_cured_first: bool = False) -> Round:
    def watch_cured() -> Verdict | None:
        return watch(card, "train.py", card.apply, steps) if card.apply else None

    cured = watch_cured() if is_cured_first else None
    sick = watch(card, "train.py", [], steps)
    if not is_cured_first:
        cured = watch_cured()
    return Round(
        sick,
        missed=missed(card, sick.text),
        predicted_ms=card.predicted_ms(sick) if card.prediction else None,
        cured_ms=None if cured is None else cured.live_ms,
    )


def false_cures(twin: Verdict) -> tuple[str, ...]:
    """The remedies that promise the twin a gain."""
    step = twin.live_ms or 0.0

    def is_false(one: Remedy) -> bool:
        least_pct = FALSE_CURE_PCT if one.is_likely else FALSE_PLAUSIBLE_CURE_PCT
        promises = one.predicted_ms < step * (1 - least_pct / 100)
        return one.is_plausible and not one.at_least and promises

    return tuple(one.name for one in twin.remedies if is_false(one))


def losses(twin: Verdict) -> tuple[str, ...]:
    """The costliest episode and the slowest rank, if they cost much."""
    most_ms = (twin.live_ms or 0.0) * (1 - LOSS_PCT / 100)
    predicted = {
        "an episode": twin.without_episode_ms,
        "a slowest rank": twin.without_slowest_rank_ms,
    }
    return tuple(
        f"{cause} (without it {step_ms:.1f} ms instead of {twin.live_ms:.1f} ms)"
        for cause, step_ms in predicted.items()
        if step_ms is not None and step_ms < most_ms
    )
