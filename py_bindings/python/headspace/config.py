"""Where records go."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class JsonLines:
    """JSON lines in a folder, one folder a run, one file a rank.

        headspace.start(to=JsonLines("/data/runs"))

    Args:
        path: The folder that holds the run folders; made where it is missing. By default
            ``HEADSPACE_DIR``, else ``headspace-runs`` in the working directory.
    """

    path: str | os.PathLike[str] | None = None

    def _export(self) -> None:
        """Nothing besides the run folder."""


@dataclass(frozen=True)
class Pipe:
    """The records as lines to whoever reads, in another process, besides the run folder.

        headspace.start(to=Pipe("/tmp/headspace"))              # a named pipe: one reader
        headspace.start(to=Pipe("/tmp/headspace", socket=True)) # a Unix socket: several readers

    Written only while somebody reads, and never waiting: what a reader does not take in time is
    dropped, by whole lines, and counted. Each reader begins with the `run` record and the last
    summary. Ranks other than 0 have their number appended to the path.

    Args:
        path: The named pipe, made where it is missing and left there; or the socket, made for the
            session.
        socket: Listen at a Unix socket instead.
    """

    path: str | os.PathLike[str]
    socket: bool = False

    def _export(self) -> tuple[str, dict[str, str]]:
        at = os.fspath(self.path)
        return "pipe", {"at": f"unix:{at}" if self.socket else os.path.abspath(at)}


#: What `headspace.start(to=)` takes.
Destination: TypeAlias = "JsonLines | Pipe | str | os.PathLike[str]"
