"""Sends metrics to experiment trackers, through each tracker's own library.

    headspace.start(to=TensorBoard("runs/x"))      # a folder, or your SummaryWriter
    headspace.start(to=Wandb())                    # the run of wandb.init()
    headspace.start(to=[MLflow(), "/data/runs"])   # the active run; records in /data/runs

Once per tick, but at most once per second, a thread fetches new metrics from the agent and calls the
library. Each library has its own thread, so a library that hangs does not delay the others. During a call,
the library holds the interpreter lock, as in your own calls. If a library raises an exception, it is
disabled with one notice. For another tracker, write a subclass of ``Sink``.
"""

from __future__ import annotations

from headspace.integrations._mlflow import MLflow
from headspace.integrations._sink import Sink
from headspace.integrations._tensorboard import TensorBoard
from headspace.integrations._wandb import Wandb

__all__ = ["MLflow", "Sink", "TensorBoard", "Wandb"]
