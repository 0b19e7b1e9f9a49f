"""Epochs with repeated batches: their length, the source of the repeated batches, and the state after errors."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections import UserDict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from running import Runs, of_kind

import headspace
from headspace._caching.copies import copy_containers, copy_values

#: Enough steps for a whole probe. Iterating a list of this length is fast.
PROBE_STEPS = 300


class Source:
    """Epochs of new batches with a length. It counts the delivered batches."""

    def __init__(self, length: int, make: Callable[[int], Any] = lambda number: [number]) -> None:
        self.length = length
        self.make = make
        self.asked = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.length):
            self.asked += 1
            yield self.make(self.asked)


@pytest.mark.parametrize("length", [7, 50, 130])
def test_a_probed_epoch_has_as_many_batches_as_the_length_of_the_loader(
    runs: Runs, length: int
) -> None:
    source = Source(length)
    loader = headspace.wrap(source, mode="probe", probe_steps=PROBE_STEPS)

    epochs = [sum(1 for _ in loader) for _ in range(600 // length + 2)]
    headspace.stop()

    assert set(epochs) == {length}
    assert source.asked < sum(epochs), "repeated batches took the place of some"
    recorded = runs.kind("epoch")
    assert {epoch["steps"] for epoch in recorded} == {length}
    assert all(epoch["exhausted"] for epoch in recorded)
    assert sum(epoch["replayed"] for epoch in recorded) == sum(epochs) - source.asked > 0
    (said,) = [n for n in runs.kind("notice") if n["code"] == "batches_replaced"]
    assert "repeated batches count towards the epoch" in said["text"]


def test_with_exactly_once_every_batch_of_the_source_is_delivered(runs: Runs) -> None:
    source = Source(50)
    loader = headspace.wrap(
        source, mode="probe", probe_steps=PROBE_STEPS, exactly_once=True, name="once"
    )

    epochs = [[batch[0] for batch in loader] for _ in range(12)]
    headspace.stop()

    live = list(dict.fromkeys(itertools.chain(*epochs)))
    assert live == list(range(1, 601))
    assert max(map(len, epochs)) > 50
    assert "batches_replaced" not in runs.notices()


def test_without_a_length_every_batch_of_the_source_is_delivered(runs: Runs) -> None:
    loader = headspace.wrap(
        ([number] for number in range(500)), mode="probe", probe_steps=PROBE_STEPS
    )

    got = [batch[0] for batch in loader]

    assert list(dict.fromkeys(got)) == list(range(500))
    assert len(got) > 500


def test_a_length_that_is_too_small_removes_no_batch_outside_of_replay(runs: Runs) -> None:
    class More(Source):
        def __len__(self) -> int:
            return 3

    loader = headspace.wrap(More(10), mode="probe", probe_steps=PROBE_STEPS)

    assert [len(list(loader)) for _ in range(2)] == [10, 10]


@pytest.mark.parametrize("mode", ["measure", "probe", "replay"])
def test_a_loop_that_skips_bad_samples_receives_all_others(runs: Runs, mode: str) -> None:
    class Bad(Iterator[list[int]]):
        def __init__(self) -> None:
            self.number = 0

        def __next__(self) -> list[int]:
            self.number += 1
            if self.number > 400:
                raise StopIteration
            if self.number % 25 == 0:
                raise OSError(f"sample {self.number} is damaged")
            return [self.number]

    loader = headspace.wrap(
        Bad(), mode=mode, num_caches=2, return_caches_after=390, probe_steps=PROBE_STEPS
    )
    got, errors, batches = [], 0, iter(loader)
    while len(got) < 1000:
        try:
            got.append(next(batches)[0])
        except StopIteration:
            break
        except OSError:
            errors += 1

    assert errors == 16
    assert list(dict.fromkeys(got)) == [n for n in range(1, 401) if n % 25]


def test_a_cache_data_loader_continues_after_an_error_that_the_loop_catches(runs: Runs) -> None:
    class Bad(Iterator[int]):
        numbers = itertools.count()

        def __next__(self) -> int:
            number = next(self.numbers)
            if number == 3:
                raise OSError("damaged")
            return number

    batches = iter(headspace.CacheDataLoader(Bad(), 2, 6, stop_after=9))
    assert list(itertools.islice(batches, 3)) == [0, 1, 2]
    with pytest.raises(OSError, match="damaged"):
        next(batches)
    assert list(batches) == [4, 5, 6, 0, 1, 0]


@dataclasses.dataclass(frozen=True)
class Sample:
    image: bytearray
    names: list[str]


class Encoding(UserDict):  # type: ignore[type-arg]
    """A `UserDict`, like transformers' `BatchEncoding`."""


