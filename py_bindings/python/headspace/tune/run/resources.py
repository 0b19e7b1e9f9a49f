"""Divides cores and GPUs among experiments that run at the same time. Experiments share no core and no GPU.

The two hardware threads of a core share its execution units, so they stay together. Each experiment gets an
equal number of cores and GPUs. So outcomes are comparable with each other, but not with outcomes on the
whole machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headspace.tune.errors import TuneError

#: NVIDIA's driver has a folder for each GPU here.
GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Place:
    """The cores and GPUs of one experiment."""

    number: int = 0
    cores: tuple[int, ...] = ()
    """Hardware threads. Empty means all."""
    environment: Mapping[str, str] = field(default_factory=dict)


def places(count: int) -> list[Place]:
    """Divides this machine into `count` equal parts.

    Raises:
        TuneError: If there are too few cores or GPUs.
    """
    if count == 1:
        return [Place()]
    cores = whole_cores(os.sched_getaffinity(0))
    gpus = visible_gpus()
    if count > len(cores):
        raise TuneError(
            f"`--parallel {count}` needs {count} cores, and {len(cores)} are available (lower "
            "`--parallel`)"
        )
    if gpus and count > len(gpus):
        raise TuneError(
            f"`--parallel {count}` needs {count} GPUs, and {len(gpus)} are available (lower `--parallel`: "
            "experiments on the same GPU would slow each other)"
        )
    each, gpus_each = len(cores) // count, len(gpus) // count
    divided = []
    for number in range(count):
        part = cores[number * each : (number + 1) * each]
        mine = gpus[number * gpus_each : (number + 1) * gpus_each]
        environment = {"CUDA_VISIBLE_DEVICES": ",".join(mine)} if gpus else {}
        threads = tuple(sorted(thread for core in part for thread in core))
        divided.append(Place(number, threads, environment))
    return divided


def whole_cores(threads: set[int], sys: Path = Path("/sys/devices/system/cpu")) -> list[set[int]]:
    """Groups hardware threads by core, in order."""
    cores: list[set[int]] = []
    for thread in sorted(threads):
        if any(thread in core for core in cores):
            continue
        try:
            listed = (sys / f"cpu{thread}/topology/thread_siblings_list").read_text()
            cores.append(_listed(listed) & threads)
        except (OSError, ValueError):
            cores.append({thread})
    return cores


def _listed(text: str) -> set[int]:
    """Reads `0-3,8`."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as in CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu.strip() for gpu in visible.split(",") if gpu.strip() not in ("", "-1")]
    try:
        return [str(number) for number, _ in enumerate(GPUS.iterdir())]
    except OSError:
        return []
