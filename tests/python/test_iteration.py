"""Loops over a wrapped loader: epochs, breaks, nesting, threads, both cached modes, and garbage collection."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import Runs, of_kind, steps_in_ticks

import headspace


class Batch:
    """A batch with an identity and weak references."""


class Fresh:
    """Makes new batches in each epoch, and remembers their order."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.made: list[Batch] = []

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(self.length):
            self.made.append(Batch())
            yield self.made[-1]


def same(got: list[Any], expected: list[Any]) -> bool:
    """Whether both lists contain the same objects (by identity) in the same order."""
    return len(got) == len(expected) and all(map(lambda a, b: a is b, got, expected))


SOURCES: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "generator": lambda batches: (batch for batch in batches),
    "iterator": iter,
    "map": lambda batches: map(batches.__getitem__, range(len(batches))),
    "takewhile": lambda batches: itertools.takewhile(bool, batches),
    "chain": lambda batches: itertools.chain(batches[:3], batches[3:]),
    "islice": lambda batches: itertools.islice(batches, len(batches)),
    "sentinel": lambda batches: iter(iter([*batches, None]).__next__, None),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_batches_are_the_same_objects_in_the_same_order(runs: Runs, kind: str) -> None:
    batches = [Batch() for _ in range(10)]

    assert same(list(headspace.wrap(SOURCES[kind](batches))), batches)
    assert same([*itertools.islice(headspace.wrap(SOURCES[kind](batches)), 4)], batches[:4])


def test_epochs_after_a_break_start_at_the_first_batch(runs: Runs) -> None:
    batches = [Batch() for _ in range(6)]
    wrapped = headspace.wrap(batches)

    for stop in (2, 6, 1, 0, 6):
        got = list(itertools.islice(wrapped, stop))
        assert same(got, batches[:stop])
    headspace.stop()

    epochs = runs.kind("epoch")
    # An iterator without a call of `next` is not an epoch.
    assert [epoch["steps"] for epoch in epochs] == [2, 6, 1, 6]
    assert [epoch["epoch"] for epoch in epochs] == [0, 1, 2, 3]


@pytest.mark.parametrize("stop", [2, 6], ids=["left early", "all batches, the end not asked for"])
def test_an_iterator_released_after_its_successor_was_created_belongs_to_the_same_loop(
    runs: Runs, stop: int
) -> None:
    wrapped = headspace.wrap([Batch() for _ in range(6)], name="kept")

    for _ in range(3):
        iterator = iter(wrapped)  # The iterator of the epoch before lives until here.
        for _ in range(stop):
            next(iterator)
    headspace.stop()

    epochs = [(epoch["loop"], epoch["epoch"], epoch["steps"]) for epoch in runs.kind("epoch")]
    assert epochs == [("kept", epoch, stop) for epoch in range(3)]


def test_an_iterator_continues_after_a_break_for_every_caller(runs: Runs) -> None:
    batches = [Batch() for _ in range(7)]
    wrapped = headspace.wrap(iter(batches))

    got = [next(wrapped)]
    for batch in wrapped:
        got.append(batch)
        if len(got) == 3:
            break
    got += [next(iter(wrapped)), *wrapped]

    assert same(got, batches)
    assert list(wrapped) == []


def test_nested_loops_over_one_loader_are_two_loops(runs: Runs) -> None:
    wrapped = headspace.wrap([1, 2, 3], name="nested")

    pairs = [(outer, inner) for outer in wrapped for inner in wrapped]
    headspace.stop()

    assert pairs == [(outer, inner) for outer in (1, 2, 3) for inner in (1, 2, 3)]
    epochs = {(epoch["loop"], epoch["epoch"]): epoch["steps"] for epoch in runs.kind("epoch")}
    assert epochs == {
        ("nested", 0): 3,
        ("nested#2", 0): 3,
        ("nested#2", 1): 3,
        ("nested#2", 2): 3,
    }


def test_two_loaders_iterated_together_are_separate_loops(runs: Runs) -> None:
    first, second = headspace.wrap(range(5), name="two-a"), headspace.wrap(range(9), name="two-b")

    assert list(zip(first, second)) == [(i, i) for i in range(5)]
    headspace.stop()

    steps = {epoch["loop"]: epoch["steps"] for epoch in runs.kind("epoch")}
    assert steps == {"two-a": 5, "two-b": 5}


def test_a_loader_may_iterate_itself_while_it_is_iterated(runs: Runs) -> None:
    class Reentrant:
        def __iter__(self) -> Iterator[int]:
            yield 1
            yield from ([] if depth.pop() else wrapped)
            yield 2

    depth = [True, False, False]
    wrapped = headspace.wrap(Reentrant(), name="reentrant")

    assert list(wrapped) == [1, 1, 1, 2, 2, 2]


