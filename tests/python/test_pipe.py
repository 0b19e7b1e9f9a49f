"""Records for a reader in another process, through a named pipe or a socket."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import socket
import stat
from pathlib import Path
from typing import BinaryIO

import pytest
from running import Programs, Record, Runs, Started, wait_until

import headspace


def lines(stream: BinaryIO, count: int) -> list[Record]:
    """The next `count` records. Each line must be whole."""
    found = []
    for _ in range(count):
        line = stream.readline()
        assert line.endswith(b"\n"), f"cut: {line!r}"
        found.append(json.loads(line))
    return found


def until_end(stream: BinaryIO) -> list[Record]:
    text = stream.read()
    assert text.endswith(b"\n")
    return [json.loads(line) for line in text.splitlines()]


def connected(path: Path) -> socket.socket:
    reader = socket.socket(socket.AF_UNIX)
    reader.settimeout(60)
    reader.connect(str(path))
    return reader


def training(program: Programs, stop: Path, at: str, *, interval: str = "0.05") -> Started:
    """A training that writes its records to the pipe until the file `stop` exists."""
    run = program.start(
        "loop.py",
        *("--until", stop, "--load-ms", 2, "--say", 50),
        env={"HEADSPACE_EXPORT": at, "HEADSPACE_INTERVAL": interval},
    )
    run.wait_for("ready")
    return run


def test_a_new_reader_receives_the_run_the_last_summary_and_then_the_lines_of_the_file(
    program: Programs, tmp_path: Path
) -> None:
    pipe, stop = tmp_path / "records", tmp_path / "stop"
    run = training(program, stop, f"pipe:{pipe}")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert pipe.stat().st_mode & 0o077 == 0
    wait_until(lambda: run.kind("summary"), "a summary")

    with open(pipe, "rb") as reader:
        first, second, *rest = lines(reader, 12)
        assert (first["kind"], second["kind"]) == ("run", "summary")
        stop.touch()
        rest += until_end(reader)
    ran = run.finish()

    assert ran.exit_code == 0
    written = ran.records()
    assert all(record in written for record in (first, second, *rest))
    # From `rest[0]` on, the reader got every record, including the last one.
    tail = written[written.index(rest[0]) :]
    assert rest == tail
    assert rest[-1]["kind"] == "summary"
    assert rest[-1]["state"] == "finished"
    assert ran.summary()["dropped"]["records"] == 0


def test_readers_may_connect_and_leave_during_training(program: Programs, tmp_path: Path) -> None:
    path, stop = tmp_path / "socket", tmp_path / "stop"
    run = training(program, stop, f"pipe:unix:{path}")
    wait_until(lambda: run.kind("summary"), "a summary")
    for _ in range(3):
        with connected(path) as one, connected(path) as two:
            streams = one.makefile("rb"), two.makefile("rb")
            for stream in streams:
                kinds = [record["kind"] for record in lines(stream, 6)]
                assert kinds[:2] == ["run", "summary"]
                assert "tick" in kinds
    stop.touch()
    ran = run.finish()

    assert ran.exit_code == 0
    assert ran.summary()["dropped"] == {"steps": 0, "records": 0}
    assert not path.exists()


def test_records_lost_to_a_stopped_reader_are_counted_and_training_continues(
    program: Programs, tmp_path: Path
) -> None:
    path, stop = tmp_path / "socket", tmp_path / "stop"
    run = training(program, stop, f"pipe:unix:{path}", interval="0.01")
    wait_until(path.exists, "a socket")
    with connected(path) as reader:

        def last_tick() -> Record:
            tail = (run.folder / "rank0.jsonl").read_bytes()[-200_000:].splitlines()[1:-1]
            ticks = (json.loads(line) for line in reversed(tail) if b'"kind":"tick"' in line)
            return next(ticks, {"tick": 0, "readings": {}})

        def lost() -> float:
            agent = last_tick()["readings"].get("agent", {})
            return float(agent.get("headspace.agent.dropped.lines", 0))

        wait_until(lambda: lost() > 50, "drops", timeout=120)
        number = last_tick()["tick"]
        wait_until(lambda: last_tick()["tick"] > number + 20, "training going on")
        # The reader reads whole lines until it has caught up. After that, no record is lost.
        stream, received = reader.makefile("rb"), []
        number = last_tick()["tick"]
        while not any(record.get("tick", 0) > number for record in received[-1:]):
            received += lines(stream, 1)
        stop.touch()
        received += until_end(stream)
    ran = run.finish()

    assert ran.exit_code == 0
    summary = ran.summary()
    assert summary["dropped"] == {"steps": 0, "records": 0}
    assert "reader_too_slow" in ran.notices()
    # The reader got the run record, a summary, and then all written records in order, except the counted losses.
    written, (run_record, summary_record, *rest) = ran.records(), received
    assert run_record == written[0]
    assert summary_record in written
    remaining = iter(written[written.index(rest[0]) :])
    missing = 0
    for record in rest:
        missing += sum(1 for _ in itertools.takewhile(record.__ne__, remaining))
    key = "headspace.agent.dropped.lines"
    totals = [t["readings"].get("agent", {}).get(key) for t in ran.kind("tick")]
    assert missing == [total for total in totals if total is not None][-1]
    assert missing > 50
    assert rest[-1] == written[-1]
    # No step is missing in the ticks.
    live = [e for t in ran.kind("tick") for e in t["loops"]]
    assert sum(entry["steps"] for entry in live) == summary["steps"]


def test_a_pipe_without_a_reader_loses_no_record(program: Programs, tmp_path: Path) -> None:
    ran = program(
        "loop.py",
        *("--steps", 100, "--load-ms", 1),
        env={"HEADSPACE_EXPORT": f"pipe:{tmp_path}/records", "HEADSPACE_INTERVAL": "0.01"},
    )
    assert ran.exit_code == 0
    assert ran.summary()["dropped"] == {"steps": 0, "records": 0}


def test_a_forked_child_neither_writes_nor_ends_the_stream(runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    headspace.start(to=headspace.Pipe(path, socket=True), interval=0.01)
    with connected(path) as reader:
        stream = reader.makefile("rb")
        lines(stream, 5)
        child = multiprocessing.get_context("fork").Process(target=headspace.stop)
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert path.exists()
        lines(stream, 5)
        headspace.stop()
        received = until_end(stream)
    assert {record["pid"] for record in received} == {os.getpid()}
    assert received[-1]["state"] == "finished"


def test_a_paused_session_writes_nothing_to_the_pipe(runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    session = headspace.start(to=headspace.Pipe(path, socket=True), interval=0.01)
    with connected(path) as reader:
        stream = reader.makefile("rb")
        lines(stream, 5)
        session.pause()
        headspace.step()
        session.resume()
        lines(stream, 5)
        headspace.stop()
        assert until_end(stream)[-1]["state"] == "finished"


def test_a_pipe_that_others_can_write_to_is_refused_with_a_remedy(
    runs: Runs, tmp_path: Path
) -> None:
    path = tmp_path / "records"
    os.mkfifo(path)
    path.chmod(0o622)
    with pytest.raises(OSError, match=r"others may write to \(mode 622\).*chmod go-w"):
        headspace.start(to=headspace.Pipe(path))
    path.chmod(0o600)
    headspace.start(to=headspace.Pipe(path)).stop()


def test_an_existing_file_at_the_path_of_the_pipe_is_named(
    runs: Runs, program: Programs, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    with pytest.raises(OSError, match="mine"):
        headspace.start(to=headspace.Pipe(mine))
    with pytest.raises(OSError, match="mine"):
        headspace.start(to=headspace.Pipe(mine, socket=True))
    assert mine.read_text() == "mine"

    ran = program("loop.py", env={"HEADSPACE_EXPORT": f"pipe:{mine},pipe:"})
    assert ran.exit_code == 0
    assert "setting_refused" in ran.notices()
    assert os.fspath(mine) in ran.stderr
