"""Runs programs and tests under valgrind, and fails if an error involves headspace's extension module.

`python tests/memcheck [NAME...]`, or `make memcheck`. NAME chooses runs. The module comes from a build without
optimisation. Optimised code may test a field of an enum before its variant. valgrind then reports a use of an
uninitialised value, although it has no effect.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import valgrind

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests/python"
PROGRAMS = ROOT / "tests/programs"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")

#: Name of the module in the package.
MODULE = "_native.abi3.so"

sys.path.append(str(TESTS))

from running import clean_environment, create_environment, python_interpreters  # noqa: E402

#: Deadline of a run. It only ends programs that hang.
TIMEOUT_S = 1200

NOT_CHECKED = """\
Not checked: data races (valgrind runs one thread at a time; see `make loom`), bounds within mapped memory (the slots of
stages and workers), objects that CPython keeps in free lists, and programs that need torch or NumPy. Tests that fail
because valgrind is slow are listed, but are no failure here."""


@dataclass(frozen=True)
class Run:
    """What is run under valgrind."""

    name: str
    arguments: list[str]
    env: dict[str, str] = field(default_factory=dict)

    @property
    def is_pytest(self) -> bool:
        return self.arguments[:2] == ["-m", "pytest"]


def program(name: str, *arguments: str, **env: str) -> Run:
    words = [name.removesuffix(".py"), *arguments, *env.values()]
    return Run("-".join(words), [str(PROGRAMS / name), *arguments], env)


def tests(name: str, *arguments: str) -> Run:
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", f"timeout={TIMEOUT_S}"]
    return Run(name.removesuffix(".py"), [*pytest, str(TESTS / name), *arguments])


RUNS = [
    # Loops, the cache loader and the probe, stages, queues.
    tests("test_iteration.py"),
    tests("test_copied_iterators.py"),
    tests("test_stage.py"),
    # Without tests that measure times, and without spawned processes, which take minutes.
    tests("test_queue.py", "-k", "not bottleneck and not hand_off and not spawn"),
    program("threads.py", "probe", "2", "2"),
    program("threads.py", "replay", "2", "2"),
    program("coroutine_stage.py", "40"),
    # The sampler of stacks, while code is freed, threads end, and processes are killed.
    program("stack_traps.py", "15"),
    # Forks and worker processes.
    program("fork_storm.py", "6"),
    program("forks_workers.py"),
    program("children.py", HEADSPACE_MODE="probe"),
    program("stage_workers.py", "fork", "processes"),
    program("stage_workers.py", "fork", "pool"),
    program("stage_workers.py", "fork", "kill"),
    program("stage_workers.py", "fork", "earlier"),
    program("stage_workers.py", "spawn", "executor"),
    # The search for objects.
    Run("objects", [str(Path(__file__).with_name("objects.py"))]),
    # Ends of programs.
    program("interpreter.py", "exit", "python"),
]


def by_version(item: tuple[str, list[str]]) -> list[int]:
    """A key for interpreters by version (`3.x`)."""
    return [int(number) for number in item[0].split(".")]


def make_environment(folder: Path) -> Path:
    """An environment with pytest, for the first interpreter in which valgrind finds nothing. Returns its interpreter.

    Some builds of CPython use uninitialised values themselves, for example 3.11: `_PyLong_FromByteArray` reads a digit
    of 0, which has none. Such values spread, so they hide those of headspace.
    """
    if shutil.which("valgrind") is None:
        sys.exit(
            "error: memcheck: `valgrind` is not in PATH. Install it (Debian: apt install valgrind)."
        )
    for version, path in sorted(python_interpreters().items(), key=by_version, reverse=True):
        reports, output = folder / f"python{version}", folder / f"python{version}.txt"
        command = [path, "-c", "import asyncio, ctypes, json, multiprocessing, threading"]
        code = valgrind.run(command, reports, output, clean_environment(), TIMEOUT_S)
        if code == 0 and not valgrind.read_errors(reports):
            environment = folder / f"environment-{version}"
            create_environment(path, environment, "-r", str(ROOT / "requirements/memcheck.txt"))
            print(f"python {version}: {path}", flush=True)
            return environment / "bin/python"
        print(f"python {version}: not used, because it fails or has errors of its own")
    sys.exit(
        "error: memcheck: no Python without errors of its own. Install another version from 3.10 on."
    )


def copy_package(folder: Path) -> None:
    """The package with the module from the build without optimisation. The installed one stays as it is."""
    source = ROOT / "py_bindings/python/headspace"
    shutil.copytree(
        source, folder / "headspace", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    shutil.copy(TARGET / "debug/lib_native.so", folder / "headspace" / MODULE)


def expected_codes(run: Run) -> tuple[int, ...]:
    """The exit codes of a run that completed. pytest exits with 1 if tests failed."""
    if run.is_pytest:
        return (0, 1)
    return (9,) if run.arguments[1:2] == ["exit"] else (0,)


def check(run: Run, python: Path, package: Path, folder: Path) -> bool:
    """Runs the program, and prints one line and the errors of headspace. Returns whether there are none."""
    reports, output = folder / run.name, folder / f"{run.name}.txt"
    env = {
        **clean_environment(),
        "PYTHONPATH": str(package),
        "HEADSPACE_DIR": str(folder / f"{run.name}-runs"),
        "HEADSPACE_INTERVAL": "0.2",
        **run.env,
    }
    begin = time.monotonic()
    try:
        code = valgrind.run([str(python), *run.arguments], reports, output, env, TIMEOUT_S)
    except subprocess.TimeoutExpired:
        print(f"{run.name} was killed: it ran for {TIMEOUT_S} s")
        return False
    errors = valgrind.read_errors(reports)
    own = [error for error in errors if valgrind.involves(error, MODULE)]
    processes = len(list(reports.glob("*.xml")))
    print(
        f"{run.name:32} {time.monotonic() - begin:5.0f} s  {processes:3} processes  "
        f"errors: {len(own)} of headspace, {len(errors) - len(own)} of others",
        flush=True,
    )
    for error in own:
        print(valgrind.describe(error), end="\n\n")
    lines = output.read_text(errors="replace").splitlines()
    passed = [line for line in lines if " passed" in line]
    if run.is_pytest:
        print(*[line for line in lines if line.startswith("FAILED")], *passed, sep="\n")
    if code not in expected_codes(run) or (run.is_pytest and not passed):
        print(f"ended with exit code {code}:", *lines[-20:], sep="\n")
        return False
    return not own


def main() -> int:
    names = sys.argv[1:]
    if unknown := set(names) - {run.name for run in RUNS}:
        known = ", ".join(run.name for run in RUNS)
        sys.exit(f"error: memcheck: no run {', '.join(sorted(unknown))}. There are {known}.")
    folder = TARGET.absolute() / "memcheck"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    python = make_environment(folder)
    copy_package(folder / "package")
    chosen = [run for run in RUNS if not names or run.name in names]
    failed = [run.name for run in chosen if not check(run, python, folder / "package", folder)]
    print(NOT_CHECKED)
    if failed:
        print(f"failed: {', '.join(failed)}. The reports are in {folder}.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
