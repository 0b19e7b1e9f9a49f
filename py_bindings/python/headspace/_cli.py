"""The `headspace` command of the wheel."""

from __future__ import annotations

import signal
import sys

from headspace._native import run_command


def main() -> int:
    """Runs the command. Returns its exit status."""
    # As in any command: Ctrl-C ends it at once, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_command(sys.argv)
