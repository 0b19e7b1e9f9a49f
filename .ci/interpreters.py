"""Finds Python interpreters of given versions: on the path, those of pyenv, and those of `debian_pythons.py`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: The folder of the interpreters that `debian_pythons.py` unpacks.
DEBIAN_PYTHONS = Path(sys.prefix) / "debian-pythons"


def find_interpreters(versions: list[str]) -> dict[str, Path | None]:
    """An interpreter of each version (for example `3.12` or `3.14t`), or None if there is none that runs."""
    return {
        version: next(filter(can_make_environments, candidates(version)), None)
        for version in versions
    }


def candidates(version: str) -> Iterator[Path]:
    """Programs that may be interpreters of this version. A shim of pyenv is one of them, but may not run."""
    name = f"python{version}"
    on_path = shutil.which(name)
    if on_path is not None:
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    # `3.14t` is the folder `3.14.2t` or `3.14t-dev`, but its program has the short name.
    yield from sorted(pyenv.glob(f"versions/*/bin/{name}"))
    yield from DEBIAN_PYTHONS.glob(f"usr/bin/{name}")


def can_make_environments(python: Path) -> bool:
    """Whether it runs, and has `venv`. A shim of pyenv fails if its version is not selected."""
    try:
        done = subprocess.run([python, "-c", "import venv"], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
