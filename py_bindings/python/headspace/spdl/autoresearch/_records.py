"""What a job's records say: how far it is while it runs, and what came out of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Measured", "Progress", "measured"]

Record = dict[str, Any]

#: A report takes a fraction of a second; of a long run with many ranks, some.
_REPORT_S = 120.0


class Progress:
    """How far a job is, by the lines that were added to its records since the last look.

    The records themselves grow all the time. A job gets on when its loops take batches.
    """

    def __init__(self, records: Path) -> None:
        self._records = records
        #: By rank's file: which file that is, and how much of it was read.
        self._read: dict[Path, tuple[int, int]] = {}
        self._probed: set[Path] = set()
        #: Batches that all loops of all ranks took.
        self.steps = 0

    @property
    def text(self) -> str | None:
        """None before the first batch."""
        return f"{self.steps} batches" if self.steps else None

    @property
    def is_probed(self) -> bool:
        """Whether every rank's probe is done."""
        return bool(self._read) and len(self._probed) == len(self._read)

    def look(self) -> None:
        """Reads what is new."""
        for path in self._records.glob("*/rank*.jsonl"):
            if not path.stem.removeprefix("rank").isdigit():
                continue  # An older part: it was read when it was the newest.
            for record in self._new(path):
                kind = record.get("kind")
                if kind == "tick":
                    self.steps += sum(loop.get("steps", 0) for loop in record.get("loops", ()))
                elif kind == "probe":
                    self._probed.add(path)

    def _new(self, path: Path) -> Iterator[Record]:
        try:
            with path.open("rb") as file:
                known, offset = self._read.get(path, (-1, 0))
                inode = path.stat().st_ino
                file.seek(offset if inode == known else 0)
                text = file.read()
                whole = text.rfind(b"\n") + 1
                self._read[path] = (inode, file.tell() - len(text) + whole)
        except OSError:
            return
        yield from _lines(text[:whole])


@dataclass(frozen=True)
class Measured:
    """What a job's records tell once it has ended."""

    summary: Record
    """The last ``summary`` record; empty where nothing was measured."""
    verdict: str
    """As ``headspace report`` prints it."""
    run: Record
    """The ``run`` record of the first rank."""
    sm: list[float] = field(default_factory=list)
    """SM utilisation as it was read tick by tick, over all GPUs and ranks, in percent."""

    @property
    def steps(self) -> int:
        """Batches that the training loop took."""
        return int(self.summary.get("steps") or 0)

    @property
    def ranks(self) -> int:
        """Processes that trained together."""
        together = self.summary.get("ranks") or {}
        return max(1, int(together.get("read") or 1))


def measured(records: Path) -> Measured:
    """Reads the records of a job. Where its command left several runs, the longest counts."""
    best: tuple[int, Path, Record] | None = None
    for folder in sorted(path for path in records.glob("*") if path.is_dir()):
        text = _report("--json", str(folder))
        try:
            summary = json.loads(text)
        except ValueError:
            continue
        steps = int(summary.get("steps") or 0)
        if best is None or steps > best[0]:
            best = (steps, folder, summary)
    if best is None:
        return Measured({}, "", {})
    _, folder, summary = best
    run: Record = {}
    sm: list[float] = []
    for path in sorted(folder.glob("rank*.jsonl")):
        for record in _lines(path.read_bytes()):
            if record.get("kind") == "run" and not run:
                run = record
            elif record.get("kind") == "tick":
                sm.extend(_sm(record))
    return Measured(summary, _report(str(folder)), run, sm)


def _sm(tick: Record) -> Iterator[float]:
    for scope, readings in tick.get("readings", {}).items():
        if not scope.startswith("gpu:"):
            continue
        for name, value in readings.items():
            if name.partition("{")[0] == "headspace.gpu.sm.utilization" and value is not None:
                yield 100.0 * value


def _lines(text: bytes) -> Iterator[Record]:
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # Cut by a kill.
        if isinstance(record, dict):
            yield record


def _report(*args: str) -> str:
    """What ``headspace report`` prints; empty where it finds nothing."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "headspace", "report", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_REPORT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout
