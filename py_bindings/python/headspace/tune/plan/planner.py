"""Decides which experiment to run next, and when the search is over.

The order is: the baseline, with a what-if; what the verdict and the model of the best configuration propose;
knobs that the model does not contain, one by one; then the sampler's choices. When the search is over,
configurations whose intervals overlap are run again. At the end one tuner runs the winner and the baseline in turn.

Planning is a pure function of the outcomes, so it also runs on recorded outcomes
(`tests/python/study_tune.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from headspace.tune.experiment import SEARCHING, Experiment, Kind, Proposal, State, Trial
from headspace.tune.plan import predictions, remedies, what_if
from headspace.tune.plan.bounds import bound
from headspace.tune.plan.classes import LEAST_GAIN, classify, count_since_kept
from headspace.tune.plan.objective import (
    Cost,
    Gain,
    Objective,
    by_config,
    comparable_cost,
    cost,
    gain,
    measured_cost,
    scale,
)
from headspace.tune.plan.predictions import Predictions
from headspace.tune.plan.remedies import Proposed
from headspace.tune.plan.sampler import suggest
from headspace.tune.space.knobs import Config, Space, key

#: A model has missed if a configuration is slower than it predicted by more than this share.
MISS = 0.15

#: Kinds of runs by which the winner is chosen.
CHOOSING = (*SEARCHING, Kind.REPEAT)

#: Maximum number of contenders that are run again, including the best one.
CONTENDERS = 3

#: Error text if the objective is `throughput` and samples were not counted.
UNCOUNTED = (
    "the objective `throughput` needs the batch size, which is unknown for the loader of the baseline (write "
    "`headspace.wrap(loader, batch_size=N)` in the script and use `--no-inject`; or use `--objective step` if "
    "no knob changes the batch size)"
)


@dataclass(frozen=True)
class Limits:
    """When the search ends, and how often measurements are repeated."""

    experiments: int = 40
    """Maximum number of experiments, including the baseline. Repetitions and confirmations do not count."""
    patience: int = 10
    """Number of experiments since the last kept one after which the search ends."""
    near_floor: float = 0.05
    """The search ends when the best is above the floor by at most this share of the floor."""
    repeats: int = 1
    """How many times contenders are run again."""
    confirm: int = 2
    """How many times the winner and the baseline are each run at the end, in turn."""
    objective: Objective = Objective.STEP
    """The quantity that is minimised."""
    seed: int = 0
    """Seed of the sampler."""


@dataclass(frozen=True)
class Wait:
    """The next experiment depends on experiments that are still running."""


@dataclass(frozen=True)
class Done:
    """The search is over."""

    reason: str
    failed: bool = False


Next = Proposal | Wait | Done


@dataclass(frozen=True)
class Standing:
    """The state of the search."""

    floor_ms: float | None
    """Cost if data were free, by the what-if of the baseline."""
    best_cost: Cost | None
    best_trial: Trial | None
    """The first measurement of the best configuration."""
    costs: dict[str, tuple[Config, Cost]] = field(default_factory=dict)

    def contenders(self) -> dict[str, Cost]:
        """Costs of the configurations whose intervals reach down to the best one's, by key."""
        best = self.best_cost
        if best is None:
            return {}
        return {name: one for name, (_, one) in self.costs.items() if one.low <= best.high}


def first_of(trials: Sequence[Trial], kind: Kind) -> Trial | None:
    """The first trial of a kind."""
    return next((t for t in trials if t.kind is kind), None)


def space_to_search(space: Space, trials: Sequence[Trial]) -> Space:
    """The space in which knobs that need not be tried, by the what-if of the baseline, are fixed."""
    baseline = first_of(trials, Kind.BASELINE)
    if baseline is None:
        return space
    return space.with_fixed(what_if.left_out(space, baseline.outcome.summary))


def _first_measurement(trials: Sequence[Trial], name: str) -> Trial:
    """The first trial that measured the configuration with this key."""
    return next(
        t for t in trials if t.kind in SEARCHING and t.outcome.measured and key(t.knobs) == name
    )


