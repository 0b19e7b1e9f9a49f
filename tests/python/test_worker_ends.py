"""Notices about ended worker processes: none if the loader ended them, otherwise one line."""

from __future__ import annotations

import pytest
from running import Programs

pytest.importorskip("torch")

ENDED = [
    "left early",
    "kept and left",
    "terminated",
    "terminated by its loader",
    "too slow to end",
    "by the end of the program",
    "by the end of a program that had its session first",
]


@pytest.mark.parametrize(
    ("how", "method"),
    [*((how, "fork") for how in ENDED), ("terminated", "spawn"), ("terminated", "forkserver")],
)
def test_a_worker_that_the_trainer_ends_is_not_reported(
    program: Programs, how: str, method: str
) -> None:
    ran = program("ended_workers.py", how, method, timeout=120.0)

    assert ran.exit_code == 0, ran.stderr
    assert "worker_lost" not in ran.notices()


def test_killed_workers_are_reported_in_one_line(program: Programs) -> None:
    ran = program("ended_workers.py", "killed", "fork", timeout=120.0)

    assert ran.exit_code == 0, ran.stderr
    lines = [line for line in ran.stderr.splitlines() if "exited unexpectedly" in line]
    assert len(lines) == 1, ran.stderr
    assert lines[0].startswith(
        "headspace: 6 worker processes exited unexpectedly (killed or crashed)"
    )
    assert ran.notices().count("worker_lost") == 1


def test_a_worker_that_another_process_terminates_is_reported(program: Programs) -> None:
    ran = program("ended_workers.py", "terminated by another process", "fork", timeout=120.0)

    assert ran.notices().count("worker_lost") == 1
