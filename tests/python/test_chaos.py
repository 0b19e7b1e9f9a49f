"""Failures of destinations change neither the steps nor the end of a training.

Each disturbed run has an undisturbed one at the same time (`paired_runs.py`), and lost records are counted.
`test_otlp.py`, `test_prometheus.py` and `test_pipe.py` test the delivered data and the notices.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from otlp_collectors import (
    Answer,
    garbage,
    hang,
    http_collector,
    otlp_environment,
    reset,
    rude_server,
)
from paired_runs import PATIENT, assert_undisturbed, run_side_by_side
from promserver import address_of, scrape
from running import Programs, Record, Started, free_port, of_kind, wait_until

DROPPED = "headspace.agent.dropped"


def counted(records: list[Record], what: str) -> float:
    """The last recorded number of dropped `exports`, `records` or `lines`."""
    agents = [tick["readings"].get("agent", {}) for tick in of_kind(records, "tick")]
    dropped = [agent[f"{DROPPED}.{what}"] for agent in agents if f"{DROPPED}.{what}" in agent]
    return float(dropped[-1]) if dropped else 0.0


# --- A collector -------------------------------------------------------------------------------


@contextmanager
def refusing() -> Iterator[int]:
    yield free_port()


@contextmanager
def answering(answer: Answer) -> Iterator[int]:
    with http_collector(lambda _: answer) as collector:
        yield collector.port


COLLECTORS: dict[str, Callable[[], AbstractContextManager[int]]] = {
    "refuses": refusing,
    "hangs": lambda: rude_server(hang),
    "resets": lambda: rude_server(reset),
    "tells garbage": lambda: rude_server(garbage),
    "answers 429": lambda: answering(Answer(429, {"Retry-After": "60"})),
    "answers 503": lambda: answering(Answer(503, {"Retry-After": "1"})),
}


CASES = [
    (protocol, manner)
    for protocol in ("http/protobuf", "grpc")
    for manner in COLLECTORS
    # gRPC has no HTTP status codes.
    if protocol != "grpc" or not manner.startswith("answers")
]


@pytest.mark.parametrize(("protocol", "manner"), CASES)
def test_a_misbehaving_collector_delays_neither_steps_nor_the_end(
    protocol: str, manner: str, program: Programs
) -> None:
    with COLLECTORS[manner]() as port:
        env = otlp_environment(port, OTEL_EXPORTER_OTLP_PROTOCOL=protocol, **PATIENT)
        pair = run_side_by_side(program, "exported.py", last="steps 200", env=env)
    assert_undisturbed(pair)
    if manner == "hangs":
        # Within the time limits, only the last delivery is lost. No record comes after it.
        assert "did not answer the last export" in pair.troubled.stderr
    else:
        assert counted(pair.troubled.records(), "exports") > 0


def test_a_script_that_waits_for_a_hanging_collector_fails_the_comparison(
    program: Programs,
) -> None:
    with rude_server(hang) as port:
        asks = ("--ask", f"http://127.0.0.1:{port}")
        env = {"HEADSPACE_INTERVAL": "0.1"}
        pair = run_side_by_side(
            program, "exported.py", last="steps 200", env=env, troubled_args=asks
        )
    with pytest.raises(AssertionError, match="longest_ms"):
        assert_undisturbed(pair, patience=2)


# --- A disk ------------------------------------------------------------------------------------


def test_a_full_disk_with_all_destinations_loses_only_records(
    program: Programs, mounted: Path, tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    reader = Reader(path)
    with http_collector() as received:
        env = otlp_environment(received.port, HEADSPACE_INTERVAL="0.01")
        env["HEADSPACE_EXPORT"] = f"otlp,prometheus:0,textfile:{mounted},pipe:unix:{path}"
        how = {"runs": mounted / "runs"}
        pair = run_side_by_side(program, "exported.py", last="steps 200", env=env, **how)
    read = reader.all()

    assert os.statvfs(mounted).f_bavail == 0, "the disk is full"
    assert_undisturbed(pair, read)
    summary = of_kind(read, "summary")[-1]
    assert summary["dropped"]["records"] > 0
    assert counted(read, "records") > 0
    assert f"dropped    {summary['dropped']['records']} records\n" in pair.troubled.stderr
    # The other destinations received everything.
    points = {p.name: p.value for p in received.points() if p.kind != "exponential_histogram"}
    assert points["headspace.loop.steps"] == 200
    assert points[f"{DROPPED}.records"] > 0


# --- Many stages, and a pipe -------------------------------------------------------------------


class Reader:
    """Reads a socket or a named pipe on another thread, to its end or at most `lines`."""

    def __init__(self, path: Path, lines: int | None = None) -> None:
        self._path, self._lines = path, lines
        self._read: list[bytes] = []
        self._stream: BinaryIO
        self.socket = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        wait_until(self._opened, "a writer")
        for line in self._stream:
            self._read.append(line)
            if len(self._read) == self._lines:
                return
        self.close()

    def _opened(self) -> bool:
        if self._path.is_fifo():
            self._stream = self._path.open("rb")
        elif self.socket.connect_ex(str(self._path)) == 0:
            self._stream = self.socket.makefile("rb")
        else:
            return False
        return True

    def close(self) -> None:
        self._stream.close()
        self.socket.close()

    def all(self) -> list[Record]:
        """The records that were read. Every line must be whole."""
        self._thread.join()
        assert all(line.endswith(b"\n") for line in self._read)
        return [json.loads(line) for line in self._read]


def calls_by_stage(records: list[Record]) -> Counter[str]:
    calls: Counter[str] = Counter()
    for tick in of_kind(records, "tick"):
        calls.update({stage["name"]: stage["time"]["count"] for stage in tick.get("stages", [])})
    return calls


def calls_in_metrics(text: str) -> Counter[str]:
    """Calls by stage in the metrics for Prometheus."""
    found = re.findall(
        r'^headspace_stage_time_seconds_count\{.*stage="([^"]+)".*\} (\d+)$', text, re.M
    )
    return Counter({stage: int(calls) for stage, calls in found})


@pytest.mark.alone  # The end waits at most half a second for the reader, which is a thread of this process.
def test_a_thousand_stages_and_two_hundred_queues_reach_all_destinations_and_delay_no_step(
    program: Programs, tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    reader = Reader(path)
    scraped: list[str] = []

    def scrape_it(run: Started) -> None:
        run.wait_for("ready")
        address = address_of(run)

        def every_stage() -> bool:
            scraped[:] = [scrape(address)[0]]
            return scraped[0].count("\nheadspace_stage_time_seconds_count{") == 1000

        wait_until(every_stage, "every stage in a scrape")

    with http_collector() as received:
        env = otlp_environment(received.port, HEADSPACE_INTERVAL="0.25")
        env["OTEL_METRIC_EXPORT_INTERVAL"] = "1000"
        env["HEADSPACE_EXPORT"] = f"otlp,prometheus:0,pipe:unix:{path},textfile:{tmp_path}/text"
        pair = run_side_by_side(
            program,
            *("many_stages.py", "--steps", 400),
            last="steps 400",
            env=env,
            during=scrape_it,
        )
    assert_undisturbed(pair)
    records, read = pair.troubled.records(), reader.all()

    calls = calls_by_stage(records)
    assert calls == {f"stage {number}": 16 for number in range(1000)}
    # The reader may connect after the first ticks. From then on, it receives every tick.
    ticks, received_ticks = of_kind(records, "tick"), of_kind(read, "tick")
    assert len(received_ticks) > len(ticks) / 2
    assert received_ticks == ticks[-len(received_ticks) :]
    points = received.points()
    arrived = {
        point.attributes["stage"]: point.point.count
        for point in points
        if point.name == "headspace.stage.time"
    }
    assert arrived == calls
    [file] = (tmp_path / "text").iterdir()
    assert calls_in_metrics(file.read_text()) == calls
    queues = {f"queue {number}" for number in range(200)}
    assert {
        q["name"] for tick in of_kind(records, "tick") for q in tick.get("queues", [])
    } == queues
    depths = [point for point in points if point.name == "headspace.queue.depth"]
    assert {point.attributes["queue"] for point in depths} == queues
    assert scraped[0].count("\nheadspace_queue_depth{") == 200
    assert pair.troubled.summary()["dropped"] == {"steps": 0, "records": 0}
    assert counted(records, "exports") == 0


def test_readers_that_stop_reading_delay_no_step(program: Programs, tmp_path: Path) -> None:
    path, pipe = tmp_path / "socket", tmp_path / "pipe"
    readers = [Reader(path, lines=10), Reader(pipe, lines=10)]
    with http_collector(lambda _: Answer(503, {"Retry-After": "60"})) as received:
        env = otlp_environment(received.port, HEADSPACE_INTERVAL="0.05", **PATIENT)
        env["HEADSPACE_EXPORT"] = f"otlp,pipe:unix:{path},pipe:{pipe}"
        pair = run_side_by_side(
            program, *("many_stages.py", "--steps", 400), last="steps 400", env=env
        )
    assert_undisturbed(pair)
    for reader in readers:
        assert len(reader.all()) == 10
        reader.close()
    assert counted(pair.troubled.records(), "lines") > 20
    # The collector demands a pause of a minute: only the attempted deliveries are lost.
    assert counted(pair.troubled.records(), "exports") <= len(received.arrived)
    assert calls_by_stage(pair.troubled.records()).total() == 16_000
    assert pair.troubled.summary()["dropped"] == {"steps": 0, "records": 0}
