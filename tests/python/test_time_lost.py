"""A run that loses time says so within a minute, without any option."""

from __future__ import annotations

import signal

import headspace_run
import pytest
from running import Programs, wait_until


@pytest.mark.slow
def test_a_run_that_loses_time_says_so_in_one_line_within_a_minute(program: Programs) -> None:
    pytest.importorskip("torch")
    # The wait is much longer than the work, so that workers help on a machine with other work, too.
    started = headspace_run.start(program, "loads_by_itself.py", "waits long", 100_000, 0)
    wait_until(
        lambda: started.path.is_dir() and started.folders and "time_lost" in started.notices(),
        "the notice",
        timeout=90.0,
    )
    records = started.records()
    at = next(i for i, record in enumerate(records) if record.get("code") == "time_lost")
    assert max(r["at_s"] for r in records[:at] if r["kind"] == "tick") < 60.0

    started.send(signal.SIGTERM)
    ended = started.finish()

    (line,) = (line for line in ended.stderr.splitlines() if "a step takes" in line)
    assert line.startswith("headspace: a step takes")
    assert "for data; with this change, it would take" in line
    assert "Load in " in line
    assert "num_workers=" in line
