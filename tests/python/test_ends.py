"""The records and the verdict say what ended a run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from running import Programs


@pytest.mark.parametrize("how", ["uncaught", "with"])
def test_an_uncaught_exception_is_in_the_records_and_the_verdict(
    program: Programs, how: str
) -> None:
    run = program("ends_by.py", "--how", how)

    assert run.exit_code == 1
    assert "\nValueError: no\n" in run.stderr, "the traceback is Python's"
    assert "ended      An uncaught ValueError ended the run." in run.stderr
    summary = run.summary()
    assert summary["state"] == "finished"
    assert summary["ended_by"] == {"cause": "exception", "name": "ValueError"}
    assert run.kind("notice") == [], "nothing was repeated, so nothing is said of a probe"


@pytest.mark.parametrize("how", ["caught", "exit"])
def test_a_program_that_ends_normally_has_no_cause_of_end_in_its_summary(
    program: Programs, how: str
) -> None:
    run = program("ends_by.py", "--how", how)

    assert run.exit_code == (3 if how == "exit" else 0)
    assert "ended_by" not in run.summary()


def test_a_probed_epoch_that_ends_in_an_exception_says_so_in_one_line(program: Programs) -> None:
    run = program("ends_by.py", "--steps", 190, env={"HEADSPACE_MODE": "probe"})

    assert run.exit_code == 1
    said = [line for line in run.stderr.splitlines() if "`ValueError` ended the run" in line]
    repeated = run.summary()["replayed_steps"]
    assert repeated > 0
    assert said == [
        f"headspace: `ValueError` ended the run in mode `probe`. {repeated} batches were repeated in "
        "this epoch of `train`. To see whether the error also occurs without repeated batches, run again with "
        "`HEADSPACE_MODE=measure`."
    ]
    assert run.stderr.index("Traceback") < run.stderr.index(said[0])
    assert f"repeated   {repeated} of 190 steps trained on batches that were repeated" in run.stderr


def test_a_signal_that_ends_the_run_is_named(program: Programs, tmp_path: Path) -> None:
    run = program.start(
        "loop.py", *("--say", 5, "--load-ms", 1, "--until", tmp_path / "never"), env={}
    )
    run.wait_for("ready")
    run.send(signal.SIGTERM)
    ran = run.finish()

    assert ran.summary()["ended_by"] == {"cause": "signal", "name": "SIGTERM"}
    assert "ended      SIGTERM ended the run." in ran.stderr


def test_an_interrupted_probe_is_no_error(program: Programs) -> None:
    run = program("ends_by.py", "--how", "interrupt", env={"HEADSPACE_MODE": "probe"})

    assert run.summary()["ended_by"]["name"] == "KeyboardInterrupt"
    assert [notice["code"] for notice in run.kind("notice")] == ["probe_begins"]
