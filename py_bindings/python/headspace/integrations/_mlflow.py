"""Logs metrics to MLflow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headspace.integrations._sink import Sink, import_library

#: Characters that MLflow does not allow in the name of a metric.
FOREIGN = re.compile(r"[^\w\-. :/]", re.ASCII)

#: Maximum number of metrics in a request.
AT_ONCE = 1000


class MLflow(Sink):
    """Logs metrics named ``headspace/...`` to an MLflow run. The x axis is the step of the main loop.

        with mlflow.start_run():
            headspace.start(to=MLflow())

    Args:
        run_id: ID of the run. By default the run that is active when the session starts. Ranks other than
            0 log nothing if they have no active run.
        tracking_uri: Where the run is stored. By default the setting of ``mlflow``.

    Raises:
        ImportError: If ``mlflow`` is not installed (``mlflow-skinny`` is enough).
    """

    def __init__(self, run_id: str | None = None, *, tracking_uri: str | None = None) -> None:
        self._mlflow = import_library("mlflow", "MLflow", "mlflow-skinny")
        self._run_id = run_id
        self._tracking_uri = tracking_uri
        self._client: Any = None

    def open(self, rank: int) -> bool:
        if self._run_id is None:
            run = self._mlflow.active_run()
            if run is None and rank:
                return False
            if run is None:
                raise ValueError(
                    "no MLflow run is active: call `mlflow.start_run()` first, or pass `run_id`"
                )
            self._run_id = run.info.run_id
        self._client = self._mlflow.MlflowClient(self._tracking_uri)
        return True

    def log(self, step: int, time: float, values: Mapping[str, float]) -> None:
        metric = self._mlflow.entities.Metric
        metrics = [
            metric(FOREIGN.sub("_", f"headspace/{name}"), value, int(time * 1000), step)
            for name, value in values.items()
        ]
        for start in range(0, len(metrics), AT_ONCE):
            self._client.log_batch(self._run_id, metrics=metrics[start : start + AT_ONCE])
