"""The number of samples in a batch if the loader does not state it."""

from __future__ import annotations

import time
from collections import UserDict, namedtuple
from typing import Any

import pytest
import torch
from running import Runs
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

import headspace
from headspace._loops.loader_facts import samples_per_batch
from headspace._loops.samples import count_in_any, count_in_collated

images, labels = torch.zeros(8, 3, 4, 4), torch.zeros(8)
tokens = torch.zeros(8, 16, dtype=torch.int64)
Pair = namedtuple("Pair", "images labels")


@pytest.mark.parametrize(
    ("batch", "any_loader", "one_that_collates"),
    [
        ((images, labels), 8, 8),
        ([images, labels], 8, 8),
        (Pair(images, labels), 8, 8),
        ({"image": images, "label": labels}, 8, 8),
        ({"image": images, "target": {"label": labels}, "path": ["a"] * 8}, 8, 8),
        ({"input_ids": tokens, "attention_mask": tokens}, 8, 8),
        (UserDict({"input_ids": tokens, "labels": tokens}), 8, 8),
        ({"spectrum": images, "other": images}, None, 8),
        # One sample.
        ({"image": images[0], "label": labels[0]}, None, None),
        ({"image": images[0], "label": 7}, None, None),
        ({"input_ids": tokens[0], "attention_mask": tokens[0]}, None, 16),
        ((images[0], images[0]), None, None),
        # Samples that were not stacked.
        ([images[0]] * 5, None, None),
        ([(images[0], 1)] * 2, None, None),
        # No arrays, or arrays with different lengths.
        ({"text": ["a", "b", "c"]}, None, None),
        ({"image": images, "label": labels[:5]}, None, None),
        (images, None, None),
        ({}, None, None),
        (None, None, None),
        ("batch", None, None),
        ([[labels]] * 100, None, None),
    ],
)
def test_samples_are_counted_if_all_arrays_agree_and_cannot_be_a_single_sample(
    batch: Any, any_loader: int | None, one_that_collates: int | None
) -> None:
    assert count_in_any(batch) == any_loader
    assert count_in_collated(batch) == one_that_collates


def dicts(sizes: list[int]) -> list[dict[str, torch.Tensor]]:
    return [{"image": torch.zeros(size, 3, 2, 2), "label": torch.zeros(size)} for size in sizes]


def throughput(runs: Runs, batches: Any, **options: Any) -> tuple[Any, int | None]:
    for _ in headspace.wrap(batches, name="train", **options):
        # Steps of a few hundred nanoseconds have no steady state, and so no rate.
        time.sleep(0.001)
    headspace.stop()
    (epoch,) = runs.kind("epoch")
    return runs.summary()["throughput_samples_per_s"], epoch.get("samples")


def test_batches_that_are_dicts_have_a_throughput_in_samples(runs: Runs) -> None:
    rate, samples = throughput(runs, dicts([8] * 60))

    assert samples == 8 * 60
    assert rate > 0


def test_batches_without_a_common_sample_count_have_no_throughput(runs: Runs) -> None:
    rate, samples = throughput(runs, dicts([8, 8, 6] * 20))

    assert (rate, samples) == (None, None)


def test_an_explicit_batch_size_is_used_without_counting(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headspace._loops.samples.count_in_any", None)
    _, samples = throughput(runs, dicts([8] * 60), batch_size=4)

    assert samples == 4 * 60


def test_the_batch_size_is_read_from_a_batch_sampler() -> None:
    data = [torch.zeros(1)] * 64
    sampler = BatchSampler(SequentialSampler(data), 16, drop_last=False)
    loader: Any = DataLoader(data, batch_sampler=sampler)  # type: ignore[arg-type]
    assert loader.batch_size is None

    assert samples_per_batch(loader) == 16


def test_the_batch_size_of_a_custom_batch_sampler_is_not_used() -> None:
    class Mine(BatchSampler):
        pass

    data = [torch.zeros(1)] * 64
    sampler = Mine(SequentialSampler(data), 16, drop_last=False)
    loader: Any = DataLoader(data, batch_sampler=sampler)  # type: ignore[arg-type]

    assert samples_per_batch(loader) is None


def test_a_batch_that_cannot_be_inspected_is_still_delivered(runs: Runs) -> None:
    class Hostile(dict):  # type: ignore[type-arg]
        def values(self) -> Any:
            raise RuntimeError("not now")

    batches = [Hostile(a=1) for _ in range(40)]
    rate, _ = throughput(runs, batches)

    assert rate is None
    assert runs.summary()["steps"] == 40
