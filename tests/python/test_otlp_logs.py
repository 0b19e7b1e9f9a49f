"""Notices, findings and the verdict as OTLP log records, and the trace context from a launcher."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from otlp_collectors import attributes, grpc_collector, http_collector, otlp_environment
from running import Programs, Runs, of_kind, steps_in_ticks

import headspace

#: How OpenTelemetry numbers the severities that notices have.
SEVERITIES = {"info": (9, "INFO"), "warning": (13, "WARN")}


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json", "grpc"])
def test_notices_arrive_as_log_events_with_the_resource_of_the_run(
    protocol: str, program: Programs
) -> None:
    serve: Any = grpc_collector if protocol == "grpc" else http_collector
    with serve() as received:
        env = otlp_environment(
            received.port,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            OTEL_SERVICE_NAME="trainer",
            # This is not a duration, so the log begins with a notice.
            HEADSPACE_INTERVAL="often",
        )
        ran = program("exported.py", env=env)

    assert ran.exit_code == 0, ran.stderr
    notices = {notice["text"]: notice for notice in ran.kind("notice")}
    assert any("often" in text for text in notices)
    for log in received.events("headspace.notice"):
        notice = notices.pop(log.body.string_value)
        assert attributes(log.attributes) == {"headspace.notice.code": notice["code"]}
        assert (log.severity_number, log.severity_text) == SEVERITIES[notice["severity"]]
    assert notices == {}, "not every notice arrived"

    summary = ran.summary()
    (verdict,) = received.events("headspace.verdict")
    said = attributes(verdict.attributes)
    assert said["headspace.verdict.step_ms"] == summary["steady_step_mean_ms"]
    assert said["headspace.verdict.steps"] == 200
    assert said["headspace.verdict.bottleneck.kind"] == summary["bottleneck"]["kind"]
    assert verdict.body.string_value.startswith("headspace")
    found = {log.body.string_value for log in received.events("headspace.finding")}
    assert len(found) >= len({finding["code"] for finding in summary["findings"]})
    remedies = [attributes(log.attributes) for log in received.events("headspace.remedy")]
    assert [
        (one["headspace.remedy.code"], one["headspace.remedy.predicted_step_ms"])
        for one in remedies
    ] == [(one["code"], one["predicted_step_ms"]) for one in summary["remedies"]]
    for _, resource in received.logs:
        assert resource["service.name"] == "trainer"
        assert resource["headspace.run.id"] == ran.folder.name
    # All signals have the same instance id.
    (instance,) = {resource["service.instance.id"] for _, resource in received.logs}
    assert {one["service.instance.id"] for one in received.resources()} == {instance}


def test_a_collector_without_logs_causes_one_notice_and_receives_all_metrics(
    program: Programs,
) -> None:
    with http_collector(refuses=("/v1/logs",)) as received:
        ran = program("exported.py", env=otlp_environment(received.port))
    assert ran.exit_code == 0, ran.stderr
    assert steps_in_ticks(ran.records()) == 200
    assert received.logs == []
    (steps,) = [p.value for p in received.points() if p.name == "headspace.loop.steps"]
    assert steps == 200
    assert "`OTEL_LOGS_EXPORTER=none` sends none" in ran.stderr


def test_logs_arrive_when_metrics_are_refused(program: Programs) -> None:
    with http_collector(refuses=("/v1/metrics",)) as received:
        ran = program("exported.py", env=otlp_environment(received.port))
    assert ran.exit_code == 0, ran.stderr
    assert received.metrics == []
    codes = [attributes(log.attributes) for log in received.events("headspace.notice")]
    assert {"headspace.notice.code": "export_failing"} in codes
    assert len(received.events("headspace.verdict")) == 1


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_LOGS_EXPORTER", "none"), ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "{other}/in")],
)
def test_logs_have_their_own_variables(variable: str, value: str, program: Programs) -> None:
    with http_collector() as received, http_collector(refuses=("/in",)) as other:
        own = value.format(other=f"http://127.0.0.1:{other.port}")
        ran = program("exported.py", env=otlp_environment(received.port, **{variable: own}))
    assert ran.exit_code == 0, ran.stderr
    assert received.metrics
    assert received.logs == []
    assert bool(other.headers) == (value != "none")


# --- The launcher's trace --------------------------------------------------------------------


def test_the_span_of_a_run_is_a_child_of_the_span_of_its_launcher(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    carrier: dict[str, str] = {}
    tracer = TracerProvider().get_tracer("launcher")
    with tracer.start_as_current_span("job") as job:
        TraceContextTextMapPropagator().inject(carrier)
    monkeypatch.setenv("TRACEPARENT", carrier["traceparent"])
    with http_collector() as received:
        to = headspace.OpenTelemetry(f"http://127.0.0.1:{received.port}", interval=0.1, spans=True)
        with headspace.start(to=to, interval=0.05):
            for _ in headspace.wrap(list(range(50)), name="train"):
                pass
    above = job.get_span_context()
    (run,) = [span for span in received.spans if span.name == "run"]
    assert run.parent_span_id == above.span_id.to_bytes(8, "big")
    assert run.flags & 0xFF == above.trace_flags
    in_trace = above.trace_id.to_bytes(16, "big")
    assert {span.trace_id for span in received.spans} == {in_trace}
    assert {log.trace_id for log, _ in received.logs} == {in_trace}
    assert {log.span_id for log, _ in received.logs} == {run.span_id}
    assert not of_kind(runs.records(), "notice")


def test_an_invalid_trace_parent_causes_one_notice_and_the_run_has_a_new_trace(
    program: Programs,
) -> None:
    with http_collector() as received:
        env = otlp_environment(received.port, TRACEPARENT="00-0-0-01")
        ran = program("exported.py", env=env)
    assert ran.exit_code == 0, ran.stderr
    assert ran.stderr.count("TRACEPARENT") == 1
    assert ran.notices().count("setting_refused") == 1
    assert {log.trace_id for log, _ in received.logs} == {b""}


def test_headspace_imports_no_opentelemetry_library() -> None:
    code = (
        "import sys, headspace, headspace.integrations; assert 'opentelemetry' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
