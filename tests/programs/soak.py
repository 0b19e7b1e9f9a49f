"""Trains with short steps until a file exists, and forks many children meanwhile: `soak.py UNTIL [OPTIONS]`.

Prints `steps N forks N wrong N hung N`. A child is wrong if it ended in another way than it should, and hung if it did not
end within the deadline.
"""

import argparse
import itertools
import os
import signal
import sys
import time

import headspace

parser = argparse.ArgumentParser()
parser.add_argument("until")
parser.add_argument("--step-ms", type=float, default=1.0)
parser.add_argument(
    "--storm-every", type=int, default=2000, help="steps between two storms of forks"
)
parser.add_argument("--forks", type=int, default=12, help="number of children in a storm")
args = parser.parse_args()

#: Seconds until a child counts as hung. The study stops the trainer for shorter times.
DEADLINE_S = 60

#: How a child ends, with the status that the parent sees.
ENDS = {"_exit": 3, "exit": 4, "iterates": 5, "killed": -signal.SIGKILL}


class Loader:
    """One batch per step, on a schedule: a late batch does not make the next ones earlier."""

    def __iter__(self):
        due = time.perf_counter()
        for number in itertools.count():
            if number % 100 == 0 and os.path.exists(args.until):
                return
            with headspace.stage("load"):
                due = max(due + args.step_ms / 1e3, time.perf_counter())
                time.sleep(max(0.0, due - time.perf_counter()))
            yield number


def end_child(how):
    if how == "_exit":
        os._exit(3)
    if how == "exit":
        sys.exit(4)  # through the loop, all finalizers and `atexit`
    if how == "iterates":
        count = sum(1 for _ in headspace.wrap(range(20), name="in a child"))
        os._exit(5 if count == 20 else 1)
    while True:
        signal.pause()


def status_of(child):
    """Exit code of a child, or None if it hangs. A hung child is killed."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.001)


def storm():
    """Forks children that live at the same time. Returns how many ended wrongly, and how many hung."""
    children = []
    for how, _ in zip(itertools.cycle(ENDS), range(args.forks)):
        child = os.fork()
        if child == 0:
            end_child(how)
        children.append((child, how))
    for child, how in children:
        if how == "killed":
            os.kill(child, signal.SIGKILL)
    statuses = [(status_of(child), ENDS[how]) for child, how in children]
    hung = sum(status is None for status, _ in statuses)
    return sum(status != expected for status, expected in statuses) - hung, hung


steps = forks = wrong = hung = 0
for _ in headspace.wrap(Loader(), name="train"):
    steps += 1
    if steps % args.storm_every == 0:
        found = storm()
        forks, wrong, hung = forks + args.forks, wrong + found[0], hung + found[1]
print("steps", steps, "forks", forks, "wrong", wrong, "hung", hung, flush=True)
