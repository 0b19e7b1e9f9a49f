"""OpenTelemetry collectors for tests: one keeps what it receives, others return errors or hang."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import trustme
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.profiles.v1development import (
    profiles_service_pb2,
    profiles_service_pb2_grpc,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


def otlp_environment(port: int, **more: str) -> dict[str, str]:
    """The environment of a program that exports to this port of this machine ten times a second."""
    return {
        "HEADSPACE_EXPORT": "otlp",
        "HEADSPACE_INTERVAL": "0.1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_METRIC_EXPORT_INTERVAL": "100",
        **more,
    }


@dataclass
class Point:
    """A data point of any kind, with the name and unit of its metric."""

    name: str
    unit: str
    kind: str
    attributes: dict[str, Any]
    start: int
    time: int
    point: Any

    is_monotonic: bool = False

    @property
    def value(self) -> float:
        return float(self.point.as_double)


@dataclass
class Collector:
    """The received requests, in order."""

    port: int
    metrics: list[Any] = field(default_factory=list)
    spans: list[Any] = field(default_factory=list)
    #: Log records, each with the attributes of its resource.
    logs: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    #: Requests for profiles.
    profiles: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)

    def resources(self) -> list[dict[str, Any]]:
        """The resource of each request for metrics."""
        return [
            attributes(one.resource.attributes) for r in self.metrics for one in r.resource_metrics
        ]

    def points(self, request: Any = None) -> list[Point]:
        """Every point of a request for metrics, by default of the last one."""
        found = []
        for resource in (request or self.metrics[-1]).resource_metrics:
            for scope in resource.scope_metrics:
                assert scope.scope.name == "headspace"
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data")
                    found += [
                        Point(
                            metric.name,
                            metric.unit,
                            kind,
                            attributes(point.attributes),
                            point.start_time_unix_nano,
                            point.time_unix_nano,
                            point,
                            kind == "sum" and metric.sum.is_monotonic,
                        )
                        for point in getattr(metric, kind).data_points
                    ]
        return found

    def take(
        self, metrics: Any = None, spans: Any = None, logs: Any = None, profiles: Any = None
    ) -> None:
        self.arrived.append(time.monotonic())
        if profiles is not None:
            self.profiles.append(profiles)
        if metrics is not None:
            self.metrics.append(metrics)
        if spans is not None:
            for resource in spans.resource_spans:
                for scope in resource.scope_spans:
                    self.spans.extend(scope.spans)
        if logs is not None:
            for resource in logs.resource_logs:
                said = attributes(resource.resource.attributes)
                for scope in resource.scope_logs:
                    assert scope.scope.name == "headspace"
                    self.logs.extend((log, said) for log in scope.log_records)

    def events(self, name: str) -> list[Any]:
        """The log records of this event, in order of arrival."""
        return [log for log, _ in self.logs if log.event_name == name]


def attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@dataclass
class Answer:
    """An HTTP collector's response to a request."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@contextmanager
