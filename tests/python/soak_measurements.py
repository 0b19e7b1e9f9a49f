"""Memory, descriptors, threads and CPU time of a process over hours, and whether they grow."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headspace._native import t_quantile

#: Beginnings of the names of headspace's threads.
OWN_THREADS = ("headspace-", "hs-")

#: Number of blocks into which a series is divided. Means of long blocks are nearly independent (batch means: Law,
#: "Simulation Modeling and Analysis", 5th edition, 9.5.3).
BLOCKS = 20


@dataclass(frozen=True)
class Sample:
    """The measurements of a process at one time."""

    at_s: float
    #: Anonymous memory (not backed by a file), and resident memory.
    anonymous_kib: int
    resident_kib: int
    descriptors: int
    threads: int
    #: CPU time of the process, and of headspace's threads in it, in seconds.
    cpu_s: float
    own_cpu_s: float


@dataclass(frozen=True)
class Growth:
    """The slope of a series, with the half width of its 95 % interval."""

    slope: float
    half: float

    def __sub__(self, other: Growth) -> Growth:
        return Growth(self.slope - other.slope, math.hypot(self.half, other.half))

    def __str__(self) -> str:
        return f"{self.slope:+.0f} ± {self.half:.0f}"


def take_sample(pid: int, at_s: float) -> Sample | None:
    """The state of a process. None if it has ended."""
    process = Path(f"/proc/{pid}")
    try:
        status = dict(
            line.split(":", 1)
            for line in (process / "status").read_text().splitlines()
            if ":" in line
        )
        descriptors = len(os.listdir(process / "fd"))
        threads = [_cpu_of_thread(task) for task in (process / "task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return None
    if "RssAnon" not in status:  # a zombie
        return None
    return Sample(
        at_s,
        _kib(status["RssAnon"]),
        _kib(status["VmRSS"]),
        descriptors,
        int(status["Threads"]),
        sum(seconds for _, seconds in threads),
        sum(seconds for name, seconds in threads if name.startswith(OWN_THREADS)),
    )


def _kib(text: str) -> int:
    return int(text.split()[0])


def _cpu_of_thread(task: Path) -> tuple[str, float]:
    """Name and CPU time of a thread. Nothing if it has ended since it was listed."""
    try:
        name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return "", 0.0
    user, system = fields.split()[11:13]
    return name, (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def growth_per_hour(samples: Sequence[Sample], value: Callable[[Sample], float]) -> Growth:
    """The slope of a value per hour, by least squares through the means of blocks.

    Raises:
        ValueError: If there are fewer than two samples per block.
    """
    if len(samples) < 2 * BLOCKS:
        raise ValueError(
            f"{len(samples)} samples are too few for {BLOCKS} blocks: use more minutes"
        )
    blocks = np.array_split(np.array([(s.at_s / 3600, value(s)) for s in samples]), BLOCKS)
    hours, means = np.array([block.mean(axis=0) for block in blocks]).T
    centred = hours - hours.mean()
    slope = float(centred @ means / (centred @ centred))
    residuals = means - means.mean() - slope * centred
    freedom = BLOCKS - 2
    error = math.sqrt(float(residuals @ residuals) / freedom / float(centred @ centred))
    return Growth(slope, t_quantile(freedom) * error)


def median_of_ends(
    samples: Sequence[Sample], value: Callable[[Sample], float]
) -> tuple[float, float]:
    """The medians of a value in the first and in the last quarter."""
    quarter = max(1, len(samples) // 4)
    first, last = samples[:quarter], samples[-quarter:]
    return float(np.median([value(s) for s in first])), float(np.median([value(s) for s in last]))


def medians_over_time(
    samples: Sequence[Sample], value: Callable[[Sample], float], parts: int = 10
) -> str:
    """The medians of a value in equal parts of the time, as text. They show whether it still grows at the end."""
    divided = np.array_split(np.array([value(s) for s in samples]), parts)
    return " ".join(f"{np.median(part):.0f}" for part in divided)


def share_of_core(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """CPU time per elapsed time."""
    first, last = samples[0], samples[-1]
    return (value(last) - value(first)) / (last.at_s - first.at_s)
