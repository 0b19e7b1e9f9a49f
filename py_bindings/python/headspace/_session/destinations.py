"""Sorts the argument of `headspace.start(to=...)` into paths, native exporters and sinks."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike
    from typing import Any

    from headspace.config import Destination
    from headspace.integrations._sink import Sink

#: Attributes by which a destination is recognised: of a path, of a native exporter, of a sink.
_MARKS = ("__fspath__", "_export", "_sink")


def sort_destinations(
    to: Destination | Iterable[Destination] | None,
) -> tuple[str | PathLike[str] | None, list[tuple[str, dict[str, str], bool]], list[Sink]]:
    """Sorts the destinations in `start(to=...)`.

    Returns:
        The folder for the run folders, or None; the native exporters, each with its options and whether the
        script itself requested it; and the sinks.
    """
    bases: list[str | PathLike[str]] = []
    exports = []
    sinks: list[Sink] = []
    several: Any = () if to is None else to
    is_one = _is_destination(to) or isinstance(to, (type, bytes, dict))
    if is_one or not hasattr(type(several), "__iter__"):
        several = (to,)
    for one in several:
        if not _is_destination(one):
            raise TypeError(_refusal_message(one))
        if isinstance(one, str) or hasattr(one, "__fspath__"):
            bases.append(one)
        elif hasattr(one, "_sink"):
            sinks.append(one)
        elif (asked := one._export()) is not None:
            exports.append((*asked, True))
        elif one.path is not None:
            bases.append(one.path)
    named = {os.path.abspath(base): base for base in bases}
    if len(named) > 1:
        folders = " and ".join(f"`{os.fspath(base)}`" for base in named.values())
        raise ValueError(f"`to` names more than one folder for the run: {folders} (keep one)")
    if any(not os.fspath(base) for base in bases):
        raise ValueError("`to` is an empty path (write `.` for the working directory)")
    return (bases[0] if bases else None), exports, sinks


def _is_destination(one: Any) -> bool:
    if isinstance(one, type):
        return False
    return isinstance(one, str) or any(hasattr(one, kind) for kind in _MARKS)


def _refusal_message(given: Any) -> str:
    if isinstance(given, type) and any(hasattr(given, kind) for kind in _MARKS):
        return f"`to` is a class: write `{given.__name__}(...)`"
    return (
        f"`to` is not a destination: {given!r} (use a path, `headspace.JsonLines`, `OpenTelemetry`, "
        "`Pipe`, `Prometheus` or `Textfile`, a sink of `headspace.integrations`, or a list of these)"
    )
