"""Two concurrent runs of one program, one of them with a disturbed destination.

Both run at the same time, so that other load on the machine slows both. A step that waited for a
destination without an answer would wait as long as the limit of the destination, `PATIENCE_S`. The
margins of the checks are far below that limit, and far above the effect of a busy machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from running import Programs, Ran, Record, Started, of_kind, steps_in_ticks

#: Time limit of a destination in seconds (`OTEL_EXPORTER_OTLP_TIMEOUT` and similar).
PATIENCE_S = 20.0

PATIENT = {
    "OTEL_EXPORTER_OTLP_TIMEOUT": f"{PATIENCE_S * 1e3:.0f}",
    "OTEL_METRIC_EXPORT_TIMEOUT": f"{PATIENCE_S * 1e3:.0f}",
}


@dataclass(frozen=True)
class Progress:
    """The step times of a training, from its records."""

    steps: int
    median_ms: float
    p95_ms: float
    longest_ms: float

    @staticmethod
    def of(records: list[Record], *, may_start_late: bool = False) -> Progress:
        """The records must contain every tick. If they `may_start_late`, the first ticks may be missing, with at most half of
        the steps.
        """
        ticks, summary = of_kind(records, "tick"), of_kind(records, "summary")[-1]
        assert summary["state"] == "finished"
        assert summary["dropped"]["steps"] == 0
        first = ticks[0]["tick"]
        assert [tick["tick"] for tick in ticks] == list(range(first, first + len(ticks)))
        if may_start_late and first > 0:
            assert summary["steps"] / 2 <= steps_in_ticks(records) <= summary["steps"]
        else:
            assert steps_in_ticks(records) == summary["steps"]
        entries = [entry for tick in ticks for entry in tick["loops"]]
        return Progress(
            summary["steps"],
            summary["steady_step_time_ms"],
            summary["step_p95_ms"],
            max(entry["step"]["max_ms"] for entry in entries if entry["step"]["count"]),
        )


@dataclass(frozen=True)
class Pair:
    """A run with a disturbed destination, and the same run without."""

    troubled: Ran
    calm: Ran
    #: Seconds from the last line of the program to the end of its process.
    end_s: float


def run_side_by_side(
    program: Programs,
    name: str,
    *args: object,
    last: str,
    env: dict[str, str],
    troubled_args: Sequence[object] = (),
    during: Callable[[Started], None] | None = None,
    **how: Any,
) -> Pair:
    """Runs both to their ends.

    `last` is the line that the program prints at the end of its training. `env` and `troubled_args` are
    for the disturbed run. `during` is called with it while it runs.
    """
    calm_env = {"HEADSPACE_INTERVAL": env["HEADSPACE_INTERVAL"]}
    calm = program.start(name, *args, env=calm_env)
    troubled = program.start(name, *args, *troubled_args, env=env, **how)
    if during is not None:
        during(troubled)
    troubled.wait_for(last)
    said = time.monotonic()
    ran = troubled.finish()
    return Pair(ran, calm.finish(), time.monotonic() - said)


def assert_undisturbed(
    pair: Pair, records: list[Record] | None = None, patience: float = PATIENCE_S
) -> None:
    """Checks that the steps are as long as those of the other run, and that the end is within its limit.

    `records` replaces the records of the disturbed run if its own file is incomplete. They come from a reader that may
    have connected after the first ticks.
    """
    troubled, calm = pair.troubled, pair.calm
    assert (troubled.exit_code, troubled.stdout) == (calm.exit_code, calm.stdout), troubled.stderr
    went = (
        Progress.of(troubled.records())
        if records is None
        else Progress.of(records, may_start_late=True)
    )
    would = Progress.of(calm.records())
    assert went.steps == would.steps
    assert went.median_ms < 1.5 * would.median_ms + 1, (went, would)
    assert went.p95_ms < 2 * would.p95_ms + 50, (went, would)
    assert went.longest_ms < would.longest_ms + 1e3 * patience / 2, (went, would)
    # Promised: 1.2 s for a destination, 2 s for all together.
    assert pair.end_s < patience / 2
