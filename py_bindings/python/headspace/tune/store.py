"""Stores experiments and their outcomes in an Optuna study, one trial per experiment.

The experiment, its owner and its outcome are attributes of the trial. A tuner claims an experiment by
creating a trial in state RUNNING, in one transaction. If it then finds the same experiment under a
smaller number, it withdraws its claim. So no two tuners run the same experiment, whatever the storage.
If the owner of a trial has exited, another tuner gives the trial up and the experiment is planned
again. A finished trial is never given up.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headspace._processes.proc_stat import stat_fields
from headspace.tune.errors import TuneError
from headspace.tune.experiment import (
    Experiment,
    Outcome,
    Proposal,
    State,
    Trial,
    outcome_from_dict,
    proposal_from_dict,
)
from headspace.tune.plan.planner import Next
from headspace.tune.plan.sampler import optuna_module
from headspace.tune.space.knobs import Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

#: First word of the name of a tuner's heartbeat in the study. Tuners of all versions read it, so it stays as it is.
HEARTBEAT = "worker"

#: Seconds between two heartbeats of a tuner.
BEAT_S = 15.0

#: Seconds without a heartbeat after which an owner on another machine counts as dead.
GONE_S = 120.0

#: Seconds that a tuner waits for another one's transaction. It sends no heartbeat meanwhile, so this is
#: less than `GONE_S`.
LOCK_S = 30.0

#: How many times an operation is tried that other tuners may do at the same time.
TRIES = 6


class StorageError(TuneError):
    """The storage failed during the search. Recorded outcomes are kept."""


@contextlib.contextmanager
def _storage() -> Iterator[None]:
    """Converts Optuna's errors to `StorageError`."""
    from optuna.exceptions import OptunaError

    try:
        yield
    except OptunaError as error:
        raise StorageError(str(error)) from error


class LostExperiment(NamedTuple):
    """An experiment whose owner exited without recording its outcome."""

    experiment: Experiment
    here: bool
    """Whether its owner ran on this machine."""


