"""OpenTelemetry collectors receive the values of the records, and a faulty collector does not affect training."""

from __future__ import annotations

import re
import socket
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from otlp_collectors import (
    Answer,
    Collector,
    garbage,
    grpc_collector,
    hang,
    http_collector,
    otlp_environment,
    reset,
    rude_server,
)
from running import Programs, Ran, Record, Runs, free_port, of_kind, steps_in_ticks, wait_until

import headspace

PROTOCOLS = ("http/protobuf", "http/json", "grpc")

METRICS = Path(__file__).parents[2] / "docs" / "metrics.md"


def environment(port: int, protocol: str = "http/protobuf", **more: str) -> dict[str, str]:
    return otlp_environment(port, OTEL_EXPORTER_OTLP_PROTOCOL=protocol, **more)


@pytest.fixture(params=PROTOCOLS)
def collector(request: pytest.FixtureRequest) -> Iterator[tuple[Collector, str]]:
    serve: Any = grpc_collector if request.param == "grpc" else http_collector
    with serve() as collector:
        yield collector, request.param


def units() -> dict[str, str]:
    """The unit of each metric by its name, from the documented table."""
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", METRICS.read_text(), re.M)
    return dict(rows)


def last_readings(records: list[Record], until: int) -> dict[tuple[str, str], float]:
    """The last value of each reading by scope and key, among records up to that time."""
    found = {}
    for tick in of_kind(records, "tick"):
        if tick["time_unix_nano"] <= until:
            for scope, readings in tick["readings"].items():
                found.update({(scope, key): value for key, value in readings.items()})
    return found


def durations(records: list[Record], until: int, what: str) -> dict[Any, list[float]]:
    """Count and sum of a loop's times by phase, or of a stage's, up to that time."""
    found: dict[Any, list[float]] = defaultdict(lambda: [0, 0.0])
    for tick in of_kind(records, "tick"):
        if tick["time_unix_nano"] > until:
            continue
        if what == "stage":
            parts = [((e["name"],), e["time"]) for e in tick.get("stages", [])]
        else:
            parts = [((e["name"], e["phase"]), e[what]) for e in tick["loops"]]
        for key, times in parts:
            found[key][0] += times["count"]
            found[key][1] += times["sum_ms"] / 1e3
    return found


# Prefixes of system totals that started at an unknown time before the run.
BEFORE = (
    "headspace.cgroup.",
    "headspace.gpu.ecc.",
    "headspace.page_cache.",
    "headspace.pressure.",
    "headspace.thread.run_queue.",
    "hw.",
    "system.",
)


def is_before(kind: str, name: str) -> bool:
    """Whether a total on this kind of scope began before the run, so that its first reading is its start."""
    return (kind == "thread" and name.startswith("process.")) or name.startswith(BEFORE)


def first_readings(records: list[Record]) -> dict[tuple[str, str], tuple[float, int]]:
    """The first value of each reading by scope and key, with its time."""
    found: dict[tuple[str, str], tuple[float, int]] = {}
    for tick in of_kind(records, "tick"):
        for scope, readings in tick["readings"].items():
            for key, value in readings.items():
                found.setdefault((scope, key), (value, tick["time_unix_nano"]))
    return found


