"""A probe with pauses, with several sessions and with an early end, and its notices about its cache."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from running import Record, read_records, wait_until

import headspace
from headspace._caching.fingerprint import fingerprint


def records(session: headspace.Session) -> list[Record]:
    return read_records(Path(session.folder) / "rank0.jsonl", unfinished=True)


def start(path: Path) -> headspace.Session:
    return headspace.start(to=headspace.JsonLines(path), quiet=True)


def test_a_paused_probe_delivers_no_cached_batch(tmp_path: Path) -> None:
    loader = headspace.wrap(list(range(600)), mode="probe", probe_steps=400)
    seen = []
    with start(tmp_path) as session:
        for step, batch in enumerate(loader):
            if step == 60:
                session.pause()
            seen.append(batch)
            time.sleep(0.0002)

    assert seen[60:] == list(range(seen[60], 600))


def test_a_probe_that_continues_after_a_pause_loses_no_batch(tmp_path: Path) -> None:
    loader = headspace.wrap(list(range(1500)), mode="probe", probe_steps=400, exactly_once=True)
    live: list[int] = []
    with start(tmp_path) as session:
        for step, batch in enumerate(loader):
            if step % 100 == 50:
                session.pause()
            if step % 100 == 60:
                session.resume()
            if not live or batch == live[-1] + 1:
                live.append(batch)
            time.sleep(0.0002)

    assert live == list(range(1500))


def test_a_finished_probe_is_not_announced_again(tmp_path: Path) -> None:
    loader = headspace.wrap(list(range(2000)), mode="probe", probe_steps=300)
    notices = []
    for _ in range(2):
        with start(tmp_path) as session:
            for _batch in loader:
                time.sleep(0.0002)
        notices.append([r for r in records(session) if r.get("code") == "probe_begins"])

    assert [len(said) for said in notices] == [1, 0]
    assert records(session)[-1]["mode"] == "measure"


def test_replayed_steps_are_counted_when_the_probe_is_left_early(tmp_path: Path) -> None:
    loader = headspace.wrap(list(range(5000)), mode="probe", probe_steps=1000)
    seen: list[int] = []
    with start(tmp_path) as session:
        for batch in loader:
            seen.append(batch)
            time.sleep(0.0002)
            if len(seen) - len(set(seen)) == 10:
                break

    (probe,) = (r for r in records(session) if r["kind"] == "probe")
    assert probe["replayed_steps"] == 10


def test_a_batch_with_an_empty_array_is_still_checked_for_changes() -> None:
    batch = {"image": np.zeros((4, 4)), "boxes": np.zeros((0, 4))}
    before = fingerprint(batch)
    batch["image"] += 1

    assert fingerprint(batch) != before


@pytest.mark.parametrize("run_id", ["../out", "/tmp/out", "a/b", "", "."])
def test_a_run_id_must_be_a_single_path_component(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(ValueError, match="run_id"):
        headspace.start(to=headspace.JsonLines(tmp_path / "runs"), run_id=run_id)

    assert not (tmp_path / "runs").exists()


def test_the_run_record_is_written_before_the_first_tick(tmp_path: Path) -> None:
    session = headspace.start(to=headspace.JsonLines(tmp_path), quiet=True, interval=3600)
    try:
        iterator = iter(headspace.wrap([1, 2, 3], name="train"))
        next(iterator)
        wait_until(lambda: records(session), "the first record")
        first = records(session)[0]
    finally:
        session.stop()

    assert first["kind"] == "run"
    assert first["loader"]["name"] == "train"
    assert first["mode"] == "measure"


def test_a_signal_handler_that_chains_to_headspace_between_two_sessions_does_not_recurse(
    tmp_path: Path,
) -> None:
    program = (
        "import faulthandler, headspace, os, signal, sys, time\n"
        "headspace.start(quiet=True)\n"
        "faulthandler.register(signal.SIGTERM, chain=True)\n"
        "headspace.stop()\n"
        "headspace.start(quiet=True)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(30)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "HEADSPACE": "1"},
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == -signal.SIGTERM


def test_an_unfinished_epoch_is_recorded_at_the_end_of_the_run(tmp_path: Path) -> None:
    with start(tmp_path) as session:
        iterator = iter(headspace.wrap(list(range(100))))
        for _ in range(7):
            next(iterator)

    (epoch,) = (r for r in records(session) if r["kind"] == "epoch")
    assert epoch["steps"] == 7
    assert epoch["exhausted"] is False