def test_each_thread_that_iterates_a_loader_receives_all_batches(runs: Runs) -> None:
    batches = [Batch() for _ in range(500)]
    wrapped = headspace.wrap(batches, name="threads")
    barrier = threading.Barrier(4)
    got: list[list[Batch]] = []

    def consume() -> None:
        barrier.wait(30)
        got.append(list(wrapped))

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    headspace.stop()

    assert len(got) == 4
    assert all(same(one, batches) for one in got)
    records = runs.records()
    assert [epoch["steps"] for epoch in of_kind(records, "epoch")] == [500] * 4
    assert steps_in_ticks(records) == 2000


def test_threads_that_share_an_iterator_neither_lose_nor_repeat_a_batch(runs: Runs) -> None:
    class Counting:
        """Like `itertools.count`, but releases the interpreter lock during a call."""

        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.count = 0

        def __iter__(self) -> Counting:
            return self

        def __next__(self) -> int:
            meet.wait(30)
            with self.lock:
                self.count += 1
                if self.count > 400:
                    raise StopIteration
                return self.count

    meet = threading.Barrier(2)
    iterator = iter(headspace.wrap(Counting(), name="shared"))
    got: list[list[int]] = [[], []]
    threads = [
        threading.Thread(target=lambda i=i: got[i].extend(itertools.islice(iterator, 200)))
        for i in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    headspace.stop()

    assert sorted(got[0] + got[1]) == list(range(1, 401))
    assert "concurrent_iteration" in runs.notices()


PROBE_STEPS = 1000
"""Enough steps for the default plan of a probe. Iterating a list of this length is fast."""


@pytest.mark.parametrize("length", [7, 130, 1000])
def test_an_exact_probe_delivers_every_batch_of_the_source_once_and_in_order(
    runs: Runs, length: int
) -> None:
    source = Fresh(length)
    wrapped = headspace.wrap(
        source, mode="probe", probe_steps=PROBE_STEPS, exactly_once=True, name="probed"
    )

    live: list[Batch] = []
    seen: set[int] = set()
    replayed = 0
    for _ in range(2000 // length + 2):
        in_epoch = 0
        for batch in wrapped:
            if id(batch) in seen:
                replayed += 1
            else:
                seen.add(id(batch))
                live.append(batch)
                in_epoch += 1
        assert in_epoch == length, "an epoch holds its source, and replayed batches besides"
    headspace.stop()

    assert same(live, source.made)
    records = runs.records()
    (probe,) = of_kind(records, "probe")
    assert probe["replayed_steps"] == replayed > 0
    assert probe["cached_batches"] <= 10
    phases = {entry["phase"] for tick in of_kind(records, "tick") for entry in tick["loops"]}
    assert {"live", "replay"} <= phases
    assert sum(epoch["replayed"] for epoch in of_kind(records, "epoch")) == replayed
    assert "probe_begins" in runs.notices()


def test_a_probe_that_is_left_early_loses_no_batch(runs: Runs) -> None:
    source = Fresh(10)
    wrapped = headspace.wrap(source, mode="probe", probe_steps=PROBE_STEPS, exactly_once=True)
    live: list[Batch] = []
    seen: set[int] = set()

    for take in itertools.cycle((3, 10**6, 1)):
        for batch in itertools.islice(wrapped, take):
            if id(batch) not in seen:
                seen.add(id(batch))
                live.append(batch)
        if len(seen) > 1500:
            break

    assert same(live, source.made)


def test_a_probe_keeps_few_batches_and_releases_them(runs: Runs) -> None:
    alive: weakref.WeakSet[Batch] = weakref.WeakSet()

    def source() -> Iterator[Batch]:
        while True:
            batch = Batch()
            alive.add(batch)
            yield batch

    wrapped = headspace.wrap(source(), mode="probe", probe_steps=PROBE_STEPS)
    most = 0
    for i, _ in enumerate(wrapped):
        most = max(most, len(alive))
        if i > 2 * PROBE_STEPS:
            break

    assert most <= 13, "ten cached, and the few in hand"
    del _
    gc.collect()
    assert len(alive) <= 1, "the cache is let go when the probe is over"


def test_stop_after_probe_ends_this_epoch_and_every_later_one(runs: Runs) -> None:
    wrapped = headspace.wrap(
        itertools.count(), mode="probe", probe_steps=PROBE_STEPS, stop_after_probe=True
    )

    assert 100 < sum(1 for _ in wrapped) <= PROBE_STEPS
    assert list(wrapped) == []
    headspace.stop()
    assert len(runs.kind("probe")) == 1


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(1, 30),
    st.integers(1, 6),
    st.integers(0, 30),
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
)
def test_replay_gives_live_batches_in_order_then_only_cached_ones(
    runs: Runs, length: int, num_caches: int, more: int, takes: list[int]
) -> None:
    source = Fresh(length)
    wrapped = headspace.wrap(
        source, mode="replay", num_caches=num_caches, return_caches_after=num_caches + more
    )

    live: list[Batch] = []
    for take in takes:
        for batch in itertools.islice(wrapped, take):
            if any(batch is one for one in live):
                cached = live[:num_caches]
                assert any(batch is one for one in cached)
            else:
                live.append(batch)

    assert len(live) <= num_caches + more
    assert same(live, [batch for batch in source.made if any(batch is one for one in live)])


@pytest.mark.parametrize("mode", ["measure", "probe", "replay"])
def test_batches_loader_and_iterator_are_freed_when_the_loop_is_left(runs: Runs, mode: str) -> None:
    loader = Fresh(5)
    wrapped = headspace.wrap(loader, mode=mode, num_caches=2, return_caches_after=3)
    iterator = iter(wrapped)
    batches = [weakref.ref(batch) for batch in iterator]
    dying = [weakref.ref(loader), weakref.ref(wrapped), weakref.ref(iterator), *batches]
    assert len(batches) == 5

    del loader, wrapped, iterator
    gc.collect()

    assert [ref() for ref in dying] == [None] * len(dying)


@pytest.mark.parametrize("mode", ["measure", "probe", "replay"])
def test_cycles_through_the_wrapped_loader_are_collected(runs: Runs, mode: str) -> None:
    class Knowing(Fresh):
        me: Any
        iterator: Any

        def __iter__(self) -> Iterator[Any]:
            for batch in super().__iter__():
                batch.loader = self.me  # type: ignore[attr-defined]
                yield batch

    loader = Knowing(8)
    loader.me = headspace.wrap(loader, mode=mode, num_caches=2, return_caches_after=3)
    loader.iterator = iter(loader.me)
    assert len(list(itertools.islice(loader.iterator, 5))) == 5
    dying = [weakref.ref(thing) for thing in (loader, loader.me, loader.iterator, loader.made[0])]

    del loader
    gc.collect()

    assert [ref() for ref in dying] == [None] * 4


@pytest.mark.parametrize("mode", ["measure", "probe", "replay"])
def test_a_hundred_thousand_batches_leak_no_reference_and_no_object(runs: Runs, mode: str) -> None:
    batch, error = Batch(), StopIteration(3)
    wrapped = headspace.wrap(
        itertools.repeat(batch, 100_000), mode=mode, stop_after=100_000, probe_steps=PROBE_STEPS
    )
    none = sys.getrefcount(None)
    count = 0
    for _ in wrapped:
        count += 1
        if count == 2000:
            before = (sys.getrefcount(batch), sys.getallocatedblocks())
    after = (sys.getrefcount(batch), sys.getallocatedblocks())

    assert count >= 100_000
    assert abs(after[0] - before[0]) <= 10, "references beyond those of the cache"
    assert after[1] - before[1] < 1000
    assert abs(sys.getrefcount(None) - none) < 10_000
    assert sys.getrefcount(error) <= 2  # 1 from Python 3.14 on


def test_errors_and_ends_leak_no_reference(runs: Runs) -> None:
    class Empty:
        def __iter__(self) -> Iterator[int]:
            return iter(())

    wrapped = headspace.wrap(Empty())

    def fail() -> Iterator[int]:
        raise error
        yield 1

    error = LookupError()
    for _ in range(50):
        list(wrapped)
        with pytest.raises(LookupError):
            list(headspace.wrap(fail(), name="failing"))
    error.__traceback__ = None
    gc.collect()

    assert sys.getrefcount(error) <= 4
    assert sys.getrefcount(wrapped) <= 2


class Rewrapped:
    """A loader without length."""

    def __init__(self, first: int = 0) -> None:
        self.first = first

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.first + 10))