def test_the_exported_metrics_equal_the_records_of_the_same_time(
    collector: tuple[Collector, str], program: Programs
) -> None:
    received, protocol = collector
    ran = program("exported.py", env=environment(received.port, protocol))

    assert ran.exit_code == 0, ran.stderr
    records, unit_of = ran.records(), units()
    run_id = records[0]["run_id"]
    first, first_tick = first_readings(records), of_kind(records, "tick")[0]
    began = first_tick["time_unix_nano"] - first_tick["at_s"] * 1e9
    process_began = of_kind(records, "run")[0]["process_started_unix_nano"]
    assert process_began < began
    compared: set[str] = set()
    assert len(received.metrics) > 2
    for request in received.metrics:
        points = received.points(request)
        (at,) = {point.time for point in points}
        for point in points:
            assert point.unit == unit_of[point.name], point.name
            assert (point.attributes["run"], point.attributes["rank"]) == (run_id, 0)
            if point.kind == "exponential_histogram" or point.name == "headspace.loop.steps":
                assert point.start == pytest.approx(began, abs=1_000)
        for (scope, key), value in last_readings(records, at).items():
            name, _, braces = key.partition("{")
            pairs = dict(pair.split("=") for pair in braces.rstrip("}").split(",") if pair)
            kind, _, which = scope.partition(":")
            matching = [
                point
                for point in points
                if point.name == name
                and pairs.items() <= point.attributes.items()
                and point.attributes.get("scope", kind) == kind
                and (not which or which in point.attributes.values())
            ]
            (point,) = matching
            compared.add(name)
            if point.is_monotonic and is_before(kind, name):
                base, at_first = first[scope, key]
                assert (point.value, point.start) == (value - base, at_first), (scope, key)
                continue
            assert point.value == value, (scope, key)
            if not point.is_monotonic:
                assert point.start == 0
            elif name.startswith(("process.", "headspace.process.")):
                assert point.start == process_began
            else:
                assert point.start == pytest.approx(began, abs=1_000)
        for what, name in [
            ("step", "headspace.loop.step.time"),
            ("wait", "headspace.loop.wait.time"),
            ("compute", "headspace.loop.compute.time"),
            ("stage", "headspace.stage.time"),
        ]:
            expected = durations(records, at, what)
            found = {}
            for point in points:
                if point.name == name:
                    own = point.attributes
                    key2 = (own["stage"],) if what == "stage" else (own["loop"], own["phase"])
                    found[key2] = point.point
                    assert sum(point.point.positive.bucket_counts) == point.point.count
                    assert len(point.point.positive.bucket_counts) <= 160
            assert {k: p.count for k, p in found.items()} == {
                k: v[0] for k, v in expected.items()
            }, what
            for key3, (_, total) in expected.items():
                assert found[key3].sum == pytest.approx(total, rel=1e-9)
    assert {"process.cpu.time", "system.network.io", "process.memory.usage"} <= compared
    assert steps_in_ticks(records) == 200
    assert steps_at_last(received) == 200


def steps_at_last(received: Collector) -> float:
    """The total of the loop's steps in the last delivery."""
    (steps,) = [p.value for p in received.points() if p.name == "headspace.loop.steps"]
    return steps


def test_the_resource_identifies_the_process_and_has_the_attributes_of_the_user(
    program: Programs,
) -> None:
    with http_collector() as received:
        env = environment(
            received.port,
            OTEL_SERVICE_NAME="trainer",
            OTEL_RESOURCE_ATTRIBUTES="team=vision,service.name=unused",
            OTEL_EXPORTER_OTLP_HEADERS="api-key=s%20ecret",
            OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
            RANK="3",
            LOCAL_RANK="1",
            WORLD_SIZE="8",
        )
        ran = program("exported.py", "--epochs", 1, env=env)

    pid = ran.records(rank=3)[0]["pid"]
    (first, *others) = received.resources()
    assert all(other == first for other in others)
    assert first["service.name"] == "trainer"
    assert first["team"] == "vision"
    assert first["process.pid"] == pid
    assert first["headspace.run.id"] == ran.folder.name
    ranks = [first[f"headspace.{what}"] for what in ("rank", "local_rank", "world_size")]
    assert ranks == [3, 1, 8]
    assert first["host.name"] == socket.gethostname()
    assert len(first["service.instance.id"]) == 36
    assert {one["api-key"] for one in received.headers} == {"s ecret"}
    assert {one["content-encoding"] for one in received.headers} == {"gzip"}


def test_spans_arrive_on_request_in_one_trace(collector: tuple[Collector, str], runs: Runs) -> None:
    received, protocol = collector
    endpoint = f"http://127.0.0.1:{received.port}"
    to = headspace.OpenTelemetry(endpoint, protocol=protocol, interval=0.1, spans=True)  # type: ignore[arg-type]
    with headspace.start(to=[to], interval=0.05):
        for _ in range(2):
            for _ in headspace.wrap(list(range(50)), name="train"):
                pass
    spans = received.spans
    assert len({span.trace_id for span in spans}) == 1
    named = defaultdict(list)
    for span in spans:
        named[span.name].append(span)
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    (run,) = named["run"]
    assert not run.parent_span_id
    assert [span.parent_span_id for span in named["epoch train"]] == [run.span_id] * 2
    epochs = {span.span_id for span in named["epoch train"]}
    assert {span.parent_span_id for span in named["steps train"]} <= epochs
    sampled = [
        step["step"]
        for tick in of_kind(runs.records(), "tick")
        for entry in tick["loops"]
        for step in entry.get("sampled", [])
    ]
    assert sampled
    assert {span.parent_span_id for span in named["step train"]} <= epochs
    exported = [
        attribute.value.int_value
        for span in named["step train"]
        for attribute in span.attributes
        if attribute.key == "step"
    ]
    assert exported == sampled


