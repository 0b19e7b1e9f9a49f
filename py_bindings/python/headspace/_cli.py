"""Runs the `headspace` command of the wheel."""

from __future__ import annotations

import os
import signal
import sys

from headspace._native import run_command


def main() -> int:
    """Runs the command and returns its exit status."""
    if sys.argv[1:2] == ["tune"]:
        # This command is written in Python. It ends the programs that it runs before it exits.
        from headspace.tune._main import main as tune

        return tune(sys.argv[2:])
    if sys.argv[1:2] == ["demo"]:
        from headspace.demo import main as demo

        return demo(sys.argv[2:])
    # Ctrl-C ends the command at once, without a traceback. If SIGINT is ignored, as in a background job of a
    # shell, it stays ignored, also in the program that replaces this process under `run`.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] == ["run"]:
        # Python ignores SIGXFSZ. The program that replaces this process would inherit this setting.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    package = os.path.dirname(os.path.abspath(__file__))
    path_entry = os.path.join(package, "_injection", "path_entry")
    return run_command(sys.argv, path_entry)
