"""`headspace run` on programs without a known loader: optimiser steps, a function that returns batches,
and the notice about an unknown loop."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from headspace_run import HEADSPACE, run
from running import Programs, Ran

from headspace._injection import hooks
from headspace._watch.batch_function import BatchFunction, look_at_end

NOT_SEEN = "headspace: no training loop was seen"


def not_seen(stderr: str) -> int:
    return sum(line.startswith(NOT_SEEN) for line in stderr.splitlines())


def steps(program: Programs, *args: object, **how: Any) -> Ran:
    """Runs a training with torch's optimisers. Checks that its output is the same as without headspace."""
    pytest.importorskip("torch")
    env = {"OMP_NUM_THREADS": "1"}
    watched = run(program, "steps.py", *args, env=env, **how)
    bare = program("steps.py", *args, env=env, timeout=120.0)
    assert (watched.exit_code, watched.stdout) == (bare.exit_code, bare.stdout), watched.stderr
    assert "not everything is measured" not in watched.stderr
    return watched


def test_the_steps_of_an_optimiser_are_the_steps_of_a_loop_without_a_loader(
    program: Programs,
) -> None:
    ran = steps(program)
    summary = ran.summary()

    assert (summary["loop"], summary["loop_role"]) == ("optimizer steps", "training")
    assert 50 <= summary["steps"] <= 60
    assert summary["steady_step_mean_ms"] >= 1.0
    # The wait is unknown: there is no number, and the output names the option that measures it.
    assert summary["wait_ms"] is summary["headspace_upper_bound_pct"] is None
    assert ran.kind("run")[0]["loader"]["type"] == "torch.optim.sgd.SGD"
    assert "--batch-from train:get_batch" in ran.stderr
    assert not_seen(ran.stderr) == 0


# If other tests use the cores, the loop also waits for a core, which is no wait for an item.
@pytest.mark.alone
@pytest.mark.parametrize("processes", [False, True], ids=["thread", "process"])
def test_a_loop_that_waits_for_its_own_queue_has_the_producers_as_its_bottleneck(
    program: Programs, processes: bool
) -> None:
    pytest.importorskip("torch")
    ran = run(program, "own_queue.py", *(["--processes"] if processes else []))
    assert ran.exit_code == 0, ran.stderr
    summary = ran.summary()
    waited = float(ran.stdout)

    assert (summary["loop"], summary["wait_ms"]) == ("optimizer steps", None)
    assert summary["bottleneck"]["kind"] == "producers"
    wait = summary["item_wait_ms"]
    assert wait["low"] <= wait["value"] <= wait["high"]
    # The loop waits only for the queue.
    assert waited > 0.5
    assert wait["value"] / summary["steady_step_mean_ms"] == pytest.approx(waited, abs=0.25)
    evidence = summary["bottleneck"]["evidence"]
    assert "(next_batch) for what other threads or processes make" in evidence
    assert "(decode)" in evidence
    line = summary["lines"][0]
    assert (line["stage"], line["function"]) == ("producers", "decode")
    assert line["predicted_step_ms"] < 0.75 * summary["steady_step_mean_ms"]
    assert "producers" in ran.stderr
    receipts = [stage for stage in summary["stages"] if stage.get("hand_off") == "receive"]
    if not processes:
        assert receipts == []
    else:
        [receipt] = receipts
        assert (receipt["name"], receipt["loop_name"]) == ("hand-off", "optimizer steps")
        assert receipt["calls"] == pytest.approx(summary["steps"], abs=16)
        assert summary["batch"]["objects"] == 3


def test_a_queue_of_tasks_of_a_process_that_the_training_thread_forks_is_not_its_hand_off(
    program: Programs,
) -> None:
    pytest.importorskip("torch")
    ran = run(program, "own_queue.py", "--processes", "--evaluate", "--seconds", 4)
    assert ran.exit_code == 0, ran.stderr
    stages = ran.summary()["stages"]

    assert [(stage["name"], stage.get("hand_off")) for stage in stages] == [("hand-off", "receive")]
    assert stages[0]["calls"] == pytest.approx(ran.summary()["steps"], abs=16)


# If another test uses the cores of the other process, the loop waits longer than it receives.
@pytest.mark.alone
def test_a_loop_that_receives_long_from_its_own_queue_has_the_hand_off_as_its_bottleneck(
    program: Programs,
) -> None:
    pytest.importorskip("torch")
    many_objects = ("--processes", "--values", 1000, "--objects", 40_000)
    ran = run(program, "own_queue.py", *many_objects)
    assert ran.exit_code == 0, ran.stderr
    summary = ran.summary()

    assert summary["bottleneck"]["kind"] == "hand_off"
    # The tuple, the array, the list, and 40,000 dictionaries of a number each.
    assert summary["batch"]["objects"] == 80_003
    remedy = next(found for found in summary["remedies"] if found["code"] == "pack_batch")
    assert remedy["predicted_step_ms"] < 0.75 * summary["steady_step_mean_ms"]