def test_metrics_without_spans_send_no_spans(runs: Runs) -> None:
    with http_collector() as received:
        to = headspace.OpenTelemetry(f"http://127.0.0.1:{received.port}", interval=0.1)
        with headspace.start(to=to, interval=0.05):
            for _ in headspace.wrap(list(range(50))):
                pass
    assert received.metrics
    assert not received.spans
    assert '"sampled"' not in (runs.folder / "rank0.jsonl").read_text()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_real_collector_accepts_the_metrics(
    protocol: str, program: Programs, tmp_path: Path
) -> None:
    rotel = pytest.importorskip("rotel")
    agent = Path(rotel.__file__).parent / "rotel-agent"
    if subprocess.run([agent, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("`rotel-agent` does not start: it needs Debian's libpython3.11")
    ports = {"grpc": free_port(), "http": free_port()}
    log = tmp_path / "rotel.log"
    command = [
        agent,
        "start",
        *("--otlp-grpc-endpoint", f"127.0.0.1:{ports['grpc']}"),
        *("--otlp-http-endpoint", f"127.0.0.1:{ports['http']}"),
        *("--exporter", "blackhole"),
        *("--debug-log", "metrics", "--debug-log-verbosity", "detailed"),
    ]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as collector:
        try:
            for port in ports.values():
                wait_until(lambda port=port: answers(port), "rotel listens")  # type: ignore[misc]
            port = ports["grpc" if protocol == "grpc" else "http"]
            ran = program("exported.py", env=environment(port, protocol))
            assert (ran.exit_code, ran.notices()) == (0, [])
            # Only the final delivery contains this total.
            wait_until(lambda: steps_received(log.read_text())[-1:] == [200.0], "all steps")
        finally:
            collector.terminate()
    said = log.read_text()
    assert f"-> headspace.run.id: Str({ran.folder.name})" in said
    assert "Name: headspace.stage.time" in said
    assert "Name: process.cpu.time" in said


def steps_received(log: str) -> list[float]:
    """The values of `headspace.loop.steps` that rotel printed, in order."""
    blocks = log.split("-> Name: headspace.loop.steps\n")[1:]
    return [float(m[1]) for b in blocks if (m := re.search(r"^Value: ([\d.]+)", b, re.M))]


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


# --- Chaos -----------------------------------------------------------------------------------


def unharmed(ran: Ran) -> None:
    """Checks that the training was not affected: it ended normally, with every step and tick recorded."""
    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout.endswith("steps 200\n")
    assert steps_in_ticks(ran.records()) == 200
    ticks = [tick["tick"] for tick in ran.kind("tick")]
    assert ticks == list(range(len(ticks)))
    assert [epoch["steps"] for epoch in ran.kind("epoch")] == [100, 100]
    summary = ran.summary()
    assert summary["state"] == "finished"
    assert summary["steps"] == 200
    assert summary["dropped"] == {"steps": 0, "records": 0}
    assert ran.notices().count("export_failing") <= 1


def lost(ran: Ran) -> float:
    """The number of lost deliveries in the last tick."""
    values = last_readings(ran.records(), 2**63)
    return values.get(("agent", "headspace.agent.dropped.exports"), 0)


def endless(connection: socket.socket) -> None:
    connection.settimeout(5)
    connection.recv(1)
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: and more\r\n" * 1000)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize(
    ("scheme", "manner"),
    [("http", hang), ("http", reset), ("http", garbage), ("http", endless), ("https", garbage)],
)
def test_a_misbehaving_server_does_not_affect_the_training(
    scheme: str, manner: Callable[[socket.socket], None], protocol: str, program: Programs
) -> None:
    with rude_server(manner) as port:
        env = environment(port, protocol, OTEL_EXPORTER_OTLP_TIMEOUT="300")
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"{scheme}://127.0.0.1:{port}"
        ran = program("exported.py", env=env)
    unharmed(ran)
    assert ran.notices().count("export_failing") == 1
    assert lost(ran) > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_closed_port_is_reported_once_and_counted(protocol: str, program: Programs) -> None:
    ran = program("exported.py", env=environment(free_port(), protocol))
    unharmed(ran)
    assert ran.notices().count("export_failing") == 1
    assert lost(ran) > 0


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_the_end_does_not_wait_for_a_server_that_never_answers(
    protocol: str, program: Programs
) -> None:
    # The time limits are two minutes, twice the time limit of the test.
    patience = {"OTEL_EXPORTER_OTLP_TIMEOUT": "120000", "OTEL_METRIC_EXPORT_TIMEOUT": "120000"}
    with rude_server(hang) as port:
        ran = program("exported.py", env=environment(port, protocol, **patience))
    unharmed(ran)
    # The notice comes at the end, after the records are closed.
    assert "did not answer the last export" in ran.stderr


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tls_connects_only_to_servers_with_a_trusted_certificate(
    protocol: str, program: Programs, tmp_path: Path
) -> None:
    authority = trustme.CA()
    trusted = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(trusted))
    serve: Any = grpc_collector if protocol == "grpc" else http_collector
    with serve(tls=authority.issue_cert("127.0.0.1")) as received:
        env = environment(received.port, protocol)
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"https://127.0.0.1:{received.port}"
        refused = program("exported.py", env=env)
        assert not received.metrics
        ran = program("exported.py", env={**env, "OTEL_EXPORTER_OTLP_CERTIFICATE": str(trusted)})
    unharmed(refused)
    assert "export_failing" in refused.notices()
    unharmed(ran)
    assert ran.notices() == []
    assert received.metrics


