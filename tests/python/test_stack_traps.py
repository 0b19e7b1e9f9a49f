"""Stacks are read while code is freed, threads and processes end, and the program exits."""

from __future__ import annotations

import re

import pytest
from running import PACKAGE, VERSIONS, Programs, interpreter
from test_stacks import line_of, ran, top_line


@pytest.mark.parametrize("version", VERSIONS)
def test_no_stack_mixes_two_functions_and_the_program_ends_as_it_would(
    program: Programs, version: str
) -> None:
    run = program("stack_traps.py", 400, python=[interpreter(version)], env=PACKAGE)
    assert (run.exit_code, run.stdout.strip()) == (0, "done"), run.stderr

    stacks = run.kind("stacks")[-1]
    generated = 0
    for frame in stacks["frames"]:
        if found := re.fullmatch(r"/generated/(\d+)\.py", frame["file"]):
            number = int(found[1])
            generated += 1
            assert frame["function"] in (f"function_{number}", "<module>"), frame
            begin = 10 * (number % 50) + 1
            assert begin <= frame["line"] <= begin + 2, frame
    assert generated >= 5, stacks["frames"]


def test_a_container_that_forbids_process_vm_readv_is_read_through_proc(program: Programs) -> None:
    # Reading through /proc takes longer, so there are fewer samples: one or two per second on a slow machine.
    run = ran(program, "inline", "sleep", steps=1500, name="no_process_vm_readv.py")
    line = top_line(run)
    assert (line["stage"], line["line"]) == ("load", line_of("sleep"))
