"""The `headspace` command of the wheel."""

from __future__ import annotations

import os
import signal
import sys

from headspace._native import run_command


def main() -> int:
    """Runs the command. Returns its exit status."""
    if sys.argv[1:2] == ["tune"]:
        # A program of its own in Python, which ends what it runs before it ends itself.
        from headspace.tune._main import main as tune

        return tune(sys.argv[2:])
    # As in any command: Ctrl-C ends it at once, without a traceback.
    # Where it is ignored, as in a shell's background job, it stays so, for what `run` becomes as well.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] == ["run"]:
        # Python ignores it, and what `run` becomes would inherit that.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    inject = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_inject")
    return run_command(sys.argv, inject)