def test_a_429_answer_pauses_the_requests(program: Programs) -> None:
    with http_collector(lambda _: Answer(429, {"Retry-After": "60"})) as received:
        env = environment(received.port, OTEL_LOGS_EXPORTER="none")
        ran = program("exported.py", env=env)
    unharmed(ran)
    assert lost(ran) > 0
    # The first request, and the attempt at the end.
    assert len(received.arrived) == 2


def test_the_retry_delay_of_the_server_is_kept_and_totals_arrive_after_it(
    program: Programs,
) -> None:
    def answer(number: int) -> Answer:
        return Answer(503, {"Retry-After": "1"}) if number == 0 else Answer()

    with http_collector(answer) as received:
        env = environment(received.port, OTEL_LOGS_EXPORTER="none")
        ran = program("exported.py", "--compute-ms", 25, env=env)
    unharmed(ran)
    assert received.arrived[1] - received.arrived[0] >= 1.0
    assert [n for n in ran.notices() if n.startswith("export")] == [
        "export_failing",
        "export_resumed",
    ]
    assert steps_at_last(received) == 200


def test_an_unavailable_grpc_server_receives_the_totals_later(
    program: Programs,
) -> None:
    def refuse(number: int) -> grpc.StatusCode | None:
        return grpc.StatusCode.UNAVAILABLE if number < 2 else None

    with grpc_collector(refuse) as received:
        ran = program("exported.py", "--compute-ms", 25, env=environment(received.port, "grpc"))
    unharmed(ran)
    assert "export_resumed" in ran.notices()
    assert steps_at_last(received) == 200


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_a_partial_success_of_a_collector_is_reported(protocol: str, program: Programs) -> None:
    partial = metrics_service_pb2.ExportMetricsServiceResponse()
    partial.partial_success.rejected_data_points = 3
    partial.partial_success.error_message = "too old"
    json = protocol == "http/json"
    body = MessageToJson(partial).encode() if json else partial.SerializeToString()
    with http_collector(lambda _: Answer(200, {}, body)) as received:
        ran = program("exported.py", env=environment(received.port, protocol))
    unharmed(ran)
    assert "rejected 3 data points: too old" in ran.stderr
    assert lost(ran) > 0


