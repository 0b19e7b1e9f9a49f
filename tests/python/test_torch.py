"""Stages and queues of a torch loader's workers, recorded with `wrap` only."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from running import Programs, Record, Runs

import headspace
from headspace._loops.loader_facts import read_facts
from headspace.torch._order import BatchEndTimes, watch_order

torch = pytest.importorskip("torch")
data = pytest.importorskip("torch.utils.data")


@pytest.fixture(autouse=True)
def _first_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resets the names, so that the stages of a test's loader have plain names."""
    monkeypatch.setattr("headspace._loops.names._uses", {})
    monkeypatch.setattr("headspace._loops.owner._owners", {})


class Numbers(data.Dataset):  # type: ignore[misc]
    def __init__(self, count: int, sleep_s: float = 0.0) -> None:
        self.count = count
        self.sleep_s = sleep_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        with headspace.stage("decode"):
            time.sleep(self.sleep_s)
        return index


class Random(data.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> list[float]:
        import numpy

        return [index, random.random(), float(torch.rand(1)), float(numpy.random.rand())]


class Stream(data.IterableDataset):  # type: ignore[misc]
    """Worker 1 has fewer items than worker 0."""

    def __iter__(self) -> Iterator[int]:
        info = data.get_worker_info()
        number = 0 if info is None else info.id
        yield from range(number * 100, number * 100 + (12 if number == 0 else 4))


class Uneven(Numbers):
    """Worker 0 takes `slow_s` seconds per item, and worker 1 takes none."""

    def __init__(self, count: int, slow_s: float = 0.06) -> None:
        super().__init__(count)
        self.slow_s = slow_s

    def __getitem__(self, index: int) -> int:
        time.sleep(0.0 if data.get_worker_info().id else self.slow_s)
        return index


class Broken(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 9:
            raise LookupError("no item 9")
        return index


class Late(data.DataLoader):  # type: ignore[misc]
    """Creates its iterator at the first batch, as Accelerate's loader does."""

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()


def note_start(worker_id: int) -> None:
    random.seed(random.random() + worker_id)


def entries(runs: Runs, kind: str, name: str) -> list[Record]:
    found = [entry for tick in runs.kind("tick") for entry in tick.get(kind, [])]
    return [entry for entry in found if entry["name"] == name]


def calls(runs: Runs, stage: str) -> Counter[str | None]:
    counted: Counter[str | None] = Counter()
    for entry in entries(runs, "stages", stage):
        counted[entry.get("worker")] += entry["time"].get("count", 0)
    return counted


def summarised(runs: Runs, stage: str) -> Record:
    (found,) = [entry for entry in runs.summary()["stages"] if entry["name"] == stage]
    return found


def train(loader: Any, epochs: int = 1, *, loop_s: float = 0.0, **options: Any) -> list[Any]:
    watched = headspace.wrap(loader, **options)
    batches = []
    for _ in range(epochs):
        for batch in watched:
            time.sleep(loop_s)
            batches.append(batch)
    headspace.stop()
    return batches


@pytest.mark.parametrize(
    ("method", "workers", "epochs"), [("fork", 2, 2), ("spawn", 1, 1), ("forkserver", 1, 1)]
)
def test_each_worker_counts_its_fetches_and_their_collation(
    runs: Runs, method: str, workers: int, epochs: int
) -> None:
    loader = data.DataLoader(
        Numbers(40),
        batch_size=4,
        num_workers=workers,
        multiprocessing_context=method,
        worker_init_fn=note_start,
    )
    before = dict(vars(loader))

    assert len(train(loader, epochs)) == 10 * epochs

    each = 10 * epochs / workers
    labels = [f"worker {number}" for number in range(workers)]
    assert calls(runs, "fetch") == dict.fromkeys(labels, each)
    assert calls(runs, "collate") == dict.fromkeys(labels, each)
    assert calls(runs, "decode") == dict.fromkeys(labels, 4 * each)
    assert calls(runs, "worker start") == dict.fromkeys(labels, epochs)
    for inner in ("collate", "decode"):
        assert {entry.get("within") for entry in entries(runs, "stages", inner)} == {"fetch"}
    assert vars(loader) == before
    assert "worker_lost" not in runs.notices()


def test_without_workers_the_trainer_counts_fetches_and_collation(runs: Runs) -> None:
    train(data.DataLoader(Numbers(40), batch_size=4))

    assert calls(runs, "fetch") == calls(runs, "collate") == {None: 10}
    assert {entry["within"] for entry in entries(runs, "stages", "collate")} == {"fetch"}
    assert entries(runs, "queues", "prefetch") == []


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("init", [None, note_start])
def test_batches_are_the_same_as_without_headspace(runs: Runs, workers: int, init: Any) -> None:
    def batches(watch: bool) -> list[Any]:
        torch.manual_seed(3)
        random.seed(3)
        loader = data.DataLoader(
            Random(),
            batch_size=4,
            shuffle=True,
            num_workers=workers,
            worker_init_fn=init if workers else None,
            generator=torch.Generator().manual_seed(5),
        )
        if workers == 0:
            import numpy

            numpy.random.seed(3)
        found = [list(loader), list(loader)] if not watch else []
        if watch:
            watched = headspace.wrap(loader)
            found = [list(watched), list(watched)]
        tensors = [[tensor.tolist() for tensor in batch] for epoch in found for batch in epoch]
        return [*tensors, torch.get_rng_state().tolist(), random.random()]

    assert batches(watch=True) == batches(watch=False)


@pytest.mark.parametrize("persistent", [False, True])
def test_an_iterable_dataset_that_ends_early_in_one_worker_is_counted_in_batches(
    runs: Runs, persistent: bool
) -> None:
    loader = data.DataLoader(
        Stream(), batch_size=4, num_workers=2, persistent_workers=persistent, timeout=60
    )

    assert len(train(loader, epochs=2)) == 8

    # A fetch that finds the end is not counted.
    assert calls(runs, "fetch") == {"worker 0": 6, "worker 1": 2}
    assert sum(calls(runs, "worker start").values()) == (2 if persistent else 4)


def test_persistent_workers_are_measured_in_every_epoch(runs: Runs) -> None:
    loader = data.DataLoader(
        Numbers(80, 0.005), batch_size=4, num_workers=2, persistent_workers=True
    )
    watched = headspace.wrap(loader)
    kinds, samples = set(), []
    for _ in range(3):
        kinds.add(type(watched._iterator) if watched._iterator else None)
        for _ in watched:
            time.sleep(0.03)
        session = headspace._session.lifecycle.current
        assert session is not None
        session.flush()
        samples.append(sum(entry["samples"] for entry in entries(runs, "queues", "prefetch")))
    headspace.stop()

    assert calls(runs, "fetch").total() == 60
    assert samples[0] < samples[1] < samples[2]
    assert kinds == {None, torch.utils.data.dataloader._MultiProcessingDataLoaderIter}


def test_the_prefetch_queue_is_recorded_as_the_last_queue(runs: Runs) -> None:
    train(data.DataLoader(Uneven(60), num_workers=2, prefetch_factor=3))

    prefetch = entries(runs, "queues", "prefetch")
    assert {(entry["capacity"], entry["last"]) for entry in prefetch} == {(6, True)}
    assert all(entry["deepest"] <= 6 for entry in prefetch)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_batch_that_is_ready_before_its_turn_has_a_reorder_delay(runs: Runs, method: str) -> None:
    count, epochs = 12, 2
    loader = data.DataLoader(
        Uneven(count),
        num_workers=2,
        prefetch_factor=3,
        persistent_workers=True,
        multiprocessing_context=method,
    )

    train(loader, epochs)

    # Every batch of worker 1 is ready before the batch of worker 0 that the loop gets first. Its first three batches
    # are an exception if worker 1 begins much later than worker 0.
    most = epochs * count // 2
    assert most - 3 <= calls(runs, "reorder delay")[None] <= most
    # Worker 1 finishes its three prefetched batches first. They wait for one, two and three batches of worker 0.
    times = [entry["time"] for entry in entries(runs, "stages", "reorder delay")]
    assert max(time["max_ms"] for time in times) > 2 * 60
    delay = summarised(runs, "reorder delay")
    # The delays of those first three batches may be longer, but not the median.
    assert delay["p50_ms"] < 4 * 60
    assert (delay["calls"], delay["concurrency"]) == (calls(runs, "reorder delay")[None], None)
    # No items pass through this stage, so it limits nothing.
    assert (delay["limit_ms"], delay["out_per_in"]) == (None, None)


def test_a_reorder_delay_lasts_until_all_earlier_batches_are_ready() -> None:
    # Three workers that finish in the order 2, 1, 0.
    ends = BatchEndTimes(3, 6)
    notes = [ends.recorder(worker) for worker in range(3)]
    handed: list[tuple[Any, int]] = []
    recorded: list[float] = []

    class Iterator:
        _rcvd_idx = 0

        def _process_data(self, batch: Any, worker: int) -> Any:
            handed.append((batch, worker))
            return batch

    iterator = Iterator()
    slot = type("Slot", (), {"record": lambda self, seconds, **_: recorded.append(seconds)})()
    watch_order(iterator, ends, lambda name: slot)
    clock = iter([1_000_000_000, 2_000_000_000, 5_000_000_000, 6_000_000_000])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headspace.torch._order.time.monotonic_ns", lambda: next(clock))
        for worker in (2, 1, 0, 1):
            notes[worker]()

    for number, worker in enumerate([0, 1, 2, 0, 1]):
        iterator._rcvd_idx = number + 1
        assert iterator._process_data(f"batch {number}", worker) == f"batch {number}"

    # The end time of the fourth batch is unknown, and the fifth was not ready before its turn.
    assert recorded == [3.0, 4.0]
    assert [worker for _, worker in handed] == [0, 1, 2, 0, 1]


def test_a_loader_without_order_has_no_reorder_delay(runs: Runs) -> None:
    train(data.DataLoader(Uneven(12), num_workers=2, in_order=False))
    headspace.stop()

    assert calls(runs, "fetch").total() == 12
    assert calls(runs, "reorder delay") == {}


def test_leaving_an_epoch_early_does_not_change_the_delays_of_the_next(runs: Runs) -> None:
    loader = data.DataLoader(Uneven(12, slow_s=0.3), num_workers=2, persistent_workers=True)
    watched = headspace.wrap(loader)
    for _ in range(3):
        next(iter(watched))
    assert len(list(watched)) == 12
    headspace.stop()

    # Only the six batches of worker 1 have a delay, and none of worker 0.
    assert calls(runs, "reorder delay") == {None: 6}


def test_the_start_time_of_workers_is_in_the_summary(runs: Runs) -> None:
    train(data.DataLoader(Numbers(400), num_workers=2), loop_s=0.004)

    summary = runs.summary()
    assert summary["steady_steps"] > 0
    start = summarised(runs, "worker start")
    assert (start["calls"], start["processes"], start["limit_ms"]) == (2, 2, None)
    assert 0 < start["p50_ms"] <= start["p99_ms"]
    assert [worker["worker"] for worker in start["workers"]] == ["worker 0", "worker 1"]


def many_tensors(samples: list[Any]) -> list[Any]:
    return [torch.zeros(10) for _ in range(40)]


# If another test uses the worker's core, the loop waits longer than it receives.
@pytest.mark.alone
def test_the_hand_off_of_batches_with_many_tensors_is_the_bottleneck(runs: Runs) -> None:
    loader = data.DataLoader(Numbers(400), batch_size=2, num_workers=1, collate_fn=many_tensors)
    train(loader)

    received, sent = summarised(runs, "hand-off"), summarised(runs, "hand-off (worker)")
    assert (received["hand_off"], received["calls"]) == ("receive", 200)
    assert (sent["hand_off"], sent["calls"], sent["processes"]) == ("send", 200, 1)
    summary = runs.summary()
    assert received["mean_ms"] > 0.5 * summary["steady_step_mean_ms"]
    assert summary["bottleneck"]["kind"] == "hand_off"
    assert "which serializes it in" in summary["bottleneck"]["evidence"]
    assert "pack_batch" in {remedy["code"] for remedy in summary["remedies"]}


def test_ranks_that_read_a_stream_and_keep_their_part_of_it_load_the_same_samples() -> None:
    accelerate = pytest.importorskip("accelerate.data_loader")
    stream = Stream()
    kept = accelerate.IterableDatasetShard(stream, batch_size=2, num_processes=4)

    found = [read_facts(data.DataLoader(dataset), "measure") for dataset in (kept, stream)]

    assert [facts["ranks_with_same_samples"] for facts in found] == [4, None]


def test_a_stream_that_no_library_splits_among_the_workers_is_known() -> None:
    accelerate = pytest.importorskip("accelerate.data_loader")
    datasets = pytest.importorskip("datasets")
    numbers = datasets.Dataset.from_dict({"a": list(range(16))})

    def found(dataset: Any) -> bool:
        return read_facts(data.DataLoader(dataset), "measure")["unsplit_stream"]

    assert found(Stream())
    assert found(accelerate.IterableDatasetShard(Stream()))
    assert not found(numbers.to_iterable_dataset())
    assert not found(accelerate.IterableDatasetShard(numbers.to_iterable_dataset()))
    assert not found(Numbers(4))


@pytest.mark.parametrize(
    ("inner_ranks", "split_twice", "ranks_with_same_samples"), [(2, True, None), (1, False, 2)]
)
def test_a_stream_is_split_twice_only_if_both_splits_are_among_several_ranks(
    inner_ranks: int, split_twice: bool, ranks_with_same_samples: int | None
) -> None:
    accelerate = pytest.importorskip("accelerate.data_loader")
    datasets = pytest.importorskip("datasets")
    numbers = datasets.Dataset.from_dict({"a": list(range(16))}).to_iterable_dataset(num_shards=4)
    distributed = pytest.importorskip("datasets.distributed")
    part = distributed.split_dataset_by_node(numbers, rank=0, world_size=inner_ranks)
    kept = accelerate.IterableDatasetShard(part, batch_size=2, num_processes=2)

    facts = read_facts(data.DataLoader(kept), "measure")

    assert facts["split_twice"] == split_twice
    assert facts["ranks_with_same_samples"] == ranks_with_same_samples


def test_batches_that_a_distributed_sampler_has_split_are_not_split_again() -> None:
    accelerate = pytest.importorskip("accelerate.data_loader")
    sampler = data.distributed.DistributedSampler(Numbers(32), num_replicas=2, rank=0)

    def facts(split: bool) -> Any:
        loader = data.DataLoader(Numbers(32), batch_size=4, sampler=sampler if split else None)
        prepared = accelerate.prepare_data_loader(loader, num_processes=2, process_index=0)
        return read_facts(prepared, "measure")

    assert facts(split=True)["split_twice"]
    assert not facts(split=False)["split_twice"]


@pytest.mark.parametrize(("files", "found"), [(8, None), (6, 4)])
def test_ranks_read_the_same_stream_if_its_files_cannot_be_divided_among_them(
    files: int, found: int | None
) -> None:
    datasets = pytest.importorskip("datasets")
    distributed = pytest.importorskip("datasets.distributed")
    stream = datasets.IterableDataset.from_generator(
        lambda shards: iter(()), gen_kwargs={"shards": list(range(files))}
    )
    part = distributed.split_dataset_by_node(stream, rank=1, world_size=4)

    facts = read_facts(data.DataLoader(part), "measure")

    assert facts["ranks_with_same_samples"] == found


def test_the_stages_of_two_loaders_have_different_names(runs: Runs) -> None:
    first, second = (data.DataLoader(Numbers(8), num_workers=1) for _ in range(2))
    for loader in (headspace.wrap(first), headspace.wrap(second, name="val")):
        assert len(list(loader)) == 8
    headspace.stop()

    assert calls(runs, "fetch") == {"worker 0": 8}
    assert calls(runs, "val fetch") == {"val worker 0": 8}


class Other(data.DataLoader):  # type: ignore[type-arg]
    """A loader of another type."""


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_each_stage_and_queue_names_its_loop(runs: Runs, context: str) -> None:
    first, second = (
        kind(Numbers(60), num_workers=1, multiprocessing_context=context)
        for kind in (data.DataLoader, Other)
    )
    # A stage keeps the loop that first used its name in this process, so the names are new.
    for kind, loader in (("DataLoader", first), ("Other", second)):
        for _ in headspace.wrap(loader, name=f"{kind}-{context}"):
            time.sleep(0.005)
    headspace.stop()

    told: dict[str, set[str | None]] = {}
    for tick in runs.kind("tick"):
        for entry in (*tick.get("stages", ()), *tick.get("queues", ())):
            told.setdefault(entry["name"], set()).add(entry.get("loop_name"))
    for name in ("fetch", "collate", "worker start", "prefetch"):
        loops = [loops for full, loops in told.items() if f" {full}".endswith(f" {name}")]
        # No two loops share a name.
        assert [len(each) for each in loops] == [1, 1], (name, told)
        kinds = {str(loop).partition("-")[0] for each in loops for loop in each}
        assert kinds == {"DataLoader", "Other"}


def test_a_loader_that_starts_workers_at_its_first_batch_is_measured_and_not_changed(
    runs: Runs,
) -> None:
    loader = Late(Numbers(40), batch_size=4, num_workers=1)
    before = dict(vars(loader))

    assert len(train(loader, epochs=2)) == 20

    # The plain name belongs to the loop that used it first in this process.
    told = calls(runs, "fetch") + calls(runs, "Late fetch")
    assert sum(told.values()) == 20
    assert vars(loader) == before


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_the_dataset_is_raised_unchanged_and_counted(runs: Runs, workers: int) -> None:
    loader = data.DataLoader(Broken(40), batch_size=4, num_workers=workers)

    with pytest.raises(LookupError, match="no item 9") as error:
        train(loader)
    headspace.stop()

    with pytest.raises(LookupError, match="no item 9") as alone:
        list(loader)
    assert str(error.value).splitlines()[-1] == str(alone.value).splitlines()[-1]
    assert sum(entry.get("failures", 0) for entry in entries(runs, "stages", "fetch")) == 1


def test_a_worker_timeout_raises_the_error_of_torch(runs: Runs) -> None:
    loader = data.DataLoader(Numbers(8, 60.0), num_workers=1, timeout=0.2)

    with pytest.raises(RuntimeError, match=r"timed out after 0\.2 seconds"):
        train(loader)


def test_pinning_memory_is_a_stage(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without an accelerator, torch does not pin memory. So this simulates one for torch's pinning thread.
    for name, value in (
        ("is_available", True),
        ("current_accelerator", torch.device("cpu")),
        ("current_device_index", 0),
        ("set_device_index", None),
    ):
        monkeypatch.setattr(torch.accelerator, name, lambda *_, value=value: value)
    pinned = []

    def pin(tensor: Any, *_: object) -> Any:
        time.sleep(0.002)
        pinned.append(tensor)
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)

    assert len(train(data.DataLoader(Numbers(20), num_workers=1, pin_memory=True))) == 20

    assert len(pinned) == 20
    # torch's thread may have begun with the first batch before headspace measured it.
    assert 19 <= calls(runs, "pin_memory")[None] <= 20
    sums = [entry["time"]["sum_ms"] for entry in entries(runs, "stages", "pin_memory")]
    assert sum(sums) >= 19 * 2


def test_a_killed_worker_is_reported_as_lost(program: Programs) -> None:
    run = program("torch_workers.py", "fork", "kill")

    assert "worker_lost" in run.notices()


def test_the_records_contain_the_settings_of_the_loader(runs: Runs) -> None:
    train(data.DataLoader(Numbers(8), num_workers=2, prefetch_factor=3))

    loader = runs.kind("run")[0]["loader"]
    assert (loader["workers"], loader["prefetch_factor"], loader["prefetch_depth"]) == (2, 3, 6)
    assert loader["pin_memory"] is False
