"""A program's own OpenTelemetry spans as stages, with OpenTelemetry's SDK."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer
from running import Runs

import headspace
from headspace.integrations.opentelemetry import MOST_NAMES, StageSpanProcessor


def tracer(chosen: Any) -> tuple[Tracer, InMemorySpanExporter]:
    """A tracer that counts the chosen spans as stages and exports all spans as before."""
    exported = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(StageSpanProcessor(chosen))
    provider.add_span_processor(SimpleSpanProcessor(exported))
    return provider.get_tracer("loader"), exported


def stages_of(runs: Runs, batches: Callable[[], Iterator[Any]]) -> dict[str, Any]:
    """The stages in the summary of a run that iterates these batches."""
    with headspace.start(interval=0.05):
        for _ in headspace.wrap(batches()):
            pass
    return {stage["name"]: stage for stage in runs.summary()["stages"]}


def test_child_spans_are_nested_stages(runs: Runs) -> None:
    spans, exported = tracer("load")

    def batches() -> Iterator[int]:
        for number in range(100):
            with (
                spans.start_as_current_span("load"),
                spans.start_as_current_span("retry"),  # This span is not a stage.
                spans.start_as_current_span("load.decode"),
            ):
                time.sleep(0.002)
            yield number

    found = stages_of(runs, batches)
    assert set(found) == {"load", "load.decode"}
    assert found["load.decode"]["within"] == "load"
    assert found["load"]["calls"] == found["load.decode"]["calls"] == 100
    assert found["load.decode"]["mean_ms"] >= 2
    assert len(exported.get_finished_spans()) == 300


def test_concurrent_spans_of_several_threads_are_concurrent_calls(runs: Runs) -> None:
    spans, _ = tracer(lambda span: span.kind == SpanKind.INTERNAL)
    together = threading.Barrier(3)

    def decode(number: int) -> int:
        with spans.start_as_current_span("decode clip"):
            together.wait(30)
            return number

    def batches() -> Iterator[int]:
        with ThreadPoolExecutor(3) as pool:
            for start in range(60):
                yield from pool.map(decode, range(start, start + 3))
                with spans.start_as_current_span("ask", kind=SpanKind.CLIENT):
                    pass

    found = stages_of(runs, batches)
    assert set(found) == {"decode clip"}
    assert found["decode clip"]["concurrency"] == 3
    assert found["decode clip"]["calls"] == 180


def test_tasks_of_one_thread_are_separate_calls_and_their_awaits_are_counted(runs: Runs) -> None:
    spans, _ = tracer("fetch page")
    pause = 0.01

    async def fetch() -> None:
        with spans.start_as_current_span("fetch page"):
            await asyncio.sleep(pause)

    async def several() -> None:
        await asyncio.gather(*(fetch() for _ in range(4)))

    def batches() -> Iterator[int]:
        for number in range(60):
            asyncio.run(several())
            yield number

    found = stages_of(runs, batches)
    assert found["fetch page"]["calls"] == 240
    assert found["fetch page"]["mean_ms"] >= pause * 1e3
    assert found["fetch page"]["concurrency"] == 4


def test_a_span_with_an_error_is_a_failed_call(runs: Runs) -> None:
    spans, _ = tracer("decode")

    def batches() -> Iterator[int]:
        for number in range(60):
            try:
                with spans.start_as_current_span("decode") as span:
                    if number % 3 == 1:
                        span.set_status(Status(StatusCode.ERROR))
                    if number % 3 == 2:
                        raise ValueError(number)
            except ValueError:
                pass
            yield number

    found = stages_of(runs, batches)
    assert found["decode"]["calls"] == 60
    assert found["decode"]["failures"] == 40


def test_a_span_filter_that_raises_does_not_affect_the_program(
    runs: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headspace._session.own_errors.has_reported", False)
    monkeypatch.delenv("HEADSPACE_QUIET", raising=False)

    def chosen(span: Any) -> bool:
        if span.name == "odd":
            raise KeyError("no such thing")
        return True

    spans, exported = tracer(chosen)

    def batches() -> Iterator[int]:
        for number in range(60):
            for name in ("odd", "even"):
                with spans.start_as_current_span(name):
                    pass
            yield number

    found = stages_of(runs, batches)
    assert set(found) == {"even"}
    assert len(exported.get_finished_spans()) == 120
    assert capsys.readouterr().err.count("no such thing") == 1


def test_the_number_of_stages_from_span_names_is_bounded(runs: Runs) -> None:
    spans, exported = tracer("")

    def batches() -> Iterator[int]:
        for number in range(MOST_NAMES + 50):
            with spans.start_as_current_span(f"file {number}"):
                pass
            yield number

    # Other tests of this process have used some of the allowed names.
    assert 0 < len(stages_of(runs, batches)) <= MOST_NAMES
    assert len(exported.get_finished_spans()) == MOST_NAMES + 50


def test_an_invalid_span_filter_is_an_error_at_construction() -> None:
    with pytest.raises(TypeError, match="neither the beginning of a name nor a function: 7"):
        StageSpanProcessor(7)  # type: ignore[arg-type]
