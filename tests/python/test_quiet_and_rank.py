"""All parts of headspace agree whether this process prints notices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from running import clean_environment, remove_settings

import headspace
from headspace import _environment

PACKAGE = Path(headspace.__file__).parent
PATH_ENTRY = PACKAGE / "_injection/path_entry"

#: Environments, and whether a process in them prints notices.
ENVIRONMENTS: list[tuple[dict[str, str], bool]] = [
    ({}, True),
    ({"HEADSPACE_QUIET": ""}, True),
    ({"HEADSPACE_QUIET": "0"}, True),
    ({"HEADSPACE_QUIET": "No"}, True),
    ({"HEADSPACE_QUIET": "1"}, False),
    ({"HEADSPACE_QUIET": " TRUE "}, False),
    ({"HEADSPACE_QUIET": "maybe"}, True),
    ({"HEADSPACE_QUIET": "2"}, True),
    ({"HEADSPACE_QUIET": "maybe", "RANK": "1"}, False),
    ({"RANK": "0"}, True),
    ({"RANK": "00"}, True),
    ({"RANK": "3"}, False),
    ({"SLURM_PROCID": "0"}, True),
    ({"SLURM_PROCID": "3"}, False),
    ({"OMPI_COMM_WORLD_RANK": "3"}, False),
    ({"PMI_RANK": "3"}, False),
    # torchrun in a task of Slurm: the rank is that of torchrun.
    ({"RANK": "0", "SLURM_PROCID": "1"}, True),
    ({"RANK": "8", "SLURM_PROCID": "0"}, False),
    ({"RANK": "first"}, True),
    ({"RANK": ""}, True),
    ({"RANK": "-1"}, True),
    ({"RANK": str(2**31)}, True),
    ({"RANK": "first", "PMI_RANK": "3"}, False),
    ({"HEADSPACE_QUIET": "1", "RANK": "0"}, False),
]


def bare_environment() -> dict[str, str]:
    """The environment without the variables of headspace and of launchers."""
    clean = clean_environment()
    return {name: value for name, value in clean.items() if name not in _environment.RANK}


@pytest.fixture
def hooks() -> ModuleType:
    """The hooks of `headspace run`, loaded by their path as `sitecustomize` does, and not installed."""
    spec = spec_from_file_location("hooks_under_test", PACKAGE / "_injection/hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.package = str(PACKAGE)  # type: ignore[attr-defined]
    return module


@pytest.fixture
def incomplete_package(tmp_path: Path) -> Path:
    """A copy of the folder with `sitecustomize`, beside which `hooks.py` is missing."""
    folder = tmp_path / "_injection/path_entry"
    folder.mkdir(parents=True)
    shutil.copy(PATH_ENTRY / "sitecustomize.py", folder)
    return folder


@pytest.mark.parametrize(("env", "prints"), ENVIRONMENTS)
def test_the_settings_and_the_hooks_agree_about_notices(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hooks: ModuleType,
    env: dict[str, str],
    prints: bool,
) -> None:
    remove_settings(monkeypatch)
    for name in _environment.RANK:
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_environment, "refused", [])

    assert _environment.prints_notices() == prints
    hooks._print_notice("something happened")
    assert capsys.readouterr().err == ("headspace: something happened\n" if prints else "")


@pytest.mark.parametrize(("env", "prints"), ENVIRONMENTS)
def test_sitecustomize_agrees_with_them(
    incomplete_package: Path, env: dict[str, str], prints: bool
) -> None:
    started = subprocess.run(
        [sys.executable, "-c", "print('trained')"],
        env={
            **bare_environment(),
            **env,
            "PYTHONPATH": str(incomplete_package),
            "HEADSPACE_RUN": "PYTHONPATH",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (started.returncode, started.stdout) == (0, "trained\n")
    assert started.stderr.startswith("headspace: nothing is measured: ") == prints
    assert len(started.stderr.splitlines()) == int(prints)


def test_a_notice_is_printed_if_the_rule_cannot_be_loaded(
    capsys: pytest.CaptureFixture[str], hooks: ModuleType, tmp_path: Path
) -> None:
    hooks.package = os.fspath(tmp_path)  # type: ignore[attr-defined]

    hooks._print_notice("something happened")

    assert capsys.readouterr().err == "headspace: something happened\n"
