"""Measures the memory that a running session adds, and the cost of its object censuses, in new processes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from rows import Row

#: 1,000 steps of 2 ms, so two seconds. The session ticks several times meanwhile. Prints the memory in MiB.
PROGRAM = """
import json, sys, time

batches = [object()] * 1000
if sys.argv[1] == "with":
    import headspace
    session = headspace.start(interval=0.1)
    batches = headspace.wrap(batches, mode="measure")
for _ in batches:
    time.sleep(0.002)

sizes = {}
for line in open("/proc/self/smaps_rollup"):
    name, _, rest = line.partition(":")
    if name in ("Rss", "Pss", "Private_Dirty"):
        sizes[name] = int(rest.split()[0]) / 1024
print(json.dumps(sizes))
"""


def _sizes(how: str) -> dict[str, float]:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True
    )
    sizes: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return sizes


#: Steps of 2 ms in a process with many objects. The arguments are the number of objects, and the duration of the
#: loop in seconds.
CENSUSES = """
import json, sys, time

objects = [[number] for number in range(int(sys.argv[1]))]
import headspace

session = headspace.start()
begin = time.perf_counter()
for _ in headspace.wrap(range(10**9), mode="measure"):
    time.sleep(0.002)
    seconds = time.perf_counter() - begin
    if seconds > float(sys.argv[2]):
        break
print(json.dumps([*session._native.census_costs()[:2], seconds]))
"""


def _censuses(objects: int, seconds: float) -> list[Row]:
    answer = subprocess.run(
        [sys.executable, "-c", CENSUSES, str(objects), str(seconds)],
        check=True,
        capture_output=True,
        text=True,
    )
    count, spent, elapsed = json.loads(answer.stdout.splitlines()[-1])
    # All censuses together may take 0.1 % of the time plus 0.3 s.
    allowed = 100 * (0.001 + 0.3 / elapsed)
    name = f"census of {objects:,} objects"
    return [
        Row(name, "duration", 1e3 * spent / count, "ms"),
        Row(name, f"share of {elapsed:.0f} s", 100 * spent / elapsed, "%", allowed),
    ]


def run(quick: bool) -> list[Row]:
    added: dict[str, list[float]] = {}
    for _ in range(2 if quick else 7):
        without, with_session = _sizes("without"), _sizes("with")
        for kind, size in with_session.items():
            added.setdefault(kind, []).append(size - without[kind])
    names = {
        "Rss": "resident, the library's pages included",
        "Pss": "proportional",
        "Private_Dirty": "written to",
    }
    seconds = 10.0 if quick else 60.0
    censuses = _censuses(100_000, seconds) + _censuses(1_000_000, seconds)
    return censuses + [
        Row("memory", names[kind], statistics.median(values), "MiB", 10.0)
        for kind, values in added.items()
    ]
