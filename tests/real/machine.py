"""Describes this machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """The machine on which the numbers were measured."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {model}, Python {platform.python_version()}"
