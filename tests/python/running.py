"""Runs the programs of `tests/programs` and reads their records.

The fixtures are in `running_fixtures.py`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hung_programs
import pytest
from ci_scripts import ROOT, load_script

debian_pythons = load_script("debian_pythons")
interpreters = load_script("interpreters")

PROGRAMS = Path(__file__).parents[1] / "programs"

#: Deadline of each wait. It is long, because it only ends programs that hang.
DEADLINE_S = 60.0

Record = dict[str, Any]


def clean_environment() -> dict[str, str]:
    """The environment without the variables of headspace."""
    return {key: value for key, value in os.environ.items() if not key.startswith("HEADSPACE")}


def remove_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the variables of headspace from the environment."""
    for name in os.environ.keys() - clean_environment().keys():
        monkeypatch.delenv(name)


def wait_until(condition: Callable[[], object], what: str, timeout: float = DEADLINE_S) -> None:
    """Waits until `condition()` is true. Fails after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"not within {timeout:g} s: {what}")
        time.sleep(0.005)


def thread_names() -> list[str]:
    """Names of the threads of this process."""
    names = []
    for comm in Path("/proc/self/task").glob("*/comm"):
        # A thread may exit after it was listed.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append(comm.read_text().strip())
    return names


def free_port() -> int:
    """A port that no process listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


#: Environment in which an interpreter that does not have the package finds it.
PACKAGE = {"PYTHONPATH": str(ROOT / "py_bindings/python")}

#: Every supported version of Python.
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")


def interpreter(version: str) -> str:
    """An interpreter of this version. Skips the test if this machine has none."""
    found = python_interpreters().get(version)
    if found is None:
        can_be_had = version in debian_pythons.VERSIONS
        pytest.skip(f"no Python {version}" if can_be_had else f"platform: no Python {version}")
    return found


@functools.cache
def python_interpreters() -> dict[str, str]:
    """An interpreter of each version that this machine has, this one first."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    for version, python in interpreters.find_interpreters(list(VERSIONS)).items():
        if python is not None and version not in found:
            # pyenv's shims are scripts: `sys.executable` is the interpreter that they start.
            show = [python, "-c", "import sys; print(sys.executable)"]
            done = subprocess.run(show, capture_output=True, text=True, check=True)
            found[version] = done.stdout.strip()
    return found


def create_environment(python: str, folder: Path, *packages: str) -> None:
    """Creates a virtual environment and installs packages there. `packages` are arguments of `pip install`.

    Raises:
        CalledProcessError: If that fails.
    """
    # Not every interpreter can install pip into a new environment.
    create = [python, "-m", "venv", "--clear", "--without-pip", str(folder)]
    install = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python")]
    install += ["--disable-pip-version-check", "--no-input", "install", "--quiet", *packages]
    for command in (create, install):
        subprocess.run(command, check=True, capture_output=True)


def read_records(path: Path, *, unfinished: bool = False) -> list[Record]:
    """The records of one rank's file. Every line must be whole.

    If the file is `unfinished`, because its process still runs or was killed, its last line may be
    incomplete and is dropped.
    """
    text = path.read_text()
    if unfinished:
        text = text[: text.rfind("\n") + 1]
    else:
        assert text.endswith("\n"), "the last line is cut"
    return [json.loads(line) for line in text.splitlines()]


def of_kind(records: list[Record], kind: str) -> list[Record]:
    return [record for record in records if record["kind"] == kind]


def steps_in_ticks(records: list[Record], loop: str | None = None) -> int:
    """Number of steps in all ticks, over all phases."""
    return sum(
        entry["steps"]
        for tick in of_kind(records, "tick")
        for entry in tick["loops"]
        if loop is None or entry["name"] == loop
    )


def words(text: str) -> str:
    """The text on one line, so that a test finds a sentence although it is wrapped."""
    return " ".join(text.split())


def rank_environment(rank: int) -> dict[str, str]:
    """The environment of one of two ranks, as `torchrun` sets it."""
    return {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "two"}


@dataclass(frozen=True)
class Runs:
    """A folder of runs."""

    path: Path

    @property
    def folders(self) -> list[Path]:
        return sorted(self.path.iterdir()) if self.path.is_dir() else []

    @property
    def folder(self) -> Path:
        """The only run."""
        (folder,) = self.folders
        return folder

    def records(self, rank: int = 0) -> list[Record]:
        """One rank's records of the only run."""
        return read_records(self.folder / f"rank{rank}.jsonl")

    def kind(self, kind: str, rank: int = 0) -> list[Record]:
        return of_kind(self.records(rank), kind)

    def summary(self, rank: int = 0) -> Record:
        """The last summary, which is the final one."""
        return self.kind("summary", rank)[-1]

    def notices(self, rank: int = 0) -> list[str]:
        """The codes of the notices."""
        return [notice["code"] for notice in self.kind("notice", rank)]


@dataclass(frozen=True)
class Ran(Runs):
    """A program that has ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def traceback_tail(self) -> list[str]:
        """The innermost frame of the error that ended the program, and the error, as printed."""
        lines = self.stderr.splitlines()
        frames = [i for i, line in enumerate(lines) if line.startswith("  File ")]
        error = next(i for i in range(frames[-1], len(lines)) if not lines[i].startswith(" "))
        return lines[frames[-1] : error + 1]


@dataclass(frozen=True)
class Started(Runs):
    """A program that is still running."""

    process: subprocess.Popen[str]
    _said: list[str] = field(default_factory=list)

    def records(self, rank: int = 0) -> list[Record]:
        """One rank's records of the only run so far. Empty until its file exists."""
        if not self.folders:
            return []
        path = self.folder / f"rank{rank}.jsonl"
        return read_records(path, unfinished=True) if path.exists() else []

    def wait_for(self, line: str) -> None:
        """Reads stdout up to that line."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            self._said.append(text)
            if text.strip() == line:
                return
        out, err = self.process.communicate()
        pytest.fail(f"ended without saying {line!r}: {''.join(self._said)}{out}\n{err}")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self, timeout: float = DEADLINE_S) -> Ran:
        """Waits for the end."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            stacks = hung_programs.describe_processes(self.process.pid)
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
            pytest.fail(f"still running after {timeout:g} s\n{stacks}\n{out}\n{err}")
        return Ran(self.path, self.process.returncode, "".join(self._said) + out, err)


class Programs:
    """Starts test programs, each with its own folder for runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._started: list[subprocess.Popen[str]] = []

    def start(
        self,
        name: str,
        *args: object,
        env: dict[str, str] | None = None,
        runs: Path | None = None,
        python: list[str] | None = None,
        **popen: Any,
    ) -> Started:
        self._count += 1
        runs = runs or self._folder / f"runs-{self._count}"
        environ = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("HEADSPACE", "PYTHONW", "PYTHONPATH", "PYTHONUNBUFFERED"))
        }
        process = subprocess.Popen(
            [*(python or [sys.executable]), str(PROGRAMS / name), *map(str, args)],
            env={**environ, "HEADSPACE_DIR": str(runs), **(env or {})},
            cwd=self._folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            **{"stderr": subprocess.PIPE, **popen},
        )
        self._started.append(process)
        return Started(runs, process)

    def __call__(self, name: str, *args: object, timeout: float = DEADLINE_S, **how: Any) -> Ran:
        """Runs a program to its end."""
        return self.start(name, *args, **how).finish(timeout)

    def end(self) -> None:
        for process in self._started:
            try:  # Also ends processes that the program forked.
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