def standing(trials: Sequence[Trial], objective: Objective) -> Standing:
    """The state of the search by the outcomes so far."""
    floor, baseline = None, first_of(trials, Kind.BASELINE)
    if baseline is not None:
        factor = scale(baseline.outcome, objective)
        step = what_if.floor_ms(baseline.outcome.summary)
        floor = step * factor if step and factor else None
    costs = by_config(trials, objective)
    if not costs:
        return Standing(floor, None, None)
    name, (_, best) = min(costs.items(), key=lambda item: item[1][1].ms)
    return Standing(floor, best, _first_measurement(trials, name), costs)


class Planner:
    """Decides which experiment comes next."""

    def __init__(self, space: Space, limits: Limits, tuner: str = "") -> None:
        self.space = space
        self.limits = limits
        self.tuner = tuner
        self._predictions: dict[int, Predictions | None] = {}

    def next(
        self,
        trials: Sequence[Trial],
        pending: Sequence[Experiment] = (),
        over: str | None = None,
        others: Collection[str] = (),
    ) -> Next:
        """The next experiment.

        Args:
            trials: Experiments that have ended, ordered by number.
            pending: Experiments that are running.
            over: Why the search is over, if the reason is not in the outcomes, such as the time limit.
            others: Other tuners that are alive.
        """
        first = self._first(trials, pending)
        if first is not None:
            return first
        reason = over or self._over(trials, pending)
        if reason is None:
            tried = self._explore(trials, pending)
            if tried is not None:
                return tried
            reason = "every configuration was tried"
        if pending:
            return Wait()
        return self._settle(trials, others) or Done(reason)

    def _first(self, trials: Sequence[Trial], pending: Sequence[Experiment]) -> Next | None:
        """The baseline; None if it was measured."""
        baseline = first_of(trials, Kind.BASELINE)
        if baseline is None:
            if any(e.kind is Kind.BASELINE for e in pending):
                return Wait()
            return Proposal(Kind.BASELINE, self.space.baseline, "The baseline.")
        if not baseline.outcome.measured:
            return Done(f"the baseline was not measured: {_why(baseline)}", failed=True)
        if cost(baseline.outcome, self.limits.objective) is None:
            return Done(UNCOUNTED, failed=True)
        return None

    def _over(self, trials: Sequence[Trial], pending: Sequence[Experiment]) -> str | None:
        """Why the search is over; None while it is not."""
        limits, now = self.limits, standing(trials, self.limits.objective)
        spent = sum(e.kind in SEARCHING for e in (*trials, *pending))
        if now.floor_ms and now.best_cost:
            above = now.best_cost.ms / now.floor_ms - 1
            if above <= limits.near_floor:
                return f"the best step is within {100 * limits.near_floor:g} % of the floor"
        if spent >= limits.experiments:
            runs = "experiment was" if limits.experiments == 1 else "experiments were"
            return f"{limits.experiments} {runs} run"
        since = count_since_kept(classify(trials, limits.objective))
        if since >= limits.patience:
            gain_pct = 100 * LEAST_GAIN
            return f"the limit `--patience {limits.patience}` is reached (no gain of {gain_pct:g} % or more)"
        return None

    def _explore(self, trials: Sequence[Trial], pending: Sequence[Experiment]) -> Proposal | None:
        """A proposal of a verdict or a model, else a single change, else the sampler's choice. None if every
        configuration was tried."""
        known = {key(e.knobs) for e in (*trials, *pending)}
        space = space_to_search(self.space, trials)
        proposal = self._promising(space, trials, known) or self._single_change(
            space, trials, known
        )
        if proposal is not None:
            return proposal
        now = standing(trials, self.limits.objective)
        objective = self.limits.objective
        searching = [t for t in trials if t.kind in SEARCHING and t.knobs in space]
        costs = [(t.knobs, comparable_cost(t, objective)) for t in searching]
        tried = [(config, one.ms if one else None) for config, one in costs]
        running = [e.knobs for e in pending if e.kind in SEARCHING]
        least, best = bound(space, trials, objective), now.best_cost
        config = suggest(
            space,
            tried,
            running,
            self.limits.seed,
            put_off=lambda config: best is not None and least(config) > best.ms,
        )
        if config is None:
            return None
        parent = now.best_trial.number if now.best_trial else None
        return Proposal(Kind.SAMPLE, config, "Chosen by the sampler.", parent)

    def _promising(self, space: Space, trials: Sequence[Trial], known: set[str]) -> Proposal | None:
        """The proposal with the lowest predicted cost, among those of all contenders' verdicts and models."""
        found: list[tuple[float, int, Kind, Proposed]] = []
        for trial in self._contenders(trials):
            factor = scale(trial.outcome, self.limits.objective) or 0.0
            proposed = [
                (Kind.REMEDY, one)
                for one in remedies.proposals(space, trial.knobs, trial.outcome.summary)
            ]
            predicted = self._predicted(space, trial)
            if predicted is not None and not self._has_missed(trials, trial):
                by_model = predictions.fastest(space, predicted, known)
                proposed += [(Kind.MODEL, by_model)] if by_model else []
            found += [
                (one.predicted_ms * factor, trial.number, kind, one)
                for kind, one in proposed
                if factor and key(one.knobs) not in known
            ]
        if not found:
            return None
        shortest = min(promised for promised, *_ in found)
        # Of proposals that promise the same, the model's may change several knobs at once.
        equal = [one for one in found if one[0] <= (1 + predictions.EQUAL) * shortest]
        promised, parent, kind, best = min(
            equal, key=lambda one: (one[2] is not Kind.MODEL, *one[:2])
        )
        predicted_ms = promised if best.is_predicted else None
        return Proposal(kind, best.knobs, best.reason, parent, predicted_ms)

    def _predicted(self, space: Space, trial: Trial) -> Predictions | None:
        """What the model of a trial predicts. It is computed once."""
        if trial.number not in self._predictions:
            predicted = predictions.predict(space, trial.knobs, trial.outcome)
            self._predictions[trial.number] = predicted
        return self._predictions[trial.number]

    def _has_missed(self, trials: Sequence[Trial], model_of: Trial) -> bool:
        """Whether a configuration is much slower than the model of this trial predicted. Then its other predictions
        are not tried."""
        for trial in trials:
            promised = trial.proposal.predicted_ms
            if trial.kind is Kind.MODEL and trial.proposal.parent == model_of.number and promised:
                one = comparable_cost(trial, self.limits.objective)
                if one is None or one.ms > (1 + MISS) * promised:
                    return True
        return False

    def _single_change(
        self, space: Space, trials: Sequence[Trial], known: set[str]
    ) -> Proposal | None:
        """The best configuration with another value of one knob that the model does not contain. None if each of
        these values was already tried after the baseline."""
        best = standing(trials, self.limits.objective).best_trial
        if best is None:
            return None
        tried = {
            (name, value)
            for trial in trials
            if trial.kind is not Kind.BASELINE
            for name, value in trial.knobs.items()
        }
        predicted = self._predicted(space, best)
        for knob, config in predictions.without_prediction(space, best.knobs, predicted):
            is_new = (knob.name, config[knob.name]) not in tried and key(config) not in known
            if is_new and space.allowed(config):
                reason = f"Only `{knob.name}` is changed, because the model does not contain it."
                return Proposal(Kind.SINGLE, config, reason, best.number)
        return None

    def _contenders(self, trials: Sequence[Trial]) -> list[Trial]:
        """Trials that may be as good as the best."""
        best = standing(trials, self.limits.objective).best_cost
        measured = ((trial, measured_cost(trial, self.limits.objective)) for trial in trials)
        return [trial for trial, one in measured if one and best and one.low <= best.high]

    def _settle(self, trials: Sequence[Trial], others: Collection[str]) -> Proposal | Wait | None:
        """Runs contenders again, then the winner and the baseline in turn. None when that is done."""
        if not _is_settled(trials):
            again = self._again(trials)
            if again is not None:
                return again
        winner = winner_of(trials, self.limits.objective)
        now = self.space.baseline
        wanted = 2 * self.limits.confirm
        if winner is None or key(winner.knobs) == key(now) or not wanted:
            return None
        made = _confirmations(trials, winner)
        if any(len(turns) >= wanted or not turns[-1].outcome.measured for turns in made.values()):
            return None
        if any(by in others for by in made if by != self.tuner):
            return Wait()
        mine = made.get(self.tuner, [])
        turn = len(mine)
        attempt = mine[0].proposal.attempt if mine else len(made)
        config, reason = now, "The baseline, to confirm the gain of the winner."
        # Winner, baseline, baseline, winner: a linear drift then affects both equally.
        if turn % 4 in (0, 3):
            config, reason = winner.knobs, "The winner, to confirm its gain."
        return Proposal(
            Kind.CONFIRM, config, reason, winner.number, turn=turn, by=self.tuner, attempt=attempt
        )

    def _again(self, trials: Sequence[Trial]) -> Proposal | None:
        """The next contender to run again; None if each was run often enough."""
        now = standing(trials, self.limits.objective)
        near = sorted((one.ms, name) for name, one in now.contenders().items())
        again = [t for t in trials if t.kind is Kind.REPEAT]
        searched = _last(trials, SEARCHING)
        now_again = sum(t.number > searched for t in again)
        if len(near) < 2 or now_again >= CONTENDERS * self.limits.repeats:
            return None
        for _, name in near[:CONTENDERS]:
            config, one = now.costs[name]
            turn = sum(key(t.knobs) == name for t in again)
            if turn < self.limits.repeats:
                first = _first_measurement(trials, name)
                reason = (
                    "Run again, because its interval overlaps with that of another configuration."
                )
                return Proposal(Kind.REPEAT, config, reason, first.number, one.ms, turn + 1)
        return None


