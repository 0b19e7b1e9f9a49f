"""Mode `whatif`: one stage after another is changed, and the step is measured."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest
from running import Programs, Ran

Answer = dict[str, Any]


def what_if(program: Programs, how: str, exit_code: int = 0, **options: Any) -> Ran:
    run = program("what_if.py", how, **options)
    assert run.exit_code == exit_code, run.stderr
    return run


def printed(run: Ran) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[0])
    return found


def answers(run: Ran) -> list[Answer]:
    found: list[Answer] = run.kind("summary")[-1].get("what_if", [])
    return found


def answered(program: Programs, how: str, stage: str | None, **options: Any) -> tuple[Ran, Answer]:
    """A run that measures the step without the work of a stage (None: with free data), and this answer.

    If other programs use the cores, the steps may vary too much for an answer. Then the run is repeated, twice at most.
    """
    for _ in range(3):
        run = what_if(program, how, **options)
        found = [a for a in answers(run) if (a["stage"], a["intervention"]) == (stage, "free")]
        if found:
            return run, found[0]
        status = run.kind("summary")[-1]["what_if_status"]
        assert status["imprecise"] > 0, status
    raise AssertionError(status)


def changed_stages(run: Ran) -> set[str]:
    replaced = (a for a in answers(run) if a["intervention"] in ("free", "half", "cut"))
    return {a["stage"] for a in replaced if a["stage"] is not None}


def changed_steps(run: Ran) -> int:
    """Steps while a stage was changed."""
    loops = [entry for tick in run.kind("tick") for entry in tick["loops"]]
    return sum(entry["steps"] for entry in loops if entry["phase"] == "changed")


def test_the_stage_that_limits_the_loop_gains_most_and_each_lost_input_is_counted(
    program: Programs,
) -> None:
    run, free = answered(program, "threads", "decode")

    assert free["gain_pct"] > 30, free
    assert free["step_ci_ms"][0] < free["step_ms"] < free["step_ci_ms"][1]
    assert run.kind("summary")[-1]["bottleneck"]["name"] == "decode"
    happened = printed(run)
    # Repeated batches are additional, because the loader has no length.
    assert happened["batches"] > 1900
    lost = 1900 - happened["decoded"]
    counted = run.summary()["what_if_status"]["inputs_not_trained_on"]
    assert lost > 0
    # Inputs of `read` are counted too.
    assert counted >= lost
    assert counted >= sum(a["inputs_not_trained_on"] for a in answers(run))
    assert "what_if_begins" in run.notices()
    assert "not trained on" in run.stderr


def test_a_stage_with_effects_and_a_with_block_do_their_work_for_each_input(
    program: Programs,
) -> None:
    run = what_if(program, "threads")

    assert printed(run)["written"] == 1900
    assert changed_stages(run) <= {"read", "decode"}
    status = run.summary()["what_if_status"]
    assert sorted(status["not_replaceable"]) == ["check", "write"]
    # The verdict may break its lines at any word.
    assert "earlier result: `" in " ".join(run.stderr.split())


def test_objects_that_are_no_data_are_returned_again_only_if_the_program_says_so(
    program: Programs,
) -> None:
    run = what_if(program, "own_objects")

    assert changed_stages(run) <= {"trusted"}
    assert printed(run)["known"]
    # Only calls of the trusted stage returned an object again.
    assert (
        run.summary()["what_if_status"]["inputs_not_trained_on"] == 2400 - printed(run)["made"] > 0
    )


def test_each_input_is_trained_on_if_the_user_says_so(program: Programs) -> None:
    run = what_if(program, "keep_data")

    assert printed(run)["all"]
    assert changed_steps(run) > 0
    assert {a["intervention"] for a in answers(run)} <= {"gate", "delay"}
    assert run.summary()["what_if_status"]["inputs_not_trained_on"] == 0


@pytest.mark.alone  # If two other tests use the cores, the steps vary too much for an answer.
def test_a_loop_that_gets_repeated_batches_has_a_floor_and_epochs_of_the_same_length(
    program: Programs,
) -> None:
    run, floor = answered(program, "no_stages", None)

    happened = printed(run)
    assert happened["lengths"] == [150] * 8
    assert happened["loaded"] < 150 * 8
    assert happened["clean"]
    assert floor["gain_pct"] > 30, floor
    assert floor["inputs_not_trained_on"] > 0
    summary = run.summary()
    assert summary["floor_step_ms"] == pytest.approx(floor["step_ms"], rel=0.2)
    assert summary["headspace_pct"] > 30
    assert "if data were free" in run.stderr


def test_an_epoch_in_which_the_what_if_ends_keeps_its_length(program: Programs) -> None:
    run = what_if(program, "ends_within_an_epoch")

    happened = printed(run)
    assert run.summary()["what_if_status"]["finished"]
    assert happened["batches"] == 1200
    assert happened["loaded"] < 1200
    assert happened["ended"]


def test_a_source_that_has_ended_stays_ended(program: Programs) -> None:
    happened = printed(what_if(program, "ends_while_batches_are_repeated"))

    assert happened["after_the_end"] == 0
    assert happened["loaded"] == happened["length"]


def test_requests_are_delayed_if_each_input_is_trained_on(program: Programs) -> None:
    run = what_if(program, "delays_requests")

    assert printed(run)["all"]
    assert changed_steps(run) > 0
    # Noise may hide the answer, but the change was measured.
    assert len(answers(run)) + run.summary()["what_if_status"]["imprecise"] == 1
    assert {(a["stage"], a["intervention"]) for a in answers(run)} <= {(None, "delay")}


def test_batches_that_cannot_be_copied_are_not_repeated_and_the_verdict_says_so(
    program: Programs,
) -> None:
    run = what_if(program, "own_batches")

    assert printed(run)["distinct"] == 700
    assert run.summary()["what_if_status"]["batches_not_repeatable"]
    assert "the batches cannot be copied" in " ".join(run.stderr.split())


def test_a_loop_that_changes_batches_in_place_gets_unchanged_results(program: Programs) -> None:
    run = what_if(program, "changed_in_place")

    happened = printed(run)
    assert happened["whole"]
    assert happened["decoded"] < 900
    # The loop has more batches than the what-if has steps.
    assert run.summary()["what_if_status"]["finished"]


def test_epochs_keep_their_length_and_stages_do_their_work_between_them(
    program: Programs,
) -> None:
    run = what_if(program, "epochs")

    happened = printed(run)
    assert happened["lengths"] == [150] * 10
    assert happened["real"]
    assert run.summary()["what_if_status"]["inputs_not_trained_on"] > 0


def test_an_evaluation_and_stages_in_the_body_of_the_loop_are_not_changed(
    program: Programs,
) -> None:
    run = what_if(program, "evaluates_within")

    happened = printed(run)
    assert happened["real"]
    assert happened["steps"] == happened["batches"] == 1900
    assert changed_stages(run) <= {"read", "decode"}


def test_stages_do_their_work_again_if_the_program_takes_no_more_batches(
    program: Programs,
) -> None:
    run = what_if(program, "stops_iterating")

    assert not printed(run)["was_real"]


def test_stages_do_their_work_after_a_loop_was_left(program: Programs) -> None:
    happened = printed(what_if(program, "leaves"))

    assert happened["real"] == [True, True, True]
    assert happened["rest"] == 4000


def test_errors_of_a_stage_reach_the_loop_and_are_not_repeated(program: Programs) -> None:
    happened = printed(what_if(program, "raises"))

    batches, failures = happened["batches"], happened["failures"]
    # If batches were repeated, the loop ends at the loader's length. Otherwise, each number leads to a batch or an error.
    assert batches == 1470 or batches + failures == 1500
    assert 0 < failures <= 30


def test_an_exception_while_a_stage_is_changed_is_reported_with_the_way_to_check_it(
    program: Programs,
) -> None:
    run = program("what_if.py", "fails")

    assert run.exit_code == 1
    assert run.traceback_tail[-1] == "KeyError: 150"
    assert "exception_in_what_if" in run.notices()
    assert 'headspace.wrap(..., mode="measure")' in run.stderr


def test_a_killed_run_has_the_answers_up_to_then(program: Programs) -> None:
    often = {"HEADSPACE_INTERVAL": "100ms"}
    _, free = answered(program, "killed", "decode", exit_code=-signal.SIGKILL, env=often)

    assert free["gain_pct"] > 30


def test_a_second_loop_is_measured_as_usual_and_says_why(program: Programs) -> None:
    run = what_if(program, "two_loops")

    assert printed(run)["batches"] == [400, 50]
    assert "no_what_if" in run.notices()


@pytest.mark.alone  # If two other tests use the cores, the steps vary too much for an answer.
def test_stages_in_worker_processes_of_torch_are_changed(program: Programs) -> None:
    run, free_fetch = answered(program, "torch_workers", "train fetch")

    assert printed(run)["batches"] == 1600
    fetch = free_fetch["gain_pct"]
    # A gain that is hardly above the noise may have no answer.
    assert fetch > 30
    free = [a for a in answers(run) if a["intervention"] == "free"]
    assert all(fetch > a["gain_pct"] for a in free if a["stage"] == "train collate")
    assert "worker_lost" not in run.notices()


def test_new_workers_of_each_epoch_are_changed_too(program: Programs) -> None:
    run = what_if(program, "torch_epochs")

    assert printed(run)["lengths"] == [400] * 4
    assert run.summary()["what_if_status"]["inputs_not_trained_on"] > 0


def test_operations_of_spdl_are_changed(program: Programs) -> None:
    run, slow = answered(program, "spdl_pipeline", "slow")

    assert printed(run)["batches"] >= 1900
    assert slow["gain_pct"] > 30, answers(run)


def test_without_shared_memory_the_loop_is_measured_as_usual(program: Programs) -> None:
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    small = "mount -t tmpfs -o size=8k tmpfs /dev/shm"
    if subprocess.run([*alone, small], check=False, capture_output=True).returncode:
        pytest.skip("platform: no mounts in a namespace of one's own")

    run = what_if(
        program, "two_loops", python=[*alone, f'{small} && exec "$0" "$@"', sys.executable]
    )

    assert printed(run)["batches"] == [400, 50]
    assert run.notices().count("no_what_if") == 2
    assert answers(run) == []


@pytest.mark.parametrize("steps", [299, 0])
def test_too_few_steps_are_refused_with_the_smallest_number(steps: int) -> None:
    import headspace

    with pytest.raises(ValueError, match="what_if_steps"):
        headspace.wrap([0], mode="whatif", what_if_steps=steps)
