"""Lines of the program from sampled stacks: the named lines, their gains, and when the source is off."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from headspace_run import HEADSPACE
from running import PACKAGE, PROGRAMS, VERSIONS, Programs, Ran, Record, interpreter

SLOW = PROGRAMS / "slow_line.py"

#: Amounts of `slow_line.py` that take 20 ms each on a machine of 2024.
AMOUNTS = {"python": 500_000, "read": 20.0, "lock": 20.0, "sleep": 20.0}


def line_of(kind: str) -> int:
    """Number of the line of this kind of work."""
    lines = enumerate(SLOW.read_text().splitlines(), 1)
    (number,) = (number for number, text in lines if text.endswith(f"  # {kind}"))
    return number


def ran(
    program: Programs,
    layout: str,
    slow: str,
    steps: int = 450,
    name: str = SLOW.name,
    **how: Any,
) -> Ran:
    """A run whose slow line is of this kind. Another line takes a tenth of its time."""
    other = "sleep" if slow != "sleep" else "lock"
    spec: dict[str, Any] = {
        "layout": layout,
        "slow": slow,
        "amounts": {slow: AMOUNTS[slow], other: 2.0},
        "concurrency": 1,
        "compute_ms": 1.0,
        "steps": steps,
    }
    if layout == "compute":
        spec |= {"compute": spec["amounts"], "amounts": {"sleep": 1.0}}
    run = program(name, json.dumps(spec), **how)
    assert run.exit_code == 0, run.stderr
    return run


def top_line(run: Ran) -> Record:
    summary = run.summary()
    assert summary["lines"], (run.stderr, run.notices())
    line = summary["lines"][0]
    assert Path(line["file"]).name == SLOW.name
    assert line["predicted_step_ms"] < 0.8 * summary["steady_step_mean_ms"]
    return dict(line)


@pytest.mark.parametrize(
    ("layout", "slow", "kind", "waits_for"),
    [
        ("inline", "python", "python", None),
        ("threads", "read", "wait", "connection"),
        ("pool", "sleep", "wait", "timer"),
        ("threads", "lock", "wait", "lock"),
    ],
)
def test_the_slow_line_of_a_stage_is_named(
    program: Programs, layout: str, slow: str, kind: str, waits_for: str | None
) -> None:
    line = top_line(ran(program, layout, slow))
    assert (line["stage"], line["line"]) == ("load", line_of(slow))
    assert (line["function"], line["kind"], line.get("waits_for")) == (slow, kind, waits_for)
    assert line["share_pct"] > 60


def test_the_slow_line_of_the_loop_itself_is_named(program: Programs) -> None:
    run = ran(program, "compute", "sleep")
    line = top_line(run)
    assert (line["stage"], line["line"], line["kind"]) == (None, line_of("sleep"), "wait")
    assert f"lines      `slow_line.py:{line_of('sleep')}` sleep: " in run.stderr
    assert "% of compute (sleeps); twice as fast gives" in run.stderr


@pytest.mark.slow
def test_the_slow_line_of_torchs_workers_is_named(program: Programs) -> None:
    pytest.importorskip("torch")
    line = top_line(ran(program, "workers", "python", steps=600))
    assert (line["stage"], line["line"]) == ("fetch", line_of("python"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "freed_share"),
    [
        # Other tests on the same cores make the times of the calls less certain.
        pytest.param("file", 0.6, marks=pytest.mark.alone),
        pytest.param("record", 0.6, marks=pytest.mark.alone),
        pytest.param("semaphore", 0.6, marks=pytest.mark.alone),
        pytest.param("threads", 0.6, marks=pytest.mark.alone),
        # They wait by sleeping and trying again, so the lock is free for a part of the time. How long depends on the cores
        # that other tests use.
        pytest.param("filelock", 0.75, marks=pytest.mark.alone),
        pytest.param("database", 0.75, marks=pytest.mark.alone),
    ],
)
def test_workers_that_wait_for_one_lock_get_another_remedy_than_more_workers(
    program: Programs, how: str, freed_share: float
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("filelock")
    pytest.importorskip("spdl")
    spec: dict[str, Any] = {"how": how, "hold_ms": 20, "other_ms": 2, "workers": 4}
    spec |= {"compute_ms": 3, "steps": 500, "separate": False}
    run = program("shared_lock.py", json.dumps(spec), python=[*HEADSPACE, "--", sys.executable])

    summary = run.summary()
    (remedy,) = (found for found in summary["remedies"] if found["code"] == "separate_locks")
    assert remedy["predicted_step_ms"] < freed_share * summary["steady_step_mean_ms"]
    # 4 workers and the lock that one of them holds give a step of 20 ms; more workers do not change that.
    assert "more_workers" not in {found["code"] for found in summary["remedies"]}
    assert "its calls wait for one another's lock" in summary["bottleneck"]["evidence"]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("version", VERSIONS)
def test_threads_that_wait_for_one_lock_get_another_remedy_than_more_threads(
    program: Programs, version: str
) -> None:
    run = program("lock_in_threads.py", 800, python=[interpreter(version)], env=PACKAGE)

    summary = run.summary()
    assert summary["remedies"][0]["code"] == "separate_locks", run.stderr
    assert "its calls wait for one another's lock" in summary["bottleneck"]["evidence"]


def test_the_holder_of_the_interpreter_lock_is_recorded(program: Programs) -> None:
    holders = ran(program, "threads", "python").summary()["gil_holders"]
    assert holders[0]["stage"] == "load"
    assert holders[0]["line"] == line_of("python")
    assert holders[0]["share_pct"] > 50


def test_report_prints_a_table_of_lines(program: Programs) -> None:
    run = ran(program, "inline", "sleep")
    text = subprocess.run(
        [sys.executable, "-m", "headspace", "report", str(run.folder)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = (line for line in text.splitlines() if f" slow_line.py:{line_of('sleep')} " in line)
    (row,) = (line for line in lines if "`" not in line)
    assert row.split()[:2] == [f"slow_line.py:{line_of('sleep')}", "load"]
    assert row.split()[-2:] == ["sleeps", "sleep"]


def test_the_records_contain_the_stacks(program: Programs) -> None:
    stacks = ran(program, "inline", "sleep").kind("stacks")[-1]
    longest = stacks["stacks"][0]
    assert longest["stage"] == "load"
    innermost = stacks["frames"][longest["frames"][-1]]
    outermost = stacks["frames"][longest["frames"][0]]
    assert (innermost["line"], innermost["function"]) == (line_of("sleep"), "sleep")
    assert (outermost["function"], outermost["own"]) == ("<module>", True)


def test_report_writes_the_stacks_for_other_viewers(program: Programs, tmp_path: Path) -> None:
    run = ran(program, "inline", "sleep")
    speedscope, collapsed = tmp_path / "stacks.json", tmp_path / "stacks.txt"
    for option, file in (("--speedscope", speedscope), ("--collapsed", collapsed)):
        subprocess.run(
            [sys.executable, "-m", "headspace", "report", option, str(file), str(run.folder)],
            capture_output=True,
            check=True,
        )

    written = json.loads(speedscope.read_text())
    frames = written["shared"]["frames"]
    (load,) = (profile for profile in written["profiles"] if profile["name"] == "load")
    _, longest = max(zip(load["weights"], load["samples"], strict=True))
    slow = [frame for frame in (frames[number] for number in longest) if frame["name"] == "sleep"]
    assert [frame["line"] for frame in slow] == [line_of("sleep")]
    assert frames[longest[-1]]["name"] == "(sleeps)"

    rows = (row.rpartition(" ") for row in collapsed.read_text().splitlines())
    counts = {stack: int(count) for stack, _, count in rows}
    most = max(counts, key=counts.__getitem__).split(";")
    assert (most[0], most[-1]) == ("load", "(sleeps)")
    assert f"slow_line.py:{line_of('sleep')}" in most[-2]


@pytest.mark.alone  # With three busy workers of pytest, there was once a second row of the sleep.
def test_a_perfetto_trace_has_the_stacks_of_each_stage(program: Programs, tmp_path: Path) -> None:
    test_perfetto = pytest.importorskip("test_perfetto")
    run = ran(program, "inline", "sleep")
    done = test_perfetto.report(run.folder, tmp_path / "run.pftrace")
    assert done.returncode == 0, done.stderr

    slices = test_perfetto.shown(tmp_path / "run.pftrace").slices["rank 0/stacks of load (totals)"]
    name = f"sleep slow_line.py:{line_of('sleep')}"
    # A sample at the end of a sleep finds the thread at the same line, but no longer asleep.
    at_the_line = [part for part in slices if part.name == name]
    assert {part.notes["line"] for part in at_the_line} == {line_of("sleep")}
    (slow,) = (part for part in at_the_line if part.notes["does"] == "sleeps")
    step_ms = run.summary()["lines"][0]["predicted_step_ms"]
    assert slow.notes["step at half, ms"] == pytest.approx(step_ms)
    longest = max(part.end - part.start for part in slices)
    assert slow.end - slow.start == pytest.approx(longest, rel=0.3)


def test_the_time_of_a_call_belongs_to_the_waiting_tasks_of_its_pool(program: Programs) -> None:
    run = program("pool_reads.py")
    assert run.exit_code == 0, run.stderr
    line = run.summary()["lines"][0]
    assert (line["function"], line["waits_for"]) == ("read_part", "timer")


def test_workers_whose_memory_may_not_be_read_cause_one_notice(program: Programs) -> None:
    run = ran(program, "pool", "sleep", steps=400, name="undumpable.py")
    assert all(line["stage"] is None for line in run.summary()["lines"])
    (text,) = (n["text"] for n in run.kind("notice") if n["code"] == "stacks_unreadable")
    assert text.startswith("The stacks of process ")
    assert text.count("Permission denied") == 1


def test_stacks_can_be_turned_off(program: Programs) -> None:
    run = ran(program, "inline", "sleep", steps=60, env={"HEADSPACE_STACKS": "0"})
    assert run.summary()["lines"] == []
    assert run.kind("stacks") == []
    (source,) = (s for s in run.kind("run")[0]["sources"] if s["name"] == "stacks")
    assert (source["state"], source["reason"]) == ("off", "`HEADSPACE_STACKS` turns it off")


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["inline", "pool"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_slow_line_is_named_with_every_version_of_python(
    program: Programs, version: str, layout: str
) -> None:
    run = ran(program, layout, "sleep", python=[interpreter(version)], env=PACKAGE)

    line = top_line(run)
    assert (line["stage"], line["line"]) == ("load", line_of("sleep"))


def test_other_tasks_of_an_event_loop_are_not_lines_of_its_stage(program: Programs) -> None:
    run = program("coroutine_stage.py", 500)
    assert run.exit_code == 0, run.stderr
    stacks = run.kind("stacks")[-1]
    # The stacks of the loop's own code have no stage.
    stages = {stack.get("stage") for stack in stacks["stacks"]}
    assert "fetch" not in stages

    of_decode = [stack for stack in stacks["stacks"] if stack.get("stage") == "decode"]
    innermost = {stacks["frames"][stack["frames"][-1]]["function"] for stack in of_decode}
    assert innermost == {"decode"}, "frames of the generator"


@pytest.mark.alone  # If no core is free, loading in another thread gains nothing.
def test_a_generator_on_the_training_thread_is_the_bottleneck_with_its_lines(
    program: Programs,
) -> None:
    run = program("generator_loader.py")
    assert run.exit_code == 0, run.stderr
    summary = run.summary()

    bottleneck = summary["bottleneck"]
    assert (bottleneck["kind"], bottleneck["name"]) == ("stage", "loader")
    assert "loading runs on the training thread itself" in bottleneck["evidence"]
    assert "background" in [remedy["code"] for remedy in summary["remedies"]]
    line = next(line for line in summary["lines"] if line["stage"] == "loader")
    assert line["function"] == "decode"
    step_ms, wait_ms = summary["steady_step_mean_ms"], summary["wait_ms"]
    assert step_ms - wait_ms < line["predicted_step_ms"] < 0.9 * step_ms


def test_a_generator_that_waits_for_another_thread_is_no_bottleneck(program: Programs) -> None:
    run = program("generator_loader.py", "--waits")
    assert run.exit_code == 0, run.stderr
    summary = run.summary()

    assert summary["wait_ms"] > 1.0
    assert (summary["bottleneck"] or {}).get("name") != "loader"
    assert not [line for line in summary["lines"] if line["stage"] == "loader"]


@pytest.mark.alone  # If other tests use the cores, the short rest of a step becomes long.
def test_a_loader_on_one_other_thread_is_not_on_the_training_thread(program: Programs) -> None:
    # The rest of the step is short, so the loop waits for as long as the stage's calls take.
    run = ran(program, "threads", "sleep")
    summary = run.summary()

    assert summary["wait_ms"] > 0.9 * summary["steady_step_mean_ms"]
    bottleneck = summary["bottleneck"]
    assert (bottleneck["kind"], bottleneck["name"]) == ("stage", "load")
    assert "training thread" not in bottleneck["evidence"]
    codes = [remedy["code"] for remedy in summary["remedies"]]
    assert "more_workers" in codes
    assert "background" not in codes
