"""Sends metrics to experiment trackers, through each tracker's own library.

    headspace.start(to=TensorBoard("runs/x"))      # a folder, or your SummaryWriter
    headspace.start(to=Wandb())                    # the run of wandb.init()
    headspace.start(to=[MLflow(), "/data/runs"])   # the active run; records in /data/runs

Once a second a thread fetches new metrics from the agent and calls the library. Each library has its own
thread, so one that hangs does not delay the others. The thread holds the interpreter lock only during
these calls, and training never waits for it. A library that raises is disabled, with one notice.
Subclass ``Sink`` for another tracker.
"""

from __future__ import annotations

from headspace.integrations._mlflow import MLflow
from headspace.integrations._sink import Sink
from headspace.integrations._tensorboard import TensorBoard
from headspace.integrations._wandb import Wandb

__all__ = ["MLflow", "Sink", "TensorBoard", "Wandb"]
