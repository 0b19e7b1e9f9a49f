"""Data types for experiments and their outcomes, and their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from headspace.tune.errors import TuneError
from headspace.tune.space.knobs import Config, key


class State(str, Enum):
    """How an experiment ended."""

    FINISHED = "finished"
    """The program ended, or was measured well enough."""
    STOPPED_EARLY = "stopped_early"
    """It was slower than the best, with high confidence."""
    TIMEOUT = "timeout"
    """It reached the time limit before it was measured."""
    STALLED = "stalled"
    """It had no further step for a long time."""
    CRASHED = "crashed"
    """It ended in an error after its first step."""
    STARTUP_FAILED = "startup_failed"
    """It ended, or hung, before its first step."""


class Kind(str, Enum):
    """What an experiment is for."""

    BASELINE = "baseline"
    """The baseline configuration. A what-if measures what each stage gains."""
    MODEL = "model"
    """The fastest configuration by the model of another experiment."""
    REMEDY = "remedy"
    """A proposal of another experiment's verdict."""
    SINGLE = "single"
    """The best configuration with another value of one knob, which the model does not contain."""
    SAMPLE = "sample"
    """A proposal of the sampler."""
    REPEAT = "repeat"
    """A contender is run again."""
    CONFIRM = "confirm"
    """The winner and the baseline are run in turn."""


#: Kinds that measure a configuration for the first time.
SEARCHING = (Kind.BASELINE, Kind.MODEL, Kind.REMEDY, Kind.SINGLE, Kind.SAMPLE)


@dataclass(frozen=True)
class Proposal:
    """What to run, and why."""

    kind: Kind
    knobs: Config
    reason: str
    """One sentence."""
    parent: int | None = None
    """The experiment whose outcome led to it."""
    predicted_ms: float | None = None
    """The predicted cost, in milliseconds. None if there is no prediction for these knobs."""
    turn: int = 0
    """Number of the repetition, or position in the confirmation, from 0."""
    by: str = ""
    """The tuner that runs this confirmation. All its turns run on one machine."""
    attempt: int = 0
    """How many earlier confirmations of the same winner other tuners left unfinished."""

    @property
    def key(self) -> str:
        """Two experiments with the same key are the same experiment."""
        kind = "search" if self.kind in SEARCHING else self.kind.value
        if self.kind is Kind.CONFIRM:
            kind = f"{kind} of {self.parent}.{self.attempt}"
        return f"{kind} {self.turn} {key(self.knobs)}"


@dataclass(frozen=True)
class Experiment:
    """A proposal that a tuner has claimed."""

    number: int
    """Counts from 0. Numbers of experiments that were given up are not used again."""
    proposal: Proposal
    token: str = ""
    """Identifies this claim among all claims, also of other studies."""

    @property
    def name(self) -> str:
        """Name of its folder, which no other claim shares."""
        return f"{self.number:04}-{self.token}" if self.token else f"{self.number:04}"

    @property
    def kind(self) -> Kind:
        """The purpose of the experiment."""
        return self.proposal.kind

    @property
    def knobs(self) -> Config:
        """Its configuration."""
        return self.proposal.knobs


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment."""

    state: State
    step_ms: float | None = None
    """Mean steady step in milliseconds; for a run that was stopped, up to then."""
    interval_ms: tuple[float, float] | None = None
    """Its 95 % interval."""
    steps: int = 0
    """Batches that the loop received."""
    seconds: float = 0.0
    """Seconds from the start of the program to its end."""
    detail: str = ""
    """What went wrong: a sentence, or the end of the traceback."""
    exit_code: int | None = None
    """Exit code of the program; negative for a signal."""
    log: str = ""
    """Path of the program's output."""
    run: str = ""
    """Path of its run folder."""
    summary: dict[str, Any] = field(default_factory=dict)
    """The run's last summary; empty if there was none."""
    loader: dict[str, Any] = field(default_factory=dict)
    """The properties of the run's loader; empty if they are unknown."""

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        return self.state.value.replace("_", " ")

    @property
    def first_line(self) -> str:
        """The first line of `detail`."""
        return self.detail.partition("\n")[0]

    @property
    def measured(self) -> bool:
        """Whether it counts as a measurement of its configuration."""
        return self.state is State.FINISHED and self.step_ms is not None


@dataclass(frozen=True, kw_only=True)
class Trial(Experiment):
    """An experiment that has ended."""

    outcome: Outcome


def proposal_from_dict(data: Mapping[str, Any]) -> Proposal:
    """The proposal whose fields were stored as JSON.

    Raises:
        TuneError: If the study is of an older version.
    """
    if data["kind"] not in [kind.value for kind in Kind]:
        raise TuneError(
            f"the study has an experiment `{data['kind']}` of an older version of headspace (use another `--dir` or "
            "`--study`)"
        )
    return Proposal(**{**data, "kind": Kind(data["kind"])})


def outcome_from_dict(data: Mapping[str, Any]) -> Outcome:
    """The outcome whose fields were stored as JSON."""
    interval = data.get("interval_ms")
    low_high = (float(interval[0]), float(interval[1])) if interval else None
    return Outcome(**{**data, "state": State(data["state"]), "interval_ms": low_high})
