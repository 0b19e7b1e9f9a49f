"""What `import headspace` adds to the start of a program, in fresh processes."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time

from rows import Row, bootstrap


def _start(code: str) -> float:
    """Milliseconds from starting a Python that runs `code` to its end."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - begin) * 1e3


def _importtime() -> float:
    """Milliseconds that the interpreter itself counts for the import, all it pulls in included."""
    answer = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import headspace"],
        check=True,
        capture_output=True,
        text=True,
    )
    found = re.search(r"\|\s+(\d+) \| headspace$", answer.stderr, re.MULTILINE)
    if found is None:
        raise RuntimeError("`-X importtime` does not name headspace")
    return int(found.group(1)) / 1e3


def run(quick: bool) -> list[Row]:
    _start("import headspace")  # byte code is compiled and the files are in memory
    added = []
    for turn in range(8 if quick else 40):
        order = ["pass", "import headspace"]
        if turn % 2:
            order.reverse()
        took = {code: _start(code) for code in order}
        added.append(took["import headspace"] - took["pass"])
    low, high = bootstrap(added, statistics.median)
    counted = statistics.median(_importtime() for _ in range(3 if quick else 11))
    return [
        Row(
            "import",
            "a process that imports, minus one that does not",
            statistics.median(added),
            "ms",
            15.0,
            low,
            high,
        ),
        Row("import", "as -X importtime counts it", counted, "ms", 15.0),
    ]
