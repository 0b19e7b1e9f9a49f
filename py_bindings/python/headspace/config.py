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


@dataclass(frozen=True)
class Prometheus:
    """An HTTP endpoint in this process, for Prometheus to scrape.

        headspace.start(to=Prometheus())                        # http://127.0.0.1:9464/metrics
        headspace.start(to=Prometheus(host="0.0.0.0", port=9500))

    Anyone who reaches the address can read the metrics, and nobody can change anything through it.
    Of several processes on a machine each has a port of its own: `port` and its local rank.

    Args:
        host: The address to listen at.
        port: The port of the machine's first process; 0 is any that is free. A notice says which.
    """

    host: str = "127.0.0.1"
    port: int = 9464

    def _export(self) -> tuple[str, dict[str, str]]:
        return "prometheus", {"host": self.host, "port": str(self.port)}


@dataclass(frozen=True)
class Textfile:
    """A file for node_exporter's textfile collector, replaced about once a second.

        headspace.start(to=Textfile("/var/lib/node_exporter"))

    Args:
        path: The folder that the collector looks at; made where it is missing. The file is
            ``headspace_<run>_rank<rank>.prom``. It stays there when the run has ended.
    """

    path: str | os.PathLike[str]

    def _export(self) -> tuple[str, dict[str, str]]:
        return "textfile", {"at": os.path.abspath(os.fspath(self.path))}


#: What `headspace.start(to=)` takes.
Destination: TypeAlias = "JsonLines | Pipe | Prometheus | Textfile | str | os.PathLike[str]"
