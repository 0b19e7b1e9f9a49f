"""Follows the tutorial as a new user does: every command in order, in an empty environment with only the wheel.

    python tests/python/study_tutorial.py [--wheel dist/headspace-0.1.0-….whl] [--python python3.12]

The commands are read from `docs/tutorial.md`. As the tutorial says, the number of threads comes from the verdict. Section 7
needs a training of the user: here it is a generator of the standard library, first in `headspace.wrap` and then without a
change.

The study prints each command with its time, and below it each check with what was found. The exit code is 1 if a check
fails. It is not a test, because its results depend on other load of the machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from doc_blocks import ROOT, SHELLS, blocks_of, commands_of

PAGE = "docs/tutorial.md"

#: Time limit, in seconds, for naming the bottleneck and for measuring its remedy.
LIMIT_S = 600.0

#: Maximum relative difference between the measured and the predicted step.
MAX_ERROR = 0.25

#: The variables that an empty environment keeps. `PIP_…` and certificates are settings of the machine's network.
KEPT = re.compile(r"PATH|HOME|LANG|PIP_.*|SSL_.*|REQUESTS_.*|(https?|no)_proxy", re.I)

OWN_TRAINING = """
import hashlib
import os
import zlib
{imports}

def batches():
    for _ in range(1500):
        yield zlib.decompress(CLIP)


def train_step(batch):
    hashlib.sha256(batch).digest()


# This takes longer than headspace needs to notice the definition of `batches`.
CLIP = zlib.compress(os.urandom(500_000) + bytes(3_000_000))
for batch in {batches}:
    train_step(batch)
