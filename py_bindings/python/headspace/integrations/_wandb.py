"""Logs metrics to Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headspace.integrations._sink import Sink, import_library

#: The x axis of the curves.
STEP = "headspace/step"


class Wandb(Sink):
    """Logs metrics named ``headspace/...`` to a run of Weights & Biases. The x axis is ``headspace/step``.

        wandb.init(project="x")
        headspace.start(to=Wandb())

    Your own steps do not change: the metrics are added to the row that your next ``log`` completes. If a
    metric has several values before that call, the last value stays. Call ``headspace.stop()`` before
    ``wandb.finish()``. Otherwise the last metrics are missing.

    Args:
        run: The run. By default the run that is active when there are metrics to log. If no run is active,
            as on other ranks, nothing is logged.
        rows: Whether each set of metrics gets its own row. Only for scripts whose own ``log`` calls do not
            set ``step``, because W&B drops a row whose step is lower than that of the row before.

    Raises:
        ImportError: If ``wandb`` is not installed.
    """

    def __init__(self, run: Any = None, *, rows: bool = False) -> None:
        self._wandb = import_library("wandb", "Wandb", "wandb")
        self._given = run
        self._rows = rows
        self._known: Any = None

    def open(self, rank: int) -> bool:
        self._run()  # The first call is slow, so it is made before training.
        return True

    def log(self, step: int, time: float, values: Mapping[str, float]) -> None:
        run = self._run()
        if run is not None:
            row = {f"headspace/{name}": value for name, value in values.items()}
            run.log({**row, STEP: step}, commit=self._rows)

    def _run(self) -> Any:
        """The active run, or None. Declares headspace's x axis in the run."""
        run = self._given if self._given is not None else self._wandb.run
        if run is not None and run is not self._known:
            run.define_metric(STEP, hidden=True)
            run.define_metric("headspace/*", step_metric=STEP)
            self._known = run
        return run
