"""A training loop with many stages and queues: `many_stages.py [--stages N] [--queues N] [--steps N]`.

Each step calls forty stages, every stage in turn, and puts one item into a queue and takes it out
again. Prints `ready` once each stage was called, and ends when the file of `--until` exists.
"""

import argparse
import itertools
import os
import queue
import time

import headspace

parser = argparse.ArgumentParser()
parser.add_argument("--stages", type=int, default=1000)
parser.add_argument("--queues", type=int, default=200)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--until", help="go on, whatever `--steps`, until this file exists")
args = parser.parse_args()

stages = [headspace.stage(f"stage {number}", concurrency=1) for number in range(args.stages)]
queues = [headspace.queue(f"queue {number}", queue.Queue(4)) for number in range(args.queues)]
calls, turns = itertools.cycle(stages), itertools.cycle(queues)


def load():
    for step in itertools.count():
        if os.path.exists(args.until) if args.until else step == args.steps:
            return
        for stage in itertools.islice(calls, 40):
            with stage:
                pass
        one = next(turns)
        one.put(step)
        yield one.get()


steps = 0
for _ in headspace.wrap(load(), name="train", batch_size=8):
    time.sleep(0.005)
    steps += 1
    if steps * 40 == args.stages:
        print("ready", flush=True)
print("steps", steps, flush=True)
