"""`headspace demo`: writes a small training program, measures it, and says what to try next."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from headspace import _settings
from headspace._session.step_history import StepHistory

#: The folder to which the program is written, so that the verdict names lines of the user's own folder.
FOLDER = Path("headspace-demo")

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
The verdict names what limits the training, and remedies with the step that each would give. The first remedy here is
`{stage}` with a concurrency of {calls}. Measure it{where}:

    {folder}headspace demo --threads {calls}{more}
"""

WITHOUT_REMEDY = """\
The verdict names what limits the training. Measure it with more threads{where}:

    {folder}headspace demo --threads {calls}{more}
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
        return _fail(f"cannot write the demo's program: {error}. Change to a folder of your own")
    threads = f"loads on {args.threads} threads" if args.threads > 1 else "loads on one thread"
    decoder = "decodes them with PyAV" if args.video else "decompresses them"
    print(INTRODUCTION.format(decoder=decoder, threads=threads, program=program), flush=True)
    code = _measure(program, args)
    if code == 0:
        print(NEXT.format(step=_next_step(args), program=program))
    return code


def _next_step(args: argparse.Namespace) -> str:
    """What to try after this run."""
    runs = _settings.directory()
    if args.threads > 1:
        return WITH_MORE_THREADS.format(runs=runs)
    change = _first_change(runs) or {"to": "4", "target": ""}
    text = WITH_REMEDY if change["target"] else WITHOUT_REMEDY
    # A user who has named the folder for this run names another one for the next.
    is_named = "HEADSPACE_DIR" in os.environ
    return text.format(
        calls=change["to"],
        stage=change["target"],
        where=", with another folder for its run" if is_named else "",
        folder=f"HEADSPACE_DIR={change['to']}-threads " if is_named else "",
        more=" --video" if args.video else "",
    )


def _first_change(runs: str) -> dict[str, str] | None:
    """The change that the first remedy of the newest run proposes, if it is a number of concurrent calls."""
    try:
        newest = StepHistory(runs)
        newest.read()
    except OSError:
        return None
    remedies = newest.summary.get("remedies") or [{}]
    change: dict[str, str] | None = remedies[0].get("change")
    return change if change is not None and change["setting"] == "concurrency" else None


def _write_program(is_reset: bool) -> Path:
    """Writes the program, unless the user has changed the one that is there."""
    FOLDER.mkdir(exist_ok=True)
    program = FOLDER / PROGRAM.name
    if program.exists() and not is_reset and program.read_bytes() != PROGRAM.read_bytes():
        print(f"`{program}` is not the original program. `--reset` restores it.", flush=True)
    else:
        shutil.copyfile(PROGRAM, program)
    return program


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
    add("--steps", type=_count, default=2400, metavar="N", help="steps, at most [default: 2400]")
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
