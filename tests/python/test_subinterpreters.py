"""headspace works in the main interpreter only. A subinterpreter refuses its import, and the program continues.

Free-threaded interpreters refuse the wheel.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from headspace_run import HEADSPACE
from packaging.tags import cpython_tags
from running import PACKAGE, VERSIONS, Programs, Ran, interpreter

#: Time limit of the program in seconds. It hung before subinterpreters were refused.
TIMEOUT_S = 30.0


def run(program: Programs, version: str, *args: str, **how: Any) -> Ran:
    how.setdefault("python", [interpreter(version)])
    env = {**PACKAGE, "HEADSPACE_INTERVAL": "10ms", "PYTHONDONTWRITEBYTECODE": "1"}
    env |= how.pop("env", {})
    return program("subinterpreters.py", *args, env=env, timeout=TIMEOUT_S, **how)


def steps_of_main(run: Ran) -> int:
    """The number of batches that the main interpreter prints. Every other line must be a refusal, or the end."""
    *lines, last = run.stdout.splitlines()
    assert last == "end", run.stderr
    batches = [int(line.split()[1]) for line in lines if line.startswith("main ")]
    others = [line for line in lines if not line.startswith("main ")]
    assert all("ImportError" in line and "main interpreter" in line for line in others), others
    return sum(batches)


@pytest.mark.parametrize("end", ["destroyed", "left"])
@pytest.mark.parametrize("order", ["main first", "sub first"])
@pytest.mark.parametrize("gil", ["shared", "own"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_subinterpreter_refuses_headspace_and_the_main_one_counts_every_batch(
    program: Programs, version: str, gil: str, order: str, end: str
) -> None:
    ran = run(program, version, gil, order, end)

    assert ran.exit_code == 0, ran.stderr
    assert "error " in ran.stdout
    assert steps_of_main(ran) in (100, 200)
    assert sum(epoch["steps"] for epoch in ran.kind("epoch")) == steps_of_main(ran)
    assert ran.summary()["state"] == "finished"
    assert "Fatal" not in ran.stderr


@pytest.mark.parametrize("gil", ["shared", "own"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_program_that_imports_headspace_only_in_a_subinterpreter_ends_without_records(
    program: Programs, version: str, gil: str
) -> None:
    # Python 3.14 and later warn of a subinterpreter that is left.
    env = {"PYTHONWARNINGS": "ignore:remaining subinterpreters:RuntimeWarning"}
    ran = run(program, version, gil, "sub only", "left", env=env)

    assert ran.exit_code == 0, ran.stderr
    assert "error " in ran.stdout
    assert steps_of_main(ran) == 0
    assert ran.stderr == ""
    assert ran.folders == []


@pytest.mark.parametrize("gil", ["shared", "own"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_subinterpreter_that_works_meanwhile_changes_no_count(
    program: Programs, version: str, gil: str
) -> None:
    ran = run(program, version, gil, "at once", "destroyed")

    assert ran.exit_code == 0, ran.stderr
    assert steps_of_main(ran) == sum(epoch["steps"] for epoch in ran.kind("epoch")) >= 200


def test_under_headspace_run_a_program_with_a_subinterpreter_ends_as_without(
    program: Programs,
) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = [*HEADSPACE, "--", sys.executable]

    ran = run(program, version, "shared", "main first", "left", python=python)

    assert ran.exit_code == 0, ran.stderr
    assert steps_of_main(ran) == sum(epoch["steps"] for epoch in ran.kind("epoch")) == 100


def test_pip_refuses_the_wheel_for_a_free_threaded_python() -> None:
    wheel = ("cp310", "abi3")

    def accepts(abi: str) -> bool:
        tags = cpython_tags((3, 13), [abi], ["linux_x86_64"])
        return any((tag.interpreter, tag.abi) == wheel for tag in tags)

    assert accepts("cp313")
    assert not accepts("cp313t")
