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
class OpenTelemetry:
    """An OpenTelemetry collector: the run's metrics over OTLP, and spans on request.

        headspace.start(to=OpenTelemetry())                          # http://localhost:4318
        headspace.start(to=OpenTelemetry("http://collector:4317", protocol="grpc", spans=True))

    A thread of its own sends the run as it stands; a collector that is slow or gone costs the
    training nothing. What is not given comes from OpenTelemetry's own variables, ``OTEL_*``.

    Args:
        endpoint: The collector's address. Over HTTP ``/v1/metrics`` and ``/v1/traces`` are appended.
            By default ``OTEL_EXPORTER_OTLP_ENDPOINT``, else this machine.
        protocol: ``grpc``, ``http/protobuf`` or ``http/json``. By default
            ``OTEL_EXPORTER_OTLP_PROTOCOL``, else ``http/protobuf``.
        headers: Sent with every request. By default ``OTEL_EXPORTER_OTLP_HEADERS``.
        interval: Seconds between two exports, at least 0.001. Shorter shows more and sends more. By
            default ``OTEL_METRIC_EXPORT_INTERVAL``, else 10.
        timeout: Seconds that an export may take. By default ``OTEL_METRIC_EXPORT_TIMEOUT`` and
            ``OTEL_EXPORTER_OTLP_TIMEOUT``, else 10 a request.
        spans: Send spans as well: the run, its epochs and the probe, for each interval what loops and
            stages did in it, and of single steps a sample of at most ten a second.
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
    """The records as lines to whoever reads, in another process, besides the run folder.

        headspace.start(to=Pipe("/tmp/headspace"))              # a named pipe: one reader
        headspace.start(to=Pipe("/tmp/headspace", socket=True)) # a Unix socket: several readers

    Written only while somebody reads, and never waiting: what a reader does not take in time is
    dropped, by whole lines, and counted. Each reader begins with the `run` record and the last
    summary. Ranks other than 0 have their number appended to the path.

    Args:
        path: The named pipe, made where it is missing and left there, and refused where it is
            another user's or others may write to it; or the socket, made for the session.
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

    Anyone who reaches the address can read the metrics, and nobody can change anything through it. A
    request must call the machine by a name or an address that it listens at, so that no page of
    another site reads them through a browser.
    Of several processes on a machine each has a port of its own: `port` and its local rank.

    Args:
        host: The address to listen at, or the name by which Prometheus finds this machine.
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
Destination: TypeAlias = (
    "JsonLines | OpenTelemetry | Pipe | Prometheus | Sink | Textfile | str | os.PathLike[str]"
)