@pytest.mark.parametrize("anew", [False, True])
def test_a_loader_wrapped_again_for_each_epoch_is_one_loop(runs: Runs, anew: bool) -> None:
    loader: Any = Rewrapped()
    for _ in range(4):
        again = (i for i in range(10)) if anew else loader
        for _ in headspace.wrap(again, name="rewrapped" if anew else None):
            pass
    headspace.stop()

    epochs = [(epoch["loop"], epoch["epoch"]) for epoch in runs.kind("epoch")]
    assert epochs == [(epochs[0][0], i) for i in range(4)]
    assert runs.summary()["steps"] == 40


def test_two_loaders_wrapped_on_one_line_are_two_loops(runs: Runs) -> None:
    train, valid = Rewrapped(), Rewrapped(100)
    for _ in range(3):
        for loader in (train, valid):
            assert list(headspace.wrap(loader)) == list(loader)
    headspace.stop()

    loops = [epoch["loop"] for epoch in runs.kind("epoch")]
    assert len(set(loops)) == 2
    assert loops.count(loops[0]) == 3


def test_two_live_loaders_with_one_name_are_two_loops(runs: Runs) -> None:
    train, valid = (headspace.wrap(Rewrapped(), name="of one name") for _ in range(2))
    list(train)
    list(valid)
    headspace.stop()

    assert [epoch["loop"] for epoch in runs.kind("epoch")] == ["of one name", "of one name-2"]


def test_a_loader_wrapped_inside_its_own_wrapper_is_one_loop(runs: Runs) -> None:
    loader: Any = Rewrapped()
    for _ in range(3):
        loader = headspace.wrap(loader, name="again and again")
        list(loader)
    headspace.stop()

    assert {epoch["loop"] for epoch in runs.kind("epoch")} == {"again and again"}
