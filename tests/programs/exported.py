"""A training loop with a stage and a queue: `exported.py [--fork] [--ask URL]`.

It may fork during the training, or request a URL and wait for the answer, like a script that sends its
own metrics.
"""

import argparse
import os
import queue
import sys
import threading
import time
import urllib.request

import headspace

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--compute-ms", type=float, default=5.0)
parser.add_argument("--fork", action="store_true", help="fork a child that ends at once")
parser.add_argument("--ask", metavar="URL", help="in its midst, for five seconds at most")
args = parser.parse_args()

# An error must not block the end.
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
    """The child ends normally, so it runs the `atexit` functions and all finalizers."""
    child = os.fork()
    if child == 0:
        sys.exit(7)
    _, status = os.waitpid(child, 0)
    print("child", os.waitstatus_to_exitcode(status), flush=True)


def ask():
    try:
        urllib.request.urlopen(args.ask, timeout=5).close()
    except OSError:
        pass  # There was no answer.


steps = 0
for _ in range(args.epochs):
    for _ in headspace.wrap(Loader(), name="train", batch_size=8):
        time.sleep(args.compute_ms / 1e3)
        steps += 1
        if args.fork and steps == args.steps // 2:
            fork()
        if args.ask and steps == args.steps // 2:
            ask()
print("steps", steps, flush=True)
