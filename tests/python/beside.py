"""Two runs of one program side by side, one of them in trouble: what the trouble cost its training.

Both run at the same time, so that whatever else the machine does slows both. Where a step would wait
for somebody who does not answer, it would wait as long as the destination's own limits allow,
`PATIENCE_S`; the margins are far from that, and far from what a busy machine does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from running import Programs, Ran, Record, Started, of_kind, steps_in_ticks

#: What a destination is allowed to take (`OTEL_EXPORTER_OTLP_TIMEOUT` and its like), in seconds.
PATIENCE_S = 20.0

PATIENT = {
    "OTEL_EXPORTER_OTLP_TIMEOUT": f"{PATIENCE_S * 1e3:.0f}",
    "OTEL_METRIC_EXPORT_TIMEOUT": f"{PATIENCE_S * 1e3:.0f}",
}


@dataclass(frozen=True)
class Progress:
    """How a training went, as its records say."""

    steps: int
    median_ms: float
    p95_ms: float
    longest_ms: float

    @staticmethod
    def of(records: list[Record]) -> Progress:
        summary = of_kind(records, "summary")[-1]
        assert summary["state"] == "finished"
        assert summary["dropped"]["steps"] == 0
        assert steps_in_ticks(records) == summary["steps"]
        entries = [entry for tick in of_kind(records, "tick") for entry in tick["loops"]]
        return Progress(
            summary["steps"],
            summary["steady_step_time_ms"],
            summary["step_p95_ms"],
            max(entry["step"]["max_ms"] for entry in entries if entry["step"]["count"]),
        )


@dataclass(frozen=True)
class Pair:
    """A run in trouble, and the same without."""

    troubled: Ran
    calm: Ran
    #: From the last line that the program says to the end of its process.
    end_s: float


def side_by_side(
    program: Programs,
    name: str,
    *args: object,
    last: str,
    env: dict[str, str],
    only: Sequence[object] = (),
    meanwhile: Callable[[Started], None] | None = None,
    **how: Any,
) -> Pair:
    """Runs both to their ends.

    `last` is what the program says when its training is done. `env` and the arguments `only` are for
    the troubled one; `meanwhile` looks at it while it goes on.
    """
    calm_env = {"HEADSPACE_INTERVAL": env["HEADSPACE_INTERVAL"]}
    calm = program.start(name, *args, env=calm_env)
    troubled = program.start(name, *args, *only, env=env, **how)
    if meanwhile is not None:
        meanwhile(troubled)
    troubled.wait_for(last)
    said = time.monotonic()
    ran = troubled.finish()
    return Pair(ran, calm.finish(), time.monotonic() - said)


def untouched(
    pair: Pair, records: list[Record] | None = None, patience: float = PATIENCE_S
) -> None:
    """The steps are as long as those of the other run, and the end is within its bound.

    `records` are those of the troubled run where its own file is not whole.
    """
    troubled, calm = pair.troubled, pair.calm
    assert (troubled.exit_code, troubled.stdout) == (calm.exit_code, calm.stdout), troubled.stderr
    went = Progress.of(troubled.records() if records is None else records)
    would = Progress.of(calm.records())
    assert went.steps == would.steps
    assert went.median_ms < 1.5 * would.median_ms + 1, (went, would)
    assert went.p95_ms < 2 * would.p95_ms + 50, (went, would)
    assert went.longest_ms < would.longest_ms + 1e3 * patience / 2, (went, would)
    # Promised: 1.2 s for a destination, 2 s for all together.
    assert pair.end_s < patience / 2