def reassigned(batch: Any) -> None:
    assert batch["image"] == 255, "the batch is unmodified"
    batch["image"] = batch["image"] / 255
    batch.pop("label")


def item_changed(batch: Any) -> None:
    assert batch["images"][1] == [2]
    batch["images"][1].append(3)
    del batch["images"][0]


def field_changed(batch: Any) -> None:
    assert batch.names == ["a"]
    batch.names.clear()


def changed_within(batch: Any) -> None:
    assert batch["image"] == b"\x01\x02"
    batch["image"][0] = 9


def changed_in_tuple(batch: Any) -> None:
    image, label = batch
    assert (image, label) == (b"\x01\x02", 5)
    image[0] = 9


CHANGES: dict[str, tuple[Callable[[int], Any], Callable[[Any], None], bool]] = {
    "a key is reassigned": (lambda _: {"image": 255, "label": 1}, reassigned, False),
    "an encoding's key": (lambda _: Encoding(image=255, label=1), reassigned, False),
    "a nested list": (lambda _: {"images": [[1], [2]]}, item_changed, False),
    "a dataclass' list": (lambda _: Sample(bytearray(2), ["a"]), field_changed, False),
    "bytes within": (lambda _: {"image": bytearray(b"\x01\x02")}, changed_within, True),
    "a tuple's bytes": (lambda _: (bytearray(b"\x01\x02"), 5), changed_in_tuple, True),
}


@pytest.mark.parametrize("mode", ["probe", "replay"])
@pytest.mark.parametrize("kind", CHANGES)
def test_a_batch_is_replayed_unchanged_even_if_the_loop_modifies_it(
    runs: Runs, kind: str, mode: str
) -> None:
    make, change, needs_copies = CHANGES[kind]
    source = Source(100, make)
    loader = headspace.wrap(
        source, mode=mode, num_caches=5, return_caches_after=40, probe_steps=PROBE_STEPS
    )

    for _ in range(6):
        for batch in loader:
            change(batch)
    headspace.stop()

    assert source.asked < 600
    assert ("batches_mutated" in runs.notices()) == needs_copies
    for probe in runs.kind("probe"):
        assert probe["mutated_batches"] == 0
        assert probe["replayed_steps"] > 0


@pytest.mark.parametrize("kind", ["Tensor", "Subclass"])
def test_tensors_changed_in_place_are_copied(runs: Runs, kind: str) -> None:
    torch = pytest.importorskip("torch")
    # MONAI's `MetaTensor`, torchvision's `Image` and fastai's `TensorImage` are such subclasses.
    kinds = {"Tensor": torch.Tensor, "Subclass": type("Subclass", (torch.Tensor,), {})}
    image = torch.full((4,), 255.0)
    source = Source(
        100, lambda number: {"image": image.clone().as_subclass(kinds[kind]), "label": number}
    )
    loader = headspace.wrap(source, mode="probe", probe_steps=PROBE_STEPS)

    for _ in range(6):
        for batch in loader:
            assert float(batch["image"].sum()) == 4 * 255
            assert type(batch["image"]) is kinds[kind]
            batch["image"].div_(255)
    headspace.stop()

    assert "batches_mutated" in runs.notices()
    (probe,) = runs.kind("probe")
    assert probe["mutated_batches"] == 0
    assert probe["replayed_steps"] > 0
    assert probe["cached_bytes"] == probe["cached_batches"] * 16


class Huge:
    """Has the interface of a tensor of half a gibibyte."""

    shape, requires_grad = (), False

    def __init__(self) -> None:
        self._version = 0

    def untyped_storage(self) -> Any:
        return SimpleNamespace(nbytes=lambda: 1 << 29)

    def detach(self) -> Huge:
        return self

    def clone(self) -> Huge:
        return Huge()

    def requires_grad_(self, _: bool) -> Huge:
        return self


def test_batches_whose_copies_would_take_more_than_a_gibibyte_are_not_replayed(runs: Runs) -> None:
    source = Source(100, lambda _: [Huge()])
    loader = headspace.wrap(source, mode="probe", probe_steps=PROBE_STEPS)

    for _ in range(6):
        for (image,) in loader:
            assert image._version == 0, "the batch is unmodified"
            image._version += 1
    headspace.stop()

    (probe,) = runs.kind("probe")
    assert "would take more than 1 GiB" in probe["reason"]
    assert "floor" not in probe
    assert (probe["replayed_steps"], probe["cached_batches"]) == (0, 0)


