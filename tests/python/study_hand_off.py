"""Predicted and measured steps of programs that take long to pass batches between processes.

    python tests/python/study_hand_off.py [--steps 500]

Each program runs under `headspace run`. Then it runs without headspace: as it is, and with each remedy of the
hand-off that headspace proposes. The study prints the predicted and the measured steps. It is not a test, because it
takes minutes and its result depends on other load of the machine.
"""

from __future__ import annotations

import argparse
from typing import Any

from study_programs import step_ms, summary

PROGRAM = "hand_off.py"

USUAL = {
    "kind": "tensor",
    "dtype": "float32",
    "load_ms": 5,
    "compute_ms": 3,
    "workers": 2,
    "together": 1,
    "threads": False,
}

CASES = [
    {"mib": 24},
    {"mib": 48, "compute_ms": 10},
    {"mib": 12, "workers": 1, "load_ms": 2},
    {"mib": 8, "kind": "array"},
    {"mib": 24, "kind": "array", "compute_ms": 8},
    {"mib": 0.01, "load_ms": 0.5, "compute_ms": 0.2},
]

CHANGES: dict[str, dict[str, Any]] = {
    "smaller_tensors": {"dtype": "float16"},
    "share_arrays": {"kind": "tensor"},
    "larger_messages": {"together": 4},
    "load_in_threads": {"threads": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    print(f"{'program':44}{'change':>17}{'now':>8}{'predicted':>11}{'measured':>10}{'error':>8}")
    for case in CASES:
        spec = {**USUAL, **case, "steps": args.steps}
        found = summary(PROGRAM, spec)
        now = step_ms(PROGRAM, spec)
        name = ", ".join(f"{key} {value}" for key, value in case.items())
        limit = (found["bottleneck"] or {"kind": "unknown"})["kind"]
        print(
            f"{name:44}{'':17}{now:8.1f}   headspace: {found['steady_step_mean_ms']:.1f}, {limit}"
        )
        for remedy in found["remedies"]:
            if (change := CHANGES.get(remedy["code"])) is None:
                continue
            measured = step_ms(PROGRAM, {**spec, **change})
            predicted = remedy["predicted_step_ms"] * now / found["steady_step_mean_ms"]
            error = (
                "unknown" if remedy.get("at_least") else f"{100 * (predicted / measured - 1):+.0f}%"
            )
            print(
                f"{'':44}{remedy['code']:>17}{now:8.1f}{predicted:11.1f}{measured:10.1f}{error:>8}"
            )


if __name__ == "__main__":
    main()
