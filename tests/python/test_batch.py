"""The contents of a batch, and the remedy for a loop that loads in its own thread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy
import pytest
from running import Runs

import headspace
from headspace._loops.batch_parts import count_parts

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_containers_and_their_elements_count_as_objects_and_arrays_as_bytes() -> None:
    batch = [{"id": 1, "text": "abcd"}, numpy.zeros(1000, numpy.uint8)]

    assert count_parts(batch) == (0, 0, 5, 1004, 0)


def test_a_long_list_is_estimated_from_a_few_elements() -> None:
    batch = [{"id": number, "text": "x" * 10} for number in range(8000)]

    tensors, _, objects, object_bytes, _ = count_parts(batch)

    assert tensors == 0
    assert objects == pytest.approx(24_000, rel=0.05)
    assert object_bytes == pytest.approx(80_000, rel=0.05)


def test_counting_ends_for_a_batch_that_contains_itself() -> None:
    batch: list[Any] = []
    batch.append(batch)

    assert count_parts(batch)[2] > 0


def test_tensors_count_as_shared_memory_and_not_as_objects() -> None:
    torch = pytest.importorskip("torch")
    batch = {"image": torch.zeros(8, 3, 16, 16), "label": torch.zeros(8)}

    assert count_parts(batch) == (2, 8 * 3 * 16 * 16 * 4 + 32, 1, 0, 0)


def test_tensors_that_are_not_in_the_main_memory_are_counted() -> None:
    torch = pytest.importorskip("torch")
    batch = [torch.zeros(8, device="meta"), torch.zeros(8)]

    assert count_parts(batch) == (2, 64, 1, 0, 1)


class Joins:
    """A loader with worker processes. The training process joins each batch to one tensor."""

    num_workers = 2

    def __iter__(self) -> Iterator[Any]:
        torch = pytest.importorskip("torch")
        return (torch.zeros(100 * (number + 1)) for number in range(40))


def test_the_contents_of_the_batches_that_the_loop_gets_are_recorded(runs: Runs) -> None:
    session = headspace.start(interval=60)
    for _ in headspace.wrap(Joins()):
        pass
    session.stop()

    # The numbers of the second batch.
    delivered = {"tensors": 1, "tensor_bytes": 800, "objects": 0, "object_bytes": 0}
    assert runs.summary()["delivered_batch"] == delivered


def test_a_loader_without_workers_is_named_and_workers_are_proposed(runs: Runs) -> None:
    data = pytest.importorskip("torch.utils.data")
    torch = pytest.importorskip("torch")

    class Slow(data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 480

        def __getitem__(self, index: int) -> Any:
            time.sleep(0.003)
            return torch.ones(16), index

    for _ in headspace.wrap(data.DataLoader(Slow(), batch_size=4)):
        time.sleep(0.006)
    headspace.stop()

    summary = runs.summary()
    assert summary["bottleneck"]["kind"] == "stage"
    assert summary["bottleneck"]["name"].endswith("fetch")
    evidence = summary["bottleneck"]["evidence"]
    assert "on the training thread itself (num_workers=0)" in evidence
    # A batch was inspected, so the cost is known.
    assert "to receive a batch" in evidence
    knobs = [remedy.get("change", {}).get("knob") for remedy in summary["remedies"]]
    assert "num_workers" in knobs
    assert not any(remedy["code"] == "subprocess" for remedy in summary["remedies"])