class Interrupted(dict):  # type: ignore[type-arg]
    """A batch in whose copy or fingerprint the user presses Ctrl-C, once."""

    presses: ClassVar[list[str]] = []

    def values(self) -> Any:
        self.press("fingerprint")
        return super().values()

    def items(self) -> Any:
        self.press("copy")
        return super().items()

    def press(self, where: str) -> None:
        if self.presses == [where]:
            self.presses.clear()
            raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["copy", "fingerprint"])
def test_an_interrupt_while_a_batch_is_copied_reaches_the_program(runs: Runs, where: str) -> None:
    source = Source(100, lambda number: Interrupted(number=number))
    loader = headspace.wrap(source, mode="probe", probe_steps=PROBE_STEPS)
    Interrupted.presses[:] = [where]

    with pytest.raises(KeyboardInterrupt):
        list(itertools.chain.from_iterable(loader for _ in range(6)))
    assert Interrupted.presses == []
    # The program may continue, and it gets the batches of its loader.
    epochs = [[batch["number"] for batch in loader] for _ in range(6)]
    headspace.stop()

    assert {len(epoch) for epoch in epochs} == {100}
    assert "batches_mutated" not in runs.notices()


def test_copies_share_what_the_original_shares_and_keep_types() -> None:
    inner = [1]
    batch = {"a": inner, "b": inner, "c": (inner, Encoding(x=inner))}

    for copies in (copy_containers(batch), copy_values(batch)):
        assert copies == batch
        assert copies["a"] is not inner
        assert copies["a"] is copies["b"] is copies["c"][0] is copies["c"][1]["x"]
        assert type(copies["c"][1]) is Encoding
    number = object()
    assert copy_containers(number) is number
    image = bytearray(b"image")
    copies = copy_values({"x": image, "y": [image]})
    assert copies["x"] is copies["y"][0] is not image


class Loader:
    """One of several loaders that the same line of a program iterates."""

    def __init__(self, fold: int, length: int) -> None:
        self.fold = fold
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter([(self.fold, number) for number in range(self.length)])


@pytest.mark.parametrize("mode", ["probe", "replay", "whatif"])
def test_batches_of_one_loader_are_never_delivered_in_an_epoch_of_another(
    runs: Runs, mode: str
) -> None:
    from headspace._loops.make_loop import make_loader_loop
    from headspace._session import lifecycle

    loop = make_loader_loop(
        Loader(0, 1),
        name="folds",
        mode=mode,
        num_caches=5,
        return_caches_after=20,
        probe_steps=PROBE_STEPS,
    )
    repeated = 0
    for fold in range(12):
        loader = Loader(fold, 45)
        for _ in range(2):
            got = list(loop.iterate(loader, lifecycle.begin))
            assert {batch[0] for batch in got} == {fold}
            assert len(got) == 45
            repeated += 45 - len(set(got))
    headspace.stop()

    assert repeated > 0


def test_reading_the_length_of_an_iterable_dataset_has_no_side_effect(runs: Runs) -> None:
    torch = pytest.importorskip("torch")

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 2

        def __iter__(self) -> Iterator[int]:
            return iter(range(8))

    loader = headspace.wrap(torch.utils.data.DataLoader(Stream(), batch_size=1), mode="probe")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(1 for _ in loader) == 8
    assert loader._IterableDataset_len_called is None


def replayed_batches(records: list[dict[str, Any]]) -> int:
    return sum(epoch["replayed"] for epoch in of_kind(records, "epoch"))


def not_trained_on(records: list[dict[str, Any]]) -> int:
    status = of_kind(records, "summary")[-1]["what_if_status"]
    return int(status["inputs_not_trained_on"])


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"mode": "probe", "probe_steps": PROBE_STEPS}, replayed_batches),
        ({"mode": "whatif"}, not_trained_on),
    ],
)
def test_accelerate_detects_the_last_batch_of_an_epoch_with_repeated_batches(
    runs: Runs, options: dict[str, Any], count: Callable[[list[dict[str, Any]]], int]
) -> None:
    torch = pytest.importorskip("torch")
    accelerate = pytest.importorskip("accelerate")
    data = torch.utils.data.TensorDataset(torch.arange(200.0).reshape(200, 1))
    accelerator = accelerate.Accelerator(cpu=True)
    loader = accelerator.prepare(torch.utils.data.DataLoader(data, batch_size=4))
    watched = headspace.wrap(loader, **options)

    for epoch in range(8):
        last = [accelerator.gradient_state.end_of_dataloader for _ in watched]
        assert last == [False] * 49 + [True]
        assert not accelerator.gradient_state.in_dataloader
        assert loader.iteration == epoch + 1
    headspace.stop()

    assert count(runs.records()) > 0
