"""Checks what a new worker process would get from this one: whether it can be pickled or shared, and its size."""

from __future__ import annotations

from sys import modules

from headspace import _settings
from headspace._loops.attributes import get_attribute
from headspace._session.own_errors import call_safely

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headspace import _native

#: What torch's loader sends to a worker. Its sampler stays in the training process.
_PARTS_OF_TORCH = ("dataset", "collate_fn", "worker_init_fn")


def sent_to_workers(loader: Any) -> _native._StartFacts | None:
    """What worker processes of a torch loader would get. None if processes are forked and share no file."""
    if loader is None:
        return None
    return check_sent({name: get_attribute(loader, name) for name in _PARTS_OF_TORCH})


#: By the description of an SPDL pipeline, what a process that runs it would get. Of the last pipelines.
_by_pipeline: dict[str, _native._StartFacts] = {}

_MAX_PIPELINES = 8


def remember_pipeline(description: str, sent: _native._StartFacts) -> None:
    """Stores what a process that runs an SPDL pipeline would get. A pipeline itself does not have its parts."""
    while len(_by_pipeline) >= _MAX_PIPELINES:
        del _by_pipeline[next(iter(_by_pipeline))]
    _by_pipeline[description] = sent


def sent_with_pipeline(loader: Any) -> _native._StartFacts | None:
    """What a process that runs this SPDL pipeline would get. None for any other loader."""
    if not _by_pipeline or type(loader).__module__.partition(".")[0] != "spdl":
        return None
    text = str(loader)
    found = (sent for description, sent in _by_pipeline.items() if text.endswith(description))
    return next(found, None)


def check_sent(parts: dict[str, Any], allowed: tuple[type, ...] = ()) -> _native._StartFacts | None:
    """What a new process would get, with this program's start method. None if it is forked and would share no open file or
    database.

    Args:
        parts: What is sent, by name.
        allowed: Types that are sent in another way.
    """
    if not parts:
        return None
    # Not needed by most programs, and slow to import.
    from headspace._processes.pickle_check import check_parts

    forks = start_method() == "fork"
    found: _native._StartFacts | None = call_safely(
        check_parts, parts, _settings.libraries(), allowed, forks
    )
    return found


def start_method() -> str:
    """How this program starts processes."""
    multiprocessing: Any = modules.get("multiprocessing")
    if multiprocessing is None:
        import multiprocessing
    # Asking for the default would set it.
    chosen: str | None = multiprocessing.get_start_method(allow_none=True)
    return chosen or str(multiprocessing.get_all_start_methods()[0])
