"""Trains with an experiment tracker. Arguments: the tracker, its folder, the number of steps.

The trackers `raises` and `hangs` do so at the first value.
"""

import os
import sys
import threading
import time

import headspace
from headspace.integrations import MLflow, Sink, TensorBoard, Wandb

which, folder, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Raises(Sink):
    def log(self, step, time, values):
        raise ConnectionError("the tracker is gone")


class Hangs(Sink):
    def log(self, step, time, values):
        threading.Event().wait()


if which == "tensorboard":
    sink = TensorBoard(folder)
elif which == "wandb":
    import wandb

    run = wandb.init(project="x", dir=folder, mode="offline")
    sink = Wandb()
elif which == "mlflow":
    import mlflow

    mlflow.set_tracking_uri(f"file:{folder}")
    mlflow.start_run()
    sink = MLflow()
else:
    sink = {"raises": Raises, "hangs": Hangs}[which]()

session = headspace.start(to=sink, interval=0.25)
decode = headspace.stage("decode")


def source():
    for item in range(steps):
        with decode:
            time.sleep(0.004)
        yield item


for item in headspace.wrap(source(), name="train", batch_size=8):
    if item == steps // 2 and hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            sys.exit(0)  # Runs all exit handlers.
        os.waitpid(child, 0)
    if which == "wandb" and item % 100 == 0:
        run.log({"loss": 1.0}, step=item)
    time.sleep(0.001)

if which == "wandb":
    session.stop()
    run.finish()
# With other trackers, the session ends with the program.
print("trained", flush=True)
