"""What `import headspace` adds to the start of a program, in fresh processes."""

from __future__ import annotations

import os
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
    # Installers compile to byte code; an import from a source tree does it the first time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    _start("import headspace")
    bare, importing = [], []
    for turn in range(10 if quick else 60):
        order = [("pass", bare), ("import headspace", importing)]
        for code, times in reversed(order) if turn % 2 else order:
            times.append(_start(code))
    added = [b - a for a, b in zip(bare, importing)]
    low, high = bootstrap(added, statistics.median)
    counted = [_importtime() for _ in range(5 if quick else 20)]
    what = "a process that imports, minus one that does not"
    return [
        Row("import", f"{what}: best", min(importing) - min(bare), "ms", 15.0),
        Row("import", f"{what}: median", statistics.median(added), "ms", 15.0, low, high),
        Row("import", "as -X importtime counts it: best", min(counted), "ms", 15.0),
    ]
