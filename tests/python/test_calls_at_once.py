"""The time of a stage's calls by the number of calls at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from running import Record, Runs

import headspace

#: Time of a call that is alone.
CALL_S = 0.008

#: Numbers of batches of the epochs, repeated. Few batches occupy few of four workers.
BATCHES = (1, 2, 12, 3, 1)


def levels(runs: Runs, stage: str) -> list[Record]:
    (found,) = [entry for entry in runs.summary()["stages"] if entry["name"] == stage]
    return found.get("call_ms_by_calls", [])


def share_a_device(active: Any, own: int) -> None:
    """Works as long as `CALL_S` alone, and n times as long if n callers share the device."""
    active[own] = 1
    left, before = CALL_S * (0.7 + 0.2 * own), time.monotonic()
    while left > 0:
        time.sleep(0.0005)
        now = time.monotonic()
        left -= (now - before) / max(1, int(sum(active)))
        before = now
    active[own] = 0


@pytest.mark.alone  # A stall of the machine during the few calls of a level makes its mean too long.
@pytest.mark.parametrize("contend", [True, False], ids=["contend", "sleep"])
def test_workers_of_torch_count_the_fetches_at_once(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, contend: bool
) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader, Dataset, get_worker_info

    monkeypatch.setattr("headspace._loops.names._uses", {})
    monkeypatch.setattr("headspace._loops.owner._owners", {})
    epochs = 200
    active = torch.zeros(4, dtype=torch.uint8).share_memory_().numpy()

    class Items(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return max(BATCHES)

        def __getitem__(self, index: int) -> int:
            if contend:
                info = get_worker_info()
                assert info is not None
                share_a_device(active, info.id)
            else:
                time.sleep(CALL_S)
            return index

    class Batches:
        epoch = 0

        def __len__(self) -> int:
            return BATCHES[self.epoch % len(BATCHES)]

        def __iter__(self) -> Iterator[list[int]]:
            yield from ([index] for index in range(len(self)))
            self.epoch += 1

    loader = headspace.wrap(
        DataLoader(
            Items(),
            batch_sampler=Batches(),  # type: ignore[arg-type]
            num_workers=4,
            persistent_workers=True,
            multiprocessing_context="fork",
        )
    )
    for _ in range(epochs):
        for _ in loader:
            pass
    headspace.stop()

    found = levels(runs, "fetch")
    assert {1, 4} <= {level["calls"] for level in found} <= {1, 2, 3, 4}, found
    assert all(level["count"] >= 8 for level in found), found
    means = [level["mean_ms"] for level in found]
    if contend:
        assert means == sorted(means), found
        assert means[-1] > 2 * means[0], found
    else:
        assert max(means) < 1.25 * min(means), found


@pytest.mark.alone  # A stall of the machine during the calls of a level makes its mean too long.
def test_threads_of_a_process_count_their_calls_at_once(runs: Runs, name: str) -> None:
    active = [0] * 3
    stage = headspace.stage(name)

    def work(thread: int) -> None:
        with stage:
            share_a_device(active, thread)

    def batches() -> Iterator[int]:
        for number in range(300):
            threads = [
                threading.Thread(target=work, args=(thread,)) for thread in range(1 + number % 3)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            yield number

    for _ in headspace.wrap(batches()):
        pass
    headspace.stop()

    found = levels(runs, name)
    assert len(found) >= 2, found
    assert found[-1]["mean_ms"] > 1.5 * found[0]["mean_ms"], found


def test_calls_that_are_never_at_once_have_no_table(runs: Runs, name: str) -> None:
    stage = headspace.stage(name)
    for _ in headspace.wrap(range(300)):
        with stage:
            time.sleep(0.001)
    headspace.stop()

    assert levels(runs, name) == []