def http_collector(
    answer: Callable[[int], Answer] | None = None,
    tls: trustme.LeafCert | None = None,
    refuses: tuple[str, ...] = (),
) -> Iterator[Collector]:
    """Runs a collector that keeps the requests it accepts.

    `answer` returns the response to a request, given the request's number from 0. Requests for a path in
    `refuses` get a 404 and no number.
    """
    numbers = iter(range(10**9))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path in refuses:
                said = Answer(404)
            else:
                said = answer(next(numbers)) if answer else Answer()
            if self.headers["Content-Encoding"] == "gzip":
                body = gzip.decompress(body)
            collector.headers.append({k.lower(): v for k, v in self.headers.items()})
            if said.status == 200:
                parse(self.path, self.headers["Content-Type"], body, collector)
            else:
                collector.take()
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(said.body)))
            self.end_headers()
            self.wfile.write(said.body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    collector = Collector(server.server_address[1])
    with running(server):
        yield collector


@contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def parse(path: str, kind: str, body: bytes, collector: Collector) -> None:
    signal, message = {
        "/v1/metrics": ("metrics", metrics_service_pb2.ExportMetricsServiceRequest()),
        "/v1/traces": ("spans", trace_service_pb2.ExportTraceServiceRequest()),
        "/v1/logs": ("logs", logs_service_pb2.ExportLogsServiceRequest()),
        "/v1development/profiles": (
            "profiles",
            profiles_service_pb2.ExportProfilesServiceRequest(),
        ),
    }[path]
    if kind == "application/json":
        found = json.loads(body)
        base64_ids(found)
        # A field that the definition does not know is an error here.
        json_format.ParseDict(found, message)
    else:
        assert kind == "application/x-protobuf", kind
        message.ParseFromString(body)
    collector.take(**{signal: message})


def base64_ids(found: Any) -> None:
    """OTLP writes ids in hexadecimal, where protobuf's own JSON has base64."""
    import base64

    if isinstance(found, dict):
        for key, value in found.items():
            if key in ("traceId", "spanId", "parentSpanId"):
                found[key] = base64.b64encode(bytes.fromhex(value)).decode()
            else:
                base64_ids(value)
    elif isinstance(found, list):
        for one in found:
            base64_ids(one)


@contextmanager
def grpc_collector(
    refuse: Callable[[int], grpc.StatusCode | None] | None = None,
    tls: trustme.LeafCert | None = None,
) -> Iterator[Collector]:
    """The same over gRPC. `refuse` returns the status code with which a request is refused."""
    numbers = iter(range(10**9))

    def heed(context: Any) -> None:
        collector.headers.append(dict(context.invocation_metadata()))
        code = refuse(next(numbers)) if refuse else None
        if code is not None:
            collector.take()
            context.abort(code, "not now")

    class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):  # type: ignore[misc]
        def Export(self, request: Any, context: Any) -> Any:
            heed(context)
            collector.take(metrics=request)
            return metrics_service_pb2.ExportMetricsServiceResponse()

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
        def Export(self, request: Any, context: Any) -> Any:
            heed(context)
            collector.take(spans=request)
            return trace_service_pb2.ExportTraceServiceResponse()

    class Logs(logs_service_pb2_grpc.LogsServiceServicer):  # type: ignore[misc]
        def Export(self, request: Any, context: Any) -> Any:
            heed(context)
            collector.take(logs=request)
            return logs_service_pb2.ExportLogsServiceResponse()

    class Profiles(profiles_service_pb2_grpc.ProfilesServiceServicer):  # type: ignore[misc]
        def Export(self, request: Any, context: Any) -> Any:
            heed(context)
            collector.take(profiles=request)
            return profiles_service_pb2.ExportProfilesServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(4))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(Logs(), server)
    profiles_service_pb2_grpc.add_ProfilesServiceServicer_to_server(Profiles(), server)
    if tls is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        chain = b"".join(part.bytes() for part in tls.cert_chain_pems)
        credentials = grpc.ssl_server_credentials([(tls.private_key_pem.bytes(), chain)])
        port = server.add_secure_port("127.0.0.1:0", credentials)
    collector = Collector(port)
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


def hang(connection: socket.socket) -> None:
    pass


def reset(connection: socket.socket) -> None:
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def garbage(connection: socket.socket) -> None:
    connection.recv(1)
    connection.sendall(b"\x16\x03\xff\x00SSH-2.0 hello\r\n\r\n" * 20)
    connection.close()


@contextmanager
def rude_server(manner: Callable[[socket.socket], None]) -> Iterator[int]:
    """Runs a server that calls `manner` with each connection. Yields its port."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    held = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            held.append(connection)
            try:
                manner(connection)
            except OSError:
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        # Ends the waiting `accept`. `close` alone would not end it.
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
        for connection in held:
            connection.close()