def test_the_threads_that_fill_a_queue_are_the_bottleneck_of_a_function_that_returns_batches(
    program: Programs,
) -> None:
    pytest.importorskip("torch")
    ran = run(program, "own_queue.py", options=("--batch-from", "own_queue:next_batch"))
    assert ran.exit_code == 0, ran.stderr
    summary = ran.summary()

    assert summary["loop"] == "next_batch"
    assert "item_wait_ms" not in summary
    assert summary["wait_pct"] > 50
    assert summary["bottleneck"]["kind"] == "producers"
    assert "these are at `own_queue.py:" in summary["bottleneck"]["evidence"]
    line = summary["lines"][0]
    assert (line["stage"], line["function"]) == ("producers", "decode")


@pytest.mark.parametrize("args", [("--accumulate", 3), ("--optimizers", 2)], ids=str)
def test_a_step_with_several_batches_or_optimisers_counts_once(
    program: Programs, args: tuple[str, int]
) -> None:
    assert 50 <= steps(program, *args).summary()["steps"] <= 60


@pytest.mark.alone  # A stall of the machine makes a step as long as an evaluation.
def test_an_evaluation_is_not_part_of_a_step(program: Programs) -> None:
    ran = steps(program, "--evaluate-every", 20, "--steps", 100)

    assert 90 <= ran.summary()["steps"] <= 100
    assert ran.summary()["step_p99_ms"] < 95


def test_a_program_that_iterates_a_loader_has_no_loop_of_optimiser_steps(program: Programs) -> None:
    summary = steps(program, "--loader").summary()

    assert (summary["loop"], summary["steps"], summary["epochs"]) == ("DataLoader", 180, 3)
    assert summary.get("other_loops", []) == []


def test_a_compiled_step_is_compiled_unchanged(program: Programs) -> None:
    assert not_seen(steps(program, "--compile").stderr) == 1


@pytest.mark.slow
def test_a_program_without_a_known_loop_causes_one_notice(program: Programs) -> None:
    ran = steps(program, "--by-hand")

    assert ran.folders == []
    assert not_seen(ran.stderr) == 1
    for way in ("headspace.wrap", "headspace.step()", "--batch-from", "DataLoader", "Grain"):
        assert way in ran.stderr
    assert not_seen(steps(program, "--by-hand", options=("--quiet",)).stderr) == 0


def test_a_program_that_fails_before_its_loop_causes_no_notice(program: Programs) -> None:
    ran = run(program, "steps.py", "--fails")

    assert ran.exit_code == 1
    assert "before the loop" in ran.stderr
    assert not_seen(ran.stderr) == 0


def test_only_the_process_that_the_user_started_prints_the_notice(
    program: Programs, tmp_path: Path
) -> None:
    """A launcher prints no notice if headspace measures its child. A child never prints one."""
    pytest.importorskip("torch")
    launcher = tmp_path / "launcher.py"
    programs = Path(__file__).parents[1] / "programs"
    launcher.write_text(
        "import os, subprocess, sys\n"
        "import numpy\n"
        "os.makedirs('elsewhere')\n"
        "child = [sys.executable, *sys.argv[1:]]\n"
        "sys.exit(subprocess.run(child, cwd='elsewhere').returncode)\n"
    )
    for args, notices in ((["trains.py", "--epochs", 1], 0), (["steps.py", "--by-hand"], 1)):
        folder = tmp_path / args[0]
        folder.mkdir()
        env = {name: value for name, value in os.environ.items() if name[:9] != "HEADSPACE"}
        done = subprocess.run(
            [
                *(*HEADSPACE, "--", sys.executable, str(launcher)),
                *(str(programs / args[0]), *map(str, args[1:])),
            ],
            cwd=folder,
            env={**env, "TMPDIR": str(folder)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert not_seen(done.stderr) == notices, done.stderr
        # The processes have removed their common files.
        assert not list(folder.glob("headspace-run-*"))


@pytest.mark.parametrize(("options", "notices"), [([], 0), (["--mode", "probe"], 1)], ids=str)
def test_a_probe_of_a_program_without_libraries_says_that_no_loop_was_seen(
    tmp_path: Path, options: list[str], notices: int
) -> None:
    (tmp_path / "own.py").write_text("for batch in range(3):\n    pass\n")
    command = [*HEADSPACE, *options, "--", sys.executable, "own.py"]

    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )

    assert not_seen(done.stderr) == notices, done.stderr
    assert "--batch-from" in done.stderr or notices == 0


def test_a_program_that_ran_for_long_may_have_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "NUMERIC", ())
    monkeypatch.delenv("HEADSPACE_MODE", raising=False)

    assert hooks._may_have_trained(time.monotonic() - hooks.LONG_RUN_S)
    assert not hooks._may_have_trained(time.monotonic())


def drawn(program: Programs, kind: str, count: int = 100, *options: str, **how: Any) -> Ran:
    target = how.pop("target", "batch_function:get_batch")
    watched = run(
        program, "batch_function.py", kind, count, options=("--batch-from", target, *options), **how
    )
    assert watched.exit_code == 0, watched.stderr
    assert "not everything is measured" not in watched.stderr
    return watched


