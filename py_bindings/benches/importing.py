"""Measures how much `import headspace` and `headspace run` delay the start of a program, in new processes."""

from __future__ import annotations

import importlib.util
import os
import re
import statistics
import subprocess
import sys
import time

from rows import Row, bootstrap


def _start(code: str, *under: str) -> float:
    """Milliseconds from start to end of a Python process that runs `code`. `under` is the launcher's command."""
    begin = time.perf_counter()
    subprocess.run([*under, sys.executable, "-c", code], check=True)
    return (time.perf_counter() - begin) * 1e3


def _importtime() -> float:
    """Milliseconds of the import as the interpreter counts them, with the modules that headspace imports."""
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


#: How a program is started: its code, then the launcher's command.
Begun = tuple[str, ...]


def _in_turns(begun: list[Begun], turns: int) -> list[list[float]]:
    """Milliseconds of each start. The order alternates. One start of each comes first and is not measured."""
    times: list[list[float]] = [[] for _ in begun]
    for one in begun:
        _start(*one)
    for turn in range(turns):
        order = list(zip(begun, times))
        for one, known in reversed(order) if turn % 2 else order:
            known.append(_start(*one))
    return times


def launched(quick: bool) -> list[Row]:
    """Measures how much `headspace run` delays a command, with OpenTelemetry's launcher as the reference.

    If PyTorch is installed, a command that imports its data loader is measured, too.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    scripts = os.path.dirname(sys.executable)
    os.environ["PATH"] = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
    ours, peer = ("headspace", "run", "--"), "opentelemetry-instrument"
    bare, mine, theirs = _in_turns(
        [("pass",), ("pass", *ours), ("pass", peer)], 10 if quick else 40
    )
    other = statistics.median(b - a for a, b in zip(bare, theirs))
    added, low, high = _added(bare, mine)
    what = "`headspace run -- python -c pass`, minus without: median"
    rows = [Row("run", what, added, "ms", 1.0, low, high, peer, added / other)]
    if importlib.util.find_spec("torch") is not None:
        code = "import torch.utils.data"
        added, low, high = _added(*_in_turns([(code,), (code, *ours)], 3 if quick else 12))
        what = f"the same of a program that does `{code}`"
        rows.append(Row("run", what, added, "ms", None, low, high))
    return rows


def _added(without: list[float], having: list[float]) -> tuple[float, float, float]:
    """Median of the added time, and its interval."""
    added = [b - a for a, b in zip(without, having)]
    return (statistics.median(added), *bootstrap(added, statistics.median))


def run(quick: bool) -> list[Row]:
    # Byte code must be cached: installers compile it, and a source tree compiles it at the first import.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    bare, importing = _in_turns([("pass",), ("import headspace",)], 10 if quick else 60)
    added, low, high = _added(bare, importing)
    counted = [_importtime() for _ in range(5 if quick else 20)]
    what = "a process that imports, minus one that does not"
    return [
        Row("import", f"{what}: best", min(importing) - min(bare), "ms", 15.0),
        Row("import", f"{what}: median", added, "ms", 15.0, low, high),
        Row("import", "as -X importtime counts it: best", min(counted), "ms", 15.0),
    ]
