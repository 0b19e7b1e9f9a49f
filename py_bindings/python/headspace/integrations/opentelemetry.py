"""Records a program's own OpenTelemetry spans as stages.

    from headspace.integrations.opentelemetry import StageSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(StageSpanProcessor("loader."))

Each selected span is one call of the stage with its name. So an instrumented loader needs no second set
of names. Spans are exported as before. Only this module imports the package ``opentelemetry-sdk``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import SpanProcessor

from headspace._native import stage
from headspace._watch import own_errors

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, Span

    from headspace._native import Task

__all__ = ["StageSpanProcessor"]

#: Stages that spans may make. A stage is kept for the life of the process, so a program that puts a
#: file's name in a span's must not make one for each file.
MOST_NAMES = 256


class StageSpanProcessor(SpanProcessor):  # type: ignore[misc]
    """Counts chosen spans as calls of stages, from any thread or task.

        StageSpanProcessor("loader.")                             # all whose name begins so
        StageSpanProcessor(lambda span: span.kind == SpanKind.INTERNAL)

    A call takes from the start of its span to its end, awaits included. A span below another chosen
    one counts as a part of it. One whose status is an error is a failed call. Nothing is raised into
    the program: if `chosen` raises, that span is not counted, and one line says so.

    Args:
        chosen: The beginning of the names of spans that are stages, or a function of a span, called as
            it starts, that says whether it is one.

    Raises:
        TypeError: If `chosen` is neither.
    """

    def __init__(self, chosen: str | Callable[[ReadableSpan], bool]) -> None:
        if isinstance(chosen, str):
            prefix = chosen
            self._is_chosen: Callable[[Any], bool] = lambda span: span.name.startswith(prefix)
        elif callable(chosen):
            self._is_chosen = chosen
        else:
            raise TypeError(
                f"`chosen` is neither the beginning of a name nor a function: {chosen!r} "
                '(write "loader.", or "" for all spans)'
            )
        self._lock = threading.Lock()
        #: Spans that go on, by trace and span id: the call that they are or are below, and whether they
        #: are that call themselves.
        self._calls: dict[tuple[int, int], tuple[Task, bool]] = {}
        self._names: set[str] = set()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        own_errors.call_safely(self._start, span)

    def on_end(self, span: ReadableSpan) -> None:
        own_errors.call_safely(self._end, span)

    def shutdown(self) -> None:
        """Calls that go on are not counted."""
        with self._lock:
            self._calls.clear()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True

    def _start(self, span: Any) -> None:
        around = None
        if span.parent is not None:
            around, _ = self._calls.get((span.parent.trace_id, span.parent.span_id), (None, False))
        is_call = self._is_chosen(span) and self._may_be(span.name)
        call = stage(span.name)._begin(around) if is_call else around
        if call is None:
            return
        key = (span.context.trace_id, span.context.span_id)
        with self._lock:
            self._calls[key] = call, is_call

    def _end(self, span: Any) -> None:
        key = (span.context.trace_id, span.context.span_id)
        with self._lock:
            call, is_call = self._calls.pop(key, (None, False))
        if call is not None and is_call:
            failed = not span.status.is_ok
            call.end(Exception if failed else None, 1, 0 if failed else 1)

    def _may_be(self, name: str) -> bool:
        """Whether there is room for a stage of that name."""
        with self._lock:
            if name in self._names:
                return True
            if len(self._names) < MOST_NAMES:
                self._names.add(name)
                return True
        raise RuntimeError(
            f"spans have more than {MOST_NAMES} names, and `{name}` is no stage any more: choose spans "
            "whose names are those of functions"
        )