"""


@dataclass(frozen=True)
class CommandResult:
    """A command of the tutorial that has ended."""

    command: str
    seconds: float
    output: str
    """What it printed, to both streams."""

    def row(self, title: str) -> str:
        """The row of the verdict with this title, with the rows below it that have none. Empty if there is none."""
        found = re.search(rf"^{title}\b.*(\n .*)*", self.output, re.M)
        return found[0] if found else ""

    def step_ms(self) -> float | None:
        return _milliseconds(self.row("step").removeprefix("step"))

    def bottleneck(self) -> str:
        """What the row says first, such as the name of a stage. Empty if there is no such row."""
        found = re.match(r"bottleneck +(\S+)", self.row("bottleneck"))
        return found[1] if found else ""

    def remedy(self) -> tuple[float | None, str]:
        """The predicted step and the text of the first remedy."""
        row = self.row("remedies").removeprefix("remedies")
        first = re.split(r"\n {11}(?=\S)", row)[0]
        return _milliseconds(row), " ".join(first.split())


def _milliseconds(text: str) -> float | None:
    found = re.match(r"\s*([\d.]+) (µs|ms|s)\b", text)
    return float(found[1]) * {"µs": 1e-3, "ms": 1.0, "s": 1e3}[found[2]] if found else None


class Shell:
    """The user's shell: exported variables persist between commands."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._variables = folder / ".variables"
        self._variables.write_text("")
        self.seconds = 0.0

    def run(self, command: str) -> CommandResult:
        """Runs a command, and prints it with its time.

        Raises:
            SystemExit: If the command fails. The message has what it printed.
        """
        began = time.monotonic()
        script = f'. "$0"; {command}\ncode=$?; export -p > "$0"; exit $code'
        done = subprocess.run(
            ["bash", "-c", script, self._variables],
            cwd=self._folder,
            env={name: value for name, value in os.environ.items() if KEPT.fullmatch(name)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        seconds = time.monotonic() - began
        self.seconds += seconds
        if done.returncode != 0:
            raise SystemExit(f"`{command}` failed with {done.returncode}:\n{done.stdout}")
        print(f"{self.seconds:6.0f} s  +{seconds:5.1f} s  $ {command}", flush=True)
        return CommandResult(command, seconds, done.stdout)


class Checks:
    """The checks, printed as they are made."""

    def __init__(self) -> None:
        self.failed = 0

    def check(self, ran: CommandResult, claim: str, *, holds: bool, found: str) -> None:
        """Prints what was found. If the claim does not hold, also prints what the command printed."""
        print(f"{'':18}{'ok  ' if holds else 'FAIL'} {claim}: {found}", flush=True)
        if not holds:
            self.failed += 1
            print(indent(ran.output, " " * 18), flush=True)

    def check_time(self, ran: CommandResult, what: str, shell: Shell) -> None:
        found = f"{shell.seconds:.0f} s"
        self.check(ran, f"{what} within ten minutes", holds=shell.seconds < LIMIT_S, found=found)

    def check_bottleneck(self, ran: CommandResult, claim: str) -> None:
        """Any named bottleneck passes, because it depends on the machine which one it is."""
        named = ran.bottleneck()
        found = f"{named}. {ran.remedy()[1]}"
        self.check(ran, claim, holds=named not in ("", "unknown"), found=found)


def follow(folder: Path, python: str) -> int:
    """Follows the tutorial in a folder that has the wheel. Returns the number of checks that failed."""
    blocks = blocks_of(PAGE, (ROOT / PAGE).read_text(), SHELLS)
    install, first, apply, compare, what_if, video, run_wrapped, run_batch_from = map(
        commands_of, blocks
    )
    shell, checks = Shell(folder), Checks()

    for command in install:
        shell.run(re.sub(r"^python3\b", python, command))

    one_thread = shell.run(*first)
    predicted, remedy = one_thread.remedy()
    checks.check(
        one_thread, "the bottleneck", holds=one_thread.bottleneck() == "fetch", found=remedy
    )
    checks.check_time(one_thread, "the verdict", shell)
    calls = re.search(r"Run (\d+) concurrent calls of `fetch` instead of 1", remedy)
    if calls is None or predicted is None:
        raise SystemExit(f"The first remedy is not more calls of `fetch`:\n{one_thread.output}")

    def with_own_number(command: str) -> str:
        command = re.sub(r"--threads \d+", f"--threads {calls[1]}", command)
        return re.sub(r"\b\d+-threads\b", f"{calls[1]}-threads", command)

    (command,) = map(with_own_number, apply)
    checks.check(
        one_thread,
        "the demo prints the tutorial's next command",
        holds=f"    {command}\n" in one_thread.output,
        found=command,
    )
    threads = shell.run(command)
    step = threads.step_ms() or float("nan")
    checks.check(
        threads,
        "the remedy gains what was predicted",
        holds=abs(step / predicted - 1) <= MAX_ERROR,
        found=f"predicted {predicted:.1f} ms, measured {step:.1f} ms",
    )

    compared = shell.run(*map(with_own_number, compare))
    gain = re.search(r"^B is .*?\.(?=\s)", compared.output, re.M | re.S)
    said = " ".join(gain[0].split()) if gain else "no sentence about the gain"
    checks.check(
        compared, "the gain is certain", holds=said.startswith("B is faster than A"), found=said
    )
    checks.check_time(compared, "the gain", shell)

    answers = shell.run(*what_if)
    for stage in ("fetch", "decode"):
        answer = re.search(rf"(\S+ m?s \(\S+ %\)) +If `{stage}` took no", answers.row("what if"))
        checks.check(
            answers,
            f"what if `{stage}` took no time",
            holds=answer is not None,
            found=answer[1] if answer else "no row",
        )

    for command in video:
        shown = shell.run(command)
    checks.check_bottleneck(shown, "the bottleneck with video")

    for title, commands, fields in (
        (
            "wrapped",
            run_wrapped,
            {"imports": "import headspace\n", "batches": "headspace.wrap(batches())"},
        ),
        ("without a change", run_batch_from, {"imports": "", "batches": "batches()"}),
    ):
        (folder / "train.py").write_text(OWN_TRAINING.format(**fields))
        checks.check_bottleneck(
            shell.run(*commands), f"the bottleneck of the user's own training, {title}"
        )
    return checks.failed


def _newest_wheel() -> Path:
    machine = platform.machine()
    found = sorted((ROOT / "dist").glob(f"*{machine}.whl"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise SystemExit(
            f'There is no wheel in dist/: run make wheels WHEELS_ARGS="--only {machine}".'
        )
    return found[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="by default the newest in dist/")
    parser.add_argument("--python", default="python3", help="makes the empty environment")
    args = parser.parse_args()
    wheel = args.wheel or _newest_wheel()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(wheel, folder)
        print(f"{wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB)", flush=True)
        failed = follow(Path(folder), args.python)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
