"""Reads settings from environment variables, each time that a setting is used.

An invalid value is reported once, and the default is used. So these functions raise no exceptions.
"""

from __future__ import annotations

import os
import sys

from headspace._environment import number_from_torch, read_number, read_rank, read_switch, refuse
from headspace._native import DEFAULT_CACHES, LEAST_PROBE_STEPS, LEAST_WHAT_IF_STEPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MEASURE, PROBE, REPLAY, WHAT_IF = "measure", "probe", "replay", "whatif"
MODES = (MEASURE, PROBE, REPLAY, WHAT_IF)

#: Values of ``HEADSPACE_MEMORY``.
OFF, TYPES, TRACEMALLOC = "off", "types", "tracemalloc"

#: Default number of live batches before a replay.
LIVE_BEFORE_REPLAY = 100

_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_LOCAL_WORLD_SIZE = (
    "LOCAL_WORLD_SIZE",
    "SLURM_NTASKS_PER_NODE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
)
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def enabled() -> bool:
    """Whether headspace is on (``HEADSPACE``, default yes)."""
    return read_switch("HEADSPACE", "headspace stays on", default=True)


def mode() -> str:
    """The mode of wrapped loaders (``HEADSPACE_MODE``, default ``measure``)."""
    return _choice("HEADSPACE_MODE", MODES, MEASURE, "is not a mode")


def directory() -> str:
    """The folder that contains the run folders (``HEADSPACE_DIR``)."""
    return os.environ.get("HEADSPACE_DIR") or "headspace-runs"


def interval() -> float:
    """Seconds between two ticks (``HEADSPACE_INTERVAL``, default 1)."""
    value = os.environ.get("HEADSPACE_INTERVAL", "").strip() or "1"
    seconds = duration(value)
    if seconds is None or not 0.001 <= seconds <= 86_400:
        refuse(
            "HEADSPACE_INTERVAL",
            f"`{value}` is not a duration of 1 ms or more (write `250ms` or `2s`); 1s is used.",
        )
        return 1.0
    return seconds


def duration(text: str, **longer_units: float) -> float | None:
    """Seconds in ``250ms``, ``2s`` or a plain number of seconds; None for anything else.

    Args:
        longer_units: Further units, each with its seconds.
    """
    units = {"ms": 1e-3, "s": 1.0, **longer_units}
    unit = next((unit for unit in units if text.endswith(unit)), "")
    try:
        return float(text.removesuffix(unit)) * units.get(unit, 1.0)
    except ValueError:
        return None


def chosen_loop() -> str | None:
    """Name of the training loop, if the user set it (``HEADSPACE_LOOP``, else the function of
    ``HEADSPACE_BATCH_FROM``)."""
    function = os.environ.get("HEADSPACE_BATCH_FROM", "").rpartition(":")[2].rpartition(".")[2]
    return os.environ.get("HEADSPACE_LOOP") or function or None


def epochs() -> int | None:
    """Number of epochs of the run (``HEADSPACE_EPOCHS``, default unknown)."""
    return _count("HEADSPACE_EPOCHS", None, instead="the length of the run is unknown")


def total_steps() -> int | None:
    """Number of batches of the run (``HEADSPACE_TOTAL_STEPS``, default unknown)."""
    return _count("HEADSPACE_TOTAL_STEPS", None, instead="the length of the run is unknown")


def probe_steps() -> int | None:
    """Maximum number of steps of a probe (``HEADSPACE_PROBE_STEPS``, default as the loader needs)."""
    return _count(
        "HEADSPACE_PROBE_STEPS",
        None,
        least=LEAST_PROBE_STEPS,
        instead="the probe is as long as the loader needs",
    )


def what_if_steps() -> int | None:
    """Maximum number of steps of a what-if (``HEADSPACE_WHAT_IF_STEPS``, default 2000)."""
    return _count(
        "HEADSPACE_WHAT_IF_STEPS",
        None,
        least=LEAST_WHAT_IF_STEPS,
        instead="a what-if takes at most 2000 steps",
    )


def keeps_data() -> bool:
    """Whether a what-if trains on every input (``HEADSPACE_KEEP_DATA``, default no). Calls are then only delayed, or wait
    for each other."""
    return read_switch("HEADSPACE_KEEP_DATA", "results of stages are repeated")


def num_caches() -> int:
    """Number of batches that a probe or a replay repeats (``HEADSPACE_NUM_CACHES``, default 10).

    At most :func:`return_caches_after`, because the cache is filled from live batches.
    """
    most = return_caches_after()
    default = min(DEFAULT_CACHES, most)
    return _count("HEADSPACE_NUM_CACHES", default, most=most) or default


def return_caches_after() -> int:
    """Number of live batches before a replay (``HEADSPACE_RETURN_CACHES_AFTER``, default 100)."""
    return _count("HEADSPACE_RETURN_CACHES_AFTER", LIVE_BEFORE_REPLAY) or LIVE_BEFORE_REPLAY


def stop_after() -> int | None:
    """Number of batches after which an epoch of a replay ends (``HEADSPACE_STOP_AFTER``, default the
    length of the loader)."""
    return _count(
        "HEADSPACE_STOP_AFTER",
        None,
        least=return_caches_after(),
        instead="an epoch has the length of its loader",
    )


def stops_after_probe() -> bool:
    """Whether the loop ends when its probe is done (``HEADSPACE_STOP_AFTER_PROBE``, default no)."""
    return read_switch("HEADSPACE_STOP_AFTER_PROBE", "training continues after the probe")


