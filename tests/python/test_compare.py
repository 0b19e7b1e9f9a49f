"""`compare` and `report` use the same steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import Programs


def said(*args: str | Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "headspace", *map(str, args), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout)


def test_steady_state_is_the_same_in_a_report_and_a_comparison(program: Programs) -> None:
    # Some of these ticks contain both warm-up steps and steady steps.
    run = program(
        "loop.py",
        *("--steps", 120, "--load-ms", 2, "--compute-ms", 4, "--epochs", 2),
        env={"HEADSPACE_INTERVAL": "50ms"},
    )

    summary = said("report", run.folder)
    found = said("compare", run.folder, run.folder)

    compared = found["a"]["runs"][0]
    assert compared["steady_steps"] == summary["steady_steps"]
    assert compared["steady_s"] == pytest.approx(summary["steady_s"])
    assert compared["step_ms"] == pytest.approx(summary["steady_step_mean_ms"])
    assert found["wait_ms"]["a"] == pytest.approx(summary["wait_ms"])
    assert found["compute_ms"]["a"] == pytest.approx(summary["compute_ms"], rel=0.02)
