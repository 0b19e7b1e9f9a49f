"""A run that loses time prints a notice within a minute, without any option."""

from __future__ import annotations

import signal

import headspace_run
import pytest
from running import Programs, wait_until

#: A program whose user does not know that it loses time.
NOTHING_SEEMS_WRONG = "../clinic/cases/no_workers_heavy_transforms/train.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        # The wait is much longer than the work, so workers help on a busy machine, too.
        pytest.param(("loads_by_itself.py", "waits long", 100_000, 0), id="waits"),
        pytest.param(
            (NOTHING_SEEMS_WRONG, "--steps", 100_000), id="works", marks=pytest.mark.alone
        ),
    ],
)
def test_a_run_that_loses_time_says_so_in_one_line_within_a_minute(
    program: Programs, command: tuple[object, ...]
) -> None:
    pytest.importorskip("torch")
    started = headspace_run.start(program, str(command[0]), *command[1:])
    wait_until(
        lambda: "time_lost" in started.notices(),
        "the notice",
        timeout=90.0,
    )
    records = started.records()
    at = next(i for i, record in enumerate(records) if record.get("code") == "time_lost")
    assert max(r["at_s"] for r in records[:at] if r["kind"] == "tick") < 60.0

    started.send(signal.SIGTERM)
    ended = started.finish()

    # The verdict at the end may use the same words about a part of the run.
    says_unasked = "headspace: a step takes"
    (line,) = (line for line in ended.stderr.splitlines() if line.startswith(says_unasked))
    assert "for data; with this change, it would take" in line
    assert "Load in " in line
    assert "num_workers=" in line
