"""Decides whether a running experiment is stopped early, because it is slower than the best one.

A run is checked whenever its number of steps has doubled. All checks together wrongly stop a run that is as fast as
the best with probability `WRONGLY` at most.
"""

from __future__ import annotations

import math

from headspace._native import FREEDOM, RUN_TO_RUN, t_quantile
from headspace.tune.run.live import StepMean

#: Number of steady steps at the first check.
EARLY_STEPS = 50

#: Probability that a run as fast as the best is wrongly judged slower, over all its checks.
WRONGLY = 0.05


class EarlyStop:
    """The checks of one experiment."""

    def __init__(self) -> None:
        self._checks = 0

    def is_slower(self, step: StepMean, best_high_ms: float) -> bool:
        """Whether the step is certainly longer than `best_high_ms`, the upper end of the best one's interval."""
        if step.steps < EARLY_STEPS * 2**self._checks:
            return False
        lower = lower_bound(step, self._checks + 1)
        if lower is None:
            return False
        while step.steps >= EARLY_STEPS * 2**self._checks:
            self._checks += 1
        return lower > best_high_ms


def lower_bound(step: StepMean, check: int) -> float | None:
    """Lower confidence bound of the mean step in milliseconds; None if there are too few ticks.

    Check number `n` gets `1 / (n * (n + 1))` of the error probability `WRONGLY`, so any number of checks share it.

    Args:
        step: The mean step so far.
        check: Number of the check of this run, from 1.
    """
    if step.error is None:
        return None
    sure = t_quantile(FREEDOM, 1 - WRONGLY / (check * (check + 1)))
    return step.ms - sure * math.hypot(step.error, RUN_TO_RUN * step.ms)
