"""Measures what a batch and a call of a stage cost in mode `whatif` outside its windows. The reference is `measure`.

Each round starts one process of each mode. In mode `whatif`, the switch of the stage exists, and the what-if is over.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from rows import Row, bootstrap

#: Upper limits: nanoseconds that a switch adds to a call, and the cost of a batch divided by that in mode `measure`.
SWITCH_NS, BATCH_RATIO = 5.0, 1.1

#: Prints the nanoseconds of a `with` block, of a call of a decorated function, and of a batch.
PROGRAM = """
import itertools, json, sys, time
import headspace

mode = sys.argv[1]
stage = headspace.stage("bench")

@stage
def function():
    return 1

def block(calls):
    for _ in range(calls):
        with stage:
            pass

def decorated(calls):
    for _ in range(calls):
        function()

items = [None] * 4000
loader = headspace.wrap(items, mode=mode, name="bench", **({"what_if_steps": 300} if mode == "whatif" else {}))

def batches(count):
    for _ in loader:
        pass

def nanoseconds(work, calls):
    begin = time.perf_counter_ns()
    work(calls)
    return (time.perf_counter_ns() - begin) / calls

for _ in loader:
    with stage:
        pass
    function()
subjects = {"block": (block, 1000), "function": (decorated, 1000), "batch": (batches, 4000)}
times = {name: [] for name in subjects}
for _ in range(60):
    for name, (work, calls) in subjects.items():
        time.sleep(0.001)
        times[name].append(nanoseconds(work, calls))
# The fastest tenth: what slows the machine slows whole bursts.
print(json.dumps({name: sorted(values)[len(values) // 10] for name, values in times.items()}))
"""


def _times(mode: str) -> dict[str, float]:
    command = [sys.executable, "-c", PROGRAM, mode]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    times: dict[str, float] = json.loads(found.stdout)
    return times


def run(quick: bool) -> list[Row]:
    rounds = [(_times("measure"), _times("whatif")) for _ in range(5 if quick else 20)]
    rows = []
    for name, what in (("block", "`with` block"), ("function", "decorated function")):
        differences = [whatif[name] - measure[name] for measure, whatif in rounds]
        low, high = bootstrap(differences, statistics.median)
        more = statistics.median(differences)
        rows.append(Row("whatif", f"switch of a {what}", more, "ns/call", SWITCH_NS, low, high))
    ratios = [whatif["batch"] / measure["batch"] for measure, whatif in rounds]
    batch = statistics.median(whatif["batch"] for _, whatif in rounds)
    against = ("batch in mode measure", statistics.median(ratios))
    rows.append(
        Row("whatif", "batch after the what-if", batch, "ns", BATCH_RATIO, None, None, *against)
    )
    return rows
