"""A training program with knobs and a known step time: `tuned.py [--threads N] [--depth N] ...`.

A step takes `6 ms / threads`, 2 ms more at depth 1, 1 ms more without `--turbo`, and 1 ms of compute.
With `--log FILE`, it logs its begin and its end, with its experiment. If a file `FILE.may-end` exists, it
ends only while the number of ended programs in the log is less than the number in that file. With
`TUNED_FAIR=MINE:OTHERS` (two files), it adds a line to MINE. The first three programs in MINE wait until
OTHERS has at most one line fewer than MINE.
"""

import argparse
import os
import sys
import time

import headspace

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--depth", type=int, default=1)
parser.add_argument("--turbo", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--fault", default="none")
parser.add_argument("--log")
args = parser.parse_args()


def say(word):
    if args.log:
        experiment = os.path.basename(os.environ.get("HEADSPACE_TUNE_EXPERIMENT", "none"))
        with open(args.log, "a") as log:
            log.write(f"{word} {experiment} {os.getpid()} {' '.join(sys.argv[1:])}\n")


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            sys.exit("it waited for too long")
        time.sleep(0.005)


def lines(path, word=""):
    try:
        with open(path) as file:
            return sum(line.startswith(word) for line in file)
    except FileNotFoundError:
        return 0


def may_end():
    try:
        with open(f"{args.log}.may-end") as file:
            return lines(args.log, "ended") < int(file.read() or 0)
    except FileNotFoundError:
        return True


def be_fair(mine, others):
    with open(mine, "a") as file:
        file.write("began\n")
    if lines(mine) <= 3:
        wait_until(lambda: lines(others) >= lines(mine) - 1)


class TrainingError(Exception):
    pass


@headspace.stage("load")
def load(i, seconds):
    time.sleep(seconds)
    return i


def batches():
    for i in range(args.steps):
        if i == 60 and args.fault == "crash":
            raise TrainingError("the loss is not a number")
        if i == 60 and args.fault == "stall":
            time.sleep(3600)
        if i == 60 and args.fault == "exit":
            os._exit(7)
        slow = 10 if args.fault == "slow" else 1
        depth = 2 if args.depth < 2 else 0
        yield load(i, slow * (6 / args.threads + depth + (0 if args.turbo else 1)) / 1e3)


say("began")
if "TUNED_FAIR" in os.environ:
    be_fair(*os.environ["TUNED_FAIR"].split(":"))
if args.fault == "startup":
    raise TrainingError("there is no data")
if args.fault == "hang":
    time.sleep(3600)
if args.fault == "nothing":
    sys.exit(0)
for _ in headspace.wrap(batches(), name="train", batch_size=4):
    time.sleep(0.001)
wait_until(may_end)
say("ended")
