"""A wrapped loader behaves like the loader itself."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import pickle
import traceback
import weakref
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from running import Runs

import headspace


class Loader:
    """The common behaviour of loaders."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches
        self.epoch = 0
        self.batch_size = 4

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch = state["epoch"]

    @property
    def read_only(self) -> int:
        return 1


SPECIAL = [
    *("__len__", "__length_hint__", "__getitem__", "__setitem__", "__delitem__", "__contains__"),
    *("__reversed__", "__call__", "__bool__", "__enter__", "__exit__", "__aenter__", "__aexit__"),
    *("__aiter__", "__anext__", "__await__", "__next__", "__add__", "__mul__", "__fspath__"),
    *("__index__", "__int__", "__float__", "__array__"),
]


@pytest.fixture(params=["measure", "probe", "replay"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_proxy_has_the_attributes_of_the_loader(runs: Runs, mode: str) -> None:
    loader = Loader([1, 2])
    wrapped = headspace.wrap(loader, mode=mode)

    wrapped.set_epoch(3)
    wrapped.note = "new"
    wrapped.batch_size = 8

    assert (loader.epoch, loader.note, loader.batch_size) == (3, "new", 8)
    assert (wrapped.epoch, wrapped.note, vars(wrapped)) == (3, "new", vars(loader))
    del wrapped.note
    assert not hasattr(loader, "note")
    assert set(dir(loader)) <= set(dir(wrapped))
    wrapped.load_state_dict({"epoch": 9})
    assert wrapped.state_dict() == {"epoch": 9}


def test_attribute_errors_are_those_of_the_loader(runs: Runs) -> None:
    loader = Loader([])
    wrapped = headspace.wrap(loader)

    for act in (
        lambda x: x.nothing,
        lambda x: setattr(x, "read_only", 2),
        lambda x: delattr(x, "nothing"),
    ):
        with pytest.raises(AttributeError) as theirs:
            act(loader)
        with pytest.raises(AttributeError) as ours:
            act(wrapped)
        assert str(ours.value) == str(theirs.value)


def test_the_proxy_passes_isinstance_checks_as_the_loader(runs: Runs, mode: str) -> None:
    loader = Loader([1, 2])
    wrapped = headspace.wrap(loader, mode=mode)

    assert isinstance(wrapped, Loader)
    assert wrapped.__class__ is Loader
    assert (len(wrapped), repr(wrapped), str(wrapped)) == (2, repr(loader), str(loader))
    assert f"{wrapped}" == f"{loader}"
    assert hash(wrapped) == hash(loader)
    assert weakref.ref(wrapped)() is wrapped
    assert headspace.wrap([]) == []
    assert not headspace.wrap([])
    assert headspace.wrap([1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: [1, 2],
        lambda: (1, 2),
        lambda: {1: 2},
        lambda: {1, 2},
        lambda: "ab",
        lambda: range(3),
        lambda: (i for i in (1, 2)),
        lambda: iter([1, 2]),
        lambda: itertools.count(),
        lambda: enumerate("ab"),
        lambda: Loader([1]),
        lambda: open("/dev/null"),  # noqa: SIM115
        lambda: type("Indexed", (), {"__getitem__": lambda self, i: "ab"[i]})(),
        lambda: type("Called", (), {"__iter__": lambda self: iter(()), "__call__": len})(),
    ],
)
def test_the_proxy_type_has_exactly_the_special_methods_of_the_wrapped_type(
    runs: Runs, make: Any
) -> None:
    plain, wrapped = make(), headspace.wrap(make())

    def has(thing: object, where: Any) -> set[str]:
        return {name for name in SPECIAL if hasattr(where(thing), name)}

    assert has(wrapped, type) == has(plain, type)
    assert has(wrapped, lambda thing: thing) == has(plain, lambda thing: thing)
    assert callable(wrapped) == callable(plain)
    assert (type(wrapped).__hash__ is None) == (type(plain).__hash__ is None)


def test_container_operations_work_through_the_proxy(runs: Runs) -> None:
    items = [3, 1, 2]
    wrapped = headspace.wrap(items)

    wrapped.append(5)
    wrapped[0] = 4
    del wrapped[1]

    assert items == [4, 2, 5]
    assert (wrapped[0], wrapped[-1], wrapped[1:], 2 in wrapped, 9 in wrapped) == (
        *(4, 5, [2, 5]),
        *(True, False),
    )
    assert list(reversed(wrapped)) == [5, 2, 4]
    assert wrapped == [4, 2, 5]
    assert wrapped + [1] == [4, 2, 5, 1]  # noqa: RUF005
    assert [*wrapped] == list(wrapped) == sorted(wrapped, key=items.index) == items
    assert dict(headspace.wrap({1: 2}).items()) == {1: 2}


def test_an_object_with_only_getitem_can_be_iterated(runs: Runs) -> None:
    class Indexed:
        def __getitem__(self, index: int) -> str:
            return "abc"[index]

    assert list(headspace.wrap(Indexed())) == ["a", "b", "c"]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_the_proxy_is_pickled_with_its_loader(runs: Runs, mode: str, protocol: int) -> None:
    wrapped = headspace.wrap(Loader([1, 2]), mode=mode)
    wrapped.set_epoch(3)
    list(wrapped)

    again = pickle.loads(pickle.dumps(wrapped, protocol))

    assert isinstance(again, Loader)
    assert type(again) is type(wrapped)
    assert (again.epoch, list(again)) == (3, [1, 2])


def test_a_pickled_proxy_is_loaded_as_the_loader_when_headspace_is_off(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    pickled = pickle.dumps(headspace.wrap(Loader([1, 2])))
    monkeypatch.setenv("HEADSPACE", "0")

    assert type(pickle.loads(pickled)) is Loader


def test_copying_the_proxy_copies_the_loader(runs: Runs, mode: str) -> None:
    wrapped = headspace.wrap(Loader([[1], [2]]), mode=mode)

    shallow, deep = copy.copy(wrapped), copy.deepcopy(wrapped)
    wrapped.set_epoch(5)

    assert (shallow.epoch, deep.epoch) == (0, 0)
    assert shallow.batches is wrapped.batches
    assert deep.batches == wrapped.batches
    assert deep.batches is not wrapped.batches
    assert isinstance(shallow, Loader)
    assert isinstance(deep, Loader)
    assert list(shallow) == list(deep) == [[1], [2]]


def test_a_with_block_gives_the_wrapped_loader(runs: Runs) -> None:
    events = []

    class Managed(Loader):
        def __enter__(self) -> Managed:
            events.append("enter")
            return self

        def __exit__(self, *error: object) -> bool:
            events.append(error[0])
            return True

    wrapped = headspace.wrap(Managed([1, 2]))
    with wrapped as entered:
        assert entered is wrapped
        assert list(entered) == [1, 2]
        raise KeyError

    assert events == ["enter", KeyError]
    with headspace.wrap(open("/dev/null")) as file:
        assert list(file) == []
    assert file.closed


def echo() -> Generator[str, Any, str]:
    received = []
    while True:
        try:
            received.append((yield f"batch {len(received)}"))
        except ValueError as error:
            received.append(error)
        if received[-1] == "stop":
            return f"{len(received)} received"


def conversation(generator: Generator[str, Any, str]) -> list[object]:
    said: list[object] = [next(generator), generator.send("a")]
    said.append(generator.throw(ValueError("odd")))
    with pytest.raises(KeyError):
        generator.throw(KeyError)
    said.append(next(generator, "end"))
    generator.close()
    return said


def test_send_throw_and_close_reach_a_wrapped_generator(runs: Runs, mode: str) -> None:
    if mode == "measure":
        assert inspect.isgenerator(headspace.wrap(echo()))
    for begin in (lambda x: x, iter):
        talk = conversation(begin(headspace.wrap(echo(), mode=mode)))
        assert talk == conversation(echo())


def test_the_return_value_of_a_generator_passes_through_yield_from_and_next(
    runs: Runs, mode: str
) -> None:
    def outer(source: Generator[str, Any, str]) -> Generator[str, Any, str]:
        return (yield from source)

    def answer(generator: Generator[str, Any, str]) -> object:
        next(generator)
        generator.send("a")
        with pytest.raises(StopIteration) as end:
            generator.send("stop")
        assert next(generator, "end") == "end"
        return end.value.value

    assert answer(outer(headspace.wrap(echo(), mode=mode))) == "2 received"
    assert answer(headspace.wrap(echo(), mode=mode)) == "2 received"


def test_closing_a_generator_runs_its_cleanup_at_once(runs: Runs, mode: str) -> None:
    events = []

    def source() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            events.append("closed")

    with contextlib.closing(headspace.wrap(source(), mode=mode)) as wrapped:
        for _ in wrapped:
            break
        assert events == []
    assert events == ["closed"]
    assert list(wrapped) == []


def fail_in_next() -> Iterator[int]:
    yield 1
    raise LookupError("no more disks")


class FailsInIter:
    def __iter__(self) -> Iterator[int]:
        raise LookupError("no workers")


@pytest.mark.parametrize("make", [fail_in_next, FailsInIter])
def test_an_exception_of_the_loader_keeps_its_outermost_and_innermost_frames(
    runs: Runs, mode: str, make: Any
) -> None:
    def tail(loader: Any) -> list[str]:
        with pytest.raises(LookupError) as caught:
            list(loader)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        frames = traceback.extract_tb(caught.value.__traceback__)
        outermost_and_innermost = [
            f"{frame.name} {frame.line}" for frame in (frames[0], frames[-1])
        ]
        return [*outermost_and_innermost, str(caught.value)]

    assert tail(headspace.wrap(make(), mode=mode)) == tail(make())


def test_an_iterator_can_continue_after_an_exception(runs: Runs) -> None:
    class Flaky:
        def __init__(self) -> None:
            self.asked = 0

        def __iter__(self) -> Flaky:
            return self

        def __next__(self) -> int:
            self.asked += 1
            if self.asked == 2:
                raise OSError("once")
            if self.asked == 5:
                raise StopIteration
            return self.asked

    def all_of(source: Any) -> list[object]:
        got: list[object] = []
        iterator = iter(source)
        for _ in range(6):
            try:
                got.append(next(iterator, "end"))
            except OSError as error:
                got.append(str(error))
        return got

    assert all_of(headspace.wrap(Flaky())) == all_of(Flaky())


def test_a_loader_wrapped_twice_is_timed_once(runs: Runs) -> None:
    for _ in headspace.wrap(headspace.wrap([1, 2, 3], name="inner"), name="outer"):
        pass
    headspace.stop()

    assert [epoch["loop"] for epoch in runs.kind("epoch")] == ["outer"]


def test_with_headspace_0_wrap_returns_its_argument(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSPACE", "0")
    loader = Loader([1])

    assert headspace.wrap(loader) is loader
    assert headspace.wrap(5) == 5
    headspace.step()
    assert list(headspace.wrap(loader)) == [1]
    assert headspace.report() is None
    assert runs.folders == []


@pytest.mark.parametrize("thing", [5, None, object(), len, Loader])
def test_an_argument_that_cannot_be_iterated_raises_an_error_that_names_its_type(
    runs: Runs, thing: Any
) -> None:
    with pytest.raises(TypeError, match=f"not `{type(thing).__name__}`"):
        headspace.wrap(thing)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "fast"},
        {"mode": "replay", "num_caches": 0},
        {"mode": "replay", "num_caches": 5, "return_caches_after": 4},
        {"mode": "replay", "num_caches": 5, "return_caches_after": 5, "stop_after": 4},
        {"mode": "probe", "probe_steps": 1},
    ],
)
def test_invalid_arguments_of_wrap_are_refused_at_once(runs: Runs, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="`"):
        headspace.wrap([1], **options)


def test_nothing_is_iterated_before_the_loop_begins(runs: Runs, mode: str) -> None:
    begun = []

    class Watched(Loader):
        def __iter__(self) -> Iterator[Any]:
            begun.append(True)
            return super().__iter__()

    wrapped = headspace.wrap(Watched([1]), mode=mode)
    assert begun == []
    assert runs.folders == [], "no session before the first iteration"
    list(wrapped)
    assert begun == [True]
