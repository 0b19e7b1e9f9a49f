"""Decides whether this process prints notices: headspace is not quiet, and the rank is 0. Collects invalid
settings.

`_settings.py` uses these functions, and `_injection/hooks.py` loads this file by its path, before any module
of headspace. So this file imports nothing of headspace. `_injection/path_entry/sitecustomize.py` has a copy
of the rule, because it must run on any Python.
"""

from __future__ import annotations

import os
import sys

#: Variables in which launchers pass the rank: torchrun, Slurm, Open MPI, MPICH.
RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

#: Invalid settings that are not recorded yet, and what is wrong. The next session records them.
refused: list[tuple[str, str]] = []


def refuse(setting: str, problem: str) -> None:
    """Reports an invalid setting once."""
    if (setting, problem) not in refused:
        refused.append((setting, problem))


def prints_notices() -> bool:
    """Whether this process prints notices on stderr."""
    return not is_quiet() and read_rank() == 0


def is_quiet() -> bool:
    """Whether nothing is printed on stderr (``HEADSPACE_QUIET``, default no)."""
    return read_switch("HEADSPACE_QUIET", "headspace is not quiet")


def read_rank() -> int:
    """Rank of this process, from its launcher or ``torch.distributed``; 0 without both."""
    return read_number(RANK, number_from_torch("get_rank", 0))


def read_switch(name: str, instead: str, *, default: bool = False) -> bool:
    """Whether a setting is on."""
    value = os.environ.get(name, "").strip().lower()
    if value in ("1", "on", "true", "yes"):
        return True
    if value in ("0", "off", "false", "no"):
        return False
    if value:
        refuse(name, f"`{value}` is neither 0 nor 1; {instead}.")
    return default


def read_number(names: tuple[str, ...], default: int) -> int:
    """The number in the first of these variables that has a valid one."""
    for name in names:
        value = os.environ.get(name)
        if value is None:
            continue
        try:
            number = int(value)
        except ValueError:
            number = -1
        if 0 <= number < 2**31:
            return number
        refuse(name, f"`{value}` is not a whole number of 0 or more; it is ignored.")
    return default


def number_from_torch(what: str, default: int) -> int:
    """A number from ``torch.distributed``, if the program initialised it without a launcher."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_initialized():
            return default
        number = getattr(distributed, what)()
        return number if type(number) is int and number >= 0 else default
    except Exception:
        return default
