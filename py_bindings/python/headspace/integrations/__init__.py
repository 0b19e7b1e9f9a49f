"""Numbers to where experiments are tracked, through the tracker's own library.

    headspace.start(to=TensorBoard("runs/x"))      # a folder, or your SummaryWriter
    headspace.start(to=Wandb())                    # the run of wandb.init()
    headspace.start(to=[MLflow(), "/data/runs"])   # the active run; records in /data/runs

Once a second a thread fetches what the agent has to tell and calls the library. Each library has a
thread of its own, so that one that hangs holds up no other. It needs the interpreter lock for that
long and no longer; training never waits for it. A library that raises is called no more, with one
notice. ``Sink`` is what a tracker of your own is made of.
"""

from __future__ import annotations

from headspace.integrations._mlflow import MLflow
from headspace.integrations._sink import Sink
from headspace.integrations._tensorboard import TensorBoard
from headspace.integrations._wandb import Wandb

__all__ = ["MLflow", "Sink", "TensorBoard", "Wandb"]