class Heartbeats:
    """When the heartbeats of other tuners last changed.

    Clocks of machines differ. So only a change of the value counts, and its time is measured on this
    machine's monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[object, tuple[object, float]] = {}

    def silent_s(self, who: object, sign: object) -> float:
        """Seconds since the current heartbeat of a tuner or trial was first seen."""
        now = self._clock()
        known = self._seen.get(who)
        if known is None or known[0] != sign:
            known = self._seen[who] = (sign, now)
        return now - known[1]


class Store:
    """A study, as one tuner uses it."""

    def __init__(
        self,
        url: str,
        study: str,
        space: Space,
        settings: Mapping[str, Any],
        folder: Path | None = None,
    ) -> None:
        """Opens the study, or creates it.

        Args:
            url: URL of the storage.
            study: Name of the study.
            space: The knobs.
            settings: Settings that must be the same in all tuners.
            folder: Folder of this tuner. Together with the machine it identifies the tuner, also
                after a resume.

        Raises:
            TuneError: If the study cannot be opened, or has other knobs or another command.
        """
        optuna = optuna_module()
        from optuna.trial import TrialState

        self._states = TrialState
        self._finished = (optuna.exceptions.UpdateFinishedTrialError, RuntimeError)
        self._space = space
        self._me = owner()
        self.tuner = f"{self._me['host']}:{folder or os.getpid()}"
        self._heartbeats = Heartbeats()
        self._beaten = float("-inf")
        self._url = _public(url)
        self._storage = _open(url)
        create = partial(optuna.create_study, study_name=study, load_if_exists=True)
        try:
            made = _retry(lambda: create(storage=self._storage))
        except Exception as error:
            raise TuneError(f"cannot open the study `{study}` in `{self._url}`: {error}") from error
        self._study = self._storage.get_study_id_from_name(made.study_name)
        self._agree(dict(settings), study)
        self._spent_before = self._spent()
        self._began = time.monotonic()

    def _agree(self, settings: dict[str, Any], study: str) -> None:
        """Checks that this tuner has the settings of the study, or stores them in a new one."""
        known = self._attribute("headspace", {})
        # A reader has no settings of its own.
        if not known and settings:
            self._set_attribute("headspace", settings)
        for name, value in settings.items():
            if known and known.get(name) != value:
                raise TuneError(
                    f"the study `{study}` in `{self._url}` belongs to another search: `{name}` is "
                    f"`{known.get(name)}` there and `{value}` here (use another `--dir` or `--study`, or "
                    "remove the old study)"
                )

    def _attribute(self, name: str, default: Any) -> Any:
        """An attribute of the study."""
        return self._storage.get_study_user_attrs(self._study).get(name, default)

    def _set_attribute(self, name: str, value: Any) -> None:
        self._storage.set_study_user_attr(self._study, name, value)

    @_storage()
    def read(self) -> tuple[list[Trial], list[Experiment]]:
        """Experiments that have ended, and experiments that are running, ordered by number."""
        ended, running = [], []
        for trial in self._all():
            experiment, outcome = _experiment(trial), trial.user_attrs.get("outcome")
            if experiment is None:
                continue
            if outcome is not None:
                ended.append(Trial(**vars(experiment), outcome=outcome_from_dict(outcome)))
            elif trial.state is self._states.RUNNING:
                running.append(experiment)
        return ended, running

    @_storage()
    def give_up_lost(self) -> list[LostExperiment]:
        """Gives up experiments whose tuner has exited, and closes trials with a recorded outcome."""
        lost = []
        for trial in self._all():
            experiment, attributes = _experiment(trial), trial.user_attrs
            if trial.state is not self._states.RUNNING or experiment is None:
                continue
            if "outcome" in attributes:
                self._close(trial._trial_id, outcome_from_dict(attributes["outcome"]))
                continue
            who, silent_s = attributes.get("owner", {}), self._silent_s(trial)
            if not lives(who, silent_s) and self._fail(trial._trial_id, "given_up"):
                lost.append(LostExperiment(experiment, _here(who)))
        return lost

    @_storage()
    def claim(
        self, plan: Callable[[Sequence[Trial], Sequence[Experiment]], Next]
    ) -> Experiment | Next:
        """Claims the experiment that `plan` proposes. Any other answer of `plan` is returned as it is.

        If another tuner claimed the same experiment a moment earlier, `plan` is called again.
        """
        while True:
            trials, running = self.read()
            proposal = plan(trials, running)
            if not isinstance(proposal, Proposal):
                return proposal
            trial_id = self._storage.create_new_trial(self._study, self._template(proposal))
            mine = self._storage.get_trial(trial_id)
            earlier = (
                _experiment(trial)
                for trial in self._all()
                if trial.number < mine.number
                and (trial.state is self._states.RUNNING or "outcome" in trial.user_attrs)
            )
            if all(other is None or other.proposal.key != proposal.key for other in earlier):
                return Experiment(mine.number, proposal, mine.user_attrs["token"])
            self._fail(trial_id, "withdrawn")

    @_storage()
    def record(self, experiment: Experiment, outcome: Outcome) -> bool:
        """Records an outcome. From now on it is never lost and never repeated.

        Returns False if another tuner gave the experiment up. Then it is run again, and this outcome is
        not used.
        """
        trial_id = self._id(experiment)
        try:
            self._storage.set_trial_user_attr(trial_id, "outcome", asdict(outcome))
        except self._finished:
            return False
        self._close(trial_id, outcome)
        self._spend()
        return True

    @_storage()
    def release(self, experiment: Experiment) -> None:
        """Gives up an experiment that was interrupted, so that it can be run again."""
        self._fail(self._id(experiment), "given_up")

    @_storage()
    def beat(self, experiments: Sequence[Experiment]) -> list[Experiment]:
        """Records a heartbeat of this tuner, every `BEAT_S` seconds.

        Returns those of its experiments that another tuner gave up.
        """
        if time.monotonic() - self._beaten < BEAT_S:
            return []
        self._beaten = time.monotonic()
        self._record_heartbeat(time.time())
        lost = []
        for experiment in experiments:
            try:
                self._storage.set_trial_user_attr(self._id(experiment), "beat", time.time())
            except self._finished:
                lost.append(experiment)
        return lost

    @_storage()
    def leave(self) -> None:
        """Records that this tuner has left."""
        self._record_heartbeat(None)

    def _record_heartbeat(self, sign: float | None) -> None:
        self._set_attribute(f"{HEARTBEAT} {self.tuner}", {"owner": self._me, "beat": sign})
        self._spend()

    def _spend(self) -> None:
        # Time during which several tuners search counts once.
        self._set_attribute("spent_s", max(self._spent(), self.spent_s))

    @_storage()
    def others(self) -> set[str]:
        """The other tuners that are alive, by their heartbeats."""
        found = set()
        for name, shown in self._storage.get_study_user_attrs(self._study).items():
            kind, _, tuner = name.partition(" ")
            if kind != HEARTBEAT or tuner == self.tuner or shown["beat"] is None:
                continue
            if lives(shown["owner"], self._heartbeats.silent_s(tuner, shown["beat"])):
                found.add(tuner)
        return found

    @property
    def spent_s(self) -> float:
        """Seconds that this study was searched, in this session and in earlier ones."""
        return self._spent_before + time.monotonic() - self._began

    def _spent(self) -> float:
        return float(self._attribute("spent_s", 0.0))

    @_storage()
    def forget(self, trial: Trial) -> None:
        """Ignores an outcome from now on, so that its experiment is planned again."""
        self._set_attribute("forgotten", [*self._attribute("forgotten", []), trial.number])

    def _silent_s(self, trial: FrozenTrial) -> float:
        return self._heartbeats.silent_s(trial._trial_id, trial.user_attrs.get("beat"))

    def _all(self) -> list[FrozenTrial]:
        forgotten = self._attribute("forgotten", [])
        trials = self._storage.get_all_trials(self._study, deepcopy=False)
        for trial in trials:
            if trial.state is self._states.RUNNING:
                self._silent_s(trial)
        return sorted((t for t in trials if t.number not in forgotten), key=lambda t: t.number)

    def _id(self, experiment: Experiment) -> int:
        number = experiment.number
        found: int = self._storage.get_trial_id_from_study_id_trial_number(self._study, number)
        return found

    def _template(self, proposal: Proposal) -> FrozenTrial:
        from optuna.trial import create_trial

        return create_trial(
            state=self._states.RUNNING,
            params=dict(proposal.knobs),
            distributions={knob.name: _shown(knob.values) for knob in self._space.knobs},
            user_attrs={
                "experiment": asdict(proposal),
                "owner": self._me,
                "beat": time.time(),
                "token": secrets.token_hex(6),
            },
        )

    def _close(self, trial_id: int, outcome: Outcome) -> None:
        states = {State.FINISHED: self._states.COMPLETE, State.STOPPED_EARLY: self._states.PRUNED}
        state, values = self._states.FAIL, None
        if outcome.step_ms is not None and outcome.state in states:
            state, values = states[outcome.state], [outcome.step_ms]
        # Another tuner may complete it at this moment.
        with contextlib.suppress(*self._finished):
            self._storage.set_trial_state_values(trial_id, state, values)

    def _fail(self, trial_id: int, why: str) -> bool:
        """Marks a trial as failed. Returns whether this tuner was the one that closed it."""
        try:
            self._storage.set_trial_user_attr(trial_id, why, True)
            closed: bool = self._storage.set_trial_state_values(trial_id, self._states.FAIL)
            return closed
        except self._finished:
            return False


def _retry(act: Callable[[], Any]) -> Any:
    """Calls `act` again if it fails: another tuner may create the same thing at this moment."""
    for attempt in range(TRIES - 1):
        try:
            return act()
        except ImportError:
            raise
        except Exception:
            time.sleep(0.1 * 2**attempt)
    return act()


def _public(url: str) -> str:
    """A URL without its password."""
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:…@", url)


def _open(url: str) -> BaseStorage:
    """Opens a storage: `journal:PATH`, `sqlite:///PATH`, or any URL that Optuna supports."""
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    kind, _, rest = url.partition(":")
    if kind == "journal":
        Path(rest).parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFileBackend(rest))
    if "://" not in url:
        raise TuneError(
            f"`{url}` is not a storage (write `journal:PATH`, `sqlite:///PATH`, or the URL of a database "
            "such as `postgresql://…`)"
        )
    # Tuners wait for each other's transactions.
    engine = {"connect_args": {"timeout": LOCK_S}} if kind == "sqlite" else {}
    try:
        return _retry(lambda: RDBStorage(url, engine_kwargs=engine))
    except ImportError as error:
        missing = getattr(error.__cause__ or error, "name", None) or "its driver"
        raise TuneError(
            f"the storage `{_public(url)}` needs the Python module `{missing}`, which is not installed "
            "(for `postgresql+psycopg://…`, run `python -m pip install 'psycopg[binary]'`; for "
            "`mysql+pymysql://…`, run `python -m pip install PyMySQL`)"
        ) from error
    except Exception as error:
        why = str(getattr(error, "orig", None) or error).strip()
        raise TuneError(f"cannot open the storage `{_public(url)}`: {why}") from error


def _shown(values: Sequence[Any]) -> BaseDistribution:
    """The distribution by which Optuna's own tools show a knob."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    first, last, steps = values[0], values[-1], len(values) - 1
    whole = all(type(value) is int for value in values) and steps > 0
    step = (last - first) // steps if whole else 0
    if whole and tuple(values) == tuple(range(first, last + 1, max(1, step))):
        return IntDistribution(first, last, step=step)
    return CategoricalDistribution(tuple(values))


