"""Fixtures of the tests of a running agent. `conftest.py` imports them."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Programs, Runs, remove_settings

import headspace

_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """A name for a stage or a queue that no other test uses. Their counts outlive sessions."""
    return f"the {next(_numbers)}th"


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Programs]:
    """Runs the scripts of `tests/programs`."""
    programs = Programs(tmp_path)
    yield programs
    programs.end()


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A mounted file system of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if mount is None or subprocess.run([mount, *options], capture_output=True).returncode != 0:
        pytest.skip("platform: nothing can be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """The runs of the session of this process. The session ends after the test and prints nothing."""
    remove_settings(monkeypatch)
    folder = tmp_path / "runs"
    monkeypatch.setenv("HEADSPACE_DIR", str(folder))
    monkeypatch.setenv("HEADSPACE_QUIET", "1")
    # The tests' libraries have a million objects in this process. Counting them takes too long for a short run.
    monkeypatch.setenv("HEADSPACE_MEMORY", "off")
    headspace.stop()
    yield Runs(folder)
    headspace.stop()


@pytest.fixture
def session(runs: Runs) -> Iterator[headspace.Session]:
    """A session with a short interval."""
    with headspace.start(interval=0.05) as session:
        yield session
