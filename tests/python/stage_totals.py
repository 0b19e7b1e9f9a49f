"""Stages and queues of a run, added up over the ticks of its records."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from running import Record, of_kind, read_records

import headspace


def bucket_start_ns(index: int) -> int:
    """The lower bound of a histogram bucket, as the schema defines it."""
    if index < 256:
        return index
    scale = index // 128 - 1
    return (index - 128 * scale) << scale


@dataclass
class Stage:
    """The totals of one stage over all ticks."""

    calls: int = 0
    items_in: int = 0
    items_out: int = 0
    failures: int = 0
    bytes: int | None = None
    time_ms: float = 0.0
    cpu_ms: float = 0.0
    nested_ms: float = 0.0
    peak: int = 0
    concurrency: int | None = None
    within: str | None = None
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, tick: Record) -> None:
        calls = tick["time"]["count"]
        failures = tick.get("failures", 0)
        self.calls += calls
        self.failures += failures
        self.items_in += tick.get("items_in", calls)
        self.items_out += tick.get("items_out", calls - failures)
        if "bytes" in tick:
            self.bytes = (self.bytes or 0) + tick["bytes"]
        self.time_ms += tick["time"]["sum_ms"]
        self.cpu_ms += (tick.get("cpu_ms") or (0.0, 0.0))[0]
        self.nested_ms += tick.get("nested_ms", 0.0)
        self.peak = max(self.peak, tick["peak"])
        self.concurrency = tick.get("concurrency")
        self.within = tick.get("within")
        index = 0
        for count in tick["time"]["buckets"]:
            if count < 0:
                index -= count
            else:
                self.buckets[index] = self.buckets.get(index, 0) + count
                index += 1

    def percentile_ms(self, share: float) -> float:
        """Lower bound of the bucket that contains the percentile."""
        left = share * self.calls
        for index in sorted(self.buckets):
            left -= self.buckets[index]
            if left <= 0:
                return bucket_start_ns(index) / 1e6
        raise AssertionError("no calls")


def _ticks(session: headspace.Session) -> list[Record]:
    assert session.flush(30)
    return of_kind(read_records(Path(session.folder) / "rank0.jsonl", unfinished=True), "tick")


def stages(session: headspace.Session) -> dict[str, Stage]:
    """The totals of the stages of this process so far."""
    found: dict[str, Stage] = {}
    for tick in _ticks(session):
        for entry in tick.get("stages", []):
            if "worker" not in entry:
                found.setdefault(entry["name"], Stage()).add(entry)
    return found


def stage(session: headspace.Session, name: str) -> Stage:
    return stages(session).get(name, Stage())


def queue_entries(session: headspace.Session, name: str) -> list[Record]:
    """The entries of a queue in all ticks."""
    return [
        entry
        for tick in _ticks(session)
        for entry in tick.get("queues", [])
        if entry["name"] == name
    ]
