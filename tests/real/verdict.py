"""headspace's verdict on a run, from `headspace report --json`."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Lowest confidence at which the verdict calls a remedy likely.
LIKELY = 0.7
#: Lowest confidence at which a remedy is plausible. A run that loses time names such a remedy in a notice.
PLAUSIBLE = 0.4


@dataclass(frozen=True)
class Remedy:
    """A change that the verdict proposes, and the step that it predicts."""

    code: str
    #: The knob that it changes, and the new value. None if it changes no knob.
    knob: str | None
    to: str | None
    predicted_ms: float
    confidence: float
    at_least: bool

    @property
    def is_likely(self) -> bool:
        return self.confidence >= LIKELY

    @property
    def is_plausible(self) -> bool:
        """Whether it is at least plausible."""
        return self.confidence >= PLAUSIBLE

    @property
    def name(self) -> str:
        return self.code if self.knob is None else f"{self.knob}={self.to}"


@dataclass(frozen=True)
class Verdict:
    """A run's summary."""

    summary: dict[str, Any]
    text: str

    @property
    def loop(self) -> str | None:
        return self.summary.get("loop")

    @property
    def steps(self) -> int:
        return int(self.summary.get("steps") or 0)

    @property
    def replayed_steps(self) -> int:
        return int(self.summary.get("replayed_steps") or 0)

    @property
    def live_ms(self) -> float | None:
        return self.summary.get("steady_step_mean_ms")

    @property
    def headspace_pct(self) -> tuple[float, float, float] | None:
        """Headspace and its interval."""
        value, ci = self.summary.get("headspace_pct"), self.summary.get("headspace_ci_pct")
        if value is None:
            return None
        low, high = ci or (value, value)
        return value, low, high

    @property
    def findings(self) -> dict[str, str]:
        return {found["code"]: found["text"] for found in self.summary.get("findings", [])}

    @property
    def without_slowest_rank_ms(self) -> float | None:
        """The predicted step if the slowest rank were as fast as the others."""
        return (self.summary.get("ranks") or {}).get("predicted_step_ms")

    @property
    def without_episode_ms(self) -> float | None:
        """The predicted step without the costliest episode."""
        episodes = self.summary.get("episodes") or [{}]
        return episodes[0].get("predicted_step_ms")

    def predicted_ms(self, code: str) -> float | None:
        """The predicted step with the best remedy of this code. None if there is none with a prediction."""
        found = (
            remedy["predicted_step_ms"]
            for remedy in self.summary.get("remedies", [])
            if remedy.get("code") == code and not remedy.get("at_least", False)
        )
        return next(found, None)

    @property
    def remedies(self) -> list[Remedy]:
        """All remedies, best first."""
        return [
            Remedy(
                remedy["code"],
                remedy.get("change", {}).get("knob"),
                remedy.get("change", {}).get("to"),
                remedy["predicted_step_ms"],
                remedy["confidence"],
                remedy.get("at_least", False),
            )
            for remedy in self.summary.get("remedies", [])
        ]


def read(runs: Path) -> Verdict | None:
    """The verdict on the only run in a folder. None if headspace recorded no run."""
    folders = sorted(runs.iterdir()) if runs.is_dir() else []
    if not folders:
        return None
    report = [sys.executable, "-m", "headspace", "report"]
    shown = subprocess.run(
        [*report, "--json", str(folders[-1])], capture_output=True, text=True, check=True
    )
    text = subprocess.run([*report, str(folders[-1])], capture_output=True, text=True, check=True)
    summary = json.loads(shown.stdout)
    return Verdict(summary[0] if isinstance(summary, list) else summary, text.stdout)
