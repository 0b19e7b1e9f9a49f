"""Defines the destinations of records: files, OpenTelemetry, Prometheus, pipes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from headspace.integrations._sink import Sink


@dataclass(frozen=True)
class JsonLines:
    """JSON lines in a folder: one folder per run, one file per rank.

        headspace.start(to=JsonLines("/data/runs"))

    Args:
        path: The folder for run folders. It is created if it does not exist. By default
            ``HEADSPACE_DIR``, else ``headspace-runs`` in the working directory.
    """

    path: str | os.PathLike[str] | None = None

    def _export(self) -> None:
        """Nothing besides the run folder."""


@dataclass(frozen=True)
class OpenTelemetry:
    """An OpenTelemetry collector: metrics and logs over OTLP, and spans on request.

        headspace.start(to=OpenTelemetry())                          # http://localhost:4318
        headspace.start(to=OpenTelemetry("http://collector:4317", protocol="grpc", spans=True))

    Separate threads send the data, so a slow or unreachable collector does not slow down training.
    Values that are not given come from OpenTelemetry's own variables, ``OTEL_*``.

    Args:
        endpoint: Address of the collector. Over HTTP, ``/v1/metrics``, ``/v1/traces`` and ``/v1/logs``
            are appended. By default ``OTEL_EXPORTER_OTLP_ENDPOINT``, else this machine.
        protocol: ``grpc``, ``http/protobuf`` or ``http/json``. By default
            ``OTEL_EXPORTER_OTLP_PROTOCOL``, else ``http/protobuf``.
        headers: Headers of every request. By default ``OTEL_EXPORTER_OTLP_HEADERS``.
        interval: Seconds between two exports, at least 0.001. By default
            ``OTEL_METRIC_EXPORT_INTERVAL``, else 10.
        timeout: Maximum seconds of an export. By default ``OTEL_METRIC_EXPORT_TIMEOUT`` (else 30), and
            ``OTEL_EXPORTER_OTLP_TIMEOUT`` (else 10) for each request.
        spans: Whether spans are sent as well: the run, its epochs, the probe, the activity of loops and
            stages in each tick, and a sample of at most ten single steps per second.
    """

    endpoint: str | None = None
    protocol: Literal["grpc", "http/protobuf", "http/json"] | None = None
    headers: Mapping[str, str] | None = None
    interval: float | None = None
    timeout: float | None = None
    spans: bool = False

    def _export(self) -> tuple[str, dict[str, str]]:
        options = {"spans": str(self.spans).lower()}
        for name in ("endpoint", "protocol", "interval", "timeout"):
            value = getattr(self, name)
            if value is not None:
                options[name] = str(value)
        if self.headers is not None:
            from urllib.parse import quote

            pairs = (f"{quote(name)}={quote(value)}" for name, value in self.headers.items())
            options["headers"] = ",".join(pairs)
        return "otlp", options


@dataclass(frozen=True)
class Pipe:
    """Sends the records as lines to readers in other processes, besides the run folder.

        headspace.start(to=Pipe("/tmp/headspace"))              # a named pipe: one reader
        headspace.start(to=Pipe("/tmp/headspace", socket=True)) # a Unix socket: several readers

    Records are sent only while there is a reader, and headspace never waits for a reader. Whole records
    that a slow reader does not accept are dropped and counted. Each reader first receives the `run`
    record and the last summary. Ranks other than 0 append their number to the path.

    Args:
        path: The named pipe or the socket. A missing named pipe is created, and stays after the run. An
            existing pipe of another user, or one that others may write to, is refused. A socket exists
            only during the session.
        socket: Whether to listen at a Unix socket.
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

    Anyone who can reach the address can read the metrics; nothing can be changed. A request must name the
    machine by a name or address at which the endpoint listens, so that pages of other sites cannot read
    the metrics through a browser. If a machine has several processes, each uses its own port: `port` plus
    its local rank.

    Args:
        host: The address to listen at, or the name of this machine that Prometheus uses.
        port: Port of the machine's first process; 0 selects any free port. A notice prints the address.
    """

    host: str = "127.0.0.1"
    port: int = 9464

    def _export(self) -> tuple[str, dict[str, str]]:
        return "prometheus", {"host": self.host, "port": str(self.port)}


@dataclass(frozen=True)
class Textfile:
    """A file for node_exporter's textfile collector, replaced about once per second.

        headspace.start(to=Textfile("/var/lib/node_exporter"))

    Args:
        path: The folder that the collector reads. It is created if it does not exist. The file is
            ``headspace_<run>_rank<rank>.prom``. It stays after the end of the run.
    """

    path: str | os.PathLike[str]

    def _export(self) -> tuple[str, dict[str, str]]:
        return "textfile", {"at": os.path.abspath(os.fspath(self.path))}


#: The type of `to` in `headspace.start(to=)`.
Destination: TypeAlias = (
    "JsonLines | OpenTelemetry | Pipe | Prometheus | Sink | Textfile | str | os.PathLike[str]"
)
