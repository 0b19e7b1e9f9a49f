"""Describes where and when a benchmark ran. Without this, its results cannot be compared with others."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def _git(*args: str) -> str:
    try:
        answer = subprocess.run(
            ["git", *args],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def describe() -> dict[str, str]:
    """Machine, versions, date and commit, as text for readers."""
    commit = _git("rev-parse", "--short", "HEAD") or "unknown"
    if _git("status", "--porcelain", "--untracked-files=no"):
        commit += " with changes"
    return {
        "machine": f"{_cpu_model()}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "load": " ".join(f"{x:.2f}" for x in os.getloadavg()) + " (1, 5 and 15 minutes)",
        "python": platform.python_version(),
        "packages": ", ".join(f"{p} {_version(p)}" for p in ("headspace", "spdl", "tqdm")),
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": commit,
    }
