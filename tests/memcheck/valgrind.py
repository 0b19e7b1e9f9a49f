"""Starts Python under valgrind, and reads the errors that valgrind wrote."""

from __future__ import annotations

import html
import re
import subprocess
from pathlib import Path

SUPPRESSIONS = Path(__file__).with_name("python.supp")

#: CPython's own allocator takes large blocks and divides them. valgrind knows the bounds of blocks of `malloc` only.
MALLOC = {"PYTHONMALLOC": "malloc"}

#: A process that is killed leaves a file without an end, so the errors are found by their tags.
ERROR = re.compile(r"<error>.*?</error>", re.DOTALL)


def run(
    arguments: list[str], reports: Path, output: Path, env: dict[str, str], timeout: float
) -> int:
    """Runs a command and the processes that it starts. Each writes its errors into a file of the folder `reports`.

    Returns the exit code.

    Raises:
        subprocess.TimeoutExpired: The command was killed.
    """
    reports.mkdir(parents=True)
    command = [
        "valgrind",
        "--trace-children=yes",
        "--num-callers=50",
        "--error-limit=no",
        # With `--xml=yes`, valgrind ignores `--leak-check=no`.
        "--show-leak-kinds=none",
        f"--suppressions={SUPPRESSIONS}",
        "--xml=yes",
        f"--xml-file={reports}/%p.xml",
        *arguments,
    ]
    with output.open("w") as file:
        done = subprocess.run(
            command,
            env={**env, **MALLOC},
            cwd=output.parent,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=timeout,
        )
    return done.returncode


def read_errors(reports: Path) -> list[str]:
    """The errors of all processes, as XML. Memory that is not freed at the end is none."""
    texts = [path.read_text(errors="replace") for path in sorted(reports.glob("*.xml"))]
    errors = [error for text in texts for error in ERROR.findall(text)]
    return [error for error in errors if "<kind>Leak_" not in error]


def involves(error: str, module: str) -> bool:
    """Whether a stack of the error has a frame of this file: of the access, or of what allocated or freed the block."""
    return f"/{module}</obj>" in error


def describe(error: str) -> str:
    """The error as text: what it is, and its stacks."""
    lines = []
    for tag, text in re.findall(r"<(what|text|auxwhat|fn|obj|line|file)>(.*?)</", error):
        if tag in ("what", "text", "auxwhat"):
            lines.append(text)
        elif tag == "obj":
            lines.append(f"    in {text}")
        elif tag == "fn":
            lines[-1] = f"    {text}  {lines[-1].strip()}"
        elif tag == "file":
            lines[-1] += f" {text}"
        else:
            lines[-1] += f":{text}"
    return html.unescape("\n".join(lines))
