"""After failures of the trainer or of the system, the exit code and the output are those of the program, and the
records up to the failure are complete.

Tests of how a program ends compare it with the same program without headspace.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from running import (
    PACKAGE,
    PROGRAMS,
    VERSIONS,
    Programs,
    Ran,
    Started,
    interpreter,
    of_kind,
    read_records,
    steps_in_ticks,
    wait_until,
)

import headspace

OFF = {"HEADSPACE": "0"}
FAST = {"HEADSPACE_INTERVAL": "1ms"}


def both(program: Programs, *command: object, **how: object) -> tuple[Ran, Ran]:
    """Runs the program with headspace and without."""
    watched = program.start(str(command[0]), *command[1:])
    alone = program.start(str(command[0]), *command[1:], env=OFF)
    return watched.finish(), alone.finish()


def ended_in_order(run: Ran) -> None:
    assert run.summary()["state"] == "finished"
    assert run.records()[-1]["kind"] == "summary"


# Disks and folders.


def test_training_finishes_when_the_disk_is_full(program: Programs, mounted: Path) -> None:
    run = program("loop.py", "--steps", 400, "--load-ms", 1, env=FAST, runs=mounted / "runs")

    assert (run.exit_code, run.stdout) == (0, "steps 400\n")
    assert os.statvfs(mounted).f_bavail == 0, "the disk is full"
    assert "records dropped" in run.stderr
    assert run.records()[0]["kind"] == "run"


def test_training_finishes_at_the_limit_of_file_size(program: Programs) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    run = program("loop.py", "--steps", 400, "--load-ms", 1, env=FAST, preexec_fn=limit)

    assert (run.exit_code, run.stdout) == (0, "steps 400\n")
    assert "records dropped" in run.stderr
    assert 0 < (run.folder / "rank0.jsonl").stat().st_size <= 40_000
    assert run.records()[0]["kind"] == "run"


def test_records_continue_when_the_disk_has_space_again(program: Programs, mounted: Path) -> None:
    # The records of the time until the program ends fit into the ballast's space, also on a busy machine.
    subprocess.run(["mount", "-o", "remount,size=16m", str(mounted)], check=True)
    ballast, go = mounted / "ballast", mounted.parent / "go"
    ballast.write_bytes(bytes((16 * 1024 - 16) * 1024))
    run = program.start("loop.py", "--load-ms", 1, "--until", go, env=FAST, runs=mounted / "runs")
    wait_until(lambda: os.statvfs(mounted).f_bavail == 0, "the disk is full")
    ballast.unlink()
    go.touch()

    ran = run.finish()
    assert ran.exit_code == 0
    assert ran.summary()["state"] == "finished"
    assert f"steps {ran.summary()['steps']}\n" == ran.stdout


def test_a_read_only_disk_is_reported_once(program: Programs, mounted: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)

    run = program("loop.py", "--epochs", 3, runs=mounted / "runs")

    assert (run.exit_code, run.stdout) == (0, "steps 60\n")
    assert run.stderr.count("nothing is measured") == 1
    assert str(mounted) in run.stderr


def test_a_folder_that_cannot_be_created_is_reported_once(
    program: Programs, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()

    run = program("loop.py", "--epochs", 3, runs=tmp_path / "file" / "runs")

    assert (run.exit_code, run.stdout) == (0, "steps 60\n")
    assert len(run.stderr.splitlines()) == 1
    assert "nothing is measured" in run.stderr
    assert "HEADSPACE_DIR" in run.stderr, "the way out"


def test_a_folder_deleted_during_the_run_is_created_again(
    program: Programs, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    run = program.start("loop.py", "--load-ms", 1, "--until", go, "--say", 20, env=FAST)
    run.wait_for("ready")
    wait_until(lambda: run.folders and (run.folder / "rank0.jsonl").exists(), "records")
    first = run.folder
    # The rename removes the folder at once. During a deletion file by file, headspace may recreate some files.
    gone = run.path.rename(tmp_path / "gone")
    shutil.rmtree(gone)
    wait_until((first / "rank0.jsonl").exists, "the folder is made again")
    go.touch()

    ran = run.finish()
    assert ran.exit_code == 0
    assert ran.folder == first
    # The `run` record is repeated if something becomes known later.
    assert len({record["pid"] for record in ran.kind("run")}) == 1
    assert ran.records()[0]["kind"] == "run"
    ended_in_order(ran)


def test_a_closed_stderr_is_no_error_and_its_descriptor_is_not_written_to(
    program: Programs,
) -> None:
    def close() -> None:
        os.close(2)

    run = program("loop.py", env={"HEADSPACE_INTERVAL": "nonsense"}, preexec_fn=close, stderr=None)

    assert (run.exit_code, run.stdout) == (0, "steps 20\n")
    ended_in_order(run)
    assert run.notices() == ["setting_refused"]


def test_a_stderr_that_nobody_reads_is_no_error(program: Programs) -> None:
    read, write = os.pipe()
    os.close(read)
    run = program("loop.py", env={"HEADSPACE_INTERVAL": "nonsense"}, stderr=write)
    os.close(write)

    assert (run.exit_code, run.stdout) == (0, "steps 20\n")
    ended_in_order(run)


# Signals.


def sigterm(program: Programs, tmp_path: Path, handler: str, stuck: str, **how: object) -> Started:
    env = {"HEADSPACE_INTERVAL": "10ms", **dict(how.get("env", {}))}  # type: ignore[call-overload]
    run = program.start("sigterm.py", handler, stuck, tmp_path / "go", env=env)
    run.wait_for("ready")
    run.send(signal.SIGTERM)
    return run


@pytest.mark.parametrize("stuck", ["python", "c", "c with the lock"])
def test_sigterm_ends_the_process_and_the_records_are_complete(
    program: Programs, tmp_path: Path, stuck: str
) -> None:
    run = sigterm(program, tmp_path, "default", stuck).finish()

    assert run.exit_code == -signal.SIGTERM
    assert run.stdout == "ready\n"
    assert run.stderr.startswith("headspace  "), "the verdict"
    ended_in_order(run)
    assert run.summary()["steps"] >= 6
    assert steps_in_ticks(run.records()) == run.summary()["steps"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_sigterm_handler_of_the_program_is_called(
    program: Programs, tmp_path: Path, when: str
) -> None:
    run = sigterm(program, tmp_path, f"handled {when}", "python").finish()

    assert (run.exit_code, run.stdout) == (7, "ready\nhandled True\n")
    ended_in_order(run)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_ignored_sigterm_stays_ignored(program: Programs, tmp_path: Path, when: str) -> None:
    run = sigterm(program, tmp_path, f"ignored {when}", "python")
    (tmp_path / "go").touch()
    ran = run.finish()

    assert (ran.exit_code, ran.stdout) == (0, "ready\ndone\n")
    ended_in_order(ran)


def test_a_default_action_set_later_still_ends_the_process(
    program: Programs, tmp_path: Path
) -> None:
    run = sigterm(program, tmp_path, "default after", "python").finish()

    assert run.exit_code == -signal.SIGTERM


def sigterm_is_caught() -> bool:
    status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    return bool(int(status["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1)


def test_an_ended_session_restores_the_signal_action(tmp_path: Path) -> None:
    assert not sigterm_is_caught()
    with headspace.start(to=headspace.JsonLines(tmp_path), quiet=True):
        assert sigterm_is_caught()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not sigterm_is_caught()


def test_a_later_session_handles_sigterm_after_the_program_restored_the_default(
    tmp_path: Path,
) -> None:
    with headspace.start(to=headspace.JsonLines(tmp_path / "first"), quiet=True):
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    with headspace.start(to=headspace.JsonLines(tmp_path / "second"), quiet=True):
        assert sigterm_is_caught()
    assert not sigterm_is_caught()


def test_sigkill_leaves_complete_records_up_to_the_last_interval(program: Programs) -> None:
    env = {"HEADSPACE_INTERVAL": "5ms"}
    run = program.start("loop.py", "--steps", 10**9, "--load-ms", 1, "--say", 50, env=env)

    run.wait_for("ready")
    wait_until(lambda: steps_in_ticks(run.records()) >= 50, "the steps are written down")
    run.send(signal.SIGKILL)

    assert run.finish().exit_code == -signal.SIGKILL
    summary = run.summary()
    assert summary["state"] == "running"
    assert summary["steps"] > 0
    report = subprocess.run(
        [sys.executable, "-m", "headspace", "report", "--json", str(run.folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(report.stdout) == summary


# Errors and exits.


@pytest.mark.parametrize(
    "where", ["loader", "iter", "loop", "interrupt", "exit", "exit text", "_exit", "abort", "no"]
)
def test_a_program_ends_as_without_headspace(program: Programs, where: str) -> None:
    watched, alone = both(program, "fails.py", where)

    assert watched.exit_code == alone.exit_code
    assert watched.stdout == alone.stdout
    if "Traceback" in alone.stderr:
        assert watched.traceback_tail == alone.traceback_tail
        assert watched.stderr.count("Traceback") == alone.stderr.count("Traceback")
    if where in ("_exit", "abort"):
        # There may be no tick yet, but every written line must be whole.
        for folder in watched.folders:
            text = (folder / "rank0.jsonl").read_text()
            assert text == "" or text.endswith("\n")
    elif where != "iter":
        ended_in_order(watched)
        assert watched.summary()["steps"] == (
            50 if where == "no" else 30 if where == "loader" else 31
        )


def test_a_process_ends_while_a_daemon_thread_iterates(program: Programs) -> None:
    for _ in range(5):
        run = program("daemon.py")

        assert (run.exit_code, run.stdout) == (5, "going\n")
        assert run.summary()["steps"] >= 1000
        assert "Fatal" not in run.stderr


@pytest.mark.parametrize("mode", ["measure", "probe", "replay"])
def test_threads_can_iterate_one_loader_concurrently(program: Programs, mode: str) -> None:
    run = program("threads.py", mode, 4, 3)

    assert run.exit_code == 0
    assert run.stdout.startswith("least ")
    least = int(run.stdout.split()[1])
    # A probe also repeats some batches.
    assert least == 360 or (mode == "probe" and least > 360), "each thread has every epoch whole"
    ended_in_order(run)


# Processes.


@pytest.mark.parametrize("mode", ["measure", "probe", "replay"])
def test_forked_children_pass_batches_through_and_write_no_records(
    program: Programs, mode: str
) -> None:
    run = program("children.py", env={"HEADSPACE_MODE": mode, **FAST})

    assert run.exit_code == 0
    assert run.stdout.splitlines()[0] == f"{[0] * 6} {-signal.SIGTERM}"
    assert run.stderr.count("headspace  ") == 1, "one verdict: the parent's"
    assert [path.name for path in run.folder.iterdir()] == ["rank0.jsonl"]
    records = run.records()
    assert len({record["pid"] for record in records}) == 1
    (epoch,) = of_kind(records, "epoch")
    assert epoch["steps"] == 1000
    assert (epoch["replayed"] > 0) == (mode != "measure")
    ended_in_order(run)


def test_fifty_forks_under_load_do_not_hang(program: Programs) -> None:
    run = program("fork_storm.py", 50, env={**FAST, "HEADSPACE_QUIET": "1"})

    assert (run.exit_code, run.stdout) == (0, "forks 50 failed 0\n")
    ended_in_order(run)
    steps = sum(epoch["steps"] for epoch in run.kind("epoch") if epoch["loop"] == "train")
    assert steps == 50 * 20


@pytest.mark.parametrize(
    ("method", "hows"),
    [
        ("fork", ["no", "exit", "segfault", "kill", "error"]),
        ("forkserver", ["no", "exit", "segfault", "kill", "error"]),
        ("spawn", ["segfault"]),  # Each worker imports torch again.
    ],
)
def test_the_death_of_a_worker_raises_the_error_of_torch(
    program: Programs, method: str, hows: list[str]
) -> None:
    pytest.importorskip("torch")
    said = {"no": "40 seen", "error": "LookupError: no item 20"}

    run = program("torch_workers.py", method, *hows)

    assert run.exit_code == 0
    assert run.stdout.splitlines() == [f"{how} {said.get(how, 'worker died')}" for how in hows]
    assert len(run.folders) == 1, "workers record nothing of their own"
    ended_in_order(run)
    exhausted = {epoch["loop"]: epoch["exhausted"] for epoch in run.kind("epoch")}
    assert exhausted == {how: how == "no" for how in hows}
    alone = program("torch_workers.py", "fork", *hows, env=OFF) if method == "fork" else run
    assert alone.stdout == run.stdout


# Python 3.12 and later warn of a fork in a process with several threads.
@pytest.mark.parametrize("version", VERSIONS[2:])
def test_workers_are_forked_before_headspace_starts_a_thread(
    program: Programs, version: str
) -> None:
    python = interpreter(version)
    run = program("forks_workers.py", python=[python, "-W", "always"], env=PACKAGE)

    assert (run.exit_code, run.stdout) == (0, "[b'batch']\n"), run.stderr
    assert "multi-threaded" not in run.stderr
    ended_in_order(run)


# Clocks.


def test_a_clock_that_is_set_back_changes_no_step_time(program: Programs, tmp_path: Path) -> None:
    shim = tmp_path / "clock_back.so"
    cc = shutil.which("cc")
    if cc is None:
        pytest.skip("no C compiler")
    source = PROGRAMS / "clock_back.c"
    subprocess.run([cc, "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True)

    run = program("clock_back.py", env={"LD_PRELOAD": str(shim)})

    assert (run.exit_code, run.stdout) == (0, "back 1\n")
    records = run.records()
    written = [record["time_unix_nano"] for record in records]
    assert written[-1] < written[0], "the records saw the clock go back"
    ticks = of_kind(records, "tick")
    assert all(a["at_s"] < b["at_s"] for a, b in itertools.pairwise(ticks))
    assert all(0 <= tick["interval_s"] < 1800 for tick in ticks)
    for tick in ticks:
        for entry in tick["loops"]:
            assert 0 <= entry["step"]["max_ms"] < 1_800_000
    assert run.summary()["steps"] == 40
    ended_in_order(run)


def test_a_thread_may_start_a_session_while_another_one_ends(tmp_path: Path) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []

    def iterate() -> None:
        try:
            while not stop.is_set():
                assert list(headspace.wrap(range(50), name="meanwhile")) == list(range(50))
        except BaseException as error:
            errors.append(error)

    os.environ["HEADSPACE_DIR"] = str(tmp_path)
    os.environ["HEADSPACE_QUIET"] = "1"
    thread = threading.Thread(target=iterate)
    try:
        thread.start()
        for _ in range(20):
            headspace.stop()
    finally:
        stop.set()
        thread.join(30)
        headspace.stop()
        del os.environ["HEADSPACE_DIR"], os.environ["HEADSPACE_QUIET"]

    assert not thread.is_alive()
    assert errors == []
    for folder in tmp_path.iterdir():
        assert read_records(folder / "rank0.jsonl")[-1]["state"] == "finished"
