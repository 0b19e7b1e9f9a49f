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
        """No destination besides the run folder."""


@dataclass(frozen=True)
class OpenTelemetry:
    """An OpenTelemetry collector: metrics and logs over OTLP, and spans and profiles on request.

        headspace.start(to=OpenTelemetry())                          # http://localhost:4318
        headspace.start(to=OpenTelemetry("http://collector:4317", protocol="grpc", spans=True))

    Each signal has its own thread, so a slow or unreachable collector does not slow down training. If an
    argument is not given, OpenTelemetry's own variable (``OTEL_*``) applies. Profiles are sent only if
    ``OTEL_PROFILES_EXPORTER`` is ``otlp``.

    Args:
        endpoint: Address of the collector. Over HTTP, the path of the signal is appended, such as
            ``/v1/metrics``. By default ``OTEL_EXPORTER_OTLP_ENDPOINT``, else this machine.
        protocol: ``grpc``, ``http/protobuf`` or ``http/json``. By default
            ``OTEL_EXPORTER_OTLP_PROTOCOL``, else ``http/protobuf``.
        headers: Headers of every request. By default ``OTEL_EXPORTER_OTLP_HEADERS``.
        interval: Seconds between two exports, at least 0.001. By default
            ``OTEL_METRIC_EXPORT_INTERVAL``, else 10.
        timeout: Maximum seconds of an export, and of each request. By default
            ``OTEL_METRIC_EXPORT_TIMEOUT`` (else 30) for an export, and ``OTEL_EXPORTER_OTLP_TIMEOUT``
            (else 10) for a request.
        spans: Whether spans are sent too: the run, its epochs, the probe, the activity of loops and
            stages in each tick, and a sample of at most ten single steps per second.
    """

    endpoint: str | None = None
    protocol: Literal["grpc", "http/protobuf", "http/json"] | None = None
    headers: Mapping[str, str] | None = None
    interval: float | None = None
    timeout: float | None = None
    spans: bool = False

    def _export(self) -> tuple[str, dict[str, str]]:
        names = ("endpoint", "protocol", "interval", "timeout")
        given = {name: str(value) for name in names if (value := getattr(self, name)) is not None}
        options = {"spans": str(self.spans).lower(), **given}
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

    Records are sent only while there is a reader, and headspace never waits for a reader. If a reader is too
    slow, whole records are dropped and counted. Each reader first receives the `run` record and the last
    summary. Ranks other than 0 append their rank to the path.

    Args:
        path: The named pipe or the socket. If the named pipe does not exist, it is created. It stays after
            the run. An existing pipe is refused if it belongs to another user, or if other users can write
            to it. A socket exists only during the session.
        socket: Whether to listen at a Unix socket instead.
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

    Anyone who can reach the address can read the metrics; nothing can be changed. The `Host` of a request
    must be a name or address of the endpoint. Otherwise pages of other sites could read the metrics through
    a browser. If a machine has several processes, each process uses its own port: `port` plus its local rank.

    Args:
        host: The address to listen at, or the name of this machine that Prometheus uses.
        port: Port of the first process of the machine; 0 selects any free port. A notice prints the address.
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
        path: The folder that the collector reads. It is created if it does not exist. The file in it is
            ``headspace_<run>_rank<rank>.prom``. The file stays after the end of the run.
    """

    path: str | os.PathLike[str]

    def _export(self) -> tuple[str, dict[str, str]]:
        return "textfile", {"at": os.path.abspath(os.fspath(self.path))}


#: The type of `to` in `headspace.start(to=)`.
Destination: TypeAlias = (
    "JsonLines | OpenTelemetry | Pipe | Prometheus | Sink | Textfile | str | os.PathLike[str]"
)
