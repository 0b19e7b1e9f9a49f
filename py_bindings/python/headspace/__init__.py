"""Measures how much faster training would run if data were free, and what limits it.

    import headspace

    loader = headspace.wrap(loader)
    for batch in loader:
        train_step(batch)

At exit, headspace prints a verdict on stderr. It writes a folder of JSON lines in ``headspace-runs/``.
``HEADSPACE_MODE=probe`` also measures the floor: the step time if data were free. ``HEADSPACE=0``
turns headspace off.
"""

from __future__ import annotations

import sys

from headspace import _subinterpreter  # noqa: F401 - first, because it refuses the import in a subinterpreter.

try:
    if "t" in sys.abiflags:
        from headspace import _missing_extension

        _missing_extension.check_free_threaded()
    from headspace._native import __version__, stage
except ModuleNotFoundError as error:
    if error.name != "headspace._native":
        raise
    from headspace import _missing_extension

    raise ImportError(_missing_extension.explain()) from None

from headspace._caching.spdl_caches import CacheDataLoader, cache_iterator
from headspace._loops.wrap import wrap
from headspace._session.lifecycle import Session, report, start, step, stop
from headspace._session.report import Report
from headspace._stages.queue import queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headspace.config import JsonLines, OpenTelemetry, Pipe, Prometheus, Textfile

__all__ = [
    "CacheDataLoader",
    "JsonLines",
    "OpenTelemetry",
    "Pipe",
    "Prometheus",
    "Report",
    "Session",
    "Textfile",
    "__version__",
    "cache_iterator",
    "queue",
    "report",
    "stage",
    "start",
    "step",
    "stop",
    "wrap",
]


def __getattr__(name: str) -> object:
    # Imported at the first use, because the import of `dataclasses` takes longer than the rest of headspace.
    if name in ("JsonLines", "OpenTelemetry", "Pipe", "Prometheus", "Textfile"):
        from headspace import config

        return getattr(config, name)
    raise AttributeError(f"module 'headspace' has no attribute {name!r}")