def same(program: Programs, kind: str, count: int = 100, **how: Any) -> Ran:
    """Runs a program and checks that it gets the same batches as without headspace."""
    watched = drawn(program, kind, count, **how)
    assert watched.stdout == program("batch_function.py", kind, count, timeout=120.0).stdout
    return watched


def test_the_calls_of_a_named_function_are_timed(program: Programs) -> None:
    ran = same(program, "plain")
    summary = ran.summary()

    assert (summary["loop"], summary["loop_chosen"]) == ("get_batch", True)
    # headspace finds the function a few milliseconds after its definition.
    assert 90 <= summary["steps"] <= 100
    assert summary["wait_ms"] >= 4.0
    assert summary["compute_ms"] >= 2.0
    assert ran.kind("run")[0]["loader"]["type"] == "batch_function.get_batch"


def test_a_function_of_an_imported_module_is_found_before_its_first_call(
    program: Programs, tmp_path: Path
) -> None:
    (tmp_path / "made.py").write_text("def get_batch():\n    return 1\n")
    (tmp_path / "uses.py").write_text(
        "import time\n"
        "from made import get_batch\n"
        "total = 0\n"
        "for _ in range(60):\n"
        "    total += get_batch()\n"
        "    time.sleep(0.001)\n"
        "print(total)\n"
    )
    ran = run(program, tmp_path / "uses.py", options=("--batch-from", "made:get_batch"))

    assert ran.stdout == "60\n"
    assert ran.summary()["steps"] == 60


@pytest.mark.alone  # A stall of the machine makes a step as long as an evaluation.
def test_calls_during_an_evaluation_are_counted_separately(program: Programs) -> None:
    pytest.importorskip("torch")
    summary = same(program, "evaluating").summary()

    assert (summary["loop"], summary["loop_role"]) == ("get_batch", "training")
    assert summary["steps"] >= 90
    # An evaluation takes at least 300 ms.
    assert summary["step_p99_ms"] < 250
    (other,) = summary["other_loops"]
    assert (other["name"], other["role"]) == ("get_batch (evaluation)", "evaluation")
    assert (other["epochs"], other["steps"]) == (5, 15)


@pytest.mark.parametrize("kind", ["ends", "raises"])
def test_an_exception_of_the_function_reaches_the_program(program: Programs, kind: str) -> None:
    assert same(program, kind).summary()["steps"] >= 85


def test_the_named_function_may_be_a_method(program: Programs) -> None:
    assert same(program, "static", target="batch_function:Data.next").summary()["loop"] == "next"


def test_a_function_that_yields_batches_is_a_loader(program: Programs) -> None:
    summary = same(program, "generator", target="batch_function:stream").summary()

    # The first epoch may have begun before the function was found.
    assert summary["epochs"] in (2, 3)
    assert (summary["loop"], summary["steps"]) == ("stream", 100 * summary["epochs"])


@pytest.mark.slow
def test_a_probe_returns_cached_batches_of_the_function(program: Programs) -> None:
    summary = drawn(program, "plain", 2600, "--mode", "probe").summary()

    assert summary["mode"] == "probe"
    assert summary["floor_step_ms"] is not None or summary["findings"]
    if summary["floor_step_ms"] is not None:
        assert summary["floor_step_ms"] < summary["steady_step_mean_ms"]


@pytest.mark.slow
def test_a_probe_cannot_end_a_loop_that_calls_a_function(program: Programs) -> None:
    probed = drawn(program, "plain", 2600, "--mode", "probe", "--stop-after-probe")

    assert "`batch_function:get_batch` returns them, so training continues" in " ".join(
        probed.stderr.split()
    )
    (begins,) = [n for n in probed.kind("notice") if n["code"] == "probe_begins"]
    assert "in a separate, short run." in begins["text"]


@pytest.mark.parametrize(
    ("target", "kind", "why"),
    [
        ("batch_function:no_such", "plain", "`batch_function` has no function `no_such`"),
        (
            "batch_function:get_batch",
            "never",
            "no call of `batch_function.get_batch` was timed: the program never calls it",
        ),
        ("nowhere:get_batch", "plain", "no module `nowhere` was imported"),
    ],
)
def test_a_function_that_is_missing_or_never_called_is_reported(
    program: Programs, target: str, kind: str, why: str
) -> None:
    ran = drawn(program, kind, target=target)

    assert ran.stderr.count("\n") == 1
    assert why in ran.stderr


def test_a_program_that_ends_before_the_next_poll_is_checked_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function = BatchFunction("__main__:defined_after_the_poll")
    # The poll came before the definition.
    function.has_module = True
    assert not function.replace(sys.modules["__main__"])
    monkeypatch.setattr(
        sys.modules["__main__"], "defined_after_the_poll", lambda: None, raising=False
    )

    look_at_end(function)

    assert function.is_found
    failure = function.failure() or ""
    assert "no call of `__main__.defined_after_the_poll` was timed" in failure
    assert "the loop began within milliseconds of the function's definition" in failure
