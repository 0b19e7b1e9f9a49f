"""The page with the options of each command: what the installed `headspace` prints for `--help`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from mkdocs.exceptions import PluginError

INTRODUCTION = """\
# Options of each command

This page is what `headspace COMMAND --help` prints. [Commands and settings](../commands.md) says what the commands are
for, and [Output and exit codes](../cli/README.md) what programs can rely on.
"""

#: A line of the list of commands: the name, and the beginning of its description.
COMMAND = re.compile(r"  (?P<name>[a-z][a-z-]*) {2,}(?P<words>\S.*)")

#: Width of the help in columns. It fits beside the navigation.
WIDTH = "90"


def command_page() -> str:
    """The page, in Markdown.

    Raises:
        PluginError: If `headspace` is not installed, or fails.
    """
    program = _find_command()
    return INTRODUCTION + "".join(_sections(program, []))


def _find_command() -> str:
    """The command of the package that is installed beside this Python, else the one in PATH."""
    beside = Path(sys.executable).with_name("headspace")
    program = str(beside) if beside.exists() else shutil.which("headspace")
    if program is None:
        raise PluginError(
            f"the command `headspace` is neither beside {sys.executable} nor in PATH, and the page of its options is "
            "made from what it prints. `make docs` installs it, and so does `pip install .`"
        )
    return program


def _sections(program: str, words: list[str]) -> Iterator[str]:
    """The section of a command, and those of its subcommands."""
    text = _help(program, words)
    name = " ".join(["headspace", *words])
    yield f"\n## `{name}`\n\n```text\n$ {name} --help\n{text}\n```\n"
    for command in commands(text):
        if command != "help":
            yield from _sections(program, [*words, command])


def commands(text: str) -> list[str]:
    """Names of the commands that a help lists."""
    _, _, listed = text.partition("\nCommands:\n")
    lines, _, _ = listed.partition("\n\n")
    return [match["name"] for line in lines.splitlines() if (match := COMMAND.fullmatch(line))]


def _help(program: str, words: list[str]) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("HEADSPACE")
    }
    done = subprocess.run(
        [program, *words, "--help"],
        env={**environment, "COLUMNS": WIDTH, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        command = " ".join([program, *words, "--help"])
        raise PluginError(f"`{command}` failed with exit code {done.returncode}: {done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
