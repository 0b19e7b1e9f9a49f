"""The fake NVML (tests/fake_nvml), built once. A test module loads it with
`pytest_plugins = ["nvml_fixtures"]`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_NAME = "libnvidia-ml.so.1"
PACKAGES = {"new": "headspace-fake-nvml", "old": "headspace-fake-nvml-old"}


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders with the library of the current driver (`new`) and of an old one (`old`)."""
    cargo = os.environ.get("CARGO", "cargo")
    built = subprocess.run(
        [cargo, "build", "--locked", "--message-format=json"]
        + [f"--package={name}" for name in PACKAGES.values()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    folders = {}
    for kind, package in PACKAGES.items():
        target = package.removeprefix("headspace-").replace("-", "_")
        [path] = [
            name
            for message in messages
            if message["reason"] == "compiler-artifact" and message["target"]["name"] == target
            for name in message["filenames"]
            if name.endswith(".so")
        ]
        folders[kind] = tmp_path_factory.mktemp(f"nvml-{kind}")
        shutil.copy(path, folders[kind] / FILE_NAME)
    return folders


@pytest.fixture(scope="session")
def library(libraries: dict[str, Path]) -> Path:
    """The library of the current driver, for `HEADSPACE_NVML_LIB`."""
    return libraries["new"] / FILE_NAME
