"""Records a program's own OpenTelemetry spans as stages.

    from headspace.integrations.opentelemetry import StageSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(StageSpanProcessor("loader."))

Each selected span is one call of the stage with the name of the span. So a loader with spans needs no
calls of ``headspace.stage``. Spans are exported as before. Only this module imports the package
``opentelemetry-sdk``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import SpanProcessor

from headspace._native import stage
from headspace._session import own_errors

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, Span

    from headspace._native import Task

__all__ = ["StageSpanProcessor"]

#: Maximum number of stages from spans. Stages are kept until the process ends. So a program whose spans have
#: names of files must not create a stage for each file.
MOST_NAMES = 256


class StageSpanProcessor(SpanProcessor):  # type: ignore[misc]
    """Counts selected spans as calls of stages, from any thread or task.

        StageSpanProcessor("loader.")                             # all spans whose names begin like this
        StageSpanProcessor(lambda span: span.kind == SpanKind.INTERNAL)

    A call lasts from the start of its span to the end, including awaits. If a selected span is inside another
    selected span, its stage counts as a part of the outer stage. A span with an error status is a failed
    call. No exception reaches the program: if `chosen` raises an exception, the span is not counted, and one
    line says so.

    Args:
        chosen: The beginning of the names of the spans that are stages. Or a function that is called with
            each span at its start, and returns whether the span is a stage.

    Raises:
        TypeError: If `chosen` is neither a text nor a function.
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
        #: Open spans, by trace ID and span ID: the innermost call that contains the span, and whether the
        #: span itself is this call.
        self._calls: dict[tuple[int, int], tuple[Task, bool]] = {}
        self._names: set[str] = set()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        own_errors.call_safely(self._start, span)

    def on_end(self, span: ReadableSpan) -> None:
        own_errors.call_safely(self._end, span)

    def shutdown(self) -> None:
        """Ends the processor. Calls in progress are not counted."""
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
        """Whether a span with this name may be a stage."""
        with self._lock:
            if name in self._names:
                return True
            if len(self._names) < MOST_NAMES:
                self._names.add(name)
                return True
        raise RuntimeError(
            f"more than {MOST_NAMES} different names of spans, so `{name}` is not measured: select spans "
            "whose names are kinds of work, such as functions"
        )
