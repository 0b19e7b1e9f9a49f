"""Tries an installed headspace: the command, its demo, and the package in a program.

    python tests/wheel_smoke.py --version 0.1.0 --inside /path/of/the/environment

`make wheels` runs this file for each wheel and each Python, in an empty virtual environment. So it needs only the standard
library. It prints one line per check, and ends with an error at the first one that fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: Seconds until a command counts as hung.
DEADLINE_S = 300

BATCHES = 500

#: Trains on a list, and prints what the report says.
PROGRAM = f"""
import json
import headspace

for batch in headspace.wrap([[i] for i in range({BATCHES})]):
    pass
summary = headspace.report().to_dict()
print(json.dumps({{"file": headspace.__file__, "version": headspace.__version__, "steps": summary["steps"]}}))
"""


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("HEADSPACE")},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    if done.returncode != 0:
        sys.exit(f"`{command[-1]}` exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def expect(is_true: bool, what: str) -> None:
    """Prints the check, or ends the program."""
    if not is_true:
        sys.exit(f"failed: {what}")
    print(f"passed: {what}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tries an installed headspace.")
    parser.add_argument("--version", required=True, help="the version that must be installed")
    parser.add_argument("--inside", type=Path, help="the folder in which the package must be")
    args = parser.parse_args()
    command = Path(sys.executable).with_name("headspace")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        told = run(command, "--version", folder=folder).stdout.split()
        expect(told[-1:] == [args.version], f"`headspace --version` says {args.version}: {told}")

        printed = json.loads(run(sys.executable, "-c", PROGRAM, folder=folder).stdout)
        expect(printed["version"] == args.version, f"the package has version {args.version}")
        expect(
            printed["steps"] == BATCHES, f"a wrapped list has {printed['steps']} steps of {BATCHES}"
        )
        if args.inside is not None:
            file = Path(printed["file"]).resolve()
            expect(
                args.inside.resolve() in file.parents, f"the package is the installed one: {file}"
            )

        sources = json.loads(run(command, "doctor", "--json", folder=folder).stdout)["sources"]
        expect(len(sources) > 5, f"`headspace doctor` knows {len(sources)} sources")

        demo = folder / "demo"
        demo.mkdir()
        run(command, "demo", "--steps", "300", folder=demo)
        (records,) = demo.glob("headspace-runs/*/rank0.jsonl")
        last = json.loads(records.read_text().splitlines()[-1])
        expect(last["kind"] == "summary", "`headspace demo` writes a summary")
        expect(last["steps"] >= 300, f"the demo trains {last['steps']} steps, at least 300")


if __name__ == "__main__":
    main()
