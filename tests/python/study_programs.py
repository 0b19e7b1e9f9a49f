"""Runs the programs of studies: with headspace for its verdict, and without headspace for the true step time."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from running import PROGRAMS, Runs, clean_environment


def step_ms(program: str, spec: dict[str, Any]) -> float:
    """The step time that a program prints when it runs without headspace."""
    return float(_run(program, spec))


def summary(program: str, spec: dict[str, Any]) -> dict[str, Any]:
    """headspace's summary of a run of the program."""
    with tempfile.TemporaryDirectory() as folder:
        _run(program, spec, "-m", "headspace", "run", "--", sys.executable, folder=folder)
        return dict(Runs(Path(folder)).summary())


def _run(program: str, spec: dict[str, Any], *before: str, folder: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *before, str(PROGRAMS / program), json.dumps(spec)],
        env={**clean_environment(), "HEADSPACE_DIR": folder},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