def exactly_once() -> bool:
    """Whether a probed epoch delivers every batch of its loader (``HEADSPACE_EXACTLY_ONCE``, default
    no). The repeated batches then make the epoch longer."""
    return read_switch("HEADSPACE_EXACTLY_ONCE", "a probed epoch keeps its length")


def options_from(mode: str | None = None) -> str:
    """Where the user sets the options of a loop, as a name for the records.

    Args:
        mode: The argument `mode` of `wrap`. If it is given, messages name arguments of `wrap`.
    """
    if mode is not None:
        return "wrap"
    return "run" if "HEADSPACE_RUN" in os.environ else "environment"


def loop_options() -> dict[str, Any]:
    """The options of a probe, a replay and a what-if, for a loader that is not wrapped."""
    return {
        "num_caches": num_caches(),
        "return_caches_after": return_caches_after(),
        "stop_after": stop_after(),
        "probe_steps": probe_steps(),
        "stop_after_probe": stops_after_probe(),
        "exactly_once": exactly_once(),
        "what_if_steps": what_if_steps(),
        "keep_data": keeps_data(),
    }


def samples_stacks() -> bool:
    """Whether the stacks of threads are sampled (``HEADSPACE_STACKS``, default yes)."""
    return read_switch("HEADSPACE_STACKS", "stacks are sampled", default=True)


def memory() -> str:
    """What is counted to find what makes the memory grow (``HEADSPACE_MEMORY``, default ``types``)."""
    return _choice("HEADSPACE_MEMORY", (OFF, TYPES, TRACEMALLOC), TYPES, "is not known")


def libraries() -> list[str]:
    """The folders of the standard library, of installed packages and of this package."""
    own = os.path.dirname(os.path.abspath(__file__))
    # Python ignores entries that are no text, such as a `Path`.
    entries: list[object] = [*sys.path]
    ends = ("site-packages", "dist-packages")
    installed = [path for path in entries if isinstance(path, str) and path.endswith(ends)]
    return [f"{path}{os.sep}" for path in (os.path.dirname(os.__file__), own, *installed)]


def _choice(name: str, known: tuple[str, ...], default: str, fault: str) -> str:
    """One of the known values of a variable, in any case. Another value is refused, and the default is used."""
    value = os.environ.get(name, "").strip().lower() or default
    if value in known:
        return value
    first = ", ".join(f"`{one}`" for one in known[:-1])
    refuse(name, f"`{value}` {fault} (write {first} or `{known[-1]}`); `{default}` is used.")
    return default


def _count(
    name: str, default: int | None, *, least: int = 1, most: int = 2**31 - 1, instead: str = ""
) -> int | None:
    """A whole number of the environment."""
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    number = int(value) if value.isascii() and value.isdigit() and len(value) < 11 else -1
    if least <= number <= most:
        return number
    limits = f"of {least} or more" if most == 2**31 - 1 else f"from {least} to {most}"
    refuse(name, f"`{value}` is not a whole number {limits}; {instead or f'{default} is used'}.")
    return default


def world_size() -> int:
    """Number of processes of the run, from the launcher or ``torch.distributed``; 1 without both."""
    return max(1, read_number(_WORLD_SIZE, number_from_torch("get_world_size", 1)))


def local_rank() -> int:
    """Rank of this process on its machine, from its launcher; its rank without a launcher."""
    return read_number(_LOCAL_RANK, read_rank())


def rank_on_node() -> int | None:
    """Number of this process among the ranks of its machine, from its launcher. None if it is the only rank
    of the machine, or without a launcher."""
    number = read_number(_LOCAL_RANK, -1)
    return None if number < 0 or ranks_on_node() == 1 else number


def ranks_on_node() -> int | None:
    """Number of ranks on this machine, from their launcher. None if that is unknown."""
    return 1 if world_size() == 1 else read_number(_LOCAL_WORLD_SIZE, 0) or None


def export(besides: set[str]) -> list[tuple[str, dict[str, str], bool]]:
    """Destinations of records besides the run folder (``HEADSPACE_EXPORT``, default none).

    The value is a list separated by commas: ``otlp``, ``prometheus:9464``. An error of one destination is
    reported when it is opened, and does not affect the others. If the script itself uses a destination of
    the same kind, the entry is ignored with a notice: one collector would receive the same run twice.

    Args:
        besides: Kinds of destinations that the script uses.
    """
    found = []
    for entry in os.environ.get("HEADSPACE_EXPORT", "").split(","):
        kind, colon, at = entry.strip().partition(":")
        kind = kind.strip().lower()
        if kind in besides:
            refuse(
                "HEADSPACE_EXPORT",
                f"`{entry.strip()}` is ignored, because the script itself uses `{kind}`.",
            )
        elif kind:
            found.append((kind, {"at": at} if colon else {}, False))
        elif colon:
            refuse(
                "HEADSPACE_EXPORT",
                f"`{entry.strip()}` names no destination (write `prometheus:9464`); it is ignored.",
            )
    return found


def versions(own: str) -> dict[str, str]:
    """Versions of headspace, Python, and each framework that the process has loaded."""
    found = {"headspace": own, "python": sys.version.split()[0]}
    for name in ("torch", "numpy", "spdl", "lightning", "accelerate", "transformers", "av"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = version
    return found
