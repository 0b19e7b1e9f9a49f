"""The compiled half of headspace. Private: import `headspace` instead."""

from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any, final

from typing_extensions import disjoint_base

__all__ = [
    "Loop",
    "LoopIterator",
    "Session",
    "__version__",
    "run_command",
    "ticks",
]

__version__: str

def run_command(args: list[str], /) -> int:
    """Runs the command with these arguments, the first being the program's name."""

def ticks() -> int:
    """A time stamp of the process's clock, for `origin`."""

@final
class Session:
    """A started run."""

    def __new__(
        cls,
        base: str | PathLike[str],
        *,
        run_id: str | None,
        interval: float,
        rank: int,
        world_size: int,
        versions: dict[str, str],
        argv: list[str],
        settings: dict[str, str],
        quiet: bool,
        origin: int | None,
    ) -> Session: ...
    @property
    def folder(self) -> Path: ...
    @property
    def is_here(self) -> bool: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def refuse_setting(self, setting: str, problem: str) -> None: ...
    def flush(self, timeout: float) -> bool: ...
    def report(self) -> tuple[str, str, str]: ...
    def stop(self) -> tuple[str, str, str] | None: ...

@final
class Loop:
    """A wrapped loader."""

    def __new__(
        cls,
        name: str,
        mode: str,
        fingerprint: Callable[[Any], tuple[int, int]] | None,
        *,
        type_name: str | None = None,
        batches: int | None = None,
        batch_size: int | None = None,
        workers: int | None = None,
        prefetch_depth: int | None = None,
        num_caches: int = 10,
        return_caches_after: int | None = None,
        stop_after: int | None = None,
        probe_steps: int | None = None,
        stop_after_probe: bool = False,
        world_size: int = 1,
        keep_source: bool = False,
    ) -> Loop: ...
    def iterate(self, loader: Iterable[Any], session: Callable[[int], Session | None]) -> Any: ...
    def step(self, session: Session, samples: int | None = None) -> None: ...

@disjoint_base
class LoopIterator:
    """Yields what the wrapped iterator yields. Made by `Loop.iterate` only."""

    def __new__(cls, parts: Any) -> LoopIterator: ...
    def __iter__(self) -> LoopIterator: ...
    def __next__(self) -> Any: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...
    def __delattr__(self, name: str, /) -> None: ...
