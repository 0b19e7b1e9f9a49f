"""Memory that a running session adds: the same program with and without, in fresh processes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from rows import Row

#: Steps of 2 ms over two seconds: the session ticks, records and summarises meanwhile.
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
    return [
        Row("memory", names[kind], statistics.median(values), "MiB", 10.0)
        for kind, values in added.items()
    ]
