"""`headspace demo`: writes a small training program, measures it, and says what to try next."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from headspace import _settings

#: The folder to which the program is written, so that the verdict names lines of the user's own folder.
FOLDER = Path("headspace-demo")

PROGRAM = Path(__file__).with_name("train.py")

INTRODUCTION = """\
This trains a small model for some seconds. The loader reads clips from a store that answers slowly,
{decoder}, and {threads}. The program is `{program}`: read it, and change it.
"""

NEXT = """
{step}
Then measure your own training. Its code needs no change:

    headspace run -- python train.py
"""

WITH_ONE_THREAD = """\
The verdict names what limits the training, and remedies with the step that each would give. Look at the step with
four threads:

    headspace demo --threads 4
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
        runs = _settings.directory()
        step = WITH_MORE_THREADS.format(runs=runs) if args.threads > 1 else WITH_ONE_THREAD
        print(NEXT.format(step=step))
    return code


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