def test_a_success_status_without_a_protobuf_body_counts_as_accepted(program: Programs) -> None:
    with http_collector(lambda _: Answer(200, {}, b"<html>fine</html>")) as received:
        ran = program("exported.py", env=environment(received.port))
    unharmed(ran)
    assert (ran.notices(), lost(ran)) == ([], 0)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_forked_child_ends_at_once_and_sends_nothing(protocol: str, program: Programs) -> None:
    serve: Any = grpc_collector if protocol == "grpc" else http_collector
    with serve() as received:
        ran = program("exported.py", "--fork", env=environment(received.port, protocol))
    unharmed(ran)
    assert "child 7\n" in ran.stdout
    assert {one["process.pid"] for one in received.resources()} == {ran.records()[0]["pid"]}


# --- Settings --------------------------------------------------------------------------------


def test_an_invalid_variable_is_reported_and_the_default_is_used(
    program: Programs,
) -> None:
    with http_collector() as received:
        env = environment(received.port, OTEL_EXPORTER_OTLP_TIMEOUT="soon")
        ran = program("exported.py", env=env)
    unharmed(ran)
    assert "`OTEL_EXPORTER_OTLP_TIMEOUT`: `soon` is not a number of milliseconds" in ran.stderr
    assert ran.notices().count("setting_refused") == 1
    assert received.metrics


def test_an_unknown_destination_is_reported_and_the_others_continue(
    program: Programs,
) -> None:
    with http_collector() as received:
        env = environment(received.port, HEADSPACE_EXPORT="smoke:signals, otlp")
        ran = program("exported.py", env=env)
    unharmed(ran)
    assert "no destination is called `smoke`" in ran.stderr
    assert received.metrics


def test_the_switch_of_opentelemetry_disables_the_export(program: Programs) -> None:
    with http_collector() as received:
        ran = program("exported.py", env=environment(received.port, OTEL_SDK_DISABLED="true"))
    unharmed(ran)
    assert not received.arrived


@pytest.mark.parametrize(
    "wrong",
    [{"endpoint": "localhost:4318"}, {"protocol": "smoke"}, {"interval": 0}, {"timeout": -1}],
)
def test_an_invalid_argument_is_an_error(wrong: dict[str, Any], runs: Runs) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"`otlp`: `{name}`"):
        headspace.start(to=headspace.OpenTelemetry(**wrong))
    assert not runs.folders


def test_arguments_of_the_script_override_the_environment(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_collector() as one, http_collector() as other:
        monkeypatch.setenv("HEADSPACE_EXPORT", f"otlp:http://127.0.0.1:{other.port}")
        with headspace.start(to=headspace.OpenTelemetry(f"http://127.0.0.1:{one.port}")):
            pass
        assert not other.arrived
        with headspace.start():
            pass
    assert one.metrics
    assert other.metrics


def test_several_destinations_all_receive_the_records_and_a_path_sets_their_folder(
    runs: Runs, tmp_path: Path
) -> None:
    with http_collector() as one, http_collector() as other:
        to = [
            headspace.JsonLines(tmp_path / "elsewhere"),
            headspace.OpenTelemetry(f"http://127.0.0.1:{one.port}"),
            headspace.OpenTelemetry(f"http://127.0.0.1:{other.port}"),
        ]
        with headspace.start(to=to):
            pass
    assert one.metrics
    assert other.metrics
    assert Runs(tmp_path / "elsewhere").summary()["state"] == "finished"
    assert not runs.folders


def test_the_log_of_the_agent_is_off_by_default(program: Programs) -> None:
    with http_collector() as received:
        quiet = program("exported.py", env=environment(received.port))
        env = environment(received.port, HEADSPACE_LOG="headspace_exporters=debug")
        loud = program("exported.py", env=env)
        wrong = program("exported.py", env=environment(received.port, HEADSPACE_LOG="a=b=c"))
    assert "delivered" not in quiet.stderr
    assert "DEBUG hs-otlp headspace_exporters::delivery: delivered" in loud.stderr
    assert "`HEADSPACE_LOG`: `a=b=c` is not a filter" in wrong.stderr
    assert "setting_refused" in wrong.notices()
