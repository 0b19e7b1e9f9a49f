"""How long a run takes, and its throughput in the unit of the user."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import pytest
from running import Runs

import headspace


class Batches:
    """A loader with a length. Its batches hold 1, 2, 3, 1, 2, 3, ... frames."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        return iter([list(range(1 + number % 3)) for number in range(self.batches)])


class Frames(list[int]):
    """A batch to which weak references are possible."""


def train(loader: Any, epochs: int = 1) -> None:
    for _ in range(epochs):
        for _ in loader:
            pass


def test_a_complete_run_states_its_length_and_its_duration(runs: Runs) -> None:
    train(headspace.wrap(Batches(300), epochs=4), epochs=4)
    headspace.stop()

    summary = runs.summary()
    time = summary["run_time"]
    assert (time["epochs"], time["epoch"]["steps"], time["run"]["steps"]) == (4, 300, 1200)
    duration = time["run"]["duration_s"]
    assert 0 < duration["value"] <= summary["elapsed_s"]
    assert duration["low"] == duration["value"] == duration["high"], "it is measured"
    assert "remaining" not in time
    assert "saved_by_free_data_s" not in time["run"], "nothing was probed"
    assert "gpus" not in time


def test_a_run_in_progress_states_the_rest_and_both_parts_are_the_whole(runs: Runs) -> None:
    headspace.start()
    loader = headspace.wrap(Batches(300), epochs=4)
    for _ in loader:
        sum(range(5000))
    batches = iter(loader)
    for _ in range(100):
        next(batches)
        sum(range(5000))  # Shorter steps are combined, and then there are too few for an interval.
    summary = headspace.report().to_dict()

    time = summary["run_time"]
    rest, whole = time["remaining"], time["run"]
    assert rest["steps"] == 1200 - 400
    assert whole["steps"] == 1200
    assert rest["duration_s"]["low"] <= rest["duration_s"]["value"] <= rest["duration_s"]["high"]
    assert whole["duration_s"]["value"] >= rest["duration_s"]["value"]
    assert "(4 epochs of " in str(headspace.report())


def test_batches_of_a_pause_count_in_the_length_of_an_epoch_and_of_the_run(runs: Runs) -> None:
    session = headspace.start()
    loader = headspace.wrap(Batches(300), epochs=4)
    for epoch in range(4):
        for number, _ in enumerate(loader):
            # A pause in the first epoch, and one over the end of the second.
            if (epoch, number) in {(0, 100), (1, 250)}:
                session.pause()
            if (epoch, number) in {(0, 200), (2, 50)}:
                session.resume()
    headspace.stop()

    summary = runs.summary()
    time = summary["run_time"]
    assert (time["epoch"]["steps"], time["run"]["steps"]) == (300, 1200)
    assert summary["steps"] == 1200 - 100 - 100
    assert "remaining" not in time


def test_a_probe_states_what_free_data_would_save_in_the_whole_run(runs: Runs) -> None:
    loader = headspace.wrap(
        Batches(5000), mode="probe", probe_steps=300, stop_after_probe=True, epochs=90
    )
    train(loader)
    headspace.stop()

    summary = runs.summary()
    time = summary["run_time"]
    assert time["run"]["steps"] == 90 * 5000, "the run of the user, not that of the probe"
    if summary["headspace_pct"] is None:
        assert "saved_by_free_data_s" not in time["run"]
        return
    each = summary["steady_step_mean_ms"] / 1e3 * summary["headspace_pct"] / 100
    for period in (time["epoch"], time["run"]):
        saved = period["saved_by_free_data_s"]
        assert saved["value"] == pytest.approx(period["steps"] * each)
        assert saved["low"] <= saved["value"] <= saved["high"]


def test_the_shorter_of_two_lengths_counts_and_an_unknown_length_gives_nothing(runs: Runs) -> None:
    train(headspace.wrap(Batches(300), epochs=4, total_steps=500))
    headspace.stop()
    assert runs.summary()["run_time"]["run"]["steps"] == 500


def test_a_generator_without_a_length_has_the_length_of_its_first_epoch(
    runs: Runs, name: str
) -> None:
    headspace.start()
    for _ in range(2):
        train(headspace.wrap(iter([0] * 150), name=name, epochs=5))
    time = headspace.report().to_dict()["run_time"]
    assert (time["epoch"]["steps"], time["run"]["steps"]) == (150, 750)


