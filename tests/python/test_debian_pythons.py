"""`.ci/debian_pythons.py`, which unpacks missing versions of Python for the tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from ci_scripts import load_script

debian_pythons = load_script("debian_pythons")


def test_no_version_is_downloaded_that_this_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian_pythons, "VERSIONS", [])
    monkeypatch.setenv("PATH", "")

    debian_pythons.install(tmp_path / "pythons")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("ci", "exit_code"), [("", 0), ("true", 1)])
def test_without_apt_it_says_so_and_fails_in_ci(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ci: str,
    exit_code: int,
) -> None:
    monkeypatch.setattr(debian_pythons, "VERSIONS", ["3.99"])
    monkeypatch.setattr("sys.argv", ["debian_pythons.py", str(tmp_path / "pythons")])
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", ci)

    assert debian_pythons.main() == exit_code
    assert capsys.readouterr().out == "not installed: `apt-get` is not in PATH\n"
