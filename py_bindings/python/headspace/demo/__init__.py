"""`headspace demo`: writes a small training program, measures it, and says what to try next."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headspace import _settings
from headspace._session.step_history import StepHistory

#: The folder to which the program is written, so that the verdict names lines of the user's own folder.
FOLDER = Path("headspace-demo")

#: Steps without the option `--steps`. A probe of the demo ends before them.
STEPS = 2400

PROGRAM = Path(__file__).with_name("train.py")

INTRODUCTION = """\
This trains a small model for some seconds. The loader reads clips from a store that answers slowly,
{decoder}, and {threads}. The program is `{program}`: read it, and change it.
"""

NEXT = """
{step}
Then measure your own training:

    headspace run --mode probe --stop-after-probe -- python YOUR_TRAINING.py

Its code needs no change if it uses a loader that headspace knows, such as torch's `DataLoader`. Wrap a generator or a
loader of your own, as `{program}` does:

    for batch in headspace.wrap(loader):
"""

WITH_REMEDY = """\
The verdict names what limits the training, and remedies with the step that each would give. The first remedy here:
{remedy} Measure it{where}:

    {folder}headspace demo --threads {calls}{more}
"""

WITHOUT_REMEDY = """\
The verdict names what limits the training. Measure it with more threads{where}:

    {folder}headspace demo --threads {calls}{more}
"""

WITHOUT_VERDICT = """\
This run has no verdict, because headspace measured too few steps. Measure more steps:

    {folder}headspace demo{more}
"""

WITH_MORE_THREADS = """\
`headspace report {runs}` shows the steps of all runs together.
"""


def main(words: Sequence[str]) -> int:
    """Runs the command, and returns its exit status."""
    args = _parse(words)
    if not _settings.enabled():
        return _fail("`HEADSPACE` turns headspace off, so the demo has nothing to show")
    try:
        program = _write_program(args.reset)
    except OSError as error:
        remedy = f"Change to a folder of your own, or remove `{FOLDER}`"
        return _fail(f"cannot use `{FOLDER}` in this folder: {error}. {remedy}")
    threads = f"loads on {args.threads} threads" if args.threads > 1 else "loads on one thread"
    decoder = "decodes them with PyAV" if args.video else "decompresses them"
    print(INTRODUCTION.format(decoder=decoder, threads=threads, program=program), flush=True)
    code = _measure(program, args)
    if code == 0:
        print(NEXT.format(step=_next_step(args), program=program))
    return code


def _next_step(args: argparse.Namespace) -> str:
    """What to try after this run."""
    runs = shlex.quote(_settings.directory())
    more = " --video" if args.video else ""
    is_named = "HEADSPACE_DIR" in os.environ
    summary = _newest_summary(_settings.directory())
    if summary.get("steady_step_mean_ms") is None:
        threads = f" --threads {args.threads}" if args.threads > 1 else ""
        return WITHOUT_VERDICT.format(
            folder=f"HEADSPACE_DIR={runs} " if is_named else "",
            more=f"{threads} --steps {max(STEPS, 2 * args.steps)}{more}",
        )
    if args.threads > 1:
        return WITH_MORE_THREADS.format(runs=runs)
    first = (summary.get("remedies") or [{}])[0]
    change = first.get("change") or {}
    is_concurrency = change.get("setting") == "concurrency"
    calls = change["to"] if is_concurrency else "4"
    return (WITH_REMEDY if is_concurrency else WITHOUT_REMEDY).format(
        calls=calls,
        remedy=first.get("what"),
        # A user who has named the folder for this run names another one for the next.
        where=", with another folder for its run" if is_named else "",
        folder=f"HEADSPACE_DIR={calls}-threads " if is_named else "",
        more=more,
    )


def _newest_summary(runs: str) -> dict[str, Any]:
    """The summary of the newest run, in which missing values are null. Empty if there is none."""
    try:
        newest = StepHistory(runs)
        newest.read()
    except OSError:
        return {}
    return newest.summary


def _write_program(is_reset: bool) -> Path:
    """Writes the program, unless the user has changed the one that is there.

    Raises:
        OSError: If it cannot be written, or if the folder or the program is not the user's own: someone else could change
            what this command runs.
    """
    FOLDER.mkdir(mode=0o755, exist_ok=True)
    program = FOLDER / PROGRAM.name
    _check_own(FOLDER, stat.S_ISDIR)
    original = PROGRAM.read_bytes()
    if os.path.lexists(program):
        _check_own(program, stat.S_ISREG)
        if not is_reset and program.read_bytes() != original:
            print(f"`{program}` is not the original program. `--reset` restores it.", flush=True)
            return program
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with open(os.open(program, flags, 0o644), "wb") as file:
        file.write(original)
    return program


def _check_own(path: Path, is_kind: Callable[[int], bool]) -> None:
    """Checks that a path is of this kind and this user's own, no link, and that not every user may write to it."""
    found = path.lstat()
    if not is_kind(found.st_mode):
        raise OSError(
            f"`{path}` is a link, or not a {'folder' if is_kind is stat.S_ISDIR else 'file'}"
        )
    if found.st_uid != os.geteuid():
        raise OSError(f"`{path}` belongs to another user")
    if found.st_mode & stat.S_IWOTH:
        raise OSError(f"`{path}` can be written by every user")


def _measure(program: Path, args: argparse.Namespace) -> int:
    """Runs the program with a probe, and returns its exit status."""
    options = ["--threads", str(args.threads), "--steps", str(args.steps)]
    options += ["--video"] if args.video else []
    measure = [sys.executable, "-m", "headspace", "run", "--mode", "probe", "--stop-after-probe"]
    # Ctrl-C also reaches the program, which ends and prints its verdict. This process waits for it.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.call([*measure, "--", sys.executable, str(program), *options])
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def _fail(message: str) -> int:
    print(f"headspace demo: {message}", file=sys.stderr)
    return 2


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="headspace demo",
        description="Train a small model on a slow loader, and show what headspace finds. Needs only Python.",
    )
    add = parser.add_argument
    add("--threads", type=_count, default=1, metavar="N", help="threads that load [default: 1]")
    add(
        "--steps",
        type=_count,
        default=STEPS,
        metavar="N",
        help=f"steps, at most [default: {STEPS}]",
    )
    add("--video", action="store_true", help="decode mp4 files (needs PyAV: `pip install av`)")
    add("--reset", action="store_true", help=f"write `{FOLDER / PROGRAM.name}` again")
    args = parser.parse_args(words)
    if args.video and importlib.util.find_spec("av") is None:
        parser.error("`--video` needs PyAV: `pip install av`")
    return args


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, and is `{text}`")
    return number
