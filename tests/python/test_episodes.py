"""The times of a run in which its steps were slower, in the records."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pytest
from headspace_run import HEADSPACE
from running import Programs, Runs

import headspace


def batches(steps: int, seconds: Callable[[int], float]) -> Iterator[int]:
    for step in range(steps):
        time.sleep(seconds(step))
        yield step


def train(steps: int, seconds: Callable[[int], float]) -> None:
    for _ in headspace.wrap(batches(steps, seconds)):
        time.sleep(0.002)
    headspace.stop()


@pytest.mark.alone  # The cost of a stall is compared with the time that the loop sleeps.
def test_a_stall_every_25_steps_is_named_with_its_period_and_its_cost(runs: Runs) -> None:
    train(300, lambda step: 0.08 if step % 25 == 24 else 0.001)

    # A busy machine may cause further stalls.
    (episode,) = (one for one in runs.summary()["episodes"] if one["kind"] == "periodic")
    assert episode["period_steps"] == 25
    assert episode["signal"] == "wait"
    assert episode["cost_s"] == pytest.approx(12 * 0.079, rel=0.3)
    assert "the loop stalls every 25 steps" in episode["text"]


@pytest.mark.alone  # If other tests use the cores, the steps become slower at other times, too.
def test_a_run_that_becomes_slower_names_the_step(runs: Runs) -> None:
    # With only one tick, at the end, the resource use of other tests is not compared with the steps.
    headspace.start(interval=60)
    train(300, lambda step: 0.001 if step < 200 else 0.012)

    (episode,) = (one for one in runs.summary()["episodes"] if one["kind"] == "change")
    assert episode["signal"] == "wait"
    assert episode["from_step"] == pytest.approx(200, abs=4)
    assert "to_step" not in episode


# A busy machine causes other stalls, with batches of any size, so the test runs alone.
@pytest.mark.alone
def test_stalls_name_the_class_of_their_batches(program: Programs) -> None:
    run = program("sized_batches.py", env={"HEADSPACE_INTERVAL": "0.2"})
    assert run.exit_code == 0, run.stderr
    (episode,) = run.summary()["episodes"]
    assert (episode["kind"], episode["signal"]) == ("outliers", "wait")
    assert (episode["batch_bytes"], episode["usual_batch_bytes"]) == (40_000, 10_000)
    assert "The batches of these steps have 39.1 KiB, other batches 9.77 KiB." in episode["text"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "period", "signal", "function"),
    [
        ("checkpoint", 75, "compute", "save"),
        ("logging", 50, "compute", "report"),
        ("refill", 40, "wait", "Shuffled.refill"),
    ],
)
def test_a_stall_names_its_period_and_its_source(
    program: Programs, source: str, period: int, signal: str, function: str
) -> None:
    pytest.importorskip("torch")
    run = program("stalls.py", source, 700, python=[*HEADSPACE, "--", sys.executable])
    assert run.exit_code == 0, run.stderr

    # A busy machine may cause further stalls.
    (episode,) = (one for one in run.summary()["episodes"] if one["kind"] == "periodic")
    assert episode["period_steps"] == period
    assert (episode["signal"], episode["function"]) == (signal, function)
    stalls = [float(word) for word in run.stdout.split()]
    # The first stall is in the warm-up. The last one may come after the last step.
    assert 0.6 * sum(stalls[1:-1]) < episode["cost_s"] < 1.1 * sum(stalls)
