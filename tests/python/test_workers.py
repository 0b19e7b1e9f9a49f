"""Stages in worker processes, in the trainer's records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from running import Programs, Ran, Runs

METHODS = ["fork", "spawn", "forkserver"]

#: The default folder of the trainers' marker files.
MARKERS = Path(f"/dev/shm/headspace-{os.getuid()}")


def calls(run: Runs, stage: str = "work") -> Counter[str | None]:
    """Calls of a stage by worker, from the ticks."""
    counted: Counter[str | None] = Counter()
    for tick in run.kind("tick"):
        for entry in tick.get("stages", []):
            if entry["name"] == stage:
                counted[entry.get("worker")] += entry["time"].get("count", 0)
    return counted


def left_behind(run: Ran) -> list[str]:
    """The files that the trainer of the only run has left behind."""
    pid = run.kind("run")[0]["pid"]
    return [name for name in markers() if name.split("-")[1] == str(pid)]


def markers() -> list[str]:
    """Files of all trainers. The last trainer to end removes the folder."""
    try:
        return os.listdir(MARKERS)
    except FileNotFoundError:
        return []


def ran(program: Programs, method: str, how: str, **options: Any) -> Ran:
    run = program("stage_workers.py", method, how, **options)
    assert (run.exit_code, run.stdout) == (0, "done\n"), run.stderr
    return run


@pytest.mark.parametrize("method", METHODS)
def test_every_process_has_its_own_counts(program: Programs, method: str) -> None:
    run = ran(program, method, "processes")

    assert sorted(calls(run).values()) == [50, 50, 50]
    assert all(str(worker).startswith("pid ") for worker in calls(run))
    assert "worker_lost" not in run.notices()
    assert left_behind(run) == []


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", ["executor", "pool"])
def test_workers_of_a_pool_are_counted_and_end_as_without_headspace(
    program: Programs, method: str, how: str
) -> None:
    run = ran(program, method, how)

    assert calls(run, "square").total() == 40
    assert None not in calls(run, "square")
    assert "worker_lost" not in run.notices()
    assert left_behind(run) == []


@pytest.mark.parametrize("method", METHODS)
def test_calls_of_a_grandchild_are_counted_for_the_same_trainer(
    program: Programs, method: str
) -> None:
    run = ran(program, method, "grandchild")

    assert sorted(calls(run).values()) == [11, 20]
    assert "worker_lost" not in run.notices()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", ["kill", "exit", "segfault"])
def test_a_worker_that_dies_within_a_stage_keeps_its_earlier_counts(
    program: Programs, method: str, how: str
) -> None:
    run = ran(program, method, how)

    assert list(calls(run).values()) == [30]
    assert run.notices().count("worker_lost") == 1
    assert left_behind(run) == []


def test_no_call_of_short_successive_workers_is_lost(program: Programs) -> None:
    run = ran(program, "fork", "short", env={"HEADSPACE_INTERVAL": "20ms"})

    assert list(calls(run).values()) == [5] * 64
    assert "worker_lost" not in run.notices()
    assert left_behind(run) == []


def test_a_small_file_size_limit_stops_counting_but_not_training(program: Programs) -> None:
    run = ran(program, "fork", "small_files")

    assert calls(run).total() == 0
    assert left_behind(run) == []


@pytest.mark.parametrize("size_k", [4, 16, 40])
def test_a_full_disk_kills_no_worker_and_no_trainer(program: Programs, size_k: int) -> None:
    """The disk has room for no file, for one file without slots, or for one of three workers.

    The workers start one after another. If they started at once, each could take a part of the room, and none
    would have enough.
    """
    small = f"mount -t tmpfs -o size={size_k}k tmpfs /dev/shm"
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*alone, small], check=False, capture_output=True).returncode:
        pytest.skip("platform: no mounts in a namespace of one's own")
    python = [*alone, f'{small} && exec "$0" "$@"', sys.executable]

    run = ran(program, "fork", "one_after_another", python=python)

    counted = calls(run)
    assert len(counted) == {4: 0, 16: 0, 40: 1}[size_k]
    assert set(counted.values()) <= {50}


def test_calls_of_a_bare_fork_are_counted_and_its_exit_is_reported_once(program: Programs) -> None:
    run = ran(program, "fork", "bare_fork")

    assert list(calls(run).values()) == [10]
    assert run.notices().count("worker_lost") == 1


def test_a_call_that_spans_a_fork_is_counted_for_the_parent(program: Programs) -> None:
    run = ran(program, "fork", "fork_within_a_stage")

    counted = calls(run)
    assert counted.pop(None) == 1
    assert list(counted.values()) == [1]


def test_calls_of_a_program_that_the_trainer_starts_are_counted(program: Programs) -> None:
    run = ran(program, "fork", "program")

    assert list(calls(run).values()) == [10]
    assert "worker_lost" not in run.notices()


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_started_before_the_session_is_counted_in_the_current_session(
    program: Programs, method: str
) -> None:
    run = program("stage_workers.py", method, "earlier")

    assert run.exit_code == 0, run.stderr
    first, second = (Folder(run.path, folder) for folder in run.folders)
    assert calls(first).total() >= 25
    assert calls(second).total() >= 25


def test_with_headspace_0_workers_count_nothing(program: Programs) -> None:
    run = program("stage_workers.py", "fork", "processes", env={"HEADSPACE": "0"})

    assert (run.exit_code, run.stdout, run.folders) == (0, "done\n", [])


def test_the_next_trainer_removes_the_files_of_a_killed_one(program: Programs) -> None:
    started = program.start("loop.py", "--until", "/nowhere", "--load-ms", 1, "--say", 5)
    started.wait_for("ready")
    mark = f"-{started.process.pid}-"
    # After the end, a session of another test may remove the files.
    assert any(mark in name for name in markers())
    started.send(signal.SIGKILL)
    started.finish()

    program("stage_workers.py", "fork", "processes")

    assert not any(mark in name for name in markers())


class Folder(Runs):
    """One of several runs."""

    def __init__(self, path: Path, folder: Path) -> None:
        super().__init__(path)
        object.__setattr__(self, "_folder", folder)

    @property
    def folder(self) -> Path:
        folder: Path = self._folder  # type: ignore[attr-defined]
        return folder
