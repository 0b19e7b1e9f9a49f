"""Logs metrics to Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headspace.integrations._sink import Sink, import_library

#: The x axis of what is logged.
STEP = "headspace/step"


class Wandb(Sink):
    """Numbers in a run of Weights & Biases, named ``headspace/...``, over ``headspace/step``.

        wandb.init(project="x")
        headspace.start(to=Wandb())

    Your own steps stay as they are: numbers are added to the row that your next ``log`` completes,
    and of several that come before it the last stays. Call ``headspace.stop()`` before
    ``wandb.finish()``, so that the last ones are in.

    Args:
        run: The run; by default whichever goes on when there is something to log. Where there is
            none, as on other ranks, nothing is logged.
        rows: Make a row of its own for each moment, for scripts whose own ``log`` calls name no
            ``step``: W&B drops rows whose step lies behind.

    Raises:
        ImportError: If ``wandb`` is not installed.
    """

    def __init__(self, run: Any = None, *, rows: bool = False) -> None:
        self._wandb = import_library("wandb", "Wandb", "wandb")
        self._given = run
        self._rows = rows
        self._known: Any = None

    def open(self, rank: int) -> bool:
        self._run()  # Here rather than while it trains: the first call takes its time.
        return True

    def log(self, step: int, time: float, values: Mapping[str, float]) -> None:
        run = self._run()
        if run is not None:
            row = {f"headspace/{name}": value for name, value in values.items()}
            run.log({**row, STEP: step}, commit=self._rows)

    def _run(self) -> Any:
        """The run that goes on, which knows of our x axis."""
        run = self._given if self._given is not None else self._wandb.run
        if run is not None and run is not self._known:
            run.define_metric(STEP, hidden=True)
            run.define_metric("headspace/*", step_metric=STEP)
            self._known = run
        return run
