"""`.ci/debian_pythons.py`, which unpacks missing versions of Python for the tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ci_scripts import load_script

debian_pythons = load_script("debian_pythons")


def test_no_version_is_downloaded_that_this_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin/python3.98"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(python.parent))
    monkeypatch.setattr(debian_pythons, "VERSIONS", ["3.98"])

    debian_pythons.install(tmp_path / "pythons")

    assert not (tmp_path / "pythons").exists()


def test_without_apt_it_says_so_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(debian_pythons, "VERSIONS", ["3.99"])
    monkeypatch.setattr(debian_pythons, "DEBIAN_PYTHONS", tmp_path / "pythons")
    monkeypatch.setenv("PATH", "")

    assert debian_pythons.main() == 1
    assert capsys.readouterr().out == "not installed: `apt-get` is not in PATH\n"
