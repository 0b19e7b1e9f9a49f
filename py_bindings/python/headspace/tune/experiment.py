"""An experiment and its outcome, as plain data that is kept as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from headspace.tune.knobs import Config, key


class State(str, Enum):
    """How an experiment ended."""

    FINISHED = "finished"
    """The program ended, or was measured well enough."""
    STOPPED_EARLY = "stopped_early"
    """It was slower than the best beyond doubt."""
    TIMEOUT = "timeout"
    """It took longer than it may, and was not measured by then."""
    STALLED = "stalled"
    """Steps stopped coming."""
    CRASHED = "crashed"
    """It ended in an error after its first step."""
    STARTUP_FAILED = "startup_failed"
    """It ended, or hung, before its first step."""


class Kind(str, Enum):
    """What an experiment is for."""

    BASELINE = "baseline"
    """What is now."""
    PROBE = "probe"
    """The baseline with a probe, for the floor."""
    REMEDY = "remedy"
    """What the verdict of another proposes."""
    SAMPLE = "sample"
    """What the sampler proposes."""
    REPEAT = "repeat"
    """A contender once more."""
    CONFIRM = "confirm"
    """The winner and the baseline in turn."""


#: Those that try a configuration for the first time.
SEARCHING = (Kind.BASELINE, Kind.REMEDY, Kind.SAMPLE)

#: Those that the limit of experiments counts.
COUNTED = (*SEARCHING, Kind.PROBE)


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
    """The step that the reason promises, in milliseconds."""
    turn: int = 0
    """Which repetition it is, or which place in the confirmation, from 0."""
    by: str = ""
    """The worker who makes this confirmation: its turns are run on one machine."""
    attempt: int = 0
    """How many confirmations of the same winner were left unfinished by others before."""

    @property
    def key(self) -> str:
        """Two experiments with the same key are the same experiment."""
        kind = "search" if self.kind in SEARCHING else self.kind.value
        if self.kind is Kind.CONFIRM:
            kind = f"{kind} of {self.parent}.{self.attempt}"
        return f"{kind} {self.turn} {key(self.knobs)}"


@dataclass(frozen=True)
class Experiment:
    """A proposal that somebody runs."""

    number: int
    """From 0; numbers of experiments that were given up stay free."""
    proposal: Proposal
    token: str = ""
    """Tells this claim from any other, of this study or another one."""

    @property
    def name(self) -> str:
        """What its folder is called: of this claim alone, whatever else is in the place."""
        return f"{self.number:04}-{self.token}" if self.token else f"{self.number:04}"

    @property
    def kind(self) -> Kind:
        """What it is for."""
        return self.proposal.kind

    @property
    def knobs(self) -> Config:
        """Its configuration."""
        return self.proposal.knobs


@dataclass(frozen=True)
class Outcome:
    """What an experiment gave."""

    state: State
    step_ms: float | None = None
    """Mean steady step in milliseconds; of a run that was stopped, so far."""
    interval_ms: tuple[float, float] | None = None
    """Its 95 % interval."""
    steps: int = 0
    """Batches that the loop received."""
    seconds: float = 0.0
    """From the start of the program to its end."""
    detail: str = ""
    """What went wrong, in a sentence or with the end of the traceback."""
    exit_code: int | None = None
    """Of the program; negative for a signal."""
    log: str = ""
    """Path of what the program printed."""
    run: str = ""
    """Path of its run folder."""
    summary: dict[str, Any] = field(default_factory=dict)
    """The run's last summary; empty where there was none."""

    @property
    def measured(self) -> bool:
        """Whether it counts as a measurement of its configuration."""
        return self.state is State.FINISHED and self.step_ms is not None


@dataclass(frozen=True)
class Trial:
    """An experiment that has ended."""

    experiment: Experiment
    outcome: Outcome

    @property
    def number(self) -> int:
        """The experiment's."""
        return self.experiment.number

    @property
    def kind(self) -> Kind:
        """The experiment's."""
        return self.experiment.kind

    @property
    def knobs(self) -> Config:
        """The experiment's."""
        return self.experiment.knobs


def proposal_to_dict(proposal: Proposal) -> dict[str, Any]:
    """As JSON."""
    return {**asdict(proposal), "kind": proposal.kind.value}


def proposal_from_dict(data: Mapping[str, Any]) -> Proposal:
    """Back from JSON."""
    return Proposal(**{**data, "kind": Kind(data["kind"])})


def outcome_to_dict(outcome: Outcome) -> dict[str, Any]:
    """As JSON."""
    return {**asdict(outcome), "state": outcome.state.value}


def outcome_from_dict(data: Mapping[str, Any]) -> Outcome:
    """Back from JSON."""
    interval = data.get("interval_ms")
    low_high = (float(interval[0]), float(interval[1])) if interval else None
    return Outcome(**{**data, "state": State(data["state"]), "interval_ms": low_high})