def _last(trials: Sequence[Trial], kinds: Collection[Kind]) -> int:
    """Number of the last experiment of these kinds; -1 if there is none."""
    return max((t.number for t in trials if t.kind in kinds), default=-1)


def _is_settled(trials: Sequence[Trial]) -> bool:
    """Whether the confirmation of the winner has begun since the last search. Its results do not change
    the winner."""
    return _last(trials, (Kind.CONFIRM,)) > _last(trials, SEARCHING)


def _confirmations(trials: Sequence[Trial], winner: Trial) -> dict[str, list[Trial]]:
    """The confirming runs of that winner by tuner, ordered by the tuner's first run."""
    made: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.kind is Kind.CONFIRM and trial.proposal.parent == winner.number:
            made.setdefault(trial.proposal.by, []).append(trial)
    return made


def winner_of(trials: Sequence[Trial], objective: Objective) -> Trial | None:
    """The first measurement of the winning configuration.

    That is the configuration that is being confirmed, unless the search continued since then. Otherwise it
    is the best of the contenders that were run most often.
    """
    if _is_settled(trials):
        last = max((t for t in trials if t.kind is Kind.CONFIRM), key=lambda t: t.number)
        return next(t for t in trials if t.number == last.proposal.parent)
    near = standing(trials, objective).contenders()
    if not near:
        return None
    # Runs of an earlier confirmation do not count: they would exclude newer configurations.
    chosen = [key(t.knobs) for t in trials if t.outcome.measured and t.kind in CHOOSING]
    most = max(chosen.count(name) for name in near)
    name = min((one.ms, name) for name, one in near.items() if chosen.count(name) == most)[1]
    return _first_measurement(trials, name)


def confirmed_gain(trials: Sequence[Trial], objective: Objective) -> Gain | None:
    """How much faster the winner is than the baseline in the confirming runs."""
    winner = winner_of(trials, objective)
    made = _confirmations(trials, winner) if winner else {}
    if winner is None or not made:
        return None
    sides: tuple[list[Cost], list[Cost]] = ([], [])
    # Only the longest confirmation counts: several may come from different machines.
    for trial in max(made.values(), key=len):
        one = measured_cost(trial, objective)
        if one is not None:
            sides[key(trial.knobs) == key(winner.knobs)].append(one)
    baseline, won = sides
    return gain(baseline, won)


def pooled(trials: Sequence[Trial], config: Config, objective: Objective) -> Cost | None:
    """Cost of a configuration over all its runs."""
    found = by_config(trials, objective).get(key(config))
    return None if found is None else found[1]


def _why(trial: Trial) -> str:
    outcome = trial.outcome
    state = outcome.ending
    if outcome.state is State.FINISHED:
        state = f"{outcome.steps} steps are too few to measure"
    return ": ".join(part for part in (state, outcome.detail.strip()) if part)
