"""`wrap` with common loaders: those of torch, torchdata and SPDL."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import spdl.dataloader
from running import Runs, of_kind
from spdl.pipeline import PipelineBuilder

import headspace

torch = pytest.importorskip("torch")
data = pytest.importorskip("torch.utils.data")
stateful = pytest.importorskip("torchdata.stateful_dataloader")

pytestmark = [
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]

ITEMS = 24


class Items(data.Dataset):  # type: ignore[misc]
    def __init__(self, length: int = ITEMS) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((3,), index), "y": index}


class Stream(data.IterableDataset):  # type: ignore[misc]
    """A stream with a wrong length. torch allows this and warns."""

    def __len__(self) -> int:
        return ITEMS // 2

    def __iter__(self) -> Iterator[int]:
        worker = data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return iter(range(first, ITEMS, step))


LOADERS: dict[str, Callable[[], Any]] = {
    "in process": lambda: data.DataLoader(Items(), batch_size=5),
    "shuffled": lambda: data.DataLoader(Items(), batch_size=5, shuffle=True),
    "workers": lambda: data.DataLoader(Items(), batch_size=5, num_workers=2, shuffle=True),
    "persistent": lambda: data.DataLoader(
        Items(), batch_size=5, num_workers=2, persistent_workers=True, shuffle=True
    ),
    "pinned": lambda: data.DataLoader(Items(), batch_size=5, pin_memory=True),
    "pinned workers": lambda: data.DataLoader(
        Items(), batch_size=5, num_workers=2, pin_memory=True
    ),
    "stream": lambda: data.DataLoader(Stream(), batch_size=5),
    "stream workers": lambda: data.DataLoader(Stream(), batch_size=5, num_workers=2),
    "no batches": lambda: data.DataLoader(Items(), batch_size=None),
    "batch sampler": lambda: data.DataLoader(
        Items(), batch_sampler=data.BatchSampler(range(ITEMS), 7, drop_last=True)
    ),
    "stateful": lambda: stateful.StatefulDataLoader(Items(), batch_size=5, shuffle=True),
    "stateful workers": lambda: stateful.StatefulDataLoader(Items(), batch_size=5, num_workers=2),
}


def plain(batch: Any) -> Any:
    """A batch as something that `==` compares."""
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [plain(value) for value in batch]
    return batch.tolist() if isinstance(batch, torch.Tensor) else batch


@pytest.mark.parametrize("kind", LOADERS)
def test_a_torch_loader_gives_the_same_batches_and_leaves_the_same_state(
    runs: Runs, kind: str
) -> None:
    def story(watch: Callable[[Any], Any]) -> Any:
        torch.manual_seed(7)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            loader = watch(LOADERS[kind]())
            whole = [[plain(batch) for batch in loader] for _ in range(2)]
            part = [plain(batch) for batch in itertools.islice(loader, 2)]
            again = [plain(batch) for batch in loader]
        said = {str(warning.message).partition("0x")[0] for warning in warned}
        return whole, part, again, len(loader), said, torch.get_rng_state().tolist()

    assert story(headspace.wrap) == story(lambda loader: loader)


@pytest.mark.parametrize("kind", LOADERS)
def test_a_wrapped_torch_loader_is_accepted_as_a_torch_loader(runs: Runs, kind: str) -> None:
    loader = LOADERS[kind]()
    wrapped = headspace.wrap(loader)

    assert isinstance(wrapped, type(loader))
    assert wrapped.dataset is loader.dataset
    assert wrapped.sampler is loader.sampler
    assert type(iter(wrapped)).__name__ == "LoopIterator"
    assert iter(wrapped).__class__ is iter(loader).__class__
    with pytest.raises(ValueError, match="DataLoader is initialized"):
        wrapped.batch_size = 9


def test_the_records_contain_the_type_of_the_loader(runs: Runs) -> None:
    wrapped = headspace.wrap(
        data.DataLoader(Items(), batch_size=5, num_workers=2, prefetch_factor=3)
    )
    for _ in wrapped:
        pass
    headspace.stop()

    records = runs.records()
    loader = of_kind(records, "run")[0]["loader"]
    assert loader["type"] == "torch.utils.data.dataloader.DataLoader"
    assert loader["name"].startswith("DataLoader")
    assert (loader["batches"], loader["batch_size"]) == (5, 5)
    assert (loader["workers"], loader["prefetch_depth"]) == (2, 6)
    (epoch,) = of_kind(records, "epoch")
    assert (epoch["steps"], epoch["samples"], epoch["exhausted"]) == (5, 25, True)
    assert of_kind(records, "run")[0]["versions"]["torch"] == torch.__version__


@pytest.mark.parametrize("workers", [0, 2])
def test_set_epoch_reaches_the_sampler(runs: Runs, workers: int) -> None:
    class Sampler(data.Sampler):  # type: ignore[misc]
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __len__(self) -> int:
            return 4

        def __iter__(self) -> Iterator[int]:
            return iter(range(self.epoch, self.epoch + 4))

    wrapped = headspace.wrap(
        data.DataLoader(Items(), sampler=Sampler(), batch_size=None, num_workers=workers)
    )

    for epoch in (0, 5):
        wrapped.sampler.set_epoch(epoch)
        assert [batch["y"] for batch in wrapped] == list(range(epoch, epoch + 4))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", ["measure", "probe"])
def test_a_stateful_loader_resumes_in_the_middle_of_an_epoch(
    runs: Runs, workers: int, mode: str
) -> None:
    def make() -> Any:
        torch.manual_seed(3)
        return stateful.StatefulDataLoader(Items(), batch_size=2, num_workers=workers, shuffle=True)

    def state_after_5(loader: Any) -> Any:
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        return loader.state_dict()

    def rest(loader: Any, state: Any) -> list[Any]:
        loader.load_state_dict(state)
        return [plain(batch) for batch in loader]

    expected = rest(make(), state_after_5(make()))
    state = state_after_5(headspace.wrap(make(), mode=mode))

    assert len(expected) == ITEMS // 2 - 5
    assert rest(headspace.wrap(make(), mode=mode), state) == expected
    assert rest(make(), state) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_a_probe_of_a_torch_loader_loses_no_batch(runs: Runs, workers: int) -> None:
    wrapped = headspace.wrap(
        data.DataLoader(Items(1500), batch_size=None, num_workers=workers),
        mode="probe",
        probe_steps=1000,
        exactly_once=True,
    )

    live: list[int] = []
    replayed = 0
    for batch in wrapped:
        # Only the cache delivers an earlier batch again.
        if live and batch["y"] <= live[-1]:
            replayed += 1
        else:
            live.append(batch["y"])
    headspace.stop()

    assert live == list(range(1500))
    (probe,) = runs.kind("probe")
    assert probe["replayed_steps"] == replayed > 0
    assert probe["cached_bytes"] > 0
    assert probe["mutated_batches"] == 0


def pipeline() -> Any:
    return (
        PipelineBuilder()
        .add_source(range(20))
        .pipe(lambda x: x + 100, concurrency=2, output_order="input")
        .aggregate(3)
        .add_sink(2)
        .build(num_threads=2)
    )


def test_an_spdl_pipeline_can_be_iterated_inside_its_with_block(runs: Runs) -> None:
    bare = pipeline()
    with bare.auto_stop():
        expected = list(bare)

    wrapped = headspace.wrap(pipeline(), name="spdl pipeline")
    with wrapped.auto_stop():
        got = list(itertools.islice(wrapped, 3))
        got += list(wrapped)
    headspace.stop()

    assert got == expected == [list(range(i, min(i + 3, 120))) for i in range(100, 120, 3)]
    assert {epoch["loop"] for epoch in runs.kind("epoch")} == {"spdl pipeline"}


def test_a_failure_in_an_spdl_pipeline_raises_the_error_of_spdl(runs: Runs) -> None:
    def fail(item: int) -> int:
        raise OSError(f"item {item}")

    def outcome(watch: Callable[[Any], Any]) -> tuple[type, int]:
        built = watch(
            PipelineBuilder()
            .add_source(range(9))
            .pipe(fail)
            .add_sink(2)
            .build(num_threads=1, max_failures=2)
        )
        count = 0
        with pytest.raises(Exception) as caught, built.auto_stop():  # noqa: PT012
            for _ in built:
                count += 1
        return type(caught.value), count

    assert outcome(headspace.wrap) == outcome(lambda loader: loader)


def test_spdls_data_loader_gives_the_same_batches_each_epoch(runs: Runs) -> None:
    def make() -> Any:
        return spdl.dataloader.DataLoader(
            range(17), preprocessor=str, batch_size=4, num_threads=2, output_order="input"
        )

    wrapped, bare = headspace.wrap(make()), make()

    for _ in range(2):
        assert list(wrapped) == list(bare)
    assert list(itertools.islice(wrapped, 2)) == list(itertools.islice(bare, 2))


def test_spdls_torch_loader_gives_the_same_batches(runs: Runs) -> None:
    def make() -> Any:
        return spdl.dataloader.get_pytorch_dataloader(
            Items(), batch_size=5, num_workers=2, in_order=True
        )

    wrapped, bare = headspace.wrap(make()), make()

    assert len(wrapped) == len(bare)
    assert [plain(batch) for batch in wrapped] == [plain(batch) for batch in bare]


def test_replay_of_an_spdl_pipeline_releases_it(runs: Runs) -> None:
    made: list[int] = []
    built = (
        PipelineBuilder()
        .add_source(itertools.count())
        .pipe(lambda x: made.append(x) or x)
        .add_sink(2)
        .build(num_threads=1)
    )
    with built.auto_stop():
        got = list(headspace.cache_iterator(built, 2, return_caches_after=4, stop_after=50_000))

    assert got == [0, 1, 2, 3] + [0, 1] * 24_998
    assert len(made) < 1000, "the pipeline stands still: nobody takes from it"
