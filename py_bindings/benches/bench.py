"""Prints what headspace costs a training process, beside its targets.

    python bench.py                 # everything, about four minutes
    python bench.py wrap memory     # these only
    python bench.py --quick --json  # few repetitions, printed as JSON

Each value and its reference are measured in the same run, because machines differ, and the speed of one machine
changes from minute to minute.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable

import importing
import interpreter
import loading
import machine
import memory
import per_item
import slowdown
import staging
import what_if
from rows import Row, table

PARTS: dict[str, tuple[str, Callable[[bool], list[Row]]]] = {
    "wrap": ("nanoseconds a batch", per_item.run),
    "stage": ("nanoseconds a call of a stage", staging.run),
    "whatif": ("what mode `whatif` costs outside its windows", what_if.run),
    "torch": ("nanoseconds that a watched batch of torch's loader takes more", loading.run),
    "import": ("milliseconds at start", importing.run),
    "run": ("milliseconds that a launcher adds", importing.launched),
    "memory": ("bytes added, and the cost of counting objects", memory.run),
    "interpreter": ("costs inside the interpreter", interpreter.run),
    "loop": ("slow-down of a loop of 10 ms steps", slowdown.run),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="few repetitions: for a look only")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    for part in args.parts:
        if part not in PARTS:
            parser.error(f"there is no part `{part}`: choose from {', '.join(PARTS)}")

    facts = machine.describe()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="headspace-bench-") as folder:
        for name in [name for name in os.environ if name.startswith("HEADSPACE")]:
            del os.environ[name]
        os.environ.update(HEADSPACE_DIR=folder, HEADSPACE_QUIET="1")
        for part in args.parts or PARTS:
            title, run = PARTS[part]
            print(f"measuring: {title} ...", file=sys.stderr, flush=True)
            rows += run(args.quick)

    if args.json:
        print(json.dumps({"machine": facts, "rows": [row.to_dict() for row in rows]}, indent=2))
        return
    for name, value in facts.items():
        print(f"{name:10}{value}")
    print()
    print(table(rows))


if __name__ == "__main__":
    main()
