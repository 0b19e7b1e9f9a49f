"""How much faster would training run if data were free, and what is in the way?

    import headspace

    loader = headspace.wrap(loader)
    for batch in loader:
        train_step(batch)

At exit the process prints a verdict of a few lines to stderr and leaves a folder of JSON lines in
``headspace-runs/``. Set ``HEADSPACE_MODE=probe`` to measure the floor as well, ``HEADSPACE=0`` to
turn everything off.
"""

from __future__ import annotations

from headspace._caching.spdl_caches import CacheDataLoader, cache_iterator
from headspace._loops.wrap import wrap
from headspace._native import __version__, stage
from headspace._session.lifecycle import Session, report, start, step, stop
from headspace._stages.queue import queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headspace._session.report import Report
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
    # Imported on first use: importing `dataclasses` alone takes longer than the rest of headspace.
    if name in ("JsonLines", "OpenTelemetry", "Pipe", "Prometheus", "Textfile"):
        from headspace import config

        return getattr(config, name)
    if name == "Report":
        from headspace._session.report import Report

        return Report
    raise AttributeError(f"module 'headspace' has no attribute {name!r}")
