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


def sent_to_new_process(
    loader: Any, of_torch: Any, workers: int | None
) -> _native._StartFacts | None:
    """What a new process that loads would get. None if that is unknown, or if processes are forked and nothing is an obstacle.

    Args:
        loader: The loader.
        of_torch: The torch loader that it is, or contains.
        workers: Number of its worker processes, if it is known.
    """
    if workers:
        # They have got it already.
        return None
    if workers == 0:
        if of_torch is None:
            return None
        return check_sent({name: get_attribute(of_torch, name) for name in _PARTS_OF_TORCH})
    if str(type(loader).__module__).partition(".")[0] == "spdl":
        return _sent_with_pipeline(loader)
    return check_sent({"loader": loader}) if _is_of_program(type(loader)) else None


def _is_of_program(kind: type) -> bool:
    """Whether a class is the program's own. A library's loader may have other ways to use processes."""
    file: str | None = get_attribute(modules.get(kind.__module__), "__file__")
    return file is not None and not file.startswith(tuple(_settings.libraries()))


#: By the description of an SPDL pipeline, what a process that runs it would get. Of the last pipelines.
_by_pipeline: dict[str, _native._StartFacts] = {}

_MAX_PIPELINES = 8


def remember_pipeline(description: str, sent: _native._StartFacts) -> None:
    """Stores what a process that runs an SPDL pipeline would get. A pipeline itself does not have its parts."""
    while len(_by_pipeline) >= _MAX_PIPELINES:
        del _by_pipeline[next(iter(_by_pipeline))]
    _by_pipeline[description] = sent


def _sent_with_pipeline(loader: Any) -> _native._StartFacts | None:
    """What a process that runs this SPDL pipeline would get."""
    if not _by_pipeline:
        return None
    text = str(loader)
    found = (sent for description, sent in _by_pipeline.items() if text.endswith(description))
    return next(found, None)


def check_sent(parts: dict[str, Any], allowed: tuple[type, ...] = ()) -> _native._StartFacts | None:
    """What a new process would get, with this program's start method. None if it is forked and nothing is an
    obstacle.

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
    # `sys.modules` may hold a module that another thread is still importing. `import` waits for that thread.
    import multiprocessing

    # Asking for the default would set it.
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or str(multiprocessing.get_all_start_methods()[0])
