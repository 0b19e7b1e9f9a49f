"""Loaders and their workers end when they would without headspace."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from headspace_run import under_headspace
from running import Programs, Runs

import headspace

data = pytest.importorskip("torch.utils.data")

TORCHS = ["plain", "persistent", "late", "multi_epochs", "infinite"]


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Disables the garbage collector, so only reference counts free objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Late(data.DataLoader):  # type: ignore[misc]
    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()


@pytest.mark.parametrize("mode", ["measure", "probe", "replay"])
@pytest.mark.parametrize("how", ["wrap", "run"])
def test_workers_do_not_accumulate(program: Programs, how: str, mode: str) -> None:
    options: dict[str, Any] = under_headspace() if how == "run" else {}
    arguments = ["--wrap", *TORCHS] if how == "wrap" else TORCHS

    ran = program(
        "remade_loaders.py", *arguments, env={"HEADSPACE_MODE": mode}, timeout=120.0, **options
    )

    assert ran.stdout.splitlines() == [f"{kind} True 0" for kind in TORCHS], ran.stderr


@pytest.mark.parametrize("how", ["wrap", "run"])
@pytest.mark.parametrize(
    ("library", "kinds"),
    [
        ("accelerate", ["accelerate"]),
        ("torchdata", ["stateful", "stateful_persistent", "accelerate_stateful"]),
    ],
)
def test_workers_of_other_libraries_do_not_accumulate(
    program: Programs, how: str, library: str, kinds: list[str]
) -> None:
    pytest.importorskip(library)
    pytest.importorskip("accelerate")
    options: dict[str, Any] = under_headspace() if how == "run" else {}
    arguments = ["--wrap", *kinds] if how == "wrap" else kinds

    ran = program("remade_loaders.py", *arguments, timeout=120.0, **options)

    assert ran.stdout.splitlines() == [f"{kind} True 0" for kind in kinds], ran.stderr


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [data.DataLoader, Late])
def test_a_loader_and_its_iterator_are_freed_with_their_last_reference(
    runs: Runs, uncollected: None, kind: type, workers: int
) -> None:
    loader = kind(range(8), num_workers=workers, persistent_workers=workers > 0)
    watched = headspace.wrap(loader)
    for _ in range(2):
        assert len(list(watched)) == 8
    iterator = iter(watched)
    next(iterator)
    gone = [weakref.ref(loader), weakref.ref(iterator)]
    if loader._iterator is not None:
        gone.append(weakref.ref(loader._iterator))

    del loader, watched, iterator

    assert [reference() for reference in gone] == [None] * len(gone)


def test_a_loader_with_persistent_workers_keeps_nothing_of_headspace(runs: Runs) -> None:
    loader = Late(range(8), num_workers=1, persistent_workers=True)
    before = set(vars(loader))
    for _ in range(2):
        iterator = iter(headspace.wrap(loader))
        assert set(vars(loader)) == before
        next(iterator)
        assert set(vars(loader)) == before
        assert len(list(iterator)) == 7


def test_an_iterator_does_not_keep_its_loader(runs: Runs, uncollected: None) -> None:
    loader = data.DataLoader(range(8))
    gone = weakref.ref(loader)
    iterator = iter(headspace.wrap(loader, mode="replay"))

    del loader

    assert gone() is None
    assert len(list(iterator)) == 8