def _experiment(trial: FrozenTrial) -> Experiment | None:
    proposal = trial.user_attrs.get("experiment")
    if proposal is None:
        return None
    token = trial.user_attrs.get("token", "")
    return Experiment(trial.number, proposal_from_dict(proposal), token)


def owner() -> dict[str, Any]:
    """Identifies this process, also among processes with the same process ID on another machine, in
    another container or after a restart."""
    return {
        "host": socket.gethostname(),
        "boot": _read("/proc/sys/kernel/random/boot_id"),
        "namespace": _read("/proc/self/ns/pid"),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
    }


def _here(who: Mapping[str, Any]) -> bool:
    me = owner()
    return all(who.get(name) == me[name] for name in ("host", "boot", "namespace"))


def lives(who: Mapping[str, Any], silent_s: float) -> bool:
    """Whether an owner is alive. On this machine its process is checked, elsewhere its last heartbeat."""
    if _here(who):
        started = _started(int(who["pid"]))
        return started is not None and started == who.get("started")
    return silent_s < GONE_S


def _started(pid: int) -> int | None:
    """When a process started, in ticks since boot; None if it does not exist or is a zombie."""
    fields = stat_fields(f"/proc/{pid}/stat")
    return int(fields[19]) if len(fields) > 19 and fields[0] != "Z" else None


def _read(path: str) -> str:
    """The contents of a file, or the target of a link. Empty if it cannot be read."""
    try:
        return os.readlink(path) if os.path.islink(path) else Path(path).read_text().strip()
    except OSError:
        return ""
