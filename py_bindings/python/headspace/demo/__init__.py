"""`headspace demo`: writes a small training program, measures it, and says what to try next."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

#: The folder to which the program is written, so that the verdict names lines of the user's own folder.
FOLDER = Path("headspace-demo")

PROGRAM = Path(__file__).with_name("train.py")

INTRODUCTION = """\
This trains for about half a minute. The loader reads clips from a store that answers slowly, {decoder},
and {threads}. The program is `{program}`: read it, and change it.
"""

NEXT_WITH_ONE_THREAD = """
The verdict names what limits the training, and remedies with the step that each would give. Try the first one:

    headspace demo --threads 4

Then measure your own training. Its code needs no change:

    headspace run -- python train.py
"""

NEXT_WITH_MORE_THREADS = """
Compare the predicted step of the run with one thread with the step of this run: `headspace report headspace-runs`
lists all runs. Then measure your own training. Its code needs no change:

    headspace run -- python train.py
"""


def main(words: Sequence[str]) -> int:
    """Runs the command, and returns its exit status."""
    args = _parse(words)
    FOLDER.mkdir(exist_ok=True)
    program = Path(shutil.copyfile(PROGRAM, FOLDER / PROGRAM.name))
    threads = f"loads on {args.threads} threads" if args.threads > 1 else "loads on one thread"
    decoder = "decodes them with PyAV" if args.video else "decompresses them"
    print(INTRODUCTION.format(decoder=decoder, threads=threads, program=program), flush=True)
    options = ["--threads", str(args.threads), "--steps", str(args.steps)]
    options += ["--video"] if args.video else []
    measure = [sys.executable, "-m", "headspace", "run", "--mode", "probe", "--stop-after-probe"]
    try:
        code = subprocess.call([*measure, "--", sys.executable, str(program), *options])
    except KeyboardInterrupt:
        return 130
    if code == os.EX_OK:
        print(NEXT_WITH_MORE_THREADS if args.threads > 1 else NEXT_WITH_ONE_THREAD)
    return code


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="headspace demo",
        description="Train a small model on a slow loader, and show what headspace finds. Needs only Python.",
    )
    add = parser.add_argument
    add("--threads", type=_count, default=1, metavar="N", help="threads that load [default: 1]")
    add("--steps", type=_count, default=2400, metavar="N", help="steps, at most [default: 2400]")
    add("--video", action="store_true", help="decode mp4 files (needs PyAV: `pip install av`)")
    args = parser.parse_args(words)
    if args.video and importlib.util.find_spec("av") is None:
        parser.error("`--video` needs PyAV: `pip install av`")
    return args


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number from 1 on")
    return number
