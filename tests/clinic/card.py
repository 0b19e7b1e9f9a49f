"""What is known about a case: the public threads, the cause, the cure, and what a verdict must say."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib
from verdict import Verdict

#: The cases for which headspace was improved.
CASES = Path(__file__).parent / "cases"

#: Cases that were chosen, and whose expected verdicts were written, before headspace was run on them.
HELD_OUT = Path(__file__).parent / "held_out"

#: What a user sees first, in the order of the page.
GROUPS = (
    "The loop waits for data",
    "The speed changes during the run",
    "Steps are slow, and the loop does not wait",
    "There are several ranks",
    "Nothing stands out",
)


#: Who says what the cause is, and how the page says this.
CAUSE_FROM = {
    "maintainer": "confirmed by a maintainer",
    "author": "from the author of a change that cures it",
    "reporter": "measured by a reporter",
    "suspicion": "suspected in the threads, not confirmed",
    "nobody": "the threads name none",
}


@dataclass(frozen=True)
class Card:
    """A case: the sick program `train.py` in its folder, and its healthy twin."""

    name: str
    #: The symptom, as a user would search for it.
    title: str
    #: Which of `GROUPS` the symptom belongs to.
    group: str
    threads: list[str]
    #: What the user saw.
    symptom: str
    #: The cause, as the threads say it, and who says it: one of `CAUSE_FROM`.
    cause: str
    cause_from: str
    #: What cured it there, and what it gained.
    cure: str
    gain: str
    #: Options of `train.py` that apply the cure, and what they change.
    apply: list[str]
    applied: str
    #: Modules that the programs import.
    modules: list[str]
    #: Launcher and its options; empty for a single process.
    launch: list[str]
    #: Regular expressions. The verdict names the cause if it contains all of `says` and none of `never`.
    says: list[str]
    never: list[str]
    #: Options of `headspace run` that the program needs.
    watch: list[str]
    #: Options of `train.py` that make it the healthy twin. Empty if the twin is a program, `healthy.py`.
    healthy: list[str] = field(default_factory=list)
    #: Whether the case was chosen, and its expected verdict written, before headspace was run on it.
    held_out: bool = False
    #: What is compared with the cured program: the prediction of the remedy with this code, of the step without
    #: the costliest `episode`, or of the step without the `slowest rank`. Empty if the cure is none of these.
    prediction: str = ""

    def predicted_ms(self, verdict: Verdict) -> float | None:
        """The step of the cured program that a verdict predicts."""
        match self.prediction:
            case "episode":
                return verdict.without_episode_ms
            case "slowest rank":
                return verdict.without_slowest_rank_ms
            case code:
                return verdict.predicted_ms(code)

    @property
    def is_cause_confirmed(self) -> bool:
        return self.cause_from not in ("suspicion", "nobody")

    @property
    def missing_modules(self) -> list[str]:
        """Modules that the programs import and that are not installed."""
        return [name for name in self.modules if find_spec(name) is None]

    @property
    def folder(self) -> Path:
        return (HELD_OUT if self.held_out else CASES) / self.name

    @property
    def twin(self) -> tuple[str, list[str]]:
        """The program of the healthy twin, and its options."""
        return ("train.py", self.healthy) if self.healthy else ("healthy.py", [])


def read_card(folder: Path) -> Card:
    fields = tomllib.loads((folder / "card.toml").read_text())
    verdict = fields.pop("verdict")
    return Card(
        name=folder.name,
        held_out=folder.parent == HELD_OUT,
        says=verdict["says"],
        never=verdict.get("never", []),
        watch=verdict.get("watch", []),
        prediction=verdict.get("prediction", ""),
        **fields,
    )


def read_cards() -> dict[str, Card]:
    """All cases by name, those that are held out last."""
    folders = (*sorted(CASES.iterdir()), *sorted(HELD_OUT.iterdir()))
    return {folder.name: read_card(folder) for folder in folders if folder.is_dir()}
