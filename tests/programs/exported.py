"""A training loop with a stage and a queue, which may fork in its midst: `exported.py [--fork]`."""

import argparse
import os
import queue
import sys
import threading
import time

import headspace

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--compute-ms", type=float, default=5.0)
parser.add_argument("--fork", action="store_true", help="fork a child that ends at once")
args = parser.parse_args()

# What is wrong on the way is no reason to hang.
batches: queue.Queue = headspace.queue("decoded", queue.Queue(4))


@headspace.stage("decode", concurrency=1)
def decode(number):
    time.sleep(0.002)
    return number


def load():
    for number in range(args.steps):
        batches.put(decode(number))
    batches.put(None)


class Loader:
    def __len__(self):
        return args.steps

    def __iter__(self):
        thread = threading.Thread(target=load)
        thread.start()
        while (batch := batches.get()) is not None:
            yield batch
        thread.join()


def fork():
    """The child ends as Python does: with its `atexit` and all finalizers."""
    child = os.fork()
    if child == 0:
        sys.exit(7)
    _, status = os.waitpid(child, 0)
    print("child", os.waitstatus_to_exitcode(status), flush=True)


steps = 0
for _ in range(args.epochs):
    for _ in headspace.wrap(Loader(), name="train", batch_size=8):
        time.sleep(args.compute_ms / 1e3)
        steps += 1
        if args.fork and steps == args.steps // 2:
            fork()
print("steps", steps)
