"""The verdict of a loader whose threads slow each other."""

from __future__ import annotations

import pytest
from running import Programs, Record

THREADS = 6

#: Step time in milliseconds with one thread, when the shared device loses no time.
ALONE_MS = 3.0


def stage_of(summary: Record, name: str) -> Record:
    (found,) = [stage for stage in summary["stages"] if stage["name"] == name]
    return dict(found)


def fewer_calls(summary: Record) -> Record:
    """The remedy that proposes fewer calls of `demux`. Fails if one proposes more of them, or to move them."""
    remedies = {remedy["code"]: remedy for remedy in summary["remedies"]}
    assert not {"more_workers", "subprocess"} & remedies.keys(), remedies
    fewer = dict(remedies["fewer_workers"])
    assert (fewer["stage"], fewer["change"]["from"]) == ("demux", str(THREADS))
    assert int(fewer["change"]["to"]) < THREADS, fewer
    return fewer


def test_in_a_child_process_the_verdict_proposes_neither_more_threads_nor_another_process(
    program: Programs,
) -> None:
    ran = program("slow_each_other.py", THREADS, "child", 200)
    assert ran.exit_code == 0, ran.stderr
    summary = ran.summary()

    assert stage_of(summary, "demux")["in_child_processes"]
    # The few calls that run alone in a child differ by more than the gain, so fewer threads may not be proposed.
    remedies = {remedy["code"] for remedy in summary["remedies"]}
    assert not {"more_workers", "subprocess"} & remedies, summary["remedies"]


@pytest.mark.alone  # If other tests use the cores, calls that run alone take longer too.
def test_the_verdict_proposes_fewer_threads(program: Programs) -> None:
    ran = program("slow_each_other.py", THREADS, "here", 200)
    assert ran.exit_code == 0, ran.stderr
    summary = ran.summary()

    demux = stage_of(summary, "demux")
    assert not demux.get("in_child_processes", False)
    fewer = fewer_calls(summary)
    # A thread alone delivers 1.3 times as much as two.
    assert int(fewer["change"]["to"]) < THREADS / 2, fewer
    # Few calls run alone, so the predicted step is often unknown, or too long. The what-if below measures it.
    assert fewer["predicted_step_ms"] <= summary["steady_step_mean_ms"], (fewer, demux)


@pytest.mark.slow
@pytest.mark.alone  # The measured steps must be precise enough for an answer.
@pytest.mark.parametrize("where", ["here", "child"])
def test_a_what_if_measures_how_many_threads_to_keep_and_the_step_with_them(
    program: Programs, where: str
) -> None:
    env = {"HEADSPACE_MODE": "whatif", "HEADSPACE_WHAT_IF_STEPS": "4000"}
    ran = program("slow_each_other.py", THREADS, where, 20, 200, env=env)
    assert ran.exit_code == 0, ran.stderr
    summary = ran.summary()

    fewer = fewer_calls(summary)
    assert fewer["change"]["to"] == "1", (fewer, summary["what_if"])
    # A sleep of 0.5 ms takes longer than that, so a call ends late. The calls have different amounts of work: the mean of 20
    # calls in a row is between 2.6 and 3.3 ms.
    assert 0.85 * ALONE_MS < fewer["measured_step_ms"]["value"] < 1.5 * ALONE_MS, fewer
    assert fewer["measured_step_ms"]["value"] < 0.6 * summary["steady_step_mean_ms"], fewer