def test_units_are_counted_and_each_stage_of_the_records_has_them(runs: Runs) -> None:
    counted = []

    def frames(batch: list[int]) -> int:
        counted.append(len(batch))
        return len(batch)

    train(headspace.wrap(Batches(3000), samples=frames, unit="frames", batch_size=8))
    headspace.stop()

    summary = runs.summary()
    assert summary["unit"] == "frames"
    batches_per_s = summary["steady_steps"] / summary["steady_s"]
    per_batch = summary["throughput_units_per_s"] / batches_per_s
    assert per_batch == pytest.approx(2.0, rel=0.1)
    assert summary["throughput_samples_per_s"] == pytest.approx(8 * batches_per_s)
    assert counted[:6] == [1, 2, 3, 1, 2, 3]
    assert 64 <= len(counted) <= 64 + 3000 / 17
    assert runs.kind("run")[0]["loader"]["unit"] == "frames"


def test_samples_without_a_unit_replace_the_batch_size(runs: Runs) -> None:
    train(headspace.wrap(Batches(300), samples=lambda _: 5))
    headspace.stop()

    summary = runs.summary()
    batches_per_s = summary["steady_steps"] / summary["steady_s"]
    assert summary["throughput_samples_per_s"] == pytest.approx(5 * batches_per_s)
    assert "unit" not in summary


@pytest.mark.parametrize("mode", ["measure", "probe"])
def test_the_time_of_the_function_is_in_no_step(runs: Runs, mode: str) -> None:
    spent_s = []

    def slow(batch: list[int]) -> int:
        begin = perf_counter()
        sum(range(200_000))
        spent_s.append(perf_counter() - begin)
        return len(batch)

    train(headspace.wrap(Batches(400), samples=slow, unit="frames", mode=mode))
    headspace.stop()

    # A call takes some milliseconds, and a step without it some microseconds.
    loops = [loop for tick in runs.kind("tick") for loop in tick["loops"]]
    steps_s = sum(loop["step"]["sum_ms"] for loop in loops) / 1e3
    assert len(spent_s) >= 64
    assert steps_s < 0.5 * sum(spent_s)


def test_a_function_that_fails_is_reported_once_and_training_continues(runs: Runs) -> None:
    def fails(_: object) -> int:
        raise RuntimeError("no frames here")

    seen = list(headspace.wrap(Batches(300), samples=fails, unit="frames"))
    headspace.stop()

    assert len(seen) == 300
    (notice,) = [n for n in runs.kind("notice") if n["code"] == "units_not_counted"]
    assert "RuntimeError: no frames here" in notice["text"]
    assert "throughput in frames" in notice["text"]
    summary = runs.summary()
    assert "throughput_units_per_s" not in summary
    assert summary["steps"] == 300


@pytest.mark.parametrize("returned", [1.5, -1, None, "many"])
def test_what_is_no_number_of_units_is_reported(runs: Runs, returned: Any) -> None:
    train(headspace.wrap(Batches(300), samples=lambda _: returned, unit="tokens"))
    headspace.stop()

    assert runs.notices().count("units_not_counted") == 1


def test_an_interrupt_in_the_function_reaches_the_program(runs: Runs) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(headspace.wrap(Batches(10), samples=interrupted))


def test_no_batch_is_kept(runs: Runs) -> None:
    references = []

    def batches() -> Iterator[Frames]:
        for _ in range(100):
            batch = Frames([1])
            references.append(weakref.ref(batch))
            yield batch
            del batch

    for _ in headspace.wrap(batches(), samples=len, unit="frames"):
        pass
    gc.collect()
    assert sum(reference() is not None for reference in references) <= 1, "the loop's variable"


def test_a_loader_with_a_function_can_be_pickled(runs: Runs) -> None:
    wrapped = headspace.wrap(Batches(10), samples=lambda _: 1, unit="frames")
    assert len(list(pickle.loads(pickle.dumps(wrapped)))) == 10


def test_a_loader_that_is_wrapped_in_each_epoch_is_one_loop(runs: Runs, name: str) -> None:
    for _ in range(2):
        train(headspace.wrap(Batches(100), name=name, samples=lambda b: len(b)))
    headspace.stop()
    assert (runs.summary()["loop"], runs.summary()["epochs"]) == (name, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"samples": len, "unit": "frames/s"}, ValueError, "is not a name of 1 to 32 letters"),
        ({"samples": len, "unit": "_frames"}, ValueError, "begins with a letter"),
        ({"samples": len, "unit": "f" * 33}, ValueError, "is not a name"),
        ({"samples": len, "unit": 3}, ValueError, "is not a name"),
        ({"unit": "frames"}, ValueError, "`unit` needs `samples`"),
        ({"samples": 3}, TypeError, "is not a function"),
        ({"samples": len, "batch_size": 3}, ValueError, "give one"),
        ({"epochs": 0}, ValueError, "`epochs` is not a positive whole number"),
        ({"total_steps": 1.5}, ValueError, "`total_steps` is not a positive whole number"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        headspace.wrap([0], **arguments)
