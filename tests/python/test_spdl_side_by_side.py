"""The same script with SPDL's classes and with ours gets the same batches and errors at the same moments.

The trace of a script contains the received batches and the events of its source: each request for a batch,
and the release of the source. If SPDL has a defect, the traces differ, and a separate test checks the
behaviour of headspace.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import spdl.dataloader
import spdl.pipeline
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import Runs, wait_until

import headspace

#: Maximum number of batches that a script reads from an endless iteration.
TAKE = 60

Trace = list[tuple[str, object]]


class SourceError(Exception):
    """The error that the sources of these tests raise."""


def batches(length: int, fails_at: int | None, trace: Trace) -> Iterator[int]:
    try:
        for i in range(length):
            trace.append(("asked", i))
            if i == fails_at:
                raise SourceError(i)
            yield 100 + i
        trace.append(("exhausted", length))
    finally:
        trace.append(("let go", length))


class Sized:
    def __init__(self, length: int, fails_at: int | None, trace: Trace) -> None:
        self.args = (length, fails_at, trace)

    def __len__(self) -> int:
        return self.args[0]

    def __iter__(self) -> Iterator[int]:
        return batches(*self.args)


class Unsized:
    def __init__(self, length: int, fails_at: int | None, trace: Trace) -> None:
        self.args = (length, fails_at, trace)

    def __iter__(self) -> Iterator[int]:
        return batches(*self.args)


def as_list(length: int, fails_at: int | None, trace: Trace) -> list[int]:
    return list(range(100, 100 + length))


def as_iterator(length: int, fails_at: int | None, trace: Trace) -> Iterator[int]:
    return itertools.chain(batches(length, fails_at, trace))


def as_no_iterable(length: int, fails_at: int | None, trace: Trace) -> Any:
    return 5


SOURCES: list[Callable[..., Any]] = [
    batches,
    Sized,
    Unsized,
    as_list,
    as_iterator,
    as_no_iterable,
]

lengths = st.integers(0, 25)
failures = st.none() | st.integers(0, 25)
caches = st.integers(-1, 8)
turns = st.integers(-1, 20)
stops = st.none() | st.integers(-1, 40)
script = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def play(loader: Callable[[Any], Iterator[Any]], make_source: Callable[[Trace], Any]) -> Trace:
    """The trace of one epoch of a training script."""
    trace: Trace = []
    try:
        iterator = loader(make_source(trace))
        trace.append(("begun", None))
        for batch in itertools.islice(iterator, TAKE):
            trace.append(("batch", batch))
        # An iterator that has ended stays at its end.
        ended = len([kind for kind, _ in trace if kind == "batch"]) < TAKE
        trace.append(("ended", next(iterator, "end") if ended else "cut"))
    except Exception as error:
        trace.append(("error", type(error)))
        trace.append(("after", next(iterator, "end")))
    return trace


@script
@given(st.sampled_from(SOURCES), lengths, failures, caches, st.none() | turns, stops, st.booleans())
def test_cache_iterator_behaves_like_that_of_spdl(
    runs: Runs,
    source: Callable[..., Any],
    length: int,
    fails_at: int | None,
    num_caches: int,
    return_caches_after: int | None,
    stop_after: int | None,
    delete_src: bool,
) -> None:
    def through(function: Callable[..., Iterator[Any]]) -> Trace:
        return play(
            lambda src: function(
                src,
                num_caches,
                return_caches_after=return_caches_after,
                stop_after=stop_after,
                delete_src=delete_src,
            ),
            lambda trace: source(length, fails_at, trace),
        )

    assert through(headspace.cache_iterator) == through(spdl.pipeline.cache_iterator)


def is_sized(source: Callable[..., Any]) -> bool:
    return source in (as_list, Sized)


@script
@given(st.sampled_from(SOURCES), lengths, failures, caches, turns, stops)
def test_cache_data_loader_behaves_like_that_of_spdl(
    runs: Runs,
    source: Callable[..., Any],
    length: int,
    fails_at: int | None,
    num_caches: int,
    return_caches_after: int,
    stop_after: int | None,
) -> None:
    # Without `stop_after`, our class keeps the length of a sized source. Another test checks this.
    stop_after = TAKE // 2 if is_sized(source) and stop_after is None else stop_after

    def through(kind: type) -> Trace:
        return play(
            lambda src: iter(kind(src, num_caches, return_caches_after, stop_after)),
            lambda trace: source(length, fails_at, trace),
        )

    assert through(headspace.CacheDataLoader) == through(spdl.dataloader.CacheDataLoader)


@script
@given(st.sampled_from(SOURCES), st.integers(0, 30))
def test_a_script_that_stops_early_draws_the_same_batches_as_with_spdl(
    runs: Runs, source: Callable[..., Any], take: int
) -> None:
    def through(function: Callable[..., Iterator[Any]]) -> Trace:
        trace: Trace = []
        iterator = function(source(12, None, trace), 3, return_caches_after=6)
        try:
            for batch in itertools.islice(iterator, take):
                trace.append(("batch", batch))
        except TypeError:
            trace.append(("error", TypeError))
        del iterator
        return trace

    assert through(headspace.cache_iterator) == through(spdl.pipeline.cache_iterator)


@pytest.mark.parametrize("kind", [headspace.CacheDataLoader, spdl.dataloader.CacheDataLoader])
def test_a_cache_data_loader_has_the_length_and_attributes_of_its_loader(
    runs: Runs, kind: Any
) -> None:
    class Loader(list[int]):
        batch_size = 4

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    inner = Loader([1, 2, 3])
    loader = kind(inner, 1, 2, stop_after=5)
    loader.set_epoch(7)

    assert (len(loader), loader.batch_size, inner.epoch) == (3, 4, 7)
    assert (loader.num_caches, loader.return_caches_after, loader.stop_after) == (1, 2, 5)
    assert loader.dl is inner
    with pytest.raises(AttributeError):
        _ = loader.nothing
    with pytest.raises(TypeError):
        len(kind(iter(()), 1, 2))
    loader.stop_after = 4
    assert list(loader) == [1, 2, 1, 1]


@pytest.mark.parametrize("function", [headspace.cache_iterator, spdl.pipeline.cache_iterator])
def test_cached_batches_are_the_same_objects(runs: Runs, function: Any) -> None:
    source = [object() for _ in range(5)]

    got = list(function(source, 2, return_caches_after=3, stop_after=6))

    expected = [source[i] for i in (0, 1, 2, 0, 1, 0)]
    assert [id(batch) for batch in got] == [id(batch) for batch in expected]


# Defects of SPDL.


@pytest.mark.parametrize("stop_after", [None, 20])
def test_an_empty_source_ends(runs: Runs, stop_after: int | None) -> None:
    loader = headspace.CacheDataLoader([], 2, 3, stop_after=stop_after)

    assert [list(loader) for _ in range(3)] == [[], [], []]
    assert list(headspace.cache_iterator([], 2, stop_after=stop_after)) == []
    assert list(headspace.wrap([], mode="replay", stop_after=100)) == []


def test_a_loader_that_is_empty_in_one_epoch_is_iterated_again_in_the_next(runs: Runs) -> None:
    contents: list[int] = []

    class Late:
        def __iter__(self) -> Iterator[int]:
            return iter(contents)

    loader = headspace.CacheDataLoader(Late(), 1, 1, stop_after=4)
    assert list(loader) == []
    contents.append(7)

    assert list(loader) == [7, 7, 7, 7]


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 30), st.integers(1, 5))
@script
def test_without_stop_after_an_epoch_keeps_the_length_of_its_source(
    runs: Runs, length: int, num_caches: int, more: int, epochs: int
) -> None:
    source = list(range(length))
    loader = headspace.CacheDataLoader(source, num_caches, num_caches + more)
    wrapped = headspace.wrap(
        source, mode="replay", num_caches=num_caches, return_caches_after=num_caches + more
    )

    for epoch in range(epochs):
        got = list(itertools.islice(loader, TAKE))
        assert len(got) == length
        assert list(itertools.islice(wrapped, TAKE)) == got
        if (epoch + 1) * length <= num_caches + more:
            assert got == source, "live, until as many batches were live as asked"
        if epoch * length >= num_caches + more:
            cached = source[:num_caches] if length >= num_caches else None
            assert cached is None or got == list(itertools.islice(itertools.cycle(cached), length))


def test_without_a_length_and_without_stop_after_replay_never_ends_as_in_spdl(runs: Runs) -> None:
    loader = headspace.CacheDataLoader(Unsized(3, None, []), 2, 2)

    assert sum(1 for _ in itertools.islice(loader, 10_000)) == 10_000


def test_the_cache_outlives_the_epoch(runs: Runs) -> None:
    trace: Trace = []
    ours = headspace.CacheDataLoader(Sized(20, None, trace), 2, 4, stop_after=6)

    assert [list(ours) for _ in range(3)] == [
        [100, 101, 102, 103, 100, 101],
        [100, 101, 100, 101, 100, 101],
        [100, 101, 100, 101, 100, 101],
    ]
    assert trace.count(("asked", 0)) == 1, "the loader was iterated once"

    theirs = spdl.dataloader.CacheDataLoader(Sized(20, None, []), 2, 4, stop_after=6)
    assert list(theirs) == list(theirs) == [100, 101, 102, 103, 100, 101]


def test_a_source_that_ends_too_early_for_replay_is_reported(runs: Runs) -> None:
    got = list(headspace.cache_iterator(iter([1, 2, 3]), 2, return_caches_after=9, stop_after=12))
    headspace.stop()

    assert got == [1, 2, 3, 1, 2, 1, 2, 1, 2, 1, 2, 1]
    assert "source_ended_early" in runs.notices()
    text = next(n["text"] for n in runs.kind("notice") if n["code"] == "source_ended_early")
    assert "3 batches" in text
    assert "9" in text


def test_a_source_that_is_long_enough_for_replay_is_not_reported(runs: Runs) -> None:
    list(headspace.cache_iterator(iter(range(20)), 2, return_caches_after=9, stop_after=12))
    headspace.stop()

    assert runs.notices() == ["replay_begins"]


@pytest.mark.parametrize("kind", ["bytearray", "numpy", "torch", "list"])
def test_batches_changed_in_place_are_reported(runs: Runs, kind: str) -> None:
    make, change = MUTABLE[kind]
    loader = headspace.CacheDataLoader([make(i) for i in range(6)], 2, 3, stop_after=9)
    made = {repr(make(i)) for i in range(6)}
    got = []
    for batch in loader:
        got.append(repr(batch))
        change(batch)
    headspace.stop()

    assert len(got) == 9
    assert set(got) <= made, "each is as the source made it"
    # Containers are always copied.
    assert ("batches_mutated" in runs.notices()) == (kind != "list")


@pytest.mark.parametrize("kind", ["bytearray", "numpy", "torch", "list"])
def test_unchanged_batches_are_not_reported_as_changed(runs: Runs, kind: str) -> None:
    make, _ = MUTABLE[kind]
    loader = headspace.CacheDataLoader([make(i) for i in range(6)], 2, 3, stop_after=9)
    for _ in range(2):
        for _ in loader:
            pass
    headspace.stop()

    assert "batches_mutated" not in runs.notices()


def _numpy_batch(i: int) -> dict[str, Any]:
    numpy = pytest.importorskip("numpy")
    return {"frames": numpy.full((4, 8), float(i)), "labels": [i]}


def _torch_batch(i: int) -> Any:
    torch = pytest.importorskip("torch")
    return [torch.full((4, 8), float(i)), torch.tensor([i])]


MUTABLE: dict[str, tuple[Callable[[int], Any], Callable[[Any], object]]] = {
    "bytearray": (lambda i: bytearray([i] * 64), lambda b: b.__setitem__(5, 99)),
    "numpy": (_numpy_batch, lambda b: b["frames"].__itruediv__(7.0 + b["labels"][0])),
    "torch": (_torch_batch, lambda b: b[0].mul_(3)),
    "list": (lambda i: [i, i], lambda b: b.append(0)),
}


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("through", ["CacheDataLoader", "wrap"])
def test_persistent_workers_have_exited_once_batches_are_replayed(runs: Runs, through: str) -> None:
    data = pytest.importorskip("torch.utils.data")
    loader = data.DataLoader(list(range(64)), batch_size=2, num_workers=2, persistent_workers=True)
    watched = (
        headspace.CacheDataLoader(loader, 2, 4, stop_after=20)
        if through == "CacheDataLoader"
        else headspace.wrap(
            loader, mode="replay", num_caches=2, return_caches_after=4, stop_after=20
        )
    )

    iterator = iter(watched)
    first = [next(iterator) for _ in range(4)]
    workers = [worker.pid for worker in loader._iterator._workers]
    assert len(workers) == 2
    assert all(map(_alive, workers))
    replayed = [next(iterator) for _ in range(6)]

    wait_until(lambda: not any(map(_alive, workers)), "the workers end")
    assert all(again is first[i % 2] for i, again in enumerate(replayed))
    # The loader can be iterated again.
    assert len(list(loader)) == 32
